"""Counts of records per source or file, packed, and how far a group's shares of bad records are from the others'.

A group is known by a 64-bit hash of its name; ``place`` is the smallest key of a batch that has one of its records, so
that the name can be looked up. Counts are integers, so sums do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpus.packing import pack_arrays, unpack_arrays

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

GROUP_BYTES = 40

NORMAL_CONSISTENCY = 0.6745
"""Median absolute deviation of a normal distribution with a standard deviation of 1 (Iglewicz and Hoaglin 1993)."""


@dataclass(frozen=True)
class Groups:
    """Counts of g groups, by ascending hash.

    Attributes:
        hashes: uint64[g].
        places: int64[g], key of a batch.
        read: int64[g], records recognised in the input.
        dead: int64[g], those of them that became dead letters.
        dropped: int64[g], those that the stages before dropped.
    """

    hashes: Hashes
    places: Integers
    read: Integers
    dead: Integers
    dropped: Integers

    def __len__(self) -> int:
        return len(self.hashes)

    def pack(self) -> bytes:
        """Return the groups as bytes."""
        return pack_arrays([self.hashes, self.places, self.read, self.dead, self.dropped])

    @staticmethod
    def unpack(data: bytes) -> Groups:
        """Return the groups that ``pack`` packed."""
        return Groups(*unpack_arrays(data, (np.uint64, np.int64, np.int64, np.int64, np.int64)))

    def take(self, rows: npt.NDArray[np.intp]) -> Groups:
        """Return some of the groups."""
        return Groups(self.hashes[rows], self.places[rows], self.read[rows], self.dead[rows], self.dropped[rows])

    @property
    def dead_shares(self) -> Floats:
        """Dead records of those read, float64[g]."""
        return np.asarray(self.dead / np.maximum(self.read, 1), np.float64)

    @property
    def drop_shares(self) -> Floats:
        """Dropped records of those that are not dead, float64[g]; 0 where there are none."""
        return np.asarray(self.dropped / np.maximum(self.read - self.dead, 1), np.float64)


def count_groups(key: int, records: Hashes, alive: Mask, dead: Hashes, unjudged: Mask | None = None) -> Groups:
    """Return the counts of one batch.

    Args:
        key: the batch's key.
        records: uint64[n], the group of each decoded record.
        alive: bool[n], which of them reach the stage.
        dead: uint64[m], the group of each dead letter that is a record.
        unjudged: bool[n], which decoded records became dead letters, since a stage could not judge them; None for none.
    """
    failed = np.zeros(len(records), np.bool_) if unjudged is None else unjudged
    hashes, inverse = np.unique(np.concatenate([records, dead]), return_inverse=True)
    inverse = inverse.reshape(-1)
    of_records, of_dead = inverse[: len(records)], inverse[len(records) :]

    def count(numbers: npt.NDArray[np.intp]) -> Integers:
        return np.bincount(numbers, minlength=len(hashes)).astype(np.int64)

    dead_records = count(of_dead) + count(of_records[failed])
    dropped = count(of_records[~alive & ~failed])
    return Groups(hashes, np.full(len(hashes), key, np.int64), count(inverse), dead_records, dropped)


def merge_groups(parts: Iterable[Groups]) -> Groups:
    """Return the sums of the counts of any number of batches."""
    chosen = [part for part in parts if len(part)]
    if not chosen:
        none = np.zeros(0, np.int64)
        return Groups(none.astype(np.uint64), none, none, none, none)
    hashes = np.concatenate([part.hashes for part in chosen])
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    places = np.concatenate([part.places for part in chosen])[order]
    sums = [
        np.add.reduceat(np.concatenate([getattr(part, name) for part in chosen])[order], begins)
        for name in ("read", "dead", "dropped")
    ]
    return Groups(hashes[begins], np.minimum.reduceat(places, begins), *sums)


def deviations(shares: Floats, smallest_spread: float) -> Floats:
    """Return how many spreads each share lies above the median of all, float64[g]: the modified z-score.

    0.6745 (x - median) / MAD, with the median absolute deviation MAD, which a few outliers cannot move (B. Iglewicz and
    D. C. Hoaglin, How to Detect and Handle Outliers, 1993). The spread MAD / 0.6745 counts as ``smallest_spread`` at
    least: where nearly all groups are spotless, one bad record would make a group an outlier otherwise.
    """
    if not len(shares):
        return shares
    distances = shares - np.median(shares)
    spread = np.median(np.abs(distances)) / NORMAL_CONSISTENCY
    return np.asarray(distances / max(float(spread), smallest_spread), np.float64)
