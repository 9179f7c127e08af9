from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.stages import TextBatch, known_stages
from corpus.verdicts import failures
from filters.badword_lists import find_in_batch, find_in_text, plain_words, word_list
from filters.badwords import Badwords, BadwordsConfig
from filters.language import Language, LanguageConfig
from filters.length import Length, LengthConfig
from tests.filters.texts import HOSTILE, TEXTS, real_texts

ENTRIES = ["bad", "very bad thing", "a b", "a b a", "a$$", "世界", "กี่", "e\u0301", "Straẞe", "ab", "..."]


def made(folder: Path, lists: dict[str, str], **settings: Any) -> Badwords:
    for language, text in lists.items():
        (folder / f"{language}.txt").write_text(text, encoding="utf-8")
    paths = {language: str(folder / f"{language}.txt") for language in lists}
    stage = Badwords(BadwordsConfig(words=paths, **settings), "badwords", "text")
    stage.prepare()
    return stage


def measured(stage: Badwords, texts: list[str], languages: list[str | None] | None = None) -> dict[str, pa.Array]:
    labels = None if languages is None else pa.array(languages, pa.string())
    return stage.measure(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), languages=labels))


def test_whole_words_and_phrases(tmp_path: Path) -> None:
    stage = made(tmp_path, {"en": "# list\nbad\nvery  ugly\na$$\n世界\n"})
    texts = [
        "Bad!",
        "badly",
        "(bad), bad",
        "very\nUGLY",
        "very, ugly",
        "$$ a $",
        "an a$$.",
        "新世界",
        "世 界",
        "good",
        "",
    ]
    signals = measured(stage, texts)
    assert signals["listed_words"].to_pylist() == [1, 0, 2, 1, 0, 0, 1, 1, 1, 0, 0]
    assert signals["listed"].to_pylist()[:4] == ["bad", None, "bad", "very  ugly"]
    assert (failures(stage.rules(), signals) != 0).tolist() == [
        count > 0 for count in signals["listed_words"].to_pylist()
    ]


@given(TEXTS, st.lists(st.sampled_from(ENTRIES) | st.text(min_size=1, max_size=4), min_size=1, max_size=6))
@settings(deadline=None)
def test_kernel_equals_reference_on_random_unicode(text: str, entries: list[str]) -> None:
    entries = [entry for entry in entries if plain_words(entry)] or ["a"]
    texts = [text, text + entries[0], f"{text} {entries[-1].upper()} {text}"]
    counts, firsts = find_in_batch(pa.array(texts, pa.string()), np.ones(3, np.bool_), word_list(entries))
    assert list(zip(counts.tolist(), firsts.tolist(), strict=True)) == [find_in_text(text, entries) for text in texts]


def test_kernel_equals_reference_on_hostile_and_real_texts() -> None:
    entries = [*ENTRIES, "the", "of the", "return", "self", "import sys", "(", "=="]
    texts = [*(text[:20_000] for text in HOSTILE), *(text[:1500] for text in real_texts()[::8])]
    counts, firsts = find_in_batch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), word_list(entries))
    assert list(zip(counts.tolist(), firsts.tolist(), strict=True)) == [find_in_text(text, entries) for text in texts]


def test_a_list_counts_for_its_language(tmp_path: Path) -> None:
    lists = {"en": "gift\n", "de": "Gift\nböse\n"}
    texts = ["a gift", "ein Gift", "BÖSE", "böse", "gift"]
    languages = ["en", "de", "de", "en", None]
    stage = made(tmp_path, lists)
    assert measured(stage, texts, languages)["listed_words"].to_pylist() == [1, 1, 1, 0, 0]
    assert measured(stage, texts)["listed_words"].to_pylist() == [2, 2, 1, 1, 2]


def test_labels_count_where_a_language_stage_stands_before(tmp_path: Path) -> None:
    stage = made(tmp_path, {"en": "bad\n"})
    stage.bind([Length(LengthConfig(), "length", "text")])
    assert (stage.uses_languages(), stage.signal_columns()) == (False, ())
    stage.bind([Language(LanguageConfig(), "labels", "text"), Length(LengthConfig(), "length", "text")])
    assert (stage.uses_languages(), stage.signal_columns()) == (True, ("labels.label",))


def test_a_fraction_is_kept_by_a_hash_of_the_text(tmp_path: Path) -> None:
    texts = [f"bad text number {number}" for number in range(2000)]
    stage = made(tmp_path, {"en": "bad\n"}, keep_fraction=0.25)
    draws = measured(stage, texts)["draw"]
    kept = failures(stage.rules(), {"draw": draws}) == 0
    assert 430 < kept.sum() < 570  # 500, with a standard deviation of 19
    assert measured(stage, texts[::-1])["draw"].to_pylist() == draws.to_pylist()[::-1]
    assert measured(made(tmp_path, {"en": "bad\n"}, seed=1), texts)["draw"] != draws
    for fraction, share in ((0.0, 0), (1.0, 1)):
        stage = made(tmp_path, {"en": "bad\n"}, keep_fraction=fraction)
        assert (failures(stage.rules(), {"draw": draws}) == 0).mean() == share
    assert measured(stage, ["good"])["draw"].to_pylist() == [None]


def test_masked_and_null_rows(tmp_path: Path) -> None:
    stage = made(tmp_path, {"en": "bad\n"})
    texts = pa.array(["bad", None, "bad", "bad"]).slice(1)
    signals = stage.measure(TextBatch(texts, np.array([True, True, False])))
    assert signals["listed_words"].to_pylist() == [0, 1, 0]
    assert signals["draw"].null_count == 2
    assert known_stages()["badwords"] is Badwords


def test_lists_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"badwords\.words\.en: .*line 2: found '\\u200b'; wanted a word"):
        made(tmp_path, {"en": "ok\n\u200b\n"})
    bare = Badwords(BadwordsConfig(), "badwords", "text")
    for call in (bare.prepare, bare.fingerprint):
        with pytest.raises(UsageError, match=r"badwords\.words: no list is given"):
            call()
    absent = Badwords(BadwordsConfig(words={"en": str(tmp_path / "absent")}), "badwords", "text")
    with pytest.raises(UsageError, match=r"badwords\.words\.en: cannot read"):
        absent.fingerprint()


def test_fingerprint_follows_content_not_path(tmp_path: Path) -> None:
    first = made(tmp_path, {"en": "a\n"}).fingerprint()
    (tmp_path / "other").mkdir()
    assert made(tmp_path / "other", {"en": "a\n"}).fingerprint() == first
    assert made(tmp_path, {"en": "b\n"}).fingerprint() != first
    assert list(first) == ["words"]


@pytest.mark.parametrize(
    "settings", [{"keep_fraction": -0.1}, {"keep_fraction": 1.5}, {"seed": -1}, {"words": {"en": ""}}, {"words": "x"}]
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        BadwordsConfig(**settings)
