"""The benchmark of a GPU does the same on a CPU, so that it runs before it gets to a machine that has one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("the extra models is not installed", allow_module_level=True)

import torch

from benchmarks import gpu
from benchmarks.results_tables import gpu as table
from scorers.sequence_classifier import SequenceClassifier
from tests.scorers import small_models


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    return gpu.main()


def test_both_show_the_model_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_models.bert(tmp_path / "model", limit=512)
    file = tmp_path / "figures.json"
    options = ["--records", "30", "--batch-tokens", "700", "--device", "cpu", "--dtype", "float32", "--json", str(file)]
    assert run(monkeypatch, str(model), *options) in (0, 3)
    figures = json.loads(file.read_text())
    # The one that is compared with has other batches.
    assert 0 <= figures["largest_difference_to_float32"] < 1e-4 < figures["spread_of_scores"]
    assert figures["share"] == pytest.approx(
        figures["tokens_per_second"]["ours"] / figures["tokens_per_second"]["forward passes"]
    )
    assert "no GPU, float32" in table(figures)[0]
    prompts, responses = gpu.random_records(30)
    classifier = gpu.made(str(model), "float32", 700, "cpu")
    batches = gpu.bare_batches(classifier, prompts, responses)
    assert figures["tokens"] == sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert all(batch["input_ids"].numel() <= 700 for batch in batches)
    with torch.inference_mode():
        shown = sorted(value for batch in batches for value in classifier._model(**batch).logits[:, 0].tolist())
    assert shown == pytest.approx(sorted(classifier.outputs(prompts, responses).values[:, 0]), abs=1e-5)


def test_memory_that_does_not_suffice_for_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_models.bert(tmp_path / "model", limit=512)
    found = gpu.made(str(model), "float32", 700, "cpu").outputs(["why"], ["because"]).values

    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(SequenceClassifier, "__init__", fail)
    assert gpu.compared(str(model), found, ["why"], ["because"], "cpu") == {
        "largest_difference_to_float32": None,
        "spread_of_scores": None,
    }


def test_what_cannot_be_measured_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path / "absent"), "--device", "cpu") == 2
    assert "there is no folder" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert run(monkeypatch, str(tmp_path / "absent")) == 2
        assert "no GPU" in capsys.readouterr().err
