"""Bring the edits of a pair back into the chat that it was made of.

The prompt of a chat is the contents of its turns joined by blank lines (``corpus.readers.chat``). An edit of the prompt
changes the turns in which it lies, of which one that is cut to nothing stays, empty; the blank lines between turns are
no part of a chat, so what is cut of them or put in their place goes no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.column_inference import list_array, plain_array
from corpus.edited import with_replaced
from corpus.hashing import content_hashes, list_members
from corpus.json_text import json_texts, parse_json
from corpus.readers.chat import messages_of, pair_of

SEPARATOR = -1

# Start, end (code points) and replacement.
Span = tuple[int, int, str]
# Number of the turn, or SEPARATOR, and its text.
Part = tuple[int, str]


def edited_turns(contents: Sequence[str], stages: Iterable[Sequence[Span]]) -> list[str]:
    """Return the contents of turns after edits of the text that joins them by blank lines.

    Args:
        contents: of the turns.
        stages: of each stage its spans, ordered and apart, in the text as the stages before it left it.
    """
    parts: list[Part] = []
    for turn, content in enumerate(contents):
        parts.extend([(SEPARATOR, "\n\n")] if turn else [])
        parts.append((turn, content))
    for spans in stages:
        parts = _replace(parts, spans)
    turns = [""] * len(contents)
    for turn, text in parts:
        if turn != SEPARATOR:
            turns[turn] += text
    return turns


def _replace(parts: Sequence[Part], spans: Sequence[Span]) -> list[Part]:
    result: list[Part] = []
    number = position = 0
    placed = False
    for index, (turn, text) in enumerate(parts):
        behind, done = position + len(text), 0
        pieces = []
        while number < len(spans):
            start, end, replacement = spans[number]
            first, last = max(start, position) - position, min(end, behind) - position
            if first > last or (placed and first == last):
                break
            # An insertion between two parts belongs to the one that it begins, unless that is a separator.
            here = not placed and (start < behind or index == len(parts) - 1 or parts[index + 1][0] == SEPARATOR)
            pieces += [text[done:first], replacement if here else ""]
            done, placed = max(done, last), placed or here
            if end > behind or not placed:
                break
            number, placed = number + 1, False
        result.append((turn, "".join([*pieces, text[done:]])))
        position = behind
    return result


def chats_of(records: pa.RecordBatch, column: str, rows: pa.Array) -> list[Any]:
    """Return the chats of chosen rows, each a list of objects with role and content.

    Args:
        records: of a batch, with the column of messages.
        column: the user's name of that column.
        rows: numbers of rows.
    """
    if JSON_COLUMN in records.schema.names:
        return [row[column] for row in parse_json(records.column(JSON_COLUMN).take(rows))]
    return messages_of(records.column(USER_PREFIX + column).take(rows))[0]


def turns_before_response(messages: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the turns with a text that stand before the response of a chat: of each its role and content."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    return [
        {"role": message["role"], "content": message["content"]}
        for message in messages[:last]
        if message.get("content") is not None
    ]


def with_chat_hashes(records: pa.RecordBatch, column: str, edits: pa.RecordBatch) -> pa.RecordBatch:
    """Return records whose edited chats have the content hash of the pair that their messages make now.

    What an edit did to the blank lines between turns is not in the messages.
    """
    if not edits.num_rows:
        return records
    rows = pc.unique(edits.column("row"))
    pairs = [pair_of(chat, column) for chat in chats_of(records, column, rows)]
    hashes = content_hashes([pa.array([pair[field] for pair in pairs], pa.string()) for field in (0, 1)])
    mask = np.zeros(records.num_rows, np.bool_)
    mask[rows.to_numpy()] = True
    order = np.argsort(rows.to_numpy())
    replaced = pc.replace_with_mask(records.column("content_hash"), pa.array(mask), hashes.take(pa.array(order)))
    return with_replaced(records, {"content_hash": replaced})


def with_edited_messages(records: pa.RecordBatch, column: str, edits: pa.RecordBatch) -> pa.RecordBatch:
    """Return records whose chats have the edits of all passes.

    Args:
        records: of a batch, with the column of messages as it was read.
        column: the user's name of that column.
        edits: of all passes, in order.
    """
    if not edits.num_rows:
        return records
    by_row: dict[int, dict[str, list[list[Span]]]] = {}
    ordered = sorted(_spans(edits), key=lambda entry: (entry[0], entry[1]))
    for (row, field), entries in groupby(ordered, key=lambda entry: (entry[0], entry[1])):
        stages = [[span for *_, span in group] for _, group in groupby(entries, key=lambda entry: entry[2])]
        by_row.setdefault(row, {})[field] = stages
    rows = pa.array(sorted(by_row))
    is_json = JSON_COLUMN in records.schema.names
    name = JSON_COLUMN if is_json else USER_PREFIX + column
    values = records.column(name)
    chosen = values.take(rows)
    stages_of = [by_row[row] for row in rows.to_pylist()]
    new = _edited_json(chosen, column, stages_of) if is_json else _edited_lists(chosen, stages_of)
    places = np.arange(len(values))
    places[rows.to_numpy()] = len(values) + np.arange(len(rows))
    return with_replaced(records, {name: pa.concat_arrays([values, new.cast(values.type)]).take(pa.array(places))})


def _spans(edits: pa.RecordBatch) -> list[tuple[int, str, int, Span]]:
    """Return (row, field, number of the stage, span) of each edit."""
    names = edits.column("stage").to_pylist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    columns = [edits.column(name).to_pylist() for name in ("row", "field", "start", "end")]
    replacements = pc.fill_null(edits.column("replacement"), "").to_pylist()
    return [
        (row, field, numbers[stage], (start, end, replacement))
        for row, field, start, end, stage, replacement in zip(*columns, names, replacements, strict=True)
    ]


def _edit_chat(messages: list[dict[str, Any]], stages: dict[str, list[list[Span]]]) -> dict[int, str]:
    """Return the contents that change, by the number of their message."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    turns = [index for index in range(last) if messages[index].get("content")]
    changed: dict[int, str] = {}
    if "prompt" in stages:
        contents = edited_turns([messages[index]["content"] for index in turns], stages["prompt"])
        changed |= dict(zip(turns, contents, strict=True))
    if "response" in stages:
        changed[last] = edited_turns([messages[last]["content"]], stages["response"])[0]
    return changed


