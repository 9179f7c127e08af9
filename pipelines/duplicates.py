"""The steps of a duplicate stage; ``pipelines.duplicate_graph`` puts them together.

Cliques, edges and nodes are packed arrays. Signatures and the shingles of candidates lie in staging and are read where
they are compared, so that a record's shingles are not sent once per clique. Each step counts the bytes that it gets and
sends, and the sums must come out even: an engine that loses a part of a group would otherwise go unnoticed.
"""

from __future__ import annotations

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
from corpus.selection import unpack_totals
from corpus.stages import Stage
from corpus.staging import ChunkReference, read_current, read_records
from corpus.verdicts import entering_texts
from dedup.candidates import write_candidates
from dedup.cluster_resolution import members_by_batch
from dedup.duplicates import DuplicateStage
from dedup.nodes import best_copies, earliest, hashes_of
from dedup.proposals import ENTRY_BYTES, pack_entries, propose, smallest
from dedup.signature_tables import group_totals
from dedup.staged import edges_name, read_nodes, signature_matrix, write_signatures
from dedup.verification import ANCHORS, Verifier, pack_edges, read_edges, write_edges
from pipelines.combining import (
    EDGES_PER_ELEMENT,
    pack_counts,
)
from pipelines.profile import ProfiledDoFn

Keyed = tuple[int, bytes]

CLIQUES, CANDIDATES, MEMBERS, EDGES, COUNTS = "cliques", "candidates", "members", "edges", "counts"
VERDICTS, COPIES, TOTALS, MAIN = "verdicts", "copies", "totals", "main"
REFERENCE, ROWS = b"r", b"c"

# Eight times what a group should have: a bucket cannot be cut, and one process sorts so much with ease.
MOST_KEY_BYTES = 64 << 20


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


class DuplicateStep(ProfiledDoFn):
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
    return keys, group_totals(table), pack_counts(keys=bytes_of(keys))


class CheckGroups(DuplicateStep):
    """Totals per group of the budget of all records -> the number of groups; fails where no record has one."""

    def process(self, element: bytes) -> Iterator[int]:
        """Check them."""
        groups, _, _ = unpack_totals(element)
        self.stage.check_groups(groups)
        yield len(groups)


class Propose(DuplicateStep):
    """(Partition, packed keys of all batches) -> (home, cliques); candidates, members of stars by batch; counts.

    Waits until the groups of the budget are checked, where it has some.
    """

    def process(self, element: tuple[int, Iterable[bytes]], groups: int = 0) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Resolve the buckets of one partition."""
        folder = self.job.folder
        first = partial(earliest, folder, self.name, self.priorities, ANCHORS)
        best = partial(best_copies, folder, self.name, self.priorities) if self.stage.copies_may_differ else smallest
        packed = list(element[1])
        self._check(sum(map(len, packed)))
        found = propose(packed, self.stage.max_bucket, first, best)
        yield from found.cliques
        for rows in found.candidates:
            yield pvalue.TaggedOutput(CANDIDATES, rows)
        firsts, others = found.stars.T
        row_ids = np.concatenate([np.unique(firsts), others])
        members = list(members_by_batch(row_ids, np.concatenate([np.unique(firsts), firsts])))
        for keyed in members:
            yield pvalue.TaggedOutput(MEMBERS, keyed)
        keys, cliques, candidates = sum(map(len, packed)), bytes_of(found.cliques), bytes_of(found.candidates)
        counts = pack_counts(
            not_compared=found.not_compared,
            shuffled=keys + cliques + candidates + bytes_of(members),
            keys=-keys,
            cliques=cliques,
            candidates=candidates,
            ends=bytes_of(members),
        )
        yield pvalue.TaggedOutput(COUNTS, counts)

    def _check(self, size: int) -> None:
        if size > MOST_KEY_BYTES:
            raise ThresherError(
                f"{self.name}: the keys of one group take {size / 2**20:.0f} MiB, more than "
                f"{MOST_KEY_BYTES / 2**20:.0f}: the input has far more than the {self.job.planned_rows:,} records of "
                f"the plan, or {size // ENTRY_BYTES:,} are alike in one bucket; take equal texts out by "
                "exact_duplicates before, set scope: source, or give Parquet files, whose rows are counted"
            )


def bytes_of(elements: Iterable[Keyed]) -> int:
    """Return the bytes of the values of some elements."""
    return sum(len(data) for _, data in elements)


class StageShingles(DuplicateStep):
    """(Batch key, its reference and rows of candidates) -> writes their shingles and signatures; their number."""

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
        table = read_nodes(folder, self.name, first_row_id(key) + rows, ["signature"])
        signatures = signature_matrix(table["signature"], self.stage.permutations)
        write_candidates(folder, self.name, key, rows, signatures, offsets, hashes)
        yield len(rows)
        yield pvalue.TaggedOutput(COUNTS, pack_counts(candidates=-sum(map(len, parts[ROWS]))))


class Verify(DuplicateStep):
    """(Home, cliques) -> (home, proven edges); their ends by batch; counts. Waits until all shingles are staged."""

    def process(self, element: tuple[int, Iterable[bytes]], staged: int) -> Iterator[Keyed | pvalue.TaggedOutput]:
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
        starts = range(0, len(table), EDGES_PER_ELEMENT)
        elements = [(element[0], pack_edges(table[start : start + EDGES_PER_ELEMENT])) for start in starts]
        yield from elements
        ends, edges = bytes_of(members), bytes_of(elements)
        counts = pack_counts(pairs=pairs, shuffled=ends + edges, cliques=-cliques, ends=ends, edges=edges)
        yield pvalue.TaggedOutput(COUNTS, counts)


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
