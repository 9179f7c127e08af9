"""The tests' own machinery: nothing is left running, and a network without Maven's libraries is no failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.engines import libraries
from tests.engines.clusters import free_ports
from tests.engines.runs import wait
from tests.engines.servers import Starter

# A server that has a child, as TaskManagers have Python workers.
SERVER = ["sh", "-c", "sleep 600 & echo $! > child; wait"]
PROGRAM = """\
import sys, time
from contextlib import ExitStack
from pathlib import Path
from tests.engines.servers import Starter

folder = Path(sys.argv[1])
with ExitStack() as stack:
    server = Starter(folder, stack).start("server", ["sleep", "600"])
    (folder / "server").write_text(str(server.process.pid))
    time.sleep(600)
"""


def alive(identity: int) -> bool:
    """Say whether a process runs."""
    try:
        return psutil.Process(identity).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def number_in(file: Path) -> int:
    """Wait for a number in a file and return it."""
    wait(f"{file} is written", lambda: file.exists() and file.read_text().strip() != "")
    return int(file.read_text())


def test_a_server_ends_with_what_it_started(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Starter(tmp_path, stack).start("server", SERVER)
        child = number_in(tmp_path / "child")
        server.kill()
        assert alive(child)
    wait("the child ends", lambda: not alive(child))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the end of their parent")
def test_a_server_ends_with_tests_that_are_killed(tmp_path: Path) -> None:
    tests = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=REPOSITORY)
    try:
        server = number_in(tmp_path / "server")
        assert alive(server)
    finally:
        tests.send_signal(signal.SIGKILL)
        tests.wait()
    wait("the server ends", lambda: not alive(server))


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with ExitStack() as stack:
        starter = Starter(tmp_path, stack)
        starter.start("server", ["sh", "-c", "echo no such port; exit 1"])
        with pytest.raises(AssertionError, match=r"it listens: \['server'\] ended\nserver: no such port"):
            starter.wait("it listens", lambda: False)


@pytest.mark.skipif(shutil.which("mvn") is None or shutil.which("javac") is None, reason="Java or Maven is missing")
def test_a_network_without_the_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    proxy = f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port}"
    monkeypatch.setenv("MAVEN_OPTS", f"{os.environ.get('MAVEN_OPTS', '')} -Dmaven.repo.local={tmp_path / 'm2'} {proxy}")
    monkeypatch.setattr(libraries, "_failures", [])
    folder, reason = libraries.fetched("flink", tmp_path / "cache")
    assert reason.startswith("the libraries of flink cannot be fetched: ")
    assert not list(tmp_path.glob("cache/*"))
    assert not folder.exists()
    monkeypatch.setenv("PATH", "")
    _, again = libraries.fetched("spark", tmp_path / "cache")
    assert again == "java is missing: apt-get install default-jdk-headless maven"


def test_libraries_of_other_versions_go_once_nothing_has_used_them_for_a_day(tmp_path: Path) -> None:
    names = ("spark-new", "spark-yesterday", "spark-old", "spark-half.17", "flink-old", "dataflow-3.11-old")
    for name in names:
        (tmp_path / name / "lib").mkdir(parents=True)
        age = 3600 if name == "spark-yesterday" else libraries.UNUSED_SECONDS + 60
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    libraries.note_use(tmp_path / "spark-new")
    assert {path.name for path in tmp_path.iterdir()} == {*names} - {"spark-old", "spark-half.17"}
    assert time.time() - (tmp_path / "spark-new").stat().st_mtime < 60


def test_java_puts_temporary_files_where_the_tests_do(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Starter(tmp_path, stack).start("server", ["sh", "-c", "echo $JAVA_TOOL_OPTIONS"])
        server.process.wait(30)
        assert server.log.read_text() == f"-Djava.io.tmpdir={os.environ['TMPDIR']}\n"
