"""What exact and near duplicates share: settings, the total order, the budget, and verdicts.

A duplicate stage finds clusters: a leader, which stays, and its copies, each proven to be similar to the leader. Copies
leave, but for those that the duplication budget lets stay. ``dedup.proposals``, ``verification``, ``leaders`` and
``budget`` hold the algorithms, ``pipelines.duplicates`` the steps between them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corpus.errors import UsageError
from corpus.stages import CorpusStage, CorpusVerdict, Off, Rule, Signal, Stage, StageConfig, TextField
from dedup.budget import BudgetGroups, Share, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from corpus.selection_keys import Words

# A quarter of what a group may have: some have more than others.
GROUP_BYTES = 2 << 20
LARGEST_GROUP = 8 << 20
MOST_IN_MEMORY = 16 << 20
"""Bytes of keys up to which a local engine shuffles them itself."""
NODE_BYTES = 160
WARN_FROM = 0.5
SHOWN_NAMES = 5
TOKEN_SETTING = "budget_unit: tokens"
"""The setting that needs a tokenizer, for messages."""


class SourceOrder(BaseModel):
    """A priority by source: the first of the list first, sources that are not listed last."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    source: Annotated[list[str], Field(min_length=1)] = Field(description="Sources, the most wanted first.")


PriorityKey = Annotated[str, Field(min_length=1)] | SourceOrder


class DuplicateConfig(StageConfig):
    """Settings that exact and near duplicates share."""

    field: TextField | None = Field(default=None, description="Field that is compared; default both fields of a pair.")
    scope: Literal["corpus", "source"] = Field(
        default="corpus", description="Where duplicates are looked for: everywhere, or within each source only."
    )
    priority: PriorityKey | Annotated[list[PriorityKey], Field(min_length=1)] = Field(
        default="length",
        description="Which copy stays: the one with the most of length, a signal (stage.signal) or an earlier stage's "
        "score (its name), or of the first source of {source: [...]}; or a list of these, the first deciding first.",
    )
    protect: list[str] = Field(default=[], description="Sources whose records always stay and only serve as leaders.")
    duplication_budget: Share | BudgetGroups = Field(
        default=0.0,
        description="Copies that may stay, as a share of the records that are no copies; or {by: ..., default: 0, "
        "values: {...}} for a budget per value of a column or signal.",
    )
    budget_unit: Unit = Field(default="records", description="What the budget counts.")
    tokenizer: str | None = Field(
        default=None, description="Path of a tokenizer.json (Hugging Face tokenizers), for budget_unit: tokens."
    )
    max_copies: Annotated[int, Field(ge=0)] | Off = Field(
        default="off", description="Most copies of one record that may stay beside it."
    )

    @model_validator(mode="after")
    def _tokens_need_a_tokenizer(self) -> DuplicateConfig:
        if self.budget_unit == "tokens" and self.tokenizer is None:
            raise ValueError("budget_unit: tokens needs tokenizer, the path of a tokenizer.json")
        return self

    @property
    def groups(self) -> BudgetGroups | None:
        """The budgets per group, None where there is one for all."""
        return self.duplication_budget if isinstance(self.duplication_budget, BudgetGroups) else None

    @property
    def budget(self) -> float:
        """The budget of all records that are in no named group."""
        return self.groups.default if self.groups else float(self.duplication_budget)  # type: ignore[arg-type]

    @property
    def keeps_copies(self) -> bool:
        """Whether any copy may stay."""
        shares = [self.budget, *(self.groups.values.values() if self.groups else ())]
        return max(shares) > 0 and self.max_copies != 0

    @property
    def priorities(self) -> list[str | SourceOrder]:
        """The keys of the total order, the first deciding first."""
        return list(self.priority) if isinstance(self.priority, list) else [self.priority]


