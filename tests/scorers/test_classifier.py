"""The stage ``classifier``: models of fastText and of Hugging Face."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pyarrow as pa
import pytest

from corpus.errors import UsageError
from corpus.fasttext import default_model_path
from pipelines.config import config_from_mapping
from scorers.classifier import Classifier, ClassifierConfig, FastTextClassifier
from scorers.scoring import Pairs, ScoreStage

needs_models = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
    reason="the extra models is not installed",
)
ENGLISH, GERMAN = "The quick brown fox jumps over\nthe lazy dog.", "Der schnelle braune Fuchs springt über den Hund."


def stage(model: Path | str, field: str = "text", **settings: Any) -> ScoreStage:
    config = ClassifierConfig(model=str(model), **{"score_table": "off", "device": "auto"} | settings)
    kind = Classifier.variant(config)
    assert issubclass(kind, ScoreStage)
    made = kind(config, "quality", field)  # type: ignore[arg-type]
    made.bind([])
    made.check()
    return made


def scores(made: ScoreStage, texts: list[str], prompts: list[str] | None = None) -> np.ndarray[Any, Any]:
    given = Pairs(None if prompts is None else pa.array(prompts), pa.array(texts))
    found = made._loaded_score(given)
    assert len(found.reasons) == len(texts)
    return found.values


def refused(model: Path | str, **settings: Any) -> str:
    def use() -> None:
        stage(model, **settings).fingerprint()

    with pytest.raises(UsageError) as found:
        use()
    return str(found.value)


# fastText


def test_probability_of_a_label_by_fasttext() -> None:
    path = default_model_path()
    reference = fasttext.load_model(path)
    for label in ("en", "__label__de", "ko"):
        made = stage(path, label=label)
        assert isinstance(made, FastTextClassifier)
        wanted = []
        for text in (ENGLISH, GERMAN):
            names, values = reference.predict([text.replace("\n", " ")], k=-1)
            found = dict(zip(names[0], values[0], strict=True))
            wanted.append(min(1.0, found.get(f"__label__{label.removeprefix('__label__')}", 0.0)))
        np.testing.assert_allclose(scores(made, [ENGLISH, GERMAN]), wanted, atol=1e-4)
    pair = stage(path, "both", label="de")
    np.testing.assert_array_equal(scores(pair, [GERMAN], ["Ja."]), scores(pair, [f"Ja.\n\n{GERMAN}"]))


def test_text_that_fasttext_knows_nothing_of(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("__label__a red red\n__label__b blue blue\n" * 20)
    path = tmp_path / "model.bin"
    made = fasttext.train_supervised(str(lines), dim=10, bucket=10, thread=10, verbose=0)
    made.save_model(str(path))
    path.write_bytes(path.read_bytes().replace(b"</s>\0", b"<x/>\0", 1))  # a model without the end of a line
    found = stage(path, label="a").score(Pairs(None, pa.array(["zzz", "red"])))
    assert found.reasons == ["nothing_known", None]
    assert np.isfinite(found.values).tolist() == [False, True]


def test_settings_that_do_not_fit_fasttext(tmp_path: Path) -> None:
    path = default_model_path()
    assert "quality.label: say whose probability" in refused(path)
    assert "there is no output 'klingon'; the model" in refused(path, label="klingon")
    assert "quality.max_tokens: " in refused(path, label="en", max_tokens=100)
    assert "quality.score: " in refused(path, label="en", score="raw")
    assert "cannot read the fastText model" in refused(tmp_path / "absent.bin", label="en")
    # As the settings stand in the semantic config, all of them, defaults included.
    settings = ClassifierConfig(model=path, label="en").model_dump()
    assert Classifier.variant(ClassifierConfig.model_validate(settings)) is FastTextClassifier


def test_identity_of_fasttext() -> None:
    path = default_model_path()
    found = [stage(path, label=label).identity() for label in ("en", "__label__en", "de")]
    assert found[0] == found[1] != found[2]
    assert set(stage(path, label="en").fingerprint()) == {"model"}


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    find = importlib.util.find_spec
    absent = {"torch", "transformers"}
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find(name))
        yield


@pytest.mark.usefixtures("without_packages")
def test_fasttext_needs_no_extra(tmp_path: Path) -> None:
    def build(model: str) -> None:
        section = {"files": ["x.jsonl"], "text_column": "text"}
        config_from_mapping(
            {"input": section, "stages": [{"classifier": {"model": model, "label": "en", "keep": {"at_least": 0.5}}}]}
        ).build()

    build(default_model_path())
    with pytest.raises(UsageError, match=r"stages.classifier: it needs the packages torch, transformers; .*\[models\]"):
        build(str(tmp_path))


# Hugging Face


@needs_models
def test_what_is_made_of_outputs(tmp_path: Path) -> None:
    import torch

    from tests.scorers import small_models

    labels = {0: "bad", 1: "fair", 2: "good"}
    texts = small_models.texts(20)
    single = small_models.bert(tmp_path / "single", labels=3, id2label=labels)
    several = small_models.bert(
        tmp_path / "several", labels=3, id2label=labels, problem_type="multi_label_classification"
    )
    number = small_models.bert(tmp_path / "number")
    outputs = small_models.plain_outputs(single, *((text,) for text in texts))
    for settings, folder, wanted in (
        ({"label": "good"}, single, outputs.softmax(-1)[:, 2]),
        ({"label": 0, "score": "sigmoid"}, single, outputs.sigmoid()[:, 0]),
        ({"label": "fair", "score": "raw"}, single, outputs[:, 1]),
        ({"label": "fair"}, several, outputs.sigmoid()[:, 1]),
        ({"score": "raw"}, number, small_models.plain_outputs(number, *((text,) for text in texts))[:, 0]),
    ):
        made = stage(folder, **settings)
        assert made.fingerprint()
        assert wanted.std() > 0.05
        np.testing.assert_allclose(scores(made, texts), wanted.to(torch.float64).numpy(), atol=1e-5)
    assert "one output, whose softmax is always 1" in refused(number)
    assert "3 outputs: 0 (bad), 1 (fair), 2 (good); say which" in refused(single)


@needs_models
def test_extreme_outputs_are_probabilities_still(tmp_path: Path) -> None:
    from tests.scorers import small_models

    folder = small_models.bert(tmp_path / "model", labels=2)
    made = stage(folder, label=0)
    assert isinstance(made, Classifier)
    outputs = np.array([[1e4, -1e4], [-1e4, 1e4], [np.nan, np.nan]])
    config = {"id2label": {"0": "a", "1": "b"}}
    np.testing.assert_array_equal(made.score_of(outputs, config), [1.0, 0.0, np.nan])
    sigmoid = stage(folder, label=0, score="sigmoid")
    assert isinstance(sigmoid, Classifier)
    np.testing.assert_array_equal(sigmoid.score_of(outputs, config), [1.0, 0.0, np.nan])


@needs_models
def test_responses_are_scored_unless_both_are_wanted(tmp_path: Path) -> None:
    from tests.scorers import small_models

    folder = small_models.bert(tmp_path / "model", labels=2)
    section = {"files": ["x.jsonl"], "prompt_column": "p", "response_column": "r"}
    config = config_from_mapping({"input": section, "stages": [{"classifier": {"model": str(folder), "label": 1}}]})
    assert [made.text_field for made in config.build()] == ["response"]
    texts = small_models.texts(4)
    joined = scores(stage(folder, "both", label=1), texts[:2], texts[2:])
    wanted = small_models.plain_outputs(folder, *((f"{texts[n + 2]}\n\n{texts[n]}",) for n in range(2))).softmax(-1)
    np.testing.assert_allclose(joined, wanted[:, 1].numpy(), atol=1e-5)
    pair = scores(stage(folder, "both", label=1, input="pair"), texts[:2], texts[2:])
    wanted = small_models.plain_outputs(folder, *((texts[n + 2], texts[n]) for n in range(2))).softmax(-1)
    np.testing.assert_allclose(pair, wanted[:, 1].numpy(), atol=1e-5)
