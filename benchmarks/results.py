"""Writes ``benchmarks/RESULTS.md``, ``benchmarks/SCALING.md`` and the plots from the JSON files of benchmarks that ran.

    python -m benchmarks.results [FOLDER] [--output benchmarks]

FOLDER is where ``benchmarks.run`` leaves the files (``build/bench``). No figure is typed in: what has no file is *not
run*. The pages say nothing of when.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import results_engines as engines
from benchmarks import results_tables as tables
from benchmarks.cluster_estimate import NOT_RUN, estimate
from benchmarks.results_plots import draw
from benchmarks.results_tables import Figures, Lines, Section, table
from benchmarks.rules import ALL as ALL_RULES

RUNS = "runs"
SECTIONS = (
    Section("pipeline", "Whole pipeline", tables.whole_pipeline),
    Section("scaling", "Scaling", tables.scaling),
    Section("copying", "Exact duplicates and a plain copy", tables.copying),
    Section("end_to_end", "Language, one rule stage, exact duplicates", tables.end_to_end),
    Section("language", "Language", tables.language),
    Section("rules", "Rules", tables.rules),
    Section("near_duplicates", "Near-duplicates", tables.near_duplicates),
    Section("contamination", "Contamination", tables.contamination),
    Section("presets", "Presets", tables.presets),
    Section("scorers", "Scorers", tables.scorers),
    Section("gpu", "Scorers on a GPU", tables.gpu),
    Section("selection", "Duplication budget", tables.selection),
    Section("engines", "Engines", engines.engines),
    Section("bounds", "Bounds", engines.bounds),
    Section("flink_groups", "Groups on Flink", engines.flink_groups),
    Section("kills", "Kills", engines.kills),
    Section("malformed_lines", "Malformed lines", engines.malformed_lines),
)


class Target(NamedTuple):
    """A target, and what was measured.

    Attributes:
        what: what is measured.
        wanted: the limit.
        file: name of the JSON file, without the ending.
        value: makes the measured value.
        at_least: whether more is better.
        unit: printed behind values.
    """

    what: str
    wanted: float
    file: str
    value: Callable[[Figures], float]
    at_least: bool = True
    unit: str = " times"


def _signatures_from_text(figures: Figures) -> float:
    """Return how much faster the whole run is than datasketch's signatures alone, from text."""
    steps = figures["tools"]["datasketch"]["steps"]
    return float((steps["shingles"] + steps["signatures"]) / figures["tools"]["thresher"]["seconds"])


TARGETS = (
    Target("whole pipeline", 8, "pipeline", lambda f: f["speed"]["all"]["megabytes_per_second"], unit=" MB/s"),
    Target(
        "whole pipeline, second step", 12, "pipeline", lambda f: f["speed"]["all"]["megabytes_per_second"], unit=" MB/s"
    ),
    Target("whole pipeline to datatrove", 80, "pipeline", lambda f: f["speed"]["times"]),
    Target("whole pipeline to datatrove, second step", 120, "pipeline", lambda f: f["speed"]["times"]),
    Target(
        "language to fasttext-predict",
        5,
        "language",
        lambda f: f["speed"]["contenders"]["fasttext-predict"]["ours_is_times_faster"],
    ),
    Target(
        "language to the fastest binding",
        2,
        "language",
        lambda f: min(
            row["ours_is_times_faster"] for name, row in f["speed"]["contenders"].items() if name != "thresher"
        ),
    ),
    Target("all rules", 40, "rules", lambda f: f["speed"]["megabytes_per_second"][ALL_RULES], unit=" MB/s"),
    Target("all rules to datatrove", 200, "rules", lambda f: f["speed"]["times"]["datatrove"]),
    Target(
        "near-duplicates, text to verdicts",
        30,
        "near_duplicates",
        lambda f: f["tools"]["thresher"]["megabytes_per_second"],
        unit=" MB/s",
    ),
    Target(
        "near-duplicates, second step",
        50,
        "near_duplicates",
        lambda f: f["tools"]["thresher"]["megabytes_per_second"],
        unit=" MB/s",
    ),
    Target(
        "near-duplicates to datatrove", 60, "near_duplicates", lambda f: f["tools"]["datatrove"]["ours_is_times_faster"]
    ),
    Target("near-duplicates to datasketch's signatures alone", 6, "near_duplicates", _signatures_from_text),
    Target(
        "near-duplicates to a chain of rensa",
        2,
        "near_duplicates",
        lambda f: f["tools"]["rensa"]["ours_is_times_faster"],
    ),
    Target("contamination to datatrove", 50, "contamination", lambda f: f["speed"]["datatrove"] / f["speed"]["stage"]),
    Target(
        "exact duplicates, seconds to DuckDB's on all cores",
        3,
        "copying",
        lambda f: f["places"]["all cores"]["thresher"]["seconds"] / f["places"]["all cores"]["duckdb"]["seconds"],
        at_least=False,
    ),
    Target("two workers to one, largest corpus", 1.7, "scaling", lambda f: [*f["summary"]["speed_up"].values()][-1]),
    Target(
        "time per byte, largest to smallest corpus",
        1.15,
        "scaling",
        lambda f: f["summary"]["per_gigabyte_largest_to_smallest"],
        at_least=False,
    ),
    Target(
        "memory of driver and workers",
        4,
        "scaling",
        lambda f: f["summary"]["largest_memory_bytes"] / 1e9,
        at_least=False,
        unit=" GB",
    ),
    Target(
        "a run over one document, start to end",
        3,
        "scaling",
        lambda f: f["kept_waiting"]["seconds"],
        at_least=False,
        unit=" s",
    ),
    Target("a finished run again", 2, "scaling", lambda f: f["again_seconds"], at_least=False, unit=" s"),
)


