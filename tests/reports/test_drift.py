"""Distances of distributions, against their definitions written in plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import distribution
from reports.common_contents import leading_bits
from reports.distribution import Distribution
from reports.drift import kolmogorov_smirnov, stability_index, total_variation

NUMBERS = st.lists(st.integers(-5, 5) | st.floats(-1e6, 1e6), min_size=1, max_size=60)


def _array(values: list[float]) -> Distribution:
    return Distribution.of(np.array(values, np.float64))


@given(NUMBERS, NUMBERS)
def test_kolmogorov_smirnov(before: list[float], after: list[float]) -> None:
    def below(values: list[float], limit: float) -> float:
        return sum(value <= limit for value in values) / len(values)

    expected = max(abs(below(before, limit) - below(after, limit)) for limit in [*before, *after])
    assert kolmogorov_smirnov(_array(before), _array(after)) == pytest.approx(expected)


@given(NUMBERS, NUMBERS)
def test_stability_index(before: list[float], after: list[float]) -> None:
    assert stability_index(_array(before), _array(before)) == 0
    found = stability_index(_array(before), _array(after))
    assert found >= 0
    edges = sorted({sorted(before)[math.floor((len(before) - 1) * k / 10)] for k in range(1, 10)})
    bins = [
        Counter(sum(e < v for e in edges) + sum(e <= v for e in edges) for v in values) for values in (before, after)
    ]
    expected = 0.0
    for place in bins[0].keys() | bins[1].keys():
        p, q = (max(one[place] / one.total(), 1e-4) for one in bins)
        expected += (q - p) * math.log(q / p)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_shift_by_one_standard_deviation_is_a_major_one() -> None:
    values = np.random.default_rng(1).normal(size=20_000)
    whole = Distribution.of(values)
    assert stability_index(whole, Distribution.of(values[::-1])) == 0
    assert stability_index(Distribution.of(values[:10_000]), Distribution.of(values[10_000:])) < 0.01
    assert stability_index(whole, Distribution.of(values + 1)) > 0.25


def test_total_variation() -> None:
    assert total_variation({"a": 1, "b": 1}, {"a": 5, "b": 5}) == 0
    assert total_variation({"a": 1}, {"b": 7}) == 1
    assert total_variation({"a": 3, "b": 1}, {"a": 1, "b": 1}) == pytest.approx(0.25)
    assert total_variation({}, {"a": 1}) == 0.5


@given(NUMBERS, st.randoms(use_true_random=False))
def test_a_distribution_holds_every_value(values: list[float], choose: random.Random) -> None:
    found = _array(values)
    order = choose.sample(values, len(values))
    middle = len(order) // 2
    again = _array(order[:middle]).plus(_array(order[middle:]))
    assert found.keys.tolist() == again.keys.tolist()
    counts = Counter(float(value) for value in values)
    assert dict(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == counts
    assert found.values.tolist() == sorted(counts)
    assert len(found) == len(values)
    assert found.median == pytest.approx(np.median(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)


@given(st.lists(st.lists(st.floats(-1e300, 1e300), max_size=12), max_size=6), st.randoms(use_true_random=False))
def test_many_values_lose_as_few_bits_as_it_takes_in_any_order(parts: list[list[float]], choose: random.Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "MOST_VALUES", 8)
        sums = []
        for some in (parts, choose.sample(parts, len(parts))):
            whole = _array([])
            for part in some:
                whole = whole.plus(_array(part))
            sums.append(whole)
    assert sums[0].bits == sums[1].bits
    assert sums[0].keys.tolist() == sums[1].keys.tolist()
    assert sums[0].counts.tolist() == sums[1].counts.tolist()
    assert len(sums[0].keys) <= 8
    assert len(sums[0]) == sum(map(len, parts))


def test_cells_of_neighbours_are_narrow() -> None:
    values = np.random.default_rng(5).lognormal(size=3_000_000)
    found = Distribution.of(values)
    assert 0 < found.bits < 40
    assert found.median == pytest.approx(np.median(values), rel=2.0 ** (found.bits - 52))
    moved = Distribution.of(values * 1.1)
    exact = np.searchsorted(np.sort(values * 1.1), np.sort(values), "right")
    wanted = np.abs(np.arange(1, len(values) + 1) - exact).max() / len(values)
    assert kolmogorov_smirnov(found, moved) == pytest.approx(wanted, abs=1e-4)


def test_leading_bits_of_hashes() -> None:
    hashes = ["0123456789abcdef" + "f" * 16, "f" * 32, "0" * 32]
    assert leading_bits(pa.array(["a" * 32, *hashes])[1:]).tolist() == [0x0123456789ABCDEF, 2**64 - 1, 0]
    assert leading_bits(pa.array([], pa.string())).tolist() == []
