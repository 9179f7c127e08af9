"""Pairs of cliques, and the signatures that rule most of them out, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text_kernel import pointer

Integers = npt.NDArray[np.int64]
Members = npt.NDArray[np.int32]
Signatures = npt.NDArray[np.uint32]

INTEGERS = "Array(int64, 1, 'C', True)"
MEMBERS = "Array(int32, 1, 'C', True)"
MATRIX = "Array(int32, 2, 'C', True)"
SIGNATURES = "Array(uint32, 2, 'C', True)"

# Pairs found, pairs compared, clique, first member and second member to go on with.
FOUND, COMPARED, CLIQUE, FIRST, SECOND = 0, 1, 2, 3, 4


@inlined
def same_minima(signatures: Signatures, first: int, second: int, permutations: int) -> int:
    """Return in how many permutations two signatures agree."""
    same = 0
    for place in range(permutations):
        same += signatures[first + place] == signatures[second + place]
    return same


@kernel(
    f"void({INTEGERS}, {MEMBERS}, Array(uint16, 1, 'C', True), {MATRIX}, {SIGNATURES}, int64, "
    "Array(int32, 2, 'C'), Array(int64, 1, 'C'))"
)
def likely_pairs(
    offsets: Integers,
    members: Members,
    bands: npt.NDArray[np.uint16],
    clique_of: npt.NDArray[np.int32],
    signatures: Signatures,
    least: int,
    pairs: npt.NDArray[np.int32],
    state: Integers,
) -> None:
    """Find the pairs of cliques whose signatures agree often enough, each pair once; stop where there is no more room.

    Args:
        offsets: int64[c + 1] of the cliques in ``members``.
        members: int32, the rows of ``signatures`` that each clique has.
        bands: uint16[c], the band of each clique.
        clique_of: int32[n, b], the clique of each row in each band, -1 where it is in none.
        signatures: uint32[n, permutations].
        least: fewest permutations in which the two of a pair agree.
        pairs: int32[room, 2], takes the pairs.
        state: int64[5], all 0 at first, see the constants; goes on where the last call stopped. All pairs were found
            once its clique is c.
    """
    rows = pointer(signatures)
    permutations = signatures.shape[1]
    found = 0
    clique, first, second = state[CLIQUE], state[FIRST], state[SECOND]
    while clique < len(bands):
        start, size, band = offsets[clique], offsets[clique + 1] - offsets[clique], int(bands[clique])
        while first < size:
            left = int(members[start + first])
            second = max(second, first + 1)
            while second < size:
                right = int(members[start + second])
                known = False
                for earlier in range(band):
                    known |= clique_of[left, earlier] >= 0 and clique_of[left, earlier] == clique_of[right, earlier]
                if not known:
                    state[COMPARED] += 1
                    if same_minima(rows, left * permutations, right * permutations, permutations) >= least:
                        if found == len(pairs):
                            state[COMPARED] -= 1
                            state[FOUND], state[CLIQUE], state[FIRST], state[SECOND] = found, clique, first, second
                            return
                        pairs[found, 0], pairs[found, 1] = left, right
                        found += 1
                second += 1
            first += 1
            second = 0
        clique += 1
        first = 0
    state[FOUND], state[CLIQUE], state[FIRST], state[SECOND] = found, clique, 0, 0


@kernel(
    f"int64({INTEGERS}, {INTEGERS}, {SIGNATURES}, int64, Array(int64, 1, 'C'), Array(uint8, 1, 'C', True), "
    "Array(int32, 2, 'C'))"
)
def next_pairs(
    order: Integers,
    ends: Integers,
    signatures: Signatures,
    least: int,
    places: Integers,
    done: npt.NDArray[np.uint8],
    pairs: npt.NDArray[np.int32],
) -> int:
    """Find, for each member of an ordered clique, the next earlier member that it may be similar to.

    Args:
        order: int64[m], the members (rows of ``signatures``) in the total order.
        ends: int64[m], the place behind the last one that each is compared with, itself at most.
        signatures: uint32[n, permutations].
        least: fewest permutations in which the two of a pair agree.
        places: int64[m], the place each member goes on from; moved on behind the one found, or to the end.
        done: uint8[m], members that need no more.
        pairs: int32[m, 2], takes (place of the member, place of the earlier one).

    Returns:
        The number of pairs found.
    """
    rows = pointer(signatures)
    permutations = signatures.shape[1]
    found = 0
    for member in range(len(order)):
        if done[member]:
            continue
        place = places[member]
        end = min(member, ends[member])
        while place < end:
            left, right = order[member] * permutations, order[place] * permutations
            place += 1
            if same_minima(rows, left, right, permutations) >= least:
                pairs[found, 0], pairs[found, 1] = member, place - 1
                found += 1
                break
        places[member] = place
    return found
