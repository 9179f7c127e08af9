"""Repeated ids are counted exactly, however the records are cut into batches."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import chunk_key, split_row_id
from corpus.record_ids import count_repeated, id_partitions, pack_ids


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.booleans()), max_size=6), max_size=6))
def test_counts_equal_a_plain_count(batches: list[list[tuple[str, bool]]]) -> None:
    partitions: dict[int, list[bytes]] = {}
    for item, rows in enumerate(batches):
        records = pa.RecordBatch.from_pydict(
            {
                "record_id": pa.array([name for name, _ in rows], pa.string()),
                "generated_id": pa.array([generated for _, generated in rows], pa.bool_()),
            }
        )
        for part, packed in pack_ids(chunk_key(item, 0), records, 3):
            partitions.setdefault(part, []).append(packed)
    found = [count_repeated(reversed(packed)) for packed in partitions.values()]
    counts = Counter(name for rows in batches for name, generated in rows if not generated)
    assert sum(count for count, _ in found) == sum(count - 1 for count in counts.values())
    examples = [row_id for count, row_id in found if count]
    for row_id in examples:
        key, row = split_row_id(row_id)
        assert counts[batches[key >> 20][row][0]] > 1


def test_partitions_keep_groups_small() -> None:
    assert id_partitions(0) == 1
    assert 10_000_000 * 16 / id_partitions(10_000_000) <= 4 << 20
