"""Twenty thousand lines, half of them malformed in every way of the benchmark: none is lost, none counts twice."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.malformed_lines import KINDS, write_lines
from pipelines.cli import main
from tests.pipelines.corpora import report, run, table, write_config

LINES = 20_000


def test_good_lines_are_kept_and_each_malformed_one_is_a_dead_letter_once(tmp_path: Path) -> None:
    good, bad = write_lines(tmp_path / "lines.jsonl", LINES, 0.5)
    assert set(bad.values()) == set(KINDS)
    assert len(KINDS) >= 25
    config = write_config(
        tmp_path / "c.yaml", [f"{tmp_path}/lines.jsonl"], tmp_path / "run", [], id_column="id", batch_rows=999
    )
    assert run(config) == 0
    assert [row["record_id"] for row in table(tmp_path / "run", "curated")] == good
    letters = table(tmp_path / "run", "dead_letters")
    assert [row["position"] for row in letters] == list(bad)
    found = {(kind, row["error"]) for kind, row in zip(bad.values(), letters, strict=True)}
    assert found == {(kind, error) for kind, (error, _) in KINDS.items()}
    lines = (tmp_path / "lines.jsonl").read_bytes()
    for row in letters:
        assert lines.startswith(row["raw"], row["position"])
        assert row["detail"]
    assert report(tmp_path / "run")["records"] == {"read": LINES, "kept": len(good), "dropped": 0, "dead": len(bad)}
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run/manifest.json").read_text())["inputs"][0]["rows"] == LINES
