"""Records as plain Python values or as Arrow columns under the user's names, for code of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.edited import text_fields
from corpus.errors import ThresherError
from corpus.json_text import parse_json

OWN = ("record_id", "source")


def records_at(records: pa.RecordBatch | None, rows: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the records of a batch that a mask of n selects."""
    if records is None:
        raise ValueError("the batch has no records")
    return records if rows.all() else records.filter(pa.array(rows))


def user_columns(records: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the user's columns of each record by name.

    Raises ThresherError for a column with values that Python has no type for.
    """
    if JSON_COLUMN in records.schema.names:
        return [row if isinstance(row, dict) else {} for row in parse_json(records.column(JSON_COLUMN))]
    columns: dict[str, list[Any]] = {}
    for name, column in zip(records.schema.names, records.columns, strict=True):
        if name.startswith(USER_PREFIX):
            try:
                columns[name.removeprefix(USER_PREFIX)] = column.to_pylist()
            except Exception as error:  # Arrow has several, such as for nanoseconds and years beyond 9999
                raise ThresherError(
                    f"column {name.removeprefix(USER_PREFIX)} of type {column.type} cannot be handed to Python code: "
                    f"{error}; list the columns to carry under input.columns without it"
                ) from error
    return [{name: values[row] for name, values in columns.items()} for row in range(records.num_rows)]


def plain_records(records: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return each record as a dict: ``record_id``, ``source``, its text fields, and the user's columns.

    A column of the user's with the name of one of the first is left out.
    """
    own = (*OWN, *text_fields(records))
    columns = [records.column(name).to_pylist() for name in own]
    return [
        {**others, **dict(zip(own, values, strict=True))}
        for others, *values in zip(user_columns(records), *columns, strict=True)
    ]


def arrow_records(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records with the columns ``record_id``, ``source``, text fields, and the user's under their names.

    Columns that were read from JSON stand in one column ``json``, an object per record as text.
    """
    own = (*OWN, *text_fields(records))
    names, columns = list(own), [records.column(name) for name in own]
    for name, column in zip(records.schema.names, records.columns, strict=True):
        shown = name.removeprefix(USER_PREFIX)
        if (name == JSON_COLUMN or name.startswith(USER_PREFIX)) and shown not in own:
            names.append(shown)
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def spread(values: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the values of the records that a mask of n selects as an array of n, null elsewhere."""
    if len(values) == len(rows):
        return values
    return pc.replace_with_mask(pa.nulls(len(rows), values.type), pa.array(rows), values)
