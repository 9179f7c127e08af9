"""Finding entries of the index in texts, compiled; ``filters.contamination_reference`` says the same in plain Python.

The n-grams of a text go through the bit filter; those of the index are *hits*: a token of the text where a token of an
entry stands. The hits of one entry that lie together are a cluster; where it covers a fair share of the entry, entry
and text are aligned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import pointer
from filters.contamination_alignment_kernel import (
    SCORED_SHARE,
    align,
    covered_tokens,
    covered_weight,
    matched_tokens,
)
from filters.contamination_ngrams import BASE, FIRST_BIT, MULTIPLIER, SECOND_BIT
from filters.contamination_settings import EXACT, NGRAM_TOKENS
from filters.contamination_token_kernel import TEXT_ARGUMENTS, read_tokens
from filters.contamination_tokens import Entries

LONGEST_ALIGNED = 512
"""Tokens up to which an entry is aligned token by token; of a longer one, what its n-grams cover counts."""
MOST_HITS = 1 << 17
"""Hits of a text that are looked at together; an item that lies across the place where they end may be missed."""
LEAST_SLACK, SLACK_SHARE = 8, 4
"""Tokens that may have come into the text between those of an entry: so many, and one for so many tokens of it."""

HASH_BASE, HASH_MULTIPLIER = np.uint64(BASE), np.uint64(MULTIPLIER)
HALF, THIRD = np.uint64(32), np.uint64(29)
FIRST, SECOND, SIX, ONE = np.uint64(FIRST_BIT), np.uint64(SECOND_BIT), np.uint64(63), np.uint64(1)

UINT32 = "Array(uint32, 1, 'C', True)"
UINT8 = "Array(uint8, 1, 'C', True)"
INT32 = "Array(int32, 1, 'C', True)"
INT64 = "Array(int64, 1, 'C', True)"
INDEX_ARGUMENTS = f"{UINT32}, {UINT8}, {INT64}, {UINT8}, {UINT32}, {UINT32}, Array(uint64, 1, 'C', True)"

MATCH_FIELDS = 8
"""Row, entry, first token, token behind the last, bytes where they start and end, matched weight, entry's weight."""

Numbers = npt.NDArray[np.int64]


@inlined
def mixed(state: np.uint64) -> np.uint64:
    """Return the hash of an n-gram from its rolling state."""
    state = (state ^ (state >> HALF)) * HASH_MULTIPLIER
    return state ^ (state >> THIRD)  # type: ignore[no-any-return]


@inlined
def passing(hashes: Any, count: int, bits: Any, mask: np.uint64, places: Any, values: Any) -> int:
    """Write place and hash of the n-grams of a text that pass the bit filter, and return how many do."""
    oldest = np.uint64(1)
    for _ in range(NGRAM_TOKENS - 1):
        oldest *= HASH_BASE
    passed = 0
    state = np.uint64(0)
    for token in range(min(count, NGRAM_TOKENS - 1)):
        state = state * HASH_BASE + np.uint64(hashes[token])
    for place in range(count - NGRAM_TOKENS + 1):
        state = state * HASH_BASE + np.uint64(hashes[place + NGRAM_TOKENS - 1])
        value = mixed(state)
        wanted = ONE << ((value >> FIRST) & SIX) | ONE << ((value >> SECOND) & SIX)
        if bits[value & mask] & wanted == wanted:
            places[passed], values[passed] = place, value
            passed += 1
        state -= np.uint64(hashes[place]) * oldest
    return passed


