from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from pydantic import ValidationError

from corpus.stages import TextBatch, known_stages
from corpus.text import words
from corpus.verdicts import failures, first_rule
from filters.repetition import GopherRepetition, GopherRepetitionConfig
from filters.repetition_counts import count_text
from tests.filters.counting import by_text
from tests.filters.texts import HOSTILE, PADDING, TEXTS, real_texts

PRESETS = ("thresher-1", "datatrove-0.10")
OFF: dict[str, Any] = {name: "off" for name, _, _ in GopherRepetition.RULES}
# datatrove's reason for each rule.
REASONS = {
    "maximum_duplicate_paragraphs": "dup_para_frac",
    "maximum_duplicate_paragraph_characters": "dup_para_char_frac",
    "maximum_duplicate_lines": "dup_line_frac",
    "maximum_duplicate_line_characters": "dup_line_char_frac",
    **{f"maximum_top_{size}_gram_characters": f"top_{size}_gram" for size in (2, 3, 4)},
    **{f"maximum_duplicate_{size}_gram_characters": f"duplicated_{size}_n_grams" for size in range(5, 11)},
}


def made(**settings: Any) -> GopherRepetition:
    stage = GopherRepetition(GopherRepetitionConfig(**settings), "gopher_repetition", "text")
    stage.prepare()
    return stage


def measured(stage: GopherRepetition, texts: Sequence[str]) -> dict[str, pa.Array]:
    return stage.measure(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_)))


def verdicts(stage: GopherRepetition, signals: Mapping[str, pa.Array]) -> list[str]:
    names = [rule.name for rule in stage.rules()]
    return ["kept" if first < 0 else names[first] for first in first_rule(failures(stage.rules(), signals)).tolist()]


@pytest.fixture(scope="module")
def real() -> list[str]:
    return real_texts()


def assert_kernel_equals_reference(texts: Sequence[str]) -> None:
    batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
    for preset in PRESETS:
        assert by_text(made(preset=preset).count(batch)) == [count_text(text, preset) for text in texts]


@given(TEXTS, TEXTS)
@settings(deadline=None, max_examples=150)
@example("ab a b a b a b a b a b a b a", "a bc d e f ab c d e f")
def test_kernel_equals_reference_on_random_unicode(first: str, second: str) -> None:
    assert_kernel_equals_reference([first, second, first + second])
    assert_kernel_equals_reference([first, second, PADDING])


def test_kernel_equals_reference_on_hostile_texts() -> None:
    assert_kernel_equals_reference(HOSTILE)


def test_kernel_equals_reference_on_real_texts(real: list[str]) -> None:
    assert len(real) > 500
    assert_kernel_equals_reference(real[::3])


def filter_of_datatrove(monkeypatch: pytest.MonkeyPatch, config: GopherRepetitionConfig) -> Any:
    """Return datatrove's verdicts, as our rules' names, with our words and the limits of a config."""
    reference = pytest.importorskip("datatrove.pipeline.filters.gopher_repetition_filter")
    from datatrove.data import Document

    def limit(name: str) -> float:
        return float(getattr(config, f"maximum_{name}"))

    monkeypatch.setattr(reference, "split_into_words", lambda text, language: words(text))
    judge = reference.GopherRepetitionFilter(
        dup_line_frac=limit("duplicate_lines"),
        dup_para_frac=limit("duplicate_paragraphs"),
        dup_line_char_frac=limit("duplicate_line_characters"),
        dup_para_char_frac=limit("duplicate_paragraph_characters"),
        top_n_grams=tuple((size, limit(f"top_{size}_gram_characters")) for size in (2, 3, 4)),
        dup_n_grams=tuple((size, limit(f"duplicate_{size}_gram_characters")) for size in range(5, 11)),
    )
    names = {reason: name for name, reason in REASONS.items()}

    def verdict(text: str) -> str:
        result = judge.filter(Document(text=text, id="0"))
        return "kept" if result is True else names[result[1]]

    return verdict


# Each rule in turn is the only strict one, and others let everything pass that a share can be (a top share may pass 1).
LIMITS: list[dict[str, float]] = [{}]
LIMITS += [{name: (0.02 if name == kept else 1.0) for name in REASONS} for kept in REASONS]


