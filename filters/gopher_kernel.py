"""What the Gopher quality rules count, in one sweep over the bytes of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, decode, line_break_length, pointer, scan_word
from corpus.unicode_tables import LETTER, LINE_BREAK, OWN_BITS, SEPARATOR, WHITE_SPACE, Classes

CONTENT = 1 << OWN_BITS
"""Class bit of the code points that make a token a word: all that the preset does not take for punctuation."""
SIGN = 1 << OWN_BITS + 1
"""Class bit of ``#``, ``.`` and ``…``, for which a token that has one is read again."""

# Rows of the table of counts.
TOKENS, WORDS, WORD_CHARACTERS, ALPHABETIC_TOKENS, HASHES, ELLIPSES = 0, 1, 2, 3, 4, 5
LINES, BULLET_LINES, ELLIPSIS_LINES, STOP_WORDS = 6, 7, 8, 9
STATISTICS = 10

HASH, FULL_STOP, HYPHEN, BULLET, ELLIPSIS = 0x23, 0x2E, 0x2D, 0x2022, 0x2026
ELLIPSIS_BYTES = 3
LONGEST_KEY = 15
KEYS = 256 * (LONGEST_KEY + 1)


@inlined
def stop_word_key(lead: int, length: int) -> int:
    """Return the bucket of a word with this first byte and this length in bytes."""
    return lead << 4 | min(length, LONGEST_KEY)


@inlined
def find_stop_word(data: Bytes, start: int, end: int, buckets: Offsets, offsets: Offsets, words: Bytes) -> int:
    """Return the number of the stop word that stands between two byte positions, -1 if it is none."""
    key = stop_word_key(int(data[start]), end - start)
    for number in range(buckets[key], buckets[key + 1]):
        first = offsets[number]
        if offsets[number + 1] - first == end - start:
            position = 0
            while position < end - start and data[start + position] == words[first + position]:
                position += 1
            if position == end - start:
                return number
    return -1


@inlined
def count_signs(data: Bytes, start: int, end: int) -> tuple[int, int, bool]:
    """Return the hash signs and the ellipses of a word, and whether it ends with an ellipsis.

    An ellipsis is ``…`` or three full stops; four full stops are one ellipsis, six are two.
    """
    hashes = ellipses = stops = 0
    position = start
    while position < end:
        code_point, size = decode(data, position)
        position += size
        stops = stops + 1 if code_point == FULL_STOP else 0
        hashes += code_point == HASH
        if code_point == ELLIPSIS or stops == ELLIPSIS_BYTES:
            ellipses += 1
            stops = 0
    last = end - ELLIPSIS_BYTES
    if last < start:
        return hashes, ellipses, False
    if data[end - 1] == FULL_STOP:
        return hashes, ellipses, data[end - 2] == FULL_STOP and data[last] == FULL_STOP
    return hashes, ellipses, data[last] == 0xE2 and data[last + 1] == 0x80 and data[last + 2] == 0xA6


@kernel(f"int64[:, ::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, {OFFSETS}, {OFFSETS}, {BYTES})")
def sweep(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
    buckets: Offsets,
    stop_offsets: Offsets,
    stop_bytes: Bytes,
) -> npt.NDArray[np.int64]:
    """Return the counts of each text.

    Args:
        offsets: int32[n + 1] of the texts in ``data``.
        data: UTF-8.
        rows: bool[n], the texts to look at; the counts of others are 0.
        classes: class bits of the code points, with ``CONTENT`` and ``SIGN``.
        buckets: int32[KEYS + 1], the numbers of the first stop words of each ``stop_word_key``.
        stop_offsets: int32[k + 1] of the k stop words, in the order of their keys, in ``stop_bytes``.
        stop_bytes: UTF-8.

    Returns:
        int64[STATISTICS, n], one contiguous row per statistic.
    """
    counts = np.zeros((STATISTICS, len(rows)), np.int64)
    text, table = pointer(data), pointer(classes)
    bucket_table, stop_table, stop_text = pointer(buckets), pointer(stop_offsets), pointer(stop_bytes)
    last_seen = np.full(len(stop_offsets) - 1, -1, np.int64)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        tokens = words = word_characters = alphabetic = hashes = ellipses = stop_words = 0
        lines = bullet_lines = ellipsis_lines = 0
        position, end = int(offsets[row]), int(offsets[row + 1])
        line_start = position
        blank, bullet, ellipsis_last = True, False, False
        while position < end:
            code_point, size = decode(text, position)
            found = int(table[code_point])
            if found & SEPARATOR:
                if found & LINE_BREAK:
                    lines += 1
                    bullet_lines += bullet
                    ellipsis_lines += ellipsis_last
                    blank, bullet, ellipsis_last = True, False, False
                    position += line_break_length(text, position, end, size)
                    line_start = position
                    continue
                if not found & WHITE_SPACE:  # a zero-width space, which stripping a line leaves where it is
                    blank, ellipsis_last = False, False
                position += size
                continue
            if blank:
                blank = False
                bullet = code_point in (HYPHEN, BULLET)
            start = position
            position, characters, flags = scan_word(text, start, end, table)
            tokens += 1
            alphabetic += (flags & LETTER) != 0
            if flags & CONTENT:
                words += 1
                word_characters += characters
            ellipsis_last = False
            if flags & SIGN:
                more_hashes, more_ellipses, ellipsis_last = count_signs(text, start, position)
                hashes += more_hashes
                ellipses += more_ellipses
            number = find_stop_word(text, start, position, bucket_table, stop_table, stop_text)
            if number >= 0 and last_seen[number] != row:
                last_seen[number] = row
                stop_words += 1
        if line_start < end:
            lines += 1
            bullet_lines += bullet
            ellipsis_lines += ellipsis_last
        counts[TOKENS, row] = tokens
        counts[WORDS, row] = words
        counts[WORD_CHARACTERS, row] = word_characters
        counts[ALPHABETIC_TOKENS, row] = alphabetic
        counts[HASHES, row] = hashes
        counts[ELLIPSES, row] = ellipses
        counts[LINES, row] = lines
        counts[BULLET_LINES, row] = bullet_lines
        counts[ELLIPSIS_LINES, row] = ellipsis_lines
        counts[STOP_WORDS, row] = stop_words
    return counts
