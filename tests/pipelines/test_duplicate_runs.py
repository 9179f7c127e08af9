"""Duplicate stages under other files, batches, workers and crashes, in hot buckets, and with impossible settings."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dedup.duplicates
import dedup.proposals
import pipelines.duplicate_clusters
import pipelines.duplicates
from dedup.key_files import write_keys
from pipelines.cli import main
from tests.dedup.reference import Record, jaccard
from tests.pipelines.corpora import report, run, table, write_config
from tests.pipelines.duplicate_runs import (
    execute,
    hexdigest,
    mixed_rows,
    words,
)


@pytest.fixture(scope="module")
def mixed() -> list[dict[str, Any]]:
    return mixed_rows()


Result = tuple[list[str], list[str], list[tuple[str, str, float]]]


def result(folder: Path) -> Result:
    """What must be the same whatever the files, batches, workers and partitions: hashes, ids, reasons."""
    curated = table(folder, "curated")
    left = [(row["record_id"], row["related_id"], row["value"]) for row in table(folder, "ledger")]
    return sorted(row["content_hash"] for row in curated), sorted(row["record_id"] for row in curated), sorted(left)


STAGE: dict[str, Any] = {"near_duplicates": {"duplication_budget": 0.1, "threshold": 0.6, "shingle_tokens": 3}}


@pytest.fixture(scope="module")
def plain(mixed: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return execute(tmp_path_factory.mktemp("plain"), mixed, [STAGE])


def test_shuffled_rows_in_other_files_without_ids_and_with(
    mixed: list[dict[str, Any]], plain: Path, tmp_path: Path
) -> None:
    rows = list(mixed)
    random.Random(2).shuffle(rows)
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(5):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows[number::5]]
        (folder / f"{9 - number}-other.jsonl").write_text("".join(lines), encoding="utf-8")
    config = write_config(
        tmp_path / "c.yaml", [str(folder)], tmp_path / "run", [STAGE], id_column="id", source_column="source"
    )
    assert run(config, "--direct_num_workers=2") == 0
    assert result(tmp_path / "run") == result(plain)
    without = write_config(tmp_path / "d.yaml", [str(folder)], tmp_path / "without", [STAGE])
    assert run(without) == 0
    assert result(tmp_path / "without")[0] == result(plain)[0]


def test_five_processes_give_the_same_bytes(mixed: list[dict[str, Any]], plain: Path, tmp_path: Path) -> None:
    options = ("--direct_num_workers=5", "--direct_running_mode=multi_processing")
    out = execute(tmp_path, mixed, [STAGE], *options)
    assert (out / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_other_batches_and_partitions(
    mixed: list[dict[str, Any]], plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup.duplicates, "GROUP_BYTES", 5000)
    out = execute(tmp_path, mixed, [STAGE], batch_rows=7)
    assert result(out) == result(plain)
    # The same edges, though a pair that two batches are home to is compared twice.
    found, expected = (report(folder)["duplicates"]["near_duplicates"] for folder in (out, plain))
    assert found["pairs"].pop("at_threshold") == expected["pairs"].pop("at_threshold") > 50
    assert found.pop("pairs").keys() == expected.pop("pairs").keys()
    assert found == expected


@pytest.mark.parametrize("stage", ["near_duplicates", "exact_duplicates"])
def test_groups_that_would_be_too_large_are_read_from_staging(
    stage: str, mixed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    settings = {"duplication_budget": 0.1, **STAGE.get(stage, {})}
    expected = execute(tmp_path / "inline", mixed, [{stage: settings}])
    monkeypatch.setattr(pipelines.duplicate_clusters, "LARGEST_GROUP", 4000)
    out = execute(tmp_path / "referred", mixed, [{stage: settings}])
    assert (out / "manifest.json").read_bytes() == (expected / "manifest.json").read_bytes()
    sent = [json.loads((folder / "run.json").read_text())["shuffled_bytes"][stage] for folder in (out, expected)]
    assert sent[0] < 0.95 * sent[1]
    # What not even references have room for is refused by name.
    monkeypatch.setattr(pipelines.duplicate_clusters, "LARGEST_GROUP", 40)
    files = [str(path) for path in (tmp_path / "inline/data").glob("*.parquet")]
    assert run(write_config(tmp_path / "c.yaml", files, tmp_path / "refused", [{stage: settings}])) == 1
    message = capsys.readouterr().err
    assert f"{stage}: " in message
    assert "records are in clusters that one process has to resolve together, more than 10;" in message


def test_groups_of_keys_that_would_be_too_large_are_read_from_staging(
    mixed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [{"near_duplicates": {**STAGE["near_duplicates"], "scope": "source"}}]
    expected = execute(tmp_path / "sent", mixed, stages)
    monkeypatch.setattr(pipelines.duplicates, "LARGEST_GROUP", 2000)
    out = execute(tmp_path / "read", mixed, stages)
    assert (out / "manifest.json").read_bytes() == (expected / "manifest.json").read_bytes()
    sent = [
        json.loads((folder / "run.json").read_text())["shuffled_bytes"]["near_duplicates"] for folder in (out, expected)
    ]
    # A reference of 9 bytes for each batch of 40, whose records have up to 17 keys of 22 bytes each.
    assert sent[1] - sent[0] > 0.8 * 17 * 22 * len(mixed)
    assert report(out)["duplicates"]["near_duplicates"]["pairs"]["at_threshold"] > 10


@pytest.mark.parametrize("stage", ["near_duplicates", "exact_duplicates"])
@pytest.mark.parametrize("workers", [1, 2])
def test_keys_that_would_take_much_memory_go_by_files(
    stage: str, workers: int, mixed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [{stage: STAGE.get(stage, {})}]
    expected = execute(tmp_path / "sent", mixed, stages)
    monkeypatch.setattr(dedup.duplicates, "MOST_IN_MEMORY", 0)
    written: list[str] = []
    monkeypatch.setattr(
        pipelines.duplicates,
        "write_keys",
        lambda folder, stage, entries: (written.append(stage), write_keys(folder, stage, entries))[1],
    )
    out = execute(tmp_path / "read", mixed, stages, f"--direct_num_workers={workers}")
    assert len(written) > 1
    assert (out / "manifest.json").read_bytes() == (expected / "manifest.json").read_bytes()
    assert not (out / f"staging/near-{stage}/keys").exists()
    moved = [json.loads((folder / "run.json").read_text())["shuffled_bytes"][stage] for folder in (out, expected)]
    assert moved[1] < moved[0] < 1.2 * moved[1]


def test_groups_of_keys_are_bounded_though_the_plan_expects_few_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first lines, by which the plan reckons, are ten thousand times as long; a thousand others are one template.
    page = " ".join(words(random.Random(5), 60, 10**6))
    texts = [*("long " * 20_000 for _ in range(2)), *map(str, range(4000)), *(f"{page} {n}" for n in range(1000))]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    groups: list[int] = []
    process = pipelines.duplicates.Propose.process

    def watched(self: Any, element: Any, totals: bytes) -> Any:
        values = list(element[1])
        groups.append(sum(map(len, values)))
        return process(self, (element[0], values), totals)

    monkeypatch.setattr(pipelines.duplicates.Propose, "process", watched)
    monkeypatch.setattr(dedup.duplicates, "GROUP_BYTES", 5000)
    monkeypatch.setattr(pipelines.duplicates, "LARGEST_GROUP", 20_000)
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "run", ["near_duplicates"])
    assert run(config) == 0
    # Each of 16 bands has a bucket of a thousand entries of 22 bytes.
    assert len(groups) > 300
    assert max(groups) < 20_000
    found = report(tmp_path / "run")["duplicates"]["near_duplicates"]
    assert (found["leaders"], found["copies_available"]) == (4002, 1000)


def test_an_unfinished_run_goes_on_to_the_same_bytes(mixed: list[dict[str, Any]], plain: Path, tmp_path: Path) -> None:
    # Stopped behind verification, with every other of the files that it staged gone.
    out = execute(tmp_path, mixed, [STAGE])
    (out / "manifest.json").unlink()
    shutil.rmtree(out / "curated")
    shutil.rmtree(out / "staging/marks-2")
    staged = sorted(path for path in (out / "staging/near-near_duplicates").rglob("*") if path.is_file())
    assert {path.parent.name for path in staged} == {"nodes", "signatures", "shingles", "edges"}
    assert len(staged) > 10
    for path in staged[::2]:
        path.unlink()
    # What a crash in the middle of a write would leave.
    staged[1].with_name(f".tmp-0-{staged[1].name}").write_bytes(b"half")
    assert run(tmp_path / "config.yaml") == 0
    assert (out / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_hot_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup.proposals, "SLICE", 600)
    stream = words(random.Random(4), 700, 10**6)
    page = " ".join(words(random.Random(5), 60, 10**6))
    rows = [{"id": f"page {number}", "text": f"{page} {number}", "source": "page"} for number in range(1500)]
    rows += [{"id": f"same {number}", "text": page, "source": "same"} for number in range(700)]
    # Each is similar to ten on either side.
    rows += [
        {"id": f"drift {number}", "text": " ".join(stream[number : number + 100]), "source": "drift"}
        for number in range(400)
    ]
    random.Random(6).shuffle(rows)
    out = execute(tmp_path, rows, [{"near_duplicates": {"max_bucket": 50, "threshold": 0.8}}], batch_rows=500)
    kept = Counter(row["source"] for row in table(out, "curated"))
    # All pages are similar to each other and to their common part; of those at most one pair in a hundred stays.
    assert kept["page"] + kept["same"] == 1
    assert 400 / 21 <= kept["drift"] <= 400 / 5
    texts = {row["id"]: row["text"] for row in rows}
    stays = {row["record_id"] for row in table(out, "curated")}
    ledger = table(out, "ledger")
    assert len(ledger) == len(rows) - len(stays)
    for row in ledger:
        left, right = (
            Record(name, "", 0, texts[name], hexdigest(texts[name])) for name in (row["record_id"], row["related_id"])
        )
        assert row["related_id"] in stays
        assert row["value"] == float(jaccard(left, right, 5)) >= 0.8
    pairs = report(out)["duplicates"]["near_duplicates"]["pairs"]
    distinct = 1500 + 1 + 400
    assert pairs["not_compared"] > 10 * distinct
    assert pairs["verified"] <= 16 * 3 * distinct
    assert pairs["verified"] <= pairs["proposed"] <= 16 * (16 + 256) * distinct


CONFIG_FAULTS = [
    ({"threshold": 0}, ["near_duplicates.threshold", "above 0"]),
    ({"threshold": 1.01}, ["near_duplicates.threshold", "at most 1"]),
    ({"bands": 20, "rows": 6}, ["bands", "rows", "20 x 6", "permutations (112)"]),
    ({"bands": 20}, ["bands", "rows"]),
    ({"rows": 5}, ["bands", "rows"]),
    ({"bands": 0, "rows": 5}, ["bands"]),
    ({"threshold": 0.05, "permutations": 10}, ["catch_probability", "threshold", "permutations"]),
    ({"duplication_budget": -0.1}, ["duplication_budget", "0"]),
    ({"duplication_budget": {"by": "kind", "default": -1}}, ["duplication_budget", "default"]),
    ({"duplication_budget": {"by": "kind", "values": {"x": -1}}}, ["duplication_budget", "values"]),
    ({"duplication_budget": {"default": 1}}, ["duplication_budget", "by"]),
    ({"budget_unit": "tokens", "duplication_budget": 0.5}, ["budget_unit", "tokens", "tokenizer"]),
    ({"budget_unit": "words"}, ["budget_unit", "records"]),
    ({"max_copies": -1}, ["max_copies"]),
    ({"max_bucket": 1}, ["max_bucket"]),
    ({"priority": []}, ["priority"]),
    ({"priority": {"source": []}}, ["priority"]),
    ({"priority": {"sources": ["a"]}}, ["priority", "sources"]),
    ({"scope": "language"}, ["scope", "corpus", "source"]),
    ({"field": "prompt"}, ["field", "text"]),
    ({"priority": "no.signal"}, ["priority", "no.signal"]),
    ({"priority": "gopher_quality.words"}, ["priority", "gopher_quality.words", "comes later", "list it before"]),
    ({"priority": "quality"}, ["priority", "quality", "comes later", "list it before"]),
    ({"priority": "language.label"}, ["priority", "language.label"]),
]


@pytest.mark.parametrize(("settings", "said"), CONFIG_FAULTS, ids=[str(fault[0]) for fault in CONFIG_FAULTS])
def test_config_faults_name_the_fields(
    settings: dict[str, Any], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"text": ["a text"]}), tmp_path / "a.parquet")
    scorer = {"column": {"name": "quality", "column": "text"}}
    stages = ["language", {"near_duplicates": settings}, "gopher_quality", scorer]
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/a.parquet"], tmp_path / "run", stages)
    # What a priority refers to is looked up when the stages are built.
    signals = isinstance(settings.get("priority"), str)
    for command in ("run",) if signals else ("validate", "run"):
        assert main([command, str(config)]) == 2, command
        message = capsys.readouterr().err
        assert "near_duplicates" in message
        assert not [part for part in said if part not in message], message
        assert "Traceback" not in message
    assert not (tmp_path / "run").exists()


def run_faults(folder: Path, stages: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run stages over two records; returns the exit code and what was said."""
    pq.write_table(pa.table({"text": ["a text", "another"], "kind": ["x", None]}), folder / "a.parquet")
    code = run(write_config(folder / "c.yaml", [f"{folder}/a.parquet"], folder / "run", stages))
    return code, capsys.readouterr().err


