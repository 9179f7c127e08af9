"""Read JSON Lines: plain by byte range, gzip or Zstandard as one stream.

A record is a line that is not blank. orjson decodes it; the standard library decides what is wrong with a line that
orjson refuses, and reads a line again whose numbers would lose digits. Of a repeated key the last one counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import orjson

from corpus.batch import DocumentBatch
from corpus.filesystem import open_file
from corpus.hashing import in_sample, sample_seed
from corpus.inputs import InputConfig
from corpus.json_text import dump_json
from corpus.planning_types import Item
from corpus.readers.chat import json_type, pair_of
from corpus.readers.decompress import decompressed, read_piece
from corpus.readers.faults import DeadLetter, FileFaultError, RecordFaultError, UnreadableError
from corpus.readers.lines import MAX_LINE_BYTES, LongLine, is_blank, scan_lines, skip_first_line
from corpus.readers.nesting import MAX_NESTING, TOO_DEEP, at_any_depth, may_nest, nesting
from corpus.readers.records import Chunker, RecordBuilder, check_name, is_long_name

# Python's own limit for turning text into an int, which not every supported version has.
_MAX_DIGITS = 4300
# orjson writes floats from 1e16 on with an exponent; an int beyond 64 bits was read as such a float. What stands before
# a number keeps out hex digits in strings, which would only cost time.
_EXPONENT = re.compile(rb"[:,\[]-?\d[\d.]*e\+?\d")
_ABSENT = object()

_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int64": lambda value: isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63,
    "float64": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "json": lambda value: True,
}


def read_jsonl(item: Item, config: InputConfig, batch_rows: int, batch_bytes: int) -> Iterator[DocumentBatch]:
    """Yield the batches of a JSONL item; see ``corpus.readers.read_item``."""
    decoder = LineDecoder(item, config)
    chunker = Chunker(item, decoder.builder.schema, batch_rows, batch_bytes)
    try:
        for position, line in record_lines(item):
            decoder.add(position, line)
            if decoder.builder.is_full:
                yield from chunker.add(decoder.builder.take())
    except FileFaultError as fault:
        decoder.builder.add_dead(DeadLetter(item.file, None, fault.error, fault.detail))
    yield from chunker.add(decoder.builder.take())
    yield chunker.finish()


def record_lines(item: Item) -> Iterator[tuple[int, bytes]]:
    """Yield (position, line) of the item's lines that are not blank, up to its limit.

    Raises FileFaultError after the lines before the fault, UnreadableError where the file cannot be read.
    """
    left = item.limit
    if left == 0:
        return
    for position, line in _lines(item):
        if is_blank(line):
            continue
        yield position, line
        if left is not None:
            left -= 1
            if not left:
                return


def _lines(item: Item) -> Iterator[tuple[int, bytes]]:
    whole = item.compression is not None
    start = 0 if whole or not item.start else item.start - 1
    with open_for_reading(item, start) as handle:
        if item.compression is not None:
            yield from scan_lines(decompressed(handle, item.compression))
            return
        pieces = iter(lambda: read_piece(handle), b"")
        if not item.start:
            yield from scan_lines(pieces, 0, item.end)
            return
        rest = skip_first_line(pieces, start, item.end)
        first = next(rest, None)
        if first is not None:
            yield from scan_lines(_chain(first[1], rest), first[0], item.end)


def _chain(first: bytes, rest: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    yield first
    for _, piece in rest:
        yield piece


def open_for_reading(item: Item, start: int = 0) -> Any:
    """Open an item's file as a context. Raises UnreadableError."""
    try:
        return open_file(item.path, start)
    except Exception as error:  # the clients of object stores have their own exceptions
        raise UnreadableError(error) from error


