"""Aligning an entry of the index with a stretch of a text, compiled.

A local alignment: tokens that are the same give their weight; a token of the text that is skipped costs ``INSERTED``,
one of the entry ``SKIPPED``. So few words may have come in, gone or changed, and what is far away does not count. The
recurrences are those of Smith and Waterman (1981), without substitutions: a changed word is one skipped on each side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined
from filters.contamination_settings import NGRAM_TOKENS

INSERTED, SKIPPED = 4, 2
"""Costs, where a token weighs 16 to 32."""
FROM_BOTH, FROM_TEXT, FROM_ENTRY, BEGINS = 1, 2, 3, 4
"""Steps of an alignment: a match, a token of the text skipped, one of the entry skipped; a match that begins it."""
SCORED_SHARE, WHOLE_SHARE = 4, 2
"""One in so many of an entry's weight: less is no match; less than half, no match of its own."""

Numbers = npt.NDArray[np.int64]


@inlined
def covered_tokens(hits: Numbers, order: Numbers, first: int, last: int, length: int) -> npt.NDArray[np.bool_]:
    """Return which tokens of an entry lie in the n-grams of a cluster of hits."""
    covered = np.zeros(length, np.bool_)
    for number in range(first, last + 1):
        at = hits[3 * order[number] + 2]
        for token in range(at, at + NGRAM_TOKENS):
            covered[token] = True
    return covered


@inlined
def covered_weight(
    hits: Numbers, order: Numbers, first: int, last: int, weights: Any, entry_start: int, length: int
) -> int:
    """Return the weight of the tokens of an entry that lie in the n-grams of a cluster of hits."""
    covered = covered_tokens(hits, order, first, last, length)
    weight = 0
    for token in range(length):
        if covered[token]:
            weight += weights[entry_start + token]
    return weight


@inlined
def with_stretch(
    found: Numbers, count: int, part: Numbers, begin: int, end: int, weight: int, total: int
) -> tuple[Numbers, int]:
    """Return stretches and the numbers used for them, with one more if it weighs half of the entry.

    ``part`` takes weight, begin and end of the heaviest that does not, of equals the first.
    """
    if weight * WHOLE_SHARE >= total:
        if count + 2 > len(found):
            larger = np.empty(2 * len(found), np.int64)
            larger[:count] = found[:count]
            found = larger
        found[count], found[count + 1] = begin, end
        return found, count + 2
    if weight > part[0]:
        part[0], part[1], part[2] = weight, begin, end
    return found, count


@inlined
def align(
    text: Any, low: int, high: int, tokens: Any, weights: Any, entry_start: int, length: int, total: int
) -> Numbers:
    """Return the stretches between two tokens of a text where an entry is found, apart from each other, in order.

    A stretch runs from a first to behind a last token that match; both stand flat in the result. It has the best
    alignment of those that it overlaps; of equally good ones, the first. Its tokens weigh half of the entry or more;
    where none has that, the heaviest stretch counts if it has a fair share: a phrase that a text repeats is one match.
    """
    values, weighed = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.int64)
    begins = np.zeros(length + 1, np.int64)
    found = np.empty(16, np.int64)
    count = done = 0
    best = best_weight = best_begin = best_end = 0
    part = np.zeros(3, np.int64)
    for place in range(low, high):
        token = text[place]
        before, before_weight, before_begin = values[0], weighed[0], begins[0]
        row_best = row_weight = row_begin = 0
        for column in range(1, length + 1):
            above, above_weight, above_begin = values[column], weighed[column], begins[column]
            value, weight, begin = above - INSERTED, above_weight, above_begin
            left = values[column - 1] - SKIPPED
            if left > value:
                value, weight, begin = left, weighed[column - 1], begins[column - 1]
            if token == tokens[entry_start + column - 1]:
                own = np.int64(weights[entry_start + column - 1])
                if before + own >= value:
                    value, weight, begin = before + own, before_weight + own, before_begin
                    if before == 0:
                        weight, begin = own, place
                    if value > row_best and begin >= done:
                        row_best, row_weight, row_begin = value, weight, begin
            if value <= 0:
                value = 0
            values[column], weighed[column], begins[column] = value, weight, begin
            before, before_weight, before_begin = above, above_weight, above_begin
        if row_best == 0:
            continue
        if best > 0 and row_begin >= best_end:
            found, count = with_stretch(found, count, part, best_begin, best_end, best_weight, total)
            best, done = 0, best_end
        if row_best > best:
            best, best_weight, best_begin, best_end = row_best, row_weight, row_begin, place + 1
    found, count = with_stretch(found, count, part, best_begin, best_end, best_weight, total)
    if count == 0 and part[0] * SCORED_SHARE >= total:
        return part[1:].copy()  # type: ignore[no-any-return]
    return found[:count].copy()  # type: ignore[no-any-return]


@inlined
def matched_tokens(
    text: Any, low: int, high: int, tokens: Any, weights: Any, entry_start: int, length: int
) -> npt.NDArray[np.bool_]:
    """Return which tokens of an entry match in the best alignment that ends with the last token of a stretch."""
    columns = length + 1
    steps = np.zeros((high - low) * columns, np.uint8)
    values = np.zeros(columns, np.int64)
    best, best_column = 0, 0
    for place in range(low, high):
        token = text[place]
        base = (place - low) * columns
        before = values[0]
        best, best_column = 0, 0
        for column in range(1, columns):
            above = values[column]
            value, step = above - INSERTED, FROM_TEXT
            left = values[column - 1] - SKIPPED
            if left > value:
                value, step = left, FROM_ENTRY
            if token == tokens[entry_start + column - 1]:
                own = np.int64(weights[entry_start + column - 1])
                if before + own >= value:
                    value, step = before + own, BEGINS if before == 0 else FROM_BOTH
                    if value > best:
                        best, best_column = value, column
            if value <= 0:
                value, step = 0, 0
            values[column] = value
            steps[base + column] = step
            before = above
    matched = np.zeros(length, np.bool_)
    place, column = high - 1, best_column
    while place >= low and column > 0:
        step = steps[(place - low) * columns + column]
        if step == FROM_BOTH or step == BEGINS:  # noqa: SIM109 - compiled
            matched[column - 1] = True
            place -= 1
            column -= 1
        elif step == FROM_TEXT:
            place -= 1
        elif step == FROM_ENTRY:
            column -= 1
        if step == BEGINS or step == 0:
            break
    return matched
