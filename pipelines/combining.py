"""What duplicate stages and selections sum up over all batches: packed bytes in, packed bytes out."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
import numpy as np

from corpus import selection
from dedup import components
from dedup.verification import unpack_edges

PAIR_COUNTS = ("proposed", "verified", "at_threshold", "not_compared")
OVERFLOW = b"overflow"
EDGES_PER_ELEMENT = 1 << 18


def pack_counts(
    *, pairs: bytes | None = None, at_threshold: int = 0, not_compared: int = 0, shuffled: int = 0
) -> bytes:
    """Return the counts of a step as bytes: those of ``PAIR_COUNTS``, then the bytes that it shuffles.

    Args:
        pairs: packed counts of the pairs, to which the others are added.
    """
    counts = np.zeros(len(PAIR_COUNTS) + 1, np.int64)
    if pairs is not None:
        counts[: len(PAIR_COUNTS)] = np.frombuffer(pairs, np.int64)
    counts[PAIR_COUNTS.index("at_threshold")] += at_threshold
    counts[PAIR_COUNTS.index("not_compared")] += not_compared
    counts[-1] = shuffled
    return counts.tobytes()


class MergeTotals(beam.CombineFn):  # type: ignore[misc]
    """Packed totals -> their sum, packed."""

    def create_accumulator(self) -> bytes:
        """Return the totals of nothing."""
        return selection.merge_totals([])

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add totals."""
        return selection.merge_totals([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Add any number."""
        return selection.merge_totals(accumulators)

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the totals."""
        return accumulator


class MergeSamples(beam.CombineFn):  # type: ignore[misc]
    """Packed samples -> all of them, packed."""

    def __init__(self, width: int) -> None:
        self.width = width

    def create_accumulator(self) -> bytes:
        """Return no sample."""
        return selection.merge_samples([], self.width)

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add samples."""
        return selection.merge_samples([mutable_accumulator, element], self.width)

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Add any number."""
        return selection.merge_samples(accumulators, self.width)

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the samples."""
        return accumulator


class Forest(beam.CombineFn):  # type: ignore[misc]
    """Packed edges -> the packed forest of their components, or ``OVERFLOW`` where that has too many records."""

    def __init__(self, most: int) -> None:
        self.most = most * components.PAIR_BYTES

    def create_accumulator(self) -> bytes:
        """Return the forest of nothing."""
        return components.create()

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add edges."""
        if mutable_accumulator == OVERFLOW:
            return OVERFLOW
        table = unpack_edges([element])
        return components.add(mutable_accumulator, components.pack_pairs(table[:, 0], table[:, 1]))

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Add forests."""
        parts = list(accumulators)
        if OVERFLOW in parts:
            return OVERFLOW
        merged = components.merge(parts)
        # What is pending beside the forest may be as much again.
        return OVERFLOW if len(merged) > 4 * self.most + 16 * components.PENDING_PAIRS else merged

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the forest."""
        if accumulator == OVERFLOW:
            return OVERFLOW
        forest = components.extract(accumulator)
        return OVERFLOW if len(forest) > self.most else forest


class Sum(beam.CombineFn):  # type: ignore[misc]
    """Numbers -> their sum; it is there once all of them are."""

    def create_accumulator(self) -> int:
        """Return 0."""
        return 0

    def add_input(self, mutable_accumulator: int, element: int) -> int:
        """Add one number."""
        return mutable_accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        """Add sums."""
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        """Return the sum."""
        return accumulator


class SumCounts(beam.CombineFn):  # type: ignore[misc]
    """Packed counts -> their sums."""

    def create_accumulator(self) -> bytes:
        """Return zeros."""
        return pack_counts()

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add counts."""
        return self.merge_accumulators([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Add any number."""
        sums = np.zeros(len(PAIR_COUNTS) + 1, np.int64)
        for data in accumulators:
            sums += np.frombuffer(data, np.int64)
        return sums.tobytes()

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the sums."""
        return accumulator
