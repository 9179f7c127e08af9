"""Types of the user's columns in one batch: those of JSON by their values, those of Parquet as declared."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.column_types import (
    ARROW_TYPES,
    COLLAPSED,
    INT64_MAX,
    INT64_MIN,
    MAX_DEPTH,
    MIXED,
    OTHER,
    UINT64_BEYOND,
    ColumnType,
    ColumnTypes,
    Field,
    First,
    bounded_column,
    bounded_columns,
    merge_scalars,
)
from corpus.json_text import parse_json

_LIST_KINDS = (
    pa.types.is_large_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_fixed_size_list,
)


class _TooDeepError(Exception):
    """A value nests deeper than ``MAX_DEPTH``."""


def column_types(batch_key: int, records: pa.RecordBatch, declared: Collection[str] = ()) -> ColumnTypes:
    """Return the types of the user columns of one batch: those of JSON by their values, others as declared.

    Args:
        batch_key: key of the batch within the run.
        records: with columns ``user/<name>`` or a column ``json``, or neither.
        declared: columns whose types are to come from ``ColumnTypes.with_declared``; only their place is noted.
    """
    names = records.schema.names
    if JSON_COLUMN in names:
        values = parse_json(records.column(JSON_COLUMN))
        columns = _named_places(values, range(len(values)), batch_key)
        return bounded_columns(
            {
                name: Field(place.first, ColumnType() if name in declared else _column_type_of_json(place, batch_key))
                for name, place in columns.items()
            }
        )
    user_names = [name.removeprefix(USER_PREFIX) for name in names if name.startswith(USER_PREFIX)]
    return bounded_columns(
        {
            name: Field(
                (batch_key, 0, index),
                ColumnType()
                if name in declared
                else _column_type_of_array(records.column(USER_PREFIX + name), batch_key),
            )
            for index, name in enumerate(user_names)
        }
    )


class _Place(NamedTuple):
    """Values under one name, with the row of each."""

    first: First
    values: list[Any]
    rows: list[int]


def _named_places(values: Sequence[Any], rows: Sequence[int], batch_key: int) -> dict[str, _Place]:
    """Return what the objects among the values hold under each name."""
    places: dict[str, _Place] = {}
    for row, value in zip(rows, values, strict=True):
        if type(value) is dict:
            for index, (name, item) in enumerate(value.items()):
                place = places.get(name)
                if place is None:
                    place = places[name] = _Place((batch_key, row, index), [], [])
                place.values.append(item)
                place.rows.append(row)
    return places


def _column_type_of_json(place: _Place, batch_key: int) -> ColumnType:
    try:
        return bounded_column(_type_of_values(place.values, place.rows, batch_key, 0))
    except _TooDeepError:
        return COLLAPSED


def _type_of_values(values: list[Any], rows: list[int], batch_key: int, depth: int) -> ColumnType:
    kinds = set(map(type, values))
    scalar: str | None = None
    if str in kinds:
        scalar = "string"
    if bool in kinds:
        scalar = merge_scalars(scalar, "bool")
    if float in kinds:
        scalar = merge_scalars(scalar, "double")
    if int in kinds:
        integers = values if len(kinds) == 1 else [value for value in values if type(value) is int]
        fits = min(integers) >= INT64_MIN and max(integers) <= INT64_MAX
        scalar = merge_scalars(scalar, "int64" if fits else MIXED)
    fields: dict[str, Field] | None = None
    element: ColumnType | None = None
    if (dict in kinds or list in kinds) and depth == MAX_DEPTH:
        raise _TooDeepError
    if dict in kinds:
        fields = {
            name: Field(place.first, _type_of_values(place.values, place.rows, batch_key, depth + 1))
            for name, place in _named_places(values, rows, batch_key).items()
        }
    if list in kinds:
        items: list[Any] = []
        item_rows: list[int] = []
        for row, value in zip(rows, values, strict=True):
            if type(value) is list:
                items += value
                item_rows += [row] * len(value)
        element = _type_of_values(items, item_rows, batch_key, depth + 1)
    return ColumnType(scalar, fields, element)


def _column_type_of_array(array: pa.Array, batch_key: int) -> ColumnType:
    try:
        return bounded_column(_type_of_array(array, batch_key, 0))
    except _TooDeepError:
        return COLLAPSED


def _type_of_array(array: pa.Array, batch_key: int, depth: int) -> ColumnType:
    array = plain_array(array)
    type_ = array.type
    if pa.types.is_null(type_):
        return ColumnType()
    if pa.types.is_uint64(type_):
        largest = pc.max(array).as_py()
        return ColumnType(UINT64_BEYOND if largest is not None and largest > INT64_MAX else "uint64")
    if str(type_) in ARROW_TYPES:
        return ColumnType(str(type_))
    if pa.types.is_struct(type_):
        if depth == MAX_DEPTH:
            raise _TooDeepError
        return ColumnType(
            fields={
                type_.field(index).name: Field(
                    (batch_key, 0, index), _type_of_array(array.field(index), batch_key, depth + 1)
                )
                for index in range(type_.num_fields)
            }
        )
    if pa.types.is_list(type_):
        if depth == MAX_DEPTH:
            raise _TooDeepError
        return ColumnType(element=_type_of_array(pc.list_flatten(array), batch_key, depth + 1))
    schema = pa.schema([pa.field("", type_)]).serialize().to_pybytes()
    return ColumnType(OTHER + base64.b64encode(schema).decode())


def plain_array(array: pa.Array) -> pa.Array:
    """Return the same values as an array of one of few types, so that files and readers do not differ by encoding.

    Dictionary and run-end encoded arrays become arrays of their values, string and binary kinds the 32-bit ones, all
    kinds of lists ``list``, a map a list of structs (key, value), an extension type its storage. Children stay as they
    are.
    """
    type_ = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain_array(array.storage)
    if pa.types.is_dictionary(type_):
        return plain_array(array.dictionary_decode())
    if pa.types.is_run_end_encoded(type_):
        return plain_array(pc.run_end_decode(array))
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return array.cast(pa.string())
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return array.cast(pa.binary())
    if pa.types.is_map(type_):
        return array.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)])))
    if any(is_kind(type_) for is_kind in _LIST_KINDS):
        # Not by a cast: that of a sliced list view loses items.
        return list_array(pc.fill_null(pc.list_value_length(array), 0), pc.list_flatten(array), array.is_null())
    return array


def list_array(lengths: pa.Array, items: pa.Array, is_null: pa.BooleanArray) -> pa.ListArray:
    """Return lists of the given lengths (no nulls among them), which follow each other in ``items``."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, items, mask=is_null)
