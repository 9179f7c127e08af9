"""Speed and memory of whole runs: read Parquet, language, gopher_quality, exact_duplicates, write.

Each run is a process of its own, started as a user starts it; its time includes start-up. Runs with one and two workers
take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.documents import write_documents
from benchmarks.processes import measured, thresher_run

CHOSEN = "chosen"
"""Two workers are what the program chooses."""

CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}
output: {output}
stages:
  - language: {{keep: [en], minimum_score: 0.65}}
  - gopher_quality
  - exact_duplicates
"""


def measure(folder: Path, files: Path, workers: int, mode: str, watch: bool) -> dict[str, Any]:
    """Run once and return seconds, the largest memory in bytes where it is watched, and what ``run.json`` says."""
    output = folder / "run"
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(files=files, output=output))
    options = [] if workers == 1 or mode == CHOSEN else [f"--direct_running_mode={mode}"]
    used = measured(thresher_run(config, output, workers, *options), watch=watch)
    details = json.loads((output / "run.json").read_text())
    return {"seconds": used.seconds, "memory": used.memory_bytes, "seconds_inside": details["seconds"]}


def compare(folder: Path, megabytes: int, repetitions: int, mode: str) -> dict[str, Any]:
    """Return medians for one and two workers over the same documents, in turns."""
    size = write_documents(folder, megabytes)
    files = folder / f"documents-{megabytes}"
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    # These compile what is not compiled yet, too, and to look at memory takes time: their times do not count.
    watched = {workers: measure(folder, files, workers, mode, watch=True) for workers in runs}
    for _ in range(repetitions):
        for workers, found in runs.items():
            found.append(measure(folder, files, workers, mode, watch=False))
    result: dict[str, Any] = {"megabytes": size / 1e6, "mode": mode}
    for workers, found in runs.items():
        seconds = [run["seconds"] for run in found]
        result[f"workers_{workers}"] = {
            "seconds": statistics.median(seconds),
            "spread": [min(seconds), max(seconds)],
            "megabytes_per_second": size / 1e6 / statistics.median(seconds),
            "memory_gigabytes": watched[workers]["memory"] / 1e9,
        }
    result["speed_up"] = result["workers_1"]["seconds"] / result["workers_2"]["seconds"]
    return result


def main() -> None:
    """Measure all sizes and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--modes", nargs="+", default=[CHOSEN], help=f"what two workers are: {CHOSEN} by the program, or one of Beam's"
    )
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
