"""What each Unicode code point is, as class bits in one NumPy table.

All properties come from the pinned package ``unicodedata2``, never from the interpreter, whose tables differ between
Python versions. The table is flat (one entry per code point, 2 MiB): texts touch only the few pages of their scripts,
so a look-up costs one load from the processor's cache and no second stage.

The lower eight bits mean the same everywhere. Bits from ``OWN_BITS`` up are zero here: a stage that needs a class of
its own sets them in a copy of the table, so that its kernel gets all it wants to know with one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import unicodedata2

CODE_POINTS = 0x110000
ZERO_WIDTH_SPACE = 0x200B

LETTER = 1 << 0
"""Category L: what ``str.isalpha`` calls alphabetic."""
MARK = 1 << 1
"""Category M: combining marks, variation selectors."""
PUNCTUATION = 1 << 2
"""Categories P and S: punctuation and symbols."""
WHITE_SPACE = 1 << 3
"""Category Zs, or bidirectional type WS, B or S: what ``str.isspace`` and ``str.strip`` call white space."""
LINE_BREAK = 1 << 4
"""What ends a line for ``str.splitlines`` (carriage return and line feed together end one line)."""
UNSPACED = 1 << 5
"""Every code point, except combining marks, of the scripts that are written without spaces between words."""
FORMAT = 1 << 6
"""Category Cf: zero-width space and joiners, byte order mark, soft hyphen, directional marks."""
SEPARATOR = 1 << 7
"""What stands between words: white space and the zero-width space."""
OWN_BITS = 8
"""Number of the first bit that a stage may set in a copy of the table."""

UNSPACED_SCRIPTS = (
    "E00-EFF "  # Thai, Lao
    "1000-109F A9E0-A9FF AA60-AA7F "  # Burmese
    "1780-17FF "  # Khmer
    "3040-30FF 31F0-31FF FF66-FF9F "  # Kana
    "3005-3007 3021-3029 3400-9FFF F900-FAFF 20000-3FFFF"  # Han
)
LINE_BREAKS = "A-D 1C-1E 85 2028-2029"

_CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn"
_CATEGORY_BITS = {
    "L": LETTER,
    "M": MARK,
    "P": PUNCTUATION,
    "S": PUNCTUATION,
    "Zs": WHITE_SPACE | SEPARATOR,
    "Cf": FORMAT,
}

# Elsewhere are private code points, which have no other property and never change, and none.
_ASSIGNED = "0-3FFFF E0000-E0FFF"
_BLOCK = 1 << 8
_CHANGE_BY_ITSELF = "\n"

Classes = npt.NDArray[np.uint16]


def code_points(ranges: str) -> npt.NDArray[np.int64]:
    """Return the code points of ranges in hexadecimal, such as ``"A-D 85"``, in the order given."""
    parts = []
    for text in ranges.split(" "):
        first, _, last = text.partition("-")
        parts.append(np.arange(int(first, 16), int(last or first, 16) + 1))
    return np.concatenate(parts)


def changed_code_points(change: Callable[[str], str]) -> dict[int, str]:
    """Return the code points that a function of texts changes, ascending, with what it makes of each by itself.

    Most blocks of code points are left as they are, which one call for all of a block tells: this takes some 15 ms.

    Args:
        change: leaves line feeds alone, and what stands on one side of them makes no difference to the other.
    """
    changed: dict[int, str] = {}
    for first in code_points(_ASSIGNED)[::_BLOCK].tolist():
        characters = list(map(chr, range(first, first + _BLOCK)))
        text = _CHANGE_BY_ITSELF.join(characters)
        if change(text) == text:
            continue
        for code_point, character in enumerate(characters, first):
            result = change(character)
            if result != character:
                changed[code_point] = result
    return changed


@cache
def _category_numbers() -> npt.NDArray[np.uint8]:
    """Return the category of each code point, as its place in ``_CATEGORIES``."""
    names = _CATEGORIES.split(" ")
    number = {name: place for place, name in enumerate(names)}
    numbers = np.full(CODE_POINTS, number["Cn"], np.uint8)
    numbers[0xF0000:] = number["Co"]
    numbers[0xFFFFE::0x10000] = numbers[0xFFFFF::0x10000] = number["Cn"]
    assigned = code_points(_ASSIGNED)
    numbers[assigned] = [number[unicodedata2.category(chr(code_point))] for code_point in assigned.tolist()]
    return numbers


def category_bits(bits: Mapping[str, int]) -> Classes:
    """Return for all 0x110000 code points the bits of its category, such as ``Lu``, 0 for one that is not given."""
    table = np.array([bits.get(name, 0) for name in _CATEGORIES.split(" ")], np.uint16)
    return table[_category_numbers()]


@cache
def code_point_classes() -> Classes:
    """Return the class bits of all 0x110000 code points; read-only, built once per process in about 0.03 s."""
    names = _CATEGORIES.split(" ")
    classes = category_bits({name: _CATEGORY_BITS.get(name, _CATEGORY_BITS.get(name[0], 0)) for name in names})
    # Other white space is among the control characters and the two separators of lines and paragraphs.
    for code_point in code_points("0-1F 7F-9F 2028-2029").tolist():
        if unicodedata2.bidirectional(chr(code_point)) in ("WS", "B", "S"):
            classes[code_point] |= WHITE_SPACE | SEPARATOR
    classes[ZERO_WIDTH_SPACE] |= SEPARATOR
    classes[code_points(LINE_BREAKS)] |= LINE_BREAK
    unspaced = code_points(UNSPACED_SCRIPTS)
    classes[unspaced[classes[unspaced] & MARK == 0]] |= UNSPACED
    classes.setflags(write=False)
    return classes


@cache
def members(bits: int) -> str:
    """Return the characters that have any of some class bits, ascending."""
    return "".join(map(chr, np.flatnonzero(code_point_classes() & bits).tolist()))


def regular_expression_class(bits: int) -> str:
    """Return the inside of a character class of ``re`` that holds the code points with any of these class bits."""
    member = np.flatnonzero(code_point_classes() & bits)
    starts = member[np.diff(member, prepend=-2) != 1]
    ends = member[np.diff(member, append=CODE_POINTS + 1) != 1]
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in zip(starts.tolist(), ends.tolist(), strict=True))
