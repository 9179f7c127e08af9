"""Rows of fastText's input matrix, compiled: which one an n-gram has, and their sum; for ``corpus.fasttext_kernel``.

The rows of n-grams stand behind those of words, in the order of their buckets. Where n-grams were pruned, a bitmap says
which buckets are left, and an n-gram's row is the number of bits before its own. Arrays come as pointers: for an array,
a helper would count references, which takes longer than the helper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.text import Bytes

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]

LANE = 16
"""Numbers that are added at once; the width of matrices is a multiple of it."""

# Positions in the array of settings.
(SHORTEST, LONGEST, WORD_NGRAMS, BUCKETS, WORDS, PRUNED, WIDTH, SLOT_MASK, FIRST_CHARACTERS, MEMO_TEXT_BYTES) = range(
    10
)
SETTINGS = 10

_1, _2, _4, _6, _56, _63 = (np.uint64(value) for value in (1, 2, 4, 6, 56, 63))
_M1, _M2, _M4 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
_M8 = np.uint64(0x0101010101010101)


class Model(NamedTuple):
    """Pointers to what does not change between texts.

    Attributes:
        settings: int64, what the names above say.
        entry_bytes, entry_offsets, slots: the dictionary, see ``fill_slots``.
        bitmap: uint64, one bit per bucket, set where the n-gram has a row; not read where PRUNED is 0.
        ranks: int32 per element of ``bitmap``, the bits set before it.
        matrix: float32 [rows, WIDTH]; words first, then n-grams in the order of their buckets.
    """

    settings: Longs
    entry_bytes: Bytes
    entry_offsets: Longs
    slots: Integers
    bitmap: Words
    ranks: Integers
    matrix: Floats


@inlined
def has_row(model: Model, bucket: np.uint64) -> np.uint64:
    """Return 1 if the bucket has a row, else 0."""
    if model.settings[PRUNED] == 0:
        return _1  # type: ignore[no-any-return]
    return (model.bitmap[np.int64(bucket >> _6)] >> (bucket & _63)) & _1  # type: ignore[no-any-return]


@inlined
def row_of(model: Model, bucket: np.uint64) -> int:
    """Return the row of a bucket that has one."""
    if model.settings[PRUNED] == 0:
        return model.settings[WORDS] + np.int64(bucket)  # type: ignore[no-any-return]
    block = np.int64(bucket >> _6)
    below = model.bitmap[block] & ((_1 << (bucket & _63)) - _1)
    below = below - ((below >> _1) & _M1)  # the number of bits set, in the form that the compiler knows
    below = (below & _M2) + ((below >> _2) & _M2)
    below = (below + (below >> _4)) & _M4
    return model.settings[WORDS] + model.ranks[block] + np.int64((below * _M8) >> _56)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def _add_lane(
    typing_context: Any, total: Any, at: Any, matrix: Any, width: Any, first: Any, rows: Any, count: Any
) -> Any:
    """Add ``LANE`` columns of rows to a total, one row after the other, with the sum in a vector register."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total_value, at_value, matrix_value, width_value, first_value, rows_value, count_value = arguments
        vector = ir.VectorType(ir.FloatType(), LANE)

        def place(data: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

        accumulator = cgutils.alloca_once(builder, vector)
        target = place(total_value, builder.add(at_value, first_value))
        builder.store(builder.load(target, align=4), accumulator)
        with cgutils.for_range(builder, count_value) as loop:
            row = builder.load(builder.gep(rows_value, [loop.index]))
            source = place(matrix_value, builder.add(builder.mul(row, width_value), first_value))
            builder.store(builder.fadd(builder.load(accumulator), builder.load(source, align=4)), accumulator)
        builder.store(builder.load(accumulator), target, align=4)
        return context.get_dummy_value()

    return types.void(total, types.int64, matrix, types.int64, types.int64, rows, types.int64), generate


@inlined
def add_rows(model: Model, total: Floats, at: int, rows: Longs, count: int) -> None:
    """Add the first ``count`` of ``rows`` of the matrix to the total at ``total[at:at + WIDTH]``, in order."""
    width = model.settings[WIDTH]
    for first in range(0, width, LANE):
        _add_lane(total, at, model.matrix, width, first, rows, count)


@inlined
def add_buckets(model: Model, total: Floats, at: int, buckets: Longs, count: int) -> None:
    """Add the rows of the first ``count`` buckets, all of which have one, likewise; overwrites ``buckets``."""
    for number in range(count):
        buckets[number] = row_of(model, np.uint64(buckets[number]))
    add_rows(model, total, at, buckets, count)
