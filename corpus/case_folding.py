"""Simple case folding, the same under every version of Python.

Unicode never changes how an assigned character folds, so the tables of two interpreters differ only in characters that
one of them does not know yet. Python 3.10 knows Unicode 13; the letters with case that came later are left as they are.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from corpus.unicode_tables import CODE_POINTS, changed_code_points, code_points

LATER_THAN_UNICODE_13 = "1C89-1C8A 2C2F 2C5F A7C0-A7C1 A7CB-A7DC 10570-105BC 10D50-10D85 16EA0-16ED3"


@cache
def folding_table() -> npt.NDArray[np.int32]:
    """Return the code point that each of the 0x110000 code points folds to; read-only.

    This is Unicode's simple folding (status C and S of CaseFolding.txt), one code point for one: ``ẞ`` becomes ``ß``,
    and ``ß`` stays.
    """
    table = np.arange(CODE_POINTS, dtype=np.int32)
    for code_point, full in changed_code_points(str.casefold).items():
        folded = full if len(full) == 1 else chr(code_point).lower()
        table[code_point] = ord(folded) if len(folded) == 1 else code_point
    later = code_points(LATER_THAN_UNICODE_13)
    table[later] = later
    table.setflags(write=False)
    return table


def fold(text: str) -> str:
    """Return a text with each code point folded."""
    if text.isascii():
        return text.lower()
    table = folding_table()
    return "".join(chr(table[ord(character)]) for character in text)
