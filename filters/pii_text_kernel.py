"""Reading texts for private data: digits and signs of other scripts count as those of ASCII.

Full-width digits and signs are what Japanese and Chinese input methods give; Arabic-Indic and Persian digits are those
of ordinary Arabic and Persian text; non-breaking spaces and hyphens stand in typeset numbers. All helpers take pointers
(see ``corpus.text_kernel``).
"""

from __future__ import annotations

from corpus.jit import inlined
from corpus.text import Bytes, Offsets
from corpus.text_kernel import decode

NONE = -1
"""What stands before the first and behind the last character of a text."""


@inlined
def fold(code_point: int) -> int:
    """Return the ASCII character that a code point counts as; the code point itself where there is none."""
    if code_point < 0x660:
        return 0x20 if code_point == 0xA0 else code_point
    if code_point < 0x2000:
        if code_point <= 0x669:
            return code_point - 0x630
        return code_point - 0x6C0 if 0x6F0 <= code_point <= 0x6F9 else code_point
    if code_point <= 0x2212:
        if code_point in (0x2007, 0x2009, 0x202F):
            return 0x20
        return 0x2D if 0x2010 <= code_point <= 0x2013 or code_point == 0x2212 else code_point
    if code_point == 0x3000:
        return 0x20
    if 0xFF08 <= code_point <= 0xFF20 and code_point not in (0xFF0A, 0xFF0C, 0xFF1B, 0xFF1C, 0xFF1D, 0xFF1E, 0xFF1F):
        return code_point - 0xFEE0
    return code_point


@inlined
def after(text: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return the folded character that starts at a byte position, and its bytes; (NONE, 0) at the end."""
    if position >= end:
        return NONE, 0
    if text[position] < 0x80:
        return int(text[position]), 1
    code_point, size = decode(text, position)
    return fold(code_point), size


@inlined
def before(text: Bytes, begin: int, position: int) -> tuple[int, int]:
    """Return the folded character that ends at a byte position, and its bytes; (NONE, 0) at the beginning."""
    if position <= begin:
        return NONE, 0
    start = position - 1
    while text[start] & 0xC0 == 0x80:
        start -= 1
    code_point, size = decode(text, start)
    return fold(code_point), size


@inlined
def is_digit(code: int) -> bool:
    """Say whether a folded character is a digit."""
    return 48 <= code <= 57


@inlined
def is_letter(code: int) -> bool:
    """Say whether a folded character is a letter of ASCII."""
    return 97 <= (code | 32) <= 122 and code >= 65


@inlined
def is_word(code: int) -> bool:
    """Say whether a folded character is a letter of ASCII, a digit or ``_``."""
    return is_letter(code) or 48 <= code <= 57 or code == 95


@inlined
def ends_with_word(text: Bytes, begin: int, position: int, offsets: Offsets, words: Bytes, count: int) -> int:
    """Return where the longest listed word begins that ends at a byte position; NONE if there is none.

    A word of Latin, Greek or Cyrillic letters does not count as the end of a longer one; words of other scripts do,
    for these write particles and words without a space between.

    Args:
        offsets, words: ``count`` words, see ``filters.pii_tables.packed_words``.
    """
    found = NONE
    code, _ = before(text, begin, position)
    if not (is_letter(code) or code >= 0xC0):
        return NONE
    for word in range(count):
        first, place = int(offsets[word]), position - 1
        last = int(offsets[word + 1]) - 1
        while last >= first and place >= begin:
            byte = int(text[place])
            if (byte | 32 if 65 <= byte <= 90 else byte) != words[last]:
                break
            last -= 1
            place -= 1
        if last >= first or (found != NONE and place + 1 >= found):
            continue
        code, _ = before(text, begin, place + 1)
        if words[first] >= 0xD7 or not (is_letter(code) or 0xC0 <= code < 0x2E80):
            found = place + 1
    return found


@inlined
def skip_back(text: Bytes, begin: int, position: int) -> int:
    """Return the byte position before at most five spaces, quotes and signs (``: . = #``) before a byte position."""
    for _ in range(5):
        code, size = before(text, begin, position)
        if code not in (0x20, 0x22, 0x23, 0x27, 0x2E, 0x3A, 0x3D):
            break
        position -= size
    return position
