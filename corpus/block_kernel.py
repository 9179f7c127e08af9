"""Blocks of bytes: a few vector comparisons tell of 64 bytes at once which belong to a class, one bit per byte.

That costs no branch per byte, which is what sweeps over text spend their time on otherwise. The helpers take pointers
(see ``corpus.text_kernel``) and read ``BLOCK`` bytes, or one more for pairs, wherever the text ends: the caller sees to
it that so many can be read, and leaves out the bits behind the end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.text import Bytes

BLOCK = 64

Ranges = tuple[tuple[int, int], ...]

CASE_BIT = 0x20


def _load(builder: Any, data: Any, position: Any) -> Any:
    address = builder.gep(data, [position], inbounds=True)
    vector = ir.VectorType(ir.IntType(8), BLOCK)
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=1)


def _repeated(byte: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(8), BLOCK), [byte] * BLOCK)


def _within(builder: Any, loaded: Any, ranges: Ranges) -> Any:
    members = None
    for first, last in ranges:
        distance = builder.sub(loaded, _repeated(first))
        inside = builder.icmp_unsigned("<=", distance, _repeated(last - first))
        members = inside if members is None else builder.or_(members, inside)
    return members


def block_of(*classes: Ranges) -> Any:
    """Make a function that reads ``BLOCK`` bytes and says for each class, as bits of a number, which bytes are in it.

    Args:
        classes: the ranges of bytes of each class.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def block(_: Any, data: Any, position: Any) -> Any:
        result = types.UniTuple(types.int64, len(classes))

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = _load(builder, *arguments)
            masks = [builder.bitcast(_within(builder, loaded, ranges), ir.IntType(64)) for ranges in classes]
            return context.make_tuple(builder, result, masks)

        return result(data, types.int64), generate

    return block


def pair_block_of(*pairs: str) -> Any:
    """Make a function that says, as bits of a number, at which of ``BLOCK`` bytes one of some pairs of letters stands.

    Args:
        pairs: small letters from a to z; capitals do not count. Other bytes may be told as well, where they differ from
            a letter in the bit of its case only.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def block(_: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            text, first = arguments
            following = builder.add(first, ir.Constant(ir.IntType(64), 1))
            folded = [builder.or_(_load(builder, text, place), _repeated(CASE_BIT)) for place in (first, following)]
            members = None
            for pair in pairs:
                equal = [
                    builder.icmp_unsigned("==", letters, _repeated(ord(letter)))
                    for letters, letter in zip(folded, pair, strict=True)
                ]
                both = builder.and_(*equal)
                members = both if members is None else builder.or_(members, both)
            return builder.bitcast(members, ir.IntType(64))

        return types.int64(data, types.int64), generate

    return block


def folding_block_of(zeros: Ranges, nul: int) -> Any:
    """Make a function that writes ``BLOCK`` bytes of a text as they are in folded text, which holds for ASCII only.

    Capitals become small; a byte that is 0 becomes ``nul``, and those of the class ``zeros`` become 0. The function
    takes text and position, then folded text and the position there; it returns how many bytes of ASCII come first.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def block(_: Any, data: Any, position: Any, folded: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = _load(builder, *arguments[:2])
            capital = _within(builder, loaded, ((ord("A"), ord("Z")),))
            result = builder.select(capital, builder.or_(loaded, _repeated(CASE_BIT)), loaded)
            result = builder.select(_within(builder, loaded, ((0, 0),)), _repeated(nul), result)
            result = builder.select(_within(builder, loaded, zeros), _repeated(0), result)
            address = builder.gep(arguments[2], [arguments[3]], inbounds=True)
            builder.store(result, builder.bitcast(address, result.type.as_pointer()), align=1)
            wide = builder.bitcast(_within(builder, loaded, ((0x80, 0xFF),)), ir.IntType(64))
            return builder.cttz(wide, ir.Constant(ir.IntType(1), 0))

        return types.int64(data, types.int64, folded, types.int64), generate

    return block


def _unary(name: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def operation(_: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if name == "cttz":
                return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))
            return builder.ctpop(arguments[0])

        return types.int64(types.int64), generate

    return operation


lowest_bit = _unary("cttz")
"""Return the number of the lowest bit that is set, 64 where none is."""
count_bits = _unary("ctpop")
"""Return how many bits are set."""

wide_block = block_of(((0x80, 0xFF),))
"""Read a block: bytes beyond ASCII."""


@inlined
def behind_ascii(text: Bytes, start: int, end: int, readable: int) -> int:
    """Return the first position from ``start`` on whose byte is not ASCII, ``end`` where there is none before it.

    Args:
        readable: how many bytes can be read of ``text``.
    """
    while start < end and start + BLOCK <= readable:
        (wide,) = wide_block(text, start)
        if wide != 0:
            return int(min(start + lowest_bit(wide), end))
        start += BLOCK
    while start < end and text[start] < 0x80:
        start += 1
    return min(start, end)


@inlined
def is_ascii(text: Bytes, start: int, end: int, readable: int) -> bool:
    """Say whether all bytes between two positions are ASCII.

    Args:
        readable: how many bytes can be read of ``text``.
    """
    return behind_ascii(text, start, end, readable) == end
