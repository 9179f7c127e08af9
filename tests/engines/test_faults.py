"""Parts of an engine are killed in the middle of a run: it recovers, or the same command goes on to the same bytes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.engines import clusters
from tests.engines.clusters import Cluster
from tests.engines.conftest import command, document_config, thresher
from tests.pipelines.corpora import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 24_000)


@pytest.fixture(scope="module")
def whole(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The manifest of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    done = thresher("run", str(document_config(folder, corpus, folder / "run")), "--engine=local")
    assert done.returncode == 0, done.stderr
    return (folder / "run/manifest.json").read_bytes()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clusters.spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


class Started:
    """A run on an engine, some batches into its first pass."""

    def __init__(self, config: Path, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.arguments = ("run", str(config), *cluster.options)
        self.process = subprocess.Popen(
            command(*self.arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        wait("some batches are staged", self.is_under_way, 120)

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
        _, errors = self.process.communicate(timeout=240)
        return self.process.returncode, errors


def wait(what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
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


def check_whole(run: Started, whole: bytes) -> str:
    """Check that the run recovered, or failed with one message and can go on; returns the message."""
    code, errors = run.finish()
    if code:
        assert code == 1, errors
        assert errors.startswith("thresher: "), errors
        assert errors.rstrip().endswith("run the same command again to go on"), errors
        assert not (run.folder / "manifest.json").exists()
        before = {path: path.stat().st_mtime_ns for path in run.staged()}
        done = thresher(*run.arguments)
        assert done.returncode == 0, done.stderr
        assert all(path.stat().st_mtime_ns == time for path, time in before.items() if "-last" in path.name)
    assert (run.folder / "manifest.json").read_bytes() == whole
    assert not list(run.folder.rglob(".tmp-*"))
    done = thresher("verify", str(run.folder))
    assert done.returncode == 0, done.stderr
    return errors


def restarted(flink: Cluster) -> bool:
    """Say whether Flink's last job finished after a failure."""
    job = max(flink.ask("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
    failures = flink.ask(f"/jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]
    return job["state"] == "FINISHED" and len(failures) > 0


def lost_tasks(spark: Cluster) -> int:
    """Return how many tasks the job server of Spark saw fail."""
    return spark.servers["job-server"].log.read_text().count("Lost task")


def test_flink_recovers_from_a_lost_python_worker(
    flink: Cluster, corpus: list[str], whole: bytes, tmp_path: Path
) -> None:
    run = Started(document_config(tmp_path, corpus, tmp_path / "run"), tmp_path / "run", flink)
    busy_worker(flink).kill()
    assert check_whole(run, whole) == ""
    assert restarted(flink)


def test_flink_recovers_from_a_lost_task_manager(
    flink: Cluster, corpus: list[str], whole: bytes, tmp_path: Path
) -> None:
    run = Started(document_config(tmp_path, corpus, tmp_path / "run"), tmp_path / "run", flink)
    busy = next(server for name, server in flink.servers.items() if "task" in name and server.python_workers())
    busy.kill()
    assert check_whole(run, whole) == ""
    assert restarted(flink)


def test_spark_and_a_lost_python_worker(spark: Cluster, corpus: list[str], whole: bytes, tmp_path: Path) -> None:
    run = Started(document_config(tmp_path, corpus, tmp_path / "run"), tmp_path / "run", spark)
    busy_worker(spark).kill()
    check_whole(run, whole)
    assert lost_tasks(spark)


def test_spark_recovers_from_a_lost_executor(spark: Cluster, corpus: list[str], whole: bytes, tmp_path: Path) -> None:
    run = Started(document_config(tmp_path, corpus, tmp_path / "run"), tmp_path / "run", spark)
    executor = busy_worker(spark).parent()
    assert executor is not None
    before = lost_tasks(spark)
    executor.kill()
    assert check_whole(run, whole) == ""
    assert lost_tasks(spark) > before
