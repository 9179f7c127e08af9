"""Write Parquet the same way everywhere: fixed settings, row groups sized for readers, whole files only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.folder import Folder

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 17
COMPRESSION_LEVEL = 1


@dataclass(frozen=True)
class OutputFile:
    """A file that was written: name below the run folder, rows, size in bytes and SHA-256."""

    name: str
    rows: int
    bytes: int
    sha256: str


class _Hashing:
    """A binary file that hashes and counts what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self.size += view.nbytes
        return self._file.write(view)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    size = rows = 0
    for table in tables:
        if waiting and (size + table.nbytes > ROW_GROUP_BYTES or rows + table.num_rows > ROW_GROUP_ROWS):
            yield pa.concat_tables(waiting)
            waiting, size, rows = [], 0, 0
        waiting.append(table)
        size += table.nbytes
        rows += table.num_rows
    if rows:
        yield pa.concat_tables(waiting)


def write_parquet(
    folder: Folder, name: str, schema: pa.Schema, tables: Iterable[pa.Table], plain: Iterable[str] = ()
) -> OutputFile:
    """Write tables of one schema as one file; zero tables give a valid file without rows.

    Args:
        plain: columns that get neither a dictionary nor statistics, because their values hardly repeat and are long.
    """
    plain_names = set(plain)
    others = [field.name for field in schema if field.name not in plain_names and not pa.types.is_nested(field.type)]
    rows = 0
    with folder.writing(name) as file:
        sink = _Hashing(file)
        with pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=others,
            write_statistics=others,
            write_page_index=True,
        ) as writer:
            for group in _row_groups(tables):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
                rows += group.num_rows
    return OutputFile(name, rows, sink.size, sink.digest.hexdigest())
