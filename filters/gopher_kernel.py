"""What the Gopher quality rules count in words and lines, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, decode, pointer
from corpus.text_statistics_kernel import CONTENT, DATATROVE_CONTENT, SIGN, STATISTICS, Table, stripped
from corpus.unicode_tables import LETTER, UNSPACED, Classes

COUNTS = (
    *("words", "word_characters", "alphabetic_tokens", "unspaced_tokens", "hashes", "ellipses"),
    *("bullet_lines", "ellipsis_lines", "stop_words"),
)
"""What the rows of the table of counts are."""
WORDS, WORD_CHARACTERS, ALPHABETIC, UNSPACED_TOKENS, HASHES, ELLIPSES = 0, 1, 2, 3, 4, 5
BULLET_LINES, ELLIPSIS_LINES, STOP_WORDS = 6, 7, 8

HASH, FULL_STOP, HYPHEN, BULLET, ELLIPSIS = 0x23, 0x2E, 0x2D, 0x2022, 0x2026
ELLIPSIS_BYTES = 3
LONGEST_KEY = 15
KEYS = 256 * (LONGEST_KEY + 1)


@inlined
def stop_word_key(lead: int, length: int) -> int:
    """Return the bucket of a word with this first byte and this length in bytes."""
    return lead << 4 | min(length, LONGEST_KEY)


@inlined
def find_stop_word(
    data: Bytes, start: int, end: int, buckets: Table, first_bucket: int, offsets: Table, words: Bytes
) -> int:
    """Return the number of the stop word that stands between two byte positions, -1 if it is none."""
    key = first_bucket + stop_word_key(int(data[start]), end - start)
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
def count_signs(data: Bytes, start: int, end: int) -> tuple[int, int]:
    """Return the hash signs and the ellipses of a word.

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
    return hashes, ellipses


@inlined
def ends_with_ellipsis(data: Bytes, start: int, end: int) -> bool:
    """Say whether ``…`` or three full stops come last."""
    last = end - ELLIPSIS_BYTES
    if last < start:
        return False
    first, second, third = data[last], data[last + 1], data[last + 2]
    if third == FULL_STOP:
        return bool(first == FULL_STOP and second == FULL_STOP)
    return bool(first == 0xE2 and second == 0x80 and third == 0xA6)


@kernel(
    f"int64[:, ::1]({STATISTICS}, {CLASSES}, boolean, int64[::1], int32[:, ::1], {OFFSETS}, {BYTES}, "
    "Array(int64, 1, 'C', True))"
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
    stop_sizes: npt.NDArray[np.int64],
    stop_buckets: npt.NDArray[np.int32],
    stop_offsets: Table,
    stop_bytes: Bytes,
    chosen: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the counts of each text.

    Args:
        offsets to line_words: ``corpus.text_statistics.TextStatistics``.
        classes: class bits of the code points.
        as_datatrove: take for punctuation what datatrove 0.10 does, or what thresher-1 does.
        stop_sizes, stop_buckets, stop_offsets, stop_bytes: ``filters.gopher_counts.StopWords``.
        chosen: the number of each text's list of stop words.

    Returns:
        int64[len(COUNTS), n], one contiguous row per count.
    """
    counts = np.zeros((len(COUNTS), len(chosen)), np.int64)
    text, table = pointer(data), pointer(classes)
    starts, ends, before, bits = (
        pointer(word_starts),
        pointer(word_ends),
        pointer(word_characters),
        pointer(word_classes),
    )
    buckets, stop_table, stop_text = pointer(stop_buckets), pointer(stop_offsets), pointer(stop_bytes)
    content = DATATROVE_CONTENT if as_datatrove else CONTENT
    last_seen = np.full(len(stop_offsets) - 1, -1, np.int64)
    for row in range(len(chosen)):
        first, last = word_firsts[row], word_firsts[row + 1]
        words = characters_of_words = alphabetic = unspaced = hashes = ellipses = 0
        for word in range(first, last):
            flags = bits[word]
            alphabetic += (flags & LETTER) != 0
            unspaced += (flags & UNSPACED) != 0
            if flags & content:
                words += 1
                characters_of_words += before[word + 1] - before[word]
            if flags & SIGN:
                more_hashes, more_ellipses = count_signs(text, starts[word], ends[word])
                hashes += more_hashes
                ellipses += more_ellipses
        stop_words, listed = 0, stop_sizes[chosen[row]]
        first_bucket = chosen[row] * (KEYS + 1)
        for word in range(first, last):
            if stop_words == listed:
                break
            number = find_stop_word(text, starts[word], ends[word], buckets, first_bucket, stop_table, stop_text)
            if number >= 0 and last_seen[number] != row:
                last_seen[number] = row
                stop_words += 1
        bullet_lines = ellipsis_lines = 0
        for line in range(line_firsts[row], line_firsts[row + 1]):
            start, end = stripped(text, line_starts[line], line_ends[line], table)
            if start < end:
                code_point, _ = decode(text, start)
                bullet_lines += code_point in (HYPHEN, BULLET)
                ellipsis_lines += ends_with_ellipsis(text, start, end)
        counts[WORDS, row] = words
        counts[WORD_CHARACTERS, row] = characters_of_words
        counts[ALPHABETIC, row] = alphabetic
        counts[UNSPACED_TOKENS, row] = unspaced
        counts[HASHES, row] = hashes
        counts[ELLIPSES, row] = ellipses
        counts[BULLET_LINES, row] = bullet_lines
        counts[ELLIPSIS_LINES, row] = ellipsis_lines
        counts[STOP_WORDS, row] = stop_words
    return counts
