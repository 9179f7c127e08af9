"""Spans of bytes numbered by their content, for kernels that look for repetitions.

Equality is exact: a hash only leads to the span to compare with. All helpers take pointers (see
``corpus.text_kernel``); what they write into are scratch arrays that the caller of the kernel keeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.text import Bytes

Words = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.int64]

MULTIPLIER = -7046029254386353131  # 2**64 divided by the golden ratio, as a signed number
SEED = 0x51ED270B0A4D2C6D
EMPTY = -1


def _load(bits: int) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(_: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = builder.gep(arguments[0], [arguments[1]], inbounds=True)
            loaded = builder.load(builder.bitcast(address, ir.IntType(bits).as_pointer()), align=1)
            return builder.zext(loaded, ir.IntType(64)) if bits < 64 else loaded

        return types.int64(data, types.int64), generate

    return load


load_8 = _load(64)
"""Read 8 bytes at a byte position as one number."""
load_4 = _load(32)
"""Read 4 bytes at a byte position as one number."""


@intrinsic  # type: ignore[untyped-decorator]
def store_8(_: Any, data: Any, position: Any, value: Any) -> Any:
    """Write a number as 8 bytes at a byte position."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        builder.store(arguments[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@inlined
def count_code_points(text: Bytes, start: int, end: int) -> int:
    """Return the number of code points between two byte positions."""
    count = 0
    for position in range(start, end):
        count += (text[position] & 0xC0) != 0x80
    return count


@inlined
def mix(state: int, value: int) -> int:
    """Return a hash state that took one more 64-bit value."""
    state = (state ^ value) * MULTIPLIER
    return state ^ (state >> 32)


@inlined
def hash_span(data: Bytes, start: int, end: int) -> int:
    """Return a 64-bit hash of the bytes between two positions; nothing outside is read."""
    length = end - start
    state = SEED ^ length
    if length >= 16:
        # Two states that do not wait for each other.
        other = MULTIPLIER
        position = start
        while position < end - 16:
            state = mix(state, load_8(data, position))
            other = mix(other, load_8(data, position + 8))
            position += 16
        return mix(mix(state, load_8(data, end - 16)), mix(other, load_8(data, end - 8)))
    if length >= 8:
        return mix(mix(state, load_8(data, start)), load_8(data, end - 8))
    if length >= 4:
        return mix(state, load_4(data, start) << 32 | load_4(data, end - 4))
    if length > 0:
        return mix(state, int(data[start]) << 16 | int(data[start + length // 2]) << 8 | int(data[end - 1]))
    return state


@inlined
def same_bytes(data: Bytes, first: int, second: int, length: int) -> bool:
    """Say whether two spans of one length hold the same bytes."""
    position = 0
    while position + 8 <= length:
        if load_8(data, first + position) != load_8(data, second + position):
            return False
        position += 8
    while position < length:
        if data[first + position] != data[second + position]:
            return False
        position += 1
    return True


@inlined
def clear_table(table: Words, entries: int) -> int:
    """Make an open-addressing table for so many entries out of a scratch array, and return its mask.

    The table takes less than four places per entry, and at least two.
    """
    size = 2
    while size < 2 * entries:
        size *= 2
    for slot in range(size):
        table[slot] = EMPTY
    return size - 1


@inlined
def number_spans(
    data: Bytes, starts: Words, ends: Words, count: int, table: Words, hashes: Hashes, numbers: Words, firsts: Words
) -> int:
    """Number spans by content in the order in which each content first occurs, and return how many there are.

    Args:
        data, starts, ends: ``count`` spans of bytes.
        table, hashes: scratch of 4 ``count`` + 2 and ``count``.
        numbers: takes the number of each span.
        firsts: takes the first span of each number.
    """
    mask = clear_table(table, count)
    distinct = 0
    for span in range(count):
        start, end = int(starts[span]), int(ends[span])
        found = hash_span(data, start, end)
        slot = found & mask
        while True:
            number = table[slot]
            if number == EMPTY:
                table[slot] = distinct
                hashes[distinct] = found
                firsts[distinct] = span
                numbers[span] = distinct
                distinct += 1
                break
            if hashes[number] == found:
                other = int(starts[firsts[number]])
                length = end - start
                if ends[firsts[number]] - other == length and same_bytes(data, other, start, length):
                    numbers[span] = number
                    break
            slot = (slot + 1) & mask
    return distinct
