"""Leaders and copies of whole components: the group of a partition of components.

A group has *nodes*, the records in it with what order and budget need, and the verified *edges* between them. Records
of one content hash are one node of the walk that finds leaders, so the stars between them need no edges here.

A component is never cut. Where a group would have more bytes than a group may (a template with hundreds of thousands of
records is one component), it has *references* only: rows of batches (``ROW_BYTES`` each) and homes (``HOME_BYTES``
each), whose nodes and edges are then read from staging by the one process that resolves the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import first_row_id
from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.packing import pack_arrays, unpack_arrays
from corpus.selection import pack_totals
from dedup.budget import copy_entries
from dedup.cluster_verdicts import OVER_BUDGET, OVER_MAX_COPIES, STAYS, UNDECIDED, ClusterRows
from dedup.leaders import find_clusters
from dedup.nodes import (
    ORDER_COLUMNS,
    hashes_of,
    priorities_of,
    priority_columns,
    protected_of,
    ranks_of,
    record_ids_of,
    whole,
)
from dedup.verification import unpack_edges

Integers = npt.NDArray[np.int64]

NODES, EDGES, ROWS, HOME = b"n", b"e", b"r", b"h"
"""What a value of a group is: nodes, edges, or references to the nodes of a batch or to the edges of a home."""
ROW_BYTES, HOME_BYTES = 4, 9
COPIES_PER_ELEMENT = 1 << 16
# Edges that are taken in before repeats are taken out, beyond those that are known: 8 MiB.
PENDING_EDGES = 1 << 18


def node_columns(priorities: int) -> list[str]:
    """Return the columns of a node, in the order of ``pack_nodes``."""
    return [*ORDER_COLUMNS, "units", "group", "position", *priority_columns(priorities)]


def pack_nodes(row_ids: Integers, table: pa.Table) -> bytes:
    """Return nodes as bytes; the table has ``node_columns``."""
    with_ids = table.add_column(0, "row_id", pa.array(row_ids)).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, with_ids.schema) as writer:
        writer.write_table(with_ids)
    return NODES + sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def pack_rows(key: int, rows: npt.NDArray[np.int32]) -> bytes:
    """Return a reference to the nodes of some rows of a batch."""
    return b"".join([ROWS, key.to_bytes(8, "little"), rows.tobytes()])


def pack_home(home: int) -> bytes:
    """Return a reference to the edges of a home."""
    return HOME + home.to_bytes(8, "little")


@dataclass(frozen=True)
class Group:
    """The values of a group by what they are.

    Attributes:
        nodes, edges: packed, without prefixes.
        row_ids: ascending, of the nodes that are only referred to.
        homes: ascending, those whose edges are only referred to; they have edges of other groups as well.
    """

    nodes: list[memoryview]
    edges: list[memoryview]
    row_ids: Integers
    homes: list[int]

    @staticmethod
    def of(values: Iterable[bytes]) -> Group:
        """Sort out the values of a group, in whatever order they come."""
        parts: dict[bytes, list[memoryview]] = {NODES: [], EDGES: [], ROWS: [], HOME: []}
        for value in values:
            parts[value[:1]].append(memoryview(value)[1:])
        row_ids = [np.zeros(0, np.int64)]
        for data in parts[ROWS]:
            key = int.from_bytes(data[:8], "little")
            row_ids.append(first_row_id(key) + np.frombuffer(data, np.int32, offset=8).astype(np.int64))
        homes = {int.from_bytes(data, "little") for data in parts[HOME]}
        return Group(parts[NODES], parts[EDGES], np.unique(np.concatenate(row_ids)), sorted(homes))


def _nodes(parts: Iterable[memoryview], staged: pa.Table | None) -> pa.Table:
    tables = [pa.ipc.open_stream(pa.py_buffer(part)).read_all() for part in parts]
    if staged is not None:
        tables.append(staged)
    table = pa.concat_tables(tables).combine_chunks()
    # A record that is in a star and in an edge is named twice.
    row_ids = whole(table["row_id"]).to_numpy()
    _, first = np.unique(row_ids, return_index=True)
    return table.take(pa.array(first)).combine_chunks()


def _once(tables: list[Integers]) -> Integers:
    edges = np.concatenate(tables)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    new = np.append(True, (edges[1:, :2] != edges[:-1, :2]).any(axis=1))
    distinct: Integers = edges[new[: len(edges)]]
    return distinct


def _distinct(tables: Iterable[Integers]) -> Integers:
    """Return each edge once: a pair that shares cliques of several homes was proven in each of them.

    Pages of one template share most of their bands, so repeats are taken out on the way.
    """
    distinct, pending, waiting = unpack_edges([]), [], 0
    for table in tables:
        pending.append(table)
        waiting += len(pending[-1])
        if waiting > len(distinct) + PENDING_EDGES:
            distinct, pending, waiting = _once([distinct, *pending]), [], 0
    return _once([distinct, *pending])


def _between(edges: Integers, row_ids: Integers) -> Integers:
    """Return the edges of the nodes of a group, given ascending row ids: components are whole, so one end tells."""
    places = np.searchsorted(row_ids, edges[:, 0]) % len(row_ids)
    own: Integers = edges[row_ids[places] == edges[:, 0]]
    return own


@dataclass(frozen=True)
class Resolved:
    """What became of the records of a group.

    Attributes:
        verdicts: (batch key, packed verdicts).
        copies: packed entries of the copies that the budget may keep, in parts; none where there is no budget.
        copy_totals: packed totals of all copies per group of the budget: they are no leaders.
        edges: number of distinct edges.
        members: records in clusters of two and more.
    """

    verdicts: list[tuple[int, bytes]]
    copies: list[bytes]
    copy_totals: bytes
    edges: int
    members: int


def resolve_clusters(
    group: Group,
    priorities: int,
    max_copies: int | None,
    keeps_copies: bool,
    read_staged: Callable[[Integers], pa.Table],
    edges_of: Callable[[int], Integers],
) -> Resolved:
    """Return leaders, copies and verdicts for a group of whole components.

    Args:
        group: nodes, edges and references.
        priorities: number of priority keys.
        max_copies: largest copy index that may stay; None for no bound.
        keeps_copies: whether a budget lets copies stay.
        read_staged: gives the nodes of ascending row ids, with ``node_columns``.
        edges_of: gives the edges of a home, int64[m, 4].
    """
    staged = None
    if len(group.row_ids):
        staged = read_staged(group.row_ids).add_column(0, "row_id", pa.array(group.row_ids))
    if not group.nodes and staged is None:
        return Resolved([], [], pack_totals(*(np.zeros(0, np.int64) for _ in range(3))), 0, 0)
    table = _nodes(group.nodes, staged)
    row_ids = whole(table["row_id"]).to_numpy()
    edges = _distinct(
        chain(
            (unpack_edges([data]) for data in group.edges),
            (_between(edges_of(home), row_ids) for home in group.homes),
        )
    )
    hashes = hashes_of(table["content_hash"])
    halves = np.ascontiguousarray(hashes).view(np.uint64).reshape(-1, 2)
    numbers = np.unique(halves, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    first, second = (numbers[np.searchsorted(row_ids, edges[:, place])] for place in (0, 1))
    clusters = find_clusters(
        ranks_of(table, row_ids, priorities),
        numbers,
        protected_of(table),
        first,
        second,
        edges[:, 2] / np.maximum(edges[:, 3], 1),
    )
    states = np.full(len(row_ids), STAYS, np.uint8)
    is_copy = clusters.copy_index > 0
    states[is_copy] = UNDECIDED if keeps_copies else OVER_BUDGET
    if max_copies is not None:
        states[clusters.copy_index > max_copies] = OVER_MAX_COPIES
    ids = record_ids_of(table)
    positions = whole(table["position"]).to_numpy()
    members = np.flatnonzero(clusters.sizes > 1)
    leaders = clusters.leaders[members]
    rows = ClusterRows(
        row_ids[members],
        row_ids[leaders],
        positions[leaders],
        ids.take(leaders),
        clusters.jaccard[members],
        clusters.sizes[members],
        clusters.copy_index[members],
        states[members],
    )
    groups, weights = whole(table["group"]).to_numpy(), whole(table["units"]).to_numpy()
    copies = np.flatnonzero(is_copy)
    totals = pack_totals(groups[copies], np.ones(len(copies), np.int64), weights[copies])
    packed = []
    if keeps_copies and len(copies):
        entries = copy_entries(
            clusters, groups, weights, priorities_of(table, priorities), hashes, ids, row_ids, max_copies
        )
        starts = range(0, len(entries), COPIES_PER_ELEMENT)
        places = np.arange(len(entries))
        packed = [entries.take(places[start : start + COPIES_PER_ELEMENT]).pack() for start in starts]
    return Resolved(
        rows.by_batch(),
        packed,
        totals,
        len(edges),
        len(members),
    )


def pack_members(rows: npt.NDArray[np.int32], labels: Integers) -> bytes:
    """Return rows of a batch that are in clusters, each with a row id whose component is its own."""
    return pack_arrays([labels, rows])


def unpack_members(parts: Iterable[bytes]) -> tuple[npt.NDArray[np.int32], Integers]:
    """Return all (rows, row ids), each row once, ascending."""
    unpacked = [unpack_arrays(part, (np.int64, np.int32)) for part in parts]
    labels = np.concatenate([labels for labels, _ in unpacked])
    rows = np.concatenate([rows for _, rows in unpacked])
    # The smallest: a record of a star is labelled by the star's first record, which has the edges.
    order = np.lexsort((labels, rows))
    rows, labels = rows[order], labels[order]
    first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1])[: len(rows)])
    return rows[first], labels[first]


def members_by_batch(row_ids: Integers, labels: Integers) -> Iterator[tuple[int, bytes]]:
    """Yield (batch key, packed members) for records in clusters, each with a row id whose component is its own."""
    keys = row_ids >> ROW_BITS
    order = np.argsort(keys, kind="stable")
    keys, row_ids, labels = keys[order], row_ids[order], labels[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    for start, end in pairwise([*starts.tolist(), len(keys)]):
        rows = (row_ids[start:end] & (MAX_ROWS - 1)).astype(np.int32)
        yield int(keys[start]), pack_members(rows, labels[start:end])
