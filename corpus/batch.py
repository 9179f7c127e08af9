"""The element of every document-carrying collection: a batch of records with its dead letters.

Records of a batch are rows of one ``pyarrow.RecordBatch`` with the columns of ``record_schema`` first, then the user's
other columns: as they came from Parquet (named ``user/<name>``), or as one JSON object per record (``json``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from corpus.batch_layout import CHUNK_BITS, FIELDS, MAX_CHUNKS, MAX_ROWS, ROW_BITS, Layout
from corpus.edited import edited_records
from corpus.findings import NO_FINDINGS

USER_PREFIX = "user/"
JSON_COLUMN = "json"

INPUT_STAGE = "input"
INPUT_RULES = ("empty_text", "max_record_bytes")
EMPTY_TEXT, OVER_SIZE = 1, 2

DEAD_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("position", pa.int64()),
        pa.field("error", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("raw", pa.binary()),
    ]
)


def record_fields(layout: Layout) -> list[pa.Field]:
    """Return the columns that every batch of records has, in order.

    ``characters`` counts code points over all text fields as read, ``bytes`` what ``input.max_record_bytes`` limits.
    ``input_failures`` is a bit mask over ``INPUT_RULES``; such a row is not alive in any stage. Text and user
    columns of a row that is over the size limit are null. The input digest of the manifest sums up ``row_digest``.
    """
    return [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("generated_id", pa.bool_(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("content_hash", pa.binary(16), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("input_failures", pa.int64(), nullable=False),
        pa.field("row_digest", pa.int64(), nullable=False),
        *(pa.field(name, pa.string()) for name in FIELDS[layout]),
    ]


def chunk_key(item: int, chunk: int) -> int:
    """Return the signed 64-bit key of a batch."""
    return item << CHUNK_BITS | chunk


def split_chunk_key(key: int) -> tuple[int, int]:
    """Return (item, chunk) of a batch key."""
    return key >> CHUNK_BITS, key & (MAX_CHUNKS - 1)


def first_row_id(key: int) -> int:
    """Return the id, inside a run, of row 0 of the batch with this key; row r has this plus r."""
    return key << ROW_BITS


def split_row_id(row_id: int) -> tuple[int, int]:
    """Return (batch key, row) of a record's id inside a run."""
    return row_id >> ROW_BITS, row_id & (MAX_ROWS - 1)


@dataclass(frozen=True)
class DocumentBatch:
    """One chunk of an item.

    Attributes:
        item: number of the item in the plan.
        chunk: number of the batch within the item, without gaps.
        last: whether it is the item's last batch; every item has one, possibly without rows.
        file: display path of the file that the item belongs to.
        records: decoded records, with the texts that enter the pass.
        dead: what could not be decoded; ``DEAD_SCHEMA``. A null position marks a fault of the file.
        marks: what the stages of the pass found, one row per record; the first column, ``alive``, says whether the
            record was alive when the pass began.
        findings: what they found in texts, ``corpus.findings.FINDING_SCHEMA``.
        earlier: the edits of the passes before, where a stage of the pass reads chats turn by turn.
        edited: the records with the edits among the findings, None where there are none. It follows from the others
            and is not encoded.
        shared: what stages compute of the texts for each other, by field; not encoded.
    """

    item: int
    chunk: int
    last: bool
    file: str
    records: pa.RecordBatch
    dead: pa.RecordBatch
    marks: pa.RecordBatch
    findings: pa.RecordBatch = field(default_factory=lambda: NO_FINDINGS)
    earlier: pa.RecordBatch = field(default_factory=lambda: NO_FINDINGS)
    edited: pa.RecordBatch | None = field(default=None, compare=False)
    shared: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def current(self) -> pa.RecordBatch:
        """The records with the texts that enter the next stage."""
        return self.records if self.edited is None else self.edited

    @property
    def key(self) -> int:
        """The batch key."""
        return chunk_key(self.item, self.chunk)


def write_ipc(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    """Append one record batch to a stream."""
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def encode(batch: DocumentBatch) -> bytes:
    """Return a batch as bytes: a JSON header line, then five Arrow IPC streams. Slices ship only their own rows."""
    sink = pa.BufferOutputStream()
    header = {"item": batch.item, "chunk": batch.chunk, "last": batch.last, "file": batch.file}
    sink.write(json.dumps(header).encode() + b"\n")
    for part in (batch.records, batch.dead, batch.marks, batch.findings, batch.earlier):
        write_ipc(sink, part)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode(data: bytes) -> DocumentBatch:
    """Return the batch that ``encode`` turned into bytes."""
    end = data.index(b"\n") + 1
    source = pa.BufferReader(pa.py_buffer(data).slice(end))
    parts = []
    for _ in range(5):
        with pa.ipc.open_stream(source) as reader:
            parts.append(reader.read_next_batch())
            for _ in reader:  # consumes the end-of-stream mark, so that the next stream starts behind it
                pass
    records, dead, marks, findings, earlier = parts
    edited = edited_records(records, marks, findings)
    return DocumentBatch(
        **json.loads(data[:end]),
        records=records,
        dead=dead,
        marks=marks,
        findings=findings,
        earlier=earlier,
        edited=edited,
    )
