"""Plots as inline SVG, drawn by Matplotlib.

The page decides on colours, so that one picture serves light and dark: Matplotlib draws with the stand-ins below, which
become CSS variables. Text stays text, in the page's font, and numbers of paths have one decimal, which halves them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Stand-in colour -> CSS variable of the page.
INK, FAINT, KEPT, LEFT, LIMIT = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", FAINT: "--faint", KEPT: "--kept", LEFT: "--left", LIMIT: "--limit"}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "thresher",
    "font.size": 9.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "path.simplify": False,
}

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """A vertical line at a threshold; ``label`` stands at its head."""

    value: float
    label: str


def short_number(value: float, _: int | None = None) -> str:
    """Return a number for an axis: 1,200 is 1.2k, 3,000,000 is 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{unit}"
    return f"{value:.4g}"


def histogram(
    edges: Floats, read: Integers, kept: Integers, lines: Sequence[Line], logarithmic: bool, label: str
) -> Markup:
    """Return the counts of n bins, those of the kept records in front.

    Args:
        edges: n + 1 borders of the bins, ascending.
        read: records per bin.
        kept: those of them that were kept.
        lines: thresholds within the borders.
        logarithmic: whether the horizontal axis is.
        label: what a screen reader says of the plot.
    """
    figure, axes = _figure(3.4, 1.55)
    axes.stairs(read, edges, fill=True, color=LEFT, linewidth=0)
    axes.stairs(kept, edges, fill=True, color=KEPT, linewidth=0)
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(edges[0], edges[-1])
    top = float(read.max(initial=1))
    filled = read[read > 0]
    if len(filled) and top > 40 * float(np.median(filled)):
        # One bin would leave the others without height.
        axes.set_yscale("log")
        axes.set_ylim(0.7, top * 1.6)
        axes.yaxis.set_major_locator(LogLocator(numticks=4))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, top * 1.05)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.yaxis.set_major_formatter(FuncFormatter(short_number))
    _draw_lines(axes, lines)
    return _svg(figure, label)


def curve(x: Floats, y: Floats, lines: Sequence[Line], below: str, label: str) -> Markup:
    """Return a curve of shares from 0 to 1.

    Args:
        x, y: n points, ``x`` ascending.
        lines: thresholds to draw in.
        below: what stands at the horizontal axis.
        label: what a screen reader says of the plot.
    """
    figure, axes = _figure(4.6, 2.3, bottom=0.2)
    axes.plot(x, y, color=KEPT, linewidth=1.6)
    axes.fill_between(x, y, color=KEPT, alpha=0.12, linewidth=0)
    axes.set_xlim(float(x[0]), float(x[-1]))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.set_xlabel(below, color=INK)
    _draw_lines(axes, lines)
    return _svg(figure, label)


def _figure(width: float, height: float, bottom: float = 0.17) -> tuple[Figure, Any]:
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        figure.patch.set_visible(False)
        axes = figure.add_axes((0.12, bottom, 0.86, 0.88 - bottom))
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=INK, which="both")
    axes.tick_params(axis="x", color=FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _draw_lines(axes: Any, lines: Sequence[Line]) -> None:
    low, high = axes.get_xlim()
    for line in lines:
        axes.axvline(line.value, color=LIMIT, linewidth=1.3)
        right = axes.transAxes.inverted().transform(axes.transData.transform((line.value, 0)))[0] > 0.5
        axes.annotate(
            line.label,
            (line.value, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if right else 3, 2),
            textcoords="offset points",
            horizontalalignment="right" if right else "left",
            color=LIMIT,
            fontsize=9,
        )
    axes.set_xlim(low, high)


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), attribute[0])


def _svg(figure: Figure, label: str) -> Markup:
    out = io.StringIO()
    with mpl.rc_context(_SETTINGS):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    text = re.sub(r'="[^"]*\d\.\d[^"]*"', _rounded, text)
    text = re.sub(r"\s*\n\s*", " ", text)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    head = Markup('<svg role="img" aria-label="{}" ').format(label)
    return head + Markup(text.removeprefix("<svg").strip())
