"""Find the rows of a record in the tables of a run without reading them whole.

Row groups whose least and largest value rule a value out are skipped; of the others one column is read first, and the
rest only where it has the value.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.folder import Folder
from reports.whatif_tables import parquet_file

NEAREST = 5
LONGEST = 64
"""Bytes of each end of an id that count where similar ids are looked for."""


def find_rows(
    folder: Folder, names: Sequence[str], column: str, value: str, positions: Collection[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of some files that have a text in a column, in order.

    Args:
        positions: where given, row groups without any of these positions are left out: ids that are hashes are
            everywhere between the least and the largest of a row group.
    """
    for name in names:
        with parquet_file(folder, name) as file:
            wanted = {column: [value], **({} if positions is None else {"position": positions})}
            places = {file.schema_arrow.get_field_index(one): values for one, values in wanted.items()}
            for group in range(file.num_row_groups):
                chunks = file.metadata.row_group(group)
                if all(_may_have(chunks.column(place), values) for place, values in places.items()):
                    yield from _rows_of_group(file, group, column, value)


def _rows_of_group(file: pq.ParquetFile, group: int, column: str, value: str) -> list[dict[str, Any]]:
    values = file.read_row_group(group, columns=[column])[column]
    places = np.flatnonzero(pc.fill_null(pc.equal(values, value), False).to_numpy())
    if not len(places):
        return []
    rows: list[dict[str, Any]] = file.read_row_group(group).take(pa.array(places)).to_pylist()
    return rows


def _may_have(chunk: pq.ColumnChunkMetaData, values: Collection[Any]) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return any(statistics.min <= value <= statistics.max for value in values)


def nearest_ids(folder: Folder, names: Sequence[str], wanted: str) -> list[str]:
    """Return the ids most like one that no record has.

    The distance of two ids is what is left of the longer one without the beginning and the end that they share, in
    bytes, capitals of ASCII not counting: one for a character that is wrong, lacking or too many.
    """
    best: list[tuple[int, str]] = []
    for name in names:
        with parquet_file(folder, name) as file:
            for group in range(file.num_row_groups):
                ids = file.read_row_group(group, columns=["record_id"])["record_id"].combine_chunks()
                ids = ids if isinstance(ids, pa.Array) else pa.concat_arrays(ids.chunks)
                distances = _distances(ids, wanted.encode("utf-8", "replace"))
                order = np.argsort(distances, kind="stable")[: 4 * NEAREST]
                found = {(int(distances[place]), ids[place].as_py()) for place in order.tolist()}
                best = heapq.nsmallest(NEAREST, {*best, *found})
    return [found for _, found in best]


def _distances(ids: pa.StringArray, wanted: bytes) -> npt.NDArray[np.int64]:
    offsets = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    data = _lower(np.frombuffer(ids.buffers()[2] or b"", np.uint8))
    own = _lower(np.frombuffer(wanted, np.uint8))
    lengths = np.diff(offsets)
    width = min(len(own), LONGEST)
    steps = np.arange(width)
    shortest = np.minimum(lengths, len(own))
    ends = []
    for places, tail in ((offsets[:-1, None] + steps, own[:width]), (offsets[1:, None] - 1 - steps, own[::-1][:width])):
        inside = steps < lengths[:, None]
        same = np.zeros(places.shape, np.bool_)
        same[inside] = (data[np.clip(places, 0, max(len(data) - 1, 0))] == tail)[inside] if len(data) else False
        ends.append(np.logical_and.accumulate(same, axis=1).sum(axis=1))
    distances: npt.NDArray[np.int64] = np.maximum(lengths, len(own)) - np.minimum(ends[0] + ends[1], shortest)
    return distances


def _lower(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    capital = (data >= ord("A")) & (data <= ord("Z"))
    return np.where(capital, data + 32, data).astype(np.uint8)
