"""Tokens of texts as 64-bit hashes, compiled. The texts must be in NFC; ``dedup.tokens`` says what a token is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.block_kernel import block_of, folding_block_of, lowest_bit
from corpus.jit import inlined, kernel
from corpus.span_kernel import load_8
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, OFFSETS, ROWS, decode, pointer
from dedup.tokens import (
    ASCII_SEPARATORS,
    BLOCK_BYTES,
    EXPANDS,
    FOLDED,
    LONGEST_EXPANSION,
    NUL,
    TOKEN_MULTIPLIER,
    TOKEN_SEED,
    UNSPACED,
    WORD_BYTES,
    Hashes,
)

# Signatures of the arguments that make the tokens of a batch: texts, rows, the parts of the token table, scratch.
TOKEN_ARGUMENTS = (
    f"{OFFSETS}, {BYTES}, {ROWS}, Array(int32, 1, 'C', True), Array(int32, 2, 'C', True), uint64[::1], uint8[::1]"
)

Entries = npt.NDArray[np.int32]

# Numba types an operation on uint64 and a plain integer as floating point.
SEED, MULTIPLIER = np.uint64(TOKEN_SEED), np.uint64(TOKEN_MULTIPLIER)
HALF = np.uint64(32)

zero_block = block_of(((0, 0),))
"""Read a block: bytes that are 0."""
folding_block = folding_block_of(ASCII_SEPARATORS, NUL)


@inlined
def mix(state: np.uint64, value: np.uint64, multiplier: np.uint64) -> np.uint64:
    """Return a hash state that took one more value."""
    state = (state ^ value) * multiplier
    return state ^ (state >> HALF)  # type: ignore[no-any-return]


@inlined
def encode(code_point: int, folded: Bytes, size: int) -> int:
    """Append a code point to a folded text of a size, and return the size then."""
    if code_point < 0x80:
        folded[size] = code_point or NUL
        return size + 1
    if code_point < 0x800:
        folded[size] = 0xC0 | code_point >> 6
        folded[size + 1] = 0x80 | code_point & 0x3F
        return size + 2
    if code_point < 0x10000:
        folded[size] = 0xE0 | code_point >> 12
        folded[size + 1] = 0x80 | code_point >> 6 & 0x3F
        folded[size + 2] = 0x80 | code_point & 0x3F
        return size + 3
    folded[size] = 0xF0 | code_point >> 18
    folded[size + 1] = 0x80 | code_point >> 12 & 0x3F
    folded[size + 2] = 0x80 | code_point >> 6 & 0x3F
    folded[size + 3] = 0x80 | code_point & 0x3F
    return size + 4


@inlined
def fold(
    text: Bytes, position: int, end: int, readable: int, entries: Entries, expanded: Entries, folded: Bytes
) -> int:
    """Write what stands between two byte positions as its tokens see it, with zeros between them; return its size.

    A block of zeros follows.
    """
    size = 0
    while position < end:
        if text[position] < 0x80 and position + BLOCK_BYTES <= readable:
            plain = min(folding_block(text, position, folded, size), end - position)
            position += plain
            size += plain
            continue
        code_point, width = decode(text, position)
        position += width
        entry = int(entries[code_point])
        if entry < EXPANDS:
            size = encode(entry, folded, size)
        elif entry & EXPANDS:
            first = (entry & FOLDED) * LONGEST_EXPANSION
            for place in range(first, first + LONGEST_EXPANSION):
                if expanded[place] >= 0:
                    size = encode(int(expanded[place]), folded, size)
        else:
            folded[size] = 0
            size += 1
            if entry & UNSPACED:
                size = encode(entry & FOLDED, folded, size)
                folded[size] = 0
                size += 1
    for place in range(size, size + BLOCK_BYTES):
        folded[place] = 0
    return size


@inlined
def hash_tokens(
    text: Bytes,
    position: int,
    end: int,
    readable: int,
    entries: Entries,
    expanded: Entries,
    hashes: Hashes,
    folded: Bytes,
) -> int:
    """Write the hashes of the tokens between two byte positions, and return how many there are.

    ``readable`` bytes can be read of the text. ``hashes`` and ``folded`` are as long as ``dedup.tokens.token_scratch``
    has them: one hash more is written.
    """
    size = fold(text, position, end, readable, entries, expanded, folded)
    count = start = 0
    for block in range(0, size + 1, BLOCK_BYTES):
        (zeros,) = zero_block(folded, block)
        while zeros != 0:
            place = block + lowest_bit(zeros)
            zeros &= zeros - 1
            # Without a branch: what stands between two zeros side by side is written, and not counted.
            length = place - start
            state = SEED ^ np.uint64(length)
            while length > WORD_BYTES:
                state = mix(state, np.uint64(load_8(folded, start)), MULTIPLIER)
                start += WORD_BYTES
                length -= WORD_BYTES
            last = np.uint64(load_8(folded, start)) << np.uint64((WORD_BYTES - length) * 8 & 63)
            hashes[count] = mix(state, last, MULTIPLIER)
            count += length > 0
            start = place + 1
    return count


@kernel(f"Tuple((int64[::1], uint64[::1]))({TOKEN_ARGUMENTS})")
def token_hashes(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    entries: Entries,
    expanded: Entries,
    scratch: Hashes,
    folded: Bytes,
) -> tuple[npt.NDArray[np.int64], Hashes]:
    """Return (int64[n + 1] offsets, uint64 hashes) of the tokens of n texts in NFC; see ``dedup.tokens.token_hashes``.

    ``scratch`` and ``folded`` are ``dedup.tokens.token_scratch`` of the offsets.
    """
    firsts = np.zeros(len(rows) + 1, np.int64)
    hashes = np.empty((offsets[len(rows)] - offsets[0]) // 2 + len(rows), np.uint64)
    text, table, parts = pointer(data), pointer(entries), pointer(expanded)
    tokens, room = pointer(scratch), pointer(folded)
    for row in range(len(rows)):
        count = 0
        if rows[row]:
            first, last = int(offsets[row]), int(offsets[row + 1])
            count = hash_tokens(text, first, last, len(data), table, parts, tokens, room)
        hashes[firsts[row] : firsts[row] + count] = scratch[:count]
        firsts[row + 1] = firsts[row] + count
    return firsts, hashes[: firsts[-1]].copy()
