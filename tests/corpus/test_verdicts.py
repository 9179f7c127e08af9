"""Rules against signals: limits, nulls, order."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.stages import Rule
from corpus.verdicts import entering_texts, failures, first_rule, rule_fails

NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-(2**53), 2**53).map(float))


@given(st.lists(NUMBERS), st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_at_the_limit_stays_and_null_meets_every_limit(values: list[float | None], threshold: float) -> None:
    array = pa.array(values, pa.float64())
    least = rule_fails(Rule("minimum", "x", "at_least", threshold), array)
    most = rule_fails(Rule("maximum", "x", "at_most", threshold), array)
    assert least.tolist() == [value is not None and value < threshold for value in values]
    assert most.tolist() == [value is not None and value > threshold for value in values]


def test_integers_are_compared_exactly_with_fractions() -> None:
    array = pa.array([49, 50, None], pa.int64())
    assert rule_fails(Rule("minimum_words", "words", "at_least", 49.5), array).tolist() == [True, False, False]


def test_names_and_presence() -> None:
    array = pa.array(["en", "de", None])
    assert rule_fails(Rule("keep", "label", "one_of", values=("en", "fr")), array).tolist() == [False, True, False]
    assert rule_fails(Rule("undetermined", "label", "is_set"), array).tolist() == [False, False, True]


@given(st.lists(st.lists(st.booleans(), min_size=62, max_size=62), max_size=20))
def test_the_first_rule_is_the_lowest_bit(rows: list[list[bool]]) -> None:
    bits = np.array([sum(1 << index for index, failed in enumerate(row) if failed) for row in rows], np.int64)
    expected = [row.index(True) if True in row else -1 for row in rows]
    assert first_rule(bits).tolist() == expected


def test_bits_are_in_the_order_of_the_rules() -> None:
    rules = [Rule("a", "x", "at_least", 1.0), Rule("b", "y", "is_set"), Rule("c", "x", "at_most", 5.0)]
    signals = {"x": pa.array([0.0, 6.0, 3.0]), "y": pa.array([None, "s", None], pa.string())}
    assert failures(rules, signals).tolist() == [0b011, 0b100, 0b010]


def test_a_threshold_that_is_no_number_is_never_met_by_accident() -> None:
    array = pa.array([1.0])
    assert rule_fails(Rule("minimum", "x", "at_least", math.inf), array).tolist() == [True]


@pytest.mark.parametrize(("field", "text"), [("prompt", "Why?"), ("response", "So."), ("both", "Why?\n\nSo.")])
def test_fields_of_a_pair(field: str, text: str) -> None:
    records = pa.RecordBatch.from_pydict({"prompt": ["Why?"], "response": ["So."]})
    assert entering_texts(records, field).to_pylist() == [text]  # type: ignore[arg-type]
