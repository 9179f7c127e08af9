"""What a duplicate stage keeps of a batch in staging, and the names of its files; shingles: ``dedup.candidates``.

``staging/near-STAGE/nodes/KEY.arrow`` has a row per record that entered the stage: what its keys, the total order and
the budget need; ``signatures/KEY.arrow`` has their signatures, which are most of the bytes and are needed less often.
Neither is compressed (hashes do not compress), so that local readers map files into memory and touch the rows that they
need only. Object stores give whole files, one read each, of which a process keeps ``CACHED_BYTES``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.folder import TEMPORARY, Folder
from corpus.staging import stem
from dedup.byte_cache import ByteCache

Integers = npt.NDArray[np.int64]
Signatures = npt.NDArray[np.uint32]

SIGNATURE = "signature"
CACHED_BYTES = 64 << 20
_FILES = ByteCache(CACHED_BYTES)


def signature_schema(permutations: int, priorities: int, is_scoped: bool) -> pa.Schema:
    """Return the columns of the signatures and nodes of a batch.

    ``signature`` is the MinHash of ``permutations`` little-endian uint32 (without a meaning where ``has_tokens`` is
    false, and left out for 0 permutations), which lies in the file of signatures beside ``row``. All others lie in
    that of nodes: ``priority_I`` are words that sort like the priority keys; ``group`` is a number
    (``corpus.selection_keys``); ``units`` are what the budget counts; ``scope`` is a hash of the source, where only
    records of one source are compared.
    """
    signature = [pa.field(SIGNATURE, pa.binary(4 * permutations))] if permutations else []
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
            *([pa.field("scope", pa.uint64())] if is_scoped else []),
        ]
    )


def nodes_folder(stage: str) -> str:
    """Return the name of the folder with the nodes of all batches."""
    return f"staging/near-{stage}/nodes"


def _nodes_name(stage: str, key: int) -> str:
    return f"{nodes_folder(stage)}/{stem(key)}.arrow"


def _signatures_name(stage: str, key: int) -> str:
    return f"staging/near-{stage}/signatures/{stem(key)}.arrow"


def write_signatures(folder: Folder, stage: str, key: int, file: str, table: pa.RecordBatch) -> None:
    """Store the signatures and nodes of a batch, ``signature_schema``; ``file`` is the display path of its file."""
    table = table.replace_schema_metadata({"file": file})
    names = table.schema.names
    if SIGNATURE in names:
        _write(folder, _signatures_name(stage, key), table.select(["row", SIGNATURE]))
    _write(folder, _nodes_name(stage, key), table.select([name for name in names if name != SIGNATURE]))


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


def _read(folder: Folder, name: str) -> pa.RecordBatch:
    if folder.is_local:
        return pa.ipc.open_file(folder.open_arrow(name)).get_batch(0)
    data = _FILES.get((folder.root, folder.run, name), lambda: folder.read_bytes(name))
    return pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)


def read_signatures(folder: Folder, stage: str, key: int, columns: Sequence[str]) -> pa.RecordBatch:
    """Return some columns of the signatures and nodes of a batch; only files that have them are read."""
    of_nodes = [name for name in columns if name != SIGNATURE]
    if SIGNATURE not in columns:
        return _read(folder, _nodes_name(stage, key)).select(of_nodes)
    signatures = _read(folder, _signatures_name(stage, key))
    if not set(of_nodes) - {"row"}:
        return signatures.select(list(columns))
    nodes = _read(folder, _nodes_name(stage, key)).select(of_nodes)
    return nodes.append_column(SIGNATURE, signatures.column(SIGNATURE)).select(list(columns))


def by_batch(row_ids: Integers) -> Iterator[tuple[int, Integers, Integers]]:
    """Yield (batch key, places in ``row_ids``, rows within the batch) for ascending row ids."""
    keys, rows = row_ids >> ROW_BITS, row_ids & (MAX_ROWS - 1)
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True):
        yield int(keys[start]), np.arange(start, end), rows[start:end]


def _places(batch: pa.RecordBatch, rows: Integers) -> Integers:
    return np.searchsorted(batch.column("row").to_numpy(), rows)


def read_nodes(folder: Folder, stage: str, row_ids: Integers, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the signatures and nodes, for ascending row ids, in their order."""
    parts = []
    for key, _, rows in by_batch(row_ids):
        batch = read_signatures(folder, stage, key, columns_of(columns))
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
