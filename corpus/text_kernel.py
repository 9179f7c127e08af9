"""Words, lines and characters of texts as UTF-8 bytes, compiled.

Texts come as (offsets, data) from ``corpus.text.text_buffers``; the bytes must be valid UTF-8: readers see to it.
``classes`` is ``corpus.unicode_tables.code_point_classes()`` or a copy with bits of a stage's own. What words and lines
are is defined by ``corpus.text.words`` and ``corpus.text.lines``.

The inlined helpers are what the sweep of a stage is made of. They take pointers: Numba counts references to an array
on every call of a helper, with atomic instructions, which costs more than the rest of the work on a word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.unicode_tables import LINE_BREAK, MARK, SEPARATOR, UNSPACED, Classes

# Signatures of arguments; the flag says read-only, which Arrow's buffers are, and accepts writable arrays as well.
OFFSETS = "Array(int32, 1, 'C', True)"
BYTES = "Array(uint8, 1, 'C', True)"
ROWS = "Array(boolean, 1, 'C', True)"
CLASSES = "Array(uint16, 1, 'C', True)"

CARRIAGE_RETURN, LINE_FEED = 0x0D, 0x0A
ENDS_RUN = SEPARATOR | UNSPACED

Spans = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_: Any, array: Any) -> Any:
    """Return the pointer to the first element of an array that is an argument of the kernel.

    The caller of the kernel keeps such an array alive; an array made in the kernel might be freed too early.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@inlined
def decode(data: Bytes, position: int) -> tuple[int, int]:
    """Return the code point that starts at a byte position, and its length in bytes."""
    lead = int(data[position])
    if lead < 0x80:
        return lead, 1
    second = int(data[position + 1]) & 0x3F
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = int(data[position + 2]) & 0x3F
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    return (lead & 0x07) << 18 | second << 12 | third << 6 | (int(data[position + 3]) & 0x3F), 4


@inlined
def scan_word(data: Bytes, start: int, end: int, classes: Classes) -> tuple[int, int, int]:
    """Read the word that starts at a byte position, where no separator stands.

    Returns:
        The byte position behind the word, its length in code points, and the class bits that any of them has.
    """
    code_point, size = decode(data, start)
    flags = int(classes[code_point])
    position = start + size
    if flags & UNSPACED:
        characters = 1
        while position < end and data[position] >= 0x80:
            code_point, size = decode(data, position)
            found = int(classes[code_point])
            if not found & MARK:
                break
            flags |= found
            position += size
            characters += 1
        return position, characters, flags
    continuation = size - 1
    while position < end:
        if data[position] < 0x80:
            found = int(classes[data[position]])
            if found & SEPARATOR:
                break
            flags |= found
            position += 1
            continue
        code_point, size = decode(data, position)
        found = int(classes[code_point])
        if found & ENDS_RUN:
            break
        flags |= found
        position += size
        continuation += size - 1
    return position, position - start - continuation, flags


@inlined
def line_break_length(data: Bytes, position: int, end: int, size: int) -> int:
    """Return the bytes of the line break whose first code point, of ``size`` bytes, stands at a byte position."""
    if data[position] == CARRIAGE_RETURN and position + 1 < end and data[position + 1] == LINE_FEED:
        return 2
    return size


@kernel(f"int64[::1]({OFFSETS}, {BYTES}, {ROWS})")
def count_characters(offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of code points of each of n texts, int64[n]; 0 where the mask ``rows``, bool[n], is false."""
    counts = np.zeros(len(rows), np.int64)
    for row in range(len(rows)):
        if rows[row]:
            count = 0
            for position in range(offsets[row], offsets[row + 1]):
                count += (data[position] & 0xC0) != 0x80
            counts[row] = count
    return counts


@kernel(f"Tuple((int64[::1], int32[::1], int32[::1]))({OFFSETS}, {BYTES}, {ROWS}, {CLASSES})")
def word_spans(offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], classes: Classes) -> Spans:
    """Return where the words of each text are.

    Returns:
        (firsts, starts, ends): the words of text i are numbers ``firsts[i]`` to ``firsts[i + 1] - 1``, int64[n + 1];
        word k is ``data[starts[k]:ends[k]]``, int32. A text whose row is false in the mask ``rows``, bool[n], has none.
    """
    firsts = np.zeros(len(rows) + 1, np.int64)
    most = (offsets[len(rows)] - offsets[0] + len(rows)) // 2  # a word of one byte has a separator behind it
    starts, ends = np.empty(most, np.int32), np.empty(most, np.int32)
    text, table = pointer(data), pointer(classes)
    count = 0
    for row in range(len(rows)):
        position, end = int(offsets[row]), int(offsets[row + 1])
        while rows[row] and position < end:
            code_point, size = decode(text, position)
            if table[code_point] & SEPARATOR:
                position += size
                continue
            starts[count] = position
            position, _, _ = scan_word(text, position, end, table)
            ends[count] = position
            count += 1
        firsts[row + 1] = count
    return firsts, starts[:count].copy(), ends[:count].copy()


@kernel(f"Tuple((int64[::1], int32[::1], int32[::1]))({OFFSETS}, {BYTES}, {ROWS}, {CLASSES})")
def line_spans(offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], classes: Classes) -> Spans:
    """Return where the lines of each text are, without their ends, in the form of ``word_spans``."""
    firsts = np.zeros(len(rows) + 1, np.int64)
    most = offsets[len(rows)] - offsets[0]
    starts, ends = np.empty(most, np.int32), np.empty(most, np.int32)
    text, table = pointer(data), pointer(classes)
    count = 0
    for row in range(len(rows)):
        position, end = int(offsets[row]), int(offsets[row + 1])
        start = position
        while rows[row] and start < end:
            stop, following = end, end
            while position < end:
                code_point, size = decode(text, position)
                if table[code_point] & LINE_BREAK:
                    stop, following = position, position + line_break_length(text, position, end, size)
                    break
                position += size
            starts[count], ends[count] = start, stop
            count += 1
            start = position = following
        firsts[row + 1] = count
    return firsts, starts[:count].copy(), ends[:count].copy()
