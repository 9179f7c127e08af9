"""The stage ``reward_model``: the model's own scores, whatever the batch, the order, the padding and the thread."""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpus.errors import ThresherError, UsageError
from corpus.stages import TextBatch
from pipelines.config import config_from_mapping
from scorers.reward_model import RewardModel, RewardModelConfig
from scorers.scoring import Pairs, Scores

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("the extra models is not installed", allow_module_level=True)

import torch
import transformers

from scorers import sequence_classifier
from tests.scorers import small_models

PROMPTS, RESPONSES = small_models.texts(40), small_models.texts(110)[70:]
TOLERANCE = 1e-5
CHAT = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Save a model once per kind and options."""
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def make(save: Callable[..., Path], *arguments: Any, **options: Any) -> Path:
        key = f"{save.__name__} {arguments} {sorted(options.items())}"
        if key not in made:
            made[key] = save(folder / f"model-{len(made)}", *arguments, **options)
        return made[key]

    return make


def stage(folder: Path | str, field: str = "both", **settings: Any) -> RewardModel:
    config = RewardModelConfig(model=str(folder), **{"score_table": "off", "device": "cpu"} | settings)
    made = RewardModel(config, "reward_model", field)  # type: ignore[arg-type]
    made.bind([])
    made.check()
    return made


def pairs(prompts: list[str] | None, responses: list[str]) -> Pairs:
    return Pairs(None if prompts is None else pa.array(prompts, pa.string()), pa.array(responses, pa.string()))


def judged(made: RewardModel, prompts: list[str], responses: list[str]) -> dict[str, list[Any]]:
    names = [f"record {number}" for number in range(len(prompts))]
    columns = {"record_id": names, "prompt": prompts, "response": responses}
    records = pa.RecordBatch.from_arrays([pa.array(values, pa.string()) for values in columns.values()], list(columns))
    texts = pa.array([f"{prompt}\n\n{response}" for prompt, response in zip(prompts, responses, strict=True)])
    batch = TextBatch(texts, np.ones(len(prompts), np.bool_), records, field="both")
    found = made.measure(batch)
    assert list(found) == [signal.name for signal in made.signals()]
    return {name: values.to_pylist() for name, values in found.items()}


def assert_close(found: np.ndarray[Any, Any], wanted: torch.Tensor) -> None:
    assert wanted.std() > 0.1, "a test of scores that are all alike shows nothing"
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=TOLERANCE)


KINDS: list[tuple[Callable[..., Path], tuple[str, ...], dict[str, Any], str, str | None]] = [
    (small_models.bert, (), {"padding_side": "right"}, "pair", "right"),
    (small_models.bert, (), {"padding_side": "left"}, "pair", "right"),
    (small_models.left_to_right, ("gpt2", "right"), {}, "text", "right"),
    (small_models.left_to_right, ("gpt2", "left"), {}, "text", "right"),
    (small_models.left_to_right, ("gpt2", "right"), {"padding": False}, "text", None),
    (small_models.left_to_right, ("qwen2", "left"), {}, "text", "right"),
    (small_models.left_to_right, ("xlnet", "right"), {}, "text", "left"),
    (small_models.left_to_right, ("xlnet", "left"), {}, "text", "left"),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, (*kind[1], *kind[2].items(), kind[3]))))
def test_scores_are_those_of_the_model_alone(models: Maker, kind: Any) -> None:
    save, arguments, options, form, padding = kind
    folder = models(save, *arguments, **options)
    inputs: list[tuple[str, ...]] = list(zip(PROMPTS, RESPONSES, strict=True))
    if form == "text":
        inputs = [("\n\n".join(pair),) for pair in inputs]
    wanted = small_models.plain_outputs(folder, *inputs)[:, 0]
    order = random.Random(4).sample(range(len(PROMPTS)), len(PROMPTS))
    # With at most 123 tokens a record of words: batches of one, of 8 and more, and of 64 and more.
    for batch_tokens in (1, 8 * 122, 64 * 122):
        made = stage(folder, input=form, batch_tokens=batch_tokens, max_tokens=1000 if padding == "left" else None)
        assert made.classifier().padding == padding
        assert_close(made.score(pairs(PROMPTS, RESPONSES)).values, wanted)
        shuffled = made.score(pairs([PROMPTS[row] for row in order], [RESPONSES[row] for row in order])).values
        assert_close(shuffled, wanted[order])


def test_another_of_several_outputs(models: Maker) -> None:
    folder = models(small_models.bert, labels=3, id2label={0: "bad", 1: "fair", 2: "good"})
    wanted = small_models.plain_outputs(folder, *zip(PROMPTS, RESPONSES, strict=True))
    for output, column in ((0, 0), (2, 2), ("fair", 1)):
        assert_close(stage(folder, output=output).score(pairs(PROMPTS, RESPONSES)).values, wanted[:, column])


def test_tokenizer_file_that_pads_and_cuts(models: Maker, tmp_path: Path) -> None:
    """Sentence encoders are published with a tokenizer.json that cuts at 128 tokens and pads up to there."""
    folder = tmp_path / "model"
    shutil.copytree(models(small_models.bert), folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 16},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    found = stage(folder).score(pairs(PROMPTS, RESPONSES))
    assert_close(found.values, small_models.plain_outputs(folder, *zip(PROMPTS, RESPONSES, strict=True))[:, 0])
    assert pa.compute.sum(found.more["tokens_cut"]).as_py() == 0


@pytest.mark.parametrize("form", ["<|p|> {prompt} <|end|> <|r|>{response}<|end|>", "chat"])
def test_templates_and_chats(models: Maker, form: str) -> None:
    folder = models(small_models.left_to_right, "qwen2", "left", CHAT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        chat = tokenizer.apply_chat_template(turns, tokenize=False)
        texts.append((chat if form == "chat" else f"<|p|> {prompt} <|end|> <|r|>{response}<|end|>",))
    wanted = small_models.plain_outputs(folder, *texts)[:, 0]
    assert_close(stage(folder, input=form).score(pairs(PROMPTS, RESPONSES)).values, wanted)


def test_fields_inside_a_text_are_no_fields(models: Maker) -> None:
    folder = models(small_models.bert)
    found = stage(folder, input="{prompt} answer {response}").score(pairs(["{response}?"], ["{prompt} {response} {x}"]))
    wanted = small_models.plain_outputs(folder, ("{response}? answer {prompt} {response} {x}",))[0, 0]
    assert found.values[0] == pytest.approx(float(wanted), abs=TOLERANCE)


@pytest.mark.parametrize("case", ["s01-padding-and-batches", "s03-cut-responses"])
def test_cases(shared: Path, case: str) -> None:
    folder = shared / "cases" / case
    records = [json.loads(line) for line in (folder / "input.jsonl").read_text().splitlines()]
    values = json.loads((folder / "values.json").read_text())
    scores = values.get("scores", values)
    for batch_tokens in (1, 100, None):
        for given in (records, records[::-1]):
            made = stage(folder / "model", batch_tokens=batch_tokens)
            found = judged(made, [record["prompt"] for record in given], [record["response"] for record in given])
            by_id = {record["id"]: row for row, record in enumerate(given)}
            for name, score in scores.items():
                assert found["score"][by_id[name]] == pytest.approx(score, abs=1e-4)
                assert found["tokens_cut"][by_id[name]] == 0
            for name, tokens in values.get("tokens", {}).items():
                assert found["tokens"][by_id[name]] == tokens
                assert found["tokens_cut"][by_id[name]] == max(0, tokens - 64)
            if case.startswith("s03"):
                # The same as far as the model can see; and of an answer to a long question something is seen.
                assert found["score"][by_id["t1"]] == found["score"][by_id["t2"]]
                assert found["score"][by_id["t3"]] != found["score"][by_id["t4"]]


def test_what_cannot_be_scored(models: Maker) -> None:
    folder = models(small_models.bert)
    found = judged(stage(folder), ["why", "why", "", "why"], ["", " \u2003\n", "because", "it is " * 180_000])
    assert found["reason"] == ["empty_response", "empty_response", None, None]
    assert found["scored"] == [0, 0, 1, 1]
    assert found["tokens_cut"] == [0, 0, 0, 2 * 180_000 + 4 - 256]
    assert found["score"][:2] == [None, None]
    strict = judged(stage(folder, truncation="off", max_tokens=20), ["why"] * 2, ["it is " * 8, "it is " * 9])
    assert strict["reason"] == [None, "too_long"]
    assert strict["tokens"] == [20, 22]


def test_cut_responses_leave_something_to_score(models: Maker) -> None:
    folder = models(small_models.bert)
    found = judged(stage(folder, truncation="response", max_tokens=20), ["why " * 40, "why"], ["it is", "it is " * 30])
    assert found["reason"] == ["too_long", None]
    assert found["tokens_cut"] == [0, 44]


def test_model_that_gives_no_number(models: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models(small_models.bert), folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[small_models.word_tokenizer().vocab["red"]] = torch.nan
    model.save_pretrained(folder)
    found = judged(stage(folder), ["why", "why"], ["red", "blue"])
    assert found["reason"] == ["not_finite", None]
    assert found["score"][0] is None
    with pytest.raises(ThresherError, match=r"record 0 has no score \(not_finite\)"):
        judged(stage(folder, unscorable="fail"), ["why", "why"], ["red", "blue"])


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")])
def test_out_of_memory_halves_the_batch(models: Maker, error: Exception) -> None:
    folder = models(small_models.bert)
    wanted = small_models.plain_outputs(folder, *zip(PROMPTS, RESPONSES, strict=True))[:, 0]
    made = stage(folder, batch_tokens=5000)
    classifier = made.classifier()
    longest = max(made.score(pairs(PROMPTS, RESPONSES)).more["tokens"].to_pylist())
    room = 300

    def fill(module: Any, arguments: Any, inputs: Any) -> None:
        if inputs["input_ids"].numel() > room:
            raise error

    classifier.batch_tokens = 5000
    with classifier._model.register_forward_pre_hook(fill, with_kwargs=True):
        found = made.score(pairs(PROMPTS, RESPONSES))
        assert_close(found.values, wanted)
        assert longest <= classifier.batch_tokens <= room
        room = 30
        found = made.score(pairs(PROMPTS, RESPONSES))
    tokens = found.more["tokens"].to_pylist()
    assert found.reasons == ["out_of_memory" if count > room else None for count in tokens]
    assert found.lasting is not None
    assert found.lasting.tolist() == [count <= room for count in tokens]
    assert np.isfinite(found.values).tolist() == [count <= room for count in tokens]


def test_other_errors_of_the_model_are_not_taken_for_memory(models: Maker) -> None:
    made = stage(models(small_models.bert), batch_tokens=5001)

    def fail(module: Any, arguments: Any) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    with made.classifier()._model.register_forward_pre_hook(fail), pytest.raises(RuntimeError, match="shapes"):
        made.score(pairs(["why"], ["so"]))


def test_threads_share_one_model(models: Maker) -> None:
    folder = models(small_models.bert)
    made = [stage(folder, batch_tokens=600) for _ in range(4)]
    alone = made[0].score(pairs(PROMPTS, RESPONSES)).values
    with ThreadPoolExecutor(4) as pool:
        assert len({id(classifier) for classifier in pool.map(RewardModel.classifier, made)}) == 1
        found = list(pool.map(lambda one: one.score(pairs(PROMPTS, RESPONSES)).values, made))
    for values in found:
        np.testing.assert_array_equal(values, alone)


def test_many_stretches(models: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models(small_models.bert)
    wanted = stage(folder).score(pairs(PROMPTS, RESPONSES))
    monkeypatch.setattr(sequence_classifier, "STRETCH_CHARACTERS", 500)
    found = stage(folder).score(pairs(PROMPTS, RESPONSES))
    np.testing.assert_allclose(found.values, wanted.values, atol=TOLERANCE)
    assert found.more["tokens"].equals(wanted.more["tokens"])


def test_lower_precision_keeps_the_order_of_what_is_apart(models: Maker) -> None:
    folder = models(small_models.bert)
    exact = stage(folder).score(pairs(PROMPTS, RESPONSES)).values
    for dtype, most in (("bfloat16", 0.1), ("float16", 0.01)):
        found = stage(folder, dtype=dtype).score(pairs(PROMPTS, RESPONSES)).values
        assert 0 < np.abs(found - exact).max() < most


def test_auto_dtype_is_that_of_the_model(models: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models(small_models.bert), folder)
    for stored, used in ((torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(models(small_models.bert), dtype=stored)
        model.save_pretrained(folder)
        sequence_classifier._MODELS.clear()
        assert next(stage(folder).classifier()._model.parameters()).dtype == used


# The table of scores, and what a score depends on


def test_second_run_asks_no_model(models: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models(small_models.bert)
    table = str(tmp_path / "scores")
    first = judged(stage(folder, score_table=table), PROMPTS, RESPONSES)

    def fail(self: RewardModel, pairs: Pairs) -> Scores:
        raise AssertionError("the model is asked")

    monkeypatch.setattr(RewardModel, "score", fail)
    again = stage(folder, score_table=table, device="auto", batch_tokens=7)
    assert judged(again, PROMPTS[::-1], RESPONSES[::-1]) == {name: values[::-1] for name, values in first.items()}
    with pytest.raises(AssertionError, match="the model is asked"):
        judged(again, ["another"], ["text"])


def test_identity_is_all_that_a_score_depends_on(models: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models(small_models.bert), folder)
    before = stage(folder).identity()
    assert stage(folder, batch_tokens=3, device="auto", keep={"at_least": 1.0}).identity() == before
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert stage(copy).identity() == before
    (copy / "README.md").write_text("read me")
    assert stage(copy).identity() == before
    others: list[dict[str, Any]] = [
        {"dtype": "float16"},
        {"input": "text"},
        {"max_tokens": 100},
        {"truncation": "prompt"},
        {"truncation_side": "left"},
        {"output": 0},
    ]
    found = [stage(folder, **settings).identity() for settings in others]
    tokenizer = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"truncation_side": "left"}))
    found.append(stage(copy).identity())
    small_models.bert(copy, hidden_dropout_prob=0.2)
    found.append(stage(copy).identity())
    assert len({json.dumps(identity) for identity in [before, *found]}) == len(found) + 1


def test_pinned_model_of_the_hub_needs_no_download_to_be_known() -> None:
    commit = "c355404efa9ad2ad069f3a197cae0523c14244fc"
    name = "OpenAssistant/reward-model-deberta-v3-large-v2"
    assert stage(name, revision=commit).fingerprint() == {"model": f"{name}@{commit}"}


def test_stage_travels_to_workers(models: Maker) -> None:
    made = stage(models(small_models.bert))
    wanted = made.score(pairs(PROMPTS, RESPONSES)).values
    copy = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copy.score(pairs(PROMPTS, RESPONSES)).values, wanted)
    assert not made.accelerator
    assert RewardModel(RewardModelConfig(model="x", device="cuda"), "r", "both").accelerator


def test_processes_share_the_cores(models: Maker) -> None:
    program = (
        "import sys, torch; from scorers.sequence_classifier import _share_cores; before = torch.get_num_threads(); "
        "print(flush=True); sys.stdin.readline(); _share_cores(); print(before, torch.get_num_threads(), flush=True)"
    )
    started = [
        subprocess.Popen(
            ["env", "-u", "OMP_NUM_THREADS", sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    found = [None, None]
    for number, process in enumerate(started):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        found[number] = process.stdout.readline().split()
    for process in started:
        process.communicate()
    for before, after in found:  # type: ignore[misc]
        assert int(after) == max(1, int(before) // 2)


# Models and settings that cannot be used


def copied(models: Maker, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(models(small_models.bert), folder)
    return folder


def refused(folder: Path | str, **settings: Any) -> str:
    """The message of a model that is refused before anything is loaded, or at the latest then."""

    def use() -> None:
        made = stage(folder, **settings)
        made.fingerprint()
        made.load()

    with pytest.raises(UsageError) as found:
        use()
    assert "stages.reward_model" in str(found.value) or str(folder) in str(found.value)
    return str(found.value)


def test_pickles_are_refused(models: Maker, tmp_path: Path) -> None:
    folder = copied(models, tmp_path)
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder)
    torch.save({}, folder / "pytorch_model.bin")
    message = refused(folder)
    assert "pytorch_model.bin, which can run code when loaded" in message
    assert "save_pretrained" in message


def test_code_of_a_model_is_refused(models: Maker, tmp_path: Path) -> None:
    folder = copied(models, tmp_path)
    code = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(code)!r}, 'w')\n")
    small_models.change_config(folder, auto_map={"AutoModelForSequenceClassification": "modeling.Model"})
    assert "never run" in refused(folder)
    small_models.change_config(folder, auto_map={"AutoConfig": "modeling.Config"}, model_type="something_new")
    assert "never run" in refused(folder)
    assert not code.exists()


def test_damaged_folders(models: Maker, tmp_path: Path) -> None:
    folder = copied(models, tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(folder / f"{name}.away")
    assert "no tokenizer" in refused(folder)
    (folder / "tokenizer.json.away").rename(folder / "tokenizer.json")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:1000])
    assert "cannot be loaded" in refused(folder)
    (folder / "model.safetensors").write_bytes(weights)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config[:50])
    assert "cannot be read as JSON" in refused(folder)
    (folder / "config.json").write_text("[]")
    assert "no JSON object" in refused(folder)
    (folder / "config.json").unlink()
    assert "config.json is missing" in refused(folder)


def test_model_without_a_head(models: Maker, tmp_path: Path) -> None:
    folder = copied(models, tmp_path)
    model = transformers.BertModel.from_pretrained(folder)
    model.save_pretrained(folder)
    small_models.change_config(folder, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    message = refused(folder)
    assert "classifier.weight" in message
    assert "random" in message


def test_wrong_outputs(models: Maker) -> None:
    three = models(small_models.bert, labels=3, id2label={0: "bad", 1: "fair", 2: "good"})
    assert "3 outputs: 0 (bad), 1 (fair), 2 (good); say which" in refused(three)
    assert "there is no output 3" in refused(three, output=3)
    assert "there is no output 'fine'" in refused(three, output="fine")
    assert "has 1 output: 0 (LABEL_0)" in refused(models(small_models.bert), output=1)


def test_settings_that_do_not_fit(models: Maker) -> None:
    folder = models(small_models.bert)
    assert "at most 256 tokens" in refused(folder, max_tokens=257)
    assert "no chat template" in refused(folder, input="chat")
    assert "field: both" in refused(folder, field="response", input="pair")
    assert "field: both" in refused(folder, field="response", input="{prompt} {response}")
    assert "revisions are of the hub" in refused(folder, revision="main")
    assert "is a file" in refused(folder / "config.json")
    assert "there is no folder /nowhere" in refused("/nowhere/at all")
    assert "no revision is given" in refused("owner/name")
    assert "the revision main may come to mean another one" in refused("owner/name", revision="main")
    with pytest.raises(ValueError, match="template with"):
        RewardModelConfig(model=str(folder), input="sentence")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_absent(models: Maker) -> None:
    assert "device: found cuda, and PyTorch sees no GPU" in refused(models(small_models.bert), device="cuda")


def test_a_folder_without_a_model_is_told_before_a_run(tmp_path: Path) -> None:
    mapping = {
        "input": {"files": ["x.jsonl"], "prompt_column": "p", "response_column": "r"},
        "stages": [{"reward_model": {"model": str(tmp_path)}}],
    }
    with pytest.raises(UsageError, match=f"^config: {tmp_path}: no model, for config.json is missing"):
        config_from_mapping(mapping).build()


def test_missing_packages_are_told_at_once(models: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models(small_models.bert)
    config = config_from_mapping(
        {
            "input": {"files": ["x.jsonl"], "prompt_column": "p", "response_column": "r"},
            "stages": [{"reward_model": {"model": str(folder)}}],
        }
    )
    config.build()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    with pytest.raises(UsageError, match=r"stages.reward_model: .*torch.* pip install 'thresher\[models\]'"):
        config.build()
