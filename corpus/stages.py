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
    """The settings of a stage; a subclass adds its own, each with a default and a description."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    name: str | None = Field(
        default=None,
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name in ledger, signals and --set; needed where a stage appears twice.",
    )


@dataclass(frozen=True)
class Signal:
    """A value that a stage measures on each record; ``kind`` is its type in the signals table."""

    name: str
    kind: Literal["int64", "float64", "string"]
    description: str


@dataclass(frozen=True)
class Rule:
    """A condition that a record must meet to stay.

    ``name`` is the config field that limits it. ``at_least`` and ``at_most`` compare with ``threshold`` (the value at
    the limit stays); ``one_of`` wants the value among ``values``; ``is_set`` wants a value that is not null. A null
    value meets every other condition: a stage that wants it dropped declares an ``is_set`` rule. ``decided`` is the
    verdict of a corpus stage; value and threshold then say what it rests on.

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
    """

    texts: pa.StringArray
    alive: npt.NDArray[np.bool_]
    records: pa.RecordBatch | None = None
    languages: pa.StringArray | None = None
    shared: dict[str, Any] = field(default_factory=dict)

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

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        self.config = config
        self.name = name
        self.text_field = text_field
        self.language_column: str | None = None
        """Column of the marks with the labels of the last language stage before; None where there is none, or where
        the stage does not ask for languages."""

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
    """

    signals: dict[str, pa.Array]
    findings: pa.RecordBatch | None = None
    errors: pa.StringArray | None = None


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
    """A stage that compares all records: keys go out where a batch is staged, verdicts come back to the batches.

    The steps between are those of its kind, in ``pipelines``.
    """

    kind = "corpus"
    default_field: ClassVar[TextField] = "both"

    @abstractmethod
    def shuffled_bytes(self, rows: int) -> int:
        """Return about how many bytes of keys so many records shuffle."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the records that the stage reads where it packs keys and where it applies verdicts."""

    @abstractmethod
    def apply(
        self,
        key: int,
        records: pa.RecordBatch,
        alive: npt.NDArray[np.bool_],
        verdicts: Sequence[bytes],
        file_of: Callable[[int], str],
    ) -> CorpusVerdict:
        """Return what the stage found on the rows of a batch; ``file_of`` gives the file of an item of the plan."""

    @abstractmethod
    def summary_counts(self, marks: Mapping[str, pa.Array], left: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Return what the report tells of the stage as sums over batches.

        Args:
            marks: the stage's signals on the rows that entered it.
            left: bool array, whether the row left by this stage.
        """


@dataclass(frozen=True)
class CorpusVerdict:
    """What a corpus stage found on n records.

    Attributes:
        signals: one array of n per signal; null where the row did not enter the stage.
        failures: int64 array of n, bit i set where rule i drops the row.
        related: row id inside the run of the record that explains the drop, null where there is none.
        related_id: its ``record_id``.
        related_position: its position in its file.
    """

    signals: dict[str, pa.Array]
    failures: npt.NDArray[np.int64]
    related: pa.Array
    related_id: pa.Array
    related_position: pa.Array


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
