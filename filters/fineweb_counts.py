"""The tables and scratch memory of the kernel of ``fineweb_quality``, and its plain-Python reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from corpus.punctuation import TERMINAL_PUNCTUATION
from corpus.text import lines, words
from corpus.text_statistics import TextStatistics
from corpus.unicode_tables import LINE_BREAK, WHITE_SPACE, Classes, code_point_classes, code_points, members
from filters import fineweb_kernel as kernel
from filters.counting import Preset


@cache
def line_classes() -> Classes:
    """Return the class bits of all code points, with those of the sweep."""
    classes: Classes = code_point_classes().copy()
    classes[code_points(TERMINAL_PUNCTUATION)] |= kernel.TERMINAL
    classes.setflags(write=False)
    return classes


def count_lines(
    statistics: TextStatistics, preset: Preset, short_line_lengths: npt.NDArray[np.int64]
) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return all counts by name, int64[n] each; ``short_line_lengths``, int64[n], tells up to where a line is short."""
    most = int(statistics.lines().max(initial=0)) + 1
    counts = kernel.sweep(
        *statistics,
        line_classes(),
        preset == "datatrove-0.10",
        short_line_lengths,
        np.empty((kernel.FIRSTS + 1, most), np.int32),
        np.empty(4 * most + 2, np.int32),
        np.empty(most, np.int64),
    )
    return {"words": statistics.words(), **dict(zip(kernel.COUNTS, counts, strict=True))}


def count_text(text: str, preset: Preset, short_line_length: int) -> dict[str, int]:
    """Return the counts of one text by name: the plain-Python reference."""
    white = members(WHITE_SPACE)
    if preset == "datatrove-0.10":
        filled = [line for line in text.split("\n") if line.strip(white)]
        newlines = text.count("\n")
        characters = len(text) - newlines
    else:
        filled = [stripped for line in lines(text) if (stripped := line.strip(white))]
        newlines = sum(map(text.replace("\r\n", "\n").count, members(LINE_BREAK)))
        characters = sum(map(len, filled))
    terminal = set(map(chr, code_points(TERMINAL_PUNCTUATION).tolist()))
    return {
        "words": len(words(text)),
        "lines": len(filled),
        "punctuated_lines": sum(line[-1] in terminal for line in filled),
        "short_lines": sum(len(line) <= short_line_length for line in filled),
        "duplicate_line_characters": sum(map(len, filled)) - sum(map(len, set(filled))),
        "characters": characters,
        "newlines": newlines,
    }
