"""What the tokens of a text are when near-duplicates are compared, and the table that the kernel reads.

A text is put in NFC and fully case-folded; punctuation and symbols (categories P and S) become spaces. Tokens are the
runs between white space; in scripts that are written without spaces (Han, Kana, Thai, Lao, Burmese, Khmer) each code
point is a token by itself, marks included. Other combining marks, and Hangul, break nothing.

A token counts by a 64-bit hash of its bytes. The hash depends on nothing but the token: it is the same on all machines
and in all runs.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import unicodedata2

from corpus.case_folding import folding_table
from corpus.full_folding_table import expansions, full_fold
from corpus.normalisation import to_nfc
from corpus.text import Offsets, text_buffers
from corpus.unicode_tables import (
    PUNCTUATION,
    UNSPACED_SCRIPTS,
    WHITE_SPACE,
    code_point_classes,
    code_points,
    regular_expression_class,
)

FOLDED = (1 << 21) - 1
"""The bits of an entry that hold the folded code point, or the row of its expansion."""
EXPANDS = 1 << 21
"""The code point folds to several."""
UNSPACED = 1 << 22
"""The code point is a token by itself."""
SEPARATOR = 1 << 23
"""White space, punctuation or a symbol."""
LONGEST_EXPANSION = 3
ASCII_SEPARATORS = ((0x09, 0x0D), (0x1C, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))
"""The separators below 0x80, first and last of each range; all else there is a part of a word."""
NUL = 0xFF
"""U+0000 in a folded text, where a 0 is what stands between tokens; no UTF-8 has this byte."""
WORD_BYTES = 8
BLOCK_BYTES = 64
"""A folded text is written and looked through in blocks of so many bytes."""

TOKEN_SEED = 0x9AE16A3B2F90404F
TOKEN_MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio."""

_WORD = (1 << 64) - 1

Hashes = npt.NDArray[np.uint64]
TokenTable = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


@cache
def token_table() -> TokenTable:
    """Return what each code point comes to in a token; read-only, built once per process.

    Returns:
        (entries, expanded): int32[0x110000] entries of ``FOLDED`` and the bits above, and int32[k, LONGEST_EXPANSION]
        code points, padded with -1, of the k that fold to several.
    """
    entries = folding_table().copy()
    unspaced = np.zeros(len(entries), np.bool_)
    unspaced[code_points(UNSPACED_SCRIPTS)] = True
    separators = code_point_classes() & (PUNCTUATION | WHITE_SPACE) != 0
    folded = folding_table()
    entries[unspaced[folded]] |= UNSPACED
    entries[separators[folded]] = SEPARATOR
    expanded = np.full((len(expansions()), LONGEST_EXPANSION), -1, np.int32)
    for number, (code_point, text) in enumerate(expansions().items()):
        parts = [ord(part) for part in text]
        if (unspaced | separators)[parts].any():
            raise AssertionError(f"U+{code_point:04X} folds to more than a part of a word")
        entries[code_point] = EXPANDS | number
        expanded[number, : len(parts)] = parts
    entries.setflags(write=False)
    expanded.setflags(write=False)
    return entries, expanded


@cache
def _token_pattern() -> re.Pattern[str]:
    ranges = (part.split("-") for part in UNSPACED_SCRIPTS.split(" "))
    unspaced = "".join(f"\\U{first:0>8}-\\U{last:0>8}" for first, last in ranges)
    separators = regular_expression_class(PUNCTUATION | WHITE_SPACE)
    return re.compile(f"(?![{separators}])[{unspaced}]|[^{separators}{unspaced}]+")


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, in order: the plain-Python reference of the kernel."""
    return _token_pattern().findall(full_fold(unicodedata2.normalize("NFC", text)))


def mix(state: int, value: int, multiplier: int) -> int:
    """Return a 64-bit hash state that took one more value."""
    state = (state ^ value) * multiplier & _WORD
    return state ^ state >> 32


def folded_bytes(token: str) -> bytes:
    """Return a token, which is folded, as its hash sees it: UTF-8, but for U+0000."""
    return token.encode().replace(b"\0", bytes([NUL]))


def token_hash(token: str) -> int:
    """Return the hash of a token, unsigned: the plain-Python reference of the kernel.

    Its bytes go in eight at a time, those of the last word at its upper end.
    """
    data = folded_bytes(token)
    state = TOKEN_SEED ^ len(data)
    for start in range(0, max(len(data), 1), WORD_BYTES):
        part = data[start : start + WORD_BYTES]
        state = mix(state, int.from_bytes(part.rjust(WORD_BYTES, b"\0"), "little"), TOKEN_MULTIPLIER)
    return state


def most_tokens(byte_count: int) -> int:
    """Return how many tokens a text of so many bytes of UTF-8 can have.

    Each run but the last has a separator of a byte behind it, or a token that stands alone, of at least three bytes.
    """
    return (byte_count + 1) // 2


def token_scratch(offsets: Offsets) -> tuple[Hashes, npt.NDArray[np.uint8]]:
    """Return uninitialised memory for the longest of n texts with int32[n + 1] offsets.

    Returns:
        (hashes, folded): for the hashes of its tokens, and for the text as it is folded, at most three times as long.
    """
    longest = int(np.diff(offsets).max(initial=0))
    return np.empty(most_tokens(longest) + 1, np.uint64), np.empty(3 * longest + 2 * BLOCK_BYTES, np.uint8)


def token_hashes(texts: pa.StringArray, rows: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Hashes]:
    """Return the hashes of the tokens of n texts, in order.

    Args:
        texts: any texts, NFC or not; a null is empty.
        rows: bool[n], the texts to look at; others have no tokens.

    Returns:
        (offsets, hashes): the tokens of text i are ``hashes[offsets[i]:offsets[i + 1]]``; int64[n + 1] and uint64.

    Raises:
        TypeError: the array has another type than string.
    """
    from dedup import tokens_kernel

    offsets, data = text_buffers(to_nfc(texts, rows))
    return tokens_kernel.token_hashes(offsets, data, rows, *token_table(), *token_scratch(offsets))
