"""Content hashes, row digests and generated ids: the numbers by which a record is recognised.

The content hash is XXH3-128 (Y. Collet's xxHash) of the text's UTF-8 bytes in its canonical, big-endian form. A pair is
hashed as prompt, then response, each with its length as 8 bytes little endian before it, so that moving a character
from one field to the other gives another hash.

The row digest condenses a record with its position and all carried columns into 64 bits. The manifest adds the digests
of a file up modulo 2**64, so their order does not matter. Columns that came from Parquet are hashed column by column:
strings with XXH3-64, numbers with the finaliser of SplitMix64 (Steele, Lea, Flood 2014), lists and structs from their
members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

UInt64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_MASK = (1 << 64) - 1
_PROBED = 256
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def content_hash(fields: Sequence[bytes]) -> bytes:
    """Return the 16-byte content hash of one record, given the UTF-8 bytes of its text fields in order."""
    if len(fields) == 1:
        return xxhash.xxh3_128_digest(fields[0])
    return xxhash.xxh3_128_digest(
        b"".join(part for field in fields for part in (len(field).to_bytes(8, "little"), field))
    )


def content_hashes(fields: Sequence[pa.Array]) -> pa.FixedSizeBinaryArray:
    """Return the content hash of n records, given one string array of n texts without nulls per text field."""
    texts = [_slices(field) for field in fields]
    digest = xxhash.xxh3_128_digest
    if len(texts) == 1:
        hashes = b"".join(map(digest, texts[0]))
    else:
        hashes = b"".join(content_hash(record) for record in zip(*texts, strict=True))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(fields[0]), [None, pa.py_buffer(hashes)])


def row_digest(position: int, content: bytes, carried: bytes) -> int:
    """Return the signed row digest of a record whose carried columns are one piece of bytes (JSON)."""
    digest = xxhash.xxh3_64_intdigest(position.to_bytes(8, "little") + content + carried)
    return digest - (1 << 64) if digest >> 63 else digest


def row_digests(
    positions: npt.NDArray[np.int64], contents: pa.FixedSizeBinaryArray, columns: Mapping[str, pa.Array]
) -> npt.NDArray[np.int64]:
    """Return the signed row digests of n records, given positions, content hashes and carried columns by name."""
    carried = np.zeros(len(positions), np.uint64)
    for name, column in columns.items():
        carried += column_hashes(name, column)
    digest = _mix(positions.astype(np.uint64) + _GOLDEN)
    return _mix(_with_contents(digest, contents) + carried).view(np.int64)


def curated_digest(contents: pa.FixedSizeBinaryArray, carried: UInt64) -> int:
    """Return the sum, modulo 2**64, of the digests of n records, whatever their order.

    Args:
        contents: their content hashes.
        carried: the sum of ``column_hashes`` over the columns that count, n of them.
    """
    start = np.full(len(contents), _GOLDEN)
    return int(_mix(_with_contents(start, contents) + carried).sum(dtype=np.uint64))


def column_hashes(name: str, column: pa.Array) -> UInt64:
    """Return a 64-bit hash per value that also depends on the name of its column.

    Integers of all widths, and floats of both, count by their value.
    """
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    return _mix(value_hashes(column) ^ np.uint64(xxhash.xxh3_64_intdigest(name.encode())))


def hex_hashes(hashes: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return 16-byte hashes as 32 lower-case hex digits."""
    rows = len(hashes)
    data = np.frombuffer(hashes.buffers()[1], np.uint8, 16 * rows, 16 * hashes.offset)
    digits = _HEX_DIGITS[np.stack([data >> 4, data & 15], axis=1)]
    offsets = np.arange(rows + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits))


def _with_contents(digest: UInt64, contents: pa.FixedSizeBinaryArray) -> UInt64:
    rows = len(contents)
    halves = np.frombuffer(contents.buffers()[1], np.uint64, 2 * rows, 16 * contents.offset).reshape(rows, 2)
    return _mix(_mix(digest ^ halves[:, 0]) ^ halves[:, 1])


def sample_seed(file: str, seed: int) -> int:
    """Return the 64-bit seed with which the positions of one file are hashed for sampling."""
    return xxhash.xxh3_64_intdigest(f"{seed}\0{file}".encode())


def in_sample(position: int, seed: int, share: float) -> bool:
    """Say whether the record at a position belongs to the sample; ``seed`` comes from ``sample_seed``."""
    return xxhash.xxh3_64_intdigest(position.to_bytes(8, "little"), seed) < share * (_MASK + 1)


