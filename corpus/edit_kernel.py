"""Cut and replace spans of texts, compiled.

Where a text is ASCII, as most are, its code points are its bytes and need not be counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.block_kernel import is_ascii
from corpus.jit import inlined, kernel
from corpus.span_kernel import load_8, store_8
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, OFFSETS, pointer

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

INTEGERS = "Array(int64, 1, 'C', True)"
NUMBERS = "Array(int32, 1, 'C', True)"
TABLE = "Array(int64, 2, 'C', True)"


@inlined
def skip_code_points(text: Bytes, position: int, end: int, count: int) -> int:
    """Return the byte position ``count`` code points further on, -1 where the text ends before."""
    while count > 0:
        if position >= end:
            return -1
        position += 1
        while position < end and text[position] & 0xC0 == 0x80:
            position += 1
        count -= 1
    return position


@kernel(f"int64[:, ::1]({OFFSETS}, {BYTES}, {INTEGERS}, {INTEGERS}, {INTEGERS})")
def code_point_spans(offsets: Offsets, data: Bytes, rows: Integers, starts: Integers, ends: Integers) -> Integers:
    """Return int64[2, m]: start and end in code points of m spans that are given in bytes of their row's text.

    Spans are ordered by row and start; those of one row may nest but not begin before the one before them.
    """
    places = np.empty((2, len(rows)), np.int64)
    text = pointer(data)
    row, first, position, count, plain = -1, 0, 0, 0, False
    for span in range(len(rows)):
        if rows[span] != row:
            row, count = rows[span], 0
            first = position = int(offsets[row])
            plain = is_ascii(text, first, int(offsets[row + 1]), len(data))
        if plain:
            places[0, span], places[1, span] = starts[span], ends[span]
            continue
        while position < first + starts[span]:
            count += (text[position] & 0xC0) != 0x80
            position += 1
        places[0, span] = count
        length = 0
        for place in range(first + starts[span], first + ends[span]):
            length += (text[place] & 0xC0) != 0x80
        places[1, span] = count + length
    return places


@inlined
def copy_bytes(source: Bytes, first: int, last: int, target: Bytes, place: int) -> int:
    """Copy the bytes between two positions to a place, and return the place behind them."""
    while first + 8 <= last:
        store_8(target, place, load_8(source, first))
        first += 8
        place += 8
    while first < last:
        target[place] = source[first]
        first += 1
        place += 1
    return place


@kernel(f"Tuple((int64[:, ::1], int64[::1], int64))({OFFSETS}, {BYTES}, {NUMBERS}, {NUMBERS}, {NUMBERS}, {OFFSETS})")
def edited_offsets(
    offsets: Offsets, data: Bytes, rows: Numbers, starts: Numbers, ends: Numbers, replacement_offsets: Offsets
) -> tuple[Integers, Integers, int]:
    """Return where spans stand in bytes, and where the edited texts will.

    Args:
        offsets, data: n texts.
        rows, starts, ends: row, start and end in code points of m spans, ordered by row and start, without overlaps.
        replacement_offsets: int32[m + 1] of their replacements.

    Returns:
        int64[2, m] of start and end as positions in ``data``; int64[n + 1], the offsets of the edited texts; the
        number of the first span that is out of order or beyond its text, -1 if all are sound.
    """
    places = np.zeros((2, len(rows)), np.int64)
    edited = np.zeros(len(offsets), np.int64)
    text = pointer(data)
    fault = -1
    span = 0
    for row in range(len(offsets) - 1):
        position, end = int(offsets[row]), int(offsets[row + 1])
        length = end - position
        done = 0
        plain = span < len(rows) and rows[span] == row and is_ascii(text, position, end, len(data))
        while span < len(rows) and rows[span] == row and fault < 0:
            start, stop = int(starts[span]), int(ends[span])
            first = last = -1
            if done <= start <= stop:
                if plain:
                    first = position + start - done
                    last = first + stop - start if stop - done <= end - position else -1
                else:
                    first = skip_code_points(text, position, end, start - done)
                    last = skip_code_points(text, first, end, stop - start) if first >= 0 else -1
            if last < 0:
                fault = span
                break
            places[0, span], places[1, span] = first, last
            length += replacement_offsets[span + 1] - replacement_offsets[span] - (last - first)
            position, done = last, stop
            span += 1
        edited[row + 1] = edited[row] + length
    if fault < 0 and span < len(rows):
        fault = span
    return places, edited, fault


@kernel(f"uint8[::1]({OFFSETS}, {BYTES}, {NUMBERS}, {TABLE}, {INTEGERS}, {OFFSETS}, {BYTES})")
def edited_bytes(
    offsets: Offsets,
    data: Bytes,
    rows: Numbers,
    places: Integers,
    new_offsets: Integers,
    replacement_offsets: Offsets,
    replacement_data: Bytes,
) -> Bytes:
    """Return the data of the edited texts; ``places`` and ``new_offsets`` are those of ``edited_offsets``."""
    edited = np.empty(new_offsets[-1], np.uint8)
    text, replacements, into = pointer(data), pointer(replacement_data), pointer(edited)
    target = 0
    span = 0
    for row in range(len(offsets) - 1):
        position = int(offsets[row])
        while span < len(rows) and rows[span] == row:
            target = copy_bytes(text, position, int(places[0, span]), into, target)
            first, last = int(replacement_offsets[span]), int(replacement_offsets[span + 1])
            target = copy_bytes(replacements, first, last, into, target)
            position = int(places[1, span])
            span += 1
        target = copy_bytes(text, position, int(offsets[row + 1]), into, target)
    return edited
