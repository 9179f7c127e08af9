"""Keep the best records: the whole tool against pandas-like Python, with ties, NaN, groups and policies."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import xxhash

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
