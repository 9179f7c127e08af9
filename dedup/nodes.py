"""Columns of the staged nodes as the arrays that the total order and the budget work on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.folder import Folder
from corpus.selection_keys import Hashes, Integers, RecordIds, Words
from dedup.leaders import record_ranks
from dedup.staged import read_nodes

# Records whose columns are read at a time: about 10 MB.
BLOCK = 1 << 16

ORDER_COLUMNS = ("protected", "characters", "content_hash", "record_id")


def priority_columns(count: int) -> list[str]:
    """Return the names of the columns with the words of so many priority keys."""
    return [f"priority_{index}" for index in range(count)]


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def hashes_of(column: pa.ChunkedArray | pa.Array) -> Hashes:
    """Return content hashes as V16[n]."""
    array = whole(column)
    return np.frombuffer(array.buffers()[1], "V16", len(array), 16 * array.offset)


def priorities_of(table: pa.Table, count: int) -> list[Words]:
    """Return the words of the priority keys, uint64[n] each."""
    return [whole(table[name]).to_numpy() for name in priority_columns(count)]


def protected_of(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which records always stay, bool[n]."""
    return whole(table["protected"]).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def record_ids_of(table: pa.Table) -> RecordIds:
    """Return the ids of the records."""
    return RecordIds.from_arrow(whole(table["record_id"]))


def ranks_of(table: pa.Table, row_ids: Integers, priorities: int) -> Integers:
    """Return the place of each record in the total order, int64[n]; the table has ``ORDER_COLUMNS`` and priorities."""
    return record_ranks(
        protected_of(table),
        priorities_of(table, priorities),
        whole(table["characters"]).to_numpy(),
        hashes_of(table["content_hash"]),
        record_ids_of(table),
        row_ids,
    )


def staged_ranks(folder: Folder, stage: str, priorities: int, row_ids: Integers) -> Integers:
    """Return the place of each of some staged records in their total order, int64[n]; each row id once."""
    ascending = np.argsort(row_ids)
    table = read_nodes(folder, stage, row_ids[ascending], [*ORDER_COLUMNS, *priority_columns(priorities)])
    places = np.empty(len(row_ids), np.int64)
    places[ascending] = ranks_of(table, row_ids[ascending], priorities)
    return places


def earliest(folder: Folder, stage: str, priorities: int, count: int, row_ids: Integers) -> Integers:
    """Return so many staged records, ascending: the first of any number in the total order; given ascending row ids."""
    first = row_ids[:0]
    for start in range(0, len(row_ids), BLOCK):
        first = np.concatenate([first, row_ids[start : start + BLOCK]])
        first = np.sort(first[staged_ranks(folder, stage, priorities, first) < count])
    return first


def best_copies(folder: Folder, stage: str, priorities: int, row_ids: Integers, starts: Integers) -> Integers:
    """Return of each group of staged records the first one in the total order, int64[k].

    Args:
        row_ids: int64[n], the groups one behind the other, each row id once.
        starts: int64[k], where each group starts.
    """
    groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(row_ids))))
    best = row_ids[starts]
    # A group that does not lie in one block has its first of each block left, which meet in the next round.
    while len(row_ids):
        several = np.bincount(groups)[groups] > 1
        best[groups[~several]] = row_ids[~several]
        row_ids, groups = row_ids[several], groups[several]
        left = [np.zeros(0, np.int64)]
        for start in range(0, len(row_ids), BLOCK):
            of_block = groups[start : start + BLOCK]
            order = np.lexsort((staged_ranks(folder, stage, priorities, row_ids[start : start + BLOCK]), of_block))
            left.append(start + order[np.append(True, np.diff(of_block[order]) != 0)])
        row_ids, groups = row_ids[np.concatenate(left)], groups[np.concatenate(left)]
    return best
