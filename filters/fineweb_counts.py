"""The tables and scratch memory of the kernel of ``fineweb_quality``, and its plain-Python reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.text import lines, text_buffers, words
from corpus.unicode_tables import LINE_BREAK, WHITE_SPACE, Classes, code_point_classes, code_points
from filters import fineweb_kernel as kernel
from filters.fineweb import Preset

# What may end a sentence, in all scripts: datatrove.utils.text.TERMINAL_PUNCTUATION of datatrove 0.10.
TERMINAL_PUNCTUATION = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6 "
    "17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 "
    "2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB "
    "FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 "
    "111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 "
    "1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 "
    "16B37-16B38 16B44 16E98 1BC9F 1DA88"
)


@cache
def line_classes() -> Classes:
    """Return the class bits of all code points, with those of the sweep."""
    classes: Classes = code_point_classes().copy()
    classes[code_points(TERMINAL_PUNCTUATION)] |= kernel.TERMINAL
    classes.setflags(write=False)
    return classes


def count_batch(
    texts: pa.StringArray, alive: npt.NDArray[np.bool_], preset: Preset, short_line_length: int
) -> npt.NDArray[np.int64]:
    """Return what the kernel counts in n texts: int64[STATISTICS, n]."""
    offsets, data = text_buffers(texts)
    most = int(np.diff(offsets).max(initial=0)) // 2 + 1  # a line of one byte has a line end behind it
    return kernel.sweep(
        offsets,
        data,
        alive,
        line_classes(),
        preset == "datatrove-0.10",
        short_line_length,
        np.empty((kernel.FIRSTS + 1, most), np.int32),
        np.empty(4 * most + 2, np.int32),
        np.empty(most, np.int64),
    )


def count_text(text: str, preset: Preset, short_line_length: int) -> list[int]:
    """Return what the kernel counts in one text, in the order of its rows: the plain-Python reference."""
    white = "".join(map(chr, np.flatnonzero(code_point_classes() & WHITE_SPACE).tolist()))
    if preset == "datatrove-0.10":
        filled = [line for line in text.split("\n") if line.strip(white)]
        newlines = text.count("\n")
        characters = len(text) - newlines
    else:
        filled = [stripped for line in lines(text) if (stripped := line.strip(white))]
        breaks = set(np.flatnonzero(code_point_classes() & LINE_BREAK).tolist())
        newlines = sum(ord(character) in breaks for character in text.replace("\r\n", "\n"))
        characters = sum(map(len, filled))
    terminal = set(map(chr, code_points(TERMINAL_PUNCTUATION).tolist()))
    return [
        len(filled),
        sum(line[-1] in terminal for line in filled),
        sum(len(line) <= short_line_length for line in filled),
        sum(len(line) for index, line in enumerate(filled) if line in filled[:index]),
        characters,
        newlines,
        len(words(text)),
    ]
