"""Stream the signals of a run: some columns, batch by batch, to all who count something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.folder import Folder
from corpus.hashing import sample_seed, value_hashes

SEED = 1
BATCH_ROWS = 1 << 16

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]


class SignalRows:
    """Some rows of the signals table, n records."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._numbers: dict[str, Floats] = {}

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column as it is stored."""
        return self.batch.column(name)

    def numbers(self, name: str) -> Floats:
        """Return a column of numbers as float64; NaN where it is null."""
        if name not in self._numbers:
            column = self.batch.column(name).cast(pa.float64())
            self._numbers[name] = column.to_numpy(zero_copy_only=False)
        return self._numbers[name]

    @cached_property
    def kept(self) -> Mask:
        """Which records were kept."""
        return np.asarray(self.batch.column("kept").to_numpy(zero_copy_only=False), np.bool_)

    @cached_property
    def keys(self) -> Keys:
        """A random but repeatable number for each record."""
        return row_keys(self.batch.column("file"), self.batch.column("position"))


def row_keys(files: pa.Array, positions: pa.Array) -> Keys:
    """Return a uniform 64-bit number per record that depends on its file, its position and ``SEED`` only."""
    encoded = files.dictionary_encode()
    seeds = np.array([sample_seed(file, SEED) for file in encoded.dictionary.to_pylist()], np.uint64)
    keys = value_hashes(positions)
    return keys ^ seeds[encoded.indices.to_numpy()] if len(seeds) else keys


def table_files(names: Sequence[str], table: str) -> list[str]:
    """Return the files of one of a run's tables, in order."""
    return sorted(name for name in names if name.startswith(f"{table}/"))


def row_count(folder: Folder, names: Sequence[str]) -> int:
    """Return the rows of Parquet files from their footers."""
    rows = 0
    for name in names:
        with folder.open_arrow(name) as source:
            rows += pq.ParquetFile(source).metadata.num_rows
    return rows


def stream(folder: Folder, names: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Parquet files in order, a bounded number at a time."""
    for name in names:
        with folder.open_arrow(name) as source:
            yield from pq.ParquetFile(source).iter_batches(BATCH_ROWS, columns=list(columns))


def smallest_per_group(groups: npt.NDArray[np.int64], orders: Sequence[Any], count: int) -> npt.NDArray[np.int64]:
    """Return which rows are among the first of their group, sorted by group and order.

    Args:
        groups: a number per row.
        orders: arrays of one value per row, the most important first; smaller values come first.
        count: rows to take of each group.
    """
    order = np.lexsort((*reversed(orders), groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.int64)
    places = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    taken: npt.NDArray[np.int64] = order[places < count]
    return taken


def group_numbers(values: pa.Array, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return for each value its place among names; -1 where it is not among them, or null."""
    found = pc.index_in(values, pa.array(names, pa.string()))
    numbers: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return numbers
