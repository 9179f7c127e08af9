"""Bands: the choice is the best of all, the curve is what happens, keys are shared where a band is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.bands import Bands, choose_bands, exact_fraction, explicit_bands
from dedup.bands_kernel import BAND_MULTIPLIER, BAND_SEED, band_keys
from dedup.tokens import mix


@pytest.mark.parametrize(
    ("threshold", "permutations", "catch_probability", "expected"),
    [
        (0.8, 112, 0.99, Bands(16, 6)),
        (0.8, 108, 0.99, Bands(16, 6)),
        (0.8, 95, 0.99, Bands(12, 5)),
        (0.7, 128, 0.99, Bands(17, 4)),
        (0.9, 112, 0.99, Bands(11, 10)),
        (1.0, 112, 1.0, Bands(1, 112)),
        (0.5, 1, 0.5, Bands(1, 1)),
        (0.75, 2, 0.9375, Bands(2, 1)),
    ],
)
def test_choice(threshold: float, permutations: int, catch_probability: float, expected: Bands) -> None:
    assert choose_bands(threshold, permutations, catch_probability) == expected


def caught(bands: int, rows: int, threshold: float) -> Fraction:
    return 1 - (1 - Fraction(str(threshold)) ** rows) ** bands


@given(st.integers(1, 100), st.integers(1, 64), st.integers(1, 999))
def test_choice_is_the_best_of_all(hundredths: int, permutations: int, thousandths: int) -> None:
    threshold, wanted = hundredths / 100, thousandths / 1000
    feasible = [
        Bands(bands, rows)
        for rows in range(1, permutations + 1)
        for bands in range(1, permutations // rows + 1)
        if caught(bands, rows, threshold) >= Fraction(thousandths, 1000)
    ]
    if not feasible:
        with pytest.raises(ValueError, match=r"catch_probability .* threshold .* permutations"):
            choose_bands(threshold, permutations, wanted)
        return
    found = choose_bands(threshold, permutations, wanted)
    assert found in feasible
    assert found.permutations <= permutations
    assert found.false_candidates(threshold) == min(bands.false_candidates(threshold) for bands in feasible)


def test_the_prototype_had_more_false_candidates() -> None:
    chosen, prototype = choose_bands(0.8, 112), Bands(18, 6)
    assert 0.99 <= chosen.probability(0.8) < prototype.probability(0.8)
    assert chosen.false_candidates(0.8) < 0.96 * prototype.false_candidates(0.8)
    for similarity in (0.1, 0.3, 0.5, 0.7):
        assert chosen.probability(similarity) < prototype.probability(similarity)


def test_the_area_is_that_of_the_curve() -> None:
    assert Bands(1, 1).false_candidates(0.8) == pytest.approx(0.32)
    assert Bands(1, 2).false_candidates(1.0) == pytest.approx(1 / 3, abs=1e-5)
    assert Bands(2, 1).false_candidates(1.0) == pytest.approx(2 / 3, abs=1e-5)


@given(st.integers(1, 60), st.integers(1, 12), st.fractions(0, 1))
def test_probability(bands: int, rows: int, similarity: Fraction) -> None:
    exact = 1 - (1 - similarity**rows) ** bands
    assert Bands(bands, rows).probability(float(similarity)) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


def test_curve_is_rounded() -> None:
    assert Bands(18, 6).curve([0, 0.5, 0.8, 0.9, 1]) == [0.0, 0.246835, 0.995798, 0.999999, 1.0]
    assert str(Bands(18, 6).curve([0])) == "[0.0]"


def test_explicit_bands() -> None:
    assert explicit_bands(18, 6, 112) == Bands(18, 6)
    assert explicit_bands(18, 6, 108).permutations == 108


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: choose_bands(0, 112), "threshold is 0"),
        (lambda: choose_bands(1.1, 112), "threshold is 1.1"),
        (lambda: choose_bands(0.8, 112, 0), "catch_probability is 0"),
        (lambda: choose_bands(0.8, 112, 1.5), "catch_probability is 1.5"),
        (lambda: choose_bands(float("nan"), 112), "threshold is nan"),
        (lambda: choose_bands(0.8, 0), "permutations is 0"),
        (lambda: choose_bands(0.01, 112), r"catch_probability 0.99 .* threshold 0.01 .* permutations 112.* 0.6756"),
        (lambda: choose_bands(0.8, 112, 1.0), "catch_probability 1.0 cannot be reached"),
        (lambda: explicit_bands(18, 6, 107), r"bands x rows is 18 x 6 = 108, above permutations \(107\)"),
        (lambda: explicit_bands(0, 6, 112), "bands is 0 and rows is 6"),
        (lambda: explicit_bands(3, -1, 112), "rows is -1"),
    ],
)
def test_errors_name_the_fields(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()


def test_exact_fraction() -> None:
    assert exact_fraction(0.8) == Fraction(4, 5)
    assert exact_fraction(0.29) * 100 == 29
    assert exact_fraction(1e-5) == Fraction(1, 100_000)
    assert exact_fraction(1) == 1


def reference_key(values: list[int], band: int) -> int:
    state = int(BAND_SEED) ^ band
    for value in values:
        state = mix(state, value, int(BAND_MULTIPLIER))
    return state


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 3), st.lists(st.booleans(), max_size=6), st.integers(0, 9))
def test_keys_equal_the_reference(bands: int, rows: int, spare: int, selected: list[bool], seed: int) -> None:
    draw = np.random.default_rng(seed)
    signatures = draw.integers(0, 2**32, (len(selected), bands * rows + spare), np.uint32)
    keys = band_keys(signatures, np.array(selected, np.bool_), bands, rows)
    assert (keys.dtype, keys.shape) == (np.uint64, (sum(selected), bands))
    chosen = [signature for signature, wanted in zip(signatures.tolist(), selected, strict=True) if wanted]
    expected = [
        [reference_key(signature[band * rows : (band + 1) * rows], band) for band in range(bands)]
        for signature in chosen
    ]
    assert keys.tolist() == expected


def test_keys_are_shared_where_a_band_is_and_nowhere_else() -> None:
    draw = np.random.default_rng(5)
    signatures = draw.integers(0, 2**32, (2000, 96), np.uint32)
    signatures[1, 6:12] = signatures[0, 6:12]
    signatures[3, 0:6] = signatures[2, 6:12]  # the same values in another band
    signatures[4:6] = 0xFFFFFFFF
    keys = band_keys(signatures, np.ones(2000, np.bool_), 16, 6)
    values, counts = np.unique(keys, return_counts=True)
    assert sorted(values[counts > 1].tolist()) == sorted([int(keys[0, 1]), *keys[4].tolist()])
    assert keys[0, 1] == keys[1, 1]
    assert len(set(keys[4].tolist())) == 16


def test_pairs_are_proposed_as_often_as_the_curve_says() -> None:
    draw = np.random.default_rng(11)
    bands, pairs = Bands(16, 6), 4000
    for similarity in (0.5, 0.7, 0.8):
        first = draw.integers(0, 2**32, (pairs, bands.permutations), np.uint32)
        other = draw.integers(0, 2**32, first.shape, np.uint32)
        second = np.where(draw.random(first.shape) < similarity, first, other)
        everything = np.ones(pairs, np.bool_)
        keys = [band_keys(signatures, everything, bands.bands, bands.rows) for signatures in (first, second)]
        proposed = (keys[0] == keys[1]).any(axis=1).mean()
        probability = bands.probability(similarity)
        assert abs(proposed - probability) < 4 * (probability * (1 - probability) / pairs) ** 0.5
