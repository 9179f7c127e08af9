"""Intersections by bits, compiled: for many pairs among few sets, as pages of one template are.

A merge of two large sets takes microseconds. Where the sets of a block are compared with each other again and again,
the shingles that at least two of them have are numbered, and each set becomes a row of bits, one per such shingle: an
intersection is then the number of bits that two rows share, and exact, since a shingle that only one set has is in no
intersection.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text_kernel import pointer
from dedup.shingles import Counts
from dedup.tokens import Hashes

Integers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint64]

FIRST_ROOM = 1 << 12
BITS, BIT = 6, 63
ONE, TWO, FOUR, LAST = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
PAIRS, FOURS, EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
SUM_OF_BYTES = np.uint64(0x0101010101010101)


@inlined
def count_bits(word: np.uint64) -> np.uint64:
    """Return how many bits of a word are set, in the form that compilers know."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & FOURS) + ((word >> TWO) & FOURS)
    word = (word + (word >> FOUR)) & EIGHTS
    return (word * SUM_OF_BYTES) >> LAST  # type: ignore[no-any-return]


@inlined
def place_of(table: Counts, keys: Hashes, value: np.uint64, room: int) -> int:
    """Return where a hash is in an open-addressed table of so many places, a power of two, or where it would be."""
    place = np.int64(value & np.uint64(room - 1))
    while table[place] >= 0 and keys[table[place]] != value:
        place = (place + 1) & (room - 1)
    return place  # type: ignore[no-any-return]


@kernel("Tuple((int32[::1], int32[::1]))(Array(uint64, 1, 'C', True))")
def number_hashes(hashes: Hashes) -> tuple[Counts, Counts]:
    """Return the number of each of n hashes, equal ones having the same, and how often each number occurs."""
    room = FIRST_ROOM
    table, keys, counts = np.full(room, -1, np.int32), np.empty(room, np.uint64), np.zeros(room, np.int32)
    numbers = np.empty(len(hashes), np.int32)
    distinct = 0
    for index in range(len(hashes)):
        if 2 * distinct >= room:
            room *= 2
            table = np.full(room, -1, np.int32)
            more_keys, more_counts = np.empty(room, np.uint64), np.zeros(room, np.int32)
            more_keys[:distinct], more_counts[:distinct] = keys[:distinct], counts[:distinct]
            keys, counts = more_keys, more_counts
            for number in range(distinct):
                table[place_of(pointer(table), pointer(keys), keys[number], room)] = number
        place = place_of(pointer(table), pointer(keys), hashes[index], room)
        if table[place] < 0:
            table[place] = distinct
            keys[distinct] = hashes[index]
            distinct += 1
        numbers[index] = table[place]
        counts[table[place]] += 1
    return numbers, counts[:distinct].copy()


@kernel("uint64[:, ::1](Array(int64, 1, 'C', True), Array(int32, 1, 'C', True), Array(int32, 1, 'C', True), int64)")
def bit_rows(offsets: Integers, numbers: Counts, bit_of: Counts, words: int) -> Rows:
    """Return the rows of k sets, uint64[k, words].

    Args:
        offsets: int64[k + 1], of the sets in ``numbers``.
        numbers: the numbers of their members.
        bit_of: the bit of each number, or -1.
        words: of a row.
    """
    rows = np.zeros((len(offsets) - 1, words), np.uint64)
    for number in range(len(offsets) - 1):
        for place in range(offsets[number], offsets[number + 1]):
            bit = bit_of[numbers[place]]
            if bit >= 0:
                rows[number, bit >> BITS] |= ONE << np.uint64(bit & BIT)
    return rows


@kernel("int32[::1](Array(uint64, 2, 'C', True), Array(int32, 1, 'C', True), Array(int32, 1, 'C', True))")
def count_shared(rows: Rows, first: Counts, second: Counts) -> Counts:
    """Return how many bits the rows of each of n pairs share, int32[n]."""
    words = rows.shape[1]
    shared = np.empty(len(first), np.int32)
    bits = pointer(rows)
    for pair in range(len(first)):
        left, right = first[pair] * words, second[pair] * words
        count = np.uint64(0)
        for place in range(words):
            count += count_bits(bits[left + place] & bits[right + place])
        shared[pair] = np.int64(count)
    return shared
