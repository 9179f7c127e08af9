"""How many shingles the two sets of each of many pairs share: by merges, or by bits where sets meet again and again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup.shingles import Counts
from dedup.tokens import Hashes

Integers = npt.NDArray[np.int64]

# Measured: a member costs about a hundred times as much to be numbered as to be merged.
OFTEN = 200
# A word of bits costs up to as much as a merged member, on processors without wide vectors.
GAIN = 2
ROWS_BYTES = 128 << 20


def jaccard_reference(first: set[int], second: set[int]) -> tuple[int, int]:
    """Return the sizes of intersection and union of two sets: the plain-Python reference."""
    return len(first & second), len(first | second)


def jaccard_counts(
    offsets: Integers, hashes: Hashes, first: Counts, second: Counts, least: float
) -> tuple[Counts, Counts]:
    """Return the sizes of intersection and union of n pairs of sets, int32[n] each.

    Args:
        offsets, hashes: sets of ascending distinct hashes, as from ``dedup.shingles.shingle_sets``.
        first, second: int32[n], the numbers of the two sets of each pair, which are not the same.
        least: similarity below which a pair may be given up; its intersection may then be given as 0.
    """
    from dedup.shingles_overlap_kernel import merged_counts

    sizes = np.diff(offsets).astype(np.int32)
    both = sizes[first] + sizes[second]
    merged = int(both.sum(dtype=np.int64))
    common = _by_bits(offsets, hashes, first, second, merged) if merged > OFTEN * len(hashes) else None
    if common is None:
        return merged_counts(offsets, hashes, first, second, least)
    return common, both - common


def _by_bits(offsets: Integers, hashes: Hashes, first: Counts, second: Counts, merged: int) -> Counts | None:
    """Return the sizes of intersections, or None where merges of so many members take less."""
    from dedup.shared_shingles_kernel import bit_rows, count_shared, number_hashes

    numbers, counts = number_hashes(hashes)
    is_shared = counts > 1
    words = -(-int(is_shared.sum()) // 64)
    if GAIN * words * len(first) > merged or 8 * words * (len(offsets) - 1) > ROWS_BYTES:
        return None
    bit_of = np.where(is_shared, np.cumsum(is_shared) - 1, -1).astype(np.int32)
    return count_shared(bit_rows(offsets, numbers, bit_of, words), first, second)
