"""Whole runs with a reward model and classifiers: survivors are scored, and a second run takes the scores it finds."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fasttext
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.errors import ThresherError
from corpus.fasttext import default_model_path
from pipelines import run as run_config
from pipelines.config import load_config
from tests.pipelines.corpora import table, write_config

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("the extra models is not installed", allow_module_level=True)

import transformers

from tests.scorers import small_models

PROMPTS, RESPONSES = small_models.texts(30), small_models.texts(90)[60:]


def config_of(folder: Path, model: Path, name: str = "run", **settings: Any) -> Path:
    rows = [
        {"id": f"p{number}", "prompt": prompt, "response": response}
        for number, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True))
    ]
    rows.append(rows[3] | {"id": "z copies p3"})
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = {"model": str(model), "score_table": str(folder / "scores"), "device": "cpu", **settings}
    english = {"model": default_model_path(), "label": "en", "score_table": "off"}
    return write_config(
        folder / f"{name}.yaml", [str(file)], folder / name,
        ["exact_duplicates", {"reward_model": reward}, {"classifier": english}], id_column="id",
        prompt_column="prompt", response_column="response", batch_rows=10,
    )  # fmt: skip


def test_a_run_and_another_without_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_models.bert(tmp_path / "model", limit=64)
    scores = {
        f"p{number}": round(float(score), 4)
        for number, score in enumerate(
            small_models.plain_outputs(model, *zip(PROMPTS, RESPONSES, strict=True), truncation=True)[:, 0]
        )
    }
    limit = sorted(scores.values())[12]
    config = config_of(tmp_path, model, keep={"at_least": limit})
    run_config(load_config(config))
    kept = {row["id"]: row for row in table(tmp_path / "run", "curated")}
    assert set(kept) == {name for name, score in scores.items() if score >= limit}
    reference = fasttext.load_model(default_model_path())
    for name, row in kept.items():
        assert row["score_reward_model"] == pytest.approx(scores[name], abs=2e-4)
        names, values = reference.predict([row["response"]], k=-1)
        english = dict(zip(names[0], values[0], strict=True)).get("__label__en", 0.0)
        assert row["score_classifier"] == pytest.approx(min(1.0, float(english)), abs=2e-4)
    signals = {row["record_id"]: row for row in table(tmp_path / "run", "signals")}
    assert signals["z copies p3"]["reward_model.score"] is None
    tokens = {name: row["reward_model.tokens"] for name, row in signals.items() if row["reward_model.tokens"]}
    assert len(tokens) == 30
    for name, count in tokens.items():
        assert signals[name]["reward_model.tokens_cut"] == max(0, count - 64)
    assert any(count > 64 for count in tokens.values())
    rules = {row["record_id"]: row["rule"] for row in table(tmp_path / "run", "ledger")}
    assert rules.pop("z copies p3") == "duplication_budget"
    assert set(rules.values()) == {"keep"}

    def fail(*arguments: Any) -> None:
        raise AssertionError("the model is asked")

    monkeypatch.setattr("scorers.reward_model.RewardModel.score", fail)
    again = config_of(tmp_path, model, "again", keep={"at_least": limit}, batch_tokens=100)
    run_config(load_config(again))
    assert [row["id"] for row in table(tmp_path / "again", "curated")] == [
        row["id"] for row in table(tmp_path / "run", "curated")
    ]


CHAT = "{% for turn in messages %}<{{ turn['role'] }}> {{ turn['content'] }} <|end|>\n{% endfor %}"


def test_chats_are_read_turn_by_turn(tmp_path: Path) -> None:
    """With what stages before cut of the turns, in this pass and in the one before; from Parquet and from JSONL."""
    model = small_models.left_to_right(tmp_path / "model", "qwen2", "left", CHAT)
    chats = []
    for number in range(16):
        words = small_models.texts(4 * 16)[4 * number : 4 * number + 4]
        words[number % 4] += f" ask a{number}@firm.com or 52.1.2.{number} no\n\nyes"
        roles = ("system", "user", "assistant", "user", "assistant") if number % 2 else ("user", "assistant")
        turns = [
            {"role": role, "content": text} for role, text in zip(roles, [*words, RESPONSES[number]], strict=False)
        ]
        # A turn without a text, and one behind the response.
        turns[1:1] = [{"role": "tool", "content": None}] * (number % 3)
        chats.append({"messages": [*turns, {"role": "user", "content": "thanks"}], "id": f"c{number}"})
    pq.write_table(pa.Table.from_pylist(chats[:8]), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats[8:]))
    reward = {"model": str(model), "score_table": "off", "device": "cpu", "input": "chat"}
    stages = [
        {"pii": {"ip_addresses": "off"}}, {"reward_model": {"name": "early", **reward}}, "exact_duplicates",
        {"pii": {"name": "addresses", "emails": "off"}}, {"reward_model": {"name": "late", **reward}},
    ]  # fmt: skip
    files = [str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")]
    config = write_config(
        tmp_path / "run.yaml", files, tmp_path / "run", stages, id_column="id", messages_column="messages"
    )
    run_config(load_config(config))
    rows = {row["id"]: row for row in table(tmp_path / "run", "curated")}
    assert len(rows) == 16
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def wanted(texts: Callable[[str, int], str]) -> list[float]:
        filled = []
        for number, chat in enumerate(chats):
            turns = [turn for turn in chat["messages"][:-1] if turn["content"] is not None]
            edited = [turn | {"content": texts(turn["content"], number)} for turn in turns]
            filled.append((tokenizer.apply_chat_template(edited, tokenize=False),))
        return small_models.plain_outputs(model, *filled)[:, 0].tolist()

    early = wanted(lambda text, number: text.replace(f"a{number}@firm.com", "<EMAIL>"))
    late = wanted(
        lambda text, number: text.replace(f"a{number}@firm.com", "<EMAIL>").replace(f"52.1.2.{number}", "<IP_ADDRESS>")
    )
    assert min(abs(one - other) for one, other in zip(early, late, strict=True)) < max(
        abs(one - other) for one, other in zip(early, late, strict=True)
    )
    for number in range(16):
        row = rows[f"c{number}"]
        assert row["score_early"] == pytest.approx(early[number], abs=2e-4)
        assert row["score_late"] == pytest.approx(late[number], abs=2e-4)


def test_worker_processes_have_a_model_each(tmp_path: Path) -> None:
    model = small_models.bert(tmp_path / "model", limit=256)
    config = config_of(tmp_path, model, keep={"best": 5})
    options = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    run_config(load_config(config), options)
    scores = small_models.plain_outputs(model, *zip(PROMPTS, RESPONSES, strict=True))[:, 0].tolist()
    best = sorted(range(30), key=lambda number: -scores[number])[:5]
    assert {row["id"] for row in table(tmp_path / "run", "curated")} == {f"p{number}" for number in best}


def test_model_that_cannot_be_used_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    model = small_models.bert(tmp_path / "model", labels=2)
    with pytest.raises(ThresherError, match=r"2 outputs: .*say which"):
        run_config(load_config(config_of(tmp_path, model)))
    (model / "model.safetensors").rename(model / "model.bin")
    with pytest.raises(ThresherError, match=r"no file \*.safetensors"):
        run_config(load_config(config_of(tmp_path, model, output=0)))
    assert not (tmp_path / "run" / "curated").exists()
