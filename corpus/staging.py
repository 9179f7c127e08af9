"""Staging: every record of a batch as it was read, and what each pass found on it.

Per batch there are the files ``staging/records/KEY[-last].arrow`` (Arrow IPC), ``staging/dead/KEY.arrow`` where the
batch has dead letters, and ``staging/marks-P/KEY.arrow`` for pass P, beside ``staging/findings-P/KEY.arrow`` where the
pass found something in texts. The records of pass 1 are written after the
others, so a records file says that the whole batch is there; a batch named ``-last`` says how many an item has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import DEAD_SCHEMA, DocumentBatch, chunk_key, split_chunk_key
from corpus.edited import edited_records, text_fields
from corpus.findings import EDIT_COLUMNS, NO_FINDINGS, findings_of_rows
from corpus.folder import Folder

# LZ4 costs little and halves the disk that text needs. A worker is one core: Arrow's own threads would take others'.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_REFERENCE = struct.Struct("<q?qqqq")
REFERENCE_BYTES = _REFERENCE.size


@dataclass(frozen=True)
class ChunkReference:
    """A staged batch, in 41 bytes: what later steps need to know before they open its files.

    Attributes:
        key: batch key.
        last: whether it is its item's last one.
        rows: decoded records.
        dead: dead letters.
        kept_rows, kept_bytes: records alive and UTF-8 bytes of their text fields, after the pass that wrote it.
    """

    key: int
    last: bool
    rows: int
    dead: int
    kept_rows: int
    kept_bytes: int

    def to_bytes(self) -> bytes:
        """Return the reference packed."""
        return _REFERENCE.pack(self.key, self.last, self.rows, self.dead, self.kept_rows, self.kept_bytes)

    @staticmethod
    def from_bytes(data: bytes) -> ChunkReference:
        """Return the reference that ``to_bytes`` packed."""
        return ChunkReference(*_REFERENCE.unpack(data))


def stem(key: int) -> str:
    """Return the name, without suffix, of the files of a batch."""
    item, chunk = split_chunk_key(key)
    return f"{item:08d}-{chunk:07d}"


def records_name(key: int, last: bool) -> str:
    """Return the name of a batch's records file."""
    return f"staging/records/{stem(key)}{'-last' if last else ''}.arrow"


def _dead_name(key: int) -> str:
    return f"staging/dead/{stem(key)}.arrow"


def _marks_name(number: int, key: int) -> str:
    return f"staging/marks-{number}/{stem(key)}.arrow"


def _findings_name(number: int, key: int) -> str:
    return f"staging/findings-{number}/{stem(key)}.arrow"


def _write(folder: Folder, name: str, batch: pa.RecordBatch) -> None:
    with folder.writing(name) as file, pa.ipc.new_file(file, batch.schema, options=_WRITE) as writer:
        writer.write_batch(batch)


def _read(
    folder: Folder, name: str, columns: Sequence[str] | None = None, where_there: Sequence[str] = ()
) -> pa.RecordBatch:
    with folder.open_arrow(name) as source:
        fields = None
        if columns is not None:
            names = pa.ipc.open_file(source).schema.names
            wanted = (*columns, *(column for column in where_there if column in names))
            fields = [names.index(column) for column in wanted]
            source.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return pa.ipc.open_file(source, options=options).get_batch(0)


def write_marks(
    folder: Folder, number: int, key: int, marks: pa.RecordBatch, findings: pa.RecordBatch = NO_FINDINGS
) -> None:
    """Store what pass ``number`` (from 1) found on a batch."""
    if findings.num_rows:
        _write(folder, _findings_name(number, key), findings)
    metadata = {"findings": str(findings.num_rows)}
    _write(folder, _marks_name(number, key), marks.replace_schema_metadata(metadata))


def read_marks(folder: Folder, number: int, key: int) -> pa.RecordBatch:
    """Return what pass ``number`` found on a batch; the schema's metadata has the number of ``findings``."""
    return _read(folder, _marks_name(number, key))


