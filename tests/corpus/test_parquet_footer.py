"""The walk over Parquet footers against a reader of Thrift's compact protocol in plain Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.parquet_footer_kernel import FITS, MALFORMED, faulty_chunk
from corpus.readers.faults import FileFaultError
from corpus.readers.parquet import open_parquet
from tests.trust.fuzzing import mutated, parquet_files

TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


class Thrift:
    """Reads values: structs as lists of (field, type, value), lists as lists, everything else as bytes or numbers."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.place + size > len(self.data):
            raise ValueError("the data end")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value - (1 << 64) if value >> 63 else value
        raise ValueError("a number without end")

    def value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        if kind in (TRUE, FALSE):
            return self.take(1) if in_list else None
        if kind == BYTE:
            return self.take(1)
        if kind in (4, 5, 6):
            return self.number()
        if kind == DOUBLE:
            return self.take(8)
        if kind == BINARY:
            return self.take(self.number())
        if depth >= 63 or kind not in (LIST, SET, MAP, STRUCT):
            raise ValueError("too deep, or no type")
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind == MAP:
            size = self.size(self.number())
            kinds = self.take(1)[0] if size else 0
            pairs = [kinds >> 4, kinds & 15] * size
            return [self.value(each, depth + 1, True) for each in pairs]
        head = self.take(1)[0]
        size = self.size(self.number() if head >> 4 == 15 else head >> 4)
        return [self.value(head & 15, depth + 1, True) for _ in range(size)]

    def size(self, size: int) -> int:
        if not 0 <= size <= len(self.data):
            raise ValueError("more members than bytes")
        return size

    def struct(self, depth: int = 0) -> list[tuple[int, int, Any]]:
        members: list[tuple[int, int, Any]] = []
        field = 0
        while head := self.take(1)[0]:
            if head & 15 == 0:
                return members
            if head >> 4:
                field += head >> 4
            else:
                number = self.number() & (2**64 - 1)
                field = (number >> 1) ^ -(number & 1)
            members.append((field, head & 15, self.value(head & 15, depth)))
        return members


def footer_of(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def levels_of(data: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    schema = pq.ParquetFile(pa.BufferReader(data)).schema
    columns = [schema.column(index) for index in range(len(schema))]
    return (
        np.array([column.max_definition_level for column in columns], np.int64),
        np.array([column.max_repetition_level for column in columns], np.int64),
        np.array([column.physical_type == "BYTE_ARRAY" for column in columns]),
    )


def walk(footer: bytes, *levels: np.ndarray) -> int:
    return int(faulty_chunk(np.frombuffer(footer, np.uint8).copy(), *levels))


FILES = parquet_files()


@pytest.mark.parametrize("data", FILES)
def test_footers_of_pyarrow_fit_and_others_do_not(data: bytes) -> None:
    footer, (definition, repetition, is_bytes) = footer_of(data), levels_of(data)
    assert walk(footer, definition, repetition, is_bytes) == FITS
    statistics = [
        pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(index).statistics
        for index in range(len(is_bytes))
    ]
    if any(statistics):
        for changed in range(len(is_bytes)):
            more = definition + (np.arange(len(definition)) == changed)
            # Histograms of a column whose only level is 0 are left out.
            assert walk(footer, more, repetition, is_bytes) == (changed if definition[changed] else FITS)
    assert walk(footer, definition[:-1], repetition[:-1], is_bytes[:-1]) == len(is_bytes) - 1
    for end in range(len(footer)):
        assert walk(footer[:end], definition, repetition, is_bytes) in (MALFORMED, FITS)


def expected(footer: bytes, definition: np.ndarray, repetition: np.ndarray, is_bytes: np.ndarray) -> set[int]:
    """What may come out: every fault that there is, in whatever order."""
    try:
        file = Thrift(footer).struct()
    except ValueError:
        return {MALFORMED, *range(len(is_bytes) + 1)}
    found: set[int] = set()

    def members(struct: Any, field: int, kind: int) -> list[Any]:
        return [value for number, found_kind, value in struct if number == field and found_kind == kind]

    def lists(struct: Any, field: int) -> list[Any]:
        return members(struct, field, LIST) + members(struct, field, SET)

    for groups in lists(file, 4):
        for group in groups:
            for chunks in lists(group, 1) if isinstance(group, list) else []:
                if len(chunks) != len(is_bytes):
                    found.add(len(is_bytes))
                for number, chunk in enumerate(chunks[: len(is_bytes)]):
                    if any(field == 8 for field, _, _ in chunk):
                        found.add(number)
                    for column in members(chunk, 3, STRUCT):
                        for statistics in members(column, 16, STRUCT):
                            if any(field == 1 for field, _, _ in statistics) and not is_bytes[number]:
                                found.add(number)
                            for field, levels in ((2, repetition), (3, definition)):
                                sizes = [len(one) for one in lists(statistics, field)]
                                if any(size not in (0, levels[number] + 1) for size in sizes):
                                    found.add(number)
    return found or {FITS}


@given(st.integers(0, 2**32), st.sampled_from(range(len(FILES))))
def test_mutated_footers_are_judged_as_the_reference_does(seed: int, file: int) -> None:
    levels = levels_of(FILES[file])
    footer = mutated(footer_of(FILES[file]), random.Random(seed))
    assert walk(footer, *levels) in expected(footer, *levels)


@given(st.binary(max_size=40))
def test_any_bytes(footer: bytes) -> None:
    levels = (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.bool_))
    assert walk(footer, *levels) in expected(footer, *levels)


def test_a_file_that_would_end_the_process_is_a_file_fault(tmp_path: Path) -> None:
    """The definition level histogram of a column, [0, 3], gets one more level: pyarrow's C++ throws where none may."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), path, compression="none")
    data = path.read_bytes()
    footer = footer_of(data)
    histogram = b"\x19\x26\x00\x06"
    assert footer.count(histogram) >= 1
    grown = footer.replace(histogram, b"\x19\x36\x00\x06\x00")
    path.write_bytes(data[: -8 - len(footer)] + grown + len(grown).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FileFaultError, match="a chunk of column text does not fit the schema"):
        open_parquet(str(path))
