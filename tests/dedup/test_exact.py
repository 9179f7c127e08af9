"""Exact duplicates: fold, resolve and look-up together equal a plain grouping."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id
from dedup.exact import HASH
from dedup.exact_duplicates import ExactDuplicates, ExactDuplicatesConfig

BATCHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["1", "2", "10", "ü", ""]), st.booleans()), max_size=8
    ),
    max_size=6,
)


def _records(rows: list[tuple[str, str, bool]]) -> pa.RecordBatch:
    texts = [text for text, _, _ in rows]
    hashes = [xxhash.xxh3_128_digest(text.encode()) for text in texts]
    return pa.RecordBatch.from_pydict(
        {
            "record_id": pa.array([name for _, name, _ in rows], pa.string()),
            "position": pa.array(range(len(rows)), pa.int64()),
            "content_hash": pa.array(hashes, pa.binary(16)),
            "prompt": pa.array(texts, pa.string()),
        }
    )


@given(BATCHES, st.integers(1, 5), st.sampled_from(["both", "prompt"]), st.randoms(use_true_random=False))
def test_equals_a_plain_grouping(
    batches: list[list[tuple[str, str, bool]]], partitions: int, field: str, shuffler: random.Random
) -> None:
    stage = ExactDuplicates(ExactDuplicatesConfig(), "exact_duplicates", field)  # type: ignore[arg-type]
    packed: dict[int, list[bytes]] = {}
    everything = []
    for item, rows in enumerate(batches):
        key, alive = chunk_key(item, 0), np.array([row[2] for row in rows], bool)
        for part, data in stage.pack(key, _records(rows), alive, partitions):
            packed.setdefault(part, []).append(data)
        everything.extend(
            (text, name, first_row_id(key) + row) for row, (text, name, lives) in enumerate(rows) if lives
        )
    verdicts: dict[int, list[bytes]] = {}
    for values in packed.values():
        shuffler.shuffle(values)
        for key, verdict in stage.resolve(values):
            verdicts.setdefault(key, []).append(verdict)
    for item, rows in enumerate(batches):
        key, alive = chunk_key(item, 0), np.array([row[2] for row in rows], bool)
        found = stage.apply(key, _records(rows), alive, verdicts.get(key, []))
        for row, (text, _, lives) in enumerate(rows):
            copies = sorted((name.encode(), row_id) for other, name, row_id in everything if other == text)
            if not lives:
                assert found.signals["copies"][row].as_py() is None
                assert found.failures[row] == 0
                continue
            assert found.signals["copies"][row].as_py() == len(copies)
            is_leader = copies[0][1] == first_row_id(key) + row
            assert found.failures[row] == (0 if is_leader else 1)
            assert found.related[row].as_py() == (None if is_leader else copies[0][1])
            assert found.related_id[row].as_py() == (None if is_leader else copies[0][0].decode())


def test_a_batch_sends_one_entry_per_text_however_often_it_stands() -> None:
    stage = ExactDuplicates(ExactDuplicatesConfig(), "exact_duplicates", "both")
    rows = [("a", str(row), True) for row in range(5000)]
    ((_, data),) = stage.pack(0, _records(rows), np.ones(5000, bool), 1)
    assert len(data) < 200


def test_partitions_follow_the_planned_rows() -> None:
    stage = ExactDuplicates(ExactDuplicatesConfig(), "exact_duplicates", "both")
    assert stage.partitions(0) == 1
    assert stage.partitions(10_000_000) * (8 << 20) > 10_000_000 * 96
    assert HASH.itemsize == 16
