"""Which columns of a Parquet file are read, and their values as the pipeline wants them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpus.column_inference import plain_array
from corpus.columns import json_values
from corpus.hashing import byte_offsets, fixed_width, has_members, is_text_or_bytes, list_members
from corpus.inputs import ColumnKind, InputConfig
from corpus.json_text import json_texts

Mask = npt.NDArray[np.bool_]


def wanted_columns(schema: pa.Schema, config: InputConfig) -> list[str]:
    """Return the names of the columns to read: text, id, source, and those that are carried."""
    if config.columns is None:
        return list(dict.fromkeys(schema.names))
    wanted = {*config.text_columns, *config.columns, config.id_column, config.source_column}
    return [name for name in dict.fromkeys(schema.names) if name in wanted]


def carried_columns(schema: pa.Schema, config: InputConfig) -> list[str]:
    """Return the names of the user's columns that go with a record; the messages of a chat are one of them."""
    texts = () if config.messages_column is not None else config.text_columns
    return [name for name in wanted_columns(schema, config) if name not in texts]


def column_fault(schema: pa.Schema, config: InputConfig) -> str | None:
    """Return what keeps a Parquet file of this schema from being read: what was found and what is wanted."""
    for name in config.text_columns:
        if name not in schema.names:
            near = difflib.get_close_matches(name.lower(), [one.lower() for one in schema.names], 1)
            found = ", ".join(schema.names[:20]) or "none"
            hint = "; names are compared with upper and lower case" if near == [name.lower()] else ""
            return f"there is no column {name}; its columns are: {found}; name the text column in input{hint}"
        kind = None if schema.names.count(name) > 1 else schema.field(name).type
        if kind is None:
            continue
        if config.messages_column is not None:
            if not (_is_list(kind) and pa.types.is_struct(kind.value_type)) and not is_textual(kind):
                return f"column {name} is {kind}; wanted is a list of structs with role and content, or JSON text"
        elif not is_textual(kind):
            return f"column {name} is {kind}; wanted is a string (or UTF-8 binary) column"
    for name in wanted_columns(schema, config):
        if schema.names.count(name) > 1:
            return f"there are {schema.names.count(name)} columns called {name}; wanted is one: rename the others"
    for label in (config.id_column, config.source_column):
        if label in schema.names and pa.types.is_nested(schema.field(label).type):
            return f"column {label} is {schema.field(label).type}; wanted is a string or integer column"
    return None


