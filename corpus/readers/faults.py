"""What can be wrong with a record or a file."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa

from corpus.batch import DEAD_SCHEMA
from corpus.errors import ThresherError

RAW_BYTES = 64 << 10


class FileFaultError(Exception):
    """A file that cannot be read from here on; ``error`` is its name, ``detail`` a sentence with the remedy."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(f"{error}: {detail}")
        self.error = error
        self.detail = detail


class UnreadableError(Exception):
    """The bytes of a file could not be had, which says nothing about them; ``error`` says why.

    Never a dead letter: that would stay after the fault is gone.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(reason(error))
        self.error = error


class RecordFaultError(Exception):
    """A record that is no record; ``error`` is its name, ``detail`` a sentence with the remedy."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(f"{error}: {detail}")
        self.error = error
        self.detail = detail


def reason(error: Exception) -> str:
    """Return what an exception of an operating system or library says, without paths of the machine."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_transient(error: Exception) -> bool:
    """Say whether an error that comes up while a file is decoded may be gone at the next attempt.

    Such are faults of memory, operating system, network and store. What pyarrow finds wrong with the bytes of a file
    is an OSError without errno, or has a class of pyarrow's or of the interpreter's own; clients of object stores have
    classes of their own.
    """
    if isinstance(error, MemoryError | ConnectionError | TimeoutError | FileNotFoundError | PermissionError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return True
    return type(error).__module__.split(".")[0] not in ("builtins", "pyarrow")


def cannot_be_read(file: str, error: Exception) -> ThresherError:
    """Return what a user gets to see of an error that may pass."""
    return ThresherError(f"{file}: cannot be read at the moment ({reason(error)}); run the same command again")


@dataclass(frozen=True)
class DeadLetter:
    """One row of ``DEAD_SCHEMA`` but for the file; a null position marks a fault of the file."""

    source: str | None
    position: int | None
    error: str
    detail: str
    raw: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes that the values of the letter add to its batch, the file and what every row takes aside."""
        texts = len((self.source or "").encode()) + len(self.error) + len(self.detail.encode())
        return texts + (min(len(self.raw), RAW_BYTES) if self.raw else 0)


def dead_batch(file: str, letters: list[DeadLetter]) -> pa.RecordBatch:
    """Return dead letters of one file as a record batch of ``DEAD_SCHEMA``; the raw bytes are cut at 64 KiB."""
    columns = [
        [letter.source for letter in letters],
        [file] * len(letters),
        [letter.position for letter in letters],
        [letter.error for letter in letters],
        [letter.detail for letter in letters],
        [None if letter.raw is None else letter.raw[:RAW_BYTES] for letter in letters],
    ]
    arrays = [pa.array(column, one.type) for column, one in zip(columns, DEAD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=DEAD_SCHEMA)
