"""``thresher select``: the same bytes as a fresh run with the changed config, from the staging of another one."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.config import load_config
from pipelines.select import reusable
from tests.pipelines.corpora import run, table, write_config, write_corpus
from tests.scorers.judge_server import judge_process

REPOSITORY = Path(__file__).resolve().parents[2]

STAGES: list[Any] = [
    {"language": {"keep": ["en", "de"], "minimum_score": 0.4}},
    {"gopher_quality": {"preset": "thresher-1", "minimum_words": 20, "minimum_stop_words": 1}},
    {"c4_quality": {"minimum_sentences": 1}},
    {"gopher_repetition": {"preset": "thresher-1"}},
    {"length": {"minimum_words": 4}},
    {"near_duplicates": {"threshold": 0.7, "duplication_budget": 0.05}},
    {"column": {"column": "quality", "keep": {"best_fraction": 0.8}}},
    {"length": {"name": "last", "minimum_characters": 10}},
]

CHANGES = [
    ["gopher_quality.minimum_words=50"],
    ["gopher_quality.minimum_words=off"],
    ["language.minimum_score=0.8", "length.minimum_words=30"],
    ["language.keep=[en]"],
    ["gopher_quality.preset=datatrove-0.10"],
    ["gopher_repetition.preset=datatrove-0.10", "gopher_quality.minimum_stop_words=2"],
    ["c4_quality.minimum_line_words=9"],
    ["c4_quality.minimum_sentences=2"],
    ["near_duplicates.threshold=0.5"],
    ["near_duplicates.duplication_budget=0.4"],
    ["near_duplicates.priority=gopher_quality.words", "near_duplicates.duplication_budget=0"],
    ["near_duplicates.max_copies=1", "near_duplicates.budget_unit=characters", "near_duplicates.duplication_budget=1"],
    ["near_duplicates.protect=[books]"],
    ["column.keep={best: 100}"],
    ["column.keep={best_fraction: 0.3, per: language}"],
    ["column.keep={at_least: 0.4}"],
    ["column.keep=off", "last.minimum_characters=300"],
    ["length.minimum_words=60", "length.maximum_words=80"],
    ["language.minimum_score=off", "gopher_quality.maximum_words=80", "near_duplicates.scope=source"],
    ["gopher_quality.minimum_words=9", "column.keep={best: 50, per: source}", "length.minimum_words=1"],
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A config, and the folder of its run."""
    folder = tmp_path_factory.mktemp("finished")
    files = write_corpus(folder / "in", 600)
    config = write_config(
        folder / "c.yaml", files, folder / "run", STAGES, id_column="id", source_column="source", batch_rows=130
    )
    assert run(config) == 0
    return config, folder / "run"


def _select(folder: Path, output: Path, *more: str) -> int:
    return main(["select", str(folder), "--output", str(output), "--direct_num_workers=1", *more])


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
def test_the_same_bytes_as_a_fresh_run(finished: tuple[Path, Path], tmp_path: Path, change: list[str]) -> None:
    config, folder = finished
    sets = [part for one in change for part in ("--set", one)]
    assert run(config, "--output", str(tmp_path / "fresh"), *sets) == 0
    assert _select(folder, tmp_path / "selected", *sets) == 0
    assert (tmp_path / "selected/manifest.json").read_bytes() == (tmp_path / "fresh/manifest.json").read_bytes()
    assert main(["verify", str(tmp_path / "selected")]) == 0


def test_what_is_measured_once_is_taken_over(finished: tuple[Path, Path]) -> None:
    before = load_config(finished[0]).build()

    def kept(*sets: str) -> tuple[str, ...]:
        return reusable(before, load_config(finished[0], sets).build())

    assert kept("near_duplicates.threshold=0.5") == ("language", "gopher_quality", "gopher_repetition", "length")
    assert "gopher_quality" in kept("gopher_quality.minimum_words=5")
    assert "language" in kept("language.minimum_score=0.9")
    assert kept("c4_quality.minimum_line_words=7") == ("language", "gopher_quality")
    assert "gopher_repetition" not in kept("gopher_repetition.preset=datatrove-0.10")


