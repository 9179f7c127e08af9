"""Readers fed with anything: every answer is records, dead letters, or the one error that a user gets to see."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.malformed_lines import KINDS
from corpus.errors import UsageError
from corpus.inputs import InputConfig
from corpus.planning import plan_input
from corpus.readers import read_item
from corpus.yaml_reader import read_yaml
from filters.suites import benchmark_files, load_items, read_suite
from pipelines.config import load_config
from tests.trust.fuzzing import TARGETS, mutated

REPOSITORY = Path(__file__).parent.parent.parent
SECONDS = {"parquet": 6, "fasttext": 4, "gz": 1, "zst": 1}
FOLDER_IS_SHARED = [HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_binary_files(target: str) -> None:
    """In a process of its own, because what is looked for is the end of the process."""
    command = [sys.executable, "-m", "tests.trust.fuzzing", target, "0", str(SECONDS[target])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-2000:]
    number, ends = done.stdout.split(" ", 1)
    assert int(number) >= 50, done.stdout
    assert "short of memory" not in ends


def refusal(function: Callable[..., object], *arguments: Any) -> str | None:
    """What a user is told who gives something that cannot be used, None where it can."""
    try:
        function(*arguments)
    except UsageError as error:
        return str(error)
    return None


def read(path: Path) -> tuple[list[int], list[int | None]]:
    """Positions of the records and of the dead letters of a file."""
    config = InputConfig(files=[str(path)])
    records: list[int] = []
    dead: list[int | None] = []
    for item in plan_input(config).items:
        for batch in read_item(item, config, 7, 1 << 20):
            batch.records.validate(full=True)
            records += batch.records.column("position").to_pylist()
            dead += batch.dead.column("position").to_pylist()
    return records, dead


def lines_of(data: bytes) -> list[int]:
    """Offsets of the lines that are no blank ones."""
    offsets, offset = [], 0
    for number, line in enumerate(data.split(b"\n")):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        if text and not text.isspace():
            offsets.append(offset)
        offset += len(line) + 1
    return offsets


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
PIECES = st.one_of(
    st.binary(max_size=12),
    st.dictionaries(st.sampled_from(["text", "id", "a", ""]), VALUES, max_size=3).map(
        lambda one: json.dumps(one).encode()
    ),
    VALUES.map(lambda one: json.dumps(one, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.builds(
        lambda kind, seed: KINDS[kind][1](random.Random(seed), f"some text {seed}"),
        st.sampled_from([kind for kind in KINDS if kind != "UTF-16"]),
        st.integers(0, 9),
    ),
    st.sampled_from([b"\n", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf", b"\x00", b'{"text": "good"}\n']),
)


@settings(max_examples=300, suppress_health_check=FOLDER_IS_SHARED)
@given(pieces=st.lists(PIECES, max_size=12), seed=st.none() | st.integers(0, 999))
def test_every_line_is_a_record_or_a_dead_letter(tmp_path: Path, pieces: list[bytes], seed: int | None) -> None:
    data = b"".join(pieces)
    if seed is not None and data:
        data = mutated(data, random.Random(seed))
    expected = lines_of(data)
    (tmp_path / "x.jsonl").write_bytes(data)
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        return
    records, dead = read(tmp_path / "x.jsonl")
    assert sorted([*records, *dead]) == expected
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(data))
    assert read(tmp_path / "x.jsonl.gz") == (records, dead)


CONFIG = """\
input: {files: [corpus/*.parquet], id_column: id, source_column: source, max_errors: 10}
output: runs/web
stages:
  - language: {keep: [en], minimum_score: 0.65}
  - gopher_repetition
  - gopher_quality: {preset: datatrove-0.10, minimum_words: 1_000}
  - near_duplicates: &copies
      {threshold: 0.8, duplication_budget: {by: language, default: 0, values: {ko: 0.5}}, priority: [length]}
  - near_duplicates: {name: again, <<: *copies}
  - column: {column: quality, keep: {best_fraction: 1e-1}}
"""
# Pieces of YAML that mean something.
TOKENS = st.sampled_from(
    [
        *("{", "}", "[", "]", ":", " ", "\n", "  - ", "- ", "&a ", "*a", "<<: ", "!!python/object:os.system "),
        *("!x ", "? ", "|", ">", "---\n", "...\n", "%YAML 1.1\n", "#", "'", '"', "off", "null", "~", "yes"),
        *("1e-5", "0x1F", ".inf", "2024-01-01", "\t", "\x00", "\ufeff", "\u2028", "\U0001f600", "\\x"),
        *("stages: ", "language", "input: ", "a" * 200),
    ]
)  # fmt: skip


@settings(max_examples=250, suppress_health_check=FOLDER_IS_SHARED)
@given(data=st.data())
def test_any_config_is_read_or_refused_with_its_name(tmp_path: Path, data: st.DataObject) -> None:
    text = CONFIG
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + "".join(data.draw(st.lists(TOKENS, max_size=3))) + text[end:]
    raw = text.encode()
    if data.draw(st.booleans()):
        raw = mutated(raw, random.Random(data.draw(st.integers(0, 999))))
    path = tmp_path / "c.yaml"
    path.write_bytes(raw)
    said = refusal(load_config, path)
    assert said is None or "c.yaml" in said


@pytest.mark.parametrize("depth", [10, 1000, 100_000])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a [*a, "])
def test_nesting_of_any_depth_is_refused(opening: str, depth: int) -> None:
    said = refusal(read_yaml, opening * depth, "c.yaml")
    assert said is None or "c.yaml" in said
    assert said is not None or (depth == 10 and opening in "- ? ")


def test_aliases_that_grow_are_refused() -> None:
    text = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    said = refusal(read_yaml, text, "c.yaml")
    assert said is not None
    assert said.startswith("c.yaml")


ROWS = [
    {"id": f"q{number}", "question": f'What, "is" {number} and\nits half?', "answer": "a", "choices": ["a", "b;c"]}
    for number in range(4)
]


def suite_file(kind: str) -> bytes:
    """Rows of a benchmark in one of the formats."""
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(ROWS), sink)
        return sink.getvalue().to_pybytes()
    if kind == "json":
        return json.dumps(ROWS).encode()
    if kind in ("jsonl", "jsonl.gz"):
        lines = "\n".join(map(json.dumps, ROWS)).encode()
        return gzip.compress(lines) if kind.endswith("gz") else lines
    delimiter = {"csv": ",", "tsv": "\t"}[kind]
    quoted = [['"' + str(value).replace('"', '""') + '"' for value in row.values()] for row in ROWS]
    return "\r\n".join(map(delimiter.join, [list(ROWS[0]), *quoted])).encode()


def items_of(suite: Path) -> object:
    """Items of all benchmarks of a suite."""
    return load_items([benchmark_files(each) for each in read_suite(suite).benchmarks])


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "csv", "tsv", "parquet"])
@settings(max_examples=120, suppress_health_check=FOLDER_IS_SHARED)
@given(seed=st.integers(0, 2**32))
def test_mutated_benchmark_files(tmp_path: Path, kind: str, seed: int) -> None:
    name = f"items.{kind}"
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"benchmarks: [{{name: b, files: {name}, id: id, question: question, answer: answer}}]")
    (tmp_path / name).write_bytes(mutated(suite_file(kind), random.Random(seed)))
    said = refusal(items_of, suite)
    assert said is None or name in said


@settings(max_examples=100, suppress_health_check=FOLDER_IS_SHARED)
@given(seed=st.integers(0, 2**32))
def test_mutated_suites(tmp_path: Path, seed: int) -> None:
    suite = tmp_path / "suite.yaml"
    text = (
        "benchmarks:\n- {name: b, files: items.jsonl, id: id, question: question, choices: choices, answer: answer}\n"
    )
    suite.write_bytes(mutated(text.encode() * 2, random.Random(seed)))
    (tmp_path / "items.jsonl").write_bytes(suite_file("jsonl"))
    said = refusal(items_of, suite)
    assert said is None or "suite.yaml" in said or "items.jsonl" in said
