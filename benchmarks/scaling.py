"""What a run costs as the corpus grows: size, workers, sources, rules, copies, length of documents.

    python -m benchmarks.scaling [--sizes 100 300 1000] [--base 50] [--repetitions 3] [--folder FOLDER] [--json FILE]

Each run is a process of its own over ``benchmarks.variants``, with the stages of the whole pipeline, contamination with
the sample corpus's own suite. *Sizes* are run with one and two workers in turns, each bound to as many cores. Of the
other axes one value is changed at a time, at ``--base`` megabytes with one worker: the number of sources, the stages
with rules, the share of near-copies, the characters of a document. Each row has seconds, seconds of the processor,
the largest memory of all processes together and of the largest process, and the bytes that the stages shuffled. Memory
is that of the first run; times are those of the others, where there are some, since to look at memory takes time.

*Again* is the same command over the finished run; *kept waiting* is what a run over a single document takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.peers import concluded, machine, sample_documents
from benchmarks.processes import measured, thresher_run
from benchmarks.variants import Variant, written

RULES = ("gopher_quality", "gopher_repetition", "fineweb_quality", "c4_quality")
SOURCES = (1, 100, 10_000)
COPIES = (0.0, 0.25, 0.5, 0.9)
CHARACTERS = (300, 1000, 10_000, 100_000)
WORKERS = (1, 2)
SPEED_UP = 1.7
GROWTH = 0.15
MEMORY_BYTES = 4e9
AGAIN_SECONDS = 2.0


def config_text(files: Path, suite: Path, rules: Sequence[str]) -> str:
    """Return the config of the whole pipeline with some of the stages of rules."""
    stages = [
        "language: {keep: [en], minimum_score: 0.65}",
        *rules,
        f'contamination: {{suites: ["{suite}"], action: drop}}',
        "near_duplicates: {threshold: 0.8}",
    ]
    lines = [f'input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}', "output: run", "stages:"]
    return "\n".join([*lines, *(f"  - {stage}" for stage in stages), ""])


class Bench:
    """Runs over variants in one folder."""

    def __init__(self, folder: Path, repetitions: int) -> None:
        """Take the folder of the benchmarks, and how often each run is done."""
        self._folder = folder / "scaling"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._corpora = folder
        self._suite = sample_documents(folder).parent / "suite" / "stdlib.yaml"
        self._repetitions = repetitions

    def once(self, variant: Variant, workers: int, rules: Sequence[str] = RULES, watch: bool = False) -> dict[str, Any]:
        """Run once on as many cores as there are workers; returns what it took and what it shuffled."""
        files, size = written(self._corpora, variant)
        output = self._folder / "run"
        config = self._folder / "scaling.yaml"
        config.write_text(config_text(files, self._suite, rules), encoding="utf-8")
        used = measured(thresher_run(config, output, workers), _cores(workers), watch)
        details = json.loads((output / "run.json").read_text(encoding="utf-8"))
        report = json.loads((output / "report.json").read_text(encoding="utf-8"))
        duplicates = report["duplicates"]["near_duplicates"]
        return {
            **asdict(used),
            "bytes": size,
            "shuffled_bytes": sum(details["shuffled_bytes"].values()),
            "records": report["records"],
            "clustered_records": duplicates["clusters"] + duplicates["copies_available"],
        }

    def again(self) -> float:
        """Return the seconds of the last run's command over its finished run."""
        output, config = self._folder / "run", self._folder / "scaling.yaml"
        command = [sys.executable, "-m", "pipelines.cli", "run", str(config), "--output", str(output)]
        return statistics.median(measured(command, watch=False).seconds for _ in range(self._repetitions))

    def axis(self, name: str, cases: Mapping[str, tuple[Variant, int, Sequence[str]]]) -> list[dict[str, Any]]:
        """Run all cases in turns; returns the medians of each, and prints them."""
        runs: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
        for number in range(self._repetitions):
            for case, (variant, workers, rules) in cases.items():
                runs[case].append(self.once(variant, workers, rules, watch=number == 0))
        print(name)
        rows = []
        for case, found in runs.items():
            row = {"case": case, "workers": cases[case][1], **_medians(found)}
            rows.append(row)
            print(
                f"  {case:28}{row['bytes'] / 1e6:9.1f} MB{row['seconds']:8.1f} s{row['processor_seconds']:8.1f} s CPU"
                f"{row['memory_bytes'] / 1e9:7.2f} GB{row['shuffled_bytes'] / 1e6:8.1f} MB shuffled",
                flush=True,
            )
        return rows


