"""Texts in normalisation form NFC, of the Unicode version of the pinned package.

Most text is in NFC already. A kernel finds the few texts that may not be, from one table of what can compose; only
these are given to ``unicodedata2``, whose result is exact.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import unicodedata2

from corpus.text import text_buffers
from corpus.unicode_tables import CODE_POINTS, MARK, changed_code_points, code_point_classes, code_points

COMBINING_CLASS = 0xFF
"""The bits that hold the canonical combining class; 0 is a starter."""
NEVER_IN_NFC = 1 << 8
"""NFC replaces the code point, whatever stands around it."""
COMPOSES_WITH_NEXT = 1 << 9
"""Begins some primary composite, or is one: a mark behind it may belong before its own marks."""
COMPOSES_WITH_LAST = 1 << 10
"""Second in some primary composite, or a composite that begins with such a code point."""

HANGUL_LEADING, HANGUL_VOWELS, HANGUL_TRAILING, HANGUL_SYLLABLES = "1100-1112", "1161-1175", "11A8-11C2", "AC00-D7A3"
_TRAILING_FORMS = 28


@cache
def composition_classes() -> npt.NDArray[np.uint16]:
    """Return combining class and composition bits of all 0x110000 code points; read-only, built once."""
    classes = np.zeros(CODE_POINTS, np.uint16)
    for code_point in np.flatnonzero(code_point_classes() & MARK).tolist():
        classes[code_point] = unicodedata2.combining(chr(code_point))
    syllables = code_points(HANGUL_SYLLABLES)
    beginnings: dict[int, int] = {}
    for code_point in changed_code_points(partial(unicodedata2.normalize, "NFD")):
        if syllables[0] <= code_point <= syllables[-1]:
            continue
        if unicodedata2.normalize("NFC", chr(code_point)) != chr(code_point):
            classes[code_point] |= NEVER_IN_NFC
            continue
        first, second = (int(part, 16) for part in unicodedata2.decomposition(chr(code_point)).split(" "))
        classes[[code_point, first]] |= COMPOSES_WITH_NEXT
        classes[second] |= COMPOSES_WITH_LAST
        beginnings[code_point] = first
    for code_point, first in beginnings.items():
        while first in beginnings:
            first = beginnings[first]
        classes[code_point] |= classes[first] & COMPOSES_WITH_LAST
    # Hangul syllables are composed by arithmetic: a leading consonant with a vowel, then with a trailing consonant.
    classes[code_points(HANGUL_LEADING)] |= COMPOSES_WITH_NEXT
    classes[syllables[::_TRAILING_FORMS]] |= COMPOSES_WITH_NEXT
    classes[code_points(f"{HANGUL_VOWELS} {HANGUL_TRAILING}")] |= COMPOSES_WITH_LAST
    classes.setflags(write=False)
    return classes


def may_change(text: str) -> bool:
    """Say whether NFC might change a text; where this is false, it does not. The kernel's plain-Python reference."""
    classes = composition_classes()
    starter = last_class = 0
    for character in text:
        found = int(classes[ord(character)])
        combining_class = found & COMBINING_CLASS
        if found & NEVER_IN_NFC or 0 < combining_class < last_class:
            return True
        if found & COMPOSES_WITH_LAST and starter & COMPOSES_WITH_NEXT:
            return True
        last_class = combining_class
        if combining_class == 0:
            starter = found
    return False


def to_nfc(texts: pa.StringArray, rows: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Return n texts in NFC: the array given, where nothing changes.

    A text whose row is false in the mask ``rows``, bool[n], stays as it is. Raises TypeError for an array of another
    type than string.
    """
    from corpus.normalisation_kernel import may_change

    changing = may_change(*text_buffers(texts), rows, composition_classes())
    if not changing.any():
        return texts
    mask = pa.array(changing)
    normalised = [unicodedata2.normalize("NFC", text) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(normalised, pa.string()))
