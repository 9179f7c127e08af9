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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from corpus.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

STAGE_PACKAGES = ("filters", "dedup", "scorers")

Off = Literal["off"]
TextField = Literal["text", "prompt", "response", "both"]
Test = Literal["at_least", "at_most", "one_of", "is_set", "decided"]


class StageConfig(BaseModel):
    """The settings of a stage; a subclass adds its own, each with a default and a description.

    Attributes:
        NOT_SEMANTIC: settings that have no part in the result, such as where scores are kept for other runs.
    """

    NOT_SEMANTIC: ClassVar[frozenset[str]] = frozenset()
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    name: str | None = Field(
        default=None,
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name in ledger, signals and --set; needed where a stage appears twice.",
    )


@dataclass(frozen=True)
class Signal:
    """A value that a stage measures on each record; ``kind`` is its type in the signals table.

    The kind ``binary`` is for what the record part of a corpus stage leaves for its verdict; it is in no table.
    """

    name: str
    kind: Literal["int64", "float64", "string", "binary"]
    description: str


@dataclass(frozen=True)
class Rule:
    """A condition that a record must meet to stay.

    ``name`` is the config field that limits it. ``at_least`` and ``at_most`` compare with ``threshold`` (the value at
    the limit stays); ``one_of`` wants the value among ``values``; ``is_set`` wants a value that is not null. A null
    value meets every other condition: a stage that wants it dropped declares an ``is_set`` rule. ``decided`` is the
    verdict of a corpus stage; value and threshold then say what it rests on.

    ``limited_by`` is a float64 signal that holds the threshold where the corpus decides it.

    ``named_by`` is a string signal whose value is the rule's name in ledger and report, for reasons that only the
    judged records bring to light; where it is null, ``name`` is.

    ``by_language`` holds other thresholds for records whose language label is in it, None where the rule is off for
    them; ``threshold`` is then that of all others, None where it is off.
    """

    name: str
    signal: str
    test: Test
    threshold: float | None = None
    values: tuple[str, ...] = ()
    by_language: Mapping[str, float | None] = field(default_factory=dict)
    named_by: str | None = None
    limited_by: str | None = None


@dataclass(frozen=True)
class TextBatch:
    """The texts that enter a stage, one per record, with the rows that it has to look at.

    Attributes:
        texts: ``pa.StringArray`` of n texts; null where the row is not alive.
        alive: bool array of n; values at other rows are ignored and should not cost time.
        records: the n records, for stages that judge a column of the user's (``corpus.user_columns`` reads it).
        languages: label of each record by the last language stage before, ``pa.StringArray`` of n; None without one.
        shared: what stages compute of these texts for each other, by a key of their own; it lives until the texts
            change.
        field: which texts of the records these are.
        marks: what the stages before found, with the columns of ``Stage.signal_columns``; None where nothing did.
    """

    texts: pa.StringArray
    alive: npt.NDArray[np.bool_]
    records: pa.RecordBatch | None = None
    languages: pa.StringArray | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    field: TextField = "text"
    marks: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return len(self.texts)


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
        """Column of the marks with the labels of the last language stage before; None where there is none, or where
        the stage does not ask for languages."""

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

    def prepare(self) -> None:
        """Load kernels and models; called once per process before the first batch. Raises UsageError."""


@dataclass(frozen=True)
class Judgement:
    """What a record stage found on n texts.

    Attributes:
        signals: one array of n per signal; values of rows that are not alive do not count.
        findings: spans of the texts, ``corpus.findings.SPAN_SCHEMA``, for ``evidence/`` and, with action ``cut`` or
            ``redact``, to change the texts; None where the stage looks for none.
        errors: ``pa.StringArray`` of n, why a record could not be judged, null where it was; such a record becomes a
            dead letter. None where all were.
        reused: bool array of n, for which records the stage took what an earlier run had found. It has no part in the
            result; None for a stage that keeps nothing.
    """

    signals: dict[str, pa.Array]
    findings: pa.RecordBatch | None = None
    errors: pa.StringArray | None = None
    reused: npt.NDArray[np.bool_] | None = None


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

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return what the stage has to remark on the texts that entered it, as sums over batches; by default nothing.

        Args:
            signals: the stage's signals on these texts.
        """
        return {}

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Return the sentences for the report, given the sums of ``notice_counts`` and of ``entered``."""
        return []


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


@dataclass(frozen=True)
class CorpusVerdict:
    """What a corpus stage found on n records.

    Attributes:
        signals: one array of n per signal; null where the row did not enter the stage.
        failures: int64 array of n, bit i set where rule i drops the row.
        related: row id inside the run of the record that explains the drop, null where there is none.
        related_id: its ``record_id``.
        related_position: its position in its file. All three are None for a stage that compares no records.
    """

    signals: dict[str, pa.Array]
    failures: npt.NDArray[np.int64]
    related: pa.Array | None = None
    related_id: pa.Array | None = None
    related_position: pa.Array | None = None


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
