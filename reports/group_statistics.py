"""What the HTML report adds up by group while it streams the signals: characters, sizes of clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.signal_rows import SignalRows, group_numbers

# Smallest cluster of each line of the table; the last line is open.
SIZES = (2, 3, 4, 5, 6, 11, 21, 51, 101, 1001)


class CharacterCounter:
    """Adds up characters, as read, by the values of a column; only of the groups that are shown.

    Attributes:
        read, kept: code points per group, in the order of the names.
    """

    def __init__(self, column: str, names: Sequence[str]) -> None:
        self.column, self.names = column, list(names)
        self.columns = (column, "input.characters")
        self.read = np.zeros(len(names), np.int64)
        self.kept = np.zeros(len(names), np.int64)

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        groups = group_numbers(rows.column(self.column), self.names)
        characters = rows.column("input.characters").to_numpy()
        for total, chosen in ((self.read, groups >= 0), (self.kept, (groups >= 0) & rows.kept)):
            # Sums of float64 are exact here: fewer than 2**16 records of at most 15 million characters.
            found = np.bincount(groups[chosen], characters[chosen].astype(np.float64), minlength=len(self.names))
            total += found.astype(np.int64)


class ClusterSizes:
    """Counts the clusters of a duplicate stage by size: each leader once."""

    def __init__(self, stage: str) -> None:
        self._size, self._copy = f"{stage}.cluster_size", f"{stage}.copy_index"
        self.columns = (self._size, self._copy)
        self.clusters = np.zeros(len(SIZES), np.int64)
        self.records = np.zeros(len(SIZES), np.int64)

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        sizes = rows.numbers(self._size)
        sizes = sizes[(rows.numbers(self._copy) == 0) & (sizes >= SIZES[0])]
        places = np.searchsorted(SIZES, sizes, side="right") - 1
        self.clusters += np.bincount(places, minlength=len(SIZES))
        self.records += np.bincount(places, sizes, minlength=len(SIZES)).astype(np.int64)

    def table(self) -> list[tuple[str, int, int]]:
        """Return (sizes, clusters, records in them) of each line up to the largest size that occurs."""
        filled = np.flatnonzero(self.clusters)
        lines = []
        for place in range(int(filled[-1]) + 1 if len(filled) else 0):
            last = SIZES[place + 1] - 1 if place + 1 < len(SIZES) else None
            text = (
                f"{SIZES[place]:,}"
                if last == SIZES[place]
                else f"{SIZES[place]:,}–{last:,}"
                if last
                else f"{SIZES[place]:,}+"
            )
            lines.append((text, int(self.clusters[place]), int(self.records[place])))
        return lines