class DuplicateStage(CorpusStage):
    """A stage that keeps one record of each cluster of duplicates, and copies within the budget.

    Attributes:
        permutations: of the signatures; 0 where only equal texts are duplicates.
        bands, rows: number of bands of a signature, and of values in each.
        max_bucket: members up to which all pairs of a bucket are compared.
        max_forest_edges: records in clusters up to which one process finds the components.
    """

    config: DuplicateConfig
    permutations = 0
    bands = 0
    rows = 0
    max_bucket = 0
    max_forest_edges = 1

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        super().__init__(config, name, text_field)
        self._signals: list[str | None] = []
        self._group_signal: str | None = None

    @abstractmethod
    def similarity_threshold(self) -> float:
        """Return the least similarity of a record that leaves and its leader."""

    @abstractmethod
    def sketch(self, texts: pa.StringArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Return the signatures of n texts, uint32[n, permutations], and which of them have tokens."""

    @abstractmethod
    def band_keys(self, signatures: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
        """Return the band keys of n signatures, uint64[n, bands]."""

    @abstractmethod
    def shingle_sets(
        self, texts: pa.StringArray, rows: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return offsets int64[n + 1] and sorted hashes of the shingle sets of n texts, empty where not ``rows``."""

    def check_groups(self, numbers: npt.NDArray[np.int64]) -> None:
        """Raise UsageError where the groups of all records are the null one: no record has the column."""
        from corpus.selection_keys import NULL_GROUP

        if self.user_columns() and len(numbers) and (numbers == NULL_GROUP).all():
            by = self.user_columns()["duplication_budget.by"]
            raise UsageError(
                f"stages.{self.name}.duplication_budget.by: {by} is no signal of a stage before {self.name}, and no "
                "record has a value in such a column; name a column of the input or a signal, and give --overwrite"
            )

    def warnings(self, found: Mapping[str, Collection[str]]) -> list[str]:
        """Return what to say of the settings.

        One small study (arXiv 2411.15821, on TinyStories) found a little more accuracy with a duplication of 0.25, and
        40 % less with 1.0.

        Args:
            found: the names that records have, by ``source`` and ``language``.
        """
        config, groups = self.config, self.config.groups
        shares = [config.budget, *(groups.values.values() if groups else ())]
        warnings = []
        if max(shares) >= WARN_FROM:
            warnings.append(f"duplication_budget is {max(shares):g}: so much repetition is known to make models worse")
        listed = [name for key in config.priorities if not isinstance(key, str) for name in key.source]
        named = [("protect", "source", config.protect), ("priority", "source", listed)]
        if groups is not None and (groups.by == "source" or (groups.by == "language" and self._group_signal)):
            named.append(("duplication_budget.values", groups.by, list(groups.values)))
        for setting, column, names in named:
            missing = [name for name in names if name not in found[column]]
            if missing:
                there = ", ".join(sorted(found[column])[:SHOWN_NAMES]) or "none"
                more = ", …" if len(found[column]) > SHOWN_NAMES else ""
                text = f"{setting} names {', '.join(missing)}, a {column} that no record has; there are {there}{more}"
                warnings.append(text)
        return warnings

    @property
    def copies_may_differ(self) -> bool:
        """Whether copies of one text may stand apart in the total order, records of other texts between them."""
        return bool(self.config.protect) or any(key != "length" for key in self.config.priorities)

    @property
    def has_units(self) -> bool:
        """Whether records count differently in the budget, so that their units are a signal."""
        return self.config.budget_unit != "records"

    def summary_details(self) -> Mapping[str, Any]:
        """Return what else the report says of the stage as a whole."""
        return {}

    def signals(self) -> tuple[Signal, ...]:
        """Return what is known of a record's cluster."""
        known = (
            Signal("cluster_id", "string", "Hash of the leader's file and position."),
            Signal("cluster_size", "int64", "Members of the cluster, this record included."),
            Signal("copy_index", "int64", "0 for the leader, then its copies in their order from 1."),
            Signal("jaccard", "float64", "Similarity with the leader; null for the leader itself."),
        )
        if not self.has_units:
            return known
        return (*known, Signal("units", "int64", f"What the budget counts of the record: {self.config.budget_unit}."))

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules: copies beyond max_copies, then copies beyond the budget."""
        rules = [Rule("duplication_budget", "jaccard", "decided", self.similarity_threshold())]
        if self.config.max_copies != "off":
            rules.append(Rule("max_copies", "copy_index", "decided", float(self.config.max_copies)))
        return tuple(rules)

    def curated_columns(self) -> Mapping[str, str]:
        """Return the columns of the cluster."""
        return {name: name for name in ("cluster_id", "cluster_size", "copy_index")}

    def prepare(self) -> None:
        """Load the tokenizer, so that a file that is none is found before anything is read. Raises UsageError."""
        if self.config.budget_unit == "tokens":
            from corpus.tokenizers import load_tokenizer

            load_tokenizer(str(self.config.tokenizer), TOKEN_SETTING)

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digest of the tokenizer's file."""
        if self.config.tokenizer is None:
            return {}
        from corpus.digests import file_digest

        return {"tokenizer": file_digest(self.config.tokenizer, f"stages.{self.name}.tokenizer")}

    def bind(self, before: Sequence[Stage]) -> None:
        """Find the signals that priority and groups name. Raises UsageError for those that no stage before gives."""
        super().bind(before)
        self._signals = [
            None if isinstance(key, SourceOrder) or key == "length" else self._signal(key, before)
            for key in self.config.priorities
        ]
        groups = self.config.groups
        if groups is not None:
            label = None
            for stage in before:
                if groups.by == "language" and "language" in stage.curated_columns():
                    label = f"{stage.name}.{stage.curated_columns()['language']}"
                for signal in stage.signals():
                    if groups.by == f"{stage.name}.{signal.name}":
                        label = groups.by
            self._group_signal = label

    def _signal(self, key: str, before: Sequence[Stage]) -> str:
        known = {f"{stage.name}.{signal.name}": signal.kind for stage in before for signal in stage.signals()}
        wanted = key if "." in key else f"{key}.score"
        if known.get(wanted, "string") == "string":
            numbers = [name for name, kind in known.items() if kind != "string"]
            there = ", ".join(["length", *numbers]) if len(numbers) < 30 else f"length and {len(numbers)} signals"
            raise UsageError(
                f"stages.{self.name}.priority: {key!r} is no number that a stage before {self.name} measures; there "
                f"are {there}. A stage that comes later measures only what {self.name} leaves: list it before"
            )
        return wanted

    def user_columns(self) -> Mapping[str, str]:
        """Return the column by which the budget is grouped; known once the stage is bound."""
        groups = self.config.groups
        if groups is None or self._group_signal is not None or groups.by == "source":
            return {}
        return {"duplication_budget.by": groups.by}

    def signal_columns(self) -> tuple[str, ...]:
        """Return the signals that priority and groups read."""
        wanted = [*self._signals, self._group_signal]
        return (*super().signal_columns(), *(name for name in wanted if name is not None))

    def partitions(self, rows: int) -> int:
        """Return the number of partitions of the keys of so many records, as many for each band."""
        wanted = -(-self.key_bytes(rows) // GROUP_BYTES)
        return max(1, wanted if wanted <= self.bands else -(-wanted // (1 + self.bands)) * (1 + self.bands))

    def cluster_partitions(self, rows: int) -> int:
        """Return the number of partitions of the clusters for so many records."""
        return max(1, -(-rows * NODE_BYTES // GROUP_BYTES))

    def key_bytes(self, rows: int) -> int:
        """Return how many bytes of keys so many rows send."""
        from dedup.proposals import ENTRY_BYTES

        return rows * ENTRY_BYTES * (1 + self.bands)

    def keys_by_files(self, rows: int) -> bool:
        """Say whether the keys of so many rows go by files where an engine would hold them in memory."""
        return self.key_bytes(rows) > MOST_IN_MEMORY

    def shuffled_in_memory(self, rows: int) -> int:
        """Return what of ``shuffled_bytes`` a local engine holds in memory."""
        return self.shuffled_bytes(rows) - (self.key_bytes(rows) if self.keys_by_files(rows) else 0)

    def shuffled_bytes(self, rows: int) -> int:
        """Return the keys, and what a third of the records being duplicates would shuffle."""
        return self.key_bytes(rows) + rows * NODE_BYTES // 3

    def columns(self) -> tuple[str, ...]:
        """Return the columns that are read when verdicts are applied."""
        return "record_id", "position"

    def signature_table(
        self, records: pa.RecordBatch, marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """Return what is staged of a batch (``dedup.staged.signature_schema``).

        Args:
            records: all columns, with the texts that enter the stage.
            marks: with ``signal_columns``.
            alive: the rows that enter.
        """
        from dedup.signature_tables import signature_table

        return signature_table(self, records, marks, alive)

    def priority_words(
        self, records: pa.RecordBatch, marks: pa.RecordBatch, characters: npt.NDArray[np.int64], rows: pa.Array
    ) -> list[Words]:
        """Return the words of the priority keys of chosen rows, uint64[n] each."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from corpus.selection_keys import number_words

        words = []
        for key, signal in zip(self.config.priorities, self._signals, strict=True):
            if isinstance(key, SourceOrder):
                places = pc.index_in(records.column("source").take(rows), pa.array(key.source, pa.string()))
                valid = np.asarray(places.is_valid())
                words.append(
                    number_words(places.fill_null(0).to_numpy().astype(np.int64), descending=False, valid=valid)
                )
            elif signal is None:
                words.append(number_words(characters, descending=True))
            else:
                values = marks.column(signal).take(rows)
                valid = np.asarray(values.is_valid())
                numbers = values.fill_null(0).to_numpy()
                words.append(number_words(numbers, descending=True, valid=valid))
        return words

    def group_values(self, records: pa.RecordBatch, marks: pa.RecordBatch, rows: pa.Array) -> pa.StringArray | None:
        """Return the group of each chosen row, null where it has no such column; None without groups."""
        import pyarrow as pa

        from corpus.user_columns import user_values

        groups = self.config.groups
        if groups is None:
            return None
        if self._group_signal is not None:
            return marks.column(self._group_signal).take(rows).cast(pa.string())
        if groups.by == "source":
            return records.column("source").take(rows)
        values: list[Any] = user_values(records.take(rows), groups.by)
        return pa.array([None if value is None else str(value) for value in values], pa.string())

    def apply(
        self,
        key: int,
        records: pa.RecordBatch,
        alive: npt.NDArray[np.bool_],
        marks: pa.RecordBatch,
        verdicts: Sequence[bytes],
        file_of: Callable[[int], str],
    ) -> CorpusVerdict:
        """Return what became of a batch's rows."""
        from dedup.cluster_verdicts import apply_verdicts

        return apply_verdicts(key, records, alive, verdicts, file_of, self.config.max_copies != "off", self.has_units)

    def summary_counts(self, marks: Mapping[str, pa.Array], left: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Return leaders (with singletons), clusters of two and more, copies that could and that do stay, and units."""
        import numpy as np

        copies = marks["copy_index"].to_numpy() > 0
        sizes = marks["cluster_size"].to_numpy()
        units = marks["units"].to_numpy() if self.has_units else np.ones(len(copies), np.int64)
        return {
            "leaders": int((~copies).sum()),
            "clusters": int((~copies & (sizes > 1)).sum()),
            "copies_available": int(copies.sum()),
            "copies_kept": int((copies & ~left).sum()),
            "leader_units": int(units[~copies].sum()),
            "copy_units_kept": int(units[copies & ~left].sum()),
            "members": int((sizes > 1).sum()),
            "copies_of_leaders_dropped_later": 0,
        }
