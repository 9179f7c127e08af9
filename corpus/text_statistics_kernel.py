"""The words and lines of a batch of texts, found in one sweep over the bytes.

Most text is ASCII, so the sweep looks at ``BLOCK`` bytes at once: a few vector comparisons give one bit per byte and
class, and words and lines begin and end where bits change. That costs no branch per byte, which is what finding words
byte by byte spends its time on. From a code point beyond ASCII on it goes by code points, until some ASCII follows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.block_kernel import BLOCK, block_of, count_bits, lowest_bit
from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, decode, line_break_length, pointer
from corpus.unicode_tables import LETTER, LINE_BREAK, MARK, OWN_BITS, SEPARATOR, UNSPACED, WHITE_SPACE, Classes

CONTENT = 1 << OWN_BITS
"""Class bit of what is neither punctuation, symbol, control nor format character."""
DATATROVE_CONTENT = 1 << OWN_BITS + 1
"""Class bit of what datatrove 0.10 does not take for punctuation."""
SIGN = 1 << OWN_BITS + 2
"""Class bit of ``#``, ``.`` and ``…``."""
WORD_CLASSES = LETTER | UNSPACED | CONTENT | DATATROVE_CONTENT | SIGN
"""The class bits that are told of words."""

STATISTICS = (
    f"{OFFSETS}, {BYTES}, int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], uint16[::1], "
    "int64[::1], int32[::1], int32[::1], int32[::1]"
)
"""Signature of the arguments of a kernel that takes ``*statistics``, a ``corpus.text_statistics.TextStatistics``."""

SCALAR_BYTES = 16
"""So many bytes of ASCII have to follow a code point beyond it until the sweep goes by blocks again."""
CLOSED, RUN, UNSPACED_LETTER = 0, 1, 2

Table = npt.NDArray[np.int32]


ascii_block = block_of(
    ((0x80, 0xFF),),
    ((0x09, 0x0D), (0x1C, 0x20)),
    ((0x41, 0x5A), (0x61, 0x7A)),
    ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    ((0x23, 0x23), (0x2E, 0x2E)),
    ((0x0A, 0x0D), (0x1C, 0x1E)),
)
"""Read a block: bytes beyond ASCII, separators, letters, letters and digits, signs, line breaks."""


@inlined
def close_word(
    word: int, end: int, continuation: int, flags: int, starts: Table, ends: Table, before: Table, classes: Classes
) -> None:
    """Write the end of a word into the tables."""
    ends[word] = end
    classes[word] = flags & WORD_CLASSES
    before[word + 1] = before[word] + (end - starts[word] - continuation)


@inlined
def close_line(line: int, start: int, end: int, words: int, starts: Table, ends: Table, words_before: Table) -> None:
    """Write a line into the tables; ``words`` is how many words of the batch end before it does."""
    starts[line], ends[line] = start, end
    words_before[line + 1] = words


