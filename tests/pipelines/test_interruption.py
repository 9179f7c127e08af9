"""Runs that are killed leave no process, and go on to the same bytes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from apache_beam.runners.worker import data_plane

from pipelines.worker_server import PROGRAM
from tests.pipelines.corpora import ENGLISH, STAGES, report, run, write_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 30_000)


def _config(tmp_path: Path, corpus: list[str]) -> Path:
    return write_config(
        tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES, id_column="id", source_column="source", batch_rows=100
    )


THREADS = ("--direct_num_workers=2",)
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


def _start(config: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipelines.cli", "run", str(config), *options]
    # Tests may run in the background of a shell, where SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)


def _servers_and_workers(driver: int) -> list[psutil.Process]:
    """Return the server that a run's workers are forks of, and these: they have its command line."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (command := process.info["cmdline"]) and command[2:3] == [PROGRAM] and command[-1] == str(driver)
    ]


def _workers(driver: int) -> list[psutil.Process]:
    found = _servers_and_workers(driver)
    numbers = {process.pid for process in found}
    return [process for process in found if process.ppid() in numbers]


def _wait(what: str, condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def _wait_for_batches(folder: Path) -> None:
    staged = folder / "staging/records"
    _wait("some batches are staged", lambda: staged.is_dir() and len(list(staged.iterdir())) > 5)


@pytest.mark.parametrize(
    ("how", "options"),
    [(signal.SIGKILL, PROCESSES), (signal.SIGINT, PROCESSES), (signal.SIGTERM, THREADS), (signal.SIGKILL, THREADS)],
)
def test_stopped_in_the_middle(
    corpus: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: signal.Signals,
    options: tuple[str, ...],
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    config = _config(tmp_path, corpus)
    process = _start(config, *options)
    _wait_for_batches(tmp_path / "run")
    assert len(_workers(process.pid)) == (2 if options == PROCESSES else 0)
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    if how != signal.SIGKILL:
        assert errors.decode().strip() == "thresher: interrupted; run the same command again to go on"
    _wait("the workers end", lambda: not _servers_and_workers(process.pid), 10)
    assert not list(temporary.iterdir())
    assert not (tmp_path / "run/manifest.json").exists()
    assert run(config) == 0
    assert not list((tmp_path / "run").rglob(".tmp-*"))
    whole = write_config(
        tmp_path / "d.yaml", corpus, tmp_path / "whole", STAGES, id_column="id", source_column="source", batch_rows=100
    )
    assert run(whole) == 0
    assert (tmp_path / "run/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


EDITING_STAGES = [
    {"c4_quality": {"minimum_sentences": "off"}},
    {"pii": {"ip_addresses": "off"}},
    "exact_duplicates",
    {"pii": {"name": "addresses"}},
    {"length": {"minimum_words": 5}},
]


@pytest.fixture(scope="module")
def lines_to_cut(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of texts with lines that are cut and private data, of which some are copies once these are gone."""
    choose = random.Random(2)
    path = tmp_path_factory.mktemp("lines") / "texts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(3000):
            if number % 3 == 0:
                words = " ".join(choose.choices(ENGLISH, k=choose.choice([3, 12, 30])))
            text = f"Menu {number}\n{words} by a{number}@example.com.\n{words} on 9.9.9.{len(words)} too.\n"
            file.write(json.dumps({"text": text if number % 50 else "Menu"}) + "\n")
    return str(path)


def _editing(folder: Path, lines_to_cut: str) -> Path:
    return write_config(folder / "c.yaml", [lines_to_cut], folder / "run", EDITING_STAGES, batch_rows=100)


@pytest.fixture(scope="module")
def edited(lines_to_cut: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    assert run(_editing(folder, lines_to_cut)) == 0
    stages = {stage["name"]: stage for stage in report(folder / "run")["stages"]}
    assert stages["pii"]["edited"] > stages["addresses"]["edited"] > 900
    assert stages["c4_quality"]["dropped"] == 60
    assert stages["exact_duplicates"]["dropped"] > 1000
    return folder / "run"


def test_edits_are_the_same_after_a_run_was_killed_again_and_again(
    edited: Path, lines_to_cut: str, tmp_path: Path
) -> None:
    config = _editing(tmp_path, lines_to_cut)
    folder = tmp_path / "run"
    for moment, at_least in (("staging/records", 4), ("staging/marks-2", 4), ("evidence", 1)):
        process = _start(config, *THREADS)
        reached = folder / moment
        _wait(moment, lambda place=reached, least=at_least: place.is_dir() and len(list(place.iterdir())) >= least)
        process.kill()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL, moment
        assert not (folder / "manifest.json").exists(), moment
    assert run(config) == 0
    assert (folder / "manifest.json").read_bytes() == (edited / "manifest.json").read_bytes()


def test_edits_are_the_same_where_single_staged_files_are_missing(
    edited: Path, lines_to_cut: str, tmp_path: Path
) -> None:
    """A crash between two files of a batch leaves the earlier ones: findings, then marks, then records."""
    config = _editing(tmp_path, lines_to_cut)
    folder = tmp_path / "run"
    shutil.copytree(edited, folder)
    (folder / "manifest.json").unlink()
    staging = folder / "staging"
    # The records of the last batch have another name.
    names = sorted(path.name for path in (staging / "findings-2").iterdir())[:-1]
    assert len(names) == 29
    removed = [staging / "marks-2" / name for name in names[::4]]
    removed += [staging / kind / name for name in names[1::4] for kind in ("findings-2", "marks-2")]
    removed += [staging / "records" / name for name in names[2::4]]
    removed += [staging / "marks-1" / name for name in names[2::8]]
    removed += [staging / kind / name for name in names[6::8] for kind in ("findings-1", "marks-1")]
    before = {path: path.read_bytes() for path in removed}
    for path in [*before, *(staging / "done").iterdir()]:
        path.unlink()
    assert run(config) == 0
    assert before == {path: path.read_bytes() for path in before}
    assert (folder / "manifest.json").read_bytes() == (edited / "manifest.json").read_bytes()


def test_a_second_run_in_the_same_folder_is_refused(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path, corpus)
    process = _start(config, *THREADS)
    try:
        _wait("the first run has begun", lambda: (tmp_path / "run/staging/records").is_dir())
        assert run(config) == 1
        assert "another run works on it" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("kills_server", [False, True])
def test_a_worker_that_is_killed_ends_the_run_with_one_message(
    corpus: list[str], tmp_path: Path, kills_server: bool
) -> None:
    config = _config(tmp_path, corpus)
    process = _start(config, *PROCESSES)
    _wait_for_batches(tmp_path / "run")
    killed = _workers(process.pid)[0]
    (killed.parent() if kills_server else killed).kill()  # type: ignore[union-attr]
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    first, second = errors.decode().splitlines()
    assert first.startswith("thresher: a worker process was killed by signal 9 (out of memory?); its log is ")
    assert second == "run the same command again to go on"
    _wait("the other worker ends", lambda: not _servers_and_workers(process.pid), 10)
    assert run(config) == 0


def test_a_worker_that_cannot_start_ends_the_run(corpus: list[str], tmp_path: Path) -> None:
    """Beam alone would wait for it for ever."""
    config = _config(tmp_path, corpus)
    program = (
        "import sys, pipelines.worker_server as workers, pipelines.cli as cli\n"
        "workers.WorkerServer.command = lambda self, log: 'exit 3'\n"
        f"sys.argv[1:] = ['run', {str(config)!r}, *{PROCESSES!r}]\n"
        "cli.console()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"a worker process ended with exit code 3" in done.stderr


@pytest.mark.parametrize("options", [THREADS, PROCESSES])
def test_no_thread_of_beam_empties_a_buffer_that_a_step_writes_to(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Beam's flush by time takes the content and empties the buffer afterwards, without a lock that a writer holds."""
    taken: list[bytes] = []
    racing = data_plane.ClosableOutputStream.create(
        taken.append, lambda data: (taken.append(data), time.sleep(0.05)), 1
    )
    written = 0
    while len(taken) < 3:
        racing.write(b"x")
        written += 1
    racing.close()
    assert sum(map(len, taken)) < written, "Beam lost nothing: flush_at_the_end has no reason any more"

    flushed_by_time: list[object] = []
    buffer = data_plane.TimeBasedBufferingClosableOutputStream
    monkeypatch.setattr(buffer, "_schedule_periodic_flush", lambda stream: flushed_by_time.append(stream))
    assert run(_config(tmp_path, corpus[:1]), *options) == 0
    assert not flushed_by_time


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
