"""What the near-duplicate stage keeps of a batch in staging: signatures, order, and shingles of candidates.

``staging/near-STAGE/signatures/KEY.arrow`` has a row per record that entered the stage: its signature and what the
total order and the budget need. ``staging/near-STAGE/shingles/KEY.arrow`` has the sorted set of shingle hashes of each
candidate. Neither is compressed (hashes do not compress), so that local readers map them into memory and touch the rows
that they need only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.folder import TEMPORARY, Folder
from corpus.staging import stem

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Signatures = npt.NDArray[np.uint32]

# Object stores give whole files, which are worth keeping for the next few groups.
CACHED_FILES = 8


def signature_schema(permutations: int, priorities: int) -> pa.Schema:
    """Return the columns of a signatures file.

    ``signature`` is the MinHash of ``permutations`` little-endian uint32 (without a meaning where ``has_tokens`` is
    false, and left out for 0 permutations); ``priority_I`` are words that sort like the priority keys; ``group`` is a
    number (``corpus.selection_keys``); ``units`` are what the budget counts.
    """
    signature = [pa.field("signature", pa.binary(4 * permutations))] if permutations else []
    return pa.schema(
        [
            pa.field("row", pa.int32()),
            *signature,
            pa.field("has_tokens", pa.bool_()),
            pa.field("content_hash", pa.binary(16)),
            pa.field("characters", pa.int64()),
            pa.field("units", pa.int64()),
            pa.field("protected", pa.bool_()),
            *(pa.field(f"priority_{index}", pa.uint64()) for index in range(priorities)),
            pa.field("group", pa.int64()),
            pa.field("position", pa.int64()),
            pa.field("record_id", pa.string()),
        ]
    )


def _name(stage: str, kind: str, key: int) -> str:
    return f"staging/near-{stage}/{kind}/{stem(key)}.arrow"


def write_signatures(folder: Folder, stage: str, key: int, file: str, table: pa.RecordBatch) -> None:
    """Store the signatures of a batch; ``file`` is the display path of its file."""
    _write(folder, _name(stage, "signatures", key), table.replace_schema_metadata({"file": file}))


def write_shingles(folder: Folder, stage: str, key: int, rows: Integers, offsets: Integers, hashes: Hashes) -> None:
    """Store the sorted shingle hashes of candidates.

    Args:
        rows: int64[n], ascending.
        offsets, hashes: the set of candidate i is ``hashes[offsets[i]:offsets[i + 1]]``.
    """
    columns = [
        pa.array(rows, pa.int32()),
        pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(hashes, pa.uint64())),
    ]
    _write(folder, _name(stage, "shingles", key), pa.RecordBatch.from_arrays(columns, names=["row", "hashes"]))


def edges_name(stage: str, home: int) -> str:
    """Return the name of the file with the edges of a home."""
    return f"staging/near-{stage}/edges/{home:016x}.bin"


def edge_files(folder: Folder, stage: str) -> list[str]:
    """Return the names of all files with edges."""
    return [name for name in folder.names(f"staging/near-{stage}/edges") if TEMPORARY not in name]


def pairs_name(stage: str, number: int, part: int) -> str:
    """Return the name of a partition's pairs after a round of finding components; round 0 is before the first."""
    return f"staging/near-{stage}/pairs-{number}/{part:06d}.bin"


def components_name(stage: str) -> str:
    """Return the name of the file that says that the components were found by rounds, and where they are."""
    return f"staging/near-{stage}/components.json"


def overflow_name(stage: str) -> str:
    """Return the name of the file that says that a forest was too large for one process."""
    return f"staging/near-{stage}/overflow.json"


def _write(folder: Folder, name: str, batch: pa.RecordBatch) -> None:
    with folder.writing(name) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


@lru_cache(maxsize=CACHED_FILES)
def _read_remote(root: str, run: str, name: str) -> pa.RecordBatch:
    with Folder(root, run).open_arrow(name) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _read(folder: Folder, name: str) -> pa.RecordBatch:
    if not folder.is_local:
        return _read_remote(folder.root, folder.run, name)
    return pa.ipc.open_file(folder.open_arrow(name)).get_batch(0)


def read_signatures(folder: Folder, stage: str, key: int) -> pa.RecordBatch:
    """Return the signatures file of a batch."""
    return _read(folder, _name(stage, "signatures", key))


def _by_batch(row_ids: Integers) -> Iterator[tuple[int, Integers, Integers]]:
    """Yield (batch key, places in ``row_ids``, rows within the batch) for ascending row ids."""
    keys, rows = row_ids >> ROW_BITS, row_ids & (MAX_ROWS - 1)
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True):
        yield int(keys[start]), np.arange(start, end), rows[start:end]


def _places(batch: pa.RecordBatch, rows: Integers) -> Integers:
    return np.searchsorted(batch.column("row").to_numpy(), rows)


def read_nodes(folder: Folder, stage: str, row_ids: Integers, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the signatures files, for ascending row ids, in their order."""
    parts = []
    for key, _, rows in _by_batch(row_ids):
        batch = read_signatures(folder, stage, key).select(columns_of(columns))
        taken = batch.take(pa.array(_places(batch, rows)))
        parts.append(pa.Table.from_batches([taken.select(list(columns)).replace_schema_metadata(None)]))
    return pa.concat_tables(parts).combine_chunks()


def columns_of(columns: Sequence[str]) -> list[str]:
    """Return the columns to read for some columns: ``row`` leads to the others."""
    return list(dict.fromkeys(["row", *columns]))


def signature_matrix(column: pa.ChunkedArray | pa.FixedSizeBinaryArray, permutations: int) -> Signatures:
    """Return signatures as uint32[n, permutations]; rows without one are 0."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    data = np.frombuffer(array.buffers()[1], np.uint32, len(array) * permutations, 4 * permutations * array.offset)
    return data.reshape(-1, permutations)


def shingle_counts(folder: Folder, stage: str, row_ids: Integers) -> Integers:
    """Return how many shingles each record has, int64[n], for ascending row ids."""
    counts = np.zeros(len(row_ids), np.int64)
    for key, places, rows in _by_batch(row_ids):
        batch = _read(folder, _name(stage, "shingles", key))
        offsets = batch.column("hashes").offsets.to_numpy()
        found = _places(batch, rows)
        counts[places] = offsets[found + 1] - offsets[found]
    return counts


def read_shingles(folder: Folder, stage: str, row_ids: Integers) -> tuple[Integers, Hashes]:
    """Return (offsets, hashes) of the shingle sets of n records, for ascending row ids: int64[n + 1] and uint64."""
    offsets = np.append(0, np.cumsum(shingle_counts(folder, stage, row_ids)))
    hashes = np.empty(offsets[-1], np.uint64)
    for key, places, rows in _by_batch(row_ids):
        batch = _read(folder, _name(stage, "shingles", key))
        lists = batch.column("hashes")
        borders, values = lists.offsets.to_numpy(), lists.values.to_numpy()
        for place, index in zip(places.tolist(), _places(batch, rows).tolist(), strict=True):
            hashes[offsets[place] : offsets[place + 1]] = values[borders[index] : borders[index + 1]]
    return offsets, hashes
