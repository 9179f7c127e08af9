"""How the signals of two runs differ: numbers by their distributions, names by their shares.

Each run is read once per ``COLUMNS_AT_ONCE`` signals, in pieces, and what is kept of a signal is bounded whatever the
number of records: see ``reports.distribution`` for numbers; names are counted while there are at most ``MOST_NAMES``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reports.distribution import Distribution, Floats
from reports.drift import kolmogorov_smirnov, stability_index, total_variation

COLUMNS_AT_ONCE = 8
VALUES_AT_ONCE = 1 << 20
MOST_NAMES = 1000
LEAST_RECORDS = 10
"""Records that a name stands for on average; with fewer it is an id or free text, whose shares say nothing."""
SHOWN = 50
COUNTED = ("record_id", "source", "file", "position", "kept")
"""Columns of the signals table that are no signals."""
NUMBERS = {"int64", "double"}
NAMES = {"string", "large_string"}

Counts = Mapping[str, "NumberCounts | NameCounts"]


@dataclass(frozen=True)
class RunSignals:
    """The signals of a run.

    Attributes:
        types: the type of each column of their table, as Arrow writes it.
        batches: gives some columns in pieces, from the first record on.
    """

    types: Mapping[str, str]
    batches: Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


class NumberCounts:
    """Counts the finite values of a numeric column that comes in pieces."""

    def __init__(self) -> None:
        self.rows = 0
        self._found = Distribution.of(np.zeros(0))
        self._waiting: list[Floats] = []
        self._values_waiting = 0

    def add(self, piece: pa.Array) -> None:
        """Take over the next piece."""
        self.rows += len(piece)
        values = pc.cast(piece.drop_null(), pa.float64(), safe=False).to_numpy()
        self._waiting.append(values[np.isfinite(values)])
        self._values_waiting += len(values)
        if self._values_waiting >= VALUES_AT_ONCE:
            self._count()

    def _count(self) -> None:
        self._found = self._found.plus(Distribution.of(np.concatenate([np.zeros(0), *self._waiting])))
        self._waiting, self._values_waiting = [], 0

    def distribution(self) -> Distribution:
        """Return what all pieces have."""
        self._count()
        return self._found

    def missing_share(self) -> float:
        """Return the share of rows without a finite value."""
        return 1 - len(self.distribution()) / self.rows if self.rows else 0.0


class NameCounts:
    """Counts the values of a text column that comes in pieces."""

    def __init__(self) -> None:
        self.rows = self.known = 0
        self._names: Counter[str] = Counter()

    def add(self, piece: pa.Array) -> None:
        """Take over the next piece."""
        self.rows += len(piece)
        self.known += len(piece) - piece.null_count
        if len(self._names) <= MOST_NAMES:
            for entry in pc.value_counts(piece.drop_null()).to_pylist():
                self._names[entry["values"]] += entry["counts"]

    def names(self) -> Mapping[str, int] | None:
        """Return the records by name; None where the values are too many, or ids or free text."""
        few = len(self._names) <= MOST_NAMES and LEAST_RECORDS * len(self._names) <= self.known
        return self._names if few else None

    def missing_share(self) -> float:
        """Return the share of rows without a value."""
        return 1 - self.known / self.rows if self.rows else 0.0


def change_of(before: float | None, after: float | None) -> dict[str, float | None]:
    """Return a number of both runs and its change."""
    change = None if before is None or after is None else after - before
    return {"before": before, "after": after, "change": change}


def compare_mixtures(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    """Return how far two mixtures, records by name, are apart, and the names whose shares changed the most."""
    totals = sum(before.values()) or 1, sum(after.values()) or 1
    rows: list[dict[str, Any]] = [
        {"name": name, **change_of(before.get(name, 0) / totals[0], after.get(name, 0) / totals[1])}
        for name in sorted(before.keys() | after.keys())
    ]
    rows.sort(key=lambda row: -abs(row["change"]))
    return {"total_variation": total_variation(before, after), "names": rows[:SHOWN]}


def compare_signals(before: RunSignals, after: RunSignals) -> list[dict[str, Any]]:
    """Return for each signal of both runs how it differs, in the order of the first.

    Each entry has ``signal`` and ``missing_share``. Where both runs have values, numbers have ``median``, ``mean``,
    ``stability_index``, ``kolmogorov_smirnov`` and ``precision`` (0: exact; else the share of its size to which a value
    was rounded down), and names ``total_variation`` and ``names``.
    """
    types = {name: {kind, after.types[name]} for name, kind in before.types.items() if name in after.types}
    columns = [name for name, both in types.items() if name not in COUNTED and (both <= NUMBERS or both <= NAMES)]
    entries: list[dict[str, Any]] = []
    for start in range(0, len(columns), COLUMNS_AT_ONCE):
        some = columns[start : start + COLUMNS_AT_ONCE]
        counts = [
            _counted(run, {name: NumberCounts() if types[name] <= NUMBERS else NameCounts() for name in some})
            for run in (before, after)
        ]
        entries += [_entry(name, *(one[name] for one in counts)) for name in some]
    return entries


def _counted(run: RunSignals, counts: Counts) -> Counts:
    for batch in run.batches(list(counts)):
        for name, count in counts.items():
            count.add(batch.column(name))
    return counts


def _entry(signal: str, *counts: NumberCounts | NameCounts) -> dict[str, Any]:
    entry: dict[str, Any] = {"signal": signal, "missing_share": change_of(*(count.missing_share() for count in counts))}
    numbers = [count.distribution() for count in counts if isinstance(count, NumberCounts)]
    names = [count.names() for count in counts if isinstance(count, NameCounts)]
    if numbers and all(map(len, numbers)):
        entry |= {
            "median": change_of(*(one.median for one in numbers)),
            "mean": change_of(*(one.mean for one in numbers)),
            "stability_index": stability_index(*numbers),
            "kolmogorov_smirnov": kolmogorov_smirnov(*numbers),
            "precision": max(one.precision for one in numbers),
        }
    known = [one for one in names if one]
    if len(known) == len(counts):
        entry |= compare_mixtures(*known)
    return entry
