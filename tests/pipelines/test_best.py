"""Keep the best records: the whole tool against pandas-like Python, with ties, NaN, groups and policies."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from corpus.batch import chunk_key
from pipelines.best import partition_of
from pipelines.whatif_command import whatif
from scorers.column import Column
from scorers.scoring import Scores
from tests.pipelines.corpora import report, run, table, write_config
from tests.pipelines.duplicate_runs import write_rows


def _rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return records with many equal scores, some without one, in groups of which one is null."""
    choose = random.Random(seed)
    rows = []
    for number in range(count):
        quality = choose.choice(
            [None, math.nan, math.inf, *([float(choose.randrange(12)) / 4] * 12), -1.00004, -1.00002]
        )
        text = f"text {choose.randrange(count // 2)} of the corpus"
        group = choose.choice(["a", "b", "c", None])
        rows.append({"id": f"r{number:04d}", "text": text, "group": group, "quality": quality})
    return rows


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> list[str]:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return [str(path)]


def _score(row: dict[str, Any]) -> float | None:
    value = row["quality"]
    return None if value is None or not math.isfinite(value) else round(value, 4)


def _best(rows: list[dict[str, Any]], keep: dict[str, Any]) -> set[str]:
    """Return the ids that stay, by the definition."""
    groups = defaultdict(list)
    for place, row in enumerate(rows):
        if _score(row) is not None:
            groups[row["group"] if "per" in keep else None].append((place, row))
    kept = set()
    for group, members in groups.items():
        named = keep.get("values", {}).get(group)
        if "best" in keep:
            limit = keep["best"] if named is None else named
        else:
            limit = math.floor(Fraction(Decimal(str(keep["best_fraction"] if named is None else named))) * len(members))
        members.sort(key=lambda m: (-_score(m[1]), xxhash.xxh3_128_digest(m[1]["text"].encode()), m[1]["id"]))
        kept |= {row["id"] for _, row in members[: int(limit)]}
    return kept


def _run(folder: Path, entry: list[str], stages: list[Any], output: str = "run", *options: str, **more: Any) -> Path:
    config = write_config(folder / f"{output}.yaml", entry, folder / output, stages, id_column="id", **more)
    assert run(config, *options) == 0
    return folder / output


@pytest.mark.parametrize(
    "keep",
    [
        {"best_fraction": 0.29},
        {"best_fraction": 0.0},
        {"best_fraction": 1.0},
        {"best": 100},
        {"best": 10_000},
        {"best": 30, "per": "group"},
        {"best_fraction": 0.1, "per": "group", "values": {"b": 0.55}},
        {"best": 5, "per": "group", "values": {"c": 0, "a": 200}},
    ],
)
def test_the_best_are_those_of_the_definition(tmp_path: Path, keep: dict[str, Any]) -> None:
    rows = _rows(700, seed=len(str(keep)))
    stages = [{"column": {"column": "quality", "keep": keep}}]
    folder = _run(tmp_path, write_rows(tmp_path / "in", rows), stages, batch_rows=64)
    kept = _best(rows, keep)
    assert {row["record_id"] for row in table(folder, "curated")} == kept
    ledger = {row["record_id"]: row for row in table(folder, "ledger")}
    for row in rows:
        score = _score(row)
        if row["id"] in kept:
            continue
        entry = ledger[row["id"]]
        if score is None:
            reason = "null" if row["quality"] is None else "not_finite"
            assert (entry["stage"], entry["rule"], entry["value"]) == ("column", reason, 0.0)
        else:
            group = [other for other in rows if "per" not in keep or other["group"] == row["group"]]
            staying = [_score(other) for other in group if other["id"] in kept]
            threshold = min(staying) if staying else None  # type: ignore[type-var]
            assert (entry["rule"], entry["value"], entry["threshold"]) == ("keep", score, threshold)


def _least(limits: dict[str, float], group: Any) -> float:
    return limits.get(str(group), 1.5)


