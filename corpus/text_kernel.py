"""Code points and words of texts as UTF-8 bytes, compiled.

Texts come as (offsets, data) from ``corpus.text.text_buffers``; the bytes must be valid UTF-8: readers see to it.
``classes`` is ``corpus.unicode_tables.code_point_classes()`` or a copy with bits of a stage's own. What words and lines
are is defined by ``corpus.text.words`` and ``corpus.text.lines``.

The inlined helpers are what the sweep of a stage is made of. They take pointers: Numba counts references to an array
on every call of a helper, with atomic instructions, which costs more than the rest of the work on a word.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.text import Bytes
from corpus.unicode_tables import MARK, SEPARATOR, UNSPACED, Classes

# Signatures of arguments; the flag says read-only, which Arrow's buffers are, and accepts writable arrays as well.
OFFSETS = "Array(int32, 1, 'C', True)"
BYTES = "Array(uint8, 1, 'C', True)"
ROWS = "Array(boolean, 1, 'C', True)"
CLASSES = "Array(uint16, 1, 'C', True)"

CARRIAGE_RETURN, LINE_FEED = 0x0D, 0x0A
ENDS_RUN = SEPARATOR | UNSPACED


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_: Any, array: Any) -> Any:
    """Return the pointer to the first element of an array that is an argument of the kernel.

    The caller of the kernel keeps such an array alive; an array made in the kernel might be freed too early.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@inlined
def decode(data: Bytes, position: int) -> tuple[int, int]:
    """Return the code point that starts at a byte position, and its length in bytes."""
    lead = int(data[position])
    if lead < 0x80:
        return lead, 1
    second = int(data[position + 1]) & 0x3F
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = int(data[position + 2]) & 0x3F
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    return (lead & 0x07) << 18 | second << 12 | third << 6 | (int(data[position + 3]) & 0x3F), 4


@inlined
def scan_word(data: Bytes, start: int, end: int, classes: Classes) -> tuple[int, int, int]:
    """Read the word that starts at a byte position, where no separator stands.

    Returns:
        The byte position behind the word, its length in code points, and the class bits that any of them has.
    """
    code_point, size = decode(data, start)
    flags = int(classes[code_point])
    position = start + size
    if flags & UNSPACED:
        characters = 1
        while position < end and data[position] >= 0x80:
            code_point, size = decode(data, position)
            found = int(classes[code_point])
            if not found & MARK:
                break
            flags |= found
            position += size
            characters += 1
        return position, characters, flags
    continuation = size - 1
    while position < end:
        if data[position] < 0x80:
            found = int(classes[data[position]])
            if found & SEPARATOR:
                break
            flags |= found
            position += 1
            continue
        code_point, size = decode(data, position)
        found = int(classes[code_point])
        if found & ENDS_RUN:
            break
        flags |= found
        position += size
        continuation += size - 1
    return position, position - start - continuation, flags


@inlined
def line_break_length(data: Bytes, position: int, end: int, size: int) -> int:
    """Return the bytes of the line break whose first code point, of ``size`` bytes, stands at a byte position."""
    if data[position] == CARRIAGE_RETURN and position + 1 < end and data[position + 1] == LINE_FEED:
        return 2
    return size
