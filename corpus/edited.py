"""Records as they are after the edits of a pass.

The marks of a pass that edits have the columns ``after/content_hash``, ``after/characters`` and ``after/bytes``: what
these columns of the records are once its edits are made. So later steps that need no text do not make the edits again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch_layout import FIELDS
from corpus.findings import apply_findings
from corpus.hashing import content_hashes

AFTER = ("content_hash", "characters", "bytes")


def after_column(name: str) -> str:
    """Return the name, in the marks, of a column of the records as it is after the edits of the pass."""
    return f"after/{name}"


def text_fields(records: pa.RecordBatch) -> tuple[str, ...]:
    """Return the names of the text fields among the columns of records."""
    names = records.schema.names
    return tuple(name for fields in FIELDS.values() for name in fields if name in names)


def with_replaced(records: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return records with other values in some columns."""
    arrays = [columns.get(name, column) for name, column in zip(records.schema.names, records.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=records.schema)


def edited_records(records: pa.RecordBatch, marks: pa.RecordBatch, findings: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return the records after the edits of a pass, None where it made none.

    Args:
        records: all columns of the records as they entered the pass, or some of them.
        marks: the marks of the pass.
        findings: its findings; not needed where the records have no text.
    """
    columns = {name: marks.column(after_column(name)) for name in AFTER if after_column(name) in marks.schema.names}
    if not columns:
        return None
    present = {name: array for name, array in columns.items() if name in records.schema.names}
    fields = text_fields(records)
    if fields:
        present |= apply_findings({name: records.column(name) for name in fields}, findings)
    return with_replaced(records, present)


def with_texts(records: pa.RecordBatch, texts: Mapping[str, pa.StringArray], rows: pa.Array) -> pa.RecordBatch:
    """Return records with other texts, and the columns that follow from them.

    Args:
        texts: all n texts of the fields that changed.
        rows: numbers of the rows that changed.
    """
    after = [texts.get(name, records.column(name)).take(rows) for name in text_fields(records)]
    places = rows.to_numpy()
    changed = np.zeros(records.num_rows, np.bool_)
    changed[places] = True
    hashes = pc.replace_with_mask(records.column("content_hash"), pa.array(changed), content_hashes(after))
    characters, sizes = (records.column(name).to_numpy().copy() for name in ("characters", "bytes"))
    characters[places] = sum(pc.utf8_length(field).to_numpy().astype(np.int64) for field in after)
    for name, field in texts.items():
        grown = pc.subtract(pc.binary_length(field), pc.binary_length(records.column(name)))
        sizes[places] += grown.to_numpy(zero_copy_only=False)[places].astype(np.int64)
    columns = {**texts, "content_hash": hashes, "characters": pa.array(characters), "bytes": pa.array(sizes)}
    return with_replaced(records, columns)
