"""Parts of an engine are killed in the middle of a run: it recovers, or the same command goes on to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.verify import verify
from tests.engines import clusters
from tests.engines.clusters import Cluster
from tests.engines.configs import document_config
from tests.engines.runs import Started, busy_worker, started, thresher, wait
from tests.pipelines.corpora import write_corpus


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many small batches that the first pass goes on for some seconds after the fault."""
    folder = tmp_path_factory.mktemp("corpus")
    return document_config(folder, write_corpus(folder / "corpus", 15_000), folder / "run")


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The manifest of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    done = thresher("run", str(config), "--output", str(folder / "run"), "--engine=local")
    assert done.returncode == 0, done.stderr
    return (folder / "run/manifest.json").read_bytes()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clusters.spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


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
    assert verify(str(run.folder)) == []
    return errors


def restarted(flink: Cluster) -> bool:
    """Say whether Flink's last job finished after a failure."""
    job = max(flink.ask("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
    failures = flink.ask(f"/jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]
    return job["state"] == "FINISHED" and len(failures) > 0


def said(spark: Cluster, words: str) -> bool:
    """Say whether the job server of Spark logged such a thing."""
    return words in spark.servers["job-server"].log.read_text()


def test_flink_recovers_from_a_lost_python_worker(flink: Cluster, config: Path, whole: bytes, tmp_path: Path) -> None:
    with started(config, tmp_path / "run", flink) as run:
        busy_worker(flink).kill()
        given_up = check_whole(run, whole)
    assert given_up or restarted(flink)


def test_flink_recovers_from_a_lost_task_manager(flink: Cluster, config: Path, whole: bytes, tmp_path: Path) -> None:
    with started(config, tmp_path / "run", flink) as run:
        busy = next(server for name, server in flink.servers.items() if "task" in name and server.python_workers())
        busy.kill()
        given_up = check_whole(run, whole)
    assert given_up or restarted(flink)


def test_spark_loses_a_python_worker_and_an_executor(
    spark: Cluster, config: Path, whole: bytes, tmp_path: Path
) -> None:
    """Both in one run, since a cluster needs long to start one.

    Each task has four attempts. On a busy machine they may not do; then the same command goes on.
    """
    with started(config, tmp_path / "run", spark) as run:
        busy_worker(spark).kill()
        wait("Spark notices the lost worker", lambda: said(spark, "Lost task"))
        executor = busy_worker(spark).parent()
        assert executor is not None
        executor.kill()
        wait("Spark notices the lost executor", lambda: said(spark, "Lost executor"))
        check_whole(run, whole)