def test_limits_of_groups(tmp_path: Path) -> None:
    """By a column of the user's, by the source, and by a signal of a stage before, in one run; then other limits."""
    rows = [row | {"site": f"site {place % 3}", "kind": place % 4} for place, row in enumerate(_rows(300, seed=9))]
    limits = {"a": 2.0, "b": -5.0, "site 1": 2.25, "3": 0.25, "2": 2.75, "unheard of": 1.0}
    columns = {"group": "group", "source": "site", "kind.score": "kind"}
    stages: list[Any] = [{"column": {"name": "kind", "column": "kind"}}]
    for number, per in enumerate(columns):
        keep = {"at_least": 1.5, "per": per, "values": limits}
        stages.append({"column": {"name": f"by_{number}", "column": "quality", "keep": keep, "unscorable": "keep"}})
    folder = _run(tmp_path, write_rows(tmp_path / "in", rows), stages, source_column="site")

    def kept(limits: dict[str, float]) -> set[str]:
        return {
            row["id"]
            for row in rows
            if _score(row) is None or all(_score(row) >= _least(limits, row[column]) for column in columns.values())  # type: ignore[operator]
        }

    assert {row["record_id"] for row in table(folder, "curated")} == kept(limits)
    by_id = {row["id"]: row for row in rows}
    thresholds = defaultdict(set)
    for entry in table(folder, "ledger"):
        row, place = by_id[entry["record_id"]], int(entry["stage"][-1])
        assert entry["threshold"] == _least(limits, row[list(columns.values())[place]])
        thresholds[place].add(entry["threshold"])
    assert thresholds == {0: {1.5, 2.0}, 1: {1.5, 2.25}, 2: {2.75}}
    unseen = [line for line in json.loads((folder / "run.json").read_text())["warnings"] if "unheard of" in line]
    assert len(unseen) == 3
    assert "a, b, site 1, unheard of" not in unseen[0]

    others = limits | {"a": 0.5}
    then = whatif(str(folder), ["by_0.keep.values={a: 0.5, b: -5.0, 'site 1': 2.25}"])["then"]
    assert then["records"]["kept"] == len(kept(others)) != len(kept(limits))
    unknown = whatif(str(folder), ["by_0.keep.per=source"])["then"]
    assert "changes what it measures" in str(unknown)


def test_at_least_and_policies(tmp_path: Path) -> None:
    rows = _rows(300, seed=5)
    entry = write_rows(tmp_path / "in", rows)
    scored = {row["id"] for row in rows if _score(row) is not None}
    high = {row["id"] for row in rows if (_score(row) or 0) >= 1.5}
    for policy, expected in (("drop", high), ("keep", high | ({row["id"] for row in rows} - scored))):
        stages = [{"column": {"column": "quality", "keep": {"at_least": 1.5}, "unscorable": policy}}]
        folder = _run(tmp_path, entry, stages, policy)
        assert {row["record_id"] for row in table(folder, "curated")} == expected
        found = report(folder)["scores"]["column"]
        assert found["scored"] == len(scored)
        assert sum(found["unscorable"].values()) == len(rows) - len(scored)
        curve = {point["at_least"]: point["kept"] for point in found["curve"]}
        assert curve[1.5] == len(high)


def test_an_unscorable_record_keeps_its_place_with_the_best(tmp_path: Path) -> None:
    rows = _rows(300, seed=6)
    stages = [{"column": {"column": "quality", "keep": {"best": 50}, "unscorable": "keep"}}]
    folder = _run(tmp_path, write_rows(tmp_path / "in", rows), stages)
    unscored = {row["id"] for row in rows if _score(row) is None}
    assert {row["record_id"] for row in table(folder, "curated")} == _best(rows, {"best": 50}) | unscored


def test_where_a_group_is_cut_does_not_depend_on_batches(tmp_path: Path) -> None:
    rows = _rows(300, seed=8)
    entry = write_rows(tmp_path / "in", rows)
    stages = [{"column": {"column": "quality", "keep": {"best": 20, "per": "group"}, "unscorable": "keep"}}]
    tables = []
    for size in (300, 2):
        folder = _run(tmp_path, entry, stages, f"b{size}", batch_rows=size)
        tables.append(sorted(table(folder, "signals"), key=lambda row: row["record_id"]))
    assert tables[0] == tables[1]
    scored = {row["id"] for row in rows if _score(row) is not None}
    assert {row["record_id"] for row in tables[0] if row["column.cutoff"] is not None} == scored


@pytest.mark.parametrize("chunks", [1, 3, 8])
@pytest.mark.parametrize("partitions", [1, 7, 64, 1024])
def test_batches_are_spread_over_the_partitions(chunks: int, partitions: int) -> None:
    items = -(-3 * partitions // chunks)
    found = [partition_of(chunk_key(item, chunk), partitions) for item in range(items) for chunk in range(chunks)]
    counts = Counter(found)
    assert set(counts) <= set(range(partitions))
    # Three on average.
    assert max(counts.values()) <= 8


def test_a_column_that_no_record_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"r{number}", "text": f"text {number}", "quality": number} for number in range(30)]
    parquet, lines = write_rows(tmp_path / "in", rows), _write_lines(tmp_path / "a.jsonl", rows)
    best = {"best": 9, "per": "grup"}
    for entry, settings, message in (
        (parquet, {"column": "qualty"}, "stages.column.column"),
        (parquet, {"column": "quality", "keep": best}, "stages.column.keep.per"),
        (lines, {"column": "quality", "keep": best}, "stages.column.keep.per: grup is no signal of a stage before"),
    ):
        capsys.readouterr()
        config = write_config(tmp_path / "c.yaml", entry, tmp_path / "run", [{"column": settings}])
        assert run(config, "--overwrite") == 2
        assert message in capsys.readouterr().err
    for keep in ("off", {"best": 9}):
        folder = _run(tmp_path, lines, [{"column": {"column": "qualty", "keep": keep}}], "run", "--overwrite")
        warnings = json.loads((folder / "run.json").read_text())["warnings"]
        assert "column: no record has a value in qualty, the column that column names" in warnings


