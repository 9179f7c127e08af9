"""The steps of a duplicate stage behind its proven edges: records and edges by component, and what becomes of them.

A group has the nodes and edges of the components of one partition. How many bytes each group would have is summed up
first: one that would exceed ``LARGEST_GROUP`` has references only (``dedup.cluster_resolution``), and one whose
references alone would exceed it fails by name before any engine builds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam import pvalue

from corpus.batch import first_row_id
from corpus.errors import ThresherError
from corpus.selection import merge_totals, pack_totals, unpack_totals
from dedup import components
from dedup.budget import limits
from dedup.cluster_resolution import (
    EDGES,
    HOME,
    NODES,
    ROW_BYTES,
    ROWS,
    Group,
    node_columns,
    pack_home,
    pack_nodes,
    pack_rows,
    resolve_clusters,
    unpack_members,
)
from dedup.cluster_verdicts import pack_selected, pack_units
from dedup.duplicates import LARGEST_GROUP, NODE_BYTES
from dedup.key_files import remove_keys
from dedup.labels import StagedComponents
from dedup.staged import edges_name, overflow_name, read_nodes, read_signatures
from dedup.verification import EDGE_BYTES, pack_edges, read_edges, unpack_edges
from pipelines.combining import OVERFLOW, StageCounts, large_groups, pack_counts
from pipelines.duplicates import COPIES, COUNTS, TOTALS, DuplicateStep, Keyed, bytes_of, records_in
from reports.closing import MEMBERS_FOUND, SHUFFLED, summary_name

Integers = npt.NDArray[np.int64]


class ComponentStep(DuplicateStep):
    """A step that finds the components of records.

    Side inputs are the totals of all records, sizes, and the forest where the stage has edges.
    """

    def labels_of(self, row_ids: Integers, forest: bytes) -> Integers:
        """Return the component of each record. Raises ThresherError where rounds have to find them first."""
        if forest != OVERFLOW:
            return components.labels_of(row_ids, forest)
        folder = self.job.folder
        found = StagedComponents.find(folder, self.name)
        if found is None:
            folder.write_bytes(overflow_name(self.name), b"{}")
            raise ThresherError(f"{self.name}: too many records are in clusters for one process to find these")
        return found.labels_of(row_ids)

    def partitions_of(self, labels: Integers, totals: bytes, forest: bytes) -> Integers:
        """Return the partition of the component of each of some records."""
        partitions = self.stage.cluster_partitions(records_in(totals))
        return components.partition_of(self.labels_of(labels, forest), partitions)


class SizeNodes(ComponentStep):
    """(Batch key, its rows that are in clusters) -> packed totals: nodes, and their bytes, by partition."""

    def process(self, element: tuple[int, Iterable[bytes]], totals: bytes, forest: bytes = b"") -> Iterator[bytes]:
        """Size one batch."""
        _, labels = unpack_members(element[1])
        parts, counts = np.unique(self.partitions_of(labels, totals, forest), return_counts=True)
        yield pack_totals(parts, counts, counts * NODE_BYTES)


class SizeEdges(ComponentStep):
    """(Home, edges) -> packed totals: no nodes, and the bytes of the edges, by partition."""

    def process(self, element: Keyed, totals: bytes, forest: bytes) -> Iterator[bytes]:
        """Size some edges."""
        table = unpack_edges([element[1]])
        firsts = np.ascontiguousarray(table[:, 0])
        parts, counts = np.unique(self.partitions_of(firsts, totals, forest), return_counts=True)
        yield pack_totals(parts, np.zeros(len(parts), np.int64), counts * EDGE_BYTES)


def too_large(node_sizes: bytes, edge_sizes: bytes) -> set[int]:
    """Return the partitions whose groups have references only, given the totals of all, none of edges as empty."""
    return large_groups(merge_totals([sizes for sizes in (node_sizes, edge_sizes) if sizes]), LARGEST_GROUP)


class LabelEdges(ComponentStep):
    """(Home, edges) -> (partition of their component, edges, or a reference to the home)."""

    def process(
        self, element: Keyed, totals: bytes, node_sizes: bytes, edge_sizes: bytes, forest: bytes
    ) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Deal out some edges."""
        home, data = element
        table = unpack_edges([data])
        parts = self.partitions_of(np.ascontiguousarray(table[:, 0]), totals, forest)
        large = too_large(node_sizes, edge_sizes)
        labelled = [
            (part, pack_home(home) if part in large else EDGES + pack_edges(table[parts == part]))
            for part in np.unique(parts).tolist()
        ]
        yield from labelled
        yield pvalue.TaggedOutput(COUNTS, pack_counts(edges=-len(data), labelled=bytes_of(labelled)))


