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
"""Up to so many hashes are sorted by insertion, which is faster then than eight passes over counters."""


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
def sort_few(hashes: Hashes, first: int, count: int) -> None:
    """Sort in place, by insertion."""
    for place in range(first + 1, first + count):
        value = hashes[place]
        hole = place
        while hole > first and hashes[hole - 1] > value:
            hashes[hole] = hashes[hole - 1]
            hole -= 1
        hashes[hole] = value


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


@kernel(f"Tuple((int64[::1], uint64[::1]))({TOKEN_ARGUMENTS}, int64, uint64[::1])")
def shingle_sets(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    entries: Entries,
    expanded: Entries,
    scratch: Hashes,
    size: int,
    more_scratch: Hashes,
) -> ShingleSets:
    """Return the sorted distinct shingle hashes of selected texts in NFC; see ``dedup.shingles.shingle_sets``.

    ``scratch`` and ``more_scratch`` have the size of ``dedup.tokens.token_scratch`` of the offsets.
    """
    most = 0
    for row in range(len(rows)):
        if rows[row]:
            most += (offsets[row + 1] - offsets[row] + 1) // 2
    hashes = np.empty(most, np.uint64)
    counters = np.empty(DIGITS * DIGIT_VALUES, np.int32)
    firsts = np.zeros(len(rows) + 1, np.int64)
    text, table, parts = pointer(data), pointer(entries), pointer(expanded)
    tokens = pointer(scratch)
    for row in range(len(rows)):
        first = firsts[row]
        firsts[row + 1] = first
        if not rows[row]:
            continue
        found = hash_tokens(text, int(offsets[row]), int(offsets[row + 1]), table, parts, tokens)
        count = count_shingles(found, size)
        for place in range(count):
            hashes[first + place] = hash_shingle(tokens, place, min(size, found))
        if count <= FEW:
            sort_few(hashes, first, count)
        else:
            sort_many(hashes, first, count, more_scratch, counters)
        distinct = first
        for place in range(first, first + count):
            if place == first or hashes[place] != hashes[distinct - 1]:
                hashes[distinct] = hashes[place]
                distinct += 1
        firsts[row + 1] = distinct
    return firsts, hashes[: firsts[-1]].copy()
