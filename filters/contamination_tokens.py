"""What the tokens of a text are when benchmark items are looked for, and the tables that the kernels read.

A text is put in NFKC and fully case-folded; format characters (Cf) and apostrophes go; punctuation and symbols
(categories P and S) become spaces. Tokens are the runs between white space; in scripts that are written without spaces
(Han, Kana, Thai, Lao, Burmese, Khmer) each code point is a token by itself. So line ends, capitals, punctuation,
typographic quotes, full-width forms, soft hyphens and zero-width spaces make no difference.

A token counts by a 32-bit hash of its code points whose lowest bit says that it stands alone; the hash is the same on
all machines and in all runs.
"""

from __future__ import annotations

import re
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import unicodedata2

from corpus.case_folding import folding_table
from corpus.full_folding_table import expansions, full_fold
from corpus.normalisation import (
    COMBINING_CLASS,
    COMPOSES_WITH_LAST,
    COMPOSES_WITH_NEXT,
    NEVER_IN_NFC,
    composition_classes,
)
from corpus.text import text_buffers
from corpus.unicode_tables import (
    CODE_POINTS,
    FORMAT,
    PUNCTUATION,
    UNSPACED_SCRIPTS,
    WHITE_SPACE,
    Classes,
    changed_code_points,
    code_point_classes,
    code_points,
    regular_expression_class,
)

FOLDED = (1 << 21) - 1
"""The bits of an entry that hold the folded code point, or where its expansion begins."""
EXPANDS = 1 << 21
"""The code point comes to several."""
STANDS_ALONE = 1 << 22
"""The code point is a token by itself."""
SEPARATES = 1 << 23
"""White space, punctuation or a symbol."""
REMOVED = 1 << 24
"""A format character or an apostrophe."""
END_OF_EXPANSION = -1

ACUTE_ACCENT = "\u00b4"
"""Typed as an apostrophe; NFKC would make a space and a combining mark of it."""
APOSTROPHES = "'\u2018\u2019\u201b\u02bc\uff07" + ACUTE_ACCENT

TOKEN_SEED = 0x51ED270B0A4D2C6D
TOKEN_MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio."""
ALONE_BIT = 1

_WORD = (1 << 64) - 1

Entries = npt.NDArray[np.int32]
TokenTable = tuple[Entries, Entries]


@cache
def _compatibility_forms() -> dict[int, str]:
    """Return the code points that NFKC replaces, with what each of them comes to."""
    return changed_code_points(partial(unicodedata2.normalize, "NFKC"))


@cache
def token_table() -> TokenTable:
    """Return what each code point comes to in a token; read-only, built once per process.

    Returns:
        (entries, expansions): int32[0x110000] entries, and int32 entries of the code points that come to several, each
        run of them closed by ``END_OF_EXPANSION``.
    """
    folding, classes = folding_table(), code_point_classes()
    single = folding.copy()
    alone = np.zeros(CODE_POINTS, np.bool_)
    alone[code_points(UNSPACED_SCRIPTS)] = True
    single[alone] |= STANDS_ALONE
    single[classes & (PUNCTUATION | WHITE_SPACE) != 0] = SEPARATES
    single[classes & FORMAT != 0] = REMOVED
    single[[ord(apostrophe) for apostrophe in APOSTROPHES]] = REMOVED
    entries = single[folding]
    entries[classes & FORMAT != 0] = REMOVED
    parts: list[int] = []
    several = expansions()
    for code_point in sorted({*_compatibility_forms(), *several}):
        if entries[code_point] == REMOVED:
            continue
        form = _compatibility_forms().get(code_point, chr(code_point))
        pieces = [int(single[ord(piece)]) for piece in full_fold(form)]
        if len(pieces) == 1:
            entries[code_point] = pieces[0]
            continue
        entries[code_point] = EXPANDS | len(parts)
        parts += [*pieces, END_OF_EXPANSION]
    expanded = np.array(parts, np.int32)
    entries.setflags(write=False)
    expanded.setflags(write=False)
    return entries, expanded


@cache
def compatibility_classes() -> Classes:
    """Return ``composition_classes`` for NFKC: where nothing may change, each code point is put in NFKC by itself.

    What a code point comes to in NFKC may compose with what stands beside it: it is given the bits of its first and
    last part. One that comes to a combining mark is taken for changing.
    """
    classes: Classes = composition_classes().copy()
    for code_point, form in _compatibility_forms().items():
        if classes[code_point] & NEVER_IN_NFC or chr(code_point) == ACUTE_ACCENT:
            continue
        found = composition_classes()[[ord(part) for part in form]]
        if (found & (COMBINING_CLASS | NEVER_IN_NFC)).any():
            classes[code_point] = NEVER_IN_NFC
        else:
            classes[code_point] |= found[0] & COMPOSES_WITH_LAST | found[-1] & COMPOSES_WITH_NEXT
    classes.setflags(write=False)
    return classes


def in_nfkc(text: str) -> str:
    """Return a text in NFKC, acute accents read as apostrophes."""
    return str(unicodedata2.normalize("NFKC", text.replace(ACUTE_ACCENT, "'")))


def ready_texts(texts: pa.StringArray, rows: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Return n texts whose tokens follow from ``token_table`` code point by code point.

    A text whose row is false in the mask ``rows``, bool[n], stays as it is; so do, unless a mark may compose or move,
    all others. Positions in a text that changed are not those of the text given: ``changed_rows`` says which did.
    """
    changing = changed_rows(texts, rows)
    if not changing.any():
        return texts
    mask = pa.array(changing)
    normalised = [in_nfkc(text) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(normalised, pa.string()))