@pytest.mark.parametrize("stage", ["near_duplicates", "exact_duplicates"])
def test_a_group_column_that_is_not_there(stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [{stage: {"duplication_budget": {"by": "kinds", "default": 0.5}}}]
    code, message = run_faults(tmp_path, stages, capsys)
    assert code == 2, message
    assert f"stages.{stage}.duplication_budget.by: no file has a column kinds; there are: kind, text" in message
    assert not (tmp_path / "run").exists()
    # The fields of objects are seen by reading only, and so are the columns of lines.
    (tmp_path / "a.jsonl").write_text('{"text": "a text"}\n{"text": "another", "kind": "x"}\n')
    config = write_config(tmp_path / "d.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "lines", stages)
    assert run(config) == 2
    message = capsys.readouterr().err
    assert f"stages.{stage}.duplication_budget.by: kinds is no signal of a stage before {stage}" in message
    assert "Traceback" not in message
    # Found behind the first pass: nothing was compared yet.
    assert not (tmp_path / f"lines/staging/near-{stage}/shingles").exists()
    stages[0][stage]["duplication_budget"]["by"] = "kind"
    config = write_config(tmp_path / "d.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "lines", stages)
    assert run(config, "--overwrite") == 0


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 5}'])
def test_a_tokenizer_that_is_none(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    stages = [{"near_duplicates": {"duplication_budget": 0.5, "budget_unit": "tokens", "tokenizer": str(path)}}]
    code, message = run_faults(tmp_path, stages, capsys)
    assert code == 2, message
    assert "tokenizer.json" in message
    assert "Traceback" not in message
