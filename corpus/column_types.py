"""Types of the user's columns, merged over all records of a run.

A ``ColumnType`` says what was seen at one place: which scalars, objects with which fields, lists of what. Merging two
only adds to what was seen, so it is associative, commutative and idempotent, and nothing depends on the order in which
batches arrive. What the place is written as follows from the merged type alone (``arrow_type``):

* null or absent and T is T; only null or absent is string; an empty list only is a list of strings;
* equal types stay as they are, signed and unsigned integers of differing width are int64, integer and float or
  floats of differing width are double (an integer beyond 2**53 is rounded there);
* encodings do not count: all kinds of string are string, of binary binary, of lists list (pyarrow cannot read a null
  list of fixed size back from Parquet), a dictionary is its values, an extension type its storage, and a map a list of
  objects with key and value (datasets reads neither maps nor most extension types);
* objects merge by field, lists by element;
* timestamps, decimals and other Arrow types stay while all are equal;
* any other mix, integers of JSON beyond int64, uint64 beyond int64 together with another number, and objects without
  fields are JSON text: every value as its JSON, strings quoted. ``{}`` stays ``{}``; null and absent are null.

In an object with fields, null and absent are null, and ``{}`` is an object whose fields are null.

Declared types (``ColumnTypes.with_declared``) take the place of what was seen.

Types are bounded, whatever the input: a column with more than ``MAX_COLUMN_FIELDS`` fields at all levels together, or
that nests deeper than ``MAX_DEPTH``, is JSON text as a whole. Where columns and fields together exceed ``MAX_FIELDS``
(data in the place of names), all columns become one, ``COLLAPSED_COLUMN``: those of the record as a JSON object. A name
counts once more for every ``NAME_UNIT`` characters.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from corpus.inputs import ColumnKind

MAX_DEPTH = 16
MAX_COLUMN_FIELDS = 512
MAX_FIELDS = 16_384
NAME_UNIT = 64
COLLAPSED_COLUMN = "columns"

_AFTER_ALL = 1 << 62  # beyond every batch key
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# The scalar of a place is one of these names of Arrow types, UINT64_BEYOND, MIXED, _ANY, JSON_TEXT, or OTHER and a
# schema.
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("halffloat", "float", "double")
_NUMBERS = frozenset(_INTEGERS + _FLOATS)
UINT64_BEYOND = "uint64 beyond int64"
MIXED = "mixed"
_ANY = "any"
JSON_TEXT = "json"
OTHER = "arrow:"
ARROW_TYPES: dict[str, pa.DataType] = {
    str(type_): type_
    for type_ in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary()),
    )
} | {UINT64_BEYOND: pa.uint64()}

_DECLARED: dict[ColumnKind, str] = {
    "string": "string",
    "int64": "int64",
    "float64": "double",
    "bool": "bool",
    "json": JSON_TEXT,
}

First = tuple[int, int, int]
"""Where a name was first seen: batch key, row, and index within the object or schema."""


class Field(NamedTuple):
    """A named place: where the name was first seen, and what."""

    first: First
    type: ColumnType


@dataclass(frozen=True)
class ColumnType:
    """What was seen at one place, null aside; a default one has seen nothing.

    Attributes:
        scalar: what scalars merge to.
        fields: of the objects; None where there was no object.
        element: of the lists; None where there was no list.
    """

    scalar: str | None = None
    fields: Mapping[str, Field] | None = None
    element: ColumnType | None = None

    @property
    def is_json_text(self) -> bool:
        """Whether values at this place are written as JSON text."""
        kinds = (self.scalar is not None) + (self.fields is not None) + (self.element is not None)
        return kinds > 1 or self.scalar in (MIXED, _ANY, JSON_TEXT) or (self.fields is not None and not self.fields)


COLLAPSED = ColumnType(_ANY)


@dataclass(frozen=True)
class ColumnTypes:
    """Types of all user columns.

    Attributes:
        columns: by name.
        collapsed: whether there were so many names that all columns become one; then ``columns`` is empty.
    """

    columns: Mapping[str, Field] = field(default_factory=dict)
    collapsed: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns in the order of the output: by first occurrence."""
        return [COLLAPSED_COLUMN] if self.collapsed else in_order(self.columns)

    def type_of(self, name: str) -> ColumnType:
        """Return the type of a column of the output."""
        return COLLAPSED if self.collapsed else self.columns[name].type

    def merge(self, other: ColumnTypes) -> ColumnTypes:
        """Return the types over the records of both."""
        if self.collapsed or other.collapsed:
            return ColumnTypes(collapsed=True)
        merged = _merge_fields(self.columns, other.columns)
        return bounded_columns({name: Field(first, bounded_column(type_)) for name, (first, type_) in merged.items()})

    def with_declared(self, declared: Mapping[str, ColumnKind]) -> ColumnTypes:
        """Return the types with those of ``input.columns``, whatever the records hold.

        To be called once, after all batches are merged: what it returns is not to be merged with types of batches. A
        declared column that no record has comes after the others, in the order of the mapping. Raises ValueError where
        the columns collapsed; they do not where ``column_types`` was given the declared names.
        """
        if not declared:
            return self
        if self.collapsed:
            raise ValueError("types are declared for columns that became one; give column_types the declared names")
        columns = dict(self.columns)
        for index, (name, kind) in enumerate(declared.items()):
            first = columns[name].first if name in columns else (_AFTER_ALL, 0, index)
            columns[name] = Field(first, ColumnType(_DECLARED[kind]))
        return ColumnTypes(columns)

    def to_bytes(self) -> bytes:
        """Return the types as JSON; equal types give equal bytes."""
        return orjson.dumps([self.collapsed, _pack_fields(self.columns)])

    @staticmethod
    def from_bytes(data: bytes) -> ColumnTypes:
        """Return what ``to_bytes`` packed."""
        collapsed, fields = orjson.loads(data)
        return ColumnTypes(_unpack_fields(fields), collapsed)


