"""Runs of the command line as processes of their own, as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.conftest import REPOSITORY
from tests.engines.clusters import Cluster
from tests.engines.servers import end_with_parent

# No test is about how long a run takes: machines that test are slow at times.
RUN_SECONDS = 300.0


def thresher(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        check=False,
        preexec_fn=end_with_parent,
    )


def command(*arguments: str) -> list[str]:
    """Return the command line of a process."""
    return [sys.executable, "-m", "pipelines.cli", *arguments]


class Started:
    """A run on an engine, some batches into its first pass."""

    def __init__(self, config: Path, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.arguments = ("run", str(config), "--output", str(folder), *cluster.options)
        self.process = subprocess.Popen(
            command(*self.arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            preexec_fn=end_with_parent,
        )

    def is_under_way(self) -> bool:
        """Say whether some batches are staged; fails where the run has ended."""
        assert self.process.poll() is None, self.finish()
        return len(self.staged()) > 10

    def staged(self) -> list[Path]:
        """Return the staged batches."""
        records = self.folder / "staging/records"
        return list(records.glob("[0-9]*.arrow")) if records.is_dir() else []

    def finish(self) -> tuple[int, str]:
        """Return exit code and messages."""
        _, errors = self.process.communicate(timeout=RUN_SECONDS)
        return self.process.returncode, errors


@contextmanager
def started(config: Path, folder: Path, cluster: Cluster) -> Iterator[Started]:
    """Start a run, and wait until some of its batches are staged; it ends with the block at the latest."""
    run = Started(config, folder, cluster)
    try:
        wait("some batches are staged", run.is_under_way, RUN_SECONDS)
        yield run
    finally:
        run.process.kill()
        run.process.wait()


def wait(what: str, condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def busy_worker(cluster: Cluster) -> psutil.Process:
    """Return the Python worker that has worked most.

    One that is lost while it starts is waited for by Beam, for two minutes.
    """
    running = [server for server in cluster.servers.values() if server.process.poll() is None]
    workers = [worker for server in running for worker in server.python_workers()]
    return max(workers, key=lambda worker: worker.cpu_times().user)