def is_textual(kind: pa.DataType) -> bool:
    """Say whether values of a type are texts: strings or UTF-8 bytes, also as views or in a dictionary."""
    if pa.types.is_dictionary(kind):
        return is_textual(kind.value_type)
    return bool(is_text_or_bytes(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with dictionaries and views replaced by the type of their values."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(plain_type(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def as_plain(array: pa.Array) -> pa.Array:
    """Return an array with its ``plain_type``."""
    target = plain_type(array.type)
    return array if target == array.type else array.cast(target)


def as_text(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Return a textual array as string or large_string, and where it is not UTF-8 (None: nowhere).

    The values there must not be used as texts.
    """
    array = as_plain(array)
    if pa.types.is_binary(array.type):
        array = array.view(pa.string())
    elif pa.types.is_large_binary(array.type):
        array = array.view(pa.large_string())
    return array, invalid_utf8(array)


def invalid_utf8(array: pa.Array) -> Mask | None:
    """Return where values hold strings that are not UTF-8, at any depth; None if nowhere. pyarrow does not look."""
    if isinstance(array, pa.ExtensionArray):
        return invalid_utf8(array.storage)
    if not _has_strings(array.type):
        return None
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return _undecodable(array)
    return None


def _has_strings(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_strings(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _undecodable(array: pa.Array) -> Mask:
    """Return where values hold strings that are not UTF-8, found without a Python value of any other type."""
    array = plain_array(array)
    found: Mask = np.zeros(len(array), np.bool_)
    if not _has_strings(array.type):
        return found
    if pa.types.is_string(array.type):
        found = np.array([not _can_decode(value) for value in array.view(pa.binary()).to_pylist()], np.bool_)
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            found |= _undecodable(array.field(index))
    elif has_members(array.type):
        offsets, values = list_members(array)
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(_undecodable(values))])
        found = sums[offsets[1:]] > sums[offsets[:-1]]
    found &= array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _can_decode(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def null_where(rows: Mask, column: pa.Array) -> pa.Array:
    """Return a column of any type with nulls where the mask is set."""
    return column.take(pa.array(np.arange(len(column)), mask=rows))


def as_name_array(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Return an id or source column as strings: integers in decimal digits, bytes of a fixed size in hex."""
    if is_textual(array.type):
        texts, invalid = as_text(array)
        return (texts if invalid is not None else texts.cast(pa.string())), invalid
    if pa.types.is_fixed_size_binary(array.type):
        return pa.array([None if value is None else value.hex() for value in array.to_pylist()], pa.string()), None
    if isinstance(array, pa.ExtensionArray):
        return as_name_array(array.storage)
    return as_plain(array).cast(pa.string()), None


def value_sizes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value: of text its UTF-8 bytes, of lists and structs the sum over their members."""
    kind = array.type
    sizes: npt.NDArray[np.int64]
    if isinstance(array, pa.ExtensionArray):
        return value_sizes(array.storage)
    if is_text_or_bytes(kind):
        sizes = np.diff(byte_offsets(array))
    elif pa.types.is_struct(kind):
        sizes = np.zeros(len(array), np.int64)
        for index in range(kind.num_fields):
            sizes += value_sizes(array.field(index))
    elif has_members(kind):
        offsets, values = list_members(array)
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(value_sizes(values))])
        sizes = np.diff(sums[offsets])
    elif pa.types.is_boolean(kind) or fixed_width(kind):
        sizes = np.full(len(array), max(1, fixed_width(kind)), np.int64)
    else:
        sizes = np.array([len(as_json(value)) for value in array.to_pylist()], np.int64)
    if array.null_count:
        sizes = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, sizes)
    return sizes


def null_size(kind: pa.DataType) -> int:
    """Return the bytes that a value takes in a column beside its ``value_sizes``, also where it is null."""
    if isinstance(kind, pa.BaseExtensionType):
        return null_size(kind.storage_type)
    if pa.types.is_struct(kind):
        return sum(null_size(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * null_size(kind.value_type)
    return max(8, fixed_width(kind))


def as_json(value: Any) -> bytes:
    """Return a Python value of an Arrow array as JSON text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


@dataclass(frozen=True)
class FittedColumn:
    """A column in a type of ``input.columns``; values where a mask is set must not be used.

    Attributes:
        values: in the type wanted.
        misfit: where values are of another type; None for nowhere.
        invalid: where they hold strings that are not UTF-8; None for nowhere.
    """

    values: pa.Array
    misfit: Mask | None = None
    invalid: Mask | None = None


def fit_column(array: pa.Array, kind: ColumnKind) -> FittedColumn:
    """Return a column in a type of ``input.columns``. Strings under ``json`` are JSON text already, or misfits."""
    found = array.type
    if kind == "json":
        return _fit_json(array)
    if kind == "string" and is_textual(found):
        texts, invalid = as_text(array)
        return FittedColumn(texts if invalid is not None else texts.cast(pa.string()), invalid=invalid)
    fits: dict[str, tuple[pa.DataType, Callable[[pa.DataType], bool]]] = {
        "string": (pa.string(), is_textual),
        "int64": (pa.int64(), pa.types.is_integer),
        "float64": (pa.float64(), lambda one: pa.types.is_integer(one) or pa.types.is_floating(one)),
        "bool": (pa.bool_(), pa.types.is_boolean),
    }
    target, fitting = fits[kind]
    if not fitting(found):
        return FittedColumn(pa.nulls(len(array), target), array.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_uint64(found) and kind == "int64":
        beyond = pc.greater(array, pa.scalar((1 << 63) - 1, pa.uint64())).fill_null(False)
        if pc.any(beyond).as_py():
            return FittedColumn(pc.if_else(beyond, None, array).cast(target), beyond.to_numpy(zero_copy_only=False))
    return FittedColumn(array.cast(target, safe=False))


def _fit_json(array: pa.Array) -> FittedColumn:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if is_textual(array.type):
        texts, invalid = as_text(array)
        encoded = plain_array(texts).view(pa.binary()).to_pylist()
        misfit = np.array([text is not None and not _is_json(text) for text in encoded], np.bool_)
        if invalid is not None:
            misfit &= ~invalid
        return FittedColumn(plain_array(texts), misfit if misfit.any() else None, invalid)
    array = as_plain(array)
    invalid = invalid_utf8(array)
    if invalid is not None:
        array = null_where(invalid, array)
    return FittedColumn(json_texts(json_values(array)), invalid=invalid)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
