"""What the FineWeb quality rules count, in one sweep over the bytes of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import kernel
from corpus.span_kernel import Hashes, Words, count_code_points, number_spans
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, LINE_FEED, OFFSETS, ROWS, decode, line_break_length, pointer, scan_word
from corpus.unicode_tables import LINE_BREAK, OWN_BITS, SEPARATOR, WHITE_SPACE, Classes

TERMINAL = 1 << OWN_BITS
"""Class bit of the punctuation that may end a line."""

# Rows of the table of counts.
LINES, PUNCTUATED_LINES, SHORT_LINES, DUPLICATE_LINE_CHARACTERS, CHARACTERS, NEWLINES, WORDS = 0, 1, 2, 3, 4, 5, 6
STATISTICS = 7

# Rows of the scratch for lines.
STARTS, ENDS, NUMBERS, FIRSTS = 0, 1, 2, 3


@kernel(
    f"int64[:, ::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, boolean, int64, "
    "Array(int32, 2, 'C'), Array(int32, 1, 'C'), Array(int64, 1, 'C'))"
)
def sweep(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
    as_datatrove: bool,
    short_line_length: int,
    places_of_lines: npt.NDArray[np.int32],
    table_places: Words,
    hash_places: Hashes,
) -> npt.NDArray[np.int64]:
    """Return the counts of each text.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``.
        rows: bool[n], the texts to look at; the counts of others are 0.
        classes: class bits of the code points, with ``TERMINAL``.
        as_datatrove: take lines as datatrove 0.10 does, or as thresher-1.
        short_line_length: code points up to which a line is short.
        places_of_lines, table_places, hash_places: scratch of 4 x m, 4 m + 2 and m numbers, where m is more than the
            lines of any text that are not blank.

    Returns:
        int64[STATISTICS, n], one contiguous row per statistic.
    """
    counts = np.zeros((STATISTICS, len(rows)), np.int64)
    text, class_table = pointer(data), pointer(classes)
    starts, ends = pointer(places_of_lines[STARTS]), pointer(places_of_lines[ENDS])
    numbers, firsts = pointer(places_of_lines[NUMBERS]), pointer(places_of_lines[FIRSTS])
    table, hashes = pointer(table_places), pointer(hash_places)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        lines = newlines = words = 0
        position, end = int(offsets[row]), int(offsets[row + 1])
        line_start = content_start = content_end = position
        while position <= end:
            found, size = 0, 0
            if position < end:
                code_point, size = decode(text, position)
                found = int(class_table[code_point])
                if not found & SEPARATOR:
                    if content_end == line_start:
                        content_start = position
                    position, _, _ = scan_word(text, position, end, class_table)
                    content_end = position
                    words += 1
                    continue
                if not (code_point == LINE_FEED if as_datatrove else found & LINE_BREAK):
                    if not found & WHITE_SPACE:  # a zero-width space, which stripping a line leaves where it is
                        if content_end == line_start:
                            content_start = position
                        content_end = position + size
                    position += size
                    continue
                newlines += 1
            if content_end != line_start:
                starts[lines] = line_start if as_datatrove else content_start
                ends[lines] = position if as_datatrove else content_end
                lines += 1
            if position == end:
                break
            position += size if as_datatrove else line_break_length(text, position, end, size)
            line_start = content_start = content_end = position
        punctuated = short = characters = duplicate_characters = 0
        distinct = number_spans(text, starts, ends, lines, table, hashes, numbers, firsts)
        for line in range(lines):
            length = count_code_points(text, starts[line], ends[line])
            characters += length
            short += length <= short_line_length
            if firsts[numbers[line]] != line:
                duplicate_characters += length
            last = ends[line] - 1
            while text[last] & 0xC0 == 0x80:
                last -= 1
            code_point, _ = decode(text, last)
            punctuated += (class_table[code_point] & TERMINAL) != 0
        if as_datatrove:
            characters = count_code_points(text, int(offsets[row]), end) - newlines
        counts[LINES, row] = lines
        counts[PUNCTUATED_LINES, row] = punctuated
        counts[SHORT_LINES, row] = short
        counts[DUPLICATE_LINE_CHARACTERS, row] = duplicate_characters if distinct < lines else 0
        counts[CHARACTERS, row] = characters
        counts[NEWLINES, row] = newlines
        counts[WORDS, row] = words
    return counts
