"""Distances of distributions, against their definitions written in plain Python."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.drift import kolmogorov_smirnov, stability_index, total_variation

NUMBERS = st.lists(st.integers(-5, 5) | st.floats(-1e6, 1e6), min_size=1, max_size=60)


def _array(values: list[float]) -> np.ndarray:
    return np.array(values, np.float64)


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
    assert stability_index(values, values[::-1]) == 0
    assert stability_index(values[:10_000], values[10_000:]) < 0.01
    assert stability_index(values, values + 1) > 0.25


def test_total_variation() -> None:
    assert total_variation({"a": 1, "b": 1}, {"a": 5, "b": 5}) == 0
    assert total_variation({"a": 1}, {"b": 7}) == 1
    assert total_variation({"a": 3, "b": 1}, {"a": 1, "b": 1}) == pytest.approx(0.25)
    assert total_variation({}, {"a": 1}) == 0.5
