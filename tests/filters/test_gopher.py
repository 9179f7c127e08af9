import json
import sysconfig
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.stages import TextBatch, known_stages
from corpus.text import words
from corpus.verdicts import failures, first_rule
from filters.gopher import STOP_WORDS, GopherQuality, GopherQualityConfig
from filters.gopher_counts import count_text
from tests.filters.counting import by_text

SHARED = Path(__file__).parents[2].parent / "shared"
PRESETS = ("thresher-1", "datatrove-0.10")
OFF: dict[str, Any] = {name: "off" for name, _, _ in GopherQuality.RULES}

# datatrove's reason for each rule, and the parameter that limits it there.
REASONS = {
    "minimum_words": ("gopher_short_doc", "min_doc_words"),
    "maximum_words": ("gopher_long_doc", "max_doc_words"),
    "minimum_mean_word_length": ("gopher_below_avg_threshold", "min_avg_word_length"),
    "maximum_mean_word_length": ("gopher_above_avg_threshold", "max_avg_word_length"),
    "maximum_hash_ratio": ("gopher_too_many_hashes", "max_symbol_word_ratio"),
    "maximum_ellipsis_ratio": ("gopher_too_many_ellipsis", "max_symbol_word_ratio"),
    "maximum_bullet_lines": ("gopher_too_many_bullets", "max_bullet_lines_ratio"),
    "maximum_ellipsis_lines": ("gopher_too_many_end_ellipsis", "max_ellipsis_lines_ratio"),
    "minimum_alphabetic_words": ("gopher_below_alpha_threshold", "max_non_alpha_words_ratio"),
    "minimum_stop_words": ("gopher_enough_stop_words", "min_stop_words"),
}

OF_EMPTY_MEANS = ("ignore:Mean of empty slice", "ignore:invalid value")  # NumPy's, inside datatrove

# The interpreter may know fewer letters than the pinned Unicode tables; datatrove asks the interpreter.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"]).filter(
    lambda character: unicodedata.category(character) == unicodedata2.category(character)
)
PIECES = st.one_of(
    st.sampled_from([*STOP_WORDS, "The", "with,", "#", "##", "...", "....", "…", "-", "•", "--", "!?", "€", "→", "12"]),
    st.sampled_from([" ", "  ", "\n", "\r\n", "\r", "\u2028", "\x1c", "\t", "\u200b", "\u00a0"]),
    st.sampled_from(["prose", "naïve", "한국어", "世界", "กี่", "か\u3099", "e\u0301", "👩‍👩‍👧", "\0", "１", "\ufeff"]),
    st.text(CHARACTERS, max_size=8),
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.lists(PIECES, max_size=40).map(" ".join)

HOSTILE = [
    *["", "a", "#", "…", "...", "..", "....", "......", ". . .", "-", " -", "\u200b-", "-\u200b", "…\u200b", "…  "],
    *[
        "\n",
        "\n\n\n",
        " " * 1000,
        "\n" * 1000,
        "\r\n\r\n",
        "\0",
        "\0 \0",
        "\u0301",
        "•",
        "• a\n - b\n•c",
        "a...\nb…\n…",
    ],
    *[
        "x" * 1_000_000,
        "#" * 100_000,
        "." * 100_001,
        "世..." * 1000,
        "...世…",
        "the the The THE",
        "the\u200bthe",
        "the\0",
    ],
    *[
        "a\r",
        "a\r\n-b\n\r-c",
        "-a\x85-b\u2028-c\u2029-d\x0b-e\x0c-f\x1c-g",
        "👩‍👩‍👧‍👦 🇰🇷",
        "…\u0301",
        "..\u0301.",
        "กี่...",
    ],
]


def made(**settings: Any) -> GopherQuality:
    stage = GopherQuality(GopherQualityConfig(**settings), "gopher_quality", "text")
    stage.prepare()
    return stage


def measured(stage: GopherQuality, texts: Sequence[str]) -> dict[str, pa.Array]:
    return stage.measure(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_)))


def verdicts(stage: GopherQuality, signals: Mapping[str, pa.Array]) -> list[str]:
    names = [rule.name for rule in stage.rules()]
    return ["kept" if first < 0 else names[first] for first in first_rule(failures(stage.rules(), signals)).tolist()]