class LabelNodes(ComponentStep):
    """(Batch key, its rows that are in clusters) -> (partition of their component, nodes, or references to them)."""

    def process(
        self,
        element: tuple[int, Iterable[bytes]],
        totals: bytes,
        node_sizes: bytes,
        edge_sizes: bytes = b"",
        forest: bytes = b"",
    ) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Read the nodes of one batch, as far as they are sent."""
        key, packed = element[0], list(element[1])
        self._check(node_sizes)
        large = too_large(node_sizes, edge_sizes)
        rows, labels = unpack_members(packed)
        parts = self.partitions_of(labels, totals, forest)
        row_ids = rows.astype(np.int64) + first_row_id(key)
        inline = ~np.isin(parts, list(large))
        table = None
        if inline.any():
            table = read_nodes(self.job.folder, self.name, row_ids[inline], node_columns(self.priorities))
        places = np.cumsum(inline) - 1
        nodes = []
        for part in np.unique(parts).tolist():
            chosen = np.flatnonzero(parts == part)
            if table is None or part in large:
                nodes.append((part, pack_rows(key, rows[chosen])))
            else:
                nodes.append((part, pack_nodes(row_ids[chosen], table.take(pa.array(places[chosen])))))
        yield from nodes
        yield pvalue.TaggedOutput(COUNTS, pack_counts(ends=-sum(map(len, packed)), nodes=bytes_of(nodes)))

    def _check(self, node_sizes: bytes) -> None:
        _, counts, _ = unpack_totals(node_sizes)
        most = LARGEST_GROUP // ROW_BYTES
        if len(counts) and counts.max() > most:
            raise ThresherError(
                f"{self.name}: {counts.max():,} records are in clusters that one process has to resolve together, more "
                f"than {most:,}; take equal texts out by exact_duplicates before, or set scope: source"
            )


class ResolveClusters(DuplicateStep):
    """(Partition, nodes and edges of its components) -> (batch key, verdicts); copies, their totals, edges counted."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Resolve one partition."""
        config, folder = self.stage.config, self.job.folder
        max_copies = None if config.max_copies == "off" else config.max_copies
        packed = list(element[1])
        read_staged = partial(read_nodes, folder, self.name, columns=node_columns(self.priorities))
        found = resolve_clusters(
            Group.of(packed), self.priorities, max_copies, config.keeps_copies, read_staged, self._edges_of
        )
        yield from found.verdicts
        for copies in found.copies:
            yield pvalue.TaggedOutput(COPIES, copies)
        yield pvalue.TaggedOutput(TOTALS, negative(found.copy_totals))
        sizes = dict.fromkeys((NODES, ROWS, EDGES, HOME), 0)
        for data in packed:
            sizes[data[:1]] += len(data)
        counts = pack_counts(
            at_threshold=found.edges,
            shuffled=sum(sizes.values()) + bytes_of(found.verdicts) + sum(map(len, found.copies)),
            members=found.members,
            nodes=-sizes[NODES] - sizes[ROWS],
            labelled=-sizes[EDGES] - sizes[HOME],
        )
        yield pvalue.TaggedOutput(COUNTS, counts)

    def _edges_of(self, home: int) -> Integers:
        return read_edges(self.job.folder, edges_name(self.name, home))[0]


def negative(totals: bytes) -> bytes:
    """Return totals that take away what they had."""
    numbers, counts, weights = unpack_totals(totals)
    return pack_totals(numbers, -counts, -weights)


class WriteSummary(DuplicateStep):
    """Sums of the counts, and the leaders' totals -> the file with what the report says of the stage as a whole."""

    def process(self, element: bytes, basis: bytes) -> Iterator[int]:
        """Write the file."""
        config = self.stage.config
        summary: dict[str, Any] = dict(self.stage.summary_details())
        counts = StageCounts.of(self.name, element)
        summary |= {SHUFFLED: counts.shuffled, MEMBERS_FOUND: counts.members}
        if self.stage.bands:
            summary["pairs"] = counts.pairs
        _, allowed = limits(config.budget, config.groups, basis)
        summary["limit"] = sum(allowed.tolist())
        summary["budget_unit"] = config.budget_unit
        name = summary_name(self.name)
        self.job.folder.write_bytes(name, json.dumps(summary, sort_keys=True).encode())
        remove_keys(self.job.folder, self.name)
        yield 1


class SendUnits(DuplicateStep):
    """(Batch key, its reference) -> (batch key, a verdict with the units of its rows). Waits until all are staged."""

    def process(self, element: Keyed, staged: bytes) -> Iterator[Keyed]:
        """Read one batch."""
        key = element[0]
        table = read_signatures(self.job.folder, self.name, key, ["row", "units"])
        yield key, pack_units(table.column("row").to_numpy(), table.column("units").to_numpy())


class Selected(beam.DoFn):  # type: ignore[misc]
    """(Batch key, packed row ids that are kept) -> (batch key, a verdict that says so)."""

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Pack one batch."""
        key, data = element
        yield key, pack_selected(key, np.frombuffer(data, np.int64))