@inlined
def entry_of(entry_starts: Numbers, count: int, token: int) -> int:
    """Return the entry that a token of the index belongs to."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if entry_starts[middle] <= token:
            low = middle
        else:
            high = middle
    return low


@inlined
def same_tokens(first: Any, start: int, second: Any, place: int, length: int) -> bool:
    """Say whether two runs of tokens are the same."""
    for step in range(length):  # noqa: SIM110 - compiled
        if first[start + step] != second[place + step]:
            return False
    return True


@inlined
def entry_weight(weights: Any, entry_start: int, length: int) -> int:
    """Return the weight of all tokens of an entry."""
    total = 0
    for token in range(entry_start, entry_start + length):
        total += weights[token]
    return total


@inlined
def exact_spans(
    hits: Numbers,
    order: Numbers,
    first: int,
    last: int,
    text: Any,
    count: int,
    tokens: Any,
    entry_start: int,
    length: int,
) -> Numbers:
    """Return first token and token behind the last, flat, of the places of a text where all of an entry stands."""
    spans = np.empty(2 * (last - first + 1), np.int64)
    used = 0
    for number in range(first, last + 1):
        at = hits[3 * order[number] + 1] - hits[3 * order[number] + 2]
        if at >= 0 and at + length <= count and same_tokens(text, at, tokens, entry_start, length):
            spans[used], spans[used + 1] = at, at + length
            used += 2
    return spans[:used].copy()  # type: ignore[no-any-return]


@inlined
def end_of_cluster(hits: Numbers, order: Numbers, first: int, stop: int, reach: int) -> int:
    """Return the last of the hits from ``first`` on between which no more than ``reach`` tokens lie."""
    last = first
    while last + 1 < stop and hits[3 * order[last + 1] + 1] - hits[3 * order[last] + 1] <= reach:
        last += 1
    return last


@inlined
def cluster_spans(
    hits: Numbers,
    order: Numbers,
    first: int,
    last: int,
    text: Any,
    count: int,
    tokens: Any,
    weights: Any,
    entry_start: int,
    length: int,
    total: int,
    exact: int,
) -> Numbers:
    """Return first token and token behind the last, flat, of the places where an entry is found in a cluster."""
    if exact:
        return exact_spans(hits, order, first, last, text, count, tokens, entry_start, length)
    if covered_weight(hits, order, first, last, weights, entry_start, length) * SCORED_SHARE < total:
        return np.empty(0, np.int64)
    begin, end = hits[3 * order[first] + 1], hits[3 * order[last] + 1]
    if length > LONGEST_ALIGNED:
        return np.array([begin, end + NGRAM_TOKENS])
    slack = LEAST_SLACK + length // SLACK_SHARE
    low = max(0, begin - hits[3 * order[first] + 2] - slack)
    high = min(count, end - hits[3 * order[last] + 2] + length + slack)
    return align(text, low, high, tokens, weights, entry_start, length, total)


@inlined
def grown(array: Numbers, used: int, wanted: int) -> Numbers:
    """Return an array that has room for so many numbers, with those used so far."""
    if wanted <= len(array):
        return array
    larger = np.empty(2 * wanted, np.int64)
    larger[:used] = array[:used]
    return larger


@kernel(f"Tuple((int64[::1], int64[:, ::1], int64[::1], int64[::1]))({TEXT_ARGUMENTS}, {INDEX_ARGUMENTS})")
def find_matches(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    table_entries: Entries,
    expanded: Entries,
    tokens: npt.NDArray[np.uint32],
    weights: npt.NDArray[np.uint8],
    entry_starts: Numbers,
    entry_flags: npt.NDArray[np.uint8],
    postings: npt.NDArray[np.uint32],
    directory: npt.NDArray[np.uint32],
    bits: npt.NDArray[np.uint64],
) -> tuple[Numbers, npt.NDArray[np.int64], Numbers, Numbers]:
    """Return what of the index n texts hold.

    Args:
        offsets, data, rows: texts, see ``filters.contamination_tokens.ready_texts``, and which to look at.
        table_entries, expanded: ``filters.contamination_tokens.token_table``.
        tokens, weights, entry_starts, entry_flags, postings, directory, bits: arrays of
            ``filters.contamination_index.ContaminationIndex``.

    Returns:
        (ngrams, matches, matched_offsets, matched): pairs of row and the n-gram's first posting, in the order in which
        they occur, flat; int64[m, MATCH_FIELDS] matches by row, entry and place; and the tokens of the entry of match
        k that were found, counted from its first, ``matched[matched_offsets[k]:matched_offsets[k + 1]]``.
    """
    longest = 0
    for row in range(len(rows)):
        longest = max(longest, int(offsets[row + 1] - offsets[row]))
    most = 2 * longest + 1
    hashes, starts, ends = np.empty(most, np.uint32), np.empty(most, np.int32), np.empty(most, np.int32)
    places, values = np.empty(most, np.int32), np.empty(most, np.uint64)
    ngrams, hits, found = np.empty(64, np.int64), np.empty(192, np.int64), np.empty(64 * MATCH_FIELDS, np.int64)
    matched, matched_ends = np.empty(256, np.int64), np.empty(64, np.int64)
    ngram_count = match_count = matched_count = 0
    text, table, parts = pointer(data), pointer(table_entries), pointer(expanded)
    filter_bits = pointer(bits)
    entry_count = len(entry_flags)
    mask = np.uint64(len(bits) - 1)
    width = 0
    while (1 << width) + 1 < len(directory):
        width += 1
    shift = np.uint64(64 - width)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        count = read_tokens(text, int(offsets[row]), int(offsets[row + 1]), table, parts, hashes, starts, ends)
        candidates = passing(hashes, count, filter_bits, mask, places, values)
        candidate = 0
        while candidate < candidates:
            hit_count = 0
            while candidate < candidates and hit_count < MOST_HITS:
                place, value = np.int64(places[candidate]), values[candidate]
                candidate += 1
                bucket = np.int64(value >> shift)
                first = -1
                for posting in range(directory[bucket], directory[bucket + 1]):
                    index_token = np.int64(postings[posting])
                    if not same_tokens(hashes, place, tokens, index_token, NGRAM_TOKENS):
                        continue
                    if first < 0:
                        first = posting
                        ngrams = grown(ngrams, ngram_count, ngram_count + 2)
                        ngrams[ngram_count], ngrams[ngram_count + 1] = row, posting
                        ngram_count += 2
                    entry = entry_of(entry_starts, entry_count, index_token)
                    hits = grown(hits, 3 * hit_count, 3 * hit_count + 3)
                    hits[3 * hit_count] = entry
                    hits[3 * hit_count + 1] = place
                    hits[3 * hit_count + 2] = index_token - entry_starts[entry]
                    hit_count += 1
            if hit_count == 0:
                continue
            order = np.argsort(hits[: 3 * hit_count : 3].copy(), kind="mergesort")
            begin = 0
            while begin < hit_count:
                entry = hits[3 * order[begin]]
                stop = begin
                while stop < hit_count and hits[3 * order[stop]] == entry:
                    stop += 1
                entry_start = entry_starts[entry]
                length = entry_starts[entry + 1] - entry_start
                total = entry_weight(weights, entry_start, length)
                slack = LEAST_SLACK + length // SLACK_SHARE
                exact = entry_flags[entry] & EXACT
                while begin < stop:
                    last = end_of_cluster(hits, order, begin, stop, length + slack)
                    spans = cluster_spans(
                        hits, order, begin, last, hashes, count, tokens, weights, entry_start, length, total, exact
                    )
                    for span in range(0, len(spans), 2):
                        if exact:
                            own = np.ones(length, np.bool_)
                        elif length > LONGEST_ALIGNED:
                            own = covered_tokens(hits, order, begin, last, length)
                        else:
                            low, high = spans[span], spans[span + 1]
                            own = matched_tokens(hashes, low, high, tokens, weights, entry_start, length)
                        weight = 0
                        matched = grown(matched, matched_count, matched_count + length)
                        for token in range(length):
                            if own[token]:
                                weight += weights[entry_start + token]
                                matched[matched_count] = token
                                matched_count += 1
                        found = grown(found, MATCH_FIELDS * match_count, MATCH_FIELDS * (match_count + 1))
                        matched_ends = grown(matched_ends, match_count, match_count + 1)
                        base = MATCH_FIELDS * match_count
                        found[base], found[base + 1] = row, entry
                        found[base + 2], found[base + 3] = spans[span], spans[span + 1]
                        found[base + 4], found[base + 5] = starts[spans[span]], ends[spans[span + 1] - 1]
                        found[base + 6], found[base + 7] = weight, total
                        matched_ends[match_count] = matched_count
                        match_count += 1
                    begin = last + 1
    matched_offsets = np.zeros(match_count + 1, np.int64)
    matched_offsets[1:] = matched_ends[:match_count]
    matches = found[: MATCH_FIELDS * match_count].copy().reshape(match_count, MATCH_FIELDS)
    return ngrams[:ngram_count].copy(), matches, matched_offsets, matched[:matched_count].copy()
