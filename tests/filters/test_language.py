"""The stage ``language``."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.fasttext import FastTextModel, default_model_path
from corpus.stages import Rule, TextBatch
from filters.language import Language, LanguageConfig

CASES = Path(__file__).parents[2] / ".." / "shared" / "cases"
MODEL_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the folder ../shared/cases is not beside the repository")


def make(**config: Any) -> Language:
    stage = Language(LanguageConfig(**config), "language", "text")
    stage.prepare()
    return stage


def measure(stage: Language, texts: list[str | None]) -> list[tuple[Any, Any]]:
    array = pa.array(texts, pa.string())
    found = stage.measure(TextBatch(array, np.asarray(array.is_valid())))
    assert list(found) == [signal.name for signal in stage.signals()]
    assert found["label"].type == pa.string()
    assert found["score"].type == pa.float64()
    return list(zip(found["label"].to_pylist(), found["score"].to_pylist(), strict=True))


def read_case(name: str) -> tuple[dict[str, str | None], dict[str, Any]]:
    lines = (CASES / name / "input.jsonl").read_bytes().splitlines()
    records = {record["id"]: record["text"] for record in map(json.loads, lines)}
    return records, json.loads((CASES / name / "values.json").read_text())


@needs_cases
def test_case_newlines() -> None:
    records, values = read_case("l01-newlines")
    found = dict(zip(records, measure(make(), list(records.values())), strict=True))
    assert len(found) == 8
    for name, value in values.items():
        assert found[name][0] == value["label"]
        assert found[name][1] == pytest.approx(value["score"], abs=1e-4)
    assert found["n1"] == found["n2"] == found["n3"] == found["n4"] == found["n8"]


@needs_cases
def test_case_nothing_to_judge() -> None:
    records, values = read_case("l02-nothing-to-judge")
    found = dict(zip(records, measure(make(), list(records.values())), strict=True))
    for name, value in values.items():
        if value["letters"]:
            assert found[name][0] == value["model_label"]
            assert found[name][1] == pytest.approx(value["model_score"], abs=1e-4)
        else:
            assert found[name] == (None, None)
    assert found["e14"] == (None, None)
    assert [name for name, (label, _) in found.items() if label] == ["e2", "e5", "e10", "e13"]


@needs_cases
def test_bare_model_gives_the_values_of_the_case_without_letters() -> None:
    records, values = read_case("l02-nothing-to-judge")
    names = [name for name in values if values[name]["letters"] == 0]
    labels, scores = FastTextModel.load(default_model_path()).predict(
        pa.array([records[name] for name in names]), np.ones(len(names), np.bool_)
    )
    assert labels.to_pylist() == [values[name]["model_label"] for name in names]
    assert scores.to_pylist() == pytest.approx([values[name]["model_score"] for name in names], abs=2e-6)


def test_rules_are_those_of_the_config() -> None:
    assert make().rules() == ()
    assert make(keep=["en", "de"], minimum_score=0.65).rules() == (
        Rule("undetermined", "label", "is_set"),
        Rule("keep", "label", "one_of", values=("en", "de")),
        Rule("minimum_score", "score", "at_least", 0.65),
    )
    assert [rule.name for rule in make(minimum_score=0).rules()] == ["minimum_score"]


def test_score_is_clamped_and_rounded() -> None:
    # The bare model says 1.00004 of such texts.
    texts = [
        "벌써 3년",
        "これは日本語の文章です",
        "Η Ελλάδα είναι μια χώρα",
        "Ein kurzer Satz auf Deutsch",
    ]
    found = measure(make(), texts)
    assert [label for label, _ in found] == ["ko", "ja", "el", "de"]
    bare = FastTextModel.load(default_model_path()).predict(pa.array(texts), np.ones(4, np.bool_))[1].to_pylist()
    assert max(bare) > 1
    assert [score for _, score in found] == [round(min(score, 1.0), 4) for score in bare]


def test_first_characters() -> None:
    text = "This is a sentence in plain English. " + "Und hier folgt ein langer deutscher Satz. " * 20
    assert measure(make(first_characters=36), [text])[0] == measure(make(), [text[:36]])[0]
    assert measure(make(), [text])[0][0] == "de"
    assert measure(make(first_characters=5), ["12345 letters come later", "1234x"])[0] == (None, None)
    assert measure(make(first_characters=5), ["1234ж"])[0][0] is not None


def test_rows_that_are_not_alive_are_null() -> None:
    texts = pa.array(["The quick brown fox jumps.", "Der schnelle braune Fuchs.", None])
    found = make().measure(TextBatch(texts, np.array([False, True, False])))
    assert found["label"].to_pylist() == [None, "de", None]
    assert found["score"].is_null().to_pylist() == [True, False, True]
    assert measure(make(), []) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8))
def test_text_without_a_letter_has_no_label(texts: list[str]) -> None:
    found = measure(make(), list(texts))
    letters = [any(unicodedata2.category(character)[0] == "L" for character in text) for text in texts]
    assert [label is not None for label, _ in found] == letters
    assert all(score is None or 0 <= score <= 1 for _, score in found)


@pytest.mark.parametrize(("label", "nearest"), [("eng", "en"), ("EN", "en"), ("zh-CN", "zh"), ("klingon", "")])
def test_keep_that_the_model_does_not_know(label: str, nearest: str) -> None:
    with pytest.raises(
        UsageError, match=r"language: keep: the model .* has no label .* Nearest of its 176 labels"
    ) as error:
        make(keep=["de", label])
    assert repr(label) in str(error.value)
    assert nearest in str(error.value).rsplit(": ", 1)[1].rstrip(".").split(", ") or not nearest


@pytest.mark.parametrize(
    "config",
    [{"keep": []}, {"keep": "en"}, {"keep": None}, {"minimum_score": 1.5}, {"minimum_score": float("nan")},
     {"minimum_score": "0.5"}, {"first_characters": -1}, {"model": 3}, {"field": "title"}, {"languages": ["en"]}],
    ids=str,
)  # fmt: skip
def test_config_that_cannot_be(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LanguageConfig(**config)


def test_model_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.ftz"
    stage = Language(LanguageConfig(model=str(missing)), "language", "text")
    with pytest.raises(UsageError, match=r"missing\.ftz: cannot read the fastText model"):
        stage.prepare()
    with pytest.raises(UsageError, match=r"missing\.ftz: cannot read the fastText model"):
        stage.fingerprint()


def test_fingerprint_is_the_digest_of_the_model(tmp_path: Path) -> None:
    assert make().fingerprint() == {"model": MODEL_SHA256}
    other = tmp_path / "other.ftz"
    other.write_bytes(Path(default_model_path()).read_bytes() + b"tail")
    stage = make(model=str(other))
    assert stage.fingerprint() == {"model": hashlib.sha256(other.read_bytes()).hexdigest()}
    assert measure(stage, ["Das ist ein Satz."])[0][0] == "de"


def test_module_is_light_to_import() -> None:
    code = (
        "import sys, filters.language; print({'numpy', 'numba', 'pyarrow', 'apache_beam', 'fasttext'} & {*sys.modules})"
    )
    root = Path(__file__).parents[2]
    output = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
