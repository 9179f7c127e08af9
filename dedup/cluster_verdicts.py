"""Verdicts on clusters: packed per batch where leaders are found, applied where a pass takes the batch up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import first_row_id, split_chunk_key, split_row_id
from corpus.batch_layout import ROW_BITS
from corpus.hashing import content_hashes, hex_hashes
from corpus.packing import pack_arrays, unpack_arrays
from corpus.selection_keys import RecordIds
from corpus.stages import CorpusVerdict

Integers = npt.NDArray[np.int64]

STAYS, OVER_BUDGET, OVER_MAX_COPIES, UNDECIDED = 0, 1, 2, 3
"""A record stays; leaves by the budget; leaves by max_copies; stays if the selection of the budget has it."""

CLUSTERS, SELECTED, UNITS = b"c", b"s", b"u"
_CLUSTERS = (np.int64, np.int64, np.float64, np.int64, np.int64, np.int32, np.uint8, np.int32, np.uint8)


def hashed_places(files: pa.StringArray, positions: Integers) -> pa.StringArray:
    """Return the ids of n clusters: hashes (XXH3, 128 bits, as hex digits) of their leaders' files and positions."""
    places = pc.binary_join_element_wise(files, pc.cast(pa.array(positions), pa.string()), "#")
    return hex_hashes(content_hashes([places]))


@dataclass(frozen=True)
class ClusterRows:
    """Members of clusters of two and more, n rows.

    Attributes:
        row_ids, leaders: int64[n], row ids of members and of their leaders.
        positions, ids: of the leaders.
        jaccard: float64[n], similarity with the leader.
        sizes, copy_index: int64[n].
        states: uint8[n].
    """

    row_ids: Integers
    leaders: Integers
    positions: Integers
    ids: RecordIds
    jaccard: npt.NDArray[np.float64]
    sizes: Integers
    copy_index: Integers
    states: npt.NDArray[np.uint8]

    def by_batch(self) -> list[tuple[int, bytes]]:
        """Return (batch key, packed verdicts)."""
        keys = self.row_ids >> ROW_BITS
        found = []
        for key in np.unique(keys).tolist():
            chosen = np.flatnonzero(keys == key)
            ids = self.ids.take(chosen)
            rows = (self.row_ids[chosen] - first_row_id(key)).astype(np.int32)
            columns = [self.leaders, self.positions, self.jaccard, self.sizes, self.copy_index]
            arrays: list[npt.NDArray[Any]] = [column[chosen] for column in columns]
            arrays += [rows, self.states[chosen], ids.lengths, ids.data]
            found.append((key, CLUSTERS + pack_arrays(arrays)))
        return found


def pack_selected(key: int, row_ids: Integers) -> bytes:
    """Return the rows of a batch that a selection keeps."""
    return SELECTED + (row_ids - first_row_id(key)).astype(np.int32).tobytes()


def pack_units(rows: npt.NDArray[np.int32], units: Integers) -> bytes:
    """Return what the budget counts of the rows of a batch, int32[n] and int64[n], as bytes."""
    return UNITS + pack_arrays([units, rows])


def apply_verdicts(
    key: int,
    records: pa.RecordBatch,
    alive: npt.NDArray[np.bool_],
    verdicts: Sequence[bytes],
    file_of: Callable[[int], str],
    has_max_copies: bool,
    has_units: bool = False,
) -> CorpusVerdict:
    """Return what became of the rows of a batch, given its packed verdicts in any order.

    Args:
        has_max_copies: whether the stage has the rule ``max_copies``.
        has_units: whether it has the signal ``units``, and each row its units among the verdicts.
    """
    length = len(alive)
    leaders, positions = np.full(length, -1), np.full(length, -1)
    jaccard, sizes, copy_index = np.zeros(length), np.ones(length, np.int64), np.zeros(length, np.int64)
    states, units = np.zeros(length, np.uint8), np.ones(length, np.int64)
    ids: list[str | None] = [None] * length
    selected = np.zeros(length, np.bool_)
    for verdict in verdicts:
        if verdict[:1] == SELECTED:
            selected[np.frombuffer(verdict, np.int32, offset=1)] = True
            continue
        if verdict[:1] == UNITS:
            counted, rows = unpack_arrays(verdict[1:], (np.int64, np.int32))
            units[rows] = counted
            continue
        leader, position, similarity, size, index, rows, state, lengths, data = unpack_arrays(verdict[1:], _CLUSTERS)
        leaders[rows], positions[rows], jaccard[rows] = leader, position, similarity
        sizes[rows], copy_index[rows], states[rows] = size, index, state
        names = RecordIds.from_lengths(lengths, data)
        for place, row in enumerate(rows.tolist()):
            ids[row] = names.value(place).decode()
    states[(states == UNDECIDED) & selected] = STAYS
    states[states == UNDECIDED] = OVER_BUDGET
    own = records.column("position").to_numpy()
    is_copy = copy_index > 0
    of_leaders = [file_of(split_chunk_key(split_row_id(leader)[0])[0]) for leader in leaders[is_copy].tolist()]
    files = pa.repeat(file_of(split_chunk_key(key)[0]), length)
    if of_leaders:
        files = pc.replace_with_mask(files, pa.array(is_copy), pa.array(of_leaders, pa.string()))
    cluster_ids = hashed_places(files, np.where(is_copy, positions, own))
    failures = np.zeros(length, np.int64)
    failures[states == OVER_BUDGET] = 1
    if has_max_copies:
        failures[states == OVER_MAX_COPIES] = 2
    dead = ~alive
    left = failures != 0
    signals = {
        "cluster_id": pc.if_else(pa.array(alive), cluster_ids, pa.scalar(None, pa.string())),
        "cluster_size": pa.array(sizes, mask=dead),
        "copy_index": pa.array(copy_index, mask=dead),
        "jaccard": pa.array(jaccard, mask=dead | ~is_copy),
    }
    if has_units:
        signals["units"] = pa.array(units, mask=dead)
    return CorpusVerdict(
        signals=signals,
        failures=failures,
        related=pa.array(leaders, mask=~left),
        related_id=pa.array(ids, pa.string(), mask=~left),
        related_position=pa.array(positions, mask=~left),
    )
