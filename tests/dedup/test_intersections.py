"""Intersections by merges and by bits are those of Python's sets, and bits are taken where they cost less."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup import intersections
from dedup.intersections import Integers, jaccard_counts, jaccard_reference
from dedup.shared_shingles_kernel import number_hashes
from dedup.tokens import Hashes

UINT64 = st.integers(0, 2**64 - 1)
FEW = st.sampled_from([0, 1, 2**63, 2**64 - 1, *range(100, 200), *(number << 40 for number in range(1, 80))])


def arrays_of(sets: list[set[int]]) -> tuple[Integers, Hashes]:
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return offsets, np.array([value for members in sets for value in sorted(members)], np.uint64)


@given(st.lists(st.sets(st.one_of(FEW, UINT64), max_size=150), min_size=2, max_size=7), st.booleans())
def test_both_ways_equal_the_reference(sets: list[set[int]], by_bits: bool) -> None:
    pairs = [*combinations(range(len(sets)), 2), (1, 0)]
    first, second = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersections, "OFTEN", -1 if by_bits else 1 << 40)
        patch.setattr(intersections, "GAIN", 0)
        common, union = jaccard_counts(*arrays_of(sets), first, second, 0.0)
    assert common.dtype == union.dtype == np.int32
    found = list(zip(common.tolist(), union.tolist(), strict=True))
    assert found == [jaccard_reference(sets[left], sets[right]) for left, right in pairs]


@given(st.lists(st.one_of(FEW, UINT64), max_size=300))
def test_equal_hashes_have_one_number(values: list[int]) -> None:
    numbers, counts = number_hashes(np.array(values, np.uint64))
    assert len(numbers) == len(values)
    assert len(set(zip(values, numbers.tolist(), strict=True))) == len(counts) == len(set(values))
    assert Counter(numbers.tolist()) == dict(enumerate(counts.tolist()))


def test_a_table_that_grows_loses_nothing() -> None:
    generator = random.Random(1)
    values = np.array([generator.getrandbits(64) for _ in range(20_000)] * 2, np.uint64)
    numbers, counts = number_hashes(values)
    assert (numbers[:20_000] == numbers[20_000:]).all()
    assert counts.tolist() == [2] * 20_000


def pages(count: int, common: int) -> list[set[int]]:
    """Sets of a template, with some members of their own."""
    generator = random.Random(2)
    template = [generator.getrandbits(64) for _ in range(common)]
    return [{*template, *(generator.getrandbits(64) for _ in range(9))} for _ in range(count)]


def test_pages_of_a_template_are_compared_by_bits_and_other_pairs_by_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    by_bits = intersections._by_bits
    seen: list[bool] = []

    def watched(*arguments: object) -> object:
        found = by_bits(*arguments)  # type: ignore[arg-type]
        seen.append(found is not None)
        return found

    monkeypatch.setattr(intersections, "_by_bits", watched)
    of_template, unlike = pages(300, 200), [{number, *range(9, 29)} for number in range(1000, 2000)]
    for sets, size, expected in ((of_template, 209, [True]), (of_template[:20], 209, []), (unlike, 21, [])):
        seen.clear()
        pairs = list(combinations(range(min(len(sets), 300)), 2))
        first, second = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
        common, union = jaccard_counts(*arrays_of(sets), first, second, 0.8)
        assert seen == expected, len(sets)
        assert (common + union == 2 * size).all()
        assert (common == (200 if size == 209 else 20)).all()
    # Rows that would take more than the sets themselves are not made.
    monkeypatch.setattr(intersections, "ROWS_BYTES", 100)
    jaccard_counts(*arrays_of(of_template), *(np.zeros(50_000, np.int32),) * 2, 0.8)
    assert seen == [False]
