"""Plots of the results as SVG files whose bytes follow from the figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rules import ALL as ALL_RULES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (3.2, 2.6)
"""Width and height of one diagram."""
AXES = {
    "sources": "number of sources",
    "rules": "stages with rules",
    "copies": "share of near-copies",
    "characters": "characters of a document",
}


def draw(folder: Path, found: Mapping[str, Any]) -> list[str]:
    """Draw what there are figures for into a folder; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    if "scaling" in found:
        names += ["scaling-sizes.svg", "scaling-axes.svg"]
        _sizes(folder / names[0], found["scaling"])
        _axes(folder / names[1], found["scaling"])
    speeds = _rates(found)
    if speeds:
        names.append("peers.svg")
        _peers(folder / names[-1], speeds)
    return names


@contextmanager
def _figure(path: Path, columns: int, rows: int = 1) -> Iterator[list[Axes]]:
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text; identifiers come from a fixed salt, and no date is written.
    with matplotlib.rc_context({"svg.hashsalt": "thresher", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(INCHES[0] * columns, INCHES[1] * rows), layout="constrained")
        yield list(figure.subplots(rows, columns, squeeze=False).flat)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _sizes(path: Path, figures: Mapping[str, Any]) -> None:
    """Draw seconds and memory by size, a line for each number of workers."""
    with _figure(path, 2) as (time, memory):
        for workers in sorted({row["workers"] for row in figures["sizes"]}):
            rows = sorted((row for row in figures["sizes"] if row["workers"] == workers), key=lambda row: row["bytes"])
            sizes = [row["bytes"] / 1e6 for row in rows]
            label = f"{workers} worker{'s' * (workers > 1)}"
            time.plot(sizes, [row["seconds"] for row in rows], marker="o", label=label)
            memory.plot(sizes, [row["memory_bytes"] / 1e9 for row in rows], marker="o", label=label)
        for axes, title in ((time, "seconds"), (memory, "memory of all processes, GB")):
            axes.set(xlabel="MB of text", title=title, ylim=(0, None), xlim=(0, None))
            axes.legend()


def _axes(path: Path, figures: Mapping[str, Any]) -> None:
    """Draw processor time and memory of the worker by what was changed alone."""
    values = {"processor s": ("processor_seconds", 1), "memory, GB": ("memory_bytes", 1e9)}
    with _figure(path, len(figures["axes"]), len(values)) as parts:
        pairs = itertools.product(values.items(), figures["axes"].items())
        for axes, ((title, (key, unit)), (name, rows)) in zip(parts, pairs, strict=True):
            # The names of stages are too long for a tick: their number says it.
            labels = [str(count) for count in range(len(rows))] if name == "rules" else [row["case"] for row in rows]
            axes.bar(labels, [row[key] / unit for row in rows])
            axes.set(xlabel=AXES[name], ylabel=title)


def _rates(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return MB/s by comparison and tool."""
    rates: dict[str, dict[str, float]] = {}
    if "pipeline" in found:
        speed = found["pipeline"]["speed"]
        names = {"all": "thresher", "datatrove": "datatrove"}
        rates["whole pipeline"] = {
            title: speed[name]["megabytes_per_second"] for name, title in names.items() if name in speed
        }
    if "near_duplicates" in found:
        tools = found["near_duplicates"]["tools"]
        rates["near-duplicates"] = {name: tool["megabytes_per_second"] for name, tool in tools.items()}
    if "rules" in found:
        fast = found["rules"]["speed"]
        peers = {name: fast["megabytes_per_second"][name] for name in fast["times"]}
        rates["rules"] = {"thresher": fast["megabytes_per_second"][ALL_RULES], **peers}
    if "language" in found:
        contenders = found["language"]["speed"]["contenders"]
        rates["language"] = {name: row["megabytes_per_second"] for name, row in contenders.items()}
    return rates


def _peers(path: Path, rates: Mapping[str, Mapping[str, float]]) -> None:
    """Draw MB/s on one core of each tool."""
    with _figure(path, len(rates)) as parts:
        for axes, (title, tools) in zip(parts, rates.items(), strict=True):
            bars = axes.barh([*tools], [*tools.values()])
            axes.bar_label(bars, fmt="%.3g", padding=2)
            axes.invert_yaxis()
            axes.margins(x=0.25)
            axes.set(title=title, xlabel="MB/s, one core")
