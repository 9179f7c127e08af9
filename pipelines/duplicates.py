"""The steps of a duplicate stage; ``pipelines.duplicate_graph`` puts them together.

Cliques, edges and nodes are packed arrays. Signatures and the shingles of candidates lie in staging and are read where
they are compared, so that a record's shingles are not sent once per clique. Each step counts the bytes that it gets and
sends, and the sums must come out even: an engine that loses a part of a group would otherwise go unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam import pvalue

from corpus.batch import first_row_id
from corpus.errors import ThresherError
from corpus.folder import Folder
from corpus.selection import pack_totals, unpack_totals
from corpus.stages import Stage
from corpus.staging import ChunkReference, read_current, read_records
from corpus.verdicts import entering_texts
from dedup import components
from dedup.budget import limits
from dedup.cluster_resolution import EDGES as EDGES_PREFIX
from dedup.cluster_resolution import NODES as NODES_PREFIX
from dedup.cluster_resolution import members_by_batch, node_columns, pack_nodes, resolve_clusters, unpack_members
from dedup.cluster_verdicts import pack_selected
from dedup.duplicates import DuplicateStage
from dedup.labels import StagedComponents
from dedup.nodes import earliest, hashes_of
from dedup.proposals import pack_entries, propose
from dedup.signature_tables import group_totals
from dedup.staged import edges_name, overflow_name, read_nodes, write_shingles, write_signatures
from dedup.verification import ANCHORS, Verifier, pack_edges, read_edges, unpack_edges, write_edges
from pipelines.combining import (
    EDGES_PER_ELEMENT,
    OVERFLOW,
    StageCounts,
    pack_counts,
)
from reports.closing import MEMBERS_FOUND, SHUFFLED, summary_name

Keyed = tuple[int, bytes]

CLIQUES, CANDIDATES, MEMBERS, EDGES, COUNTS = "cliques", "candidates", "members", "edges", "counts"
VERDICTS, COPIES, TOTALS, MAIN = "verdicts", "copies", "totals", "main"
REFERENCE, ROWS = b"r", b"c"


class Context(Protocol):
    """What the steps need to know of the run."""

    @property
    def planned_rows(self) -> int:
        """Rows that the plan expects."""

    @property
    def folder(self) -> Folder:
        """The run folder."""

    def stage(self, name: str) -> Stage:
        """Return a stage, not prepared."""


class DuplicateStep(beam.DoFn):  # type: ignore[misc]
    """A step of a duplicate stage."""

    def __init__(self, job: Context, name: str) -> None:
        self.job = job
        self.name = name

    def setup(self) -> None:
        """Build the stage."""
        stage = self.job.stage(self.name)
        assert isinstance(stage, DuplicateStage)
        self.stage = stage

    @property
    def priorities(self) -> int:
        """Number of priority keys."""
        return len(self.stage.config.priorities)

    def labels_of(self, row_ids: np.ndarray[Any, np.dtype[np.int64]], forest: bytes) -> np.ndarray[Any, Any]:
        """Return the component of each record. Raises ThresherError where rounds have to find them first."""
        if forest != OVERFLOW:
            return components.labels_of(row_ids, forest)
        folder = self.job.folder
        found = StagedComponents.find(folder, self.name)
        if found is None:
            folder.write_bytes(overflow_name(self.name), b"{}")
            raise ThresherError(f"{self.name}: too many records are in clusters for one process to find these")
        return found.labels_of(row_ids)

    def component_partition(self, labels: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, Any]:
        """Return the partition of each component."""
        return components.partition_of(labels, self.stage.cluster_partitions(self.job.planned_rows))


def staged_keys(
    stage: DuplicateStage,
    folder: Folder,
    planned_rows: int,
    key: int,
    file: str,
    records: pa.RecordBatch,
    marks: pa.RecordBatch,
    alive: np.ndarray[Any, np.dtype[np.bool_]],
) -> tuple[list[Keyed], bytes, bytes]:
    """Stage the signatures of a batch; return (partition, packed keys), the packed totals per group, and the counts.

    Args:
        planned_rows: rows that the plan expects, for the number of partitions.
        key, file: the batch's key, and the file that it belongs to.
        records, marks, alive: see ``DuplicateStage.signature_table``.
    """
    table, bands = stage.signature_table(records, marks, alive)
    write_signatures(folder, stage.name, key, file, table)
    entries = pack_entries(
        key,
        table.column("row").to_numpy().astype(np.int64),
        bands,
        table.column("has_tokens").to_numpy(zero_copy_only=False),
        hashes_of(table.column("content_hash")),
        stage.partitions(planned_rows),
    )
    keys = list(entries)
    return keys, group_totals(table), pack_counts(keys=_bytes_of(keys))


class Propose(DuplicateStep):
    """(Partition, packed keys of all batches) -> (home, cliques); candidates, members of stars by batch; counts."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Resolve the buckets of one partition."""
        first = partial(earliest, self.job.folder, self.name, self.priorities, ANCHORS)
        packed = list(element[1])
        found = propose(packed, self.stage.max_bucket, first)
        yield from found.cliques
        for rows in found.candidates:
            yield pvalue.TaggedOutput(CANDIDATES, rows)
        firsts, others = found.stars.T
        row_ids = np.concatenate([np.unique(firsts), others])
        members = list(members_by_batch(row_ids, np.concatenate([np.unique(firsts), firsts])))
        for keyed in members:
            yield pvalue.TaggedOutput(MEMBERS, keyed)
        keys, cliques, candidates = sum(map(len, packed)), _bytes_of(found.cliques), _bytes_of(found.candidates)
        counts = pack_counts(
            not_compared=found.not_compared,
            shuffled=keys + cliques + candidates + _bytes_of(members),
            keys=-keys,
            cliques=cliques,
            candidates=candidates,
            ends=_bytes_of(members),
        )
        yield pvalue.TaggedOutput(COUNTS, counts)