def case(name: str) -> tuple[Path, list[str], list[str]]:
    folder = SHARED / "cases" / name
    if not folder.is_dir():
        pytest.skip("the shared cases are not beside the repository")
    records = [json.loads(line) for line in (folder / "input.jsonl").read_text(encoding="utf-8").splitlines()]
    return folder, [record["id"] for record in records], [record["text"] for record in records]


def real_texts() -> list[str]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_text(encoding="utf-8")[:20_000] for path in sorted(folder.glob("*.py"))]
    texts += [paragraph for text in texts for paragraph in text.split('"""')[1::2]]
    if SHARED.is_dir():
        files = [path for path in (SHARED / "data").rglob("*") if path.suffix in (".tsv", ".csv", ".jsonl", ".md")]
        texts += [path.read_bytes()[:10_000].decode("utf-8", "replace") for path in sorted(files)]
        texts += (SHARED / "data" / "LICENSES.md").read_text(encoding="utf-8").split("\n\n")
    return texts


@pytest.fixture(scope="module")
def real() -> list[str]:
    return real_texts()


def assert_kernel_equals_reference(texts: Sequence[str]) -> None:
    for preset in PRESETS:
        stop_words = [*STOP_WORDS, "prose", "naïve", "世", "the", "#", "a" * 40]
        stage = made(preset=preset, stop_words=stop_words)
        batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
        expected = [count_text(text, preset, stop_words) for text in texts]
        assert by_text(stage.count(batch)) == expected


@given(st.lists(TEXTS, max_size=4))
@example(HOSTILE)
@settings(deadline=None)
def test_kernel_equals_reference_on_random_unicode(texts: list[str]) -> None:
    assert_kernel_equals_reference(texts)


def test_kernel_equals_reference_on_real_texts(real: list[str]) -> None:
    assert len(real) > 1000
    assert_kernel_equals_reference([text[:3000] for text in real])


def filter_of_datatrove(monkeypatch: pytest.MonkeyPatch, config: GopherQualityConfig) -> Any:
    """Return datatrove's verdicts, as our rules' names, with our words and the limits of a config."""
    reference = pytest.importorskip("datatrove.pipeline.filters.gopher_quality_filter")
    from datatrove.data import Document

    monkeypatch.setattr(reference, "split_into_words", lambda text, language: words(text))
    limits = {}
    for name, (_, parameter) in REASONS.items():
        value = getattr(config, name)
        limits[parameter] = None if value == "off" else value
    judge = reference.GopherQualityFilter(**limits, stop_words=config.stop_words)
    names = {reason: name for name, (reason, _) in REASONS.items()}

    def verdict(text: str) -> str:
        result = judge.filter(Document(text=text, id="0"))
        return "kept" if result is True else names[result[1]]

    return verdict


