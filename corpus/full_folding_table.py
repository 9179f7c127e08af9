"""Full case folding, the same under every version of Python.

Full folding (status C and F of CaseFolding.txt) is what ``str.casefold`` does: ``ß`` becomes ``ss``. It is the simple
folding of ``corpus.case_folding`` except for about a hundred code points that fold to two or three; of these, all were
in Unicode 13, which the oldest supported interpreter knows.
"""

from __future__ import annotations

from functools import cache

from corpus.case_folding import folding_table
from corpus.unicode_tables import CODE_POINTS


@cache
def expansions() -> dict[int, str]:
    """Return the code points that fold to more than one, with what each folds to, in ascending order."""
    folded = ((code_point, chr(code_point).casefold()) for code_point in range(CODE_POINTS))
    return {code_point: text for code_point, text in folded if len(text) > 1}


@cache
def _translation() -> dict[int, str]:
    simple = folding_table()
    changed = {code: chr(folded) for code, folded in enumerate(simple.tolist()) if code != folded}
    return changed | expansions()


def full_fold(text: str) -> str:
    """Return a text with each code point folded; this may make it longer, and leave it without a normal form."""
    return text.translate(_translation())