@pytest.mark.parametrize("limits", LIMITS, ids=["defaults", *REASONS])
def test_preset_gives_verdict_and_reason_of_datatrove(
    limits: dict[str, float], real: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = made(preset="datatrove-0.10", **limits)
    expected = filter_of_datatrove(monkeypatch, stage.config)

    @given(TEXTS)
    @settings(deadline=None, max_examples=40)
    def on_generated_texts(text: str) -> None:
        texts = [text] if text else []  # datatrove drops empty text, which never enters a stage here
        assert verdicts(stage, measured(stage, texts)) == [expected(text) for text in texts]

    on_generated_texts()
    texts = [text for text in [*real[::6], *HOSTILE] if text]
    found = verdicts(stage, measured(stage, texts))
    assert found == [expected(text) for text in texts]
    assert len(set(found)) >= 2


def test_presets_differ_as_documented() -> None:
    def values(text: str) -> list[dict[str, float]]:
        found = (measured(made(preset=preset), [text]) for preset in PRESETS)
        return [{name: array[0].as_py() for name, array in signals.items()} for signals in found]

    ours, theirs = values("one two\r\n\r\none two\r\n\r\nlast")
    assert (ours["duplicate_paragraphs"], theirs["duplicate_paragraphs"]) == (1 / 3, 0)
    assert (ours["duplicate_lines"], theirs["duplicate_lines"]) == (1 / 3, 2 / 5)  # theirs: two lines "\r"
    ours, theirs = values("\nfirst\nsecond\n")
    assert (ours["duplicate_lines"], theirs["duplicate_lines"]) == (0, 1 / 4)
    ours, theirs = values("line\n  line  ")
    assert (ours["duplicate_lines"], theirs["duplicate_lines"]) == (1 / 2, 0)
    ours, theirs = values("all words are different here")
    assert (ours["top_2_gram_characters"], theirs["top_2_gram_characters"]) == (0, 9 / 28)
    ours, theirs = values("ha ha ha ha")
    assert (ours["top_2_gram_characters"], theirs["top_2_gram_characters"]) == (1, 15 / 11)
    ours, theirs = values("a bc d e f ab c d e f")
    assert (ours["duplicate_5_gram_characters"], theirs["duplicate_5_gram_characters"]) == (0, 6 / 21)
    ours, theirs = values("x a b c d e f g h i j y a b c d e f g h i j")
    assert (ours["duplicate_6_gram_characters"], theirs["duplicate_6_gram_characters"]) == (10 / 22, 6 / 43)
    assert ours["duplicate_10_gram_characters"] == 10 / 22


def test_the_longest_of_equally_frequent_runs_counts() -> None:
    found = measured(made(), ["a b longer words here a b longer words there"])
    assert found["top_2_gram_characters"][0].as_py() == 22 / 35


def test_no_text_divides_by_zero() -> None:
    for preset in PRESETS:
        for array in measured(made(preset=preset), HOSTILE).values():
            assert len(array) == len(HOSTILE)
            assert np.isfinite(array.drop_null().to_numpy()).all()
    nothing = measured(made(), ["", " \n ", "\u200b"])
    assert all(array.null_count == 3 for array in nothing.values())


def test_slices_nulls_and_masked_rows() -> None:
    texts = pa.array(["left out", None, "a a\na a", "a a\na a"]).slice(1)
    signals = made().measure(TextBatch(texts, np.array([True, True, False])))
    assert signals["duplicate_lines"].to_pylist() == [None, 0.5, None]
    assert all(len(values) == 0 for values in measured(made(), []).values())


def test_stage_is_found_and_declares_what_it_measures() -> None:
    assert known_stages()["gopher_repetition"] is GopherRepetition
    stage = made()
    assert list(measured(stage, ["a"])) == [signal.name for signal in stage.signals()]
    assert [f"maximum_{signal.name}" for signal in stage.signals()] == list(REASONS)
    assert [rule.name for rule in stage.rules()] == list(REASONS)
    assert made(**OFF).rules() == ()
    for name in REASONS:
        assert name not in [rule.name for rule in made(**{name: "off"}).rules()]


def test_defaults_are_those_of_the_paper() -> None:
    limits = [rule.threshold for rule in made().rules()]
    assert limits == [0.3, 0.2, 0.3, 0.2, 0.2, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maximum_duplicate_lines": -0.1}, "maximum_duplicate_lines"),
        ({"maximum_top_2_gram_characters": 1.1}, "less than or equal to 1"),
        ({"maximum_duplicate_5_gram_characters": None}, "maximum_duplicate_5_gram_characters"),
        ({"preset": "gopher"}, "thresher-1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GopherRepetitionConfig(**settings)
