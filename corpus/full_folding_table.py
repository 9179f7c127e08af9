"""Full case folding, the same under every version of Python.

Full folding (status C and F of CaseFolding.txt) is what ``str.casefold`` does: ``ß`` becomes ``ss``. It is the simple
folding of ``corpus.case_folding`` except for about a hundred code points that fold to two or three; of these, all were
in Unicode 13, which the oldest supported interpreter knows.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from corpus.case_folding import folding_table
from corpus.unicode_tables import changed_code_points


@cache
def expansions() -> dict[int, str]:
    """Return the code points that fold to more than one, with what each folds to, in ascending order."""
    return {code_point: text for code_point, text in changed_code_points(str.casefold).items() if len(text) > 1}


@cache
def _translation() -> dict[int, str]:
    simple = folding_table()
    codes = np.flatnonzero(simple != np.arange(len(simple)))
    return dict(zip(codes.tolist(), map(chr, simple[codes].tolist()), strict=True)) | expansions()


def full_fold(text: str) -> str:
    """Return a text with each code point folded; this may make it longer, and leave it without a normal form."""
    return text.translate(_translation())
