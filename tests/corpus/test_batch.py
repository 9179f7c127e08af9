"""Batches: keys, ids, and the bytes that cross process borders."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import (
    DEAD_SCHEMA,
    DocumentBatch,
    chunk_key,
    decode,
    encode,
    first_row_id,
    record_fields,
    split_chunk_key,
    split_row_id,
)
from corpus.batch_layout import MAX_CHUNKS, MAX_ITEMS, MAX_ROWS


@given(st.integers(0, MAX_ITEMS - 1), st.integers(0, MAX_CHUNKS - 1), st.integers(0, MAX_ROWS - 1))
def test_ids_are_signed_64_bit_and_ascend_with_item_chunk_row(item: int, chunk: int, row: int) -> None:
    key = chunk_key(item, chunk)
    row_id = first_row_id(key) + row
    assert 0 <= row_id < 1 << 63
    assert split_row_id(row_id) == (key, row)
    assert split_chunk_key(key) == (item, chunk)


def _batch(rows: int) -> DocumentBatch:
    records = pa.RecordBatch.from_pydict({"text": [f"text {row}" * 1000 for row in range(rows)]})
    dead = pa.RecordBatch.from_pylist([{"file": "f", "error": "malformed_json", "raw": b"\xff\n"}], schema=DEAD_SCHEMA)
    marks = pa.RecordBatch.from_pydict({"alive": [True] * rows})
    return DocumentBatch(3, 4, True, "fü\n.jsonl", records, dead, marks)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_coding_gives_the_same_batch(rows: int) -> None:
    batch = _batch(rows)
    assert decode(encode(batch)) == batch


def test_a_slice_ships_its_own_rows_only() -> None:
    whole = _batch(100)
    part = DocumentBatch(0, 0, True, "f", whole.records.slice(50, 1), whole.dead, whole.marks.slice(50, 1))
    assert len(encode(part)) < len(encode(whole)) / 20
    assert decode(encode(part)).records.to_pylist() == whole.records.slice(50, 1).to_pylist()


def test_a_pair_has_its_two_fields() -> None:
    assert [field.name for field in record_fields("pair")][-2:] == ["prompt", "response"]
