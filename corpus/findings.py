"""What stages find in texts: spans that become evidence, and edits where they are cut or replaced.

A span counts code points of the text that enters its stage. Findings of a batch are ordered by stage, and within one by
field, row and start; spans that edit do not overlap within a field. So the text at any stage is the text as read with
the edits of the stages before it, applied stage by stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.errors import ThresherError
from corpus.text import text_buffers

Action = Literal["drop", "cut", "redact", "flag"]
EDITING: tuple[Action, ...] = ("cut", "redact")

SPAN_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("start", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("replacement", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("related", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
"""What a stage finds in the texts of one field. ``replacement`` is null but where the action is ``redact``."""

FINDING_SCHEMA = pa.schema([pa.field("stage", pa.string()), pa.field("field", pa.string()), *SPAN_SCHEMA])
"""Findings of all stages of a pass on a batch."""

EDIT_COLUMNS = ("stage", "field", "row", "start", "end", "action", "replacement")
"""The columns of findings that edits are made of."""

NO_FINDINGS = pa.RecordBatch.from_pylist([], schema=FINDING_SCHEMA)

Integers = npt.NDArray[np.int64]


def byte_spans(
    texts: pa.StringArray,
    rows: Integers,
    starts: Integers,
    ends: Integers,
    rule: str | pa.Array,
    action: Action,
    replacement: str | pa.Array | None = None,
    **more: pa.Array,
) -> pa.RecordBatch:
    """Return findings for spans that are given as bytes.

    Args:
        texts: the texts that were searched.
        rows: row of each of m spans, int64, ascending.
        starts, ends: byte positions within the text of the row, ascending within a row.
        rule, replacement: of all spans, or one each.
        more: ``value``, ``related`` and ``detail``, arrays of m.
    """
    from corpus.edit_kernel import code_point_spans

    offsets, data = text_buffers(texts)
    places = code_point_spans(offsets, data, rows.astype(np.int64), starts.astype(np.int64), ends.astype(np.int64))
    length = len(rows)
    columns: dict[str, pa.Array] = {
        "row": pa.array(rows, pa.int32()),
        "start": pa.array(places[0], pa.int32()),
        "end": pa.array(places[1], pa.int32()),
        "rule": pa.repeat(rule, length) if isinstance(rule, str) else rule,
        "action": pa.repeat(action, length),
        "replacement": pa.repeat(pa.scalar(replacement, pa.string()), length)
        if replacement is None or isinstance(replacement, str)
        else replacement,
        **more,
    }
    arrays = [columns.get(field.name) for field in SPAN_SCHEMA]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(length, field.type) if array is None else array.cast(field.type)
            for array, field in zip(arrays, SPAN_SCHEMA, strict=True)
        ],
        schema=SPAN_SCHEMA,
    )


def in_stage(spans: pa.RecordBatch, stage: str, field: str) -> pa.RecordBatch:
    """Return what a stage found in a field as findings of the batch."""
    length = spans.num_rows
    head = [pa.repeat(pa.scalar(stage), length), pa.repeat(pa.scalar(field), length)]
    return pa.RecordBatch.from_arrays([*head, *spans.columns], schema=FINDING_SCHEMA)


def edits_of(findings: pa.RecordBatch) -> pa.RecordBatch:
    """Return the findings that change texts."""
    actions = findings.column("action")
    editing = pc.or_(*(pc.equal(actions, action) for action in EDITING))
    # A copy of all findings costs more than to see that all are edits.
    return findings if pc.all(editing).as_py() else findings.filter(editing)


def findings_of_rows(findings: pa.RecordBatch, rows: Integers, length: int) -> pa.RecordBatch:
    """Return what was found in chosen rows, as findings of a batch that has only these.

    Args:
        rows: their numbers, ascending.
        length: how many rows the batch has in all.
    """
    if not findings.num_rows:
        return findings
    places: Any = np.full(length, -1, np.int32)
    places[rows] = np.arange(len(rows))
    now = places[findings.column("row").to_numpy()]
    chosen = findings.filter(pa.array(now >= 0))
    return chosen.set_column(chosen.schema.get_field_index("row"), SPAN_SCHEMA.field("row"), pa.array(now[now >= 0]))


def apply_edits(texts: pa.StringArray, edits: pa.RecordBatch) -> pa.StringArray:
    """Return texts with spans cut or replaced.

    Args:
        texts: n texts.
        edits: spans of one stage in one field, ordered by row and start. Raises ThresherError where they overlap or
            reach beyond a text.
    """
    from corpus.edit_kernel import edited_bytes, edited_offsets

    if not edits.num_rows:
        return texts
    offsets, data = text_buffers(texts)
    rows, starts, ends = (edits.column(name).to_numpy() for name in ("row", "start", "end"))
    replacement_offsets, replacement_data = text_buffers(edits.column("replacement"))
    places, new_offsets, fault = edited_offsets(offsets, data, rows, starts, ends, replacement_offsets)
    if fault >= 0:
        raise ThresherError(
            f"spans of row {rows[fault]} overlap, are out of order, or reach beyond its text: {starts[fault]} to "
            f"{ends[fault]}"
        )
    if new_offsets[-1] >= 1 << 31:
        raise ThresherError("edits would bring the texts of a batch over 2 GiB; use shorter replacements")
    edited = edited_bytes(offsets, data, rows, places, new_offsets, replacement_offsets, replacement_data)
    buffers = [texts.buffers()[0] if texts.offset == 0 else None, pa.py_buffer(new_offsets.astype(np.int32))]
    if texts.offset and texts.null_count:
        buffers[0] = pc.is_valid(texts).buffers()[1]
    return pa.StringArray.from_buffers(len(texts), buffers[1], pa.py_buffer(edited), buffers[0])


def apply_findings(fields: Mapping[str, pa.StringArray], findings: pa.RecordBatch) -> dict[str, pa.StringArray]:
    """Return the texts of each field after the edits of all stages, in the order in which the stages stand.

    Args:
        fields: texts of all fields of the records, or of some.
    """
    texts = dict(fields)
    edits = edits_of(findings)
    if not edits.num_rows:
        return texts
    stages, names = edits.column("stage"), edits.column("field")
    before, behind = slice(None, -1), slice(1, None)
    is_new = pc.or_(*(pc.not_equal(column[behind], column[before]) for column in (stages, names)))
    changes = np.flatnonzero(is_new.to_numpy(zero_copy_only=False)) + 1
    for start, end in pairwise([0, *changes.tolist(), edits.num_rows]):
        field = names[start].as_py()
        if field in texts:
            texts[field] = apply_edits(texts[field], edits.slice(start, end - start))
    return texts


def concat_findings(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return findings one behind the other."""
    filled = [part for part in parts if part.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else NO_FINDINGS
    return pa.concat_batches(filled)


def sums_by_row(length: int, rows: Integers, values: Integers) -> Integers:
    """Return for each of n rows the sum of the values that belong to it, int64."""
    sums: Any = np.zeros(length, np.int64)
    np.add.at(sums, rows, values)
    return sums  # type: ignore[no-any-return]
