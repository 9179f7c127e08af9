"""Shingle sets and exact Jaccard: kernels equal plain Python, on hand-made, generated, hostile and real texts."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.intersections import jaccard_counts
from dedup.shingles import at_threshold, shingle_hash, shingle_sets, shingles
from dedup.shingles_kernel import COUNTERS, MOST_MOVES, MOST_SPREAD, sort_few, sort_many, sort_spread
from tests.filters.texts import HOSTILE, TEXTS, real_texts

LEAST = (0.1, 0.29, 0.5, 0.6, 0.8, 1.0)
UINT64 = st.integers(0, 2**64 - 1)


def sets_of(texts: Sequence[str | None], shingle_tokens: int = 5) -> list[list[int]]:
    offsets, hashes = shingle_sets(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), shingle_tokens)
    assert (offsets.dtype, hashes.dtype) == (np.int64, np.uint64)
    return [hashes[first:last].tolist() for first, last in itertools.pairwise(offsets.tolist())]


def jaccard_of(first: str, second: str, shingle_tokens: int = 5) -> tuple[int, int]:
    """Intersection and union of two texts' shingles, by the kernels."""
    texts = pa.array([first, second])
    sets = shingle_sets(texts, np.ones(2, np.bool_), shingle_tokens)
    common, union = jaccard_counts(*sets, np.zeros(1, np.int32), np.ones(1, np.int32), 0.0)
    assert (common.dtype, union.dtype) == (np.int32, np.int32)
    return int(common[0]), int(union[0])


def assert_kernel_equals_reference(texts: Sequence[str], shingle_tokens: int) -> None:
    assert sets_of(texts, shingle_tokens) == [sorted(shingles(text, shingle_tokens)) for text in texts]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Shorter than a shingle: one run of all tokens.
        ("cat", "Cat.", (1, 1)),
        ("cat", "dog", (0, 2)),
        ("cat dog", "dog cat", (0, 2)),
        ("cat  dog", "cat dog", (1, 1)),
        ("one two three four", "one two three four five", (0, 2)),
        ("one two three four five", "one two three four six", (0, 2)),
        # 8 tokens make 4 runs; the last token belongs to one.
        ("a b c d e f g h", "a b c d e f g x", (3, 5)),
        ("a b c d e f g h", "a b c d e f g", (3, 4)),
        # A set: what is repeated counts once.
        ("a a a a a a a a a", "a a a a a", (1, 1)),
        # Korean, by words: 6 make 2 runs.
        ("나는 오늘 아침에 빵을 많이 먹었다.", "나는 오늘 아침에 빵을 많이 샀다.", (1, 3)),
        ("고양이", "강아지", (0, 2)),
        # Chinese, by characters: 7 make 3 runs.
        ("我今天去学校了", "我今天去学校。", (2, 3)),
        ("猫", "狗", (0, 2)),
        # Japanese: か and its mark are one code point in NFC.
        ("これはか\u3099です", "これはがです", (2, 2)),
        # Thai, by code points, marks included: ก ็ ด ี ม า ก make 3 runs.
        ("ก็ดีมาก", "ก็ดีมา", (2, 3)),
        # Arabic: marks are a part of the word, so a word with them is another word.
        ("ذهب الولد الى المدرسة صباح اليوم", "ذهب الولد الى المدرسة، صباح اليوم!", (2, 2)),
        ("ذهب الولد الى المدرسة صباح اليوم", "ذَهب الولد الى المدرسة صباح اليوم", (1, 3)),
        # Code: symbols are spaces. "def f x return x 1", 6 tokens.
        ("def f(x):\n    return x + 1", "def f(x): return x - 1", (2, 2)),
        ("def f(x):\n    return x + 1", "def f(x): return x + 2", (1, 3)),
        # Without tokens there are no shingles, and nothing is similar.
        ("!!!", "???", (0, 0)),
        ("", "cat", (0, 1)),
    ],
)
def test_overlap(first: str, second: str, expected: tuple[int, int]) -> None:
    assert jaccard_of(first, second) == jaccard_of(second, first) == expected
    a, b = shingles(first, 5), shingles(second, 5)
    assert (len(a & b), len(a | b)) == expected


@given(st.lists(TEXTS, max_size=4), st.integers(1, 9))
def test_sets_equal_the_reference_on_random_unicode(texts: list[str], shingle_tokens: int) -> None:
    assert_kernel_equals_reference(texts, shingle_tokens)


