"""Turn decoded rows of a Parquet file into records and dead letters, column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import EMPTY_TEXT, OVER_SIZE, USER_PREFIX
from corpus.characters_kernel import count_characters
from corpus.hashing import byte_offsets, content_hashes, generated_ids, in_sample, row_digests, sample_seed
from corpus.inputs import ColumnKind, InputConfig
from corpus.planning_types import Item
from corpus.readers.chat import messages_of, pair_of
from corpus.readers.columns import (
    Mask,
    as_name_array,
    as_plain,
    as_text,
    fit_column,
    invalid_utf8,
    is_textual,
    null_size,
    null_where,
    value_sizes,
)
from corpus.readers.faults import RAW_BYTES, DeadLetter, RecordFaultError
from corpus.readers.records import MAX_NAME_BYTES, ROW_BYTES, WHITE_SPACE, Block, long_name_detail

_NOT_BLANK = "[^" + "".join(f"\\x{{{ord(character):x}}}" for character in WHITE_SPACE) + "]"
# What a dead letter says of a type at most: that of a struct may be long.
_TYPE_CHARACTERS = 200
_TYPES: dict[ColumnKind, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "json": pa.string(),
}

Positions = npt.NDArray[np.int64]


def output_type(kind: ColumnKind | None, found: pa.DataType) -> pa.DataType:
    """Return the type of a carried column, given what ``input.columns`` wants and what the file has."""
    return found if kind is None else _TYPES[kind]


class Converter:
    """Convert rows of one item; ``schema`` is that of its records."""

    def __init__(self, item: Item, config: InputConfig, schema: pa.Schema) -> None:
        self._file = item.file
        self._config = config
        self._schema = schema
        self._carried = [name.removeprefix(USER_PREFIX) for name in schema.names if name.startswith(USER_PREFIX)]
        self._types = config.columns if isinstance(config.columns, dict) else {}

    def block(self, rows: pa.RecordBatch, positions: Positions) -> Block:
        """Return the records and dead letters of some rows."""
        config = self._config
        if config.sample is not None:
            seed, share = sample_seed(self._file, config.sample_seed), config.sample
            sampled = np.array([in_sample(position, seed, share) for position in positions.tolist()], np.bool_)
            rows, positions = rows.filter(pa.array(sampled)), positions[sampled]
        faults = _Faults(len(rows))
        if config.messages_column is not None:
            texts = self._chat(rows.column(config.messages_column), config.messages_column, faults)
        else:
            texts = [self._text(rows.column(name), name, faults) for name in config.text_columns]
        columns = {name: self._column(rows.column(name), name, faults) for name in self._carried}
        ids = self._name(rows, config.id_column, "id", faults)
        sources = self._name(rows, config.source_column, "source", faults)
        if config.source_column is None:
            sources = pa.repeat(pa.scalar(self._file), len(rows))
        elif sources is None:
            sources = pa.nulls(len(rows), pa.string())
        dead: list[tuple[int, DeadLetter]] = []
        if faults.found:
            dead = self._dead_letters(faults, positions, sources)
            alive = pa.array(~faults.dead)
            positions = positions[~faults.dead]
            texts = [text.filter(alive) for text in texts]
            columns = {name: column.filter(alive) for name, column in columns.items()}
            ids = None if ids is None else ids.filter(alive)
            sources = sources.filter(alive)
        return self._records(positions, texts, columns, ids, sources, dead)

    def _records(
        self,
        positions: Positions,
        texts: list[pa.Array],
        columns: dict[str, pa.Array],
        ids: pa.Array | None,
        sources: pa.Array,
        dead: list[tuple[int, DeadLetter]],
    ) -> Block:
        rows = len(positions)
        contents = content_hashes(texts)
        digests = row_digests(positions, contents, columns)
        text_bytes = sum((value_sizes(text) for text in texts), np.zeros(rows, np.int64))
        total = sum((value_sizes(column) for column in columns.values()), text_bytes)
        limit = self._config.max_record_bytes
        characters = np.zeros(rows, np.int64)
        for text in texts:
            characters += count_characters(byte_offsets(text), np.frombuffer(text.buffers()[2] or b"", np.uint8))
        blank = ~pc.match_substring_regex(texts[-1], _NOT_BLANK).to_numpy(zero_copy_only=False)
        over = total > limit
        failures = np.where(blank, EMPTY_TEXT, 0) | np.where(over, OVER_SIZE, 0)
        measured = np.where(over & (text_bytes <= limit), total, text_bytes)
        if over.any():
            keep = pa.array(~over)
            texts = [pc.if_else(keep, text, pa.scalar(None, text.type)) for text in texts]
            columns = {name: null_where(over, column) for name, column in columns.items()}
            total = np.where(over, 0, total)
        if ids is None:
            record_ids = generated_ids(self._file, positions)
            generated = pa.array(np.ones(rows, np.bool_))
        else:
            generated = ids.is_null()
            record_ids = pc.coalesce(ids, generated_ids(self._file, positions)) if ids.null_count else ids
        total = total + value_sizes(record_ids) + value_sizes(sources)
        total += ROW_BYTES + sum(null_size(column.type) for column in columns.values())
        arrays = [record_ids, generated, sources, pa.array(positions), contents, pa.array(characters)]
        arrays += [pa.array(measured), pa.array(failures), pa.array(digests)]
        arrays += [text.cast(pa.string()) for text in texts]
        arrays += columns.values()
        return Block(pa.RecordBatch.from_arrays(arrays, schema=self._schema), total, dead)

    def _text(self, array: pa.Array, name: str, faults: _Faults) -> pa.Array:
        text, invalid = as_text(array)
        if text.null_count:
            nulls = text.is_null().to_numpy(zero_copy_only=False)
            faults.add(nulls, "null_text", f"{name} is null; give it a text or leave the record out")
        if invalid is not None:
            faults.add(invalid, "invalid_utf8", f"{name} is not UTF-8; convert it to UTF-8", text)
        return text

    def _column(self, array: pa.Array, name: str, faults: _Faults) -> pa.Array:
        kind = self._types.get(name)
        if kind is None:
            column = as_plain(array)
            invalid = invalid_utf8(column)
        else:
            fitted = fit_column(array, kind)
            column, invalid = fitted.values, fitted.invalid
            if fitted.misfit is not None:
                found = str(array.type)[:_TYPE_CHARACTERS]
                detail = f"{name} is {found} with a value that is no {kind}; correct it or input.columns"
                faults.add(fitted.misfit, "misfit_column", detail)
        if invalid is not None:
            faults.add(invalid, "invalid_utf8", f"{name} is not UTF-8; convert it to UTF-8")
        return column

    def _name(self, rows: pa.RecordBatch, name: str | None, label: str, faults: _Faults) -> pa.Array | None:
        if name is None or name not in rows.schema.names:
            return None
        names, invalid = as_name_array(rows.column(name))
        if invalid is not None:
            faults.add(invalid, "invalid_utf8", f"{name} is not UTF-8; convert it to UTF-8")
            names = pc.if_else(pa.array(invalid), pa.scalar(None, names.type), names).cast(pa.string())
        long = np.diff(byte_offsets(names)) > MAX_NAME_BYTES
        if long.any():
            faults.add(long, f"{label}_too_long", long_name_detail(label, name))
            names = pc.if_else(pa.array(long), pa.scalar(None, pa.string()), names)
        return names

    def _chat(self, array: pa.Array, name: str, faults: _Faults) -> list[pa.Array]:
        """Return prompts and responses of the chats in a column: lists of structs, or JSON text."""
        column = as_plain(array)
        chats: list[Any]
        if is_textual(column.type):
            texts, invalid = as_text(column)
            chats = (texts if invalid is None else null_where(invalid, texts)).to_pylist()
        else:
            chats, invalid = messages_of(column)
        pairs = [self._pair(chats[row], row, name, invalid, faults) for row in range(len(column))]
        return [pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)]

    def _pair(self, chat: Any, row: int, name: str, invalid: Mask | None, faults: _Faults) -> list[str] | list[None]:
        try:
            if invalid is not None and invalid[row]:
                raise RecordFaultError("invalid_utf8", f"{name} is not UTF-8; convert it to UTF-8")
            return pair_of(_messages(chat, name), name)
        except RecordFaultError as fault:
            faults.add_one(row, fault.error, fault.detail)
            return [None, None]

    def _dead_letters(self, faults: _Faults, positions: Positions, sources: pa.Array) -> list[tuple[int, DeadLetter]]:
        before = np.cumsum(~faults.dead)
        letters = []
        for row in np.flatnonzero(faults.dead).tolist():
            error, detail, raw = faults.reasons[row]
            source = sources[row].as_py() if self._config.source_column is not None else self._file
            letters.append((int(before[row]), DeadLetter(source, int(positions[row]), error, detail, raw)))
        return letters


class _Faults:
    """Which of n rows are dead, each with its first reason."""

    def __init__(self, rows: int) -> None:
        self.dead: Mask = np.zeros(rows, np.bool_)
        self.reasons: dict[int, tuple[str, str, bytes | None]] = {}

    @property
    def found(self) -> bool:
        return bool(self.reasons)

    def add(self, rows: Mask, error: str, detail: str, raw: pa.Array | None = None) -> None:
        """Note a fault of the rows where the mask is set; ``raw`` holds their bytes."""
        for row in np.flatnonzero(rows).tolist():
            value = None if raw is None else raw[row].as_buffer()
            self.add_one(row, error, detail, None if value is None else value[:RAW_BYTES].to_pybytes())

    def add_one(self, row: int, error: str, detail: str, raw: bytes | None = None) -> None:
        """Note a fault of one row unless it has one."""
        self.dead[row] = True
        self.reasons.setdefault(row, (error, detail, raw))


def _messages(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        detail = f"{name} is a text that is not JSON ({error.msg}); write it again"
        raise RecordFaultError("malformed_json", detail) from error
