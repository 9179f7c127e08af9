from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from corpus.stages import TextBatch, known_stages
from corpus.text import lines, words
from corpus.verdicts import failures, first_rule
from filters.length import Length, LengthConfig
from tests.filters.texts import HOSTILE, TEXTS, real_texts


def made(**settings: Any) -> Length:
    stage = Length(LengthConfig(**settings), "length", "text")
    stage.prepare()
    return stage


def measured(texts: Sequence[str]) -> list[tuple[int, ...]]:
    signals = made().measure(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_)))
    assert list(signals) == [signal.name for signal in made().signals()]
    return list(zip(*(array.to_pylist() for array in signals.values()), strict=True))


def expected(texts: Sequence[str]) -> list[tuple[int, ...]]:
    return [(len(text), len(words(text)), len(lines(text))) for text in texts]


@given(TEXTS, TEXTS)
@settings(deadline=None)
def test_kernel_equals_reference_on_random_unicode(first: str, second: str) -> None:
    assert measured([first, second]) == expected([first, second])


def test_kernel_equals_reference_on_hostile_and_real_texts() -> None:
    texts = [*HOSTILE, *real_texts()[::3]]
    assert measured(texts) == expected(texts)


def test_rules_compare_with_both_limits() -> None:
    stage = made(minimum_characters=3, maximum_words=2, minimum_lines=2, maximum_lines=2)
    texts = ["ab", "abc", "a b c", "a\nb", "a\n\nb"]
    signals = stage.measure(TextBatch(pa.array(texts), np.ones(len(texts), np.bool_)))
    names = [rule.name for rule in stage.rules()]
    assert names == ["minimum_characters", "maximum_words", "minimum_lines", "maximum_lines"]
    found = first_rule(failures(stage.rules(), signals)).tolist()
    assert ["kept" if rule < 0 else names[rule] for rule in found] == [
        *("minimum_characters", "minimum_lines", "maximum_words", "kept", "maximum_lines")
    ]
    assert made().rules() == ()
    assert known_stages()["length"] is Length


def test_slices_nulls_and_masked_rows() -> None:
    texts = pa.array(["left out", None, "a b", "c"]).slice(1)
    signals = made().measure(TextBatch(texts, np.array([True, True, False])))
    assert [array.to_pylist() for array in signals.values()] == [[0, 3, 0], [0, 2, 0], [0, 1, 0]]


@pytest.mark.parametrize("measure", ["characters", "words", "lines"])
def test_a_minimum_above_its_maximum_names_both(measure: str) -> None:
    settings: dict[str, Any] = {f"minimum_{measure}": 10, f"maximum_{measure}": 9}
    with pytest.raises(ValidationError, match=rf"minimum_{measure} \(10\) is above maximum_{measure} \(9\)"):
        LengthConfig(**settings)
    assert LengthConfig(**(settings | {f"maximum_{measure}": 10})) is not None


def test_a_negative_limit_is_an_error() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        LengthConfig(minimum_words=-1)
