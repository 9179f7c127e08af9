"""Find ids that the user gave to more than one record: packed hashes, one shuffle, 16 bytes a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import xxhash

from corpus.batch import first_row_id
from corpus.packing import pack_arrays, unpack_arrays

# A quarter of what a group may have: the number of records that are not Parquet is an estimate.
GROUP_BYTES = 2 << 20


def id_partitions(planned_rows: int) -> int:
    """Return into how many partitions the ids of so many rows go."""
    return max(1, -(-planned_rows * 16 // GROUP_BYTES))


def pack_ids(key: int, records: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield (partition, packed (hash, row id)) for the ids of a batch that come from the user."""
    given = np.flatnonzero(~records.column("generated_id").to_numpy(zero_copy_only=False).astype(bool))
    if not len(given):
        return
    ids = records.column("record_id").take(given).to_pylist()
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(value.encode()) for value in ids), np.uint64, len(ids))
    parts = hashes % np.uint64(partitions)
    for part in np.unique(parts).tolist():
        chosen = np.flatnonzero(parts == part)
        yield part, pack_arrays([hashes[chosen], given[chosen] + first_row_id(key)])


def count_repeated(packed: Iterable[bytes]) -> tuple[int, int]:
    """Return (records whose id an earlier record has, row id of the first such record or -1) of one partition."""
    arrays = [unpack_arrays(data, (np.uint64, np.int64)) for data in packed]
    if not arrays:
        return 0, -1
    hashes = np.concatenate([array[0] for array in arrays])
    row_ids = np.concatenate([array[1] for array in arrays])
    order = np.lexsort((row_ids, hashes))
    repeated = np.flatnonzero(hashes[order][1:] == hashes[order][:-1]) + 1
    if not len(repeated):
        return 0, -1
    return len(repeated), int(row_ids[order][repeated].min())
