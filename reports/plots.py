"""Plots as inline SVG, drawn by Matplotlib's renderer, with the ticks of its locators.

Figures and axes are left out: they would take 40 times as long, and a report has dozens of histograms.

The page decides on colours, so that one picture serves light and dark: Matplotlib draws with the stand-ins below, which
become CSS variables. Text stays text, in the page's font, and numbers of paths have one decimal, which halves them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator
from matplotlib.transforms import IdentityTransform

# Stand-in colour -> CSS variable of the page.
INK, FAINT, KEPT, LEFT, LIMIT = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", FAINT: "--faint", KEPT: "--kept", LEFT: "--left", LIMIT: "--limit"}
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "thresher", "path.simplify": False}

# In points, as all lengths of a plot.
FONT_SIZE = 9.0
TICK_LENGTH = 3.0
LINE_WIDTH = 0.6
# From an axis to the baseline of its numbers, and from the middle of a number to its baseline.
NUMBERS_BELOW, NUMBERS_BESIDE, HALF_HEIGHT = 13.4, 3.5, 3.4
LABEL_BELOW = 26.1

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """A vertical line at a threshold; ``label`` stands at its head."""

    value: float
    label: str


@dataclass(frozen=True)
class _Axis:
    """One direction of a plot: values from ``low`` to ``high`` lie from ``start`` to ``end``, in points."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def places(self, values: npt.ArrayLike) -> Floats:
        """Return where n values lie, those beyond the axis at its ends."""
        inside = np.clip(np.asarray(values, np.float64), self.low, self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, inside = np.log(low), np.log(high), np.log(inside)
        return self.start + (self.end - self.start) * (inside - low) / (high - low)

    def ticks(self, most: int, whole: bool = False) -> list[float]:
        """Return round values within the axis, ``most`` spaces between them at the most."""
        locator: Any = LogLocator(numticks=most) if self.logarithmic else MaxNLocator(most, integer=whole)
        # The locators step over the ends, and miss them by the last bits of a number.
        slack = 1e-9 * (self.high - self.low)
        found = locator.tick_values(self.low, self.high)
        return [float(value) for value in found if self.low - slack <= value <= self.high + slack]


class _Canvas:
    """What is drawn of one plot; places are in points, from the lower left."""

    def __init__(self, width: float, height: float) -> None:
        self._out = io.StringIO()
        self._renderer: Any = RendererSVG(width, height, self._out)  # type: ignore[no-untyped-call]
        self._font = FontProperties(size=FONT_SIZE)

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, colour: str, width: float, opacity: float = 1) -> None:
        """Draw a line through n points."""
        pen = self._renderer.new_gc()
        pen.set_foreground(colour)
        pen.set_linewidth(width)
        pen.set_alpha(opacity)
        self._renderer.draw_path(pen, Path(np.column_stack([x, y])), IdentityTransform())

    def area(self, x: npt.ArrayLike, y: npt.ArrayLike, colour: str, opacity: float = 1) -> None:
        """Fill what n points enclose."""
        pen = self._renderer.new_gc()
        pen.set_linewidth(0)
        pen.set_alpha(opacity)
        self._renderer.draw_path(pen, Path(np.column_stack([x, y])), IdentityTransform(), to_rgb(colour))

    def text(self, x: float, y: float, text: str, colour: str, side: Literal["left", "center", "right"]) -> None:
        """Write a text; ``side`` says which part of its baseline is at the place."""
        pen = self._renderer.new_gc()
        pen.set_foreground(colour)
        placed = Text(x, y, text, horizontalalignment=side)
        self._renderer.draw_text(pen, x, self._renderer.height - y, text, self._font, 0, mtext=placed)

    def svg(self, label: str) -> Markup:
        """Return the finished plot; ``label`` is what a screen reader says of it."""
        self._renderer.finalize()
        text = self._out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
        text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
        text = re.sub(r' xmlns(:xlink)?="[^"]*"| transform="rotate\(-?0 [^"]*"', "", text)
        text = re.sub(r"font-family: [^;\"]*;?", "", text)
        text = re.sub(r'="[^"]*\d\.\d[^"]*"', _rounded, text)
        text = re.sub(r"\s*\n\s*", " ", text)
        for stand_in, variable in _VARIABLES.items():
            text = text.replace(stand_in, f"var({variable})")
        head = Markup('<svg role="img" aria-label="{}" ').format(label)
        return head + Markup(text.removeprefix("<svg").strip())


