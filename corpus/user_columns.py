"""Values of a column of the user's, wherever the records keep it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.json_text import parse_json


def user_values(records: pa.RecordBatch | None, column: str) -> list[Any]:
    """Return the Python value that each record has in a column; None where it is null or missing.

    A column that no record has gives None for all. A name with dots that is no column itself leads into objects:
    ``metadata.url`` is the field ``url`` of the column ``metadata``. Columns that ``input.columns`` leaves out are not
    carried, so they are missing.
    """
    if records is None:
        raise ValueError("the batch has no records to take a column from")
    if JSON_COLUMN in records.schema.names:
        return [_look_up(row, column) for row in parse_json(records.column(JSON_COLUMN))]
    head = column
    while USER_PREFIX + head not in records.schema.names:
        head, dot, _ = head.rpartition(".")
        if not dot:
            return [None] * records.num_rows
    values: list[Any] = records.column(USER_PREFIX + head).to_pylist()
    if head == column:
        return values
    return [_look_up(value, column[len(head) + 1 :]) for value in values]


def heads_of(column: str) -> list[str]:
    """Return the columns that a name may mean: the name itself, and what stands before each of its dots."""
    parts = column.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _look_up(value: Any, name: str) -> Any:
    """Return the value of a field of an object; a name that is no field itself is split at a dot."""
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    head, dot, rest = name.partition(".")
    return _look_up(value.get(head), rest) if dot else None
