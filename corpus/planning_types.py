"""The plan of an input: which files it has and the items in which they are read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Format = Literal["parquet", "jsonl", "text", "fault"]
Compression = Literal["gz", "zst"]


@dataclass(frozen=True)
class PlannedFile:
    """One input file.

    Attributes:
        file: path below the longest common folder of all input files, with ``/``; what users see.
        path: absolute path or URI, without secrets.
        format: what the suffix says: ``parquet``, ``jsonl`` or ``text``.
        compression: ``gz``, ``zst`` or None.
        size: bytes as stored.
        modified: modification time in nanoseconds, or the store's ETag.
        rows: rows of a Parquet file; None where only reading can tell.
        likely_rows: about how many records it has; exact for Parquet, 0 for a file that cannot be read as a whole.
        error: why the file cannot be read as a whole, as ``name: sentence``.
    """

    file: str
    path: str
    format: Format
    compression: Compression | None
    size: int
    modified: str
    rows: int | None
    likely_rows: int
    error: str | None


@dataclass(frozen=True)
class Item:
    """The unit of work: a part of a file.

    Attributes:
        index: number in the plan.
        file, path, format, compression: as in the file; the format ``fault`` stands for a file that cannot be read.
        start, end: row groups of a Parquet file; else bytes as stored, where an uncompressed JSONL item has the lines
            that start in [start, end) and every other item is the whole file.
        first_row: row in the file of the first record of a Parquet item.
        rows: rows of a Parquet item; None where only reading can tell.
        limit: number of records at which to stop; None for all.
        error, detail: name and sentence of the fault.
    """

    index: int
    file: str
    path: str
    format: Format
    compression: Compression | None
    start: int
    end: int
    first_row: int
    rows: int | None
    limit: int | None
    error: str | None
    detail: str | None


@dataclass(frozen=True)
class InputPlan:
    """All input files sorted by ``file``, the items in which they are read, and what was left out of folders."""

    files: tuple[PlannedFile, ...]
    items: tuple[Item, ...]
    left_out: tuple[str, ...]

    def to_json(self) -> str:
        """Return the plan as JSON text; equal plans give equal text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> InputPlan:
        """Return the plan that ``to_json`` wrote."""
        data = json.loads(text)
        return cls(
            files=tuple(PlannedFile(**one) for one in data["files"]),
            items=tuple(Item(**one) for one in data["items"]),
            left_out=tuple(data["left_out"]),
        )


def items_by_work(plan: InputPlan) -> list[int]:
    """Return the numbers of all items, those with the most bytes to read first."""
    sizes = {file.file: (file.size, file.rows or 1) for file in plan.files}

    def work(index: int) -> tuple[float, int]:
        item = plan.items[index]
        size, rows = sizes[item.file]
        if item.rows is not None:
            return -size * item.rows / rows, index
        return -(item.end - item.start if item.end > item.start else size), index

    return sorted(range(len(plan.items)), key=work)
