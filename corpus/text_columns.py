"""Guess which columns of a data set hold its texts, where their names leave no doubt."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from corpus.errors import UsageError
from corpus.filesystem import FileInfo
from corpus.planning_files import find_files, format_of
from corpus.planning_types import Item
from corpus.readers.faults import FileFaultError, UnreadableError
from corpus.readers.jsonl import record_lines
from corpus.readers.parquet import open_parquet

LINES = 100
"""Records of a JSONL file that are looked at."""
DOCUMENTS = ("text", "content")
PAIRS = (
    ("prompt", "response"),
    ("prompt", "completion"),
    ("instruction", "response"),
    ("instruction", "output"),
    ("question", "answer"),
)
CHAT = "messages"
MORE_OF_A_PROMPT = "input"
"""A third column beside instruction and output, which no pair of columns covers."""
REMEDY = "name the text column, or the columns of prompt and response, or of the messages"


def guess_text_columns(entries: Sequence[str]) -> dict[str, str]:
    """Return settings of ``input`` that name the text columns of files: of one document, pair or chat per record.

    Args:
        entries: files, folders and globs, as ``input.files``.

    Raises:
        UsageError: an entry matches nothing, or the names of the columns leave it open.
    """
    files, _ = find_files(list(entries))
    for file in files:
        names = _column_names(file)
        if names is None:
            continue
        found = _settings(names)
        if len(found) == 1:
            return found[0]
        what = "several columns may hold the texts" if found else "no column has the usual name of a text"
        shown = ", ".join(names[:20]) or "none"
        raise UsageError(f"{file.path}: {what}; {REMEDY}; the columns are: {shown}")
    # Text files, or nothing that can be read, which the run tells file by file.
    return {"text_column": DOCUMENTS[0]}


def _settings(names: Sequence[str]) -> list[dict[str, str]]:
    """Return all readings of columns with these names."""
    found = [{"text_column": name} for name in DOCUMENTS if name in names]
    for prompt, response in PAIRS:
        if prompt in names and response in names and not (prompt == "instruction" and MORE_OF_A_PROMPT in names):
            found.append({"prompt_column": prompt, "response_column": response})
    if CHAT in names:
        found.append({"messages_column": CHAT})
    return found


def _column_names(file: FileInfo) -> list[str] | None:
    """Return the names of a file's columns; None for a text file and for one that tells none."""
    kind, compression = format_of(file.name) or ("text", None)
    try:
        if kind == "parquet":
            parquet, handle = open_parquet(file.path)
            with handle:
                return list(parquet.schema_arrow.names)
        if kind == "jsonl":
            item = Item(0, file.path, file.path, kind, compression, 0, file.size, 0, None, LINES, None, None)
            return _keys(item) or None
    except (FileFaultError, UnreadableError):
        pass
    return None


def _keys(item: Item) -> list[str]:
    """Return the keys of the first records, in the order in which they are met."""
    keys: dict[str, None] = {}
    for _, line in record_lines(item):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            keys.update(dict.fromkeys(record))
    return list(keys)
