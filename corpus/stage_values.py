"""What goes into stages and comes out of them: settings, signals, rules, texts, judgements.

Like ``corpus.stages`` it imports nothing heavy at its top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

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