def test_sets_equal_the_reference_on_hostile_texts() -> None:
    many = [" ".join(map(str, range(20_000))), "ab cd " * 9000, " ".join(str(n % 700) for n in range(5000))]
    assert_kernel_equals_reference([*(text for text in HOSTILE if len(text) < 50_000), *many], 5)
    assert_kernel_equals_reference(many, 1)
    assert_kernel_equals_reference(many[2:], 4900)


def test_sets_equal_the_reference_on_real_texts() -> None:
    assert_kernel_equals_reference(real_texts()[::7], 5)


def test_runs_of_other_lengths_or_borders_differ() -> None:
    runs = [["a"], ["a", "a"], ["a", "b"], ["b", "a"], ["ab"], ["a", "a", "a"], ["aa"], ["aa", "a"], ["a", "aa"]]
    assert len({shingle_hash(run) for run in runs}) == len(runs)


def test_hashes_are_the_same_everywhere_and_for_ever() -> None:
    hashes = [shingle_hash(run) for run in (["cat"], ["a", "b", "c", "d", "e"])]
    assert hashes == [0x2E547AD2D1ABFE53, 0x99090EF641C82161]


def test_no_two_runs_of_real_texts_collide() -> None:
    texts = [" ".join(map(str, range(start, start + 2000))) for start in range(0, 400_000, 2000)]
    distinct = {value for row in sets_of(texts) for value in row}
    assert len(distinct) == 200 * (2000 - 4)


@given(st.lists(UINT64 | st.integers(0, 3) | st.sampled_from([2**64 - 1, 2**63, 2**56, 255, 256]), max_size=200))
def test_all_sorts_sort(values: list[int]) -> None:
    counters = np.empty(COUNTERS, np.int32)
    for first in (0, min(3, len(values))):
        few, many = np.array(values, np.uint64), np.array(values, np.uint64)
        count = len(values) - first
        assert sort_few(few, first, count, count * count)
        sort_many(many, first, count, np.empty_like(many), counters)
        assert few.tolist() == many.tolist() == values[:first] + sorted(values[first:])
        spread = np.empty(count, np.uint64)
        if sort_spread(np.array(values, np.uint64), first, count, spread, counters):
            assert spread.tolist() == sorted(values[first:])


def test_hashes_are_spread_and_what_is_made_to_be_uneven_is_given_up() -> None:
    counters = np.empty(COUNTERS, np.int32)
    for count in (1, 65, 5000, 300_000):
        even = np.random.default_rng(count).integers(0, 2**64, count, np.uint64)
        target = np.empty_like(even)
        assert sort_spread(even, 0, count, target, counters)
        assert (target == np.sort(even)).all()
    uneven = np.arange(5000, dtype=np.uint64)[::-1].copy()
    assert not sort_spread(uneven, 0, len(uneven), target, counters)
    assert sort_spread(np.zeros(5000, np.uint64), 0, 5000, target, counters)
    assert not sort_spread(np.zeros(MOST_SPREAD + 1, np.uint64), 0, MOST_SPREAD + 1, target, counters)
    moved = np.arange(100, dtype=np.uint64)[::-1].copy()
    assert not sort_few(moved, 0, 100, MOST_MOVES)


def test_masked_rows_slices_and_nulls() -> None:
    texts = pa.array(["left out", "e\u0301 b", None, "c", "e\u0301"]).slice(1)
    offsets, hashes = shingle_sets(texts, np.array([True, True, True, False]), 5)
    assert offsets.tolist() == [0, 1, 1, 2, 2]
    assert hashes.tolist() == [shingle_hash(["é", "b"]), shingle_hash(["c"])]
    assert sets_of([]) == []
    assert sets_of([None, None]) == [[], []]


def test_bad_arguments() -> None:
    rows = np.ones(1, np.bool_)
    with pytest.raises(ValueError, match="shingle_tokens is 0"):
        shingle_sets(pa.array(["a"]), rows, 0)
    with pytest.raises(TypeError, match="type string, not large_string"):
        shingle_sets(pa.array(["a"], pa.large_string()), rows, 5)


# --- Exact Jaccard


