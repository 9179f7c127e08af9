"""Tokens of texts as 64-bit hashes, compiled. The texts must be in NFC; ``dedup.tokens`` says what a token is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, OFFSETS, ROWS, decode, pointer
from dedup.tokens import (
    EXPANDS,
    FOLDED,
    LONGEST_EXPANSION,
    TOKEN_MULTIPLIER,
    TOKEN_SEED,
    UNSPACED,
    Hashes,
)

# Signatures of the arguments that make the tokens of a batch: texts, rows, the two parts of the token table, scratch.
TOKEN_ARGUMENTS = f"{OFFSETS}, {BYTES}, {ROWS}, Array(int32, 1, 'C', True), Array(int32, 2, 'C', True), uint64[::1]"

Entries = npt.NDArray[np.int32]

# Numba types an operation on uint64 and a plain integer as floating point.
SEED, MULTIPLIER = np.uint64(TOKEN_SEED), np.uint64(TOKEN_MULTIPLIER)
HALF = np.uint64(32)


@inlined
def mix(state: np.uint64, value: np.uint64, multiplier: np.uint64) -> np.uint64:
    """Return a hash state that took one more value."""
    state = (state ^ value) * multiplier
    return state ^ (state >> HALF)  # type: ignore[no-any-return]


@inlined
def hash_tokens(text: Bytes, position: int, end: int, entries: Entries, expanded: Entries, hashes: Hashes) -> int:
    """Write the hashes of the tokens between two byte positions, and return how many there are."""
    count = 0
    state, inside = SEED, False
    while position < end:
        code_point, size = int(text[position]), 1
        if code_point >= 0x80:
            code_point, size = decode(text, position)
        position += size
        entry = int(entries[code_point])
        if entry < EXPANDS:
            state, inside = mix(state, np.uint64(entry), MULTIPLIER), True
            continue
        if entry & EXPANDS:
            first = (entry & FOLDED) * LONGEST_EXPANSION
            for place in range(first, first + LONGEST_EXPANSION):
                if expanded[place] >= 0:
                    state = mix(state, np.uint64(expanded[place]), MULTIPLIER)
            inside = True
            continue
        if inside:
            hashes[count] = state
            count += 1
            state, inside = SEED, False
        if entry & UNSPACED:
            hashes[count] = mix(SEED, np.uint64(entry & FOLDED), MULTIPLIER)
            count += 1
    if inside:
        hashes[count] = state
        count += 1
    return count


@kernel(f"Tuple((int64[::1], uint64[::1]))({TOKEN_ARGUMENTS})")
def token_hashes(
    offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], entries: Entries, expanded: Entries, scratch: Hashes
) -> tuple[npt.NDArray[np.int64], Hashes]:
    """Return (int64[n + 1] offsets, uint64 hashes) of the tokens of n texts in NFC; see ``dedup.tokens.token_hashes``.

    ``scratch`` is ``dedup.tokens.token_scratch`` of the offsets.
    """
    firsts = np.zeros(len(rows) + 1, np.int64)
    hashes = np.empty((offsets[len(rows)] - offsets[0]) // 2 + len(rows), np.uint64)
    text, table, parts, tokens = pointer(data), pointer(entries), pointer(expanded), pointer(scratch)
    for row in range(len(rows)):
        count = 0
        if rows[row]:
            count = hash_tokens(text, int(offsets[row]), int(offsets[row + 1]), table, parts, tokens)
        hashes[firsts[row] : firsts[row] + count] = scratch[:count]
        firsts[row + 1] = firsts[row] + count
    return firsts, hashes[: firsts[-1]].copy()