class LineDecoder:
    """Turn lines of one item into records and dead letters."""

    def __init__(self, item: Item, config: InputConfig) -> None:
        self.builder = RecordBuilder(item, config, has_json=True)
        self._file = item.file
        self._text_columns = config.text_columns
        self._messages = config.messages_column
        self._id = config.id_column
        self._source = config.source_column
        self._share = config.sample
        self._seed = sample_seed(item.file, config.sample_seed)
        self._types = config.columns if isinstance(config.columns, dict) else {}
        always = {config.id_column, config.source_column, config.messages_column}
        self._carried = None if config.columns is None else always | set(config.columns)

    def add(self, position: int, line: bytes) -> None:
        """Take the line at a position."""
        if self._share is not None and not in_sample(position, self._seed, self._share):
            return
        source: str | None = self._file
        try:
            if isinstance(line, LongLine):
                detail = f"the line is longer than {MAX_LINE_BYTES} bytes; split or leave out the record"
                raise RecordFaultError("line_too_long", detail)
            record = _decode(line)
            if self._source is not None:
                source = as_name(record.get(self._source), line)
            self._add_record(position, line, record, source)
        except RecordFaultError as fault:
            raw = line[:-1] if line.endswith(b"\r") else line
            if source is not None and is_long_name(source):
                source = None
            self.builder.add_dead(DeadLetter(source, position, fault.error, fault.detail, raw))

    def _add_record(self, position: int, line: bytes, record: dict[str, Any], source: str | None) -> None:
        if self._messages is not None:
            texts = pair_of(self._text(record.get(self._messages, _ABSENT), self._messages), self._messages)
        else:
            texts = []
            for column in self._text_columns:
                text = self._text(record.pop(column, _ABSENT), column)
                if not isinstance(text, str):
                    detail = f"{column} is {json_type(text)}; wanted is a string"
                    raise RecordFaultError("null_text" if text is None else "wrong_type", detail)
                texts.append(text)
        if self._carried is not None:
            record = {key: value for key, value in record.items() if key in self._carried}
        carried = orjson.dumps(record)
        if _EXPONENT.search(carried):
            exact = _decode_exactly(line)
            record = {key: exact[key] for key in record}
            carried = at_any_depth(lambda _: _dump_exactly(record), carried)
            if self._source is not None:
                source = as_name(record.get(self._source), line)
        for column, kind in self._types.items():
            value = record.get(column)
            if value is not None and not _FITS[kind](value):
                detail = f"{column} is {json_type(value)} that is no {kind}; correct the record or input.columns"
                raise RecordFaultError("misfit_column", detail)
        record_id = None if self._id is None else as_name(record.get(self._id), line)
        check_name(record_id, "id", self._id)
        check_name(source, "source", self._source)
        self.builder.add(position, record_id, source, texts, carried)

    @staticmethod
    def _text(value: Any, column: str) -> Any:
        if value is _ABSENT:
            raise RecordFaultError("missing_text", f"there is no key {column}; add it or correct the input's columns")
        return value


def as_name(value: Any, line: bytes) -> str | None:
    """Return an id or source of a line as text: ints in decimal digits, lists and objects as JSON, null as None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, list | dict):
        return dump_json(value)
    return at_any_depth(lambda _: dump_json(value), line)


def _decode(line: bytes) -> dict[str, Any]:
    """Return the object on a line. Raises RecordFaultError."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        _explain(line, error)
    if type(record) is not dict:
        detail = f"the line is {json_type(record)}; wanted is an object with the text under a key"
        raise RecordFaultError("not_an_object", detail)
    if may_nest(line, MAX_NESTING):
        try:
            orjson.dumps(record)
        except orjson.JSONEncodeError as error:
            raise RecordFaultError("malformed_json", TOO_DEEP) from error
    return record


def _explain(line: bytes, error: orjson.JSONDecodeError) -> NoReturn:
    """Raise RecordFaultError with the reason why orjson refused a line."""
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        detail = f"byte {bad.start} of the line is not UTF-8; convert the file to UTF-8"
        raise RecordFaultError("invalid_utf8", detail) from error
    _check_nesting(line)
    if at_any_depth(_has_surrogate, line):
        detail = "an escape gives half a surrogate pair, which is no character; write the file again with valid Unicode"
        raise RecordFaultError("invalid_unicode", detail) from error
    raise RecordFaultError("malformed_json", f"the line is not JSON ({error.msg}); write the file again") from error


def _decode_exactly(line: bytes) -> dict[str, Any]:
    _check_nesting(line)
    try:
        record: dict[str, Any] = at_any_depth(_loads, line)
    except ValueError as error:
        raise RecordFaultError("malformed_json", f"the line cannot be read exactly ({error})") from error
    return record


def _check_nesting(line: bytes) -> None:
    if may_nest(line, MAX_NESTING) and nesting(line) > MAX_NESTING:
        raise RecordFaultError("malformed_json", TOO_DEEP)


def _dump_exactly(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def _loads(line: bytes) -> Any:
    return json.loads(line.decode(), parse_int=_exact_int, parse_constant=_no_number)


def _exact_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has more than {_MAX_DIGITS} digits; write it as a string")
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _has_surrogate(line: bytes) -> bool:
    """Say whether a line is JSON but for an escape that gives half a surrogate pair."""
    try:
        json.dumps(_loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except ValueError:
        return False
    return False
