"""Texts as the buffers that kernels read, and what words and lines are, in plain Python.

``words`` and ``lines`` define the terms for the whole project; the sweep of ``corpus.text_statistics`` gives the same,
and tests compare the two text by text.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.unicode_tables import LINE_BREAK, MARK, SEPARATOR, UNSPACED, regular_expression_class

Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


def text_buffers(array: pa.StringArray) -> tuple[Offsets, Bytes]:
    """Return (offsets, data) of n texts without copying them; text i is ``data[offsets[i]:offsets[i + 1]]``, UTF-8.

    Offsets are int32[n + 1] and count bytes from the start of ``data``, not of a slice: the first need not be 0, and
    ``data`` may be longer than the last. A null is an empty text. Both arrays may be read-only. Raises TypeError for an
    array of another type.
    """
    if array.type != pa.string():
        raise TypeError(f"texts must be an Arrow array of type string, not {array.type}")
    if len(array) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, array.offset * 4)
    if array.null_count and np.diff(offsets)[array.is_null().to_numpy(zero_copy_only=False)].any():
        return text_buffers(array.fill_null(""))  # Arrow lets bytes lie under a null
    if data_buffer is None or data_buffer.size == 0:
        return offsets, np.zeros(0, np.uint8)
    return offsets, np.frombuffer(data_buffer, np.uint8)


@cache
def _word_pattern() -> re.Pattern[str]:
    unspaced, separators = regular_expression_class(UNSPACED), regular_expression_class(SEPARATOR)
    return re.compile(f"[{unspaced}][{regular_expression_class(MARK)}]*|[^{separators}{unspaced}]+")


def words(text: str) -> list[str]:
    """Return the words of a text, in order.

    A word is a run between white space or zero-width spaces, punctuation included. In scripts that are written without
    spaces (Han, Kana, Thai, Lao, Burmese, Khmer) each letter, digit or sign is a word by itself, together with the
    combining marks that follow it; it also ends a run of other characters before it. Hangul is written with spaces:
    nothing is decomposed.
    """
    return _word_pattern().findall(text)


@cache
def _line_pattern() -> re.Pattern[str]:
    return re.compile(f"\r\n|[{regular_expression_class(LINE_BREAK)}]")


def lines(text: str) -> list[str]:
    """Return the lines of a text without their ends, as ``str.splitlines`` does: the empty text has none."""
    found = _line_pattern().split(text)
    if not found[-1]:
        found.pop()
    return found
