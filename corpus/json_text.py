"""JSON text of the user's columns in and out, with integers of any size exact.

``orjson`` reads an integer beyond 64 bits as a float and refuses to write one, so records that hold one go through the
standard library, which is several times slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

# Every integer beyond int64 matches. So do a few other digit strings, which only costs time.
_MAYBE_BEYOND_INT64 = "-[0-9]{19}|[0-9]{20}"


def parse_json(texts: pa.StringArray) -> list[Any]:
    """Return the value of each JSON text, integers exact, and None for null.

    Raises ``ValueError`` for text that is not JSON, which the readers never stage.
    """
    encoded = texts.cast(pa.binary()).to_pylist()
    flags = pc.match_substring_regex(texts, _MAYBE_BEYOND_INT64)
    if pc.any(flags).as_py():
        return [
            None if text is None else json.loads(text) if flag else orjson.loads(text)
            for text, flag in zip(encoded, flags.to_pylist(), strict=True)
        ]
    return [None if text is None else orjson.loads(text) for text in encoded]


def dump_json(value: Any) -> str:
    """Return a value as compact JSON text, integers exact."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # an integer beyond 64 bits, or nesting beyond what orjson writes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_texts(values: Iterable[Any]) -> pa.StringArray:
    """Return each value as JSON text (strings quoted); None stays null."""
    return pa.array([None if value is None else dump_json(value) for value in values], pa.string())
