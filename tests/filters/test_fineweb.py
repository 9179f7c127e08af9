from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from corpus.stages import TextBatch, known_stages
from corpus.text import words
from corpus.verdicts import failures, first_rule
from filters.fineweb import FineWebQuality, FineWebQualityConfig
from filters.fineweb_counts import count_text
from tests.filters.counting import by_text
from tests.filters.texts import HOSTILE, TEXTS, real_texts

PRESETS = ("thresher-1", "datatrove-0.10")
OFF: dict[str, Any] = {name: "off" for name, _, _ in FineWebQuality.RULES}
# datatrove's reason for each rule, and the parameter that limits it there.
REASONS = {
    "minimum_punctuated_lines": ("line_punct_ratio", "line_punct_thr"),
    "maximum_short_lines": ("short_line_ratio", "short_line_thr"),
    "maximum_duplicate_line_characters": ("char_dup_ratio", "char_duplicates_ratio"),
    "maximum_newline_ratio": ("list_ratio", "new_line_ratio"),
}


def made(**settings: Any) -> FineWebQuality:
    stage = FineWebQuality(FineWebQualityConfig(**settings), "fineweb_quality", "text")
    stage.prepare()
    return stage


def measured(stage: FineWebQuality, texts: Sequence[str]) -> dict[str, pa.Array]:
    return stage.measure(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_)))


def verdicts(stage: FineWebQuality, signals: Mapping[str, pa.Array]) -> list[str]:
    names = [rule.name for rule in stage.rules()]
    return ["kept" if first < 0 else names[first] for first in first_rule(failures(stage.rules(), signals)).tolist()]


@pytest.fixture(scope="module")
def real() -> list[str]:
    return real_texts()


def assert_kernel_equals_reference(texts: Sequence[str], short_line_length: int = 30) -> None:
    batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
    for preset in PRESETS:
        stage = made(preset=preset, short_line_length=short_line_length)
        assert by_text(stage.count(batch)) == [count_text(text, preset, short_line_length) for text in texts]


@given(TEXTS, TEXTS)
@settings(deadline=None, max_examples=150)
def test_kernel_equals_reference_on_random_unicode(first: str, second: str) -> None:
    assert_kernel_equals_reference([first, second, first + second], 8)


def test_kernel_equals_reference_on_hostile_texts() -> None:
    assert_kernel_equals_reference(HOSTILE)


def test_kernel_equals_reference_on_real_texts(real: list[str]) -> None:
    assert_kernel_equals_reference(real[::2])


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"maximum_duplicate_line_characters": 0.5, "maximum_short_lines": 0.9, "minimum_punctuated_lines": 0.01},
        {"short_line_length": 4, "maximum_short_lines": 0.5, "minimum_punctuated_lines": 0.0},
        {"minimum_punctuated_lines": 0.0, "maximum_short_lines": 1.0, "maximum_duplicate_line_characters": 1.0},
    ],
)
def test_preset_gives_verdict_and_reason_of_datatrove(
    limits: dict[str, float], real: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = pytest.importorskip("datatrove.pipeline.filters.fineweb_quality_filter")
    from datatrove.data import Document

    monkeypatch.setattr(reference, "split_into_words", lambda text, language: words(text))
    stage = made(preset="datatrove-0.10", **limits)
    config = stage.config
    parameters = {parameter: getattr(config, name) for name, (_, parameter) in REASONS.items()}
    judge = reference.FineWebQualityFilter(short_line_length=config.short_line_length, **parameters)
    names = {reason: name for name, (reason, _) in REASONS.items()}

    def expected(text: str) -> str:
        result = judge.filter(Document(text=text, id="0"))
        return "kept" if result is True else names[result[1]]

    @given(TEXTS)
    @settings(deadline=None, max_examples=80)
    def on_generated_texts(text: str) -> None:
        texts = [text] if words(text) else []  # datatrove divides by their number
        assert verdicts(stage, measured(stage, texts)) == [expected(text) for text in texts]

    on_generated_texts()
    texts = [text for text in [*real[::3], *HOSTILE] if words(text)]
    found = verdicts(stage, measured(stage, texts))
    assert found == [expected(text) for text in texts]
    assert len(set(found)) >= 2


def test_presets_differ_as_documented() -> None:
    text = "A sentence of some words.\r\n  Another one.\r\n\r\nAnother one.  \r\nno end"
    ours, theirs = (
        {name: array[0].as_py() for name, array in measured(made(preset=preset), [text]).items()} for preset in PRESETS
    )
    assert ours == {
        "punctuated_lines": 3 / 4,
        "short_lines": 1.0,
        "duplicate_line_characters": 12 / 55,
        "newline_ratio": 4 / 11,
    }
    # Lines of datatrove: the four with words; the blank one holds "\r".
    assert theirs == {
        "punctuated_lines": 0.0,
        "short_lines": 1.0,
        "duplicate_line_characters": 0.0,
        "newline_ratio": 4 / 11,
    }


def test_no_text_divides_by_zero() -> None:
    for preset in PRESETS:
        for array in measured(made(preset=preset), HOSTILE).values():
            assert len(array) == len(HOSTILE)
            assert np.isfinite(array.drop_null().to_numpy()).all()
    nothing = measured(made(), ["", " \n "])
    assert all(array.null_count == 2 for array in nothing.values())


def test_slices_nulls_and_masked_rows() -> None:
    texts = pa.array(["left out", None, "a.\nb", "a.\nb"]).slice(1)
    signals = made().measure(TextBatch(texts, np.array([True, True, False])))
    assert signals["punctuated_lines"].to_pylist() == [None, 0.5, None]
    assert all(len(values) == 0 for values in measured(made(), []).values())


def test_stage_is_found_and_declares_what_it_measures() -> None:
    assert known_stages()["fineweb_quality"] is FineWebQuality
    stage = made()
    assert list(measured(stage, ["a"])) == [signal.name for signal in stage.signals()]
    assert [(rule.name, rule.threshold) for rule in stage.rules()] == list(
        zip(REASONS, [0.12, 0.67, 0.01, 0.3], strict=True)
    )
    assert made(**OFF).rules() == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimum_punctuated_lines": -0.1}, "minimum_punctuated_lines"),
        ({"maximum_short_lines": 1.1}, "less than or equal to 1"),
        ({"maximum_newline_ratio": -1.0}, "greater than or equal to 0"),
        ({"short_line_length": -1}, "short_line_length"),
        ({"preset": "fineweb"}, "thresher-1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FineWebQualityConfig(**settings)