@pytest.mark.filterwarnings(*OF_EMPTY_MEANS)
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"minimum_words": 1, "maximum_words": 12},
        {"minimum_words": 2, "minimum_mean_word_length": 1.5, "maximum_mean_word_length": 4.5},
        {
            "minimum_words": 1,
            "minimum_mean_word_length": "off",
            "maximum_mean_word_length": 30,
            "maximum_bullet_lines": 0.5,
            "minimum_alphabetic_words": 0.4,
            "minimum_stop_words": 1,
        },
        OFF | {"maximum_ellipsis_lines": 0.25, "minimum_stop_words": 3, "minimum_mean_word_length": 3},
        OFF | {"maximum_hash_ratio": 0.5, "maximum_ellipsis_ratio": 0.5, "minimum_alphabetic_words": 0.75},
        OFF | {"maximum_bullet_lines": 0.3, "stop_words": ["prose", "世"], "minimum_stop_words": 1},
    ],
)
def test_preset_gives_verdict_and_reason_of_datatrove(
    limits: dict[str, Any], real: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = made(preset="datatrove-0.10", **limits)
    expected = filter_of_datatrove(monkeypatch, stage.config)

    @given(st.lists(TEXTS, min_size=1, max_size=4))
    @settings(deadline=None, max_examples=60)
    def on_generated_texts(texts: list[str]) -> None:
        texts = [text for text in texts if words(text)]  # datatrove divides by their number
        assert verdicts(stage, measured(stage, texts)) == [expected(text) for text in texts]

    on_generated_texts()
    texts = [text[:2000] for text in real[::2] if words(text[:2000])]
    found = verdicts(stage, measured(stage, texts))
    assert found == [expected(text) for text in texts]
    assert len(set(found)) >= 2


@pytest.mark.filterwarnings(*OF_EMPTY_MEANS)
def test_preset_agrees_with_datatrove_where_no_word_has_content(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"minimum_mean_word_length": 3, "maximum_hash_ratio": 0.1, "maximum_ellipsis_ratio": 0.1}
    stage = made(preset="datatrove-0.10", **(OFF | limits))
    expected = filter_of_datatrove(monkeypatch, stage.config)
    texts = ["- !", "# !", "... !", "1 # ! ?"]
    found = verdicts(stage, measured(stage, texts))
    assert found == [expected(text) for text in texts]
    assert found == ["kept", "maximum_hash_ratio", "maximum_ellipsis_ratio", "minimum_mean_word_length"]


def test_presets_differ_in_punctuation_only() -> None:
    text = "→ € • \ufeff １ word"
    ours, theirs = (measured(made(preset=preset), [text]) for preset in PRESETS)
    assert [ours["words"][0].as_py(), theirs["words"][0].as_py()] == [2, 5]
    for name in set(ours) - {"words", "mean_word_length"}:
        assert ours[name].equals(theirs[name])


def test_case_q02_exact_boundaries() -> None:
    folder, ids, texts = case("q02-exact-boundaries")
    truth = json.loads((folder / "values.json").read_text(encoding="utf-8"))
    names = {reason: name for name, (reason, _) in REASONS.items()} | {"kept": "kept"}
    for preset in PRESETS:
        stage = made(preset=preset)
        signals = measured(stage, texts)
        assert dict(zip(ids, verdicts(stage, signals), strict=True)) == {key: names[truth[key]] for key in ids}

    value = {name: dict(zip(ids, signals[name].to_pylist(), strict=True)) for name in signals}
    assert value["words"]["w49"] == 49
    assert value["mean_word_length"]["m2.98"] == 179 / 60
    assert value["hash_ratio"]["h0.11"] == 0.11
    assert value["ellipsis_lines"]["e0.40"] == 0.4
    assert value["alphabetic_words"]["a0.79"] == 0.79

    raised = dict(zip(ids, verdicts(made(maximum_ellipsis_lines=0.4), signals), strict=True))
    assert raised["e0.40"] == "kept"


@pytest.mark.parametrize("preset", PRESETS)
def test_case_q03_words_without_spaces(preset: str) -> None:
    _, ids, texts = case("q03-words-without-spaces")
    stage = made(**(OFF | {"minimum_words": 50, "preset": preset}))
    signals = measured(stage, texts)
    kept = {key for key, verdict in zip(ids, verdicts(stage, signals), strict=True) if verdict == "kept"}
    assert kept == {"zh1", "ja1", "th1", "zwsp", "ko1", "mix"}
    count = dict(zip(ids, signals["words"].to_pylist(), strict=True))
    bounds = {
        "zh1": (65, 260),
        "zh2": (4, 16),
        "ja1": (68, 272),
        "th1": (54, 434),
        "ko1": (54, 62),
        "ko2": (4, 5),
        "mix": (66, 266),
        "zwsp": (54, 434),
    }
    assert all(low <= count[key] <= high for key, (low, high) in bounds.items()), count
    assert abs(count["th1"] - count["zwsp"]) <= 19
    unspaced = dict(zip(ids, signals["unspaced_words"].to_pylist(), strict=True))
    assert {key for key in ids if unspaced[key] > 0.5} == {"zh1", "zh2", "ja1", "th1", "zwsp", "mix"}
    assert unspaced["ko1"] == unspaced["ko2"] == 0


def test_limits_of_a_language_without_spaces_keep_its_texts() -> None:
    _, ids, texts = case("q03-words-without-spaces")
    chinese = {"minimum_mean_word_length": "off", "stop_words": ["的", "是", "在"], "minimum_stop_words": 1}
    stage = made(by_language={"zh": chinese})
    text = texts[ids.index("zh1")]
    signals = measured(stage, [text, text])
    assert verdicts(stage, signals)[1] == "minimum_mean_word_length"
    labels = pa.array(["zh", None])
    batch = TextBatch(pa.array([text, text]), np.ones(2, np.bool_), languages=labels)
    bits = failures(stage.rules(), stage.measure(batch), labels)
    assert bits[0] == 0
    assert bits[1] != 0


def test_no_text_divides_by_zero() -> None:
    for preset in PRESETS:
        signals = measured(made(preset=preset), HOSTILE)
        for array in signals.values():
            assert len(array) == len(HOSTILE)
            if array.type == pa.float64():
                assert np.isfinite(array.drop_null().to_numpy()).all()
        assert signals["words"].to_pylist()[0] == 0
        assert signals["mean_word_length"].to_pylist()[0] is None
        assert signals["bullet_lines"].to_pylist()[0] is None


def test_signals_of_one_text() -> None:
    text = "- the words to count...\n\n• naïve # 世界 …\nlast: ......  \n"
    found = {name: values.to_pylist()[0] for name, values in measured(made(), [text]).items()}
    assert found == {
        "words": 8,
        "mean_word_length": (3 + 5 + 2 + 8 + 5 + 1 + 1 + 5) / 8,
        "hash_ratio": 1 / 13,
        "ellipsis_ratio": 4 / 13,
        "bullet_lines": 2 / 4,
        "ellipsis_lines": 3 / 4,
        "alphabetic_words": 8 / 13,
        "stop_words": 2,
        "unspaced_words": 2 / 13,
    }


def test_slices_nulls_and_masked_rows() -> None:
    stage = made()
    texts = pa.array(["left out", None, "the end to be", "masked text"]).slice(1)
    signals = stage.measure(TextBatch(texts, np.array([True, True, False])))
    assert signals["words"].to_pylist() == [0, 4, 0]
    assert signals["stop_words"].to_pylist() == [0, 3, 0]
    assert all(len(values) == 0 for values in measured(stage, []).values())


def test_measuring_without_preparing_says_so() -> None:
    stage = GopherQuality(GopherQualityConfig(), "gopher_quality", "text")
    with pytest.raises(RuntimeError, match="prepare"):
        measured(stage, ["a"])


def test_stage_is_found_and_declares_what_it_measures() -> None:
    assert known_stages()["gopher_quality"] is GopherQuality
    stage = made()
    declared = {signal.name: signal.kind for signal in stage.signals()}
    assert {name: str(values.type).replace("double", "float64") for name, values in measured(stage, ["a"]).items()} == (
        declared
    )
    assert [rule.name for rule in stage.rules()] == list(REASONS)
    assert {rule.signal for rule in stage.rules()} | {"unspaced_words"} == set(declared)


def test_rules_are_switched_off_one_by_one() -> None:
    for name in REASONS:
        assert name not in [rule.name for rule in made(**{name: "off"}).rules()]
    assert made(**OFF).rules() == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimum_words": 10, "maximum_words": 9}, r"minimum_words \(10\) is above maximum_words \(9\)"),
        (
            {"minimum_mean_word_length": 4.0, "maximum_mean_word_length": 3.5},
            r"minimum_mean_word_length \(4.0\) is above maximum_mean_word_length \(3.5\)",
        ),
        ({"minimum_stop_words": 3, "stop_words": ["a", "b", "a"]}, r"minimum_stop_words \(3\) .* stop_words \(2\)"),
        ({"maximum_bullet_lines": 1.5}, "less than or equal to 1"),
        ({"minimum_alphabetic_words": -0.1}, "greater than or equal to 0"),
        ({"maximum_hash_ratio": float("nan")}, "finite"),
        ({"minimum_words": None}, "minimum_words"),
        ({"minimum_words": True}, "minimum_words"),
        ({"minimum_words": "50"}, "minimum_words"),
        ({"minimum_words": 50.5}, "minimum_words"),
        ({"preset": "gopher"}, "thresher-1"),
        ({"minimum_word": 3}, "minimum_word"),
        ({"stop_words": [1]}, "stop_words"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GopherQualityConfig(**settings)


@pytest.mark.parametrize("word", ["", "in order", "世界", "a\u200bb", " the"])
def test_a_stop_word_that_no_text_can_have_is_an_error(word: str) -> None:
    with pytest.raises(UsageError, match=r"gopher_quality\.stop_words: .* is not one word"):
        made(stop_words=["the", "of", word])