def _cores(count: int) -> set[int] | None:
    """Return so many of the cores that this process may use, None where the system does not bind processes."""
    return set(sorted(os.sched_getaffinity(0))[-count:]) if hasattr(os, "sched_getaffinity") else None


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return medians of times with their spread, and the most of what is memory."""
    timed = runs[1:] or runs
    seconds = [run["seconds"] for run in timed]
    return {
        **runs[-1],
        "seconds": statistics.median(seconds),
        "spread": [min(seconds), max(seconds)],
        "processor_seconds": statistics.median(run["processor_seconds"] for run in timed),
        **{name: max(run[name] for run in runs) for name in ("memory_bytes", "largest_process_bytes", "processes")},
    }


def summary(sizes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the speed-up by two workers, and the time per gigabyte of the largest corpus to that of the smallest."""
    by = {(row["megabytes"], row["workers"]): row for row in sizes}
    wanted = sorted({row["megabytes"] for row in sizes})
    least, most = by[wanted[0], 1], by[wanted[-1], 1]
    return {
        "speed_up": {str(size): by[size, 1]["seconds"] / by[size, 2]["seconds"] for size in wanted},
        "per_gigabyte_largest_to_smallest": (most["seconds"] / most["bytes"]) / (least["seconds"] / least["bytes"]),
        "largest_memory_bytes": max(row["memory_bytes"] for row in sizes),
    }


def missed(figures: Mapping[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    found = []
    speed_up = list(figures["summary"]["speed_up"].values())[-1]
    if speed_up < SPEED_UP:
        found.append(f"two workers are {speed_up:.2f} times as fast as one, wanted are {SPEED_UP}")
    growth = figures["summary"]["per_gigabyte_largest_to_smallest"]
    if growth > 1 + GROWTH:
        found.append(f"a byte of the largest corpus takes {growth:.2f} of one of the smallest, wanted is {1 + GROWTH}")
    memory = figures["summary"]["largest_memory_bytes"]
    if memory > MEMORY_BYTES:
        found.append(f"{memory / 1e9:.1f} GB of memory, wanted are {MEMORY_BYTES / 1e9:.0f}")
    if figures["again_seconds"] > AGAIN_SECONDS:
        found.append(f"a finished run takes {figures['again_seconds']:.1f} s again, wanted are {AGAIN_SECONDS:.0f}")
    return found


def main() -> int:
    """Measure all axes, print and say which targets are missed (exit code 3 if any)."""
    parser = argparse.ArgumentParser(description="Cost of a run by size, workers and kind of corpus.")
    parser.add_argument("--sizes", type=float, nargs="+", default=[100, 300, 1000], help="megabytes of text")
    parser.add_argument("--base", type=float, default=50, help="megabytes for the other axes (default 50)")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each run is done (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for the corpora and runs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(folder, arguments.repetitions)
    base = Variant(arguments.base)
    # Compiles what is not compiled yet, kernels of pairs as well.
    bench.once(base, 1)
    figures: dict[str, Any] = {"machine": machine()}
    size_cases = {
        f"{size:g} MB, {workers} worker{'s' * (workers > 1)}": (Variant(size), workers, RULES)
        for size in arguments.sizes
        for workers in WORKERS
    }
    rows = bench.axis("sizes", size_cases)
    figures["sizes"] = [
        {"megabytes": variant.megabytes, **row} for row, (variant, _, _) in zip(rows, size_cases.values(), strict=True)
    ]
    axes: dict[str, dict[str, tuple[Variant, int, Sequence[str]]]] = {
        "sources": {f"{sources:,}": (replace(base, sources=sources), 1, RULES) for sources in SOURCES},
        "rules": {" + ".join(RULES[:count]) or "none": (base, 1, RULES[:count]) for count in range(len(RULES) + 1)},
        "copies": {f"{share:.0%}": (replace(base, copies=share), 1, RULES) for share in COPIES},
        "characters": {f"{count:,}": (replace(base, characters=count), 1, RULES) for count in CHARACTERS},
    }
    figures["axes"] = {name: bench.axis(name, cases) for name, cases in axes.items()}
    figures["kept_waiting"] = bench.axis("kept waiting", {"one document": (Variant(0.001), 1, RULES)})[0]
    figures["again_seconds"] = bench.again()
    figures["summary"] = summary(figures["sizes"])
    print(f"again: {figures['again_seconds']:.2f} s; {figures['summary']}")
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
