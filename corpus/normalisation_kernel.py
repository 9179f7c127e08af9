"""Which texts may not be in normalisation form NFC, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.block_kernel import behind_ascii
from corpus.jit import kernel
from corpus.normalisation import COMBINING_CLASS, COMPOSES_WITH_LAST, COMPOSES_WITH_NEXT, NEVER_IN_NFC
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, decode, pointer
from corpus.unicode_tables import Classes


@kernel(f"boolean[::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES})")
def may_change(offsets: Offsets, data: Bytes, rows: npt.NDArray[np.bool_], classes: Classes) -> npt.NDArray[np.bool_]:
    """Return for each of n texts whether NFC might change it, bool[n]; false where the mask ``rows`` is false.

    ``classes`` is ``corpus.normalisation.composition_classes()``. A text for which this is false is in NFC.
    """
    changing = np.zeros(len(rows), np.bool_)
    text, table = pointer(data), pointer(classes)
    for row in range(len(rows)):
        if not rows[row]:
            continue
        start, end = int(offsets[row]), int(offsets[row + 1])
        position = start
        starter = last_class = 0
        while position < end:
            if text[position] < 0x80:
                position = behind_ascii(text, position, end, len(data))
                continue
            if position > start and text[position - 1] < 0x80:  # ASCII, which was skipped, is all starters
                starter, last_class = int(table[text[position - 1]]), 0
            code_point, size = decode(text, position)
            position += size
            found = int(table[code_point])
            combining_class = found & COMBINING_CLASS
            if (
                found & NEVER_IN_NFC
                or 0 < combining_class < last_class
                or (found & COMPOSES_WITH_LAST and starter & COMPOSES_WITH_NEXT)
            ):
                changing[row] = True
                break
            last_class = combining_class
            if combining_class == 0:
                starter = found
    return changing