def test_a_selected_run_can_be_selected_from(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder = finished[1]
    assert _select(folder, tmp_path / "one", "--set", "length.minimum_words=30") == 0
    assert _select(tmp_path / "one", tmp_path / "two", "--set", "length.minimum_words=4") == 0
    assert (tmp_path / "two/manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()
    # A finished one is reported again.
    assert _select(tmp_path / "one", tmp_path / "two", "--set", "length.minimum_words=4") == 0


def test_the_input_is_not_read_again(tmp_path: Path) -> None:
    files = write_corpus(tmp_path / "in", 200)
    assert run(write_config(tmp_path / "c.yaml", files, tmp_path / "run", [{"length": {"minimum_words": 9}}])) == 0
    shutil.rmtree(tmp_path / "in")
    assert _select(tmp_path / "run", tmp_path / "new", "--set", "length.minimum_words=70") == 0
    assert 0 < len(table(tmp_path / "new", "curated")) < len(table(tmp_path / "run", "curated"))


def test_refusals(finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished[1]
    cleaned = tmp_path / "cleaned"
    shutil.copytree(folder, cleaned)
    assert main(["clean", str(cleaned)]) == 0
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    random.Random(1).choice(sorted((damaged / "staging/records").iterdir())).unlink()
    for run_folder, options, message in (
        (cleaned, [], "its staging was removed"),
        (damaged, [], "is not complete"),
        (folder, ["--set", "input.max_record_bytes=5"], "is settled when a run begins"),
        (folder, ["--set", "batch_rows=5"], "is settled when a run begins"),
        (folder, ["--set", "length.minimum_word=5"], "minimum_words"),
        (tmp_path / "none", [], "none"),
    ):
        capsys.readouterr()
        assert _select(run_folder, tmp_path / "new", *options) == 2
        assert message in capsys.readouterr().err
    assert _select(folder, folder) == 2


def test_the_best_by_a_judge_without_leave_to_call_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All scores are in the table: no step may ask for a key then."""
    with judge_process("--key", "secret") as server:
        judge = {
            "base_url": server.base_url, "model": "m", "score_table": str(tmp_path / "scores"), "keep": {"best": 5},
            "key_variable": "JUDGE_KEY",
        }  # fmt: skip
        rows = [{"id": str(number), "prompt": "Why?", "response": "because " * (number + 1)} for number in range(30)]
        (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        config = write_config(
            tmp_path / "c.yaml", [str(tmp_path / "in.jsonl")], tmp_path / "run", [{"judge": judge}], id_column="id",
            prompt_column="prompt", response_column="response", batch_rows=10,
        )  # fmt: skip
        monkeypatch.setenv("JUDGE_KEY", "secret")
        assert run(config) == 0
        change = ["--set", "judge.keep={best: 7}"]
        assert run(config, "--output", str(tmp_path / "fresh"), *change) == 0
    monkeypatch.delenv("JUDGE_KEY")
    assert _select(tmp_path / "run", tmp_path / "selected", *change) == 0
    assert (tmp_path / "selected/manifest.json").read_bytes() == (tmp_path / "fresh/manifest.json").read_bytes()


def test_a_selection_that_was_killed_goes_on(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, change = finished[1], ["--set", "gopher_quality.minimum_words=40", "--set", "column.keep={best: 90}"]
    assert _select(folder, tmp_path / "whole", *change) == 0
    killed = tmp_path / "killed"
    for place, count in (("records", 1), ("marks-3", 2)):
        shutil.rmtree(killed, ignore_errors=True)
        command = [sys.executable, "-m", "pipelines.cli", "select", str(folder), "--output", str(killed), *change]
        process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and len(list((killed / "staging" / place).glob("*.arrow"))) < count:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (killed / "manifest.json").exists()
        assert _select(folder, killed, *change) == 0
        assert (killed / "manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()