def value_hashes(array: pa.Array) -> UInt64:
    """Return a 64-bit hash per value of an Arrow array of any type; nulls share one hash."""
    hashes = _hashes_of_valid(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hashes_of_valid(array: pa.Array) -> UInt64:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _hashes_of_valid(array.storage)
    if pa.types.is_dictionary(kind):
        return _hashes_of_valid(array.dictionary_decode())
    if is_text_or_bytes(kind):
        if _repeats(array):
            encoded = pc.dictionary_encode(array, null_encoding="encode")
            hashes: UInt64 = _hashes_of_texts(encoded.dictionary)[encoded.indices.to_numpy()]
            return hashes
        return _hashes_of_texts(array)
    if pa.types.is_boolean(kind):
        return _mix(array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_struct(kind):
        hashes = np.full(len(array), _GOLDEN)
        for index in range(kind.num_fields):
            name = np.uint64(xxhash.xxh3_64_intdigest(kind.field(index).name.encode()))
            hashes += _mix(value_hashes(array.field(index)) ^ name)
        return _mix(hashes)
    if has_members(kind):
        return _hashes_of_lists(array)
    width = fixed_width(kind)
    if width:
        return _hashes_of_fixed_width(array, width)
    texts = [orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS) for value in array.to_pylist()]
    return np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64, len(texts))


def _hashes_of_texts(array: pa.Array) -> UInt64:
    return np.fromiter(map(xxhash.xxh3_64_intdigest, _slices(array)), np.uint64, len(array))


def _repeats(array: pa.Array) -> bool:
    """Say whether the first values of many are few: it takes less to hash each distinct one once then."""
    return len(array) >= 2 * _PROBED and len(array[:_PROBED].unique()) <= _PROBED // 4


def _hashes_of_lists(array: pa.Array) -> UInt64:
    offsets, values = list_members(array)
    lengths = np.diff(offsets)
    members = value_hashes(values)
    starts = offsets[:-1]
    index = np.arange(len(members)) - np.repeat(starts, lengths)
    sums = np.zeros(len(members) + 1, np.uint64)
    np.cumsum(_mix(members + (index + 1).astype(np.uint64) * _GOLDEN), out=sums[1:])
    return _mix(sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64))


def _hashes_of_fixed_width(array: pa.Array, width: int) -> UInt64:
    data = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width).reshape(-1, width)
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = data
    words = padded.view(np.uint64)
    hashes = _mix(words[:, 0] + _GOLDEN)
    for column in range(1, words.shape[1]):
        hashes = _mix(hashes ^ words[:, column])
    return hashes


def fixed_width(kind: pa.DataType) -> int:
    """Return the bytes per value of a type whose values all take as many whole bytes; else 0."""
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width) // 8
    return 0


def is_text_or_bytes(kind: pa.DataType) -> bool:
    """Say whether values of a type lie in one buffer between offsets."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def has_members(kind: pa.DataType) -> bool:
    """Say whether values of a type are lists or maps."""
    types = pa.types
    return bool(
        types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_map(kind)
    )


def list_members(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return n + 1 offsets, and the values between them, of an array of n lists or maps (members are key and item)."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        return np.arange(len(array) + 1) * size, values
    offsets = array.offsets.to_numpy().astype(np.int64)
    if pa.types.is_map(array.type):
        values = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "item"])
    else:
        values = array.values
    return offsets - offsets[0], values.slice(offsets[0], offsets[-1] - offsets[0])


def byte_offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the n + 1 offsets into the data buffer of an array of n strings or binaries."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = np.int64 if wide else np.int32
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    offsets = np.frombuffer(buffer, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)
    return offsets.astype(np.int64, copy=False)


def _slices(array: pa.Array) -> list[memoryview]:
    """Return the bytes of each value of an array of strings or binaries, without copies."""
    data = memoryview(array.buffers()[2] or b"")
    return [data[start:end] for start, end in pairwise(byte_offsets(array).tolist())]


def _mix(words: UInt64) -> UInt64:
    """Return the SplitMix64 finaliser of each word."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64 = words ^ (words >> np.uint64(31))
    return mixed


def generated_ids(file: str, positions: npt.NDArray[np.int64]) -> pa.StringArray:
    """Return ``file#position`` for each position: the id of a record to which the user gave none."""
    return pc.binary_join_element_wise(pa.scalar(file), pa.array(positions).cast(pa.string()), "#")