def read(folder: Path) -> dict[str, Any]:
    """Return the figures of each benchmark that has a JSON file in a folder, by name.

    Raises:
        SystemExit: a file is no JSON; the message names it.
    """
    found = {}
    for name in (RUNS, *(section.file for section in SECTIONS)):
        path = folder / f"{name}.json"
        if path.is_file():
            try:
                found[name] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise SystemExit(f"{path}: not JSON ({error}); run its benchmark again") from error
    return found


def _of_file(file: str, make: Callable[[Figures], Any], figures: Figures) -> Any:
    """Return what is made of a file's figures. Raises SystemExit, naming the file, where they are of another form."""
    try:
        return make(figures)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__} {error}"
        raise SystemExit(f"{file}.json: of another version of its benchmark ({problem}); run it again") from error


def target_lines(found: Mapping[str, Any]) -> Lines:
    """Return the table of targets, each as reached, missed or not run."""
    rows = []
    for target in TARGETS:
        wanted = f"{'>=' if target.at_least else '<='} {target.wanted:g}{target.unit}"
        measured, verdict = "", NOT_RUN
        if target.file in found:
            # A peer that could not be installed has no figure.
            try:
                value = target.value(found[target.file])
            except KeyError:
                rows.append([target.what, wanted, measured, f"{NOT_RUN}: the peer is missing"])
                continue
            measured = f"{value:.2f}{target.unit}"
            reached = value >= target.wanted if target.at_least else value <= target.wanted
            verdict = "reached" if reached else "missed"
        rows.append([target.what, wanted, measured, verdict])
    return table(["target", "wanted", "measured", ""], rows)


def machine_lines(found: Mapping[str, Any]) -> Lines:
    """Return where and how the benchmarks ran."""
    if RUNS not in found:
        return [f"Machine: {NOT_RUN} by `make bench`, so it is not known."]
    runs = found[RUNS]
    on = runs["machine"]
    lines = [
        f"{on['processor']}, {on['cores']} cores, {on['memory_bytes'] / 2**30:.0f} GiB of memory, {on['platform']}, "
        f"Python {on['python']}.",
        "",
        "Versions: "
        + ", ".join(f"{name} {number}" for name, number in runs["versions"].items())
        + ". Those of peers are "
        "pinned in `benchmarks/peers.py`.",
        "",
    ]
    rows = [
        [
            name,
            run["size"],
            f"{run['load']:.1f}",
            f"{run['seconds']:.0f}",
            {0: "", 3: "missed a target"}.get(run["code"], "failed"),
        ]
        for name, run in runs["benchmarks"].items()
    ]
    return [*lines, *table(["benchmark", "size", "load before it", "seconds", ""], rows)]


def section_lines(found: Mapping[str, Any]) -> Lines:
    """Return a section for each benchmark, *not run* where it has no figures."""
    lines = []
    for section in SECTIONS:
        lines += ["", f"## {section.title}", ""]
        if section.file in found:
            lines += _of_file(section.file, section.lines, found[section.file])
        else:
            lines.append(NOT_RUN)
    return lines


def page(found: Mapping[str, Any], sections: Lines, plots: Iterable[str]) -> str:
    """Return the text of ``RESULTS.md``."""
    lines = [
        "# Results",
        "",
        "Written by `python -m benchmarks.results` from the JSON files of `make bench`. Each benchmark's module says "
        "what it compares and how it is timed; repetitions are interleaved, figures are medians.",
        "",
        "## Machine",
        "",
        *machine_lines(found),
        "",
        "## Targets",
        "",
        "They are for 1 GB; other sizes say less.",
        "",
        *target_lines(found),
        *(f"\n![{name}](results/{name})" for name in plots),
    ]
    return "\n".join([*lines, *sections]) + "\n"


def write(folder: Path, output: Path) -> None:
    """Write pages and plots into a folder from the JSON files of another."""
    found = read(folder)
    sections = section_lines(found)
    plots = draw(output / "results", found)
    (output / "RESULTS.md").write_text(page(found, sections, plots), encoding="utf-8")
    scaling = "\n".join(estimate(found.get("scaling"), found.get("bounds"))) + "\n"
    (output / "SCALING.md").write_text(scaling, encoding="utf-8")


def main() -> None:
    """Write the pages and say which targets were reached."""
    parser = argparse.ArgumentParser(description="Tables and plots from the JSON files of benchmarks.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/bench"), help="of the JSON files")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="for pages and plots")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.output)
    print("\n".join(target_lines(read(arguments.folder))))


if __name__ == "__main__":
    main()
