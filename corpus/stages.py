"""The base types of stages, and the registry by which a stage is one module.

A *record stage* measures one record at a time: it gives signals (one value per record), and rules compare signals
with thresholds of its config. A *corpus stage* needs all records and ends a pass. A stage module is imported for its
config model by the command line, so it must not import NumPy, pyarrow, Numba or Beam at its top: it imports kernels in
``prepare``.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from corpus.errors import UsageError
from corpus.stage_values import CorpusVerdict as CorpusVerdict
from corpus.stage_values import Judgement as Judgement
from corpus.stage_values import Off as Off
from corpus.stage_values import Rule as Rule
from corpus.stage_values import Signal as Signal
from corpus.stage_values import StageConfig as StageConfig
from corpus.stage_values import Test as Test
from corpus.stage_values import TextBatch as TextBatch
from corpus.stage_values import TextField as TextField

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

STAGE_PACKAGES = ("filters", "dedup", "scorers")


class Stage(ABC):
    """What record and corpus stages share. One object serves many batches, in one process.

    Attributes:
        speed: said by ``thresher stages`` of a stage that is much slower than the compiled ones; else empty. A slow
            stage does not look at records that left earlier in the same pass.
    """

    kind: ClassVar[str]
    Config: ClassVar[type[StageConfig]]
    summary: ClassVar[str]
    speed: ClassVar[str] = ""

    @classmethod
    def variant(cls, config: StageConfig) -> type[Stage]:
        """Return the class that carries out these settings; a stage may be of another kind under other settings."""
        return cls

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        self.config = config
        self.name = name
        self.text_field = text_field
        self.language_column: str | None = None
        """Column of the marks with what limits of its rules differ by: the labels of the last language stage before, or
        a signal of its own; None where they do not differ."""
        self.chat_column: str | None = None
        """Column of the user's whose chats the stage reads turn by turn; None where it does not."""

    @property
    def accelerator(self) -> bool:
        """Whether the stage uses a GPU where there is one."""
        return False

    def user_columns(self) -> Mapping[str, str]:
        """Return the columns of the user's that the stage reads: setting -> column."""
        return {}

    def uses_languages(self) -> bool:
        """Say whether the settings make the stage depend on languages; it then needs a language stage before it."""
        return False

    def bind(self, before: Sequence[Stage]) -> None:
        """Look up what the settings say of the stages that stand before. Raises UsageError, naming the setting."""
        if not self.uses_languages():
            return
        for stage in before:
            label = stage.curated_columns().get("language")
            if label is not None:
                self.language_column = f"{stage.name}.{label}"
        if self.language_column is None:
            raise UsageError(
                f"stages.{self.name}: its settings differ by language, and no language stage stands before it; list "
                "the stage language first"
            )

    def check(self) -> None:
        """Check packages and files that the settings name, once the stage is bound. Raises UsageError.

        A stage of a finished run is built for its rules alone, and then nothing is checked: digests stand for files.
        """

    def read_chats(self, column: str) -> None:
        """Be told that records are chats, and their column of the user's; a stage may read it turn by turn."""

    def signal_columns(self) -> tuple[str, ...]:
        """Return the columns of the marks, of stages before it, that the stage reads."""
        return () if self.language_column is None else (self.language_column,)

    @abstractmethod
    def signals(self) -> tuple[Signal, ...]:
        """Return the signals that the stage stores, in order."""

    @abstractmethod
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are switched on, in the order in which they are asked (at most 62)."""

    def curated_columns(self) -> Mapping[str, str]:
        """Return the columns of the curated records that hold signals of the stage: column name -> signal."""
        return {}

    def fingerprint(self) -> Mapping[str, str]:
        """Return digests of the files (models, lists) that the result depends on, for the semantic config."""
        return {}

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return what the stage has to remark on the texts that entered it, as sums over batches; by default nothing.

        Args:
            signals: the stage's signals on these texts, and the columns that ``signal_columns`` names.
        """
        return {}

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Return the sentences for the report, given the sums of ``notice_counts`` and of ``entered``."""
        return []

    def prepare(self) -> None:
        """Load kernels and models; called once per process before the first batch. Raises UsageError."""


class RecordStage(Stage):
    """A stage that judges each record by itself.

    Attributes:
        finds: whether ``judge`` may give findings.
        may_fail: whether ``judge`` may give errors.
    """

    kind = "record"
    default_field: ClassVar[TextField] = "response"
    finds: ClassVar[bool] = False
    may_fail: ClassVar[bool] = False

    @abstractmethod
    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return one array per signal, as long as the batch. Values of rows that are not alive do not count."""

    def judge(self, batch: TextBatch) -> Judgement:
        """Return the signals, and what else the stage found."""
        return Judgement(self.measure(batch))


EDIT_SIGNALS = (
    Signal("edits", "int64", "Spans that were cut or replaced."),
    Signal("characters_cut", "int64", "Code points in these spans."),
    Signal("characters_added", "int64", "Code points of their replacements."),
    Signal("characters_left", "int64", "Code points after the edits, 0 where these leave white space only."),
)
EMPTY_AFTER_EDIT = Rule("empty_after_edit", "characters_left", "at_least", 1.0)


