"""Rows of fastText's input matrix: which one an n-gram has, and their sum; parts of ``corpus.fasttext_kernel``, compiled.

The rows of n-grams stand behind those of words, in the order of their buckets. Where n-grams were pruned, a bitmap says
which buckets are left, and an n-gram's row is the number of bits before its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from corpus.jit import inlined

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]

LANE = 16
"""Numbers that are added at once; the width of matrices is a multiple of it."""

_1, _2, _4, _6, _56, _63 = (np.uint64(value) for value in (1, 2, 4, 6, 56, 63))
_M1, _M2, _M4 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
_M8 = np.uint64(0x0101010101010101)


@inlined
def has_row(bucket: np.uint64, bitmap: Words) -> np.uint64:
    """Return 1 if the bucket has a row, else 0; an empty bitmap says that all have."""
    if len(bitmap) == 0:
        return _1
    return (bitmap[np.int64(bucket >> _6)] >> (bucket & _63)) & _1  # type: ignore[no-any-return]


@inlined
def row_of(bucket: np.uint64, words: int, bitmap: Words, ranks: Integers) -> int:
    """Return the row of a bucket that has one."""
    if len(bitmap) == 0:
        return words + np.int64(bucket)  # type: ignore[no-any-return]
    block = np.int64(bucket >> _6)
    below = bitmap[block] & ((_1 << (bucket & _63)) - _1)
    below = below - ((below >> _1) & _M1)  # the number of bits set, as the compiler recognises it
    below = (below & _M2) + ((below >> _2) & _M2)
    below = (below + (below >> _4)) & _M4
    return words + ranks[block] + np.int64((below * _M8) >> _56)  # type: ignore[no-any-return]


@inlined
def add_row(total: Floats, matrix: Floats, row: int) -> None:
    """Add one row to a total."""
    for dimension in range(matrix.shape[1]):
        total[dimension] += matrix[row, dimension]


@intrinsic  # type: ignore[untyped-decorator]
def _add_lane(typing_context: Any, total: Any, matrix: Any, width: Any, first: Any, rows: Any, count: Any) -> Any:
    """Add ``LANE`` columns of rows to a total, one row after the other, with the sum in a vector register."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        totals, values, numbers = (
            context.make_array(signature.args[number])(context, builder, arguments[number]).data for number in (0, 1, 4)
        )
        _, _, width_value, first_value, _, count_value = arguments
        vector = ir.VectorType(ir.FloatType(), LANE)

        def place(data: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

        accumulator = cgutils.alloca_once(builder, vector)
        target = place(totals, first_value)
        builder.store(builder.load(target, align=4), accumulator)
        with cgutils.for_range(builder, count_value) as loop:
            row = builder.load(builder.gep(numbers, [loop.index]))
            source = place(values, builder.add(builder.mul(row, width_value), first_value))
            builder.store(builder.fadd(builder.load(accumulator), builder.load(source, align=4)), accumulator)
        builder.store(builder.load(accumulator), target, align=4)
        return context.get_dummy_value()

    return types.void(total, matrix, types.int64, types.int64, rows, types.int64), generate


@inlined
def add_buckets(
    total: Floats, matrix: Floats, words: int, bitmap: Words, ranks: Integers, buckets: Longs, count: int
) -> None:
    """Add the rows of the first ``count`` buckets, all of which have one, to a total; overwrites ``buckets``."""
    for number in range(count):
        buckets[number] = row_of(np.uint64(buckets[number]), words, bitmap, ranks)
    for first in range(0, matrix.shape[1], LANE):
        _add_lane(total, matrix, matrix.shape[1], first, buckets, count)
