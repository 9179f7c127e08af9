"""Local workers, Flink and Spark over the same documents: speed, start-up and memory.

The clusters are those of the tests, on this machine: Flink with two TaskManagers, Spark inside its job server, each
with two Python workers, and Prism with one where its binary is. Every run is a process of its own, started as a user
starts it. *Start-up* is what a run over few documents takes more than the same run with one local worker, with the
servers warm. *Throughput per worker* is that of the whole run over the large corpus, start-up included, divided by
the number of Python workers; it is compared with local runs of as many workers on the same cores.

Memory of a JVM is its largest resident set and, from its garbage collector's log, its largest heap before and after a
collection (a heap of which nothing was collected does not show). Memory of Python is the largest resident set of one
process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.documents import write_documents
from tests.engines import clusters, libraries
from tests.engines.clusters import Cluster
from tests.engines.servers import WORKER

CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}
output: {output}
stages:
  - language: {{keep: [en], minimum_score: 0.65}}
  - gopher_repetition
  - gopher_quality
  - fineweb_quality
  - exact_duplicates
"""
SMALL_MEGABYTES = 3
WARM_RUNS = 2
INTERVAL = 0.25
_HEAP = re.compile(r"(\d+)([MK])->(\d+)([MK])\(\d+[MK]\)")


