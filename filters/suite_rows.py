"""Rows of benchmark files: JSONL, JSON, CSV, TSV and Parquet, plain or gz."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.errors import UsageError
from filters.suite_config import BenchmarkConfig, Format

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


def format_of(path: Path, declared: Format | None, where: str) -> Format:
    """Return the format of a file. Raises UsageError where its suffix does not say."""
    if declared is not None:
        return declared
    name = path.name.removesuffix(".gz")
    found = SUFFIXES.get(Path(name).suffix)
    if found is None:
        raise UsageError(
            f"{where}: the suffix does not say the format; set format to one of jsonl, json, csv, tsv, parquet"
        )
    return found


def read_rows(path: Path, benchmark: BenchmarkConfig, where: str) -> Iterator[tuple[int, Row]]:
    """Yield (number of the row, counted from 1, fields) of a file.

    Args:
        where: suite, benchmark and file, for messages.

    Raises:
        UsageError: the file or a row cannot be read; the message names the row.
    """
    kind = format_of(path, benchmark.format, where)
    try:
        data = path.read_bytes()
        if path.name.endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise UsageError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if kind == "parquet":
        yield from _parquet_rows(data, where)
        return
    try:
        text = data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{where}, line {line}: not UTF-8; save the file as UTF-8") from None
    if kind == "jsonl":
        yield from _jsonl_rows(text, where)
    elif kind == "json":
        yield from _json_rows(text, benchmark.records, where)
    else:
        yield from _delimited_rows(text, "," if kind == "csv" else "\t", benchmark.columns, where)


def _jsonl_rows(text: str, where: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip(" \t\r"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{where}, row {number}: not JSON: {error}; correct or remove the line") from None
            yield number, _object(row, where, number)


def _json_rows(text: str, records: str | None, where: str) -> Iterator[tuple[int, Row]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}; correct the file, or set format: jsonl") from None
    if records is not None:
        if not isinstance(value, dict) or records not in value:
            found = f"has the keys {', '.join(value)}" if isinstance(value, dict) else "is no object"
            raise UsageError(f"{where}: records: no key {records}; the file {found}")
        value = value[records]
    if not isinstance(value, list):
        found = f" has the keys {', '.join(value)}; set records to one of them" if isinstance(value, dict) else ""
        raise UsageError(f"{where}: wanted a list of items; found {type(value).__name__}{found}")
    for number, row in enumerate(value, 1):
        yield number, _object(row, where, number)


def _object(row: Any, where: str, number: int) -> Row:
    if not isinstance(row, dict):
        raise UsageError(f"{where}, row {number}: wanted an object of fields; found {type(row).__name__}")
    return row


def _delimited_rows(text: str, delimiter: str, columns: list[str] | None, where: str) -> Iterator[tuple[int, Row]]:
    # Quotes mean nothing in a TSV file but where a field begins with one, as in CSV.
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = columns
    number = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if names is None:
                names = cells
                if len(set(names)) != len(names):
                    raise UsageError(f"{where}: the header line has a column twice: {', '.join(names)}")
                continue
            number += 1
            if len(cells) != len(names):
                raise UsageError(
                    f"{where}, row {number}: {len(cells)} cells where there are {len(names)} columns "
                    f"({', '.join(names)}); quote what holds a delimiter, or set columns"
                )
            yield number, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"{where}, row {number + 1}: {error}") from None


def _parquet_rows(data: bytes, where: str) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{where}: not Parquet, or damaged: {error}") from None
    yield from enumerate(rows, 1)