@given(st.lists(st.sets(st.integers(0, 30) | UINT64, max_size=30), min_size=1, max_size=5), st.data())
def test_counts_equal_those_of_sets(sets: list[set[int]], data: st.DataObject) -> None:
    numbers = st.integers(0, len(sets) - 1)
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), max_size=10))
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    hashes = np.array([value for members in sets for value in sorted(members)], np.uint64)
    first, second = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    common, union = jaccard_counts(offsets, hashes, first, second, 0.0)
    assert common.tolist() == [len(sets[a] & sets[b]) for a, b in pairs]
    assert union.tolist() == [len(sets[a] | sets[b]) for a, b in pairs]
    for least in LEAST:
        limited, of_limited = jaccard_counts(offsets, hashes, first, second, least)
        for found, number, exact, of_exact in zip(limited, of_limited, common, union, strict=True):
            # Given up is only what is below; at the limit and above it all is exact.
            given_up = found == 0 and compared(exact, of_exact, least) is False
            assert given_up or (found, number) == (exact, of_exact)


@pytest.mark.parametrize("least", LEAST)
def test_no_pair_at_the_least_similarity_is_given_up(least: float) -> None:
    generator = random.Random(1)
    sizes = [(left, right) for left in (1, 2, 3, 4, 5, 29, 100, 641) for right in (left, left + 1, 2 * left)]
    sets, expected = list[list[int]](), list[tuple[int, int]]()
    for left, right in sizes:
        for common in {min(left, round(least * (left + right) / (1 + least)) + more) for more in (-1, 0, 1, 2)}:
            if common >= 0:
                values = [generator.getrandbits(64) for _ in range(left + right - common)]
                sets += [sorted(values[:left]), sorted(values[left - common :])]
                expected.append((common, len(values)))
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    hashes = np.array([value for members in sets for value in members], np.uint64)
    pairs = np.arange(len(sets), dtype=np.int32).reshape(-1, 2)
    found = jaccard_counts(offsets, hashes, *np.ascontiguousarray(pairs.T), least)
    at_least = [compared(common, union, least) for common, union in expected]
    assert 7 < sum(at_least) < len(expected) - 7
    assert at_threshold(*found, least).tolist() == at_least
    assert all(counts == of for counts, of, at in zip(zip(*found, strict=True), expected, at_least, strict=True) if at)


def compared(common: int, union: int, threshold: float) -> bool:
    return bool(at_threshold(np.array([common], np.int32), np.array([union], np.int32), threshold)[0])


def test_a_pair_exactly_at_the_threshold_is_similar() -> None:
    for common, union, threshold in (
        (80, 100, 0.8),
        (4, 5, 0.8),
        (7, 10, 0.7),
        (29, 100, 0.29),
        (1, 1, 1.0),
        (1, 3, 0.3),
    ):
        assert compared(common, union, threshold)
    for common, union, threshold in ((79, 100, 0.8), (79, 101, 0.8), (1, 3, 0.3333333333333334), (99, 100, 1.0)):
        assert not compared(common, union, threshold)
    assert compared(55, 100, 0.55)
    assert not 55 >= 0.55 * 100  # what floats say
    assert compared(2**31 - 1, 2**31 - 1, 1.0)
    assert not compared(2**31 - 2, 2**31 - 1, 1.0)
    assert not compared(0, 0, 0.1)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.floats(1e-9, 1))
def test_the_comparison_is_that_of_fractions(first: int, second: int, threshold: float) -> None:
    common, union = sorted((first, second))
    expected = union > 0 and Fraction(common, max(union, 1)) >= Fraction(str(threshold))
    assert compared(common, union, threshold) == expected
    share = round(threshold, 2)
    assert compared(common, union, share or 0.01) == (
        union > 0 and Fraction(common, max(union, 1)) >= Fraction(str(share or 0.01))
    )


@pytest.mark.parametrize("case", ["d04-pairs-at-the-threshold", "d05-chain"])
def test_cases_have_their_true_values(shared: Path, case: str) -> None:
    lines = (shared / "cases" / case / "input.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {record["id"]: record["text"] for record in map(json.loads, lines)}
    truth = json.loads((shared / "cases" / case / "values.json").read_text(encoding="utf-8"))
    values = {(pair["a"], pair["b"]): pair["jaccard"] for pair in truth}
    assert len(values) > 50
    for (a, b), jaccard in values.items():
        common, union = jaccard_of(texts[a], texts[b])
        assert round(common / union, 6) == jaccard
        assert compared(common, union, 0.8) == (jaccard >= 0.8)


def test_copies_in_other_case_and_punctuation_are_equal(shared: Path) -> None:
    path = shared / "cases" / "d02-non-latin-is-not-empty" / "input.jsonl"
    texts = {record["id"]: record["text"] for record in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
    for a, b in itertools.combinations(texts, 2):
        common, union = jaccard_of(texts[a], texts[b])
        assert union > 0
        assert common == (union if b == f"{a}_copy" else 0)