def read_findings(
    folder: Folder,
    number: int,
    key: int,
    marks: pa.RecordBatch | None = None,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return what pass ``number`` found in the texts of a batch.

    Args:
        marks: those of the pass, where they were read before.
        columns: those that are read; None for all.
    """
    if marks is None:
        with folder.open_arrow(_marks_name(number, key)) as source:
            schema = pa.ipc.open_file(source).schema
    else:
        schema = marks.schema
    if not int(schema.metadata[b"findings"]):
        return NO_FINDINGS if columns is None else NO_FINDINGS.select(columns)
    return _read(folder, _findings_name(number, key), columns)


def read_current(
    folder: Folder, number: int, key: int, records: pa.RecordBatch, rows: npt.NDArray[np.int64] | None = None
) -> pa.RecordBatch:
    """Return records with the edits of passes 1 to ``number``.

    Args:
        records: all columns of a batch, or some of them, as they were read.
        rows: numbers of the records that are returned, ascending; None for all.
    """
    if rows is not None and len(rows) == records.num_rows:
        rows = None
    length = records.num_rows
    if rows is not None:
        records = records.take(pa.array(rows))
    for earlier in range(1, number + 1):
        marks = read_marks(folder, earlier, key)
        findings = NO_FINDINGS
        if text_fields(records):
            findings = read_findings(folder, earlier, key, marks, EDIT_COLUMNS)
        if rows is not None:
            marks, findings = marks.take(pa.array(rows)), findings_of_rows(findings, rows, length)
        edited = edited_records(records, marks, findings)
        records = records if edited is None else edited
    return records


def write_batch(folder: Folder, batch: DocumentBatch) -> None:
    """Store a batch after pass 1."""
    if batch.dead.num_rows:
        _write(folder, _dead_name(batch.key), batch.dead)
    write_marks(folder, 1, batch.key, batch.marks, batch.findings)
    metadata = {"file": batch.file, "rows": str(batch.records.num_rows), "dead": str(batch.dead.num_rows)}
    records = batch.records.replace_schema_metadata(metadata)
    _write(folder, records_name(batch.key, batch.last), records)


def read_records(
    folder: Folder, key: int, last: bool, columns: Sequence[str] | None = None, where_there: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return the records of a batch, or some of their columns; the schema's metadata has ``file`` and ``dead``.

    Args:
        columns: those that are read; None for all.
        where_there: further ones, which a batch may lack.
    """
    return _read(folder, records_name(key, last), columns, where_there)


def read_batch(folder: Folder, key: int, last: bool) -> DocumentBatch:
    """Return a batch as pass 1 left it."""
    records = read_records(folder, key, last)
    metadata = records.schema.metadata
    item, chunk = split_chunk_key(key)
    marks = read_marks(folder, 1, key)
    findings = read_findings(folder, 1, key, marks)
    return DocumentBatch(
        item=item,
        chunk=chunk,
        last=last,
        file=metadata[b"file"].decode(),
        records=records,
        dead=read_dead(folder, key) if int(metadata[b"dead"]) else empty_dead(),
        marks=marks,
        findings=findings,
        edited=edited_records(records, marks, findings),
    )


def is_staged(folder: Folder, key: int, last: bool) -> bool:
    """Say whether the whole batch is there."""
    return folder.exists(records_name(key, last))


def read_dead(folder: Folder, key: int) -> pa.RecordBatch:
    """Return the dead letters of a batch that has some."""
    return _read(folder, _dead_name(key))


def staged_chunks(folder: Folder, item: int) -> list[tuple[int, bool]] | None:
    """Return (batch key, last) of all batches of an item if the whole item is staged, else None."""
    chunks: list[tuple[int, bool]] = []
    while True:
        key = chunk_key(item, len(chunks))
        if folder.exists(records_name(key, last=True)):
            return [*chunks, (key, True)]
        if not folder.exists(records_name(key, last=False)):
            return None
        chunks.append((key, False))


def progress_names(folder: Folder) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it ends an item) of every batch that is staged."""
    for name in folder.names("staging/records"):
        if name.endswith(".arrow") and "/.tmp-" not in name:
            yield name, name.endswith("-last.arrow")


def empty_dead() -> pa.RecordBatch:
    """Return no dead letters."""
    return pa.RecordBatch.from_pylist([], schema=DEAD_SCHEMA)
