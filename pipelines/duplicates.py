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
from corpus.folder import Folder
from corpus.selection import pack_totals, unpack_totals
from corpus.stages import Stage
from corpus.staging import ChunkReference, read_current, read_records
from corpus.verdicts import entering_texts
from dedup.candidates import write_candidates
from dedup.cluster_resolution import members_by_batch
from dedup.duplicates import LARGEST_GROUP, DuplicateStage
from dedup.key_files import KeyFiles, write_keys
from dedup.large_groups import read_group
from dedup.nodes import best_copies, earliest
from dedup.proposals import ENTRY_BYTES, Entries, propose, smallest
from dedup.signature_tables import group_totals, key_columns, key_entries
from dedup.staged import edges_name, read_nodes, read_signatures, signature_matrix, write_signatures
from dedup.verification import ANCHORS, Verifier, pack_edges, read_edges, write_edges
from pipelines.combining import EDGES_PER_ELEMENT, large_groups, pack_counts
from pipelines.profile import ProfiledDoFn

Keyed = tuple[int, bytes]

CLIQUES, CANDIDATES, MEMBERS, EDGES, COUNTS = "cliques", "candidates", "members", "edges", "counts"
VERDICTS, COPIES, TOTALS, MAIN = "verdicts", "copies", "totals", "main"
REFERENCE, ROWS = b"r", b"c"
ENTRIES, BATCH = b"e", b"b"
"""What a value of a group of keys is: packed entries, or a reference to the batch that has them."""


class Context(Protocol):
    """What the steps need to know of the run."""

    @property
    def planned_rows(self) -> int:
        """Rows that the plan expects; more or fewer may enter the stage."""

    @property
    def folder(self) -> Folder:
        """The run folder."""

    @property
    def shuffles_by_files(self) -> bool:
        """Whether large shuffles go by files in staging."""

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


def stage_signatures(
    stage: DuplicateStage,
    folder: Folder,
    key: int,
    file: str,
    records: pa.RecordBatch,
    marks: pa.RecordBatch,
    alive: np.ndarray[Any, np.dtype[np.bool_]],
) -> bytes:
    """Stage the signatures of a batch; return the packed totals per group of the budget.

    Args:
        key, file: the batch's key, and the file that it belongs to.
        records, marks, alive: see ``DuplicateStage.signature_table``.
    """
    table = stage.signature_table(records, marks, alive)
    write_signatures(folder, stage.name, key, file, table)
    return group_totals(table)


def records_in(totals: bytes) -> int:
    """Return how many records enter the stage, given the packed totals of all: partitions follow from that."""
    return int(unpack_totals(totals)[1].sum())


class KeyStep(DuplicateStep):
    """A step that makes the keys of a batch, from its staged signatures."""

    def by_files(self, records: int) -> bool:
        """Say whether the keys of so many records go by files."""
        return self.job.shuffles_by_files and self.stage.keys_by_files(records)

    def entries(self, key: int, records: int) -> Entries:
        """Return the entries of a batch, where so many records enter the stage."""
        table = read_signatures(self.job.folder, self.name, key, key_columns(self.stage))
        return key_entries(self.stage, key, table, self.stage.partitions(records))


class SizeKeys(KeyStep):
    """(Batch key, its reference), with the totals of all records -> packed totals: keys and their bytes, by partition.

    Says nothing where so few records enter that no partition can be large, whatever their keys are, nor where keys go
    by files, whose sizes nobody asks for.
    """

    def process(self, element: Keyed, totals: bytes) -> Iterator[bytes]:
        """Size the keys of one batch."""
        records = records_in(totals)
        if records * ENTRY_BYTES > LARGEST_GROUP // 2 and not self.by_files(records):
            parts, counts = self.entries(element[0], records).counts()
            yield pack_totals(parts, counts, counts * ENTRY_BYTES)


class SendKeys(KeyStep):
    """(Batch key, its reference), with totals and sizes -> (partition, packed keys, or a reference to them); counts.

    Fails where the budget has groups of which no record has one.
    """

    def process(self, element: Keyed, totals: bytes, sizes: bytes) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Send the keys of one batch."""
        key, records = element[0], records_in(totals)
        self.stage.check_groups(unpack_totals(totals)[0])
        entries = self.entries(key, records)
        if self.by_files(records):
            parts = write_keys(self.job.folder, self.name, entries)
            large = set(parts)
        else:
            parts = entries.counts()[0].tolist()
            large = large_groups(sizes, LARGEST_GROUP)
        sent = 0
        for part in parts:
            data = BATCH + key.to_bytes(8, "little") if part in large else ENTRIES + entries.packed_of(part)
            sent += len(data)
            yield part, data
        yield pvalue.TaggedOutput(COUNTS, pack_counts(keys=sent))


class Propose(KeyStep):
    """(Partition, keys of all batches, or references), with totals -> (home, cliques); candidates, members of stars
    by batch; counts.
    """

    def setup(self) -> None:
        """Build the stage."""
        super().setup()
        self.files = KeyFiles(self.job.folder, self.name)

    def process(self, element: tuple[int, Iterable[bytes]], totals: bytes) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Resolve the buckets of one partition."""
        folder = self.job.folder
        first = partial(earliest, folder, self.name, self.priorities, ANCHORS)
        best = partial(best_copies, folder, self.name, self.priorities) if self.stage.copies_may_differ else smallest
        part, values = element
        keys, not_compared, by_files = 0, 0, 0
        packed: list[bytes] = []
        batches: list[int] = []
        for value in values:
            keys += len(value)
            if value[:1] == BATCH:
                batches.append(int.from_bytes(value[1:], "little"))
            else:
                packed.append(value[1:])
        if batches:
            records = records_in(totals)
            if self.by_files(records):
                packed, not_compared = read_group(sorted(batches), lambda key: self.files.packed_of(key, part))
                by_files = sum(map(len, packed))
            else:
                packed, not_compared = read_group(
                    sorted(batches), lambda key: self.entries(key, records).packed_of(part)
                )
        found = propose(packed, self.stage.max_bucket, first, best)
        yield from found.cliques
        for rows in found.candidates:
            yield pvalue.TaggedOutput(CANDIDATES, rows)
        firsts, others = found.stars.T
        row_ids = np.concatenate([np.unique(firsts), others])
        members = list(members_by_batch(row_ids, np.concatenate([np.unique(firsts), firsts])))
        for keyed in members:
            yield pvalue.TaggedOutput(MEMBERS, keyed)
        cliques, candidates = bytes_of(found.cliques), bytes_of(found.candidates)
        counts = pack_counts(
            not_compared=found.not_compared + not_compared,
            shuffled=keys + by_files + cliques + candidates + bytes_of(members),
            keys=-keys,
            cliques=cliques,
            candidates=candidates,
            ends=bytes_of(members),
        )
        yield pvalue.TaggedOutput(COUNTS, counts)


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
        records = read_current(folder, self.pass_number, key, records)
        is_candidate = np.zeros(records.num_rows, np.bool_)
        is_candidate[rows] = True
        texts = entering_texts(records, self.stage.text_field)
        offsets, hashes = self.stage.shingle_sets(texts, is_candidate)
        # Sets of other rows are empty.
        offsets = offsets[np.append(rows, len(is_candidate))]
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
