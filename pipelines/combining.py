"""What duplicate stages and selections sum up over all batches: packed bytes in, packed bytes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from corpus import selection
from corpus.errors import ThresherError
from dedup import components
from dedup.verification import unpack_edges

PAIR_COUNTS = ("proposed", "verified", "at_threshold", "not_compared")
MOVED = ("keys", "cliques", "candidates", "ends", "edges", "labelled", "nodes")
COUNTS = len(PAIR_COUNTS) + 2 + len(MOVED)
OVERFLOW = b"overflow"
EDGES_PER_ELEMENT = 1 << 18


def pack_counts(
    *,
    pairs: bytes | None = None,
    at_threshold: int = 0,
    not_compared: int = 0,
    shuffled: int = 0,
    members: int = 0,
    **moved: int,
) -> bytes:
    """Return the counts of a step as bytes.

    Args:
        pairs: packed counts of the pairs, to which the next two are added.
        shuffled: bytes that the step shuffles.
        members: records in clusters of two and more.
        moved: what goes from step to step, by the names of ``MOVED``: what a step sends counts up, what it gets down.
    """
    counts = np.zeros(COUNTS, np.int64)
    if pairs is not None:
        counts[: len(PAIR_COUNTS)] = np.frombuffer(pairs, np.int64)
    counts[PAIR_COUNTS.index("at_threshold")] += at_threshold
    counts[PAIR_COUNTS.index("not_compared")] += not_compared
    counts[len(PAIR_COUNTS)] = shuffled
    counts[len(PAIR_COUNTS) + 1] = members
    for name, number in moved.items():
        counts[len(PAIR_COUNTS) + 2 + MOVED.index(name)] = number
    return counts.tobytes()


def large_groups(sizes: bytes, most: int) -> set[int]:
    """Return the partitions whose groups have references only.

    Args:
        sizes: packed totals by partition, whose weights are bytes.
        most: bytes that a group may have; half of them are reckoned with, for what the sizes do not know.
    """
    parts, _, sent = selection.unpack_totals(sizes)
    return set(parts[sent > most // 2].tolist())


@dataclass(frozen=True)
class StageCounts:
    """The sums of all counts of a duplicate stage.

    Attributes:
        pairs: by the names of ``PAIR_COUNTS``.
        shuffled: bytes.
        members: records in clusters of two and more.
    """

    pairs: dict[str, int]
    shuffled: int
    members: int

    @staticmethod
    def of(stage: str, packed: bytes) -> StageCounts:
        """Return the counts. Raises ThresherError where a step did not get what another one sent."""
        counts = np.frombuffer(packed, np.int64).tolist()
        pairs = dict(zip(PAIR_COUNTS, counts, strict=False))
        shuffled, members, *moved = counts[len(PAIR_COUNTS) :]
        lost = [f"{number:,} bytes of {name}" for name, number in zip(MOVED, moved, strict=True) if number]
        if lost:
            raise ThresherError(
                f"{stage}: the engine lost or repeated {', '.join(lost)} between two steps; run the same command "
                "again, with fewer workers if it happens again"
            )
        return StageCounts(pairs, shuffled, members)


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
    """(Home, packed edges) -> the packed forest of all components, or ``OVERFLOW`` where it has too many records."""

    def __init__(self, most: int) -> None:
        self.most = most * components.PAIR_BYTES

    def create_accumulator(self) -> bytes:
        """Return the forest of nothing."""
        return components.create()

    def add_input(self, mutable_accumulator: bytes, element: tuple[int, bytes]) -> bytes:
        """Add edges."""
        table = unpack_edges([element[1]])
        pairs = components.add(components.create(), components.pack_pairs(table[:, 0], table[:, 1]))
        return self.merge_accumulators([mutable_accumulator, pairs])

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
        sums = np.zeros(COUNTS, np.int64)
        for data in accumulators:
            sums += np.frombuffer(data, np.int64)
        return sums.tobytes()

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the sums."""
        return accumulator
