"""The length of texts in characters, words and lines, in one sweep over the bytes of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, decode, line_break_length, pointer, scan_word
from corpus.unicode_tables import LINE_BREAK, SEPARATOR, Classes

# Rows of the table of counts.
CHARACTERS, WORDS, LINES = 0, 1, 2
STATISTICS = 3


@kernel(f"int64[:, ::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES})")
def sweep(offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], classes: Classes) -> npt.NDArray[np.int64]:
    """Return the counts of n texts as int64[STATISTICS, n]; 0 where the mask ``rows``, bool[n], is false."""
    counts = np.zeros((STATISTICS, len(rows)), np.int64)
    text, table = pointer(data), pointer(classes)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        characters = words = lines = 0
        position, end = int(offsets[row]), int(offsets[row + 1])
        line_start = position
        while position < end:
            code_point, size = decode(text, position)
            found = int(table[code_point])
            if not found & SEPARATOR:
                position, length, _ = scan_word(text, position, end, table)
                characters += length
                words += 1
                continue
            characters += 1
            if found & LINE_BREAK:
                following = position + line_break_length(text, position, end, size)
                characters += following - position - size
                position = line_start = following
                lines += 1
            else:
                position += size
        counts[CHARACTERS, row] = characters
        counts[WORDS, row] = words
        counts[LINES, row] = lines + (line_start < end)
    return counts
