"""Read row groups of a Parquet file, column by column.

Only the columns that are carried are decoded. Memory stays bounded whatever a file promises: column chunks are read
through a buffer, and the rows decoded at a time follow from what the metadata and the dictionary pages say that a row
can take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpus.batch import USER_PREFIX, DocumentBatch
from corpus.filesystem import open_random, scheme_of
from corpus.inputs import InputConfig
from corpus.parquet_footer_kernel import FITS, faulty_chunk
from corpus.planning_types import Item
from corpus.readers.columns import carried_columns, column_fault, plain_type, wanted_columns
from corpus.readers.faults import DeadLetter, FileFaultError, UnreadableError, is_transient, reason
from corpus.readers.parquet_rows import Converter, output_type
from corpus.readers.records import Block, Chunker, batch_schema

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"

# Rows are decoded some hundred at a time, which costs nothing (measured: 64 rows of 5 kB as fast as 8192), and are
# gathered to this many bytes before anything is computed on them.
_DECODE_BYTES = 2 << 20
_GATHER_BYTES = 2 << 20
_GATHER_ROWS = 8192
# What the rows decoded at a time may take if each holds the largest value that its dictionary can have.
_WORST_BYTES = 256 << 20
_UNKNOWN_VALUE_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 20
# How pyarrow begins what it says of a null in a list of fixed size.
_FIXED_LISTS = "Expected all lists to be of size"
_REMOTE_BUFFER_BYTES = 8 << 20
_PRE_BUFFER_BYTES = 64 << 20


def open_parquet(path: str) -> tuple[pq.ParquetFile, pa.NativeFile]:
    """Open a Parquet file; return it with the file that it reads from. Raises FileFaultError, UnreadableError."""
    try:
        handle = open_random(path)
        head = handle.read(4)
        size = handle.size()
        handle.seek(max(0, size - 4))
        tail = handle.read(4)
        handle.seek(0)
    except Exception as error:  # the clients of object stores have their own exceptions
        raise UnreadableError(error) from error
    if not head:
        raise FileFaultError("file_truncated", "the file is empty, which no Parquet file is; fetch or write it again")
    if ENCRYPTED_MAGIC in (head, tail):
        raise FileFaultError("file_unreadable", "the Parquet file is encrypted; decrypt it first")
    if head != MAGIC:
        detail = (
            f"this is not a Parquet file, it begins with {head!r}; rename it if it is something else, or fetch it again"
        )
        raise FileFaultError("file_corrupt", detail)
    if tail != MAGIC or size < 12:
        raise FileFaultError("file_truncated", "the file ends early, before its footer; fetch or write it again")
    remote = scheme_of(path) != "file"
    try:
        parquet = pq.ParquetFile(
            handle,
            buffer_size=_REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        _check_footer(parquet, handle, size)
        largest = max((_compressed(parquet, group) for group in range(parquet.num_row_groups)), default=0)
        if remote and largest <= _PRE_BUFFER_BYTES:
            parquet = pq.ParquetFile(
                handle, metadata=parquet.metadata, pre_buffer=True, page_checksum_verification=True
            )
        parquet.schema_arrow  # noqa: B018  # types that Arrow does not know come out here
    except Exception as error:  # a damaged footer may fail in any way
        if is_transient(error):
            raise UnreadableError(error) from error
        detail = f"the footer is damaged ({reason(error)}); fetch or write the file again"
        raise FileFaultError("file_corrupt", detail) from error
    return parquet, handle


def _check_footer(parquet: pq.ParquetFile, handle: pa.NativeFile, size: int) -> None:
    """Raise ValueError where asking for the metadata of a column chunk would end the process."""
    columns = [parquet.schema.column(index) for index in range(len(parquet.schema))]
    handle.seek(size - 8)
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(size - 8 - length)
    faulty = faulty_chunk(
        np.frombuffer(handle.read(length), np.uint8).copy(),
        np.array([column.max_definition_level for column in columns], np.int64),
        np.array([column.max_repetition_level for column in columns], np.int64),
        np.array([column.physical_type == "BYTE_ARRAY" for column in columns], np.bool_),
    )
    handle.seek(0)
    if faulty != FITS:
        name = columns[faulty].path if 0 <= faulty < len(columns) else "unknown"
        raise ValueError(f"what it says of a chunk of column {name} does not fit the schema")


def _compressed(parquet: pq.ParquetFile, group: int) -> int:
    metadata = parquet.metadata.row_group(group)
    return sum(metadata.column(index).total_compressed_size for index in range(metadata.num_columns))


def read_parquet(item: Item, config: InputConfig, batch_rows: int, batch_bytes: int) -> Iterator[DocumentBatch]:
    """Yield the batches of a Parquet item; see ``corpus.readers.read_item``."""
    try:
        parquet, handle = open_parquet(item.path)
        schema = parquet.schema_arrow
        fault = column_fault(schema, config)
        if fault is not None:
            raise FileFaultError("wrong_columns", fault)
    except FileFaultError as fault_found:
        chunker = Chunker(item, batch_schema(config, []), batch_rows, batch_bytes)
        letter = DeadLetter(item.file, None, fault_found.error, fault_found.detail)
        yield from chunker.add(empty_block(batch_schema(config, []), letter))
        yield chunker.finish()
        return
    types = config.columns if isinstance(config.columns, dict) else {}
    user = [
        pa.field(USER_PREFIX + name, output_type(types.get(name), plain_type(schema.field(name).type)))
        for name in carried_columns(schema, config)
    ]
    records = batch_schema(config, user)
    chunker = Chunker(item, records, batch_rows, batch_bytes)
    convert = Converter(item, config, records)
    with handle:
        for found in _gathered(_decoded(parquet, handle, item, config)):
            if isinstance(found, FileFaultError):
                block = empty_block(records, DeadLetter(item.file, None, found.error, found.detail))
            else:
                block = convert.block(*found)
            yield from chunker.add(block)
    yield chunker.finish()


def empty_block(schema: pa.Schema, letter: DeadLetter) -> Block:
    """Return a block with a dead letter and no records."""
    arrays = [pa.array([], one.type) for one in schema]
    return Block(pa.RecordBatch.from_arrays(arrays, schema=schema), np.zeros(0, np.int64), [(0, letter)])


Decoded = tuple[pa.RecordBatch, npt.NDArray[np.int64]]


def _decoded(
    parquet: pq.ParquetFile, handle: pa.NativeFile, item: Item, config: InputConfig
) -> Iterator[Decoded | FileFaultError]:
    """Yield rows with their positions, and a fault for each row group that breaks, after the rows before the break."""
    names = wanted_columns(parquet.schema_arrow, config)
    row = item.first_row
    left = item.limit
    for group in range(item.start, item.end):
        metadata = parquet.metadata.row_group(group)
        end = row + metadata.num_rows
        position = row
        row = end
        if left is not None and left <= 0:
            return
        if not metadata.num_rows:
            continue
        try:
            rows = rows_at_a_time(metadata, names, handle)
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                batch = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - len(batch)
                yield batch.select(names), np.arange(position, position + len(batch))
                position += len(batch)
                if left == 0:
                    return
        except Exception as error:  # a damaged page may fail in any way
            if is_transient(error):
                raise UnreadableError(error) from error
            what = f"row group {group} breaks at row {position}: rows {position} to {end - 1} of the file are lost"
            name = _column_with_null_list(parquet, group, names) if _FIXED_LISTS in str(error) else None
            if name is None:
                yield FileFaultError("file_corrupt", f"{what} ({reason(error)}); fetch or write the file again")
                continue
            why = f"column {name} has a null in a list of fixed size, which pyarrow cannot read"
            remedy = "name the columns to carry in input.columns and leave it out, or write it as a list of any size"
            yield FileFaultError("unreadable_column", f"{what} ({why}); {remedy}")


def _column_with_null_list(parquet: pq.ParquetFile, group: int, names: list[str]) -> str | None:
    """Return the first of the columns that fails because of a null in a list of fixed size."""
    schema = parquet.schema_arrow
    candidates = (name for name in names if _has_fixed_list(schema.field(name).type))
    return next((name for name in candidates if _has_null_list(parquet, group, name)), None)


def _has_null_list(parquet: pq.ParquetFile, group: int, name: str) -> bool:
    try:
        for _ in parquet.iter_batches(1024, row_groups=[group], columns=[name], use_threads=False):
            pass
    except pa.ArrowInvalid as error:
        return _FIXED_LISTS in str(error)
    return False


def _has_fixed_list(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return True
    nested = pa.types.is_nested(kind)
    return nested and any(_has_fixed_list(kind.field(index).type) for index in range(kind.num_fields))


def _gathered(parts: Iterator[Decoded | FileFaultError]) -> Iterator[Decoded | FileFaultError]:
    """Join decoded rows to pieces that are worth a vectorised step."""
    held: list[Decoded] = []
    rows = size = 0
    for part in parts:
        if not isinstance(part, FileFaultError):
            held.append(part)
            rows += len(part[1])
            size += part[0].nbytes
            if rows < _GATHER_ROWS and size < _GATHER_BYTES:
                continue
        if held:
            yield _joined(held)
        if isinstance(part, FileFaultError):
            yield part
        held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(held: list[Decoded]) -> Decoded:
    if len(held) == 1:
        return held[0]
    return pa.concat_batches([batch for batch, _ in held]), np.concatenate([positions for _, positions in held])


def rows_at_a_time(metadata: Any, names: list[str], handle: pa.NativeFile) -> int:
    """Return how many rows of a row group to decode at a time, given its metadata and the columns to read."""
    rows = metadata.num_rows
    size = worst = 0
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        if column.path_in_schema.split(".")[0] not in {name.split(".")[0] for name in names}:
            continue
        size += column.total_uncompressed_size
        if column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
            worst += _largest_value(column, handle) * max(1, -(-column.num_values // rows))
    by_size = _DECODE_BYTES * rows // max(1, size)
    by_worst = _WORST_BYTES // max(1, worst)
    return int(max(1, min(by_size, by_worst, rows, _GATHER_ROWS)))


def _largest_value(column: Any, handle: pa.NativeFile) -> int:
    """Return a bound for values that take fewer bytes in the file than in memory; 0 where they do not."""
    encodings = column.encodings
    if "DELTA_BYTE_ARRAY" in encodings:
        return min(int(column.total_uncompressed_size), _UNKNOWN_VALUE_BYTES)
    if not any("DICTIONARY" in encoding for encoding in encodings):
        return 0
    start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    handle.seek(start)
    size = _dictionary_page_size(handle.read(32))
    return int(column.total_uncompressed_size) if size is None else size


def _dictionary_page_size(header: bytes) -> int | None:
    """Return the uncompressed size of a dictionary page from the first bytes of its header; None if it is none.

    The header is a Thrift struct in compact encoding whose first two fields are the page's type and uncompressed size
    (parquet-format, ``PageHeader``).
    """
    if header[:3] != b"\x15\x04\x15":
        return None
    value = shift = 0
    for byte in header[3:8]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1
        shift += 7
    return None
