"""How often each value of a signal occurs, in bounded memory and whatever the order in which values come.

Values are kept exactly while there are at most ``MOST_VALUES`` different ones. Beyond that their low bits go, as few as
it takes; so a value stands for a cell of neighbours, each at most 2 ** (bits - 52) of its size wide. How many bits go
depends on the set of the values alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpus.selection_keys import Words, number_words, word_numbers

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MOST_VALUES = 1 << 20
_BITS_AT_ONCE = 2
_FRACTION_BITS = 52


@dataclass(frozen=True)
class Distribution:
    """Counts of the values of n records.

    Attributes:
        keys: uint64[k], words that sort like the values, ascending; without their lowest ``bits`` bits.
        counts: int64[k], at least 1 each.
        bits: how many low bits are gone.
    """

    keys: Words
    counts: Integers
    bits: int = 0

    @staticmethod
    def of(values: Floats) -> Distribution:
        """Return the distribution of some finite values."""
        keys, counts = np.unique(number_words(values, descending=False), return_counts=True)
        return Distribution(keys, counts.astype(np.int64)).bounded()

    def __len__(self) -> int:
        return int(self.counts.sum())

    @property
    def values(self) -> Floats:
        """The values, float64[k], ascending: the lowest of a cell."""
        return word_numbers(self.keys << np.uint64(self.bits), descending=False)

    def without(self, bits: int) -> Distribution:
        """Return the distribution without so many low bits, at least those that are gone already."""
        if bits <= self.bits:
            return self
        return _summed(self.keys >> np.uint64(bits - self.bits), self.counts, bits)

    def bounded(self) -> Distribution:
        """Return the distribution with ``MOST_VALUES`` values at most."""
        found = self
        while len(found.keys) > MOST_VALUES:
            found = found.without(found.bits + _BITS_AT_ONCE)
        return found

    def plus(self, other: Distribution) -> Distribution:
        """Return the distribution of the values of both."""
        bits = max(self.bits, other.bits)
        one, two = self.without(bits), other.without(bits)
        keys = np.concatenate([one.keys, two.keys])
        # A stable sort of two ascending runs only merges them.
        order = np.argsort(keys, kind="stable")
        return _summed(keys[order], np.concatenate([one.counts, two.counts])[order], bits).bounded()

    @property
    def precision(self) -> float:
        """By how much of its size a value may be smaller than it was; 0 where all are exact."""
        return float(2.0 ** (self.bits - _FRACTION_BITS)) if self.bits else 0.0

    def at_rank(self, rank: int) -> float:
        """Return the value at a place, from 0, in the ascending order of all records' values."""
        return float(self.values[np.searchsorted(np.cumsum(self.counts), rank, "right")])

    @property
    def median(self) -> float:
        """The middle value, or the mean of the two in the middle."""
        size = len(self)
        return (self.at_rank((size - 1) // 2) + self.at_rank(size // 2)) / 2

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return float(np.sum(self.values * (self.counts / len(self))))


def _summed(keys: Words, counts: Integers, bits: int) -> Distribution:
    """Return the distribution of ascending keys of which some are equal."""
    if not len(keys):
        return Distribution(keys, counts, bits)
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return Distribution(keys[begins], np.add.reduceat(counts, begins), bits)