def _bytes_of(elements: Iterable[Keyed]) -> int:
    return sum(len(data) for _, data in elements)


class StageShingles(DuplicateStep):
    """(Batch key, its reference and the rows of its candidates) -> writes their shingles; gives their number."""

    def __init__(self, job: Context, name: str, pass_number: int) -> None:
        super().__init__(job, name)
        self.pass_number = pass_number

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[int | pvalue.TaggedOutput]:
        """Stage the shingles of one batch."""
        key, values = element
        parts: dict[bytes, list[bytes]] = {REFERENCE: [], ROWS: []}
        for value in values:
            parts[value[:1]].append(value[1:])
        if not parts[ROWS]:
            return
        reference = ChunkReference.from_bytes(parts[REFERENCE][0])
        rows = np.unique(np.frombuffer(b"".join(parts[ROWS]), np.int32)).astype(np.int64)
        folder = self.job.folder
        fields = ["text"] if self.stage.text_field == "text" else None
        records = read_records(folder, key, reference.last, fields)
        records = read_current(folder, self.pass_number, key, records).take(pa.array(rows))
        offsets, hashes = self.stage.shingle_sets(entering_texts(records, self.stage.text_field))
        write_shingles(folder, self.name, key, rows, offsets, hashes)
        yield len(rows)
        yield pvalue.TaggedOutput(COUNTS, pack_counts(candidates=-sum(map(len, parts[ROWS]))))


class Verify(DuplicateStep):
    """(Home, cliques) -> proven edges; their ends by batch; what was counted. Waits until all shingles are staged."""

    def process(self, element: tuple[int, Iterable[bytes]], staged: int) -> Iterator[bytes | pvalue.TaggedOutput]:
        """Prove the pairs of one home; what was proven before is read back."""
        stage, folder = self.stage, self.job.folder
        name = edges_name(self.name, element[0])
        verifier = Verifier(
            folder,
            self.name,
            stage.similarity_threshold(),
            stage.permutations,
            stage.bands,
            stage.rows,
            self.priorities,
        )
        packed = list(element[1])
        cliques = sum(map(len, packed))
        staged_edges = read_edges(folder, name) if folder.exists(name) else None
        if staged_edges is not None and staged_edges[2] == cliques:
            table, pairs, _ = staged_edges
        else:
            found = verifier.verify(packed)
            table = found.table()
            pairs = np.array([found.proposed, found.verified, 0, found.not_compared], np.int64).tobytes()
            write_edges(folder, name, table, pairs, cliques)
        row_ids = np.unique(table[:, :2])
        members = list(members_by_batch(row_ids, row_ids))
        for keyed in members:
            yield pvalue.TaggedOutput(MEMBERS, keyed)
        elements = [
            pack_edges(table[start : start + EDGES_PER_ELEMENT]) for start in range(0, len(table), EDGES_PER_ELEMENT)
        ]
        yield from elements
        ends, edges = _bytes_of(members), sum(map(len, elements))
        counts = pack_counts(pairs=pairs, shuffled=ends + edges, cliques=-cliques, ends=ends, edges=edges)
        yield pvalue.TaggedOutput(COUNTS, counts)