@kernel(
    f"UniTuple(int64, 2)({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, int64[::1], int64[::1], "
    "int32[::1], int32[::1], int32[::1], uint16[::1], int64[::1], int32[::1], int32[::1], int32[::1])"
)
def find_words_and_lines(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
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
) -> tuple[int, int]:
    """Fill the tables of ``corpus.text_statistics.TextStatistics`` and return the numbers of words and of lines.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``.
        rows: bool[n], the texts to look at; others have no characters, words and lines.
        classes: ``corpus.text_statistics.statistics_classes()``.
        characters and the rest: the tables, with room for a word in every second byte and a line in every byte.
    """
    text, table = pointer(data), pointer(classes)
    starts, ends, before = pointer(word_starts), pointer(word_ends), pointer(word_characters)
    bits = pointer(word_classes)
    first_bytes, last_bytes, words_of_lines = pointer(line_starts), pointer(line_ends), pointer(line_words)
    readable = len(data) - BLOCK
    words = lines = 0
    before[0] = 0
    words_of_lines[0] = 0
    for row in range(len(rows)):
        word_firsts[row], line_firsts[row] = words, lines
        characters[row] = 0
        if not rows[row]:
            continue
        position, end = int(offsets[row]), int(offsets[row + 1])
        line_start = position
        state, flags, continuation, beyond = CLOSED, 0, 0, 0
        while position < end:
            if position <= readable and text[position] < 0x80:  # a block may reach into the next text, never beyond all
                high, separators, letters, alphanumeric, signs, breaks = ascii_block(text, position)
                length = min(lowest_bit(high), end - position)
                if length < BLOCK:
                    keep = (1 << length) - 1
                    separators &= keep
                    letters &= keep
                    alphanumeric &= keep
                    signs &= keep
                    breaks &= keep
                    runs = ~separators & keep
                else:
                    runs = ~separators
                if state == UNSPACED_LETTER:
                    close_word(words, position, continuation, flags, starts, ends, before, bits)
                    words += 1
                    state, flags, continuation = CLOSED, 0, 0
                follows = runs << 1 | state
                begins, finishes = runs & ~follows, separators & follows
                opened = words + state
                while begins:
                    starts[opened] = position + lowest_bit(begins)
                    begins &= begins - 1
                    opened += 1
                words_before = words
                last = 0
                remaining = finishes
                while remaining:
                    at = lowest_bit(remaining)
                    remaining &= remaining - 1
                    segment = (1 << at) - (1 << last)
                    last = at
                    flags |= ((letters & segment) != 0) * LETTER
                    flags |= ((alphanumeric & segment) != 0) * (CONTENT | DATATROVE_CONTENT)
                    flags |= ((signs & segment) != 0) * SIGN
                    close_word(words, position + at, continuation, flags, starts, ends, before, bits)
                    words += 1
                    flags = continuation = 0
                segment = -(1 << last)
                flags |= ((letters & segment) != 0) * LETTER
                flags |= ((alphanumeric & segment) != 0) * (CONTENT | DATATROVE_CONTENT)
                flags |= ((signs & segment) != 0) * SIGN
                state = runs >> (length - 1) & 1
                while breaks:
                    bit = lowest_bit(breaks)
                    breaks &= breaks - 1
                    at = position + bit
                    if at >= line_start:
                        words_until = words_before + count_bits(finishes & ((2 << bit) - 1))
                        close_line(lines, line_start, at, words_until, first_bytes, last_bytes, words_of_lines)
                        lines += 1
                        line_start = at + line_break_length(text, at, end, 1)
                position += length
                continue
            limit = position + SCALAR_BYTES
            while position < end and position < limit:
                code_point, size = decode(text, position)
                found = int(table[code_point])
                if size > 1:
                    limit = position + SCALAR_BYTES
                    beyond += size - 1
                if found & SEPARATOR:
                    if state != CLOSED:
                        close_word(words, position, continuation, flags, starts, ends, before, bits)
                        words += 1
                        state, flags, continuation = CLOSED, 0, 0
                    if found & LINE_BREAK and position >= line_start:
                        close_line(lines, line_start, position, words, first_bytes, last_bytes, words_of_lines)
                        lines += 1
                        line_start = position + line_break_length(text, position, end, size)
                elif state == CLOSED or found & UNSPACED or (state == UNSPACED_LETTER and not found & MARK):
                    if state != CLOSED:
                        close_word(words, position, continuation, flags, starts, ends, before, bits)
                        words += 1
                    starts[words] = position
                    flags, continuation = found, size - 1
                    state = UNSPACED_LETTER if found & UNSPACED else RUN
                else:
                    flags |= found
                    continuation += size - 1
                position += size
        if state != CLOSED:
            close_word(words, end, continuation, flags, starts, ends, before, bits)
            words += 1
        if line_start < end:
            close_line(lines, line_start, end, words, first_bytes, last_bytes, words_of_lines)
            lines += 1
        characters[row] = end - int(offsets[row]) - beyond
    word_firsts[len(rows)], line_firsts[len(rows)] = words, lines
    return words, lines


@inlined
def stripped(text: Bytes, start: int, end: int, classes: Classes) -> tuple[int, int]:
    """Return where a part of a text begins and ends without the white space around it; equal where it has no more."""
    while start < end:
        code_point, size = decode(text, start)
        if not classes[code_point] & WHITE_SPACE:
            break
        start += size
    while start < end:
        last = end - 1
        while text[last] & 0xC0 == 0x80:
            last -= 1
        code_point, _ = decode(text, last)
        if not classes[code_point] & WHITE_SPACE:
            break
        end = last
    return start, end
