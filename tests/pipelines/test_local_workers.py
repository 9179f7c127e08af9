"""Which workers a local run has, and workers that are forks of a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from corpus.planning_types import InputPlan, Item, PlannedFile
from pipelines import local_workers
from pipelines.cli import main
from pipelines.config import config_from_mapping
from pipelines.local_workers import FORKS, LARGE_INPUT_BYTES, PROCESSES, early_server, fit_to_input
from pipelines.runners import choose_engine
from pipelines.worker_server import WorkerServer
from tests.pipelines.corpora import STAGES, report, write_config, write_corpus

forks = pytest.mark.skipif(not FORKS, reason="workers are forks on Linux only")
TWO = "--direct_num_workers=2"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 2_000)


@pytest.fixture
def config(corpus: list[str], tmp_path: Path) -> Path:
    return write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES, id_column="id", source_column="source")


def _children() -> list[str]:
    return [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]


@forks
def test_a_large_input_gets_processes_but_for_models() -> None:
    def has_processes(size: int, stage: Any = "length", *arguments: str, limit: int | None = None) -> bool:
        file = PlannedFile("a.txt", "/in/a.txt", "text", None, size, "0", None, 100, None)
        item = Item(0, "a.txt", "/in/a.txt", "text", None, 0, size, 0, None, limit, None, None)
        plan = InputPlan((file,), (item,), ())
        mapping = {"input": {"files": ["a"]}, "output": "o", "stages": [stage]}
        stages = config_from_mapping(mapping).build(check=False)
        return fit_to_input(choose_engine(arguments), arguments, plan, stages).has_own_workers

    assert has_processes(LARGE_INPUT_BYTES, "length", TWO)
    assert not has_processes(LARGE_INPUT_BYTES - 1, "length", TWO)
    assert not has_processes(LARGE_INPUT_BYTES, "length", "--direct_num_workers=1")
    assert not has_processes(LARGE_INPUT_BYTES, "length", TWO, "--direct_running_mode=multi_threading")
    assert has_processes(1, "length", TWO, PROCESSES)
    assert has_processes(2 * LARGE_INPUT_BYTES, "length", TWO, limit=50)
    assert not has_processes(2 * LARGE_INPUT_BYTES, "length", TWO, limit=49)
    for keep in ("off", {"best": 2}):
        judge = {"judge": {"base_url": "http://localhost:1/v1", "model": "m", "keep": keep}}
        assert not has_processes(LARGE_INPUT_BYTES, judge, TWO)


@forks
def test_the_server_starts_early_where_it_is_likely_to_be_used(
    config: Path, corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(*arguments: str, **more: Any) -> bool:
        mapping = {"input": {"files": corpus}, "output": str(tmp_path / "run"), "stages": ["length"], **more}
        with early_server(config_from_mapping(mapping), [TWO, *arguments]) as server:
            return server is not None

    assert not starts()
    monkeypatch.setattr(local_workers, "LARGE_INPUT_BYTES", 0)
    assert starts()
    assert not starts(input={"files": ["nowhere/*.txt"]})
    assert not starts(output="s3://bucket/run")
    assert not starts(input={"files": corpus, "limit": 5})
    assert not starts("--runner=FlinkRunner")
    assert not starts("--direct_running_mode=multi_threading")
    assert not starts("--no_such_option")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/manifest.json").write_text("{}")
    assert not starts()


@forks
def test_forks_give_the_same_bytes_and_nothing_is_left(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", str(config), TWO, "--direct_running_mode=multi_threading"]) == 0
    expected = (tmp_path / "run/manifest.json").read_bytes()
    monkeypatch.setattr(local_workers, "LARGE_INPUT_BYTES", 0)
    before = _children()
    assert main(["run", str(config), TWO, "--output", str(tmp_path / "other")]) == 0
    assert _children() == before
    assert (tmp_path / "other/manifest.json").read_bytes() == expected
    details = json.loads((tmp_path / "other/run.json").read_text())
    assert PROCESSES not in details["beam_options"]
    assert details["peak_memory_kib"]["largest_worker"] > 100 << 10


@forks
def test_forks_find_the_modules_that_the_driver_finds(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/of_users.py").write_text("def keep(record):\n    return len(record['text']) % 2 == 0\n")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    stages: list[Any] = [{"python": {"function": "of_users:keep"}}]
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", stages, id_column="id")
    assert main(["run", str(config), TWO, PROCESSES]) == 0
    counts = report(tmp_path / "run")["records"]
    assert counts["dropped"] > 100
    assert counts["kept"] > 100
    assert counts["dead"] == 3, "the bad lines of the corpus"


@forks
def test_without_a_server_workers_start_by_themselves(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: WorkerServer) -> None:
        raise PermissionError

    monkeypatch.setattr(WorkerServer, "__init__", refused)
    assert main(["run", str(config), TWO, PROCESSES]) == 0
    assert json.loads((tmp_path / "run/run.json").read_text())["peak_memory_kib"]["largest_worker"] > 100 << 10


@forks
def test_a_server_that_is_not_used_is_ended() -> None:
    before = _children()
    with WorkerServer() as server, local_workers.server_of(choose_engine([TWO]), server) as used:
        assert used is None
        assert _children() == before
    server.end()


@forks
def test_a_worker_of_the_server_ends_as_it_should() -> None:
    with WorkerServer() as server:
        server.load(["corpus.batch"])
        # Beam gave it no address: it fails.
        environment = {key: value for key, value in os.environ.items() if not key.endswith("DESCRIPTOR")}
        done = subprocess.run(server.command(os.devnull), shell=True, env=environment, check=False, timeout=60)
        assert done.returncode == 1
        server.end()
        assert subprocess.run(server.command(""), shell=True, check=False, capture_output=True).returncode == 1


def _answer(name: str, message: str, user: int | None = None) -> str:
    """Ask a server for a worker, as another user where one is given; returns how it ended, or nothing."""
    program = f"""
import os, socket
if {user} is not None:
    os.setuid({user})
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({name!r})
    connection.settimeout(30)
    try:
        connection.sendall({message.encode()!r} + b"\\n")
        print(connection.recv(16).decode())
    except (BrokenPipeError, ConnectionResetError):
        pass
"""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    ).stdout


@forks
def test_who_does_not_say_the_secret_gets_no_worker() -> None:
    with WorkerServer() as server:
        for message in ('["guess", "/dev/null", {}]', "[]", "{", '[1, "", {}]', '["é", "", {}]'):
            assert _answer(server._name, message).strip() == ""
        # Beam gave this worker no address: it fails.
        assert _answer(server._name, f'["{server._secret}", "/dev/null", {{}}]').strip() == "1"


@pytest.mark.skipif(not FORKS or os.getuid() != 0, reason="only root can be somebody else")
def test_somebody_else_gets_no_worker() -> None:
    with WorkerServer() as server:
        assert _answer(server._name, f'["{server._secret}", "/dev/null", {{}}]', user=65534).strip() == ""
