"""Processes of an engine: each ends with what it started, and with the tests, however these end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

START_SECONDS = 180.0
STOP_SECONDS = 10.0
WORKER = "thresher-worker"
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_C_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Between fork and exec: have the kernel end this process when its parent is gone, even if that was killed."""
    if _C_LIBRARY is not None:
        _C_LIBRARY.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


@dataclass
class Server:
    """A process in a session of its own, so that what it starts ends with it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill the process alone, as a fault would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process and all that it started."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python workers of ours among the processes below it."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in below if any(WORKER in part for part in _command(process))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


class Starter:
    """Starts the servers of a cluster, and stops them in reverse."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.servers: dict[str, Server] = {}
        self._stack = stack

    def start(self, name: str, command: Sequence[str], **environment: str) -> Server:
        """Start one server; Java does not look at TMPDIR, and is told where temporary files go."""
        log = self.folder / f"{name}.log"
        java = {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tempfile.gettempdir()}"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **java, **environment},
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        server = Server(name, process, log)
        self.servers[name] = server
        self._stack.callback(server.stop)
        return server

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until a condition holds; fails with the end of the logs where a server ends before."""
        end = time.monotonic() + START_SECONDS
        while not ready():
            ended = [server.name for server in self.servers.values() if server.process.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(f"{name}: {server.log.read_text()[-2000:]}" for name, server in self.servers.items())
                raise AssertionError(f"{what}: {f'{ended} ended' if ended else 'not in time'}\n{logs}")
            time.sleep(0.1)
