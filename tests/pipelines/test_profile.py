"""``thresher run --profile``: what each step takes, by the whole tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

import pipelines.graph
from pipelines.profile import ProfiledDoFn
from tests.pipelines.corpora import run, write_config, write_corpus

STAGES: list[Any] = [{"length": {"minimum_words": 4}}, "exact_duplicates"]


@pytest.mark.parametrize("mode", ["--direct_num_workers=1", "--direct_running_mode=multi_processing"])
def test_steps_say_what_they_take(tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_corpus(tmp_path / "in", 300)
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", STAGES, batch_rows=50)
    options = [mode] if "workers" in mode else [mode, "--direct_num_workers=2"]
    assert run(config, "--profile", *options) == 0
    details = json.loads((tmp_path / "run/run.json").read_text())
    steps = {row["step"]: row for row in details["profile"]["steps"]}
    assert {"ReadItems", "StageBatches", "MarkRecordStage (length)", "Propose (exact_duplicates)"} <= steps.keys()
    # Eight batches of at most 50 of 303 records in three files: row groups and byte ranges are items of their own.
    assert steps["MarkRecordStage (length)"]["elements"] == steps["StageBatches"]["elements"] >= 7
    for row in steps.values():
        assert 0 <= row["processor_seconds"] <= row["seconds"] + 0.01 <= details["seconds"] + 0.01
    busy = sum(row["seconds"] for row in steps.values())
    assert details["profile"]["other_seconds"] == pytest.approx(details["workers"] * details["seconds"] - busy, abs=0.1)
    assert "start, engine, shuffles, waiting" in capsys.readouterr().out


def test_a_second_run_in_one_process_begins_at_nothing(tmp_path: Path) -> None:
    files = write_corpus(tmp_path / "in", 60)
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", STAGES)
    counts = []
    for _ in range(2):
        assert run(config, "--profile", "--overwrite") == 0
        steps = json.loads((tmp_path / "run/run.json").read_text())["profile"]["steps"]
        counts.append({row["step"]: row["elements"] for row in steps})
    assert counts[0] == counts[1]


def test_beam_finds_all_methods_of_a_step_that_it_calls() -> None:
    pending, seen = [ProfiledDoFn], set()
    while pending:
        step = pending.pop()
        pending.extend(step.__subclasses__())
        own = {name for name in vars(beam.DoFn) if callable(getattr(beam.DoFn, name)) and not name.startswith("_")}
        assert own & vars(step).keys() <= set(dir(object.__new__(step))), step
        seen.add(step.__name__)
    assert {"ReadItems", "WriteShard", "Verify"} <= seen
    assert pipelines.graph


def test_a_run_is_not_measured_unless_asked(tmp_path: Path) -> None:
    files = write_corpus(tmp_path / "in", 60)
    assert run(write_config(tmp_path / "c.yaml", files, tmp_path / "run", STAGES)) == 0
    assert "profile" not in json.loads((tmp_path / "run/run.json").read_text())