class LabelEdges(DuplicateStep):
    """Edges -> (partition of their component, edges)."""

    def process(self, element: bytes, forest: bytes) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Deal out some edges."""
        table = unpack_edges([element])
        parts = self.component_partition(self.labels_of(np.ascontiguousarray(table[:, 0]), forest))
        labelled = [(part, EDGES_PREFIX + pack_edges(table[parts == part])) for part in np.unique(parts).tolist()]
        yield from labelled
        yield pvalue.TaggedOutput(COUNTS, pack_counts(edges=-len(element), labelled=_bytes_of(labelled)))


class LabelNodes(DuplicateStep):
    """(Batch key, its rows that are in clusters) -> (partition of their component, nodes)."""

    def process(
        self, element: tuple[int, Iterable[bytes]], forest: bytes = b""
    ) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Read the nodes of one batch."""
        key, packed = element[0], list(element[1])
        rows, labels = unpack_members(packed)
        row_ids = rows.astype(np.int64) + first_row_id(key)
        table = read_nodes(self.job.folder, self.name, row_ids, node_columns(self.priorities))
        parts = self.component_partition(self.labels_of(labels, forest))
        nodes = []
        for part in np.unique(parts).tolist():
            chosen = np.flatnonzero(parts == part)
            nodes.append((part, pack_nodes(row_ids[chosen], table.take(pa.array(chosen)))))
        yield from nodes
        yield pvalue.TaggedOutput(COUNTS, pack_counts(ends=-sum(map(len, packed)), nodes=_bytes_of(nodes)))


class ResolveClusters(DuplicateStep):
    """(Partition, nodes and edges of its components) -> (batch key, verdicts); copies, their totals, edges counted."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Resolve one partition."""
        config = self.stage.config
        max_copies = None if config.max_copies == "off" else config.max_copies
        packed = list(element[1])
        found = resolve_clusters(packed, self.priorities, max_copies, config.keeps_copies)
        yield from found.verdicts
        if found.copies is not None:
            yield pvalue.TaggedOutput(COPIES, found.copies)
        yield pvalue.TaggedOutput(TOTALS, negative(found.copy_totals))
        sizes = {
            prefix: sum(len(data) for data in packed if data[:1] == prefix) for prefix in (NODES_PREFIX, EDGES_PREFIX)
        }
        counts = pack_counts(
            at_threshold=found.edges,
            shuffled=sum(sizes.values()) + _bytes_of(found.verdicts) + len(found.copies or b""),
            members=found.members,
            nodes=-sizes[NODES_PREFIX],
            labelled=-sizes[EDGES_PREFIX],
        )
        yield pvalue.TaggedOutput(COUNTS, counts)


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
        groups, allowed = limits(config.budget, config.groups, basis)
        self.stage.check_groups(groups)
        summary["limit"] = sum(allowed.tolist())
        summary["budget_unit"] = config.budget_unit
        name = summary_name(self.name)
        self.job.folder.write_bytes(name, json.dumps(summary, sort_keys=True).encode())
        yield 1


class Selected(beam.DoFn):  # type: ignore[misc]
    """(Batch key, packed row ids that are kept) -> (batch key, a verdict that says so)."""

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Pack one batch."""
        key, data = element
        yield key, pack_selected(key, np.frombuffer(data, np.int64))


class Prefixed(beam.DoFn):  # type: ignore[misc]
    """(Key, bytes) -> the same behind a prefix that says what they are.

    References and verdicts meet as one collection of plain bytes, since CoGroupByKey pickles its groups.
    """

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Mark one value."""
        yield element[0], self.prefix + element[1]


def prefixed(prefix: bytes) -> beam.ParDo:
    """Return the step ``Prefixed`` with its types."""
    return beam.ParDo(Prefixed(prefix)).with_output_types(Keyed)