def _edited_json(texts: pa.StringArray, column: str, stages_of: list[dict[str, list[list[Span]]]]) -> pa.StringArray:
    rows = parse_json(texts)
    for row, stages in zip(rows, stages_of, strict=True):
        for index, content in _edit_chat(row[column], stages).items():
            row[column][index]["content"] = content
    return json_texts(rows)


def _edited_lists(chats: pa.Array, stages_of: list[dict[str, list[list[Span]]]]) -> pa.Array:
    chats = plain_array(chats)
    offsets, items = list_members(chats)
    mask = np.zeros(len(items), np.bool_)
    contents: list[str] = []
    for row, (messages, stages) in enumerate(zip(messages_of(chats)[0], stages_of, strict=True)):
        for index, content in sorted(_edit_chat(messages, stages).items()):
            mask[offsets[row] + index] = True
            contents.append(content)
    names = [items.type.field(number).name for number in range(items.type.num_fields)]
    children = [items.field(number) for number in range(items.type.num_fields)]
    place = names.index("content")
    texts = plain_array(children[place])
    children[place] = pc.replace_with_mask(texts, pa.array(mask), pa.array(contents, texts.type))
    edited = pa.StructArray.from_arrays(children, names=names, mask=items.is_null())
    return list_array(pa.array(np.diff(offsets), pa.int32()), edited, chats.is_null())
