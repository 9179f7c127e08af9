"""Rows of benchmark files: JSONL, JSON, CSV, TSV and Parquet, plain or gz."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filters.suite_config import Format, ItemFile

BYTE_ORDER_MARK = "\ufeff"
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
LONGEST_FIELD = 1 << 27

Row = dict[str, Any]


def format_of(file: ItemFile) -> Format:
    """Return the format of a file. Raises UsageError where its suffix does not say."""
    declared = file.benchmark.config.format
    if declared is not None:
        return declared
    found = SUFFIXES.get(Path(file.path.name.removesuffix(".gz")).suffix)
    if found is None:
        raise file.problem("the suffix does not say the format; set format to one of jsonl, json, csv, tsv, parquet")
    return found


def read_rows(file: ItemFile) -> Iterator[tuple[int, Row]]:
    """Yield (number of the row, counted from 1, fields) of a file.

    Raises:
        UsageError: the file or a row cannot be read; the message names suite, file and row.
    """
    kind = format_of(file)
    try:
        data = file.path.read_bytes()
        if file.path.name.endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise file.problem(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if kind == "parquet":
        yield from _parquet_rows(data, file)
        return
    try:
        text = data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise file.problem(f"line {line}: not UTF-8; save the file as UTF-8") from None
    if kind == "jsonl":
        yield from _jsonl_rows(text, file)
    elif kind == "json":
        yield from _json_rows(text, file)
    else:
        yield from _delimited_rows(text, "," if kind == "csv" else "\t", file)


def _jsonl_rows(text: str, file: ItemFile) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip(" \t\r"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise file.problem(f"not JSON: {error}; correct or remove the line", number) from None
            yield number, _object(row, file, number)


def _json_rows(text: str, file: ItemFile) -> Iterator[tuple[int, Row]]:
    records = file.benchmark.config.records
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise file.problem(f"not JSON: {error}; correct the file, or set format: jsonl") from None
    if records is not None:
        if not isinstance(value, dict) or records not in value:
            found = f"has the keys {', '.join(value)}" if isinstance(value, dict) else "is no object"
            raise file.problem(f"no key {records}; the file {found}", setting="records")
        value = value[records]
    if not isinstance(value, list):
        found = f" has the keys {', '.join(value)}; set records to one of them" if isinstance(value, dict) else ""
        raise file.problem(f"wanted a list of items; found {type(value).__name__}{found}")
    for number, row in enumerate(value, 1):
        yield number, _object(row, file, number)


def _object(row: Any, file: ItemFile, number: int) -> Row:
    if not isinstance(row, dict):
        raise file.problem(f"wanted an object of fields; found {type(row).__name__}", number)
    return row


def _delimited_rows(text: str, delimiter: str, file: ItemFile) -> Iterator[tuple[int, Row]]:
    # Quotes mean nothing in a TSV file but where a field begins with one, as in CSV.
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = file.benchmark.config.columns
    number = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if names is None:
                names = cells
                if len(set(names)) != len(names):
                    raise file.problem(f"the header line has a column twice: {', '.join(names)}; rename one")
                continue
            number += 1
            if len(cells) != len(names):
                raise file.problem(
                    f"{len(cells)} cells where there are {len(names)} columns ({', '.join(names)}); quote what holds a "
                    "delimiter, or set columns",
                    number,
                )
            yield number, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise file.problem(f"{error}; correct the quotes", number + 1) from None


def _parquet_rows(data: bytes, file: ItemFile) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise file.problem(f"not Parquet, or damaged: {error}; copy it again") from None
    yield from enumerate(rows, 1)
