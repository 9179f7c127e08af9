"""Packed arrays come back as they went in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpus.packing import pack_arrays, rows_by_part, unpack_arrays


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.binary(max_size=20))
def test_round_trip(numbers: list[int], data: bytes) -> None:
    packed = pack_arrays([np.array(numbers, np.int64), np.frombuffer(data, np.uint8)])
    found, blob = unpack_arrays(packed, (np.int64, np.uint8))
    assert found.tolist() == numbers
    assert blob.tobytes() == data


@given(st.lists(st.integers(0, 5)))
def test_rows_by_part(parts: list[int]) -> None:
    found = [(part, rows.tolist()) for part, rows in rows_by_part(np.array(parts, np.int64))]
    assert found == [(part, [row for row, own in enumerate(parts) if own == part]) for part in sorted(set(parts))]