class EditingStage(RecordStage):
    """A record stage that may cut or replace parts of texts.

    The stages behind it see the text without what it cut. The field ``both`` means each field of a pair by itself:
    ``judge`` is called once per field, and its signals, which are int64, are summed up. Signals of the edits and the
    rule ``empty_after_edit`` are added to its own where its settings let it edit.
    """

    finds = True

    @abstractmethod
    def edits(self) -> bool:
        """Say whether the settings let the stage change texts."""

    @abstractmethod
    def own_signals(self) -> tuple[Signal, ...]:
        """Return the signals that ``judge`` gives, in order; all int64 where the stage takes the field ``both``."""

    @abstractmethod
    def own_rules(self) -> tuple[Rule, ...]:
        """Return the stage's own rules that are on, in the order in which they are asked (at most 61)."""

    @abstractmethod
    def judge(self, batch: TextBatch) -> Judgement:
        """Return own signals and findings on the texts of one field."""

    def signals(self) -> tuple[Signal, ...]:
        """Return own signals, then those of the edits."""
        return (*self.own_signals(), *EDIT_SIGNALS) if self.edits() else self.own_signals()

    def rules(self) -> tuple[Rule, ...]:
        """Return own rules, then that an edit must leave some text."""
        return (*self.own_rules(), EMPTY_AFTER_EDIT) if self.edits() else self.own_rules()

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return own signals."""
        return self.judge(batch).signals


class CorpusStage(Stage):
    """A stage that needs all records: something goes out where a batch is staged, and verdicts come back to it.

    The steps between are those of its kind, in ``pipelines``. A corpus stage may have a *record part*, which measures
    each record in the pass that the stage ends; its signals lie in the marks of that pass, and it has no rules. The
    verdict on a batch, when the next pass opens, is given by ``apply``, or by a *verdict part*: a record stage that
    judges the batch with what the steps found out about the corpus.
    """

    kind = "corpus"
    default_field: ClassVar[TextField] = "both"
    needs_run: ClassVar[str] = "it compares all records of a run and is no step for rows; use thresher run"
    """What to say where the stage is asked for as a step of a pipeline of rows."""

    def record_part(self) -> RecordStage | None:
        """Return the stage of the same name that measures records before the verdict, not prepared; None without."""
        return None

    def verdict_part(self) -> VerdictPart | None:
        """Return the stage of the same name that gives the verdict, not prepared; None where ``apply`` gives it."""
        return None

    @abstractmethod
    def shuffled_bytes(self, rows: int) -> int:
        """Return about how many bytes of keys so many records shuffle."""

    def shuffled_in_memory(self, rows: int) -> int:
        """Return what of ``shuffled_bytes`` a local engine holds in memory; more than one copy of it."""
        return self.shuffled_bytes(rows)

    def columns(self) -> tuple[str, ...] | None:
        """Return the columns of the records that the stage reads where it applies verdicts; None for all."""
        return ()

    def apply(
        self,
        key: int,
        records: pa.RecordBatch,
        alive: npt.NDArray[np.bool_],
        marks: pa.RecordBatch,
        verdicts: Sequence[bytes],
        file_of: Callable[[int], str],
    ) -> CorpusVerdict:
        """Return what the stage found on the rows of a batch.

        Args:
            key: the batch's key.
            records: its records, with the columns ``columns``.
            alive: the rows that entered the stage.
            marks: those of the pass that the stage ended.
            verdicts: what the steps sent to the batch, sorted.
            file_of: gives the file of an item of the plan.
        """
        raise NotImplementedError(f"{self.name} gives its verdict by verdict_part()")

    def summary_counts(self, marks: Mapping[str, pa.Array], left: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Return what the report tells of the stage as sums over batches; by default nothing.

        Args:
            marks: the stage's signals on the rows that entered it.
            left: bool array, whether the row left by this stage.
        """
        return {}


class VerdictPart(RecordStage):
    """The part of a corpus stage that judges a batch once the corpus is known."""

    @abstractmethod
    def receive(self, found: bytes) -> None:
        """Take what the stage's steps found out about the corpus; called before the first batch."""


StageType = TypeVar("StageType", bound=type[Stage])


@dataclass
class Registry:
    """All known stages by name."""

    classes: dict[str, type[Stage]] = field(default_factory=dict)


_REGISTRY = Registry()


def stage(name: str) -> Callable[[StageType], StageType]:
    """Register a stage class under the name that configs use."""

    def register(cls: StageType) -> StageType:
        _REGISTRY.classes[name] = cls
        return cls

    return register


def measuring_part(stage: Stage) -> Stage | None:
    """Return what measures single records: a record stage itself, of a corpus stage its record part, if it has one."""
    return stage.record_part() if isinstance(stage, CorpusStage) else stage


@cache
def known_stages() -> Mapping[str, type[Stage]]:
    """Return every stage by name, sorted; finds the modules that register one in the stage packages."""
    for package_name in STAGE_PACKAGES:
        package = importlib.import_module(package_name)
        for info in pkgutil.iter_modules(package.__path__):
            source = pkgutil.get_data(package_name, f"{info.name}.py")
            if source is not None and b"\n@stage(" in source:
                importlib.import_module(f"{package_name}.{info.name}")
    return dict(sorted(_REGISTRY.classes.items()))


def threshold_rules(config: StageConfig, table: Iterable[tuple[str, str, Test]]) -> tuple[Rule, ...]:
    """Return a rule for each (config field, signal, test) whose field is a number, that is, not off."""
    rules = []
    for name, signal, test in table:
        value: Any = getattr(config, name)
        if value != "off" and value is not None:
            rules.append(Rule(name, signal, test, float(value)))
    return tuple(rules)
