"""Exact duplicates over packed hashes: fold per batch, resolve per partition.

A batch sends one entry per distinct hash, so that a text that stands everywhere costs one entry per batch, whatever its
number of copies. A partition sees every entry of its hashes and answers the batches whose texts stand more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpus.batch_layout import ROW_BITS
from corpus.packing import pack_arrays, pack_strings, unpack_arrays, unpack_strings

Hashes = npt.NDArray[np.void]
Integers = npt.NDArray[np.int64]

HASH = np.dtype("V16")
_ENTRY = (HASH, np.int64, np.int64, np.int64, np.int32, np.uint8)
_VERDICT = (HASH, np.int64, np.int64, np.int64, np.int32, np.uint8)


def _halves(hashes: Hashes) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(hashes).view(np.uint64).reshape(-1, 2)


def group_order(hashes: Hashes) -> tuple[Integers, Integers]:
    """Return (order, starts): rows sorted by hash, and where each distinct hash starts among them."""
    halves = _halves(hashes)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    ordered = halves[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(new)


def field_hashes(records: pa.RecordBatch, field: str) -> Hashes:
    """Return the 128-bit hash of each record's field; of all fields it is the content hash."""
    if field in ("text", "both"):
        column = records.column("content_hash")
        return np.frombuffer(column.buffers()[1], HASH, len(column), column.offset * HASH.itemsize)
    texts = records.column(field).to_pylist()
    return np.frombuffer(b"".join(xxhash.xxh3_128_digest((text or "").encode()) for text in texts), HASH)


def partition_of(hashes: Hashes, partitions: int) -> Integers:
    """Return the partition of each hash, 0 to ``partitions`` - 1."""
    parts: Integers = (_halves(hashes)[:, 0] % np.uint64(partitions)).astype(np.int64)
    return parts


def fold(
    hashes: Hashes, row_ids: Integers, positions: Integers, record_ids: list[bytes], partitions: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (partition, packed entries) of one batch's n rows: per distinct hash its first row and its number of rows.

    First is the smallest (record_id, row id); within a run row ids ascend with (file, position).
    """
    order, starts = group_order(hashes)
    counts = np.diff(np.append(starts, len(order)))
    first = order[starts].copy()
    for group in np.flatnonzero(counts > 1).tolist():
        members = order[starts[group] : starts[group] + counts[group]].tolist()
        first[group] = min(members, key=lambda row: (record_ids[row], row))
    parts = partition_of(hashes[first], partitions)
    for part in np.unique(parts).tolist():
        chosen = np.flatnonzero(parts == part)
        rows = first[chosen]
        ids = [record_ids[row] for row in rows.tolist()]
        yield part, pack_arrays([hashes[rows], row_ids[rows], positions[rows], counts[chosen], *pack_strings(ids)])


def resolve(packed: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (batch key, packed verdicts) for the hashes of one partition that stand more than once.

    A verdict is hash, row id, position, number of copies and record_id of the leader: the smallest (record_id, row id)
    of all.
    """
    columns: list[list[npt.NDArray[Any]]] = [[], [], [], []]
    ids: list[bytes] = []
    for data in packed:
        *numbers, lengths, blob = unpack_arrays(data, _ENTRY)
        for column, values in zip(columns, numbers, strict=True):
            column.append(values)
        ids.extend(unpack_strings(lengths, blob))
    if not ids:
        return
    hashes, row_ids, positions, counts = (np.concatenate(column) for column in columns)
    order, starts = group_order(hashes)
    sizes = np.diff(np.append(starts, len(order)))
    totals = np.add.reduceat(counts[order], starts)
    leaders = order[starts].copy()
    for group in np.flatnonzero(sizes > 1).tolist():
        members = order[starts[group] : starts[group] + sizes[group]].tolist()
        leaders[group] = min(members, key=lambda entry: (ids[entry], row_ids[entry]))
    entry_leader = np.empty(len(order), np.int64)
    entry_leader[order] = np.repeat(leaders, sizes)
    entry_total = np.empty(len(order), np.int64)
    entry_total[order] = np.repeat(totals, sizes)

    repeated = np.flatnonzero(entry_total > 1)
    keys = row_ids[repeated] >> ROW_BITS
    by_key = np.argsort(keys, kind="stable")
    repeated, keys = repeated[by_key], keys[by_key]
    borders = np.flatnonzero(np.diff(keys, prepend=-1, append=-1)) if len(keys) else np.zeros(0, np.int64)
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        entries = repeated[start:end]
        leader = entry_leader[entries]
        verdict = [hashes[entries], row_ids[leader], positions[leader], entry_total[entries]]
        leader_ids = pack_strings([ids[index] for index in leader.tolist()])
        yield int(keys[start]), pack_arrays([*verdict, *leader_ids])


def look_up(verdicts: Iterable[bytes]) -> dict[bytes, tuple[int, int, int, bytes]]:
    """Return hash -> (leader's row id, leader's position, copies, leader's record_id) of a batch's verdicts."""
    found: dict[bytes, tuple[int, int, int, bytes]] = {}
    for data in verdicts:
        hashes, leaders, positions, totals, lengths, blob = unpack_arrays(data, _VERDICT)
        values = zip(leaders.tolist(), positions.tolist(), totals.tolist(), unpack_strings(lengths, blob), strict=True)
        found.update(zip((item.tobytes() for item in hashes), values, strict=True))
    return found
