"""MinHash signatures of texts in one sweep, compiled; ``dedup.signatures`` says what they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import pointer
from dedup.shingles_kernel import count_shingles, hash_shingle
from dedup.signatures import EMPTY, Signatures
from dedup.tokens import Hashes
from dedup.tokens_kernel import TOKEN_ARGUMENTS, Entries, hash_tokens

CONSTANTS = "Array(uint32, 1, 'C', True)"

# The finaliser of MurmurHash3.
FIRST_SHIFT, SECOND_SHIFT = np.uint32(16), np.uint32(13)
FIRST_MULTIPLIER, SECOND_MULTIPLIER = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)

BLOCK = 2048
"""Shingles that go through all permutations together: they stay in the first-level cache."""
PADDING = 32
"""A block is filled up to a multiple of this, so that no rest of it falls out of the vectors."""


@inlined
def premix(value: np.uint32) -> np.uint32:
    """Return the finaliser of MurmurHash3, a bijection of the 32-bit numbers."""
    value = np.uint32((value ^ (value >> FIRST_SHIFT)) * FIRST_MULTIPLIER)
    value = np.uint32((value ^ (value >> SECOND_SHIFT)) * SECOND_MULTIPLIER)
    return np.uint32(value ^ (value >> FIRST_SHIFT))  # type: ignore[no-any-return]


@inlined
def lower_minima(
    block: Signatures, count: int, multipliers: Signatures, addends: Signatures, minima: Signatures, permutations: int
) -> None:
    """Lower the minima by a block of premixed shingles.

    For each permutation the loop over shingles is a reduction, which compiles to vectors held in registers.
    """
    while count % PADDING:
        block[count] = block[0]
        count += 1
    for permutation in range(permutations):
        multiplier, addend = multipliers[permutation], addends[permutation]
        least = minima[permutation]
        for place in range(count):
            least = min(least, np.uint32(multiplier * block[place] + addend))
        minima[permutation] = least


@kernel(f"Tuple((uint32[:, ::1], int32[::1]))({TOKEN_ARGUMENTS}, int64, {CONSTANTS}, {CONSTANTS})")
def sweep(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    entries: Entries,
    expanded: Entries,
    scratch: Hashes,
    folded: Bytes,
    size: int,
    multipliers: Signatures,
    addends: Signatures,
) -> tuple[Signatures, npt.NDArray[np.int32]]:
    """Return signatures and numbers of tokens of n texts in NFC; see ``dedup.signatures.signatures``.

    ``scratch`` and ``folded`` are ``dedup.tokens.token_scratch`` of the offsets.
    """
    permutations = len(multipliers)
    values = np.full((len(rows), permutations), EMPTY, np.uint32)
    token_counts = np.zeros(len(rows), np.int32)
    block, minima = np.empty(BLOCK, np.uint32), np.empty(permutations, np.uint32)
    text, table, parts = pointer(data), pointer(entries), pointer(expanded)
    tokens, room = pointer(scratch), pointer(folded)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        first, last = int(offsets[row]), int(offsets[row + 1])
        found = hash_tokens(text, first, last, len(data), table, parts, tokens, room)
        token_counts[row] = found
        minima[:] = EMPTY
        waiting = 0
        for place in range(count_shingles(found, size)):
            block[waiting] = premix(np.uint32(hash_shingle(tokens, place, min(size, found))))
            waiting += 1
            if waiting == BLOCK:
                lower_minima(block, waiting, multipliers, addends, minima, permutations)
                waiting = 0
        lower_minima(block, waiting, multipliers, addends, minima, permutations)
        values[row] = minima
    return values, token_counts