class Watcher:
    """Looks at the processes of a run and of its engine until it is told to stop."""

    def __init__(self, run: int, cluster: Cluster) -> None:
        self.java: dict[str, int] = defaultdict(int)
        self.python = 0
        self.processes = 0
        self._run = run
        self._servers = {name: server.process.pid for name, server in cluster.servers.items()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            for name, identity in self._servers.items():
                with suppress(psutil.Error):
                    self.java[name] = max(self.java[name], psutil.Process(identity).memory_info().rss)
            workers = list(self._workers())
            self.processes = max(self.processes, len(workers))
            for process in workers:
                with suppress(psutil.Error):
                    self.python = max(self.python, process.memory_info().rss)

    def _workers(self) -> Iterator[psutil.Process]:
        """Yield the Python processes that do the work: the engine's workers, or the run itself."""
        found = False
        for identity in self._servers.values():
            with suppress(psutil.Error):
                for process in psutil.Process(identity).children(recursive=True):
                    if any(WORKER in part for part in process.cmdline()):
                        found = True
                        yield process
        if not found:
            with suppress(psutil.Error):
                yield psutil.Process(self._run)


def measure(folder: Path, files: Path, cluster: Cluster) -> dict[str, Any]:
    """Run once; returns seconds, the most Python processes at a time, and the largest sizes of memory in bytes."""
    output = folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    config = folder / "engines.yaml"
    config.write_text(CONFIG.format(files=files, output=output))
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "run", str(config), *cluster.options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    watcher = Watcher(process.pid, cluster)
    _, errors = process.communicate()
    seconds = time.monotonic() - started
    watcher.stop()
    if process.returncode:
        raise SystemExit(f"the run failed: {errors}")
    return {
        "seconds": seconds,
        "python_processes": watcher.processes,
        "python_bytes": watcher.python,
        "java_bytes": dict(watcher.java),
        "manifest": hashlib.sha256((output / "manifest.json").read_bytes()).hexdigest(),
    }


def collections(folder: Path, cluster: Cluster) -> dict[str, list[tuple[int, int]]]:
    """Return the heap of each server before and after each garbage collection, in bytes, from the logs in a folder."""
    unit = {"K": 1 << 10, "M": 1 << 20}
    found = {}
    for name, server in cluster.servers.items():
        log = folder / f"gc-{server.process.pid}.log"
        found[name] = [
            (int(before) * unit[scale], int(after) * unit[other])
            for before, scale, after, other in _HEAP.findall(log.read_text() if log.exists() else "")
        ]
    return found


@contextmanager
def _nothing_to_start(workers: int) -> Iterator[Cluster]:
    yield Cluster([f"--direct_num_workers={workers}"])


def _engines(folder: Path) -> Iterator[tuple[str, int, AbstractContextManager[Cluster]]]:
    """Yield what can be started here as (name, Python workers, how); says why the others cannot."""
    yield "local, one worker", 1, _nothing_to_start(1)
    yield "local, two workers", 2, _nothing_to_start(2)
    for name in ("flink", "spark"):
        _, reason = libraries.fetched(name)
        if reason:
            print(f"{name} is left out: {reason}")
            continue
        own = folder / name
        own.mkdir()
        # JVMs of clusters that live long: no option but a log of what the collector does.
        logged = [f"-Xlog:gc:file={own}/gc-%p.log"]
        yield name, 2, clusters.flink(own, machine=logged) if name == "flink" else _spark(own, logged)
    if libraries.PRISM.is_file():
        own = folder / "prism"
        own.mkdir()
        yield "prism", 1, clusters.prism(own)
    else:
        print("prism is left out: `make test-prism` builds it")


@contextmanager
def _spark(folder: Path, machine: Sequence[str]) -> Iterator[Cluster]:
    """Start Spark in one JVM with two Python workers; on a cluster each executor has its own."""
    with clusters.spark_local(folder, machine=machine) as cluster:
        cluster.options.append("--sdk_worker_parallelism=2")
        yield cluster


def compare(folder: Path, megabytes: int) -> dict[str, Any]:
    """Run all engines over a small and a large corpus; returns the figures by engine."""
    small, size = write_documents(folder, SMALL_MEGABYTES), write_documents(folder, megabytes)
    files, few = folder / f"documents-{megabytes}", folder / f"documents-{SMALL_MEGABYTES}"
    engines: dict[str, dict[str, Any]] = {}
    local: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        for name, workers, start in _engines(Path(temporary)):
            begun = time.monotonic()
            with start as cluster:
                ready = time.monotonic() - begun
                first, *warm = (measure(folder, few, cluster) for _ in range(1 + WARM_RUNS))
                found = measure(folder, files, cluster)
            engines[name] = found
            if not cluster.servers:
                local[workers] = found
            found["workers"] = workers
            found["heap_bytes"] = {
                server: (max(before for before, _ in pairs), max(after for _, after in pairs))
                for server, pairs in collections(Path(temporary) / name, cluster).items()
                if pairs
            }
            found["ready_seconds"] = ready
            found["first_seconds"] = first["seconds"]
            found["warm_seconds"] = statistics.median(run["seconds"] for run in warm)
            found["start_up_seconds"] = found["warm_seconds"] - local[1]["warm_seconds"]
            found["rate_per_worker"] = size / found["seconds"] / workers
            found["relative_to_local"] = found["rate_per_worker"] / local[workers]["rate_per_worker"]
            found["same_manifest"] = found["manifest"] == local[1]["manifest"]
            _print(name, found)
    return {"bytes": size, "small_bytes": small, "engines": engines}


def _print(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name}: {found['seconds']:.1f} s, {found['rate_per_worker'] / 1e6:.1f} MB/s for each of {found['workers']} "
        f"workers, {found['relative_to_local']:.0%} of as many local ones; manifest "
        f"{'the same' if found['same_manifest'] else 'ANOTHER'}\n"
        f"  few documents: first {found['first_seconds']:.1f} s, warm {found['warm_seconds']:.1f} s, "
        f"{found['start_up_seconds']:+.1f} s to local; servers ready after {found['ready_seconds']:.1f} s\n"
        f"  Python: {found['python_bytes'] / 1e6:.0f} MB resident in the largest of {found['python_processes']}"
    )
    for server, resident in found["java_bytes"].items():
        heap = found["heap_bytes"].get(server)
        collected = f", heap up to {heap[0] / 1e6:.0f} MB, {heap[1] / 1e6:.0f} MB after a collection" if heap else ""
        print(f"  {server}: {resident / 1e6:.0f} MB resident{collected}")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all engines that can be started here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args(arguments)
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    results = compare(folder, given.megabytes)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