def short_number(value: float) -> str:
    """Return a number for an axis: 1,200 is 1.2k, 3,000,000 is 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{unit}"
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


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
    width, height = 244.8, 111.6
    across = _Axis(float(edges[0]), float(edges[-1]), 0.12 * width, 0.98 * width, logarithmic)
    top = float(read.max(initial=1))
    filled = read[read > 0]
    # Where one bin would leave the others without height, counts are logarithmic.
    steep = len(filled) > 0 and top > 40 * float(np.median(filled))
    low, high = (0.7, top * 1.6) if steep else (0, top * 1.05)
    up = _Axis(low, high, 0.17 * height, 0.88 * height, steep)
    with mpl.rc_context(_SETTINGS):
        canvas = _Canvas(width, height)
        _draw_axes(canvas, across, up, across.ticks(6 if logarithmic else 5), up.ticks(4 if steep else 3, True))
        x = np.repeat(across.places(edges), 2)
        for counts, colour in ((read, LEFT), (kept, KEPT)):
            y = np.repeat(up.places(counts), 2)
            canvas.area(x, np.concatenate([[up.start], y, [up.start]]), colour)
        _draw_lines(canvas, across, up, lines)
        return canvas.svg(label)


def curve(x: Floats, y: Floats, lines: Sequence[Line], below: str, label: str) -> Markup:
    """Return a curve of shares from 0 to 1.

    Args:
        x, y: n points, ``x`` ascending.
        lines: thresholds to draw in.
        below: what stands at the horizontal axis.
        label: what a screen reader says of the plot.
    """
    width, height = 331.2, 165.6
    across = _Axis(float(x[0]), float(x[-1]), 0.12 * width, 0.98 * width)
    up = _Axis(0, 1.02, 0.2 * height, 0.88 * height)
    with mpl.rc_context(_SETTINGS):
        canvas = _Canvas(width, height)
        _draw_axes(canvas, across, up, across.ticks(6), up.ticks(4), _percent)
        right, high = across.places(x), up.places(y)
        canvas.area([*right, across.end, across.start], [*high, up.start, up.start], KEPT, 0.12)
        canvas.line(right, high, KEPT, 1.6)
        canvas.text((across.start + across.end) / 2, up.start - LABEL_BELOW, below, INK, "center")
        _draw_lines(canvas, across, up, lines)
        return canvas.svg(label)


def _draw_axes(
    canvas: _Canvas,
    across: _Axis,
    up: _Axis,
    across_ticks: Sequence[float],
    up_ticks: Sequence[float],
    up_text: Callable[[float], str] = short_number,
) -> None:
    ends = [across.start, across.end]
    for value, place in zip(up_ticks, up.places(up_ticks).tolist(), strict=True):
        canvas.line(ends, [place, place], FAINT, 0.4, 0.5)
        canvas.text(across.start - NUMBERS_BESIDE, place - HALF_HEIGHT, up_text(value), INK, "right")
    for value, place in zip(across_ticks, across.places(across_ticks).tolist(), strict=True):
        canvas.line([place, place], [up.start, up.start - TICK_LENGTH], FAINT, LINE_WIDTH)
        canvas.text(place, up.start - NUMBERS_BELOW, short_number(value), INK, "center")
    canvas.line(ends, [up.start, up.start], FAINT, LINE_WIDTH)


def _draw_lines(canvas: _Canvas, across: _Axis, up: _Axis, lines: Sequence[Line]) -> None:
    middle = (across.start + across.end) / 2
    for line in lines:
        place = float(across.places(line.value))
        canvas.line([place, place], [up.start, up.end], LIMIT, 1.3)
        if place > middle:
            canvas.text(place - 3, up.end + 2, line.label, LIMIT, "right")
        else:
            canvas.text(place + 3, up.end + 2, line.label, LIMIT, "left")


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), attribute[0])
