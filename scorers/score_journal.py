"""Results that are worth keeping one by one, until they are in a file of the score table.

A journal is written by one process while a batch is scored, a line of JSON per result, and removed once the batch is in
Parquet. What a process leaves that was killed is read by the next one; its last line may be torn. On an object store,
where nothing can be appended, several results wait for each other and become one small object.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import orjson
import pyarrow as pa

from corpus.errors import ThresherError
from corpus.folder import Folder

PREFIX, SUFFIX = "journal-", ".jsonl"


class ScoreJournal:
    """The journal of one batch; a context, in which results can be added.

    Args:
        folder: of the score table.
        key: name of the binary column.
        at_risk: how many results may wait for each other on an object store.
    """

    def __init__(self, folder: Folder, key: str, at_risk: int) -> None:
        self.folder = folder
        self.key = key
        self.at_risk = at_risk
        self._stem = f"{PREFIX}{secrets.token_hex(8)}"
        self._file: BinaryIO | None = None
        self._waiting: list[bytes] = []
        self._names: list[str] = []

    def add(self, rows: pa.Table) -> None:
        """Keep results. Raises ThresherError where that is not possible."""
        lines = [
            orjson.dumps({**row, self.key: row[self.key].hex()}, option=orjson.OPT_APPEND_NEWLINE)
            for row in rows.to_pylist()
        ]
        if not self.folder.is_local:
            self._waiting += lines
            if len(self._waiting) >= self.at_risk:
                name = f"{self._stem}-{len(self._names):06d}{SUFFIX}"
                self.folder.write_bytes(name, b"".join(self._waiting))
                self._names.append(name)
                self._waiting.clear()
            return
        name = f"{self._stem}{SUFFIX}"
        try:
            if self._file is None:
                self._names.append(name)
                # Without a buffer of ours: what was written is there when this process is killed.
                self._file = Path(self.folder.path(name)).open("ab", buffering=0)  # noqa: SIM115
            self._file.write(b"".join(lines))
        except OSError as error:
            raise ThresherError(
                f"{self.folder.path(name)}: cannot be written ({error.strerror or error}); make room or rights"
            ) from error

    def __enter__(self) -> ScoreJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        """Remove what was written: it is in the table."""
        for name in self._names:
            self.folder.remove(name)


def is_journal(name: str) -> bool:
    """Say whether a file of a score table is a journal."""
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def read_journal(folder: Folder, name: str, schema: pa.Schema, key: str) -> pa.Table:
    """Return the results in a journal, which its process may remove at any time.

    Raises ValueError or pyarrow's errors where a line but the last is none of a journal.
    """
    try:
        lines = folder.read_bytes(name).split(b"\n")
    except FileNotFoundError:
        return schema.empty_table()
    # The last one is empty, or torn.
    return pa.Table.from_pylist(list(_rows(lines[:-1], schema.names, key)), schema)


def _rows(lines: Iterable[bytes], names: Iterable[str], key: str) -> Iterable[dict[str, object]]:
    for line in lines:
        row = orjson.loads(line)
        yield {**{name: row[name] for name in names}, key: bytes.fromhex(row[key])}
