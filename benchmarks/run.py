"""All measurements, one after the other: ``make bench``, or ``make bench SIZE=full`` for inputs up to 1 GB.

Figures go to the terminal and, as JSON, to ``build/bench``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.documents import write_documents

FOLDER = Path("build/bench").absolute()
SIZES = {"small": ["100", "300"], "full": ["100", "300", "1000"]}
# Of the comparison of engines, and the two for which bounds are measured; a run of the full size takes about a minute.
ENGINE_SIZES = {"small": "100", "full": "1000"}
BOUND_SIZES = {"small": ["10", "100"], "full": ["100", "1000"]}


def _run(module: str, *arguments: str) -> None:
    print(f"\n== {module} {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", module, *arguments], check=True)


def main() -> None:
    """Run every benchmark at the size that the environment variable SIZE names."""
    size = os.environ.get("SIZE", "small")
    if size not in SIZES:
        raise SystemExit(f"SIZE={size}: wanted is one of {', '.join(SIZES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]}"
    )
    write_documents(FOLDER, 100)
    _run("benchmarks.language", str(FOLDER / "documents-100"), "--json", str(FOLDER / "language.json"))
    _run(
        "benchmarks.end_to_end",
        *("--folder", str(FOLDER)),
        *("--megabytes", *SIZES[size]),
        *("--modes", "multi_threading", "multi_processing"),
        *("--json", str(FOLDER / "end_to_end.json")),
    )
    json = ("--folder", str(FOLDER), "--json")
    _run("benchmarks.engines", "--megabytes", ENGINE_SIZES[size], *json, str(FOLDER / "engines.json"))
    _run("benchmarks.bounds", "--megabytes", *BOUND_SIZES[size], *json, str(FOLDER / "bounds.json"))
    _run("benchmarks.flink_groups", "--json", str(FOLDER / "flink_groups.json"))


if __name__ == "__main__":
    main()
