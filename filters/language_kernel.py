"""Whether texts have a letter at all, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, decode
from corpus.unicode_tables import LETTER, Classes


@kernel(f"boolean[::1]({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, int64)")
def has_letter(
    offsets: Offsets, data: Bytes, alive: npt.NDArray[np.bool_], classes: Classes, first_characters: int
) -> npt.NDArray[np.bool_]:
    """Say for each text that is alive whether a letter is among its first characters.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``.
        alive: bool [n]; other texts are not looked at and have none.
        classes: see ``corpus.unicode_tables.code_point_classes``.
        first_characters: how many code points to look at; 0 for all.
    """
    found = np.zeros(len(alive), np.bool_)
    for text in range(len(alive)):
        if not alive[text]:
            continue
        position = np.int64(offsets[text])
        end = np.int64(offsets[text + 1])
        left = first_characters if first_characters > 0 else end - position
        while position < end and left > 0:
            code_point, size = decode(data, position)
            if classes[code_point] & LETTER:
                found[text] = True
                break
            position += size
            left -= 1
    return found
