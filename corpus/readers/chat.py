"""Turn a chat, a list of ``{role, content}``, into a pair.

The response is the content of the last assistant turn; the prompt is the contents of the turns before it, joined by
blank lines. Turns without content (a tool call) add nothing to the prompt; turns after the response are left out. The
messages stay beside the pair as the user's column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from corpus.column_inference import plain_array
from corpus.hashing import list_members
from corpus.readers.columns import Mask, as_text, is_textual, null_where
from corpus.readers.faults import RecordFaultError


def pair_of(messages: Any, column: str) -> list[str]:
    """Return [prompt, response] of a chat. Raises RecordFaultError with the reason why it is none."""
    if messages is None:
        raise RecordFaultError("null_text", f"{column} is null; give a list of messages or leave the record out")
    if not isinstance(messages, list):
        raise RecordFaultError("wrong_type", f"{column} is {json_type(messages)}; wanted is a list of messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RecordFaultError("wrong_type", f"{column}[{index}] is no object with a role that is a string")
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            detail = f"{column}[{index}].content is {json_type(content)}; wanted is a string"
            raise RecordFaultError("wrong_type", detail)
    last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if last is None:
        detail = f"no message in {column} has the role assistant; leave out chats without an answer"
        raise RecordFaultError("no_assistant_turn", detail)
    response = messages[last].get("content")
    if response is None:
        detail = f"{column}[{last}].content, the last assistant turn, is null; give it a text or leave the record out"
        raise RecordFaultError("null_text", detail)
    return ["\n\n".join(message["content"] for message in messages[:last] if message.get("content")), response]


def messages_of(chats: pa.Array) -> tuple[list[Any], Mask | None]:
    """Return n lists of structs as lists of ``{role, content}``, and where these are not UTF-8 (None: nowhere).

    Only role and content become Python values: others may be of types that have none. A content that is no text is a
    value of the same JSON type; a role that is no text is None.
    """
    chats = plain_array(chats)
    offsets, items = list_members(chats)
    roles, invalid_role = _field(items, "role", as_types=False)
    contents, invalid_content = _field(items, "content", as_types=True)
    messages = [
        {"role": role, "content": content} if valid else None
        for role, content, valid in zip(roles, contents, items.is_valid().to_pylist(), strict=True)
    ]
    lists = [
        messages[start:end] if valid else None
        for start, end, valid in zip(
            offsets[:-1].tolist(), offsets[1:].tolist(), chats.is_valid().to_pylist(), strict=True
        )
    ]
    if invalid_role is None and invalid_content is None:
        return lists, None
    sums = np.zeros(len(items) + 1, np.int64)
    for mask in (invalid_role, invalid_content):
        if mask is not None:
            sums[1:] += np.cumsum(mask)
    return lists, sums[offsets[1:]] > sums[offsets[:-1]]


def _field(items: pa.StructArray, name: str, as_types: bool) -> tuple[list[Any], Mask | None]:
    """Return a field of n structs, and where it is not UTF-8; where it holds no texts, None or a value of its type."""
    index = items.type.get_field_index(name)
    if index < 0:
        return [None] * len(items), None
    values = items.field(index)
    if is_textual(values.type):
        texts, invalid = as_text(values)
        return (texts if invalid is None else null_where(invalid, texts)).to_pylist(), invalid
    if not as_types or pa.types.is_null(values.type):
        return [None] * len(items), None
    return [_example(values.type) if valid else None for valid in values.is_valid().to_pylist()], None


def _example(kind: pa.DataType) -> Any:
    """Return a value of the JSON type that values of an Arrow type have."""
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 0
    return {} if pa.types.is_struct(kind) or pa.types.is_map(kind) else []


def json_type(value: Any) -> str:
    """Return how messages speak of a value's JSON type."""
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
