"""Sets of shingle hashes of texts, compiled; ``dedup.shingles`` says what they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import pointer
from dedup.shingles import SHINGLE_MULTIPLIER, SHINGLE_SEED, Counts, ShingleSets
from dedup.tokens import Hashes
from dedup.tokens_kernel import TOKEN_ARGUMENTS, Entries, hash_tokens, mix

SEED, MULTIPLIER = np.uint64(SHINGLE_SEED), np.uint64(SHINGLE_MULTIPLIER)

DIGIT_BITS, DIGITS = 8, 8
DIGIT_VALUES = 1 << DIGIT_BITS
DIGIT_MASK = np.uint64(DIGIT_VALUES - 1)
FEW = 64
"""Up to so many hashes are sorted by insertion, which is faster then than passes over counters."""
SPREAD_BITS = 16
MOST_SPREAD = 16 << SPREAD_BITS
"""Up to so many hashes are spread by their leading bits, 16 to a place where they are even."""
MOST_MOVES = 8
"""So many moves per hash may follow; even hashes take a half where they are few, four where they are most."""
COUNTERS = max(DIGITS * DIGIT_VALUES, 1 << SPREAD_BITS)


@inlined
def count_shingles(tokens: int, size: int) -> int:
    """Return the number of runs of ``size`` of so many tokens; fewer make one run, none make none."""
    return max(tokens - size + 1, min(tokens, 1))


@inlined
def hash_shingle(tokens: Hashes, first: int, size: int) -> np.uint64:
    """Return the hash of the run of ``size`` tokens that begins at a place."""
    state = SEED ^ np.uint64(size)
    for place in range(first, first + size):
        state = mix(state, tokens[place], MULTIPLIER)
    return state  # type: ignore[no-any-return]


@inlined
def sort_few(hashes: Hashes, first: int, count: int, most_moves: int) -> bool:
    """Sort in place, by insertion; give up, in the middle of it, where that takes more moves."""
    moves = 0
    for place in range(first + 1, first + count):
        value = hashes[place]
        hole = place
        while hole > first and hashes[hole - 1] > value:
            hashes[hole] = hashes[hole - 1]
            hole -= 1
        hashes[hole] = value
        moves += place - hole
        if moves > most_moves:
            return False
    return True


@inlined
def sort_spread(hashes: Hashes, first: int, count: int, target: Hashes, counters: Counts) -> bool:
    """Sort into ``target``, which takes ``count`` hashes, and say whether that went well.

    Where the leading bits are even, as those of hashes are, each hash comes next to its place at once. Where they are
    not, as a text may be made for, this gives up after linear time. ``counters`` has ``COUNTERS`` places.
    """
    if count > MOST_SPREAD:
        return False
    bits = 1
    while bits < SPREAD_BITS and 1 << bits < count:
        bits += 1
    shift = np.uint64(64 - bits)
    for place in range(1 << bits):
        counters[place] = 0
    for place in range(first, first + count):
        counters[np.int64(hashes[place] >> shift)] += 1
    total = 0
    for place in range(1 << bits):
        total, counters[place] = total + counters[place], total
    for place in range(first, first + count):
        value = hashes[place]
        counter = np.int64(value >> shift)
        target[counters[counter]] = value
        counters[counter] += 1
    return sort_few(target, 0, count, MOST_MOVES * count)


@inlined
def sort_many(hashes: Hashes, first: int, count: int, scratch: Hashes, counters: Counts) -> None:
    """Sort in place by radix, from the lowest digit; the time is linear whatever the hashes are.

    ``scratch`` takes ``count`` hashes, ``counters`` has DIGITS * DIGIT_VALUES places.
    """
    for place in range(DIGITS * DIGIT_VALUES):
        counters[place] = 0
    for place in range(first, first + count):
        value = hashes[place]
        for digit in range(DIGITS):
            shift = np.uint64(digit * DIGIT_BITS)
            counters[digit * DIGIT_VALUES + np.int64((value >> shift) & DIGIT_MASK)] += 1
    for digit in range(DIGITS):
        total = 0
        for place in range(digit * DIGIT_VALUES, (digit + 1) * DIGIT_VALUES):
            total, counters[place] = total + counters[place], total
    for digit in range(0, DIGITS, 2):  # there and back
        scatter(hashes, first, scratch, 0, count, counters, digit)
        scatter(scratch, 0, hashes, first, count, counters, digit + 1)


@inlined
def scatter(
    source: Hashes, first: int, target: Hashes, target_first: int, count: int, counters: Counts, digit: int
) -> None:
    """Move hashes to where one of their digits belongs; ``counters`` holds the next place of each value."""
    shift = np.uint64(digit * DIGIT_BITS)
    for place in range(first, first + count):
        value = source[place]
        counter = digit * DIGIT_VALUES + np.int64((value >> shift) & DIGIT_MASK)
        target[target_first + counters[counter]] = value
        counters[counter] += 1


@inlined
def keep_distinct(source: Hashes, first: int, count: int, target: Hashes, target_first: int) -> int:
    """Write sorted hashes to ``target``, each once, which may be where they are; return how many."""
    distinct = 0
    for place in range(first, first + count):
        if not distinct or source[place] != target[target_first + distinct - 1]:
            target[target_first + distinct] = source[place]
            distinct += 1
    return distinct


@kernel(f"Tuple((int64[::1], uint64[::1]))({TOKEN_ARGUMENTS}, int64, uint64[::1])")
def shingle_sets(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    entries: Entries,
    expanded: Entries,
    scratch: Hashes,
    folded: Bytes,
    size: int,
    more_scratch: Hashes,
) -> ShingleSets:
    """Return the sorted distinct shingle hashes of selected texts in NFC; see ``dedup.shingles.shingle_sets``.

    ``scratch`` and ``folded`` are ``dedup.tokens.token_scratch`` of the offsets, ``more_scratch`` is one more of the
    former.
    """
    most = 0
    for row in range(len(rows)):
        if rows[row]:
            most += (offsets[row + 1] - offsets[row] + 1) // 2
    hashes = np.empty(most, np.uint64)
    counters = np.empty(COUNTERS, np.int32)
    firsts = np.zeros(len(rows) + 1, np.int64)
    text, table, parts = pointer(data), pointer(entries), pointer(expanded)
    tokens, room = pointer(scratch), pointer(folded)
    for row in range(len(rows)):
        first = firsts[row]
        firsts[row + 1] = first
        if not rows[row]:
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        found = hash_tokens(text, begin, end, len(data), table, parts, tokens, room)
        count = count_shingles(found, size)
        for place in range(count):
            hashes[first + place] = hash_shingle(tokens, place, min(size, found))
        if count <= FEW:
            sort_few(hashes, first, count, FEW * FEW)
            distinct = keep_distinct(hashes, first, count, hashes, first)
        elif sort_spread(hashes, first, count, more_scratch, counters):
            distinct = keep_distinct(more_scratch, 0, count, hashes, first)
        else:
            sort_many(hashes, first, count, more_scratch, counters)
            distinct = keep_distinct(hashes, first, count, hashes, first)
        firsts[row + 1] = first + distinct
    return firsts, hashes[: firsts[-1]]  # what is behind was never touched, and takes no memory
