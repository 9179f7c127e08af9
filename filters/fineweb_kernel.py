"""What the FineWeb quality rules count in lines, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.span_kernel import Hashes, count_code_points, number_spans
from corpus.text import Bytes, Offsets
from corpus.text_kernel import CLASSES, LINE_FEED, decode, pointer
from corpus.text_statistics_kernel import STATISTICS, Table, stripped
from corpus.unicode_tables import OWN_BITS, Classes

TERMINAL = 1 << OWN_BITS
"""Class bit of the punctuation that may end a line."""

COUNTS = ("lines", "punctuated_lines", "short_lines", "duplicate_line_characters", "characters", "newlines")
"""What the rows of the table of counts are."""
LINES, PUNCTUATED_LINES, SHORT_LINES, DUPLICATE_LINE_CHARACTERS, CHARACTERS, NEWLINES = 0, 1, 2, 3, 4, 5

# Rows of the scratch for lines.
STARTS, ENDS, NUMBERS, FIRSTS = 0, 1, 2, 3


@inlined
def strip_lines(
    text: Bytes,
    classes: Classes,
    first: int,
    last: int,
    line_starts: Table,
    line_ends: Table,
    starts: Table,
    ends: Table,
) -> int:
    """Write the lines that are not blank, without the white space around them; return how many there are."""
    lines = 0
    for line in range(first, last):
        start, end = stripped(text, line_starts[line], line_ends[line], classes)
        if start < end:
            starts[lines], ends[lines] = start, end
            lines += 1
    return lines


@inlined
def split_at_line_feeds(
    text: Bytes,
    classes: Classes,
    start: int,
    end: int,
    first: int,
    last: int,
    line_starts: Table,
    line_ends: Table,
    starts: Table,
    ends: Table,
) -> tuple[int, int]:
    """Write what is not blank between line feeds, as it is; return how many there are, and the number of line feeds."""
    lines = feeds = 0
    for line in range(first, last):
        following = line_starts[line + 1] if line + 1 < last else end
        fed = following > line_ends[line] and text[following - 1] == LINE_FEED
        if not fed and line + 1 < last:
            continue
        stop = following - 1 if fed else end
        feeds += fed
        filled, stripped_end = stripped(text, start, stop, classes)
        if filled < stripped_end:
            starts[lines], ends[lines] = start, stop
            lines += 1
        start = following
    return lines, feeds


@kernel(
    f"int64[:, ::1]({STATISTICS}, {CLASSES}, boolean, int64[::1], "
    "Array(int32, 2, 'C'), Array(int32, 1, 'C'), Array(int64, 1, 'C'))"
)
def sweep(
    offsets: Offsets,
    data: Bytes,
    characters: npt.NDArray[np.int64],
    word_firsts: npt.NDArray[np.int64],
    word_starts: Table,
    word_ends: Table,
    word_characters: Table,
    word_classes: Classes,
    line_firsts: npt.NDArray[np.int64],
    line_starts: Table,
    line_ends: Table,
    line_words: Table,
    classes: Classes,
    as_datatrove: bool,
    short_line_lengths: npt.NDArray[np.int64],
    places_of_lines: npt.NDArray[np.int32],
    table_places: Table,
    hash_places: Hashes,
) -> npt.NDArray[np.int64]:
    """Return the counts of each text.

    Args:
        offsets to line_words: ``corpus.text_statistics.TextStatistics``.
        classes: class bits of the code points, with ``TERMINAL``.
        as_datatrove: take lines as datatrove 0.10 does, or as thresher-1.
        short_line_lengths: code points up to which a line of each text is short.
        places_of_lines, table_places, hash_places: scratch of 4 x m, 4 m + 2 and m numbers, where m is at least the
            number of lines of any text.

    Returns:
        int64[len(COUNTS), n], one contiguous row per count.
    """
    counts = np.zeros((len(COUNTS), len(characters)), np.int64)
    text, class_table = pointer(data), pointer(classes)
    all_starts, all_ends = pointer(line_starts), pointer(line_ends)
    starts, ends = pointer(places_of_lines[STARTS]), pointer(places_of_lines[ENDS])
    numbers, firsts = pointer(places_of_lines[NUMBERS]), pointer(places_of_lines[FIRSTS])
    table, hashes = pointer(table_places), pointer(hash_places)
    for row in range(len(characters)):
        first, last = line_firsts[row], line_firsts[row + 1]
        if first == last:
            continue
        start, end = int(offsets[row]), int(offsets[row + 1])
        if as_datatrove:
            lines, newlines = split_at_line_feeds(
                text, class_table, start, end, first, last, all_starts, all_ends, starts, ends
            )
        else:
            lines = strip_lines(text, class_table, first, last, all_starts, all_ends, starts, ends)
            newlines = last - first - (line_ends[last - 1] == end)
        ascii_only = characters[row] == end - start
        punctuated = short = all_characters = duplicate_characters = 0
        distinct = number_spans(text, starts, ends, lines, table, hashes, numbers, firsts)
        for line in range(lines):
            length = int(ends[line] - starts[line])
            if not ascii_only:
                length = count_code_points(text, starts[line], ends[line])
            all_characters += length
            short += length <= short_line_lengths[row]
            if distinct < lines and firsts[numbers[line]] != line:
                duplicate_characters += length
            at = ends[line] - 1
            while text[at] & 0xC0 == 0x80:
                at -= 1
            code_point, _ = decode(text, at)
            punctuated += (class_table[code_point] & TERMINAL) != 0
        counts[LINES, row] = lines
        counts[PUNCTUATED_LINES, row] = punctuated
        counts[SHORT_LINES, row] = short
        counts[DUPLICATE_LINE_CHARACTERS, row] = duplicate_characters
        counts[CHARACTERS, row] = characters[row] - newlines if as_datatrove else all_characters
        counts[NEWLINES, row] = newlines
    return counts
