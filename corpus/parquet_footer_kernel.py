"""Walk the footer of a Parquet file before pyarrow looks at its column chunks.

Arrow C++ checks the level histograms of a column chunk (``SizeStatistics``, parquet-format 2.11) at a place where its
Python binding expects no exception: a footer whose histograms do not fit the schema ends the process (seen with pyarrow
25; ``parquet::ParquetException``, then ``std::terminate``). So does a chunk whose metadata are encrypted. The footer is
the struct ``FileMetaData`` of parquet.thrift in Thrift's compact protocol.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes
from corpus.text_kernel import pointer

FITS, MALFORMED = -1, -2

# What a value is for: the structs and lists on the way from the file to the statistics of a chunk.
_OTHER, _FILE, _GROUPS, _GROUP, _CHUNKS, _CHUNK, _COLUMN, _STATISTICS = range(8)
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_DEEPEST = 64


@inlined
def _number(data: Bytes, place: int, end: int) -> tuple[int, int]:
    """Return the number of seven bits per byte at a place, and the place behind it, -1 where there is no whole one."""
    number = np.int64(0)
    for shift in range(0, 64, 7):
        if place >= end:
            break
        byte = np.int64(data[place])
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    return number, -1


@kernel("int64(uint8[::1], int64[::1], int64[::1], boolean[::1])")
def faulty_chunk(
    data: npt.NDArray[np.uint8],
    definition_levels: npt.NDArray[np.int64],
    repetition_levels: npt.NDArray[np.int64],
    is_bytes: npt.NDArray[np.bool_],
) -> int:
    """Return the number of the first leaf column with a chunk that pyarrow must not be asked for.

    Args:
        data: the footer, ``FileMetaData`` alone.
        definition_levels, repetition_levels: the largest levels of the n leaf columns.
        is_bytes: whether a leaf column has the physical type BYTE_ARRAY.

    Returns:
        ``FITS`` where there is none, n where a row group has another number of chunks than there are columns, and
        ``MALFORMED`` where the bytes are no Thrift.
    """
    columns = len(is_bytes)
    # Per open value: its role, its type, members still to come of a list or map, the last field of a struct.
    roles = np.zeros(_DEEPEST, np.int64)
    types = np.zeros(_DEEPEST, np.int64)
    left = np.zeros(_DEEPEST, np.int64)
    members = np.zeros((_DEEPEST, 2), np.int64)
    fields = np.zeros(_DEEPEST, np.int64)
    roles[0], types[0] = _FILE, _STRUCT
    depth, place, chunk = 0, 0, 0
    while depth >= 0:
        role = _OTHER
        field = 0
        if types[depth] == _STRUCT:
            if place >= len(data):
                return MALFORMED
            head = data[place]
            place += 1
            kind = head & 15
            if kind == 0:
                depth -= 1
                continue
            if head >> 4:
                fields[depth] += head >> 4
            else:
                number, place = _number(pointer(data), place, len(data))
                if place < 0:
                    return MALFORMED
                fields[depth] = (number >> 1) ^ -(number & 1)
            field = fields[depth]
            if roles[depth] == _FILE and field == 4:
                role = _GROUPS
            elif roles[depth] == _GROUP and field == 1:
                role = _CHUNKS
            elif roles[depth] == _CHUNK and field == 3:
                role = _COLUMN
            elif roles[depth] == _CHUNK and field == 8:
                return min(chunk, columns)
            elif roles[depth] == _COLUMN and field == 16:
                role = _STATISTICS
            elif roles[depth] == _STATISTICS and field == 1 and chunk < columns and not is_bytes[chunk]:
                return chunk
            if kind in (_TRUE, _FALSE):
                continue
        else:
            if left[depth] == 0:
                depth -= 1
                continue
            left[depth] -= 1
            kind = members[depth, left[depth] & 1]
            if roles[depth] == _GROUPS:
                role = _GROUP
            elif roles[depth] == _CHUNKS:
                role = _CHUNK
                chunk += 1
            if kind in (_TRUE, _FALSE):
                place += 1
                continue
        if kind == _BYTE:
            place += 1
            continue
        if kind == _DOUBLE:
            place += 8
            continue
        if kind == _STRUCT:
            depth += 1
            if depth >= _DEEPEST:
                return MALFORMED
            roles[depth], types[depth], fields[depth] = role, _STRUCT, 0
            continue
        if kind == 0 or kind > _STRUCT:
            return MALFORMED
        size = np.int64(0)
        first = second = np.int64(0)
        is_long = True
        if kind in (_LIST, _SET):
            if place >= len(data):
                return MALFORMED
            first = second = np.int64(data[place] & 15)
            size = np.int64(data[place] >> 4)
            is_long = size == 15
            place += 1
        if is_long:
            size, place = _number(pointer(data), place, len(data))
            if place < 0:
                return MALFORMED
        if kind == _BINARY:
            if size < 0 or size > len(data) - place:
                return MALFORMED
            place += size
            continue
        if kind != _LIST and kind != _SET and kind != _MAP:
            continue
        if size < 0 or size > len(data):
            return MALFORMED
        if kind == _MAP:
            if size:
                if place >= len(data):
                    return MALFORMED
                first, second = np.int64(data[place] >> 4), np.int64(data[place] & 15)
                place += 1
            size *= 2
        if roles[depth] == _STATISTICS and chunk < columns and size:
            if field == 2 and size != repetition_levels[chunk] + 1:
                return chunk
            if field == 3 and size != definition_levels[chunk] + 1:
                return chunk
        if role == _CHUNKS:
            if size != columns:
                return columns
            chunk = -1
        depth += 1
        if depth >= _DEEPEST:
            return MALFORMED
        # The members of a map take turns: the key comes first, when an even number is left to come.
        roles[depth], types[depth], left[depth] = role, kind, size
        members[depth, 0], members[depth, 1] = second, first
    return FITS
