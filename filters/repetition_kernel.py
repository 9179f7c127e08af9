"""Repeated words, lines and paragraphs of texts, compiled: what the rules of ``gopher_repetition`` compare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.span_kernel import Words, count_code_points, number_spans
from corpus.text import Bytes, Offsets
from corpus.text_kernel import CLASSES, LINE_FEED, pointer
from corpus.text_statistics_kernel import STATISTICS, Table, stripped
from corpus.unicode_tables import Classes
from filters.repetition_grams_kernel import (
    NONE,
    count_joined_duplicates,
    covered_characters,
    drop_unique_prefixes,
    join_words,
    lengthen_grams,
    most_frequent,
    number_words,
    start_grams,
)

FIRST_TOP, LAST_TOP, FIRST_DUPLICATE, LAST_DUPLICATE = 2, 4, 5, 10

COUNTS = (
    *("characters", "lines", "duplicate_lines", "duplicate_line_characters"),
    *("paragraphs", "duplicate_paragraphs", "duplicate_paragraph_characters"),
    *("top_2_gram_characters", "top_3_gram_characters", "top_4_gram_characters"),
    *("duplicate_5_gram_characters", "duplicate_6_gram_characters", "duplicate_7_gram_characters"),
    *("duplicate_8_gram_characters", "duplicate_9_gram_characters", "duplicate_10_gram_characters"),
)
"""What the rows of the table of counts are."""
CHARACTERS, LINES, PARAGRAPHS = 0, 1, 4
TOP_GRAMS, DUPLICATE_GRAMS = 7 - FIRST_TOP, 10 - FIRST_DUPLICATE

PREFIXES = (16, 24, 32, 40, 48, 56)
"""By how many first bytes the candidates for equal n-grams are sifted before each size; longer ones tell more."""
ID_BYTES = 4

# Rows of the scratch for places of words, lines and paragraphs.
NUMBERS, GRAMS, ACTIVE, FIRSTS, COUNTS_OF_GRAMS, GROUP_STARTS, GROUP_ENDS = range(7)


@inlined
def split_at_line_feeds(
    text: Bytes,
    start: int,
    end: int,
    least: int,
    line_starts: Table,
    line_ends: Table,
    first_line: int,
    last_line: int,
    end_of_text: int,
    starts: Words,
    ends: Words,
) -> int:
    """Split at runs of at least so many line feeds, as ``re.split`` does, and return the number of parts.

    Args:
        start, end: what of the text is split; it holds line feeds only where its lines end.
        line_starts, line_ends, first_line, last_line: the lines of the text.
        end_of_text: where the text ends.
    """
    parts = 0
    run_start = run_end = start
    for line in range(first_line, last_line):
        following = line_starts[line + 1] if line + 1 < last_line else end_of_text
        feed = following - 1
        if feed < line_ends[line] or text[feed] != LINE_FEED or feed < start or feed >= end:
            continue
        if feed != run_end or run_start == run_end:
            if run_end - run_start >= least:
                starts[parts], ends[parts] = start, run_start
                start = run_end
                parts += 1
            run_start = feed
        run_end = following
    if run_end - run_start >= least:
        starts[parts], ends[parts] = start, run_start
        start = run_end
        parts += 1
    starts[parts], ends[parts] = start, end
    return parts + 1


@inlined
def group_words(line_words: Table, first_line: int, last_line: int, least: int, firsts: Words, lasts: Words) -> int:
    """Group the words of lines, or with ``least`` 2 those of neighbouring lines that have words.

    Groups are spans of ``ID_BYTES`` per word of the text.
    """
    groups = 0
    first_word = line_words[first_line]
    after_words = False
    for line in range(first_line, last_line):
        start, end = line_words[line] - first_word, line_words[line + 1] - first_word
        if start < end:
            if least == 1 or not after_words:
                firsts[groups] = start * ID_BYTES
                groups += 1
            lasts[groups - 1] = end * ID_BYTES
        after_words = start < end
    return groups


@kernel(
    f"int64[:, ::1]({STATISTICS}, {CLASSES}, boolean, "
    "Array(int32, 2, 'C'), Array(uint8, 1, 'C'), Array(int32, 1, 'C'), Array(uint8, 1, 'C'), Array(int64, 2, 'C'), "
    "Array(uint8, 1, 'C'))"
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
    places_of_words: npt.NDArray[np.int32],
    number_bytes: Bytes,
    table_places: Words,
    bytes_of_table: Bytes,
    hash_places: npt.NDArray[np.int64],
    joined_bytes: Bytes,
) -> npt.NDArray[np.int64]:
    """Return what is repeated in each text.

    Args:
        offsets to line_words: ``corpus.text_statistics.TextStatistics``.
        classes: class bits of the code points.
        as_datatrove: count as datatrove 0.10 does, or as thresher-1.
        places_of_words to joined_bytes: what ``filters.repetition_counts.scratch`` returns.

    Returns:
        int64[len(COUNTS), n], one contiguous row per count.
    """
    result = np.zeros((len(COUNTS), len(characters)), np.int64)
    text, class_table = pointer(data), pointer(classes)
    all_line_starts, all_line_ends, all_line_words = pointer(line_starts), pointer(line_ends), pointer(line_words)
    numbers, grams = pointer(places_of_words[NUMBERS]), pointer(places_of_words[GRAMS])
    active, firsts = pointer(places_of_words[ACTIVE]), pointer(places_of_words[FIRSTS, 1:])
    counts = pointer(places_of_words[COUNTS_OF_GRAMS])
    group_starts, group_ends = pointer(places_of_words[GROUP_STARTS]), pointer(places_of_words[GROUP_ENDS])
    table, hashes, pairs = pointer(table_places), pointer(hash_places[0, 1:]), pointer(hash_places[1, 1:])
    number_text, table_bytes, joined = pointer(number_bytes), pointer(bytes_of_table), pointer(joined_bytes)
    for row in range(len(characters)):
        first_word, first_line, last_line = word_firsts[row], line_firsts[row], line_firsts[row + 1]
        words = word_firsts[row + 1] - first_word
        start = int(offsets[row])
        end = int(offsets[row + 1]) if first_line < last_line else start  # nothing of a text that is not alive
        starts, ends = pointer(word_starts[first_word:]), pointer(word_ends[first_word:])
        before = pointer(word_characters[first_word:])
        distinct = number_words(text, len(data), starts, ends, words, table, hashes, pairs, numbers, firsts, counts)
        places = start_grams(numbers, words, counts, grams, active)
        for size in range(FIRST_TOP, (LAST_TOP if as_datatrove else LAST_DUPLICATE) + 1):
            places, distinct = lengthen_grams(grams, active, places, table, hashes, pairs, firsts, counts)
            if size > LAST_TOP:
                result[DUPLICATE_GRAMS + size, row] = covered_characters(
                    grams, active, places, before, size, NONE, firsts
                )
                continue
            best = most_frequent(firsts, counts, distinct, before, size, not as_datatrove) if places > 0 else NONE
            if not as_datatrove:
                if best != NONE:
                    result[TOP_GRAMS + size, row] = covered_characters(
                        grams, active, places, before, size, best, firsts
                    )
            elif words >= size:
                first = firsts[best] if best != NONE else 0
                times = counts[best] if best != NONE else 1
                result[TOP_GRAMS + size, row] = (before[first + size] - before[first] + size - 1) * times
        if as_datatrove:
            result[CHARACTERS, row] = characters[row]
            join_words(text, len(data), starts, ends, words, joined, group_starts)
            candidates = max(words - FIRST_DUPLICATE + 1, 0)
            for place in range(candidates):
                grams[place] = place
            hashed = 0
            for size in range(FIRST_DUPLICATE, LAST_DUPLICATE + 1):
                prefix = PREFIXES[size - FIRST_DUPLICATE]
                candidates = drop_unique_prefixes(
                    joined, group_starts, words, size, hashed, prefix, grams, candidates, table_bytes, pairs
                )
                hashed = prefix
                result[DUPLICATE_GRAMS + size, row] = count_joined_duplicates(
                    joined,
                    group_starts,
                    before,
                    words,
                    size,
                    hashed,
                    pairs,
                    grams,
                    candidates,
                    table,
                    hashes,
                )
        else:
            result[CHARACTERS, row] = before[words] - before[0]
        for kind in (LINES, PARAGRAPHS):
            least = 1 if kind == LINES else 2
            if as_datatrove:
                first_byte, last_byte = stripped(text, start, end, class_table) if least == 2 else (start, end)
                groups = split_at_line_feeds(
                    text,
                    first_byte,
                    last_byte,
                    least,
                    all_line_starts,
                    all_line_ends,
                    first_line,
                    last_line,
                    end,
                    group_starts,
                    group_ends,
                )
                distinct = number_spans(text, group_starts, group_ends, groups, table, hashes, active, firsts)
            else:
                groups = group_words(all_line_words, first_line, last_line, least, group_starts, group_ends)
                distinct = number_spans(number_text, group_starts, group_ends, groups, table, hashes, active, firsts)
            repeated_characters = 0
            for group in range(groups if distinct < groups else 0):
                if firsts[active[group]] == group:
                    continue
                first, last = group_starts[group], group_ends[group]
                if as_datatrove:
                    repeated_characters += count_code_points(text, first, last)
                else:
                    repeated_characters += before[last // ID_BYTES] - before[first // ID_BYTES]
            result[kind, row] = groups
            result[kind + 1, row] = groups - distinct
            result[kind + 2, row] = repeated_characters
    return result
