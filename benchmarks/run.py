"""All measurements, one after the other: ``make bench``, or ``make bench SIZE=full`` for inputs of 1 GB.

The small size is made for twenty minutes on two quiet cores, environments of peers made before; the full one takes two
hours. Whole pipeline, rules and near-duplicates are measured on text of the sample corpus, at full size on 1.1 GB of
Debian's documentation (``benchmarks.debian_corpus``; where that cannot be built, on documents made of the sample); or
on the Parquet files (columns id, text, source) below the folder that the environment variable CORPUS names.
Contamination is measured where the labelled data lie beside the repository; scoring on a GPU where there is one and
MODEL names the folder of a model.

Figures go to the terminal and, as JSON, to ``build/bench``; from these ``benchmarks.results`` writes ``RESULTS.md``,
``SCALING.md`` and plots beside this file. A benchmark that fails does not stop those behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.documents import write_documents
from benchmarks.peers import ROOT, environments, machine
from benchmarks.results import write

FOLDER = ROOT / "build" / "bench"
SHARED = ROOT.parent / "shared"
SIZES = ("small", "full")
PACKAGES = ("apache-beam", "datatrove", "duckdb", "numba", "numpy", "polars", "pyarrow")
# What is measured on real text at full size.
OF_REAL_TEXT = frozenset(("pipeline", "rules", "near_duplicates"))
DOCUMENTS_MEGABYTES = {"small": 100, "full": 1000}

# Exit code of a benchmark that went through and missed a target.
MISSED = 3


class Benchmark(NamedTuple):
    """A module of this package with its arguments; its figures go to a JSON file of its name."""

    name: str
    arguments: tuple[str, ...]


def chosen(size: str, corpus: str | None, model: str | None) -> Iterator[Benchmark]:
    """Yield the benchmarks of a size, those of the whole pipeline first.

    Args:
        size: ``small`` or ``full``.
        corpus: folder of real documents; None for the sample corpus.
        model: folder of a model for the GPU; None for none.
    """
    full = size == "full"
    documents = str(FOLDER / f"documents-{DOCUMENTS_MEGABYTES[size]}")
    place = ("--folder", str(FOLDER))
    real_text = ("--corpus", corpus) if corpus else ()

    def at(small: str, large: str) -> list[str]:
        return (large if full else small).split()

    yield Benchmark(
        "pipeline", (*place, "--corpus", corpus or documents, *at("--peer-megabytes 2", "--peer-megabytes 20"))
    )
    yield Benchmark(
        "scaling",
        (*place, *at("--sizes 30 100 --base 10 --repetitions 1", "--sizes 100 300 1000 --base 100 --repetitions 4")),
    )
    yield Benchmark("copying", (*place, *at("--megabytes 100", "--megabytes 1000")))
    yield Benchmark("language", (documents, "--work", str(FOLDER / "language")))
    yield Benchmark("end_to_end", (*place, "--megabytes", *at("100", "100 300 1000")))
    yield Benchmark("rules", (*place, *real_text, *at("--documents 50 --repetitions 2", "--documents 100")))
    yield Benchmark("near_duplicates", (*place, *real_text, "--repetitions", "1"))
    yield Benchmark("presets", place)
    if SHARED.is_dir():
        yield Benchmark(
            "contamination",
            (str(FOLDER), "--shared", str(SHARED), *at("--items 10 --repetitions 3", "--items 150")),
        )
    yield Benchmark("scorers", (*place, *at("--records 60 --repetitions 1", "--records 300")))
    if model:
        yield Benchmark("gpu", (model,))
    yield Benchmark("selection", ("--records", *at("2000000", "10000000 100000000")))
    yield Benchmark("engines", (*place, "--megabytes", *at("30", "1000")))
    yield Benchmark("bounds", (*place, "--megabytes", *at("10 100", "100 1000")))
    yield Benchmark("flink_groups", ())
    yield Benchmark("kills", ("--kills", *at("5 --documents 300", "100")))
    yield Benchmark("malformed_lines", ("--lines", *at("200000", "2000000")))


def debian_corpus() -> str | None:
    """Return the folder of Debian's documentation, built where it is not there; None where that is not possible."""
    name, folder = "debian-corpus", FOLDER / "debian"
    if (folder / "manifest.json").exists():
        return str(folder)
    pythons, missing = environments(FOLDER, [name])
    if missing:
        print(f"{name}: {missing[name]}", file=sys.stderr)
        return None
    script = [str(pythons[name]), "benchmarks/debian_corpus.py", "benchmarks/debian_bench.txt", str(folder)]
    return None if subprocess.run(script, cwd=ROOT, check=False).returncode else str(folder)


def _run(benchmark: Benchmark) -> dict[str, Any]:
    """Run a benchmark to its end; returns its exit code, the seconds, and the load before it."""
    target = FOLDER / f"{benchmark.name}.json"
    # What an earlier one left must not pass for what this one found.
    target.unlink(missing_ok=True)
    print(f"\n== {benchmark.name} {' '.join(benchmark.arguments)}", flush=True)
    load, begun = os.getloadavg()[0], time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{benchmark.name}", *benchmark.arguments, "--json", str(target)]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code not in (0, MISSED):
        print(f"benchmarks.{benchmark.name} failed with exit code {code}", file=sys.stderr)
    return {"code": code, "seconds": time.monotonic() - begun, "load": load}


def this_machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code, nothing that names the machine."""
    processor = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else processor
    return {
        **machine(),
        "processor": processor,
        "memory_bytes": psutil.virtual_memory().total,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def main() -> int:
    """Run the benchmarks at the size that SIZE names; 3 where a target is missed, 1 where a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of benchmarks; the figures of others stay as they are")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="for the pages and plots")
    arguments = parser.parse_args()
    size = os.environ.get("SIZE", SIZES[0])
    if size not in SIZES:
        raise SystemExit(f"SIZE={size}: wanted is one of {', '.join(SIZES)}")
    corpus, model = os.environ.get("CORPUS"), os.environ.get("MODEL")
    names = [benchmark.name for benchmark in chosen(size, corpus, model)]
    unknown = sorted(set(arguments.only or ()) - set(names))
    if unknown:
        raise SystemExit(f"--only {unknown[0]}: wanted are some of {', '.join(names)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not corpus and size == "full" and OF_REAL_TEXT.intersection(arguments.only or names):
        corpus = debian_corpus()
    benchmarks = list(chosen(size, str(Path(corpus).absolute()) if corpus else None, model))
    write_documents(FOLDER, DOCUMENTS_MEGABYTES[size])
    record = FOLDER / "runs.json"
    earlier = json.loads(record.read_text(encoding="utf-8"))["benchmarks"] if arguments.only and record.exists() else {}
    runs: dict[str, Any] = {
        "machine": this_machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "benchmarks": earlier,
    }
    codes = []
    for benchmark in benchmarks:
        if not arguments.only or benchmark.name in arguments.only:
            runs["benchmarks"][benchmark.name] = {**_run(benchmark), "size": size}
            codes.append(runs["benchmarks"][benchmark.name]["code"])
            record.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    write(FOLDER, arguments.output)
    if any(code not in (0, MISSED) for code in codes):
        return 1
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
