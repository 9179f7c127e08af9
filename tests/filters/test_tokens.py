"""Tokens as a tokenizer of the user's counts them, as a signal, in limits and in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from corpus import tokenizers as counting
from corpus.errors import UsageError
from corpus.stages import TextBatch
from filters.tokens import Tokens, TokensConfig
from reports.schemas import report_schema
from tests.pipelines.corpora import report, run, table, write_config


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    words.save(str(path))
    return str(path)


def _stage(tokenizer: str, **settings: Any) -> Tokens:
    stage = Tokens(TokensConfig(tokenizer=tokenizer, **settings), "tokens", "text")
    stage.check()
    return stage


def test_counts_of_texts(tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(["a b c", "", None, "one, two", "left before", "x " * 999])
    alive = np.array([True, True, True, True, False, True])
    wanted = [3, 0, 0, 3, 0, 999]
    assert _stage(tokenizer).measure(TextBatch(texts, alive))["tokens"].to_pylist() == wanted
    for size in (1, 3, 1000):
        monkeypatch.setattr(counting, "PIECE_BYTES", size)
        assert _stage(tokenizer).measure(TextBatch(texts, alive))["tokens"].to_pylist() == wanted
    assert _stage(tokenizer).measure(TextBatch(texts[:0], alive[:0]))["tokens"].to_pylist() == []


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    for name in ("none.json", "other.json"):
        with pytest.raises(UsageError, match=rf"{name}: no tokenizer\.json of the package tokenizers"):
            _stage(str(tmp_path / name))


def test_the_report_speaks_of_tokens(tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"r{number}", "text": "word " * (number % 7), "source": f"s{number % 2}"} for number in range(70)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    stages = [{"tokens": {"tokenizer": tokenizer, "minimum_tokens": 2}}, {"length": {"maximum_words": 5}}]
    config = write_config(
        tmp_path / "c.yaml",
        [f"{tmp_path}/rows.jsonl"],
        tmp_path / "run",
        stages,
        id_column="id",
        source_column="source",
    )
    assert run(config) == 0
    assert "tokens: 210 counted by tokens, 140 of them in the records kept (66.7 %)" in capsys.readouterr().out
    found = report(tmp_path / "run")
    jsonschema.validate(found, report_schema())
    assert [(stage.get("tokens_in"), stage.get("tokens_out")) for stage in found["stages"]] == [
        (None, None),
        (210, 200),
        (200, 140),
    ]
    for entry in found["mixture"]["source"]:
        own = [number % 7 for number in range(70) if f"s{number % 2}" == entry["name"]]
        assert entry["tokens_read"] == sum(own)
        assert entry["tokens_kept"] == sum(count for count in own if 2 <= count <= 5)
    signals = {row["record_id"]: row["tokens.tokens"] for row in table(tmp_path / "run", "signals")}
    assert signals["r3"] == 3
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "140 of 210 counted" in page
    assert "Tokens are those that tokens counted." in page
