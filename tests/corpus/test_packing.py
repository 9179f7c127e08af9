"""Packed arrays come back as they went in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpus.packing import pack_arrays, pack_strings, unpack_arrays, unpack_strings


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.binary(max_size=20)))
def test_round_trip(numbers: list[int], strings: list[bytes]) -> None:
    data = pack_arrays([np.array(numbers, np.int64), *pack_strings(strings)])
    found, lengths, blob = unpack_arrays(data, (np.int64, np.int32, np.uint8))
    assert found.tolist() == numbers
    assert unpack_strings(lengths, blob) == strings
