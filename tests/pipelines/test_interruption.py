"""Runs that are killed leave no process, and go on to the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.pipelines.corpora import STAGES, run, write_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 30_000)


def _config(tmp_path: Path, corpus: list[str]) -> Path:
    return write_config(
        tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES, id_column="id", source_column="source", batch_rows=100
    )


def _start(config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipelines.cli", "run", str(config), "--direct_num_workers=2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _workers(driver: int) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] and ["-m", "pipelines.worker", str(driver)] == process.info["cmdline"][1:4]
    ]


def _wait(what: str, condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle(corpus: list[str], tmp_path: Path, how: signal.Signals) -> None:
    config = _config(tmp_path, corpus)
    staged = tmp_path / "run/staging/records"
    process = _start(config)
    _wait("some batches are staged", lambda: staged.is_dir() and len(list(staged.iterdir())) > 5)
    assert _workers(process.pid)
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    if how != signal.SIGKILL:
        assert errors.decode().strip() == "thresher: interrupted; run the same command again to go on"
    _wait("the workers end", lambda: not _workers(process.pid), 10)
    assert not (tmp_path / "run/manifest.json").exists()
    assert run(config) == 0
    assert not list((tmp_path / "run").rglob(".tmp-*"))
    whole = write_config(
        tmp_path / "d.yaml", corpus, tmp_path / "whole", STAGES, id_column="id", source_column="source", batch_rows=100
    )
    assert run(whole) == 0
    assert (tmp_path / "run/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


def test_a_second_run_in_the_same_folder_is_refused(corpus: list[str], tmp_path: Path) -> None:
    config = _config(tmp_path, corpus)
    process = _start(config)
    try:
        _wait("the first run has begun", lambda: (tmp_path / "run/staging/records").is_dir())
        assert run(config) == 1
    finally:
        process.kill()
        process.communicate(timeout=30)
    _wait("the workers end", lambda: not _workers(process.pid), 10)


def test_an_unfinished_run_over_other_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n')
    config = write_config(tmp_path / "c.yaml", [str(path)], tmp_path / "run", [])
    assert run(config) == 0
    (tmp_path / "run/manifest.json").unlink()
    path.write_text('{"text": "two"}\n')
    assert run(config) == 2
    assert "a.jsonl changed since it began" in capsys.readouterr().err
    assert run(config, "--overwrite") == 0
