"""Gather decoded records into the batches of an item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import EMPTY_TEXT, JSON_COLUMN, OVER_SIZE, DocumentBatch, record_fields
from corpus.batch_layout import MAX_CHUNKS, MAX_ROWS
from corpus.errors import UsageError
from corpus.hashing import content_hash, row_digest
from corpus.inputs import InputConfig
from corpus.planning_types import Item
from corpus.readers.faults import DeadLetter, RecordFaultError, dead_batch

# The code points of the Unicode property White_Space (PropList.txt); the set has not changed since Unicode 6.3.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# What a row takes beside its strings: numbers, hash, flags and offsets (100), and what all stages together measure on
# it (some 60 numbers), rounded up; a dead letter takes less. So a batch stays within its bytes with its signals, too.
ROW_BYTES = 600
MAX_NAME_BYTES = 4096

_BLOCK_ROWS = 1024
_BLOCK_BYTES = 2 << 20


@dataclass
class Block:
    """Some records of an item in order.

    Attributes:
        records: n rows, ``record_fields`` and the user's columns.
        sizes: bytes that each of the n records adds to its batch, ``ROW_BYTES`` and names included.
        dead: letters, each with the number of records of the block before it.
    """

    records: pa.RecordBatch
    sizes: npt.NDArray[np.int64]
    dead: list[tuple[int, DeadLetter]] = field(default_factory=list)


class Chunker:
    """Cut the records and dead letters of an item into batches.

    A batch ends where the next record or dead letter would bring it over ``batch_rows`` or ``batch_bytes``; one that is
    too large alone has a batch to itself. So the cuts do not depend on the blocks in which records arrive.
    """

    def __init__(self, item: Item, schema: pa.Schema, batch_rows: int, batch_bytes: int) -> None:
        self._item = item
        self._schema = schema
        self._batch_rows = min(batch_rows, MAX_ROWS)
        self._batch_bytes = batch_bytes
        self._letter_bytes = ROW_BYTES + len(item.file.encode())
        self._chunk = 0
        self._rows = 0
        self._bytes = 0
        self._records: list[pa.RecordBatch] = []
        self._dead: list[DeadLetter] = []

    def add(self, block: Block) -> Iterator[DocumentBatch]:
        """Take records; yield each batch that they complete."""
        places = [place for place, _ in block.dead]
        sizes = (
            np.insert(block.sizes, places, [letter.size + self._letter_bytes for _, letter in block.dead])
            if places
            else block.sizes
        )
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        letters = [place + index for index, place in enumerate(places)]
        start, taken = 0, 0
        while start < len(sizes):
            room = sums[start] + self._batch_bytes - self._bytes
            fitting = int(np.searchsorted(sums, room, side="right")) - 1
            end = min(max(fitting, start), start + self._batch_rows - self._rows, len(sizes))
            if end == start:
                if self._rows:
                    yield self._batch(last=False)
                    continue
                end = start + 1
            in_range = [letter for index, (_, letter) in zip(letters, block.dead, strict=True) if start <= index < end]
            rows = end - start - len(in_range)
            if rows:
                self._records.append(block.records.slice(taken, rows))
            self._dead += in_range
            self._rows += end - start
            self._bytes += int(sums[end] - sums[start])
            taken += rows
            start = end

    def finish(self) -> DocumentBatch:
        """Return the last batch of the item, which may have no rows."""
        return self._batch(last=True)

    def _batch(self, last: bool) -> DocumentBatch:
        if self._chunk == MAX_CHUNKS:
            raise UsageError(f"{self._item.file}: more than {MAX_CHUNKS} batches in an item; raise batch_rows")
        if not self._records:
            records = _no_rows(self._schema)
        elif len(self._records) == 1:
            records = self._records[0]
        else:
            records = pa.concat_batches(self._records)
        failures = records.column("input_failures").to_numpy()
        marks = pa.RecordBatch.from_arrays([pa.array(failures == 0)], names=["alive"])
        dead = dead_batch(self._item.file, self._dead)
        batch = DocumentBatch(self._item.index, self._chunk, last, self._item.file, records, dead, marks)
        self._chunk += 1
        self._rows, self._bytes, self._records, self._dead = 0, 0, [], []
        return batch


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def batch_schema(config: InputConfig, user: list[pa.Field]) -> pa.Schema:
    """Return the schema of an item's records, given its user columns."""
    return pa.schema([*record_fields(config.layout), *user])


def is_long_name(name: str) -> bool:
    """Say whether an id or source is longer than ``MAX_NAME_BYTES``, which keeps every element bounded."""
    return 4 * len(name) > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES


def check_name(name: str | None, label: str, column: str | None) -> None:
    """Raise RecordFaultError where an id or source (``label``) that a column gives is too long."""
    if column is not None and name is not None and is_long_name(name):
        raise RecordFaultError(f"{label}_too_long", long_name_detail(label, column))


def long_name_detail(label: str, column: str) -> str:
    """Return the sentence of a dead letter with too long an id or source."""
    return f"{column} is longer than {MAX_NAME_BYTES} bytes; shorten it or take another column as {label}_column"


def is_empty(texts: list[str]) -> bool:
    """Say whether a record has no text: its document, or the response of its pair, is blank."""
    return not texts[-1].strip(WHITE_SPACE)


class RecordBuilder:
    """Build blocks from records that are decoded one by one (JSON, text files)."""

    def __init__(self, item: Item, config: InputConfig, has_json: bool) -> None:
        self.schema = batch_schema(config, [pa.field(JSON_COLUMN, pa.string())] if has_json else [])
        self._has_json = has_json
        self._file = item.file
        self._limit = config.max_record_bytes
        self._rows: list[tuple[object, ...]] = []
        self._sizes: list[int] = []
        self._dead: list[tuple[int, DeadLetter]] = []
        self._bytes = 0

    def add(self, position: int, record_id: str | None, source: str | None, texts: list[str], carried: bytes) -> None:
        """Take a record; ``carried`` is the JSON text of its other columns. A null id becomes ``file#position``."""
        encoded = [text.encode() for text in texts]
        content = content_hash(encoded)
        size = sum(map(len, encoded))
        total = size + len(carried)
        failures = EMPTY_TEXT if is_empty(texts) else 0
        characters = sum(map(len, texts))
        columns: list[bytes | None] = [*encoded, carried] if self._has_json else [*encoded]
        if total > self._limit:
            failures |= OVER_SIZE
            size = size if size > self._limit else total
            total = 0
            columns = [None] * len(columns)
        digest = row_digest(position, content, carried)
        generated = record_id is None
        name = f"{self._file}#{position}" if record_id is None else record_id
        self._rows.append((name, generated, source, position, content, characters, size, failures, digest, *columns))
        total += ROW_BYTES + len(name.encode()) + (0 if source is None else len(source.encode()))
        self._sizes.append(total)
        self._bytes += total

    def add_dead(self, letter: DeadLetter) -> None:
        """Take a dead letter, after the records added so far."""
        self._dead.append((len(self._rows), letter))
        self._bytes += letter.size

    @property
    def is_full(self) -> bool:
        """Whether it is time to take the block."""
        return len(self._rows) + len(self._dead) >= _BLOCK_ROWS or self._bytes >= _BLOCK_BYTES

    def take(self) -> Block:
        """Return what was added since the last call."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(self.schema)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, self.schema, strict=True)]
        block = Block(
            pa.RecordBatch.from_arrays(arrays, schema=self.schema), np.array(self._sizes, np.int64), self._dead
        )
        self._rows, self._sizes, self._dead, self._bytes = [], [], [], 0
        return block
