"""Repeated words, lines and paragraphs of texts, compiled: what the rules of ``gopher_repetition`` compare.

Words are numbered by content, and each n-gram by those of its two (n - 1)-grams. Only places whose n-gram occurs more
than once can hold a repeated (n + 1)-gram, so the longer n-grams cost next to nothing in text that is not repetitive.

datatrove joins the words of its longer n-grams without a separator, so that n-grams can be equal which are not the
same words. They are compared as the bytes between two words of the text with all white space left out; the first
``PREFIX`` bytes tell for most places that no other place can be equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.span_kernel import (
    EMPTY,
    SEED,
    Hashes,
    Words,
    clear_table,
    count_code_points,
    hash_span,
    load_8,
    mix,
    number_spans,
    same_bytes,
)
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, LINE_FEED, OFFSETS, ROWS, decode, line_break_length, pointer, scan_word
from corpus.unicode_tables import LINE_BREAK, SEPARATOR, WHITE_SPACE, Classes

# Rows of the table of counts; a row of n-grams is TOP_GRAMS + n or DUPLICATE_GRAMS + n.
CHARACTERS, LINES, DUPLICATE_LINES, DUPLICATE_LINE_CHARACTERS = 0, 1, 2, 3
PARAGRAPHS, DUPLICATE_PARAGRAPHS, DUPLICATE_PARAGRAPH_CHARACTERS = 4, 5, 6
TOP_GRAMS, DUPLICATE_GRAMS = 7 - 2, 10 - 5
STATISTICS = 16

FIRST_TOP, LAST_TOP, FIRST_DUPLICATE, LAST_DUPLICATE = 2, 4, 5, 10
PREFIX = 16
ID_BYTES = 4
NONE = -1

# Rows of the scratch for places of words, lines and paragraphs.
STARTS, ENDS, BEFORE, NUMBERS, GRAMS, ACTIVE, FIRSTS, COUNTS, GROUP_STARTS, GROUP_ENDS = range(10)


@inlined
def scan_words(
    text: Bytes, position: int, end: int, classes: Classes, starts: Words, ends: Words, before: Words
) -> int:
    """Find the words of a text and return their number; ``before`` takes the characters of the words before each."""
    words = characters = 0
    while position < end:
        code_point, size = decode(text, position)
        if classes[code_point] & SEPARATOR:
            position += size
            continue
        starts[words] = position
        before[words] = characters
        position, length, _ = scan_word(text, position, end, classes)
        ends[words] = position
        characters += length
        words += 1
    before[words] = characters
    return words


@inlined
def split_at_line_feeds(text: Bytes, start: int, end: int, least: int, starts: Words, ends: Words) -> int:
    """Split at runs of at least so many line feeds, as ``re.split`` does, and return the number of parts."""
    parts = 0
    position = start
    while position < end:
        if text[position] != LINE_FEED:
            position += 1
            continue
        run = position
        while position < end and text[position] == LINE_FEED:
            position += 1
        if position - run >= least:
            starts[parts], ends[parts] = start, run
            start = position
            parts += 1
    starts[parts], ends[parts] = start, end
    return parts + 1


@inlined
def stripped(text: Bytes, start: int, end: int, classes: Classes) -> tuple[int, int]:
    """Return where a text begins and ends without the white space around it."""
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


@inlined
def break_length(text: Bytes, position: int, end: int, classes: Classes) -> int:
    """Return how many lines end between two words: 0, 1, or 2 for more."""
    breaks = 0
    while position < end and breaks < 2:
        code_point, size = decode(text, position)
        if classes[code_point] & LINE_BREAK:
            breaks += 1
            size = line_break_length(text, position, end, size)
        position += size
    return breaks


@inlined
def group_words(
    text: Bytes, classes: Classes, starts: Words, ends: Words, words: int, least: int, firsts: Words, lasts: Words
) -> int:
    """Group words that fewer than ``least`` line ends stand between; groups are spans of ``ID_BYTES`` per word."""
    groups = 0
    for word in range(words):
        if word == 0 or break_length(text, ends[word - 1], starts[word], classes) >= least:
            firsts[groups] = word * ID_BYTES
            groups += 1
        lasts[groups - 1] = (word + 1) * ID_BYTES
    return groups


@inlined
def start_grams(numbers: Words, words: int, distinct: int, counts: Words, grams: Words, active: Words) -> int:
    """Set ``grams`` to the numbers of the words that occur again, ``active`` to their places; return how many."""
    for number in range(distinct):
        counts[number] = 0
    for word in range(words):
        counts[numbers[word]] += 1
    places = 0
    for word in range(words):
        grams[word] = NONE
        if counts[numbers[word]] > 1:
            grams[word] = numbers[word]
            active[places] = word
            places += 1
    grams[words] = NONE
    return places


@inlined
def lengthen_grams(
    grams: Words, active: Words, places: int, table: Words, keys: Hashes, firsts: Words, counts: Words
) -> tuple[int, int]:
    """Go from repeated n-grams to the repeated (n + 1)-grams.

    Args:
        grams: per place the number of the n-gram that begins there, ``NONE`` where it occurs only once; overwritten.
        active: the ``places`` places of repeated n-grams, ascending; overwritten.
        table, keys: scratch.
        firsts, counts: take the first place of each (n + 1)-gram and how often it occurs.

    Returns:
        How many places are left in ``active``, and how many numbers there are.
    """
    mask = clear_table(table, places)
    distinct = 0
    for index in range(places):
        place = active[index]
        if grams[place + 1] == NONE:
            grams[place] = NONE
            continue
        key = (int(grams[place]) << 32) | int(grams[place + 1])
        slot = mix(SEED, key) & mask
        while table[slot] != EMPTY and keys[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = distinct
            keys[distinct] = key
            firsts[distinct] = place
            counts[distinct] = 0
            distinct += 1
        grams[place] = table[slot]
        counts[table[slot]] += 1
    left = 0
    for index in range(places):
        place = active[index]
        if grams[place] != NONE and counts[grams[place]] > 1:
            active[left] = place
            left += 1
        else:
            grams[place] = NONE
    return left, distinct


@inlined
def most_frequent(firsts: Words, counts: Words, distinct: int, before: Words, size: int, longest: bool) -> int:
    """Return the number of the n-gram that occurs most often: the first of several, or the longest of them."""
    best = NONE
    for number in range(distinct):
        if best == NONE or counts[number] > counts[best]:
            best = number
        elif longest and counts[number] == counts[best]:
            length = before[firsts[number] + size] - before[firsts[number]]
            if length > before[firsts[best] + size] - before[firsts[best]]:
                best = number
    return best


@inlined
def covered_characters(
    grams: Words, active: Words, places: int, before: Words, size: int, wanted: int, firsts: Words
) -> int:
    """Return the characters of the words in repeated n-grams, each word once.

    All occurrences of the n-gram ``wanted``; or where that is ``NONE``, all occurrences but the first of every n-gram.
    """
    characters = covered = 0
    for index in range(places):
        place = int(active[index])
        if grams[place] != wanted if wanted != NONE else firsts[grams[place]] == place:
            continue
        characters += before[place + size] - before[max(place, covered)]
        covered = place + size
    return characters


@inlined
def join_words(text: Bytes, starts: Words, ends: Words, words: int, joined: Bytes, cuts: Words) -> None:
    """Write the words of a text one after the other; ``cuts`` takes where each begins, and the end."""
    length = 0
    for word in range(words):
        cuts[word] = length
        for position in range(starts[word], ends[word]):
            joined[length] = text[position]
            length += 1
    cuts[words] = length


@inlined
def mark_repeated_prefixes(
    joined: Bytes, cuts: Words, words: int, table: Words, hashes: Hashes, repeated: Words
) -> None:
    """Mark the words from which the next ``PREFIX`` bytes are (almost surely) those from another word as well."""
    mask = clear_table(table, words)
    for word in range(words):
        repeated[word] = 0
        start = cuts[word]
        if start + PREFIX > cuts[words]:
            continue
        found = mix(mix(SEED, load_8(joined, start)), load_8(joined, start + 8))
        hashes[word] = found
        slot = found & mask
        while table[slot] != EMPTY and hashes[table[slot]] != found:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = word
        else:
            repeated[word] = 1
            repeated[table[slot]] = 1


@inlined
def count_joined_duplicates(
    joined: Bytes,
    cuts: Words,
    before: Words,
    words: int,
    size: int,
    table: Words,
    hashes: Hashes,
    repeated: Words,
) -> int:
    """Return the characters of the n-grams that datatrove takes for duplicates.

    It goes from place to place; an n-gram that was seen before counts, and the places inside it are left out.
    """
    mask = clear_table(table, words)
    characters = place = 0
    while place <= words - size:
        start, length = int(cuts[place]), int(cuts[place + size] - cuts[place])
        place += 1
        if length >= PREFIX and not repeated[place - 1]:
            continue
        found = hash_span(joined, start, start + length)
        slot = found & mask
        while table[slot] != EMPTY:
            other = table[slot]
            same_length = cuts[other + size] - cuts[other] == length
            if hashes[other] == found and same_length and same_bytes(joined, cuts[other], start, length):
                break
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = place - 1
            hashes[place - 1] = found
        else:
            characters += before[place - 1 + size] - before[place - 1]
            place += size - 1
    return characters


@kernel(
    f"int64[:, ::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, boolean, "
    "Array(int32, 2, 'C'), Array(uint8, 1, 'C'), Array(int32, 1, 'C'), Array(int64, 1, 'C'), Array(uint8, 1, 'C'))"
)
def sweep(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
    as_datatrove: bool,
    places_of_words: npt.NDArray[np.int32],
    number_bytes: Bytes,
    table_places: Words,
    hash_places: Hashes,
    joined_bytes: Bytes,
) -> npt.NDArray[np.int64]:
    """Return what is repeated in each text.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``.
        rows: bool[n], the texts to look at; the counts of others are 0.
        classes: class bits of the code points.
        as_datatrove: count as datatrove 0.10 does, or as thresher-1.
        places_of_words, number_bytes, table_places, hash_places, joined_bytes: what ``scratch`` returns.

    Returns:
        int64[STATISTICS, n], one contiguous row per statistic.
    """
    result = np.zeros((STATISTICS, len(rows)), np.int64)
    text, class_table = pointer(data), pointer(classes)
    starts, ends = pointer(places_of_words[STARTS]), pointer(places_of_words[ENDS])
    before, numbers = pointer(places_of_words[BEFORE]), pointer(places_of_words[NUMBERS])
    grams, active = pointer(places_of_words[GRAMS]), pointer(places_of_words[ACTIVE])
    firsts, counts = pointer(places_of_words[FIRSTS]), pointer(places_of_words[COUNTS])
    group_starts, group_ends = pointer(places_of_words[GROUP_STARTS]), pointer(places_of_words[GROUP_ENDS])
    table, hashes = pointer(table_places), pointer(hash_places)
    number_text, joined = pointer(number_bytes), pointer(joined_bytes)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        start, end = int(offsets[row]), int(offsets[row + 1])
        words = scan_words(text, start, end, class_table, starts, ends, before)
        distinct = number_spans(text, starts, ends, words, table, hashes, numbers, firsts)
        places = start_grams(numbers, words, distinct, counts, grams, active)
        for size in range(FIRST_TOP, (LAST_TOP if as_datatrove else LAST_DUPLICATE) + 1):
            places, distinct = lengthen_grams(grams, active, places, table, hashes, firsts, counts)
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
            result[CHARACTERS, row] = count_code_points(text, start, end)
            join_words(text, starts, ends, words, joined, group_starts)
            mark_repeated_prefixes(joined, group_starts, words, table, hashes, active)
            for size in range(FIRST_DUPLICATE, LAST_DUPLICATE + 1):
                result[DUPLICATE_GRAMS + size, row] = count_joined_duplicates(
                    joined, group_starts, before, words, size, table, hashes, active
                )
        else:
            result[CHARACTERS, row] = before[words]
        for kind in (LINES, PARAGRAPHS):
            least = 1 if kind == LINES else 2
            if as_datatrove:
                first_byte, last_byte = stripped(text, start, end, class_table) if least == 2 else (start, end)
                groups = split_at_line_feeds(text, first_byte, last_byte, least, group_starts, group_ends)
                distinct = number_spans(text, group_starts, group_ends, groups, table, hashes, active, firsts)
            else:
                groups = group_words(text, class_table, starts, ends, words, least, group_starts, group_ends)
                distinct = number_spans(number_text, group_starts, group_ends, groups, table, hashes, active, firsts)
            characters = 0
            for group in range(groups if distinct < groups else 0):
                if firsts[active[group]] == group:
                    continue
                first, last = group_starts[group], group_ends[group]
                if as_datatrove:
                    characters += count_code_points(text, first, last)
                else:
                    characters += before[last // ID_BYTES] - before[first // ID_BYTES]
            result[kind, row] = groups
            result[kind + 1, row] = groups - distinct
            result[kind + 2, row] = characters
    return result
