"""All measurements, one after the other: ``make bench``, or ``make bench SIZE=full`` for inputs up to 1 GB.

Rules and near-duplicates are measured on the sample corpus, or on the Parquet files (columns id, text, source) below
the folder that the environment variable CORPUS names.

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
# Of the comparison of near-duplicates, whose slowest peer takes half an hour for a gigabyte.
REPETITIONS = {"small": "3", "full": "1"}

# Exit code of a benchmark that went through and missed a target.
MISSED = 3


def _run(module: str, *arguments: str) -> int:
    print(f"\n== {module} {' '.join(arguments)}", flush=True)
    code = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
    if code not in (0, MISSED):
        raise SystemExit(f"{module} failed with exit code {code}")
    return code


def main() -> int:
    """Run every benchmark at the size that the environment variable SIZE names; 3 where a target is missed."""
    size = os.environ.get("SIZE", "small")
    if size not in SIZES:
        raise SystemExit(f"SIZE={size}: wanted is one of {', '.join(SIZES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]}"
    )
    write_documents(FOLDER, 100)
    codes = []
    codes.append(_run("benchmarks.language", str(FOLDER / "documents-100"), "--json", str(FOLDER / "language.json")))
    codes.append(
        _run(
            "benchmarks.end_to_end",
            *("--folder", str(FOLDER)),
            *("--megabytes", *SIZES[size]),
            *("--modes", "multi_threading", "multi_processing"),
            *("--json", str(FOLDER / "end_to_end.json")),
        )
    )
    json = ("--folder", str(FOLDER), "--json")
    corpus = os.environ.get("CORPUS")
    real_text = ("--corpus", corpus) if corpus else ()
    codes.append(_run("benchmarks.rules", *real_text, *json, str(FOLDER / "rules.json")))
    repetitions = ("--repetitions", REPETITIONS[size])
    codes.append(
        _run("benchmarks.near_duplicates", *real_text, *repetitions, *json, str(FOLDER / "near_duplicates.json"))
    )
    codes.append(_run("benchmarks.engines", "--megabytes", ENGINE_SIZES[size], *json, str(FOLDER / "engines.json")))
    codes.append(_run("benchmarks.bounds", "--megabytes", *BOUND_SIZES[size], *json, str(FOLDER / "bounds.json")))
    codes.append(_run("benchmarks.flink_groups", "--json", str(FOLDER / "flink_groups.json")))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
