"""Histograms of signals: a sample of the records gives the borders, then every record is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.stages import Rule
from reports.signal_rows import Floats, SignalRows

BINS = 56
SAMPLE_ROWS = 20_000
TAIL = 0.002
# An axis is stretched to a threshold while the values still take this share of it.
LEAST_SHARE = 0.4
LOGARITHMIC_RATIO = 12
MAX_VALUES = 5_000
# Differences of larger values are not finite.
LARGEST = 1e300
_SIGNS: dict[str, Literal["≥", "≤", ""]] = {"at_least": "≥", "at_most": "≤", "decided": ""}

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Range:
    """How a signal's values lie, from a sample, and its exact extremes.

    Attributes:
        sample: finite values of sampled records.
        minimum, maximum: over all records; NaN where none has a finite value.
    """

    sample: Floats
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Threshold:
    """A limit of a rule on a signal: at least or at most this value stays, or a corpus stage decided with it.

    ``language`` is set where the limit is that of one.
    """

    rule: str
    sign: Literal["≥", "≤", ""]
    value: float
    language: str | None = None

    @property
    def text(self) -> str:
        """The limit as it is written in the plot."""
        return f"{self.sign} {self.value:,.10g}".strip() + (f" ({self.language})" if self.language else "")


def thresholds_on(rules: Iterable[Rule], signal: str) -> list[Threshold]:
    """Return the limits that rules set to a numeric signal; the verdict of a corpus stage has what it rests on."""
    found: list[Threshold] = []
    for rule in rules:
        if rule.signal != signal or rule.test not in _SIGNS:
            continue
        limits: list[tuple[str | None, float | None]] = [(None, rule.threshold), *sorted(rule.by_language.items())]
        found.extend(
            Threshold(rule.name, _SIGNS[rule.test], float(value), language)
            for language, value in limits
            if value is not None
        )
    return found


class RangeFinder:
    """Collects what is needed to choose the borders of histograms."""

    def __init__(self, columns: Sequence[str], rows: int) -> None:
        self.columns = tuple(columns)
        share = min(1.0, SAMPLE_ROWS / rows) if rows else 1.0
        self._limit = np.uint64(min(share * 2.0**64, 2.0**64 - 2048))
        self._parts: dict[str, list[Floats]] = {name: [] for name in columns}
        self._extremes: dict[str, tuple[float, float]] = {}

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        sampled = rows.keys <= self._limit
        for name in self.columns:
            values = rows.numbers(name)
            finite = values[np.isfinite(values)]
            if len(finite):
                low, high = self._extremes.get(name, (np.inf, -np.inf))
                self._extremes[name] = (min(low, float(finite.min())), max(high, float(finite.max())))
            chosen = values[sampled]
            self._parts[name].append(chosen[np.isfinite(chosen)])

    def ranges(self) -> dict[str, Range]:
        """Return what was found, for signals that have a finite value."""
        return {
            name: Range(np.concatenate(self._parts[name]), *self._extremes[name])
            for name in self.columns
            if name in self._extremes
        }


@dataclass(frozen=True)
class Borders:
    """The borders of a histogram's bins, n + 1 ascending values, and whether they widen by a factor."""

    edges: Floats
    logarithmic: bool


def choose_borders(found: Range, thresholds: Sequence[Threshold], whole: bool) -> Borders:
    """Return borders that show where most values lie, with a border at the first threshold.

    Args:
        whole: whether all values are whole numbers; a bin then holds the same number of them as any other.
    """
    low, high = max(found.minimum, -LARGEST), min(found.maximum, LARGEST)
    logarithmic = False
    if len(found.sample):
        narrow = (float(np.quantile(found.sample, TAIL)), float(np.quantile(found.sample, 1 - TAIL)))
        if narrow[1] > narrow[0]:
            low, high = narrow
        typical = float(np.median(found.sample))
        positive = float(np.quantile(found.sample, 0.02)) > 0 and low > 0
        logarithmic = positive and high > LOGARITHMIC_RATIO * typical
    for threshold in thresholds:
        value = threshold.value
        if logarithmic:
            if value > 0 and np.log(high / low) >= LEAST_SHARE * np.log(max(high, value) / min(low, value)):
                low, high = min(low, value), max(high, value * 1.02)
        elif high - low >= LEAST_SHARE * (max(high, value) - min(low, value)):
            low, high = min(low, value), max(high, value)
    if whole:
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
    if high - low < 1e-9 * max(1e-9, abs(low)):
        half = max(0.5, 1e-6 * abs(low))
        low, high = low - half, low + half
    if logarithmic:
        low = max(low, 0.5 if whole else low)
        edges = np.asarray(np.geomspace(low, high, BINS + 1), np.float64)
        if whole:
            edges = np.unique(np.floor(edges) + 0.5)
        return Borders(edges, True)
    width = (high - low) / BINS
    if whole:
        width = float(max(1, np.ceil(width)))
    start = low
    within = [place for place in (line_place(one, whole) for one in thresholds) if low <= place <= high]
    if within:
        start = within[0] - np.ceil((within[0] - low) / width - 1e-9) * width
    count = max(1, int(np.ceil((high - start) / width - 1e-9)))
    return Borders(np.asarray(start + width * np.arange(count + 1), np.float64), False)


def line_place(threshold: Threshold, whole: bool) -> float:
    """Return where the line of a threshold stands: beside the bin of a whole number that stays."""
    if whole and threshold.value == int(threshold.value):
        return threshold.value + (0.5 if threshold.sign == "≤" else -0.5)
    return threshold.value


@dataclass
class Histogram:
    """The counts of a signal's values in bins; values beyond the borders count in the first or last bin.

    Attributes:
        borders: the bins.
        read, kept: records per bin, and those of them that were kept.
        values: records that have a finite value.
    """

    borders: Borders
    read: Integers
    kept: Integers
    values: int = 0


class HistogramCounter:
    """Counts every record in the bins of all signals."""

    def __init__(self, borders: Mapping[str, Borders]) -> None:
        self.columns = tuple(borders)
        self.histograms = {}
        for name, found in borders.items():
            bins = len(found.edges) - 1
            self.histograms[name] = Histogram(found, np.zeros(bins, np.int64), np.zeros(bins, np.int64))

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        for name, histogram in self.histograms.items():
            values = rows.numbers(name)
            finite = np.isfinite(values)
            edges = histogram.borders.edges
            bins = np.clip(np.searchsorted(edges, values[finite], side="right") - 1, 0, len(edges) - 2)
            histogram.read += np.bincount(bins, minlength=len(edges) - 1)
            histogram.kept += np.bincount(bins[rows.kept[finite]], minlength=len(edges) - 1)
            histogram.values += len(bins)


class ValueCounter:
    """Counts the values of text signals; gives one up that has very many."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._counts: dict[str, dict[str, list[int]] | None] = {name: {} for name in columns}

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        for name in self.columns:
            counts = self._counts[name]
            if counts is None:
                continue
            for place, values in enumerate((rows.column(name), rows.column(name).filter(pa.array(rows.kept)))):
                for entry in values.drop_null().value_counts().to_pylist():
                    counts.setdefault(entry["values"], [0, 0])[place] += entry["counts"]
            if len(counts) > MAX_VALUES:
                self._counts[name] = None

    def largest(self, name: str, count: int) -> list[tuple[str, int, int]]:
        """Return (value, read, kept) of the most frequent values; none where there are too many to count."""
        found = self._counts[name] or {}
        ordered = sorted(found.items(), key=lambda entry: (-entry[1][0], entry[0]))
        return [(value, read, kept) for value, (read, kept) in ordered[:count]]
