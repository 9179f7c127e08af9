"""Tokens of texts as 32-bit hashes with their places, compiled; ``filters.contamination_tokens`` says what they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, OFFSETS, ROWS, decode, pointer
from filters.contamination_tokens import (
    ALONE_BIT,
    END_OF_EXPANSION,
    EXPANDS,
    FOLDED,
    REMOVED,
    SEPARATES,
    STANDS_ALONE,
    TOKEN_MULTIPLIER,
    TOKEN_SEED,
    Entries,
)

ENTRIES = "Array(int32, 1, 'C', True)"
TEXT_ARGUMENTS = f"{OFFSETS}, {BYTES}, {ROWS}, {ENTRIES}, {ENTRIES}"

# Numba types an operation on uint64 and a plain integer as floating point.
SEED, MULTIPLIER, HALF = np.uint64(TOKEN_SEED), np.uint64(TOKEN_MULTIPLIER), np.uint64(32)
NOT_ALONE = np.uint64(0xFFFFFFFF ^ ALONE_BIT)
ALONE = np.uint64(ALONE_BIT)

Hashes = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int32]


@inlined
def finished(state: np.uint64) -> np.uint64:
    """Return the 32 bits of a token from its state."""
    state = (state ^ (state >> HALF)) * MULTIPLIER
    return (state >> HALF) & NOT_ALONE  # type: ignore[no-any-return]


@inlined
def read_tokens(
    text: Bytes,
    start: int,
    end: int,
    entries: Entries,
    expanded: Entries,
    hashes: Hashes,
    starts: Places,
    ends: Places,
) -> int:
    """Write hash, start and end of the tokens between two byte positions, and return how many there are.

    Starts and ends count bytes from ``start``.
    """
    count = 0
    state, inside, first, last = SEED, False, 0, 0
    position = start
    while position < end:
        code_point, size = int(text[position]), 1
        if code_point >= 0x80:
            code_point, size = decode(text, position)
        place = position - start
        position += size
        entry = int(entries[code_point])
        if entry < EXPANDS:
            if not inside:
                inside, first = True, place
            state = (state ^ np.uint64(entry)) * MULTIPLIER
            last = position
            continue
        if entry & REMOVED:
            continue
        part = 0
        if entry & EXPANDS:
            part = entry & FOLDED
            entry = int(expanded[part])
        while True:
            if entry < EXPANDS:
                if not inside:
                    inside, first = True, place
                state = (state ^ np.uint64(entry)) * MULTIPLIER
                last = position
            elif not entry & REMOVED:
                if inside:
                    hashes[count] = finished(state)
                    starts[count], ends[count] = first, last - start
                    count += 1
                    state, inside = SEED, False
                if entry & STANDS_ALONE:
                    hashes[count] = finished((SEED ^ np.uint64(entry & FOLDED)) * MULTIPLIER) | ALONE
                    starts[count], ends[count] = place, position - start
                    count += 1
            if int(entries[code_point]) & (EXPANDS | SEPARATES | STANDS_ALONE) != EXPANDS:
                break
            part += 1
            entry = int(expanded[part])
            if entry == END_OF_EXPANSION:
                break
    if inside:
        hashes[count] = finished(state)
        starts[count], ends[count] = first, last - start
        count += 1
    return count


@kernel(f"Tuple((int64[::1], uint32[::1], int32[::1], int32[::1]))({TEXT_ARGUMENTS})")
def token_hashes(
    offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], entries: Entries, expanded: Entries
) -> tuple[npt.NDArray[np.int64], Hashes, Places, Places]:
    """Return the tokens of n texts, see ``filters.contamination_tokens.ready_texts``.

    Returns:
        (firsts, hashes, starts, ends): the tokens of text i are numbers ``firsts[i]`` to ``firsts[i + 1] - 1``; starts
        and ends count bytes from the start of their text.
    """
    firsts = np.zeros(len(rows) + 1, np.int64)
    capacity = 64
    hashes, starts, ends = np.empty(capacity, np.uint32), np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    longest = 0
    for row in range(len(rows)):
        longest = max(longest, int(offsets[row + 1] - offsets[row]))
    own = 2 * longest + 1
    row_hashes, row_starts, row_ends = np.empty(own, np.uint32), np.empty(own, np.int32), np.empty(own, np.int32)
    text, table, parts = pointer(data), pointer(entries), pointer(expanded)
    for row in range(len(rows)):
        first, count = firsts[row], 0
        if rows[row]:
            count = read_tokens(
                text, int(offsets[row]), int(offsets[row + 1]), table, parts, row_hashes, row_starts, row_ends
            )
        if first + count > capacity:
            capacity = 2 * (first + count)
            hashes_before, starts_before, ends_before = hashes, starts, ends
            hashes, starts = np.empty(capacity, np.uint32), np.empty(capacity, np.int32)
            ends = np.empty(capacity, np.int32)
            hashes[:first], starts[:first], ends[:first] = (
                hashes_before[:first],
                starts_before[:first],
                ends_before[:first],
            )
        hashes[first : first + count] = row_hashes[:count]
        starts[first : first + count] = row_starts[:count]
        ends[first : first + count] = row_ends[:count]
        firsts[row + 1] = first + count
    total = firsts[len(rows)]
    return firsts, hashes[:total].copy(), starts[:total].copy(), ends[:total].copy()
