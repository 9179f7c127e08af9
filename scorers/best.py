"""Scorers that keep the best records: a share of all that have a score, or a number, of the corpus or of each group.

The scorer measures in the pass that the stage ends; then the records are ordered by (score, the highest first; content
hash of the text that enters the stage; record_id; file and position), and the longest prefix within the limit of its
group stays: floor(exact decimal x scored records of the group) or n. Records without a score follow their policy and
take no place. ``corpus.selection`` finds the cut without having all records in one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from corpus.errors import ThresherError, UsageError
from corpus.stages import CorpusStage, CorpusVerdict, RecordStage, Rule, Signal, Stage, StageConfig, TextField
from scorers.groups import PER, SOURCE, group_column, group_signal, group_values
from scorers.scoring import SCORE, SCORED, Keep, ScoreConfig, Scorer, score_rules

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from corpus.selection_entries import Entries
    from corpus.selection_keys import Integers

CUTOFF = "cutoff"
KEY_WORDS = 3
"""Words of a key: the score, and two of the content hash."""
ENTRY_BYTES = 100
"""About how many bytes a record with an id of usual length sends."""
GROUP_BYTES = 2 << 20
GROUP_TOTAL_BYTES = 24


class BestStage(CorpusStage):
    """A scorer whose ``keep`` needs all scores.

    Attributes:
        scorer: the class that scores.
    """

    needs_run = "keep with best or best_fraction needs the scores of all records of a run; use thresher run"
    scorer: ClassVar[type[Scorer]]
    config: ScoreConfig

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        super().__init__(config, name, text_field)
        self._part = _part_of(self.scorer)(config, name, text_field)
        self._group_signal: str | None = None

    @property
    def keep(self) -> Keep:
        """The setting that says what stays."""
        assert self.config.keep != "off"
        return self.config.keep

    def record_part(self) -> RecordStage:
        """Return the scorer; it drops nothing by itself."""
        return self._part

    def bind(self, before: Sequence[Stage]) -> None:
        """Find the signal of the groups; a name that is none is a column of the user's."""
        super().bind(before)
        self._part.bind(before)
        self._group_signal = group_signal(self.keep.per, before)

    def read_chats(self, column: str) -> None:
        """Tell the scorer."""
        self._part.read_chats(column)

    def user_columns(self) -> Mapping[str, str]:
        """Return the columns that the scorer reads, and that of the groups."""
        return {**self._part.user_columns(), **group_column(self.keep.per, self._group_signal)}

    def signal_columns(self) -> tuple[str, ...]:
        """Return the signal of the groups."""
        return (*super().signal_columns(), *((self._group_signal,) if self._group_signal else ()))

    def signals(self) -> tuple[Signal, ...]:
        """Return the scorer's signals, and where its group was cut."""
        cutoff = Signal(
            CUTOFF, "float64", "The lowest score that stays in the group of a scored record; null where none does."
        )
        return (*self._part.signals(), cutoff)

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules: the record can be scored, and it is among the best."""
        return (*score_rules(self.config), Rule("keep", SCORE, "decided", limited_by=CUTOFF))

    def curated_columns(self) -> Mapping[str, str]:
        """Return the column of the score."""
        return self._part.curated_columns()

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digests of the scorer's files."""
        return self._part.fingerprint()

    def check(self) -> None:
        """Check the scorer."""
        self._part.check()

    def prepare(self) -> None:
        """Prepare the scorer. Raises UsageError where it cannot score."""
        self._part.prepare()

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return what the scorer has to remark."""
        return self._part.notice_counts(signals)

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Return the scorer's sentences."""
        return self._part.notices(counts)

    def shuffled_bytes(self, rows: int) -> int:
        """Return the keys of all records."""
        return rows * ENTRY_BYTES

    def partitions(self, planned_rows: int) -> int:
        """Return the number of partitions of the keys for so many rows."""
        return max(1, -(-self.shuffled_bytes(planned_rows) // GROUP_BYTES))

    def entries(
        self, key: int, records: pa.RecordBatch, marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]
    ) -> Entries:
        """Return the scored records of a batch as entries of the selection.

        Args:
            key: the batch's key.
            records: its records with the texts that enter the stage.
            marks: with the scorer's signals and ``signal_columns``.
            alive: the rows that enter.
        """
        import numpy as np
        import pyarrow as pa

        from corpus.batch import first_row_id
        from corpus.selection_entries import Entries
        from corpus.selection_keys import RecordIds, hash_words, key_words, number_words

        rows = np.flatnonzero(self._scored(marks, alive))
        taking = pa.array(rows)
        scores = marks.column(f"{self.name}.{SCORE}").take(taking).to_numpy(zero_copy_only=False)
        hashes = records.column("content_hash").take(taking)
        hash_bytes = np.frombuffer(hashes.buffers()[1], "V16", len(rows), 16 * hashes.offset)
        words = key_words([number_words(scores, descending=True), hash_words(hash_bytes)])
        groups = self.groups(records, marks)[rows]
        ids = RecordIds.from_arrow(records.column("record_id").take(taking))
        return Entries(groups, words, np.ones(len(rows), np.int64), rows + first_row_id(key), ids)

    def groups(self, records: pa.RecordBatch, marks: pa.RecordBatch) -> Integers:
        """Return the group number of each record of a batch, int64[n]."""
        import numpy as np

        from corpus.selection_keys import group_numbers

        per = self.keep.per
        if per is None:
            return np.zeros(records.num_rows, np.int64)
        return group_numbers(group_values(per, self._group_signal, records, marks))

    def limits(self, basis: bytes) -> tuple[Integers, Integers]:
        """Return (group numbers, limits), int64[g] each, given the packed totals of the scored records per group.

        Raises UsageError where no record has the column of the groups, ThresherError where there are too many groups.
        """
        from corpus.selection import SIDE_INPUT_BYTES, unpack_totals
        from corpus.selection_keys import NULL_GROUP

        numbers, _, _ = unpack_totals(basis)
        per = self.user_columns().get(PER)
        if per is not None and len(numbers) and (numbers == NULL_GROUP).all():
            raise UsageError(
                f"stages.{self.name}.{PER}: {per} is no signal of a stage before {self.name}, and no scored record has "
                "a value in such a column; name a column of the input or a signal, and give --overwrite"
            )
        most = SIDE_INPUT_BYTES // GROUP_TOTAL_BYTES
        if len(numbers) > most:
            raise ThresherError(
                f"stages.{self.name}.{PER}: the scored records are in {len(numbers):,} groups, and at most {most:,} "
                "are possible; name a column or signal with fewer distinct values"
            )
        return best_limits(self.keep, basis)

    def _scored(self, marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        scores = marks.column(f"{self.name}.{SCORE}")
        return alive & scores.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def apply(
        self,
        key: int,
        records: pa.RecordBatch,
        alive: npt.NDArray[np.bool_],
        marks: pa.RecordBatch,
        verdicts: Sequence[bytes],
        file_of: Callable[[int], str],
    ) -> CorpusVerdict:
        """Return which of a batch's rows are among the best. Raises ThresherError where the verdict is missing."""
        import numpy as np
        import pyarrow as pa

        scored = self._scored(marks, alive)
        if scored.any() != bool(verdicts) or len(verdicts) > 1:
            raise ThresherError(
                f"{self.name}: {len(verdicts)} verdicts on a batch arrived, wanted is one; run it again"
            )
        kept = np.zeros(len(alive), np.bool_)
        cutoffs = pa.nulls(len(alive), pa.float64())
        if verdicts:
            rows, numbers, values = unpack_verdict(verdicts[0])
            kept[rows] = True
            groups = self.groups(records, marks)
            if len(numbers):
                places = np.minimum(np.searchsorted(numbers, groups), len(numbers) - 1)
                cutoffs = pa.array(values[places], mask=(numbers[places] != groups) | ~scored)
        failures = np.zeros(len(alive), np.int64)
        for number, rule in enumerate(self.rules()):
            failed = alive & ~scored if rule.signal == SCORED else scored & ~kept
            failures |= failed.astype(np.int64) << number
        return CorpusVerdict({CUTOFF: cutoffs}, failures)

    def columns(self) -> tuple[str, ...] | None:
        """Return what the groups need; all columns where they are the user's."""
        if self.keep.per is None or self._group_signal is not None:
            return ()
        return (SOURCE,) if self.keep.per == SOURCE else None


def best_limits(keep: Keep, basis: bytes) -> tuple[Integers, Integers]:
    """Return (group numbers, limits), int64[g] each: how many records of each group stay.

    Args:
        keep: with ``best`` or ``best_fraction``.
        basis: packed totals of the scored records per group (``corpus.selection.merge_totals``).
    """
    import numpy as np

    from corpus.selection import unpack_totals
    from corpus.selection_keys import group_number
    from corpus.selection_limits import exact_decimal, floor_share

    numbers, counts, _ = unpack_totals(basis)
    named = {group_number(name): value for name, value in keep.values.items()}
    allowed = []
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        if keep.best is not None:
            allowed.append(min(int(named.get(number, keep.best)), count))
        else:
            assert keep.best_fraction is not None
            allowed.append(floor_share(exact_decimal(float(named.get(number, keep.best_fraction))), count))
    return numbers.copy(), np.array(allowed, np.int64)


def pack_verdict(rows: Integers, groups: Integers, cutoffs: npt.NDArray[np.float64]) -> bytes:
    """Return the verdict on a batch: the rows that stay, and the lowest score that stays of some groups, ascending."""
    import numpy as np

    from corpus.packing import pack_arrays

    return pack_arrays([rows.astype(np.int32), groups, cutoffs])


def unpack_verdict(data: bytes) -> tuple[Integers, Integers, npt.NDArray[np.float64]]:
    """Return what ``pack_verdict`` packed."""
    import numpy as np

    from corpus.packing import unpack_arrays

    rows, groups, cutoffs = unpack_arrays(data, (np.int32, np.int64, np.float64))
    return rows.astype(np.int64), groups, cutoffs


@cache
def best_of(scorer: type[Scorer]) -> type[BestStage]:
    """Return the corpus stage that keeps the best records by a scorer."""
    shared = {name: getattr(scorer, name) for name in ("Config", "summary", "speed", "default_field", "__doc__")}
    return type(f"Best{scorer.__name__}", (BestStage,), {"scorer": scorer, "__module__": __name__, **shared})


@cache
def _part_of(scorer: type[Scorer]) -> type[Scorer]:
    return type(f"{scorer.__name__}Part", (_WithoutRules, scorer), {"__module__": __name__})


class _WithoutRules:
    def rules(self) -> tuple[Rule, ...]:
        return ()

    def uses_languages(self) -> bool:
        return False
