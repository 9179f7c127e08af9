"""Clusters that rounds find are those of the forest, whatever the number of partitions."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import dedup.duplicates
from pipelines.cli import main

CHAINS, LINKS, STEP, WORDS = 5, 40, 8, 100


def _corpus(path: Path) -> None:
    """Write chains of texts, each similar to the next one (Jaccard 0.85) and hardly to others, and some copies."""
    source = random.Random(4)
    rows = []
    for chain in range(CHAINS):
        words = [f"w{source.randrange(1 << 30)}" for _ in range(WORDS + STEP * LINKS)]
        rows += [
            {"id": f"{chain}-{link}", "text": " ".join(words[STEP * link : STEP * link + WORDS])}
            for link in range(LINKS)
        ]
    rows += [{"id": f"copy-{row['id']}", "text": row["text"]} for row in rows[::7]]
    source.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(folder: Path, name: str, most: int) -> Path:
    config = folder / f"{name}.yaml"
    config.write_text(
        f"input: {{files: [{folder}/texts.jsonl], id_column: id}}\noutput: {folder}/{name}\nbatch_rows: 16\n"
        f"stages:\n- near_duplicates: {{threshold: 0.8, max_forest_edges: {most}, duplication_budget: 0.1}}\n"
    )
    assert main(["run", str(config), "--direct_num_workers=2"]) == 0
    assert main(["verify", str(folder / name)]) == 0
    return folder / name


def _outputs(run: Path) -> dict[str, bytes]:
    below = ("curated", "ledger", "signals", "clusters")
    files = {path.relative_to(run).as_posix(): path for name in below for path in (run / name).iterdir()}
    return {
        "report.json": (run / "report.json").read_bytes(),
        **{name: path.read_bytes() for name, path in files.items()},
    }


def test_rounds_and_forest_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _corpus(tmp_path / "texts.jsonl")
    whole = _run(tmp_path, "forest", 4_000_000)
    assert not (whole / "staging/near-near_duplicates/components.json").exists()
    report = json.loads((whole / "report.json").read_text())
    assert report["duplicates"]["near_duplicates"]["pairs"]["at_threshold"] >= CHAINS * (LINKS - 1) * 0.95
    expected = _outputs(whole)
    by_rounds = _run(tmp_path, "rounds", 3)
    assert _outputs(by_rounds) == expected
    monkeypatch.setattr(dedup.duplicates, "GROUP_BYTES", 2048)
    many = _run(tmp_path, "partitions", 3)
    found = json.loads((many / "staging/near-near_duplicates/components.json").read_text())
    assert found["partitions"] > 10
    assert found["round"] > 2
    assert _outputs(many) == expected


def test_a_run_goes_on_from_the_last_round(tmp_path: Path) -> None:
    _corpus(tmp_path / "texts.jsonl")
    expected = _outputs(_run(tmp_path, "rounds", 3))
    staged = tmp_path / "rounds/staging/near-near_duplicates"
    (tmp_path / "rounds/manifest.json").unlink()
    (staged / "components.json").unlink()
    last = max(staged.glob("done-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    last.unlink()
    before = (staged / "pairs-0/000000.bin").stat().st_mtime_ns
    assert _outputs(_run(tmp_path, "rounds", 3)) == expected
    assert (staged / "pairs-0/000000.bin").stat().st_mtime_ns == before
