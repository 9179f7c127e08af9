"""N-grams of index entries: their hashes, where they occur, and the bit filter in front of them.

An n-gram is ``NGRAM_TOKENS`` tokens in a row. Its hash leads to a run of postings; whether one is the n-gram is seen by
its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filters.contamination_settings import EXACT, NGRAM_TOKENS

MOST_POSTINGS = 64
"""Entries that an n-gram may lead to; of a more frequent one, only those stay that have no rarer ones."""
RAREST = 8
"""N-grams of an entry that stay however frequent they are."""
MOST_BUCKET_BITS = 24
"""Bits of a hash by which postings are looked up, at most: 64 MiB."""
BITS_PER_NGRAM = 7
"""Bits of the filter for each n-gram, at least, and at most twice as many."""

BASE = 0xD6E8FEB86659FD93
MULTIPLIER = 0x9E3779B97F4A7C15
FIRST_BIT, SECOND_BIT = 40, 46
"""Where in a hash the numbers of the two bits stand that the filter has for it, in the word that its low bits name."""

_WORD = (1 << 64) - 1

Array = npt.NDArray[Any]


def ngram_hash(tokens: Sequence[int]) -> int:
    """Return the hash of an n-gram, given its token hashes: the plain-Python reference."""
    state = 0
    for token in tokens:
        state = (state * BASE + token) & _WORD
    state = (state ^ state >> 32) * MULTIPLIER & _WORD
    return state ^ state >> 29


def ngram_hashes(tokens: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return the hash of the n-gram at each token, uint64, as long as the tokens; the last ones run beyond the end."""
    padded = np.zeros(len(tokens) + NGRAM_TOKENS, np.uint64)
    padded[: len(tokens)] = tokens
    state = np.zeros(len(tokens), np.uint64)
    for place in range(NGRAM_TOKENS):
        state = state * np.uint64(BASE) + padded[place : place + len(tokens)]
    state = (state ^ (state >> np.uint64(32))) * np.uint64(MULTIPLIER)
    hashes: npt.NDArray[np.uint64] = state ^ (state >> np.uint64(29))
    return hashes


def ngram_tables(
    tokens: npt.NDArray[np.uint32], entry_starts: Array, entry_flags: Array
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """Return (postings, directory, bits) of the entries, see ``filters.contamination_index``.

    An entry that is found exactly has one posting, of its rarest n-gram; the others have one for each n-gram that
    occurs in them, where it occurs first.
    """
    lengths = np.diff(entry_starts)
    entries = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    places = np.arange(len(tokens), dtype=np.int64)
    places = places[places + NGRAM_TOKENS <= np.repeat(entry_starts[1:], lengths)]
    hashes = ngram_hashes(tokens)[places]
    order = np.argsort(hashes, kind="stable")
    places, hashes = places[order], hashes[order]
    del order
    new = np.diff(hashes, prepend=~hashes[:1]) != 0
    first = new | (np.diff(entries[places], prepend=np.int32(-1)) != 0)
    places, hashes = places[first], hashes[first]
    group = np.cumsum(new[first]) - 1
    frequencies = np.bincount(group)[group]
    kept = _kept(entries[places], places, frequencies, entry_flags)
    places, hashes = places[kept], hashes[kept]
    width = min(max(1, len(places).bit_length()), MOST_BUCKET_BITS)
    heads = hashes >> np.uint64(64 - width)
    directory = np.searchsorted(heads, np.arange((1 << width) + 1, dtype=np.uint64)).astype(np.uint32)
    return places.astype(np.uint32), directory, _bit_filter(hashes)


def _kept(entries: Array, places: Array, frequencies: Array, entry_flags: Array) -> npt.NDArray[np.bool_]:
    """Return which occurrences become postings."""
    kept = frequencies <= MOST_POSTINGS
    exact = (entry_flags[entries] & EXACT) != 0
    frequent = np.zeros(len(entry_flags), np.bool_)
    frequent[entries[~kept]] = True
    ranked = np.flatnonzero(exact | frequent[entries])
    order = ranked[np.lexsort((places[ranked], frequencies[ranked], entries[ranked]))]
    of_entry = entries[order]
    begins = np.flatnonzero(np.diff(of_entry, prepend=np.int32(-1)))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    kept[order] = np.where(exact[order], rank == 0, kept[order] | (rank < RAREST))
    return kept


def _bit_filter(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = 1 << max(0, (len(hashes) * BITS_PER_NGRAM - 1).bit_length() - 6)
    bits = np.zeros(words, np.uint64)
    one, six = np.uint64(1), np.uint64(63)
    for place in (FIRST_BIT, SECOND_BIT):
        bit = one << ((hashes >> np.uint64(place)) & six)
        np.bitwise_or.at(bits, (hashes & np.uint64(words - 1)).astype(np.int64), bit)
    return bits
