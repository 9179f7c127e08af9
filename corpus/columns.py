"""The user's columns as they are written: typed arrays in the order of their first occurrence.

Text columns are not among them: the writer puts those first, in the order of ``InputConfig.text_columns``.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.column_inference import list_array, plain_array
from corpus.column_types import JSON_TEXT, ColumnType, ColumnTypes, arrow_type, in_order
from corpus.json_text import json_texts, parse_json

RENAMED_PREFIX = "input_"


def output_schema(types: ColumnTypes) -> list[pa.Field]:
    """Return the user's columns of the curated files, in order, under the user's names."""
    return [pa.field(name, arrow_type(types.type_of(name))) for name in types.names]


def output_columns(records: pa.RecordBatch, types: ColumnTypes) -> list[tuple[str, pa.Array]]:
    """Return (name, array) for each field of ``output_schema``; a column that the batch lacks is null.

    Args:
        records: rows of a batch, any of them, that took part in ``types``: with columns ``user/<name>`` or a column
            ``json``, or neither.
        types: merged over all batches of the run.
    """
    if JSON_COLUMN in records.schema.names:
        return _columns_of_json(records.column(JSON_COLUMN), types)
    arrays = {
        name.removeprefix(USER_PREFIX): records.column(name)
        for name in records.schema.names
        if name.startswith(USER_PREFIX)
    }
    if types.collapsed:
        columns = {name: json_values(array) for name, array in arrays.items()}
        rows = ({name: values[row] for name, values in columns.items()} for row in range(records.num_rows))
        return [(types.names[0], json_texts(rows))]
    return [
        (
            name,
            _typed_array(arrays[name], types.type_of(name))
            if name in arrays
            else pa.nulls(records.num_rows, arrow_type(types.type_of(name))),
        )
        for name in types.names
    ]


def output_names(user_names: Iterable[str], reserved: Collection[str]) -> dict[str, str]:
    """Return the name in the output of each user column, in the given order.

    A name that Thresher writes itself gets ``input_`` in front, repeatedly while another column has that name.
    """
    names = list(user_names)
    taken = {*names, *reserved}
    result = {}
    for name in names:
        new = name
        if name in reserved:
            while new in taken:
                new = RENAMED_PREFIX + new
            taken.add(new)
        result[name] = new
    return result


def _columns_of_json(texts: pa.StringArray, types: ColumnTypes) -> list[tuple[str, pa.Array]]:
    if types.collapsed:
        return [(types.names[0], texts)]
    rows = [{} if row is None else row for row in parse_json(texts)]
    return [(name, _array_of_values([row.get(name) for row in rows], types.type_of(name))) for name in types.names]


def _array_of_values(values: list[Any], column_type: ColumnType) -> pa.Array:
    """Return values of JSON as an array of ``arrow_type(column_type)``."""
    if values.count(None) == len(values):
        return pa.nulls(len(values), arrow_type(column_type))
    if column_type.is_json_text:
        return json_texts(values)
    if column_type.fields is not None:
        children = [
            _array_of_values(
                [None if value is None else value.get(name) for value in values], column_type.fields[name].type
            )
            for name in in_order(column_type.fields)
        ]
        return _struct_array(children, column_type, pa.array([value is None for value in values]))
    if column_type.element is not None:
        items = [item for value in values if value is not None for item in value]
        lengths = pa.array([0 if value is None else len(value) for value in values], pa.int32())
        return list_array(
            lengths, _array_of_values(items, column_type.element), pa.array([value is None for value in values])
        )
    if column_type.scalar == "double":  # Arrow itself refuses integers beyond 2**53 here
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, arrow_type(column_type))


def _typed_array(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return an array of Arrow as an array of ``arrow_type(column_type)``."""
    array = plain_array(array)
    target = arrow_type(column_type)
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    if column_type.scalar == JSON_TEXT:  # the reader has made it JSON text
        return array
    if column_type.is_json_text:
        return json_texts(json_values(array))
    if column_type.fields is not None:
        own = {array.type.field(index).name: index for index in range(array.type.num_fields)}
        children = []
        for name in in_order(column_type.fields):
            type_ = column_type.fields[name].type
            child = _typed_array(array.field(own[name]), type_) if name in own else None
            children.append(pa.nulls(len(array), arrow_type(type_)) if child is None else child)
        return _struct_array(children, column_type, array.is_null())
    if column_type.element is not None:
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        items = _typed_array(pc.list_flatten(array), column_type.element)
        return list_array(lengths, items, array.is_null())
    # Unsafe only in that an integer beyond 2**53 is rounded to the next double.
    return array.cast(target, safe=False)


def _struct_array(children: list[pa.Array], column_type: ColumnType, is_null: pa.BooleanArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(column_type)), mask=is_null)


def json_values(array: pa.Array) -> list[Any]:
    """Return values that JSON can hold: bytes as base64, numbers that are not finite and other types as their text."""
    array = plain_array(array)
    type_ = array.type
    plain: list[Any]
    if pa.types.is_null(type_) or pa.types.is_boolean(type_) or pa.types.is_integer(type_) or type_ == pa.string():
        plain = array.to_pylist()
        return plain
    if pa.types.is_floating(type_):
        finite = pc.is_finite(array).to_pylist()
        return [
            str(value) if is_finite is False else value
            for value, is_finite in zip(array.to_pylist(), finite, strict=True)
        ]
    if type_ == pa.binary() or pa.types.is_fixed_size_binary(type_):
        return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
    if pa.types.is_struct(type_):
        names = [child.name for child in type_]
        columns = [json_values(array.field(index)) for index in range(len(names))]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(type_):
        items = json_values(pc.list_flatten(array))
        result: list[Any] = []
        start = 0
        for length in pc.list_value_length(array).to_pylist():
            result.append(None if length is None else items[start : start + length])
            start += length or 0
        return result
    plain = array.cast(pa.string()).to_pylist()
    return plain
