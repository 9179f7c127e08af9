"""What all scorers share: settings, policies, rules, and the table of scores that later runs reuse.

A scorer gives each record a number, or the reason why it cannot. Scores are rounded to 4 decimals before anything
compares them. ``keep`` of the kind ``at_least`` is a rule like any other; ``best_fraction`` and ``best`` need all
scores, see ``scorers.best``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corpus.errors import ThresherError
from corpus.stages import Judgement, Off, RecordStage, Rule, Signal, Stage, StageConfig, TextBatch, TextField
from scorers.groups import LANGUAGE, group_column, group_signal, group_values

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from scorers.score_table import ScoreTable

DECIMALS = 4
SCORE, SCORED, REASON, GROUP = "score", "scored", "reason", "group"

Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Keep(BaseModel):
    """Which scored records stay: ``{at_least: 1.5}``, ``{best_fraction: 0.17}`` or ``{best: 9000}``."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    at_least: float | None = Field(default=None, description="Least score that stays.")
    best_fraction: Fraction | None = Field(
        default=None, description="Share of the scored records that stays, the best ones; rounded down."
    )
    best: Count | None = Field(default=None, description="Number of records that stay, the best ones.")
    per: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Column or signal whose value is the group of a record: each group by itself; null is one. "
        "language is the label of the language stage.",
    )
    values: Mapping[str, float] = Field(
        default_factory=dict, description="Other limits for named groups, such as {ko: 0.5}."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Keep:
        given = [name for name in ("at_least", "best_fraction", "best") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"keep takes one of at_least, best_fraction and best; {found}")
        if self.values and self.per is None:
            raise ValueError("keep.values names groups, so it needs keep.per")
        for name, value in self.values.items():
            if self.best_fraction is not None and not 0 <= value <= 1:
                raise ValueError(f"keep.values.{name} is {value:g}; a fraction is from 0 to 1")
            if self.best is not None and (value < 0 or value != int(value)):
                raise ValueError(f"keep.values.{name} is {value:g}; a number of records is whole and not below 0")
        return self

    @property
    def needs_all(self) -> bool:
        """Whether the verdict on a record depends on the scores of others."""
        return self.at_least is None


class ScoreConfig(StageConfig):
    """Settings of all scorers."""

    NOT_SEMANTIC: ClassVar[frozenset[str]] = frozenset({"score_table"})

    field: TextField | None = Field(
        default=None, description="Field that is scored; default both: the response to its prompt."
    )
    keep: Keep | Off = Field(
        default="off", description="Which records stay, such as {at_least: 1.5}; off: the score is only a signal."
    )
    unscorable: Literal["drop", "keep", "fail"] = Field(
        default="drop", description="What happens to a record that cannot be scored, or to the run."
    )
    score_table: str | Off | None = Field(
        default=None,
        description="Folder of Parquet where scores are kept for other runs, local or on an object store; default "
        "thresher/scores in the user's cache folder; off: nowhere.",
    )


@dataclass(frozen=True)
class Scores:
    """What a scorer found on m texts.

    Attributes:
        values: float64[m], NaN where there is no score.
        reasons: m names such as ``empty_response``, why there is no score; None where there is one. A value that is
            not finite and has no reason gets ``not_finite``.
        more: the scorer's further signals (``ScoreStage.more_signals``), arrays of m; null where not known.
        lasting: bool[m], which of the results another run may reuse; None for all. A failure of a network is none.
    """

    values: npt.NDArray[np.float64]
    reasons: list[str | None]
    more: Mapping[str, pa.Array] = field(default_factory=dict)
    lasting: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Pairs:
    """Texts to score, m records: responses to prompts, or texts by themselves (``prompts`` None)."""

    prompts: pa.StringArray | None
    responses: pa.StringArray

    def __len__(self) -> int:
        return len(self.responses)

    def take(self, rows: pa.Array) -> Pairs:
        """Return chosen records."""
        prompts = None if self.prompts is None else self.prompts.take(rows)
        return Pairs(prompts, self.responses.take(rows))


class Scorer(RecordStage):
    """A stage that gives each record alive a score, and compares it with a limit.

    Signals: ``score``; ``scored``, 1 or 0; ``reason``, why there is no score; then those of the scorer, and ``group``
    where limits of named groups need it.
    """

    default_field: ClassVar[TextField] = "both"
    config: ScoreConfig
    _group_signal: str | None = None

    @classmethod
    def variant(cls, config: StageConfig) -> type[Stage]:
        """Return the stage that keeps the best ones where the settings say so."""
        assert isinstance(config, ScoreConfig)
        if config.keep != "off" and config.keep.needs_all:
            from scorers.best import best_of

            return best_of(cls)
        return cls

    @abstractmethod
    def find(self, batch: TextBatch, rows: npt.NDArray[np.int64]) -> tuple[Scores, npt.NDArray[np.bool_] | None]:
        """Return the scores of chosen rows of a batch, and which of them an earlier run had found; None without."""

    def more_signals(self) -> tuple[Signal, ...]:
        """Return what the scorer measures beside the score."""
        return ()

    def signals(self) -> tuple[Signal, ...]:
        """Return score, whether there is one, and why not."""
        return (
            Signal(SCORE, "float64", "The score, rounded to 4 decimals; null where there is none."),
            Signal(SCORED, "int64", "1 where the record has a score, else 0."),
            Signal(REASON, "string", "Why the record has no score."),
            *self.more_signals(),
            *self._group_signals(),
        )

    def _group_signals(self) -> tuple[Signal, ...]:
        """Return the signal of the group, where groups have limits of their own and are no labels of languages."""
        keep = self.config.keep
        if keep == "off" or not keep.values or (keep.per == LANGUAGE and self._group_signal is not None):
            return ()
        # The description tells the groups of one column from those of another, where runs are compared.
        return (Signal(GROUP, "string", f"Group whose limit holds for the record: its {keep.per}."),)

    def bind(self, before: Sequence[Stage]) -> None:
        """Find the groups that have limits of their own. Raises UsageError where they are languages that none finds."""
        super().bind(before)
        keep = self.config.keep
        if keep == "off" or not keep.values:
            return
        self._group_signal = group_signal(keep.per, before)
        if keep.at_least is not None and self._group_signals():
            self.language_column = f"{self.name}.{GROUP}"

    def user_columns(self) -> Mapping[str, str]:
        """Return the column of the groups."""
        keep = self.config.keep
        return {} if keep == "off" or not keep.values else group_column(keep.per, self._group_signal)

    def signal_columns(self) -> tuple[str, ...]:
        """Return the signal of the groups."""
        return () if self._group_signal is None else (self._group_signal,)

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules: the record can be scored, and its score is high enough."""
        return score_rules(self.config)

    def uses_languages(self) -> bool:
        """Say whether limits differ by language."""
        keep = self.config.keep
        return keep != "off" and keep.at_least is not None and bool(keep.values) and keep.per == LANGUAGE

    def curated_columns(self) -> Mapping[str, str]:
        """Return the column of the score."""
        return {f"score_{self.name}": SCORE}

    def judge(self, batch: TextBatch) -> Judgement:
        """Return the signals of a batch. Raises ThresherError where the policy is to fail."""
        import numpy as np
        import pyarrow as pa

        rows = np.flatnonzero(batch.alive)
        scores, reused = self.find(batch, rows)
        rounded = np.round(scores.values, DECIMALS) + 0.0
        finite = np.isfinite(rounded)
        found = zip(finite.tolist(), scores.reasons, strict=True)
        reasons = [None if known else reason or "not_finite" for known, reason in found]
        if self.config.unscorable == "fail":
            self._fail_without_scores(batch, rows[~finite], [reason for reason in reasons if reason is not None])
        places = np.full(len(batch), -1, np.int64)
        places[rows] = np.arange(len(rows))
        taking = pa.array(places, mask=places < 0)
        signals = {
            SCORE: pa.array(rounded, mask=~finite).take(taking),
            SCORED: pa.array(finite.astype(np.int64)).take(taking),
            REASON: pa.array(reasons, pa.string()).take(taking),
            **{name: values.take(taking) for name, values in scores.more.items()},
        }
        if self._group_signals():
            assert self.config.keep != "off"
            assert batch.records is not None
            per = str(self.config.keep.per)
            signals[GROUP] = group_values(per, self._group_signal, batch.records, batch.marks)
        again = None
        if reused is not None:
            again = np.zeros(len(batch), np.bool_)
            again[rows] = reused
        return Judgement(signals, reused=again)

    def _fail_without_scores(self, batch: TextBatch, rows: npt.NDArray[np.int64], reasons: list[str]) -> None:
        """Raise ThresherError if one of the rows without a score has not left by another stage before."""
        from corpus.verdicts import still_alive

        entered = batch.alive if batch.marks is None else still_alive(batch.marks)
        for row, reason in zip(rows.tolist(), reasons, strict=True):
            if entered[row]:
                assert batch.records is not None
                record = batch.records.column("record_id")[row].as_py()
                raise ThresherError(
                    f"{self.name}: the record {record} has no score ({reason}), and unscorable is fail; with drop or "
                    "keep the run would go on"
                )

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the signals."""
        return self.judge(batch).signals

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return how many records are in each group that has a limit of its own."""
        import pyarrow.compute as pc

        keep = self.config.keep
        if keep == "off" or not keep.values:
            return {}
        groups = signals[GROUP] if self._group_signals() else signals[str(self._group_signal)]
        return {f"in_{name}": pc.sum(pc.equal(groups, name)).as_py() or 0 for name in sorted(keep.values)}

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Say which groups that have a limit of their own no record is in: one may be misspelt."""
        keep = self.config.keep
        unseen = [] if keep == "off" else [name for name in sorted(keep.values) if counts.get(f"in_{name}") == 0]
        if keep == "off" or not unseen or not counts["entered"]:
            return []
        return [
            f"keep.values has limits for {', '.join(unseen)}, and no record that entered the stage has such a value of "
            f"{keep.per}: check the spelling"
        ]


class ScoreStage(Scorer):
    """A scorer with a model or a judge: what it finds is kept in a table that other runs reuse.

    Attributes:
        costs_money: whether what it calls has to be paid for.
        may_call: whether it may score what the table has not, where that costs money.
    """

    speed: ClassVar[str] = "a model: records that left before are not scored"

    run: str = ""
    """Names the start of the run, for what the stages of a process share; empty where there is no run."""
    costs_money: ClassVar[bool] = False
    may_call: bool = True
    _table: ScoreTable | None = None

    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Return all that a score depends on beside the text: digests of models and prompts, settings."""

    @abstractmethod
    def score(self, pairs: Pairs) -> Scores:
        """Return the scores of some records; their number and order make no difference to any of them."""

    def load(self) -> None:
        """Load the model; called before the first records are scored that the table has not. Raises UsageError."""

    def pairs(self, batch: TextBatch) -> Pairs:
        """Return all n records of a batch as they are scored: with the prompt by itself where the field is both."""
        assert batch.records is not None
        if batch.field == "both" and "prompt" in batch.records.schema.names:
            return Pairs(batch.records.column("prompt"), batch.records.column("response"))
        return Pairs(None, batch.texts)

    def find(self, batch: TextBatch, rows: npt.NDArray[np.int64]) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return what the table has, and what the model finds on the others."""
        import numpy as np
        import pyarrow as pa

        pairs = self.pairs(batch).take(pa.array(rows))
        if self.config.score_table == "off":
            return self._loaded_score(pairs), np.zeros(len(pairs), np.bool_)
        if self._table is None:
            from scorers.score_table import ScoreTable

            self._table = ScoreTable.shared(self.run, self.config.score_table, self.identity(), self.more_signals())
        return self._table.scores(pairs, self._loaded_score)

    def _loaded_score(self, pairs: Pairs) -> Scores:
        if len(pairs):
            self.check_calls(len(pairs))
            self.load()
        return self.score(pairs)

    def check_calls(self, count: int) -> None:
        """Raise ThresherError where to score so many records of a batch costs money that nobody allowed."""
        if self.costs_money and not self.may_call:
            raise ThresherError(
                f"{self.name}: {count:,} records of a batch have no score in the score table, and its calls cost "
                "money; give --allow-calls to make them"
            )


def score_rules(config: ScoreConfig) -> tuple[Rule, ...]:
    """Return the rules that the settings of a scorer switch on."""
    rules = []
    if config.unscorable == "drop":
        rules.append(Rule("unscorable", SCORED, "at_least", 1.0, named_by=REASON))
    keep = config.keep
    if keep != "off" and keep.at_least is not None:
        rules.append(Rule("keep", SCORE, "at_least", keep.at_least, by_language=dict(keep.values)))
    return tuple(rules)


def identity_digest(identity: Mapping[str, Any]) -> str:
    """Return the hash of all that a score depends on, 32 hex digits."""
    import json

    from corpus.hashing import content_hash

    return content_hash([json.dumps(identity, sort_keys=True).encode()]).hex()
