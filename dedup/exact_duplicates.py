"""The stage ``exact_duplicates``: one record stays of all that have the same text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from corpus.stages import CorpusStage, CorpusVerdict, Rule, Signal, StageConfig, TextField, stage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# A quarter of what a group may have: the number of records that are not Parquet is an estimate.
GROUP_BYTES = 2 << 20
ENTRY_BYTES = 96


class ExactDuplicatesConfig(StageConfig):
    """Settings of ``exact_duplicates``."""

    field: TextField | None = Field(default=None, description="Field that is compared; default both fields of a pair.")


@stage("exact_duplicates")
class ExactDuplicates(CorpusStage):
    """Keeps, of the records whose field has the same content hash, the first one by (record_id, file, position).

    Equal texts are equally long and have the same hash, so the total order of duplicates comes down to these three. The
    signal ``copies`` counts all records of the same text that entered the stage, the kept one included. A record that
    leaves has the value 1.0 (its Jaccard similarity with the kept record) under the rule ``duplication_budget``: it is
    a copy beyond the share of copies that may stay, which is none.
    """

    Config = ExactDuplicatesConfig
    summary = "Keeps one record of each text (content hash); names the kept record for each that leaves."

    def signals(self) -> tuple[Signal, ...]:
        """Return the number of copies, and the similarity with the kept record."""
        return (
            Signal("copies", "int64", "Records with the same text, this one included."),
            Signal("jaccard", "float64", "Similarity with the kept record of the same text, 1; null for that record."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the one rule."""
        return (Rule("duplication_budget", "jaccard", "decided", 1.0),)

    def partitions(self, planned_rows: int) -> int:
        """Return the number of partitions for so many rows."""
        return max(1, -(-self.shuffled_bytes(planned_rows) // GROUP_BYTES))

    def shuffled_bytes(self, rows: int) -> int:
        """Return the size of one entry per record, the most that there can be."""
        return rows * ENTRY_BYTES

    def columns(self) -> tuple[str, ...]:
        """Return ids, positions and what is hashed."""
        hashed = "content_hash" if self.text_field in ("text", "both") else self.text_field
        return "record_id", "position", hashed

    def pack(
        self, key: int, records: pa.RecordBatch, alive: npt.NDArray[np.bool_], partitions: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield one entry per distinct text of the batch."""
        import numpy as np

        from corpus.batch import first_row_id
        from dedup.exact import field_hashes, fold

        rows = np.flatnonzero(alive)
        if not len(rows):
            return
        ids = [value.encode() for value in records.column("record_id").take(rows).to_pylist()]
        positions = records.column("position").to_numpy()[rows]
        yield from fold(
            field_hashes(records, self.text_field)[rows], rows + first_row_id(key), positions, ids, partitions
        )

    def resolve(self, packed: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the leaders of the texts that stand more than once."""
        from dedup.exact import resolve

        yield from resolve(packed)

    def apply(
        self, key: int, records: pa.RecordBatch, alive: npt.NDArray[np.bool_], verdicts: Sequence[bytes]
    ) -> CorpusVerdict:
        """Return copies and leaders of a batch's rows."""
        import numpy as np
        import pyarrow as pa

        from corpus.batch import first_row_id
        from dedup.exact import field_hashes, look_up

        length = len(alive)
        copies = np.ones(length, np.int64)
        failures = np.zeros(length, np.int64)
        related: list[int | None] = [None] * length
        positions: list[int | None] = [None] * length
        ids: list[str | None] = [None] * length
        found = look_up(verdicts)
        if found:
            hashes = field_hashes(records, self.text_field)
            for row in np.flatnonzero(alive).tolist():
                verdict = found.get(hashes[row].tobytes())
                if verdict is None:
                    continue
                leader, position, copies[row], record_id = verdict
                if leader != first_row_id(key) + row:
                    failures[row] = 1
                    related[row], positions[row], ids[row] = leader, position, record_id.decode()
        return CorpusVerdict(
            signals={
                "copies": pa.array(copies, mask=~alive),
                "jaccard": pa.array(np.ones(length), mask=failures == 0),
            },
            failures=failures,
            related=pa.array(related, pa.int64()),
            related_id=pa.array(ids, pa.string()),
            related_position=pa.array(positions, pa.int64()),
        )

    def summary_counts(self, marks: Mapping[str, pa.Array], left: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Return leaders (with singletons), clusters of two and more, copies that could and that do stay."""
        copies = marks["copies"].to_numpy()
        return {
            "leaders": int((~left).sum()),
            "clusters": int((~left & (copies > 1)).sum()),
            "copies_available": int(left.sum()),
            "copies_kept": 0,
            "limit": 0,
            "leaders_dropped_later": 0,
        }