def test_a_run_fails_for_an_unscorable_record_that_enters_the_scorer_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"r{number}", "text": f"text {number}", "quality": number} for number in range(20)]
    rows[7] |= {"text": "x", "quality": None}
    entry = write_rows(tmp_path / "in", rows)
    scorer = {"column": {"column": "quality", "unscorable": "fail", "keep": {"best": 5}}}
    folder = _run(tmp_path, entry, [{"length": {"minimum_characters": 3}}, scorer])
    assert {row["record_id"] for row in table(folder, "curated")} == {f"r{number}" for number in range(15, 20)}
    config = write_config(tmp_path / "c.yaml", entry, tmp_path / "other", [scorer], id_column="id")
    assert run(config) == 1
    assert "column: the record r7 has no score (null), and unscorable is fail" in capsys.readouterr().err


def test_nothing_to_choose_from(tmp_path: Path) -> None:
    stages: list[Any] = [
        {"length": {"minimum_characters": 5}},
        {"column": {"column": "quality", "keep": {"best_fraction": 0.5, "per": "group"}}},
        {"column": {"name": "second", "column": "quality", "keep": {"best": 3}, "unscorable": "keep"}},
    ]
    row = {"id": "a", "text": "long enough", "quality": 1.0, "group": "x"}
    for name, rows in (
        ("empty", []),
        ("left", [{**row, "text": "ab"}]),
        ("dead", [{**row, "text": None}]),
        ("unscored", [{**row, "quality": None}, {**row, "quality": True, "id": "b"}]),
    ):
        folder = _run(tmp_path, _write_lines(tmp_path / f"{name}.jsonl", rows), stages, f"run-{name}")
        assert report(folder)["records"] == {
            "read": len(rows), "kept": 0, "dropped": len(rows) * (name != "dead"), "dead": int(name == "dead"),
        }  # fmt: skip
        assert table(folder, "curated") == []


def test_a_batch_that_an_earlier_attempt_staged_counts_as_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge may answer otherwise the second time; the marks that are there decide."""
    choose = random.Random(10)

    def judge(self: Column, batch: Any, chosen: np.ndarray) -> tuple[Scores, None]:
        return Scores(np.array([choose.random() for _ in chosen]), [None] * len(chosen)), None

    monkeypatch.setattr(Column, "find", judge)
    rows = [{"id": f"r{number:03d}", "text": f"text {number}", "quality": 1} for number in range(200)]
    stages = [{"column": {"column": "quality", "keep": {"best": 50}}}]
    folder = _run(tmp_path, write_rows(tmp_path / "in", rows), stages, batch_rows=20)
    (folder / "manifest.json").unlink()
    shutil.rmtree(folder / "staging/done")
    for name in folder.glob("staging/records/*-last.arrow"):
        name.unlink()
    assert run(tmp_path / "run.yaml") == 0
    scores = sorted(((row["column.score"], row["record_id"]) for row in table(folder, "signals")), reverse=True)
    assert {row["record_id"] for row in table(folder, "curated")} == {record for _, record in scores[:50]}


def test_the_same_bytes_for_other_workers_and_stages_behind(tmp_path: Path) -> None:
    rows = _rows(600, seed=7)
    entry = write_rows(tmp_path / "in", rows)
    stages: list[Any] = [
        {"column": {"name": "first", "column": "quality", "keep": {"best_fraction": 0.8}}},
        {"exact_duplicates": {"priority": "first"}},
        {"column": {"name": "second", "column": "quality", "keep": {"best": 120}}},
        {"length": {"minimum_characters": 3}},
    ]
    manifests = []
    for workers in ("1", "2"):
        folder = _run(tmp_path, entry, stages, f"w{workers}", f"--direct_num_workers={workers}", batch_rows=50)
        manifests.append((folder / "manifest.json").read_bytes())
    assert manifests[0] == manifests[1]
    first = _best(rows, {"best_fraction": 0.8})
    survivors: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["id"] in first:
            best = survivors.setdefault(row["text"], row)
            if (-_score(row), row["id"]) < (-_score(best), best["id"]):  # type: ignore[operator]
                survivors[row["text"]] = row
    assert len(table(folder, "curated")) == len(_best(list(survivors.values()), {"best": 120}))
