"""Which columns are taken for the texts, and when nothing is guessed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.errors import UsageError
from corpus.text_columns import guess_text_columns


def jsonl(path: Path, *rows: Any) -> str:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": 1, "text": "a"}, {"text_column": "text"}),
        ({"content": "a", "url": "b"}, {"text_column": "content"}),
        ({"prompt": "a", "response": "b"}, {"prompt_column": "prompt", "response_column": "response"}),
        ({"prompt": "a", "completion": "b"}, {"prompt_column": "prompt", "response_column": "completion"}),
        ({"instruction": "a", "output": "b"}, {"prompt_column": "instruction", "response_column": "output"}),
        ({"question": "a", "answer": "b"}, {"prompt_column": "question", "response_column": "answer"}),
        ({"messages": [], "id": 1}, {"messages_column": "messages"}),
    ],
)
def test_usual_names_in_jsonl_and_parquet(row: dict[str, Any], found: dict[str, str], tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row)
    assert guess_text_columns([path]) == found
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    assert guess_text_columns([str(tmp_path / "a.jsonl.gz")]) == found
    pq.write_table(pa.table({name: pa.array(["x"]) for name in row}), tmp_path / "b.parquet")
    assert guess_text_columns([str(tmp_path / "b.parquet")]) == found


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"body": "a"}, "a.jsonl: no column has the usual name of a text; .* the columns are: body"),
        ({"text": "a", "content": "b"}, "several columns may hold the texts; .* the columns are: text, content"),
        ({"text": "a", "prompt": "b", "response": "c"}, "several columns may hold the texts"),
        ({"instruction": "a", "input": "b", "output": "c"}, "no column has the usual name"),
    ],
)
def test_nothing_is_guessed_where_it_is_not_plain(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        guess_text_columns([jsonl(tmp_path / "a.jsonl", row)])


def test_lines_and_files_that_tell_nothing_are_passed_over(tmp_path: Path) -> None:
    first = jsonl(tmp_path / "a.jsonl", "{broken\n", "[1]\n", {}, {"id": 1}, {"id": 2, "content": "x"})
    assert guess_text_columns([first]) == {"text_column": "content"}
    jsonl(tmp_path / "a.jsonl", "{broken\n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"content": ["x"]}), tmp_path / "c.parquet")
    assert guess_text_columns([str(tmp_path)]) == {"text_column": "content"}


def test_a_text_file_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    assert guess_text_columns([str(tmp_path)]) == {"text_column": "text"}
    with pytest.raises(UsageError, match="no such file"):
        guess_text_columns([str(tmp_path / "none.jsonl")])
