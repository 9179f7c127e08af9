"""What the C4 quality rules want to know about one line, compiled.

Helpers for the sweep of ``filters.c4_kernel``; the reference in plain Python is ``filters.c4_reference``. All take
pointers, see ``corpus.text_kernel``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined
from corpus.text import Bytes
from corpus.text_kernel import decode, scan_word
from corpus.unicode_tables import LETTER, LINE_BREAK, MARK, OWN_BITS, SEPARATOR, UNSPACED, WHITE_SPACE, Classes

# Class bits: what may end a line, what may follow an end, what ends a sentence, what does so without a space behind it,
# small letters, decimal digits, the opening square bracket.
END_MARK, CLOSING, TERMINAL, FULL_WIDTH = 1 << OWN_BITS, 2 << OWN_BITS, 4 << OWN_BITS, 8 << OWN_BITS
SMALL, DIGIT, BRACKET = 16 << OWN_BITS, 32 << OWN_BITS, 64 << OWN_BITS

# Options: rules that are on, and how the text is read (``filters.c4_rules.Reading``).
TERMINAL_PUNCTUATION, JAVASCRIPT, POLICY, CITATION_MARKS, LOREM_IPSUM, CURLY_BRACKET = 1, 2, 4, 8, 16, 32
CLOSING_FOLLOWS, ELLIPSIS_ENDS, WORDS_FIRST, TIDY, WHOLE_PAGE, FIRST_FOUND = 64, 128, 256, 512, 1024, 2048

# What a byte may start: nothing, the end of a sentence, a curly bracket, a character beyond ASCII, or a phrase that has
# one of the letters searched for.
PLAIN, ENDS_SENTENCE, CURLY, WIDE, FIRST_LETTER = 0, 1, 2, 3, 4
# What a line may have.
HAS_JAVASCRIPT, HAS_LOREM_IPSUM, HAS_POLICY, HAS_CURLY = 1, 2, 4, 8

PERIOD, OPENING_PARENTHESIS, OPENING_BRACKET, CLOSING_BRACKET = 0x2E, 0x28, 0x5B, 0x5D
KELVIN = 0x212A
EDIT, CITATION_NEEDED = 0, 1

Numbers = npt.NDArray[np.int32]


@inlined
def scan_line(text: Bytes, position: int, end: int, classes: Classes) -> tuple[int, int, int]:
    """Return where the line that starts at a byte position ends, its words, and the class bits that any of it has."""
    words = 0
    seen = 0
    state = 0  # behind a separator, in a run, or behind a word of a script without spaces
    while position < end:
        size = 1
        if text[position] < 0x80:
            found = int(classes[text[position]])
        else:
            code_point, size = decode(text, position)
            found = int(classes[code_point])
        seen |= found
        if found & SEPARATOR:
            if found & LINE_BREAK:
                break
            state = 0
        elif found & UNSPACED:
            words += 1
            state = 2
        elif state != 2 or not found & MARK:
            words += state != 1
            state = 1
            position += size
            while position < end and text[position] < 0x80:
                found = int(classes[text[position]])
                if found & SEPARATOR:
                    break
                seen |= found
                position += 1
            continue
        position += size
    return position, words, seen


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
def search_line(
    text: Bytes,
    start: int,
    end: int,
    classes: Classes,
    kinds: Bytes,
    characters: Bytes,
    offsets: Numbers,
    anchors: Numbers,
    meanings: npt.NDArray[np.int64],
    groups: Numbers,
    last_group: int,
) -> tuple[int, int]:
    """Return what phrases a line has, as bits, and its sentences; it neither is empty nor has white space at an end."""
    has = 0
    sentences = 1
    position = start
    while position < end:
        kind = kinds[text[position]]
        if kind == PLAIN:
            position += 1
            continue
        size = 1
        if kind == WIDE:
            code_point, size = decode(text, position)
            if code_point == KELVIN:
                kind = FIRST_LETTER + last_group
            elif classes[code_point] & TERMINAL:
                kind = ENDS_SENTENCE
        if kind >= FIRST_LETTER:
            group = kind - FIRST_LETTER
            for phrase in range(groups[group], groups[group + 1]):
                first, anchor = int(offsets[phrase]), int(anchors[phrase])
                if (
                    position - start >= anchor
                    and matches(text, position - anchor, position, characters, first, first + anchor, 0x20)
                    and matches(
                        text, position + size, end, characters, first + anchor + 1, int(offsets[phrase + 1]), 0x20
                    )
                ):
                    has |= meanings[phrase]
        elif kind == CURLY:
            has |= HAS_CURLY
        elif kind == ENDS_SENTENCE:
            behind = position
            full_width = 0
            while behind < end:
                code_point, size = decode(text, behind)
                found = int(classes[code_point])
                if not found & (TERMINAL | CLOSING):
                    break
                full_width |= found & FULL_WIDTH
                behind += size
            size = behind - position
            if behind < end and not (
                size == 1 and text[position] == PERIOD and is_initial(text, start, position, classes)
            ):
                following = skip_white_space(text, behind, end, classes)
                code_point, _ = decode(text, following)
                if full_width != 0 if following == behind else not classes[code_point] & SMALL:
                    sentences += 1
        position += size
    return has, sentences
