"""Tokens as fastText cuts them from bytes, and their hash, compiled; for ``corpus.fasttext_kernel``.

Tokens stand between the bytes space, tab, line feed, vertical tab, form feed, carriage return and NUL, and no others
(``Dictionary::readWord`` of fastText 0.9). Arrays come as pointers: for an array, a helper would count references,
which takes longer than the helper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.text import Bytes

BASIS, PRIME = np.uint32(2166136261), np.uint32(16777619)
_1, _3 = np.uint64(1), np.uint64(3)
_SPACES_AND_ONE = np.uint64(0x2121212121212121)
_HIGH_BITS = np.uint64(0x8080808080808080)


@inlined
def hash_step(state: np.uint32, byte: np.uint8) -> np.uint32:
    """One step of FNV-1a as fastText takes it: the byte is signed, so from 128 up it flips the upper bits too."""
    return np.uint32((state ^ np.uint32(np.int8(byte))) * PRIME)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing_context: Any, data: Any, position: Any) -> Any:
    """Eight bytes from a byte position on, the first one lowest; in the processor one load."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(typing_context: Any, value: Any) -> Any:
    """The number of zero bits below the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inlined
def is_space(byte: np.uint8) -> bool:
    """Say whether the byte ends a token."""
    return byte <= 32 and (byte == 32 or byte == 0 or 9 <= byte <= 13)  # type: ignore[return-value]


@inlined
def next_part(data: Bytes, size: int, position: int, stop: int) -> tuple[np.uint64, int]:
    """Return up to eight bytes of the token from ``position`` on, and the position behind them.

    Args:
        data: pointer to the bytes of all texts, of which there are ``size``.
        stop: where the text ends.
    """
    if position + 8 > size:
        value = np.uint64(0)
        end = position
        while end < stop and not is_space(data[end]):
            value |= np.uint64(data[end]) << np.uint64(8 * (end - position))
            end += 1
        return value, end
    value = _load(data, position)
    # Marks every byte up to the space character, and some of those right behind one.
    marks = (value - _SPACES_AND_ONE) & ~value & _HIGH_BITS
    length = min(8, stop - position)
    while marks:
        index = np.int64(_trailing_zeros(marks) >> _3)
        if index >= length:
            break
        if is_space(data[position + index]):
            length = index
            break
        marks &= marks - _1
    if length == 8:
        return value, position + 8
    return value & ((_1 << np.uint64(8 * length)) - _1), position + length


@inlined
def cut(data: Bytes, position: int, stop: int, characters: int) -> int:
    """Return the byte position behind the first characters (code points) of a text."""
    while position < stop:
        if data[position] & 0xC0 != 0x80:
            if characters == 0:
                return position
            characters -= 1
        position += 1
    return stop
