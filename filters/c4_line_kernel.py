"""What the C4 quality rules want to know about one line, compiled.

Helpers for the sweep of ``filters.c4_kernel``; the reference in plain Python is ``filters.c4_reference``. All take
pointers, see ``corpus.text_kernel``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.block_kernel import BLOCK, block_of, lowest_bit, pair_block_of
from corpus.jit import inlined
from corpus.text import Bytes
from corpus.text_kernel import decode, scan_word
from corpus.unicode_tables import LETTER, OWN_BITS, SEPARATOR, WHITE_SPACE, Classes

# Class bits: what may end a line, what may follow an end, what ends a sentence, what does so without a space behind it,
# small letters, decimal digits.
END_MARK, CLOSING, TERMINAL, FULL_WIDTH = 1 << OWN_BITS, 2 << OWN_BITS, 4 << OWN_BITS, 8 << OWN_BITS
SMALL, DIGIT = 16 << OWN_BITS, 32 << OWN_BITS

# Options: rules that are on, and how the text is read (``filters.c4_rules.Reading``).
TERMINAL_PUNCTUATION, JAVASCRIPT, POLICY, CITATION_MARKS, LOREM_IPSUM, CURLY_BRACKET = 1, 2, 4, 8, 16, 32
CLOSING_FOLLOWS, ELLIPSIS_ENDS, WORDS_FIRST, TIDY, WHOLE_PAGE, FIRST_FOUND = 64, 128, 256, 512, 1024, 2048

# What a byte may start: nothing, the end of a sentence, a curly bracket, a character beyond ASCII, or one of the pairs
# of letters by which phrases are found.
PLAIN, ENDS_SENTENCE, CURLY, WIDE, FIRST_PAIR = 0, 1, 2, 3, 4
PAIRS = ("ja", "ps", "ms", "cy", "ki")
"""A phrase is searched for at one of these, chosen rare; their first letters differ."""
# What a line may have.
HAS_JAVASCRIPT, HAS_LOREM_IPSUM, HAS_POLICY, HAS_CURLY = 1, 2, 4, 8

PERIOD, OPENING_PARENTHESIS, OPENING_BRACKET, CLOSING_BRACKET = 0x2E, 0x28, 0x5B, 0x5D
KELVIN = 0x212A
EDIT, CITATION_NEEDED = 0, 1

Numbers = npt.NDArray[np.int32]

line_block = block_of(((0x80, 0xFF),), ((OPENING_BRACKET, OPENING_BRACKET),))
"""Read a block: bytes beyond ASCII, opening square brackets."""
search_block = block_of(((0x21, 0x21), (0x2E, 0x2E), (0x3F, 0x3F), (0x7B, 0x7B), (0xC0, 0xFF)))
"""Read a block: what ends sentences, curly brackets, first bytes of what is beyond ASCII."""
pair_block = pair_block_of(*PAIRS)
"""Read a block: pairs of letters by which phrases are found."""


@inlined
def bytes_of_line(text: Bytes, start: int, end: int, readable: int) -> tuple[bool, bool]:
    """Return whether any byte of a line is beyond ASCII, and whether it has an opening square bracket.

    Args:
        readable: how many bytes can be read of ``text``.
    """
    wide = bracket = 0
    while start < end and start + BLOCK <= readable:
        beyond, opening = line_block(text, start)
        keep = (1 << (end - start)) - 1 if end - start < BLOCK else -1
        wide |= beyond & keep
        bracket |= opening & keep
        start += BLOCK
    while start < end:
        wide |= text[start] >= 0x80
        bracket |= text[start] == OPENING_BRACKET
        start += 1
    return wide != 0, bracket != 0


@inlined
def count_words(text: Bytes, position: int, end: int, classes: Classes) -> int:
    """Return the number of words between two byte positions."""
    words = 0
    while position < end:
        code_point, size = decode(text, position)
        if classes[code_point] & SEPARATOR:
            position += size
            continue
        position, _, _ = scan_word(text, position, end, classes)
        words += 1
    return words


@inlined
def skip_white_space(text: Bytes, position: int, end: int, classes: Classes) -> int:
    """Return the byte position of the first code point from here on that is no white space, or the end."""
    while position < end:
        code_point, size = decode(text, position)
        if not classes[code_point] & WHITE_SPACE:
            break
        position += size
    return position


@inlined
def previous(text: Bytes, position: int) -> int:
    """Return the byte position of the code point before one."""
    position -= 1
    while text[position] & 0xC0 == 0x80:
        position -= 1
    return position


@inlined
def drop_white_space(text: Bytes, start: int, position: int, classes: Classes) -> int:
    """Return the byte position behind the last code point before this one that is no white space, or the start."""
    while position > start:
        last = previous(text, position)
        code_point, _ = decode(text, last)
        if not classes[code_point] & WHITE_SPACE:
            break
        position = last
    return position


@inlined
def has_longer_word(text: Bytes, position: int, end: int, classes: Classes, limit: int) -> bool:
    """Say whether a line has a word of more code points than the limit."""
    while position < end:
        code_point, size = decode(text, position)
        if classes[code_point] & SEPARATOR:
            position += size
            continue
        position, characters, _ = scan_word(text, position, end, classes)
        if characters > limit:
            return True
    return False


@inlined
def has_end_mark(text: Bytes, start: int, end: int, classes: Classes, options: int) -> bool:
    """Say whether a line ends with an end mark."""
    while end > start:
        last = previous(text, end)
        code_point, _ = decode(text, last)
        found = int(classes[code_point])
        if found & END_MARK:
            is_ellipsis = (
                end - start >= 3 and text[end - 1] == PERIOD and text[end - 2] == PERIOD and text[end - 3] == PERIOD
            )
            return options & ELLIPSIS_ENDS != 0 or not is_ellipsis
        if not (options & CLOSING_FOLLOWS and found & CLOSING):
            return False
        end = last
    return False


@inlined
def matches(text: Bytes, position: int, end: int, characters: Bytes, first: int, last: int, fold: int) -> bool:
    """Say whether characters of a phrase stand at a byte position; ``fold`` is 0x20 where capitals do not count."""
    if end - position < last - first:
        return False
    while first < last:
        byte = int(text[position])
        if 0x41 <= byte <= 0x5A:
            byte |= fold
        if byte != characters[first]:
            return False
        position += 1
        first += 1
    return True


@inlined
def find_citations(
    text: Bytes,
    start: int,
    end: int,
    classes: Classes,
    characters: Bytes,
    offsets: Numbers,
    tidy: bool,
    starts: Numbers,
    ends: Numbers,
) -> int:
    """Find the citation marks of a line, without white space at its ends, and return how many there are.

    Where they are tidied, a mark takes the white space before it, and at the start of the line that behind it.
    """
    count = 0
    position = start
    while position < end:
        if text[position] != OPENING_BRACKET:
            position += 1
            continue
        opening = position
        position += 1
        while position < end:
            code_point, size = decode(text, position)
            if not classes[code_point] & DIGIT:
                break
            position += size
        if position < end and text[position] == CLOSING_BRACKET and not (tidy and position == opening + 1):
            position += 1
        else:
            position = opening + 1
            for name in range(EDIT, CITATION_NEEDED + 1):
                if matches(text, position, end, characters, offsets[name], offsets[name + 1], 0):
                    position += offsets[name + 1] - offsets[name]
                    break
            if position == opening + 1:
                continue
        floor = int(ends[count - 1]) if count else start
        starts[count] = drop_white_space(text, floor, opening, classes) if tidy else opening
        ends[count] = position
        count += 1
    if tidy:
        trim_start(text, start, end, classes, starts, ends, count)
    return count


@inlined
def trim_start(text: Bytes, start: int, end: int, classes: Classes, starts: Numbers, ends: Numbers, count: int) -> int:
    """Let citation marks at the start of a line take the white space behind them; return where what is left starts."""
    for index in range(count):
        if starts[index] != start:
            break
        stop = int(starts[index + 1]) if index + 1 < count else end
        ends[index] = skip_white_space(text, int(ends[index]), stop, classes)
        start = int(ends[index])
    return start


@inlined
def copy_without(text: Bytes, start: int, end: int, starts: Numbers, ends: Numbers, count: int, copied: Bytes) -> int:
    """Copy a line without its citation marks, and return its length in bytes."""
    length = 0
    for index in range(count + 1):
        stop = int(starts[index]) if index < count else end
        for position in range(start, stop):
            copied[length] = text[position]
            length += 1
        if index < count:
            start = int(ends[index])
    return length


@inlined
def end_of_rest(text: Bytes, start: int, end: int, classes: Classes, starts: Numbers, ends: Numbers, count: int) -> int:
    """Return where, without its citation marks, the last code point of a line ends that is no white space; -1: none."""
    for index in range(count, -1, -1):
        first = int(ends[index - 1]) if index else start
        stop = drop_white_space(text, first, end, classes)
        if stop > first:
            return stop
        end = int(starts[index - 1]) if index else end
    return -1


@inlined
def is_initial(text: Bytes, start: int, position: int, classes: Classes) -> bool:
    """Say whether before this period stands a letter that is a word by itself."""
    if position == start:
        return False
    letter = previous(text, position)
    code_point, _ = decode(text, letter)
    if not classes[code_point] & LETTER:
        return False
    if letter == start:
        return True
    code_point, _ = decode(text, previous(text, letter))
    return code_point in (PERIOD, OPENING_PARENTHESIS) or classes[code_point] & WHITE_SPACE != 0


@inlined
def places_to_look_at(text: Bytes, position: int, end: int, readable: int, kinds: Bytes) -> int:
    """Return where in the next ``BLOCK`` bytes of a line something may start, one bit per byte."""
    if position + BLOCK < readable:
        (marks,) = search_block(text, position)
        places = int(marks) | int(pair_block(text, position))
        return places & ((1 << (end - position)) - 1) if end - position < BLOCK else places
    places = 0
    for place in range(position, min(position + BLOCK, end)):
        places |= (kinds[text[place]] != PLAIN) << (place - position)
    return places


@inlined
def find_phrases(
    text: Bytes,
    start: int,
    position: int,
    size: int,
    end: int,
    characters: Bytes,
    offsets: Numbers,
    anchors: Numbers,
    meanings: npt.NDArray[np.int64],
    first: int,
    last: int,
) -> int:
    """Return which phrases of a group a line has at a place, as bits.

    Args:
        position, size: where the first letter of the pair stands of the phrases ``first`` to ``last - 1``, and its
            length in bytes.
    """
    has = 0
    for phrase in range(first, last):
        begin, anchor = int(offsets[phrase]), int(anchors[phrase])
        if (
            position - start >= anchor
            and matches(text, position - anchor, position, characters, begin, begin + anchor, 0x20)
            and matches(text, position + size, end, characters, begin + anchor + 1, int(offsets[phrase + 1]), 0x20)
        ):
            has |= meanings[phrase]
    return has


@inlined
def end_of_marks(text: Bytes, start: int, position: int, end: int, classes: Classes) -> tuple[int, bool]:
    """Return where the run of marks ends that begins with the end of a sentence, and whether a sentence follows."""
    behind = position
    full_width = 0
    while behind < end:
        code_point, size = decode(text, behind)
        found = int(classes[code_point])
        if not found & (TERMINAL | CLOSING):
            break
        full_width |= found & FULL_WIDTH
        behind += size
    if behind == end:
        return behind, False
    if behind == position + 1 and text[position] == PERIOD and is_initial(text, start, position, classes):
        return behind, False
    following = skip_white_space(text, behind, end, classes)
    if following == behind:
        return behind, full_width != 0
    code_point, _ = decode(text, following)
    return behind, not classes[code_point] & SMALL


@inlined
def search_line(
    text: Bytes,
    start: int,
    end: int,
    readable: int,
    classes: Classes,
    kinds: Bytes,
    characters: Bytes,
    offsets: Numbers,
    anchors: Numbers,
    meanings: npt.NDArray[np.int64],
    groups: Numbers,
    last_group: int,
) -> tuple[int, int]:
    """Return what phrases a line has, as bits, and its sentences; it neither is empty nor has white space at an end.

    Args:
        readable: how many bytes can be read of ``text``.
    """
    has = 0
    sentences = 1
    behind_marks = start
    for block in range(start, end, BLOCK):
        places = places_to_look_at(text, block, end, readable, kinds)
        while places != 0:
            position = block + lowest_bit(places)
            places &= places - 1
            if position < behind_marks:
                continue
            kind = kinds[text[position]]
            size = 1
            if kind == WIDE:
                code_point, size = decode(text, position)
                if code_point == KELVIN:
                    kind = FIRST_PAIR + last_group
                elif classes[code_point] & TERMINAL:
                    kind = ENDS_SENTENCE
            if kind >= FIRST_PAIR:
                group = kind - FIRST_PAIR
                has |= find_phrases(
                    text,
                    start,
                    position,
                    size,
                    end,
                    characters,
                    offsets,
                    anchors,
                    meanings,
                    groups[group],
                    groups[group + 1],
                )
            elif kind == CURLY:
                has |= HAS_CURLY
            elif kind == ENDS_SENTENCE:
                behind_marks, ended = end_of_marks(text, start, position, end, classes)
                sentences += ended
    return has, sentences
