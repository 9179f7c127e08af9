"""Speed and memory of whole runs: read Parquet, language, gopher_quality, exact_duplicates, write.

Each run is a process of its own, started as a user starts it; its time includes start-up. Runs with one and two workers
take turns. Memory is the largest sum, over driver and workers, of the memory that belongs to each alone plus its part
of what they share (PSS), looked at four times a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.documents import write_documents

CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}
output: {output}
stages:
  - language: {{keep: [en], minimum_score: 0.65}}
  - gopher_quality
  - exact_duplicates
"""


def _memory(process: psutil.Process) -> int:
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            total += each.memory_full_info().pss
    return total


def measure(folder: Path, files: Path, workers: int, mode: str) -> dict[str, Any]:
    """Run once and return seconds, the largest memory in bytes, and what ``run.json`` says."""
    output = folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(files=files, output=output))
    command = [sys.executable, "-m", "pipelines.cli", "run", str(config), f"--direct_num_workers={workers}"]
    if workers > 1:
        command.append(f"--direct_running_mode={mode}")
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watched, largest = psutil.Process(process.pid), 0
    while process.poll() is None:
        with suppress(psutil.Error):
            largest = max(largest, _memory(watched))
        time.sleep(0.25)
    if process.wait() != 0:
        raise SystemExit(f"the run failed: {' '.join(command)}")
    seconds = time.monotonic() - started
    details = json.loads((output / "run.json").read_text())
    return {"seconds": seconds, "memory": largest, "seconds_inside": details["seconds"]}


def compare(folder: Path, megabytes: int, repetitions: int, mode: str) -> dict[str, Any]:
    """Return medians for one and two workers over the same documents, in turns."""
    size = write_documents(folder, megabytes)
    files = folder / f"documents-{megabytes}"
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    measure(folder, files, 1, mode)
    for _ in range(repetitions):
        for workers, found in runs.items():
            found.append(measure(folder, files, workers, mode))
    result: dict[str, Any] = {"megabytes": size / 1e6, "mode": mode}
    for workers, found in runs.items():
        seconds = [run["seconds"] for run in found]
        result[f"workers_{workers}"] = {
            "seconds": statistics.median(seconds),
            "spread": [min(seconds), max(seconds)],
            "megabytes_per_second": size / 1e6 / statistics.median(seconds),
            "memory_gigabytes": max(run["memory"] for run in found) / 1e9,
        }
    result["speed_up"] = result["workers_1"]["seconds"] / result["workers_2"]["seconds"]
    return result


def main() -> None:
    """Measure all sizes and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["multi_threading"], help="what two workers are")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for megabytes, mode in itertools.product(arguments.megabytes, arguments.modes):
        result = compare(arguments.folder.absolute(), megabytes, arguments.repetitions, mode)
        results.append(result)
        one, two = result["workers_1"], result["workers_2"]
        print(
            f"{result['megabytes']:.0f} MB with {mode}: "
            f"one worker {one['seconds']:.1f} s ({one['megabytes_per_second']:.1f} MB/s, "
            f"{one['memory_gigabytes']:.2f} GB), "
            f"two {two['seconds']:.1f} s ({two['megabytes_per_second']:.1f} MB/s, {two['memory_gigabytes']:.2f} GB): "
            f"{result['speed_up']:.2f} times as fast",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