def in_order(fields: Mapping[str, Field]) -> list[str]:
    """Return names by first occurrence, then by name: objects of one list may bring two at the same place."""
    return sorted(fields, key=lambda name: (fields[name].first, name))


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the type that values at a place are written as."""
    if column_type.is_json_text:
        return pa.string()
    if column_type.fields is not None:
        return pa.struct([(name, arrow_type(column_type.fields[name].type)) for name in in_order(column_type.fields)])
    if column_type.element is not None:
        return pa.list_(arrow_type(column_type.element))
    scalar = column_type.scalar
    if scalar is None:
        return pa.string()
    if scalar.startswith(OTHER):
        schema = base64.b64decode(scalar.removeprefix(OTHER))
        return pa.ipc.read_schema(pa.py_buffer(schema)).field(0).type
    return ARROW_TYPES[scalar]


def merge_scalars(left: str | None, right: str | None) -> str | None:
    if left == right or right is None:
        return left
    if left is None:
        return right
    if {left, right} == {"uint64", UINT64_BEYOND}:
        return UINT64_BEYOND
    if left in _NUMBERS and right in _NUMBERS:
        return "int64" if left in _INTEGERS and right in _INTEGERS else "double"
    return MIXED


def _merge_types(left: ColumnType, right: ColumnType) -> ColumnType:
    if left == right:
        return left
    if _ANY in (left.scalar, right.scalar):
        return COLLAPSED
    if left.fields is None or right.fields is None:
        fields = right.fields if left.fields is None else left.fields
    else:
        fields = _merge_fields(left.fields, right.fields)
    if left.element is None or right.element is None:
        element = right.element if left.element is None else left.element
    else:
        element = _merge_types(left.element, right.element)
    return ColumnType(merge_scalars(left.scalar, right.scalar), fields, element)


def _merge_fields(left: Mapping[str, Field], right: Mapping[str, Field]) -> dict[str, Field]:
    merged = dict(left)
    for name, (first, type_) in right.items():
        known = merged.get(name)
        merged[name] = (
            Field(first, type_) if known is None else Field(min(known.first, first), _merge_types(known.type, type_))
        )
    return merged


def _weight_of_name(name: str) -> int:
    return 1 + len(name) // NAME_UNIT


def _weight(column_type: ColumnType) -> int:
    """Return how many fields a type has at all levels; merging never makes it less, or bounds would depend on order."""
    if column_type.scalar == _ANY:
        return MAX_COLUMN_FIELDS + 1
    fields = sum(_weight_of_name(name) + _weight(item.type) for name, item in (column_type.fields or {}).items())
    return fields + (0 if column_type.element is None else _weight(column_type.element))


def bounded_column(column_type: ColumnType) -> ColumnType:
    return COLLAPSED if _weight(column_type) > MAX_COLUMN_FIELDS else column_type


def bounded_columns(columns: dict[str, Field]) -> ColumnTypes:
    weight = sum(_weight_of_name(name) + _weight(item.type) for name, item in columns.items())
    return ColumnTypes(collapsed=True) if weight > MAX_FIELDS else ColumnTypes(columns)


def _pack_type(column_type: ColumnType) -> list[Any]:
    fields = None if column_type.fields is None else _pack_fields(column_type.fields)
    element = None if column_type.element is None else _pack_type(column_type.element)
    return [column_type.scalar, fields, element]


def _pack_fields(fields: Mapping[str, Field]) -> list[Any]:
    return [[name, fields[name].first, _pack_type(fields[name].type)] for name in in_order(fields)]


def _unpack_type(packed: Sequence[Any]) -> ColumnType:
    scalar, fields, element = packed
    return ColumnType(
        scalar,
        None if fields is None else _unpack_fields(fields),
        None if element is None else _unpack_type(element),
    )


def _unpack_fields(packed: Sequence[Any]) -> dict[str, Field]:
    return {name: Field((first[0], first[1], first[2]), _unpack_type(type_)) for name, first, type_ in packed}
