"""Hostile inputs for duplicate stages: faults that people who do this job have reported in public."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from tests.pipelines.corpora import report, run, table, write_config

Case = Callable[[str, list[Any]], Path]


@pytest.fixture
def case(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Run stages over a file of the hostile cases, in a copy of its folder."""

    def run_case(file: str, stages: list[Any]) -> Path:
        folder = tmp_path / file.split("/")[0]
        if not (shared / "cases" / folder.name).is_dir():
            pytest.skip(f"no such case: {folder.name}")
        if not folder.exists():
            shutil.copytree(shared / "cases" / folder.name, folder, copy_function=shutil.copyfile)
            if (folder / "make_input.py").exists():
                subprocess.run([sys.executable, "make_input.py"], cwd=folder, check=True, capture_output=True)
        monkeypatch.chdir(folder)
        output = folder / f"out-{len(list(folder.glob('out-*')))}"
        config = write_config(folder / "config.yaml", [file.split("/")[1]], output, stages, id_column="id")
        assert run(config) == 0
        assert main(["verify", str(output)]) == 0
        return output

    return run_case


def survivors(folder: Path, stage: str = "near_duplicates") -> dict[str, str]:
    """Return for each record that left by a stage the one that it is a duplicate of."""
    return {row["record_id"]: row["related_id"] for row in table(folder, "ledger") if row["stage"] == stage}


def test_d01_shorter_than_a_shingle(case: Case) -> None:
    out = case("d01-shorter-than-a-shingle/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    clusters = {frozenset({name, leader}) for name, leader in left.items()}
    assert len(left) == 4
    for group, count in (({"a1", "a3", "a4"}, 2), ({"a5", "a7"}, 1), ({"b1", "b3"}, 1)):
        assert sum(cluster <= group for cluster in clusters) == count
    assert {row["record_id"] for row in table(out, "ledger") if row["rule"] == "empty_text"} == {"c1", "c2", "c3"}
    assert report(out)["records"]["kept"] == 15


def test_d02_text_that_is_not_latin(case: Case) -> None:
    out = case("d02-non-latin-is-not-empty/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    assert len(left) == 4
    assert all({name, leader} == {name.removesuffix("_copy"), name.removesuffix("_copy") + "_copy"}
               for name, leader in left.items())  # fmt: skip
    assert {row["value"] for row in table(out, "ledger")} == {1.0}
    assert report(out)["records"]["kept"] == 9
    prefix = case("d02-non-latin-is-not-empty/prefix.jsonl", ["near_duplicates"])
    assert report(prefix)["records"]["kept"] == 2


def test_d04_pairs_at_the_threshold(case: Case) -> None:
    thresholds = {"at_81": 0.81, "at_80": 0.8, "at_78": 0.78}
    stages = [{"near_duplicates": {"name": name, "threshold": value}} for name, value in thresholds.items()]
    out = case("d04-pairs-at-the-threshold/input.jsonl", stages)
    values: dict[str, Counter[str]] = {name: Counter() for name in thresholds}
    for row in table(out, "ledger"):
        assert {row["record_id"], row["related_id"]} == {f"{row['record_id'][:-1]}{side}" for side in "ab"}
        values[row["stage"]][f"{row['record_id'][1]}: {row['value']:.6f}"] += 1
    assert values["at_81"].keys() == {"0: 0.935484", "1: 0.818182"}
    assert values["at_80"].keys() - {"1: 0.818182"} == {"2: 0.800000"}
    assert values["at_78"].keys() - {"1: 0.818182", "2: 0.800000"} == {"3: 0.782178"}
    assert values["at_81"]["0: 0.935484"] == 10
    for name, level in (("at_81", "1: 0.818182"), ("at_80", "2: 0.800000"), ("at_78", "3: 0.782178")):
        assert values[name][level] >= 9


def test_d05_chains(case: Case) -> None:
    out = case("d05-chain/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    assert {name: leader for name, leader in left.items() if name[:2] != "g3"} == {
        "g1a": "g1b",
        "g1c": "g1b",
        "g2b": "g2a",
    }
    kept = {row["record_id"]: row for row in table(out, "curated")}
    third = {name for name in kept if name.startswith("g3")}
    assert "g3a" in third
    assert 5 <= len(third) <= 6
    values = json.loads(Path("values.json").read_text())
    similar = {frozenset({pair["a"], pair["b"]}) for pair in values if pair["jaccard"] >= 0.8}
    assert all(frozenset({name, leader}) in similar and leader in kept for name, leader in left.items())
    assert not any(pair <= kept.keys() for pair in similar)
    assert (kept["g1b"]["cluster_size"], kept["g2a"]["cluster_size"], kept["g2c"]["cluster_size"]) == (3, 2, 1)
    assert len({row["cluster_id"] for row in kept.values()}) == len(kept)


def test_d07_a_hot_cluster(case: Case) -> None:
    # Leaders and ten copies, then leaders only.
    stages = [{"near_duplicates": {"name": "twice", "duplication_budget": 1.0}}, "near_duplicates"]
    out = case("d07-hot-cluster/input.jsonl", stages)
    found = report(out)["duplicates"]["twice"]
    assert (found["leaders"], found["copies_kept"], found["limit"], found["clusters"]) == (10, 10, 10, 7)
    sizes = Counter(row["cluster_id"] for row in table(out, "clusters") if row["stage"] == "twice")
    assert sorted(sizes.values()) == [50, 51, 52, 101, 257, 2000, 10001]
    assert found["pairs"]["verified"] < 5_000_000
    kept = sorted(row["record_id"].rsplit("-", 1)[0] for row in table(out, "curated"))
    assert kept == ["hot", "s101", "s257", "s50", "s51", "s52", "same", "single", "single", "single"]
    assert "hot-lead" in {row["record_id"] for row in table(out, "curated")}
    assert report(out)["records"] == {"read": 12515, "kept": 10, "dropped": 12505, "dead": 0}


def test_d10_ids_of_the_user(case: Case) -> None:
    out = case("d10-ids-of-the-user/input.jsonl", [{"near_duplicates": {"threshold": 0.6}}])
    kept = {row["record_id"]: row for row in table(out, "curated")}
    assert kept.keys() - {"B#1", "B#2"} == {"doc/A 2", "Cü1", "0007"}
    left = {row["record_id"]: (row["related_id"], row["value"]) for row in table(out, "ledger")}
    assert left["doc/A 1"] == left["doc/A 3"] == ("doc/A 2", 27 / 28)
    assert {row["value"] for row in table(out, "ledger")} == {27 / 28, 11 / 16}
    members: dict[str, set[str]] = {}
    for row in table(out, "clusters"):
        members.setdefault(row["cluster_id"], set()).add(row["record_id"])
    assert sorted(map(sorted, members.values())) == [["B#1", "B#2"], ["doc/A 1", "doc/A 2", "doc/A 3"]]
    assert {kept[name]["cluster_size"] for name in ("doc/A 2", "Cü1", "0007")} == {3, 1}
    assert members[kept["doc/A 2"]["cluster_id"]] == {"doc/A 1", "doc/A 2", "doc/A 3"}
