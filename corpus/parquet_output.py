"""Write Parquet the same way everywhere: fixed settings, row groups sized for readers, whole files only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
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


class ParquetOutput:
    """Writes tables of one schema as one file, a row group at a time; without a table, a valid file without rows.

    Used as a context manager: the file appears when the block ends without an error, and ``file`` describes it then.

    Args:
        plain: columns that get neither a dictionary nor statistics, because their values hardly repeat and are long.
    """

    def __init__(self, folder: Folder, name: str, schema: pa.Schema, plain: Iterable[str] = ()) -> None:
        self.file: OutputFile | None = None
        self._folder, self._name, self._schema, self._plain = folder, name, schema, set(plain)
        self._waiting: list[pa.Table] = []
        self._size = self._waiting_rows = self._rows = 0

    def __enter__(self) -> ParquetOutput:
        columns = [
            field.name for field in self._schema if field.name not in self._plain and not pa.types.is_nested(field.type)
        ]
        with ExitStack() as stack:
            self._sink = _Hashing(stack.enter_context(self._folder.writing(self._name)))
            self._writer = stack.enter_context(
                pq.ParquetWriter(
                    self._sink,
                    self._schema,
                    compression="zstd",
                    compression_level=COMPRESSION_LEVEL,
                    use_dictionary=columns,
                    write_statistics=columns,
                    write_page_index=True,
                )
            )
            self._stack = stack.pop_all()
        return self

    def write(self, table: pa.Table) -> None:
        """Add a table, a batch's rows; row groups take whole batches up to a size."""
        if self._waiting and (
            self._size + table.nbytes > ROW_GROUP_BYTES or self._waiting_rows + table.num_rows > ROW_GROUP_ROWS
        ):
            self._write_group()
        self._waiting.append(table)
        self._size += table.nbytes
        self._waiting_rows += table.num_rows

    def _write_group(self) -> None:
        if self._waiting_rows:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._waiting_rows)
            self._rows += self._waiting_rows
        self._waiting, self._size, self._waiting_rows = [], 0, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, traceback)
            return
        with self._stack:
            self._write_group()
        self.file = OutputFile(self._name, self._rows, self._sink.size, self._sink.digest.hexdigest())
