"""How many shingles two texts share, compiled.

Each step of a merge waits for the comparison before it. So two sets are cut into four ranges at three members of the
first, and four merges, one per range, run side by side; that takes less than half the time. They run in blocks of steps
in which no range can end. Behind each block a pair is given up that cannot reach the least similarity any more, even if
all members still to come were common: most candidates are no near-duplicates, and end about half way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text_kernel import pointer
from dedup.shingles import Counts
from dedup.tokens import Hashes

PAIRS = "Array(int32, 1, 'C', True)"
BLOCKS, SHORTEST_BLOCK = 8, 16
"""About how many blocks of steps a merge of two equal sets takes, and the fewest steps of one."""
ROUNDING = 1e-3


@inlined
def first_not_below(hashes: Hashes, first: int, end: int, value: np.uint64) -> int:
    """Return the first place in an ascending range whose hash is at least a value, or the end of the range."""
    while first < end:
        middle = (first + end) // 2
        if hashes[middle] < value:
            first = middle + 1
        else:
            end = middle
    return first


@inlined
def step(hashes: Hashes, a: int, b: int) -> tuple[bool, int, int]:
    """Compare the heads of two ascending ranges; return whether they are equal, and the heads that come next."""
    left, right = hashes[a], hashes[b]
    return left == right, a + (left <= right), b + (right <= left)


@inlined
def count_common(hashes: Hashes, a: int, a_end: int, b: int, b_end: int) -> int:
    """Return how many hashes two ascending ranges of distinct hashes share, by one merge."""
    common = 0
    while a < a_end and b < b_end:
        equal, a, b = step(hashes, a, b)
        common += equal
    return common


@inlined
def count_common_side_by_side(hashes: Hashes, a: int, a_end: int, b: int, b_end: int, least: float) -> int:
    """Return how many hashes two ascending ranges of distinct hashes share, by four merges, or -1.

    Args:
        least: number of common hashes below which the pair may be given up.
    """
    quarter = (a_end - a) // 4
    a1, a2, a3 = a + quarter, a + 2 * quarter, a + 3 * quarter
    a1_end, a2_end, a3_end = a1, a2, a3
    b2 = first_not_below(hashes, b, b_end, hashes[a2])
    b1 = first_not_below(hashes, b, b2, hashes[a1])
    b3 = first_not_below(hashes, b2, b_end, hashes[a3])
    b1_end, b2_end, b3_end = b1, b2, b3
    block = quarter // BLOCKS + SHORTEST_BLOCK
    common = 0
    while True:
        left, left_1 = min(a1_end - a, b1_end - b), min(a2_end - a1, b2_end - b1)
        left_2, left_3 = min(a3_end - a2, b3_end - b2), min(a_end - a3, b_end - b3)
        if common + left + left_1 + left_2 + left_3 < least:
            return -1
        # A step moves each head by one at most.
        steps = min(min(left, left_1), min(left_2, left_3), block)
        if steps == 0:
            break
        for _ in range(steps):
            equal, a, b = step(hashes, a, b)
            equal_1, a1, b1 = step(hashes, a1, b1)
            equal_2, a2, b2 = step(hashes, a2, b2)
            equal_3, a3, b3 = step(hashes, a3, b3)
            common += equal + equal_1 + equal_2 + equal_3
    common += count_common(hashes, a, a1_end, b, b1_end) + count_common(hashes, a1, a2_end, b1, b2_end)
    return common + count_common(hashes, a2, a3_end, b2, b3_end) + count_common(hashes, a3, a_end, b3, b_end)


@kernel(
    f"Tuple((int32[::1], int32[::1]))(Array(int64, 1, 'C', True), Array(uint64, 1, 'C', True), {PAIRS}, {PAIRS}, "
    "float64)"
)
def merged_counts(
    offsets: npt.NDArray[np.int64], hashes: Hashes, first: Counts, second: Counts, least: float
) -> tuple[Counts, Counts]:
    """Return the sizes of intersection and union of n pairs of sets, int32[n] each.

    Args:
        offsets, hashes: sets of ascending distinct hashes, as from ``dedup.shingles.shingle_sets``.
        first, second: int32[n], the numbers of the two sets of each pair.
        least: similarity below which a pair may be given up; its intersection is then given as 0.
    """
    intersections, unions = np.empty(len(first), np.int32), np.empty(len(first), np.int32)
    members = pointer(hashes)
    share = least / (1 + least)
    for pair in range(len(first)):
        a, a_end = offsets[first[pair]], offsets[first[pair] + 1]
        b, b_end = offsets[second[pair]], offsets[second[pair] + 1]
        # Of sets of so many members in all, these are common at least; a little less, since floats are rounded.
        least_common = share * (a_end - a + b_end - b) - ROUNDING
        if min(a_end - a, b_end - b) < least_common:
            common = 0
        elif a_end - a < 4:  # nothing to cut at
            common = count_common(members, a, a_end, b, b_end)
        else:
            common = max(0, count_common_side_by_side(members, a, a_end, b, b_end, least_common))
        intersections[pair], unions[pair] = common, a_end - a + b_end - b - common
    return intersections, unions
