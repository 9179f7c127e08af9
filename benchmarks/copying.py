"""Exact duplicates beside what the machine allows: DuckDB, Polars, and a program that only copies Parquet.

    python -m benchmarks.copying [--megabytes 100] [--copies 0.25] [--repetitions 3] [--folder FOLDER] [--json FILE]

All read the same Parquet files (columns id, text, source) and write Parquet with zstd, each as a process of its own,
start-up included; repetitions are interleaved.

- *copy*: pyarrow reads row group after row group and writes it: the least that any program in Python does.
- *duckdb*, *polars*: one of each equal text, by ``DISTINCT ON (text)`` and by ``unique(subset="text")``.
- *ours*: ``thresher run`` with the stage ``exact_duplicates`` alone: besides the copy it writes staging, the ledger,
  signals, and hashes of all it writes.

On *one core* each is bound to the same one; on *all cores* each takes what it can get, ours as many workers. All but
the copy must leave the same number of records.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers import concluded, machine
from benchmarks.processes import measured, one_core, thresher_run
from benchmarks.variants import GROUP_ROWS, Variant, written

OURS = "thresher"
CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}
output: run
stages: [exact_duplicates]
"""
TIMES_OF_DUCKDB = 3.0


def copy_files(files: Path, output: Path) -> None:
    """Read Parquet files row group by row group, and write one."""
    import pyarrow.parquet as pq

    paths = sorted(files.glob("*.parquet"))
    with pq.ParquetWriter(output, pq.read_schema(paths[0]), compression="zstd") as writer:
        for path in paths:
            with pq.ParquetFile(path) as opened:
                for group in range(opened.num_row_groups):
                    writer.write_table(opened.read_row_group(group), row_group_size=GROUP_ROWS)


def duckdb_distinct(files: Path, output: Path) -> None:
    """Keep one record of each text by DuckDB."""
    import duckdb

    duckdb.sql(
        f"COPY (SELECT DISTINCT ON (text) * FROM read_parquet('{files}/*.parquet')) "
        f"TO '{output}' (FORMAT parquet, COMPRESSION zstd)"
    )


def polars_unique(files: Path, output: Path) -> None:
    """Keep one record of each text by Polars."""
    import polars

    scanned = polars.scan_parquet(f"{files}/*.parquet")
    scanned.unique(subset="text", keep="any").sink_parquet(output, compression="zstd")


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "copy": copy_files,
    "duckdb": duckdb_distinct,
    "polars": polars_unique,
}


def once(name: str, files: Path, folder: Path, cores: set[int] | None, workers: int) -> dict[str, Any]:
    """Run a tool once; returns what it took and the records that it left."""
    import pyarrow.parquet as pq

    output = folder / "run"
    if name == OURS:
        config = folder / "copying.yaml"
        config.write_text(CONFIG.format(files=files), encoding="utf-8")
        used = measured(thresher_run(config, output, workers), cores)
        records = sum(pq.read_metadata(path).num_rows for path in (output / "curated").glob("*.parquet"))
    else:
        output = folder / f"{name}.parquet"
        command = [sys.executable, "-m", "benchmarks.copying", "--one", name, str(files), str(output)]
        used = measured(command, cores)
        records = pq.read_metadata(output).num_rows
        output.unlink()
    return {**asdict(used), "records": records}


def compare(files: Path, folder: Path, repetitions: int) -> dict[str, dict[str, Any]]:
    """Run all tools in turns on one core and on all; returns the medians by number of cores and tool."""
    names = [*TOOLS, OURS]
    places = {"one core": (one_core(), 1), "all cores": (None, os.cpu_count() or 1)}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {place: {name: [] for name in names} for place in places}
    for _ in range(repetitions):
        for place, (cores, workers) in places.items():
            for name in names:
                runs[place][name].append(once(name, files, folder, cores, workers))
    return {
        place: {
            name: {
                "seconds": statistics.median(run["seconds"] for run in found),
                "spread": [min(run["seconds"] for run in found), max(run["seconds"] for run in found)],
                "processor_seconds": statistics.median(run["processor_seconds"] for run in found),
                "memory_bytes": max(run["memory_bytes"] for run in found),
                "records": found[-1]["records"],
            }
            for name, found in tools.items()
        }
        for place, tools in runs.items()
    }


def missed(figures: Mapping[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    found = []
    tools = figures["places"]["all cores"]
    times = tools[OURS]["seconds"] / tools["duckdb"]["seconds"]
    if times > TIMES_OF_DUCKDB:
        found.append(f"ours takes {times:.1f} times as long as DuckDB on all cores, wanted are {TIMES_OF_DUCKDB:.0f}")
    for place, by_name in figures["places"].items():
        found += [
            f"{name} on {place} leaves {row['records']:,} records, ours {by_name[OURS]['records']:,}"
            for name, row in by_name.items()
            if name != "copy" and row["records"] != by_name[OURS]["records"]
        ]
    return found


def main() -> int:
    """Compare, print and say which targets are missed (exit code 3 if any)."""
    if sys.argv[1:2] == ["--one"]:
        name, *paths = sys.argv[2:]
        TOOLS[name](*map(Path, paths))
        return 0
    parser = argparse.ArgumentParser(description="Exact duplicates beside DuckDB, Polars and a plain copy.")
    parser.add_argument("--megabytes", type=float, default=100, help="of text (default 100)")
    parser.add_argument("--copies", type=float, default=0.25, help="share of equal texts (default 0.25)")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each runs (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for the corpus and outputs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    work = folder / "copying"
    work.mkdir(parents=True, exist_ok=True)
    files, size = written(folder, Variant(arguments.megabytes, copies=arguments.copies, changed=False))
    few, _ = written(folder, Variant(0.001, changed=False))
    # Compiles what is not compiled yet.
    once(OURS, few, work, one_core(), 1)
    figures: dict[str, Any] = {
        "machine": machine(),
        "versions": {name: version(name) for name in ("duckdb", "polars", "pyarrow")},
        "bytes": size,
        "places": compare(files, work, arguments.repetitions),
        "start_up": once(OURS, few, work, one_core(), 1),
    }
    for place, tools in figures["places"].items():
        print(f"{size / 1e6:.0f} MB on {place}")
        for name, row in tools.items():
            print(
                f"  {name:10}{row['seconds']:8.2f} s{row['processor_seconds']:8.2f} s CPU"
                f"{size / row['seconds'] / 1e6:8.1f} MB/s{row['memory_bytes'] / 1e9:7.2f} GB{row['records']:9,} records"
            )
    print(f"of ours {figures['start_up']['seconds']:.2f} s is start-up")
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