def changed_rows(texts: pa.StringArray, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which texts ``ready_texts`` puts in NFKC, bool[n]."""
    from corpus.normalisation_kernel import may_change

    changing: npt.NDArray[np.bool_] = may_change(*text_buffers(texts), rows, compatibility_classes())
    return changing


@cache
def _token_pattern() -> re.Pattern[str]:
    ranges = (part.split("-") for part in UNSPACED_SCRIPTS.split(" "))
    unspaced = "".join(f"\\U{first:0>8}-\\U{last:0>8}" for first, last in ranges)
    separators = regular_expression_class(PUNCTUATION | WHITE_SPACE)
    return re.compile(f"(?![{separators}])[{unspaced}]|[^{separators}{unspaced}]+")


@cache
def _removed_pattern() -> re.Pattern[str]:
    return re.compile(f"[{regular_expression_class(FORMAT)}{APOSTROPHES}]")


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, in order: the plain-Python reference of the kernel."""
    return _token_pattern().findall(_removed_pattern().sub("", full_fold(in_nfkc(text))))


def token_hash(token: str) -> int:
    """Return the 32-bit hash of a token: the plain-Python reference of the kernel."""
    state = TOKEN_SEED
    for character in token:
        state = (state ^ ord(character)) * TOKEN_MULTIPLIER & _WORD
    state = (state ^ state >> 32) * TOKEN_MULTIPLIER & _WORD
    alone = token_table()[0][ord(token[0])] & STANDS_ALONE != 0
    return state >> 32 & ~ALONE_BIT | (ALONE_BIT if alone else 0)


def original_spans(
    text: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the spans of a text, in bytes, from which spans of its NFKC form come.

    They are made of whole pieces, the shortest that NFKC treats by themselves.
    """
    classes = compatibility_classes()
    blocked = COMBINING_CLASS | COMPOSES_WITH_LAST | NEVER_IN_NFC
    cuts = [number for number, character in enumerate(text) if number == 0 or not classes[ord(character)] & blocked]
    pieces = [text[first:last] for first, last in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    before = np.cumsum([0, *(len(piece.encode()) for piece in pieces)])
    after = np.cumsum([0, *(len(in_nfkc(piece).encode()) for piece in pieces)])
    return before[np.searchsorted(after, starts, side="right") - 1], before[np.searchsorted(after, ends, side="left")]
