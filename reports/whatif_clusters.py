"""Clusters of a duplicate stage among some of the records that entered it in a run, from the edges that it staged.

The pairs that are similar do not depend on which other records there are, as long as no bucket was so large that pairs
were left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import chunk_key
from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.selection_entries import Entries
from corpus.selection_keys import Hashes, RecordIds, Words
from corpus.staging import progress_names, read_records
from dedup.budget import copy_entries
from dedup.cluster_resolution import node_columns
from dedup.duplicates import DuplicateStage
from dedup.leaders import Clusters, find_clusters, record_ranks
from dedup.nodes import hashes_of, priorities_of, protected_of, record_ids_of, whole
from dedup.staged import edge_files, read_nodes, read_signatures
from dedup.verification import read_edges
from reports.whatif_tables import Mask, StoredSignals

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StagedRows:
    """How the rows of the signals and the row ids of staging belong together: batches in the order of the records."""

    keys: Integers
    starts: Integers
    rows: int

    @staticmethod
    def of(signals: StoredSignals) -> StagedRows | None:
        """Return the batches of a run; None where staging was removed. Raises UsageError where it does not fit."""
        keys, starts, start = [], [], 0
        positions = []
        for name, last in progress_names(signals.folder):
            item, chunk = name.rsplit("/", 1)[1].removesuffix(".arrow").removesuffix("-last").split("-")
            key = chunk_key(int(item), int(chunk))
            records = read_records(signals.folder, key, last, ["position"])
            keys.append(key)
            starts.append(start)
            positions.append(records.column("position").to_numpy())
            start += records.num_rows
        if not keys:
            return None
        if start != signals.rows or not np.array_equal(np.concatenate(positions), signals.all("position").to_numpy()):
            raise UsageError(f"{signals.folder.root}: staging does not fit the signals; see thresher verify")
        return StagedRows(np.array(keys, np.int64), np.array(starts, np.int64), start)

    def places(self, row_ids: Integers) -> Integers:
        """Return the place of each row id among all records."""
        batches = np.searchsorted(self.keys, row_ids >> ROW_BITS)
        return self.starts[batches] + (row_ids & (MAX_ROWS - 1))

    def row_ids(self, places: Integers) -> Integers:
        """Return the row id of each of some records."""
        batches = np.searchsorted(self.starts, places, side="right") - 1
        # Batches without rows start where the next one does; the last of them has the row.
        return (self.keys[batches] << ROW_BITS) + places - self.starts[batches]


@dataclass(frozen=True)
class ClusteredRecords:
    """n records that enter a duplicate stage, k of which may have duplicates.

    Attributes:
        places: int64[n], where they are among all records, ascending.
        units: int64[n], what each counts of a budget.
        groups: int64[n], the group of each by the settings of the run.
        at: int64[k], where those with duplicates are among all records.
        row_ids, words, hashes, ids: their row ids, priorities, content hashes and record ids, for the order of copies.
        clusters: their leaders and copies.
    """

    places: Integers
    units: Integers
    groups: Integers
    at: Integers
    row_ids: Integers
    words: list[Words]
    hashes: Hashes
    ids: RecordIds
    clusters: Clusters

    @property
    def is_copy(self) -> Mask:
        """Which of the k records are copies of a leader."""
        copies: Mask = self.clusters.copy_index > 0
        return copies

    def ordered_copies(self, groups: Integers, max_copies: int | None) -> Entries:
        """Return the copies that may stay, by group and in the order in which they would.

        Args:
            groups: int64[n], the group of each record.
            max_copies: largest copy index that may stay; None for no bound.
        """
        among = np.searchsorted(self.places, self.at)
        entries = copy_entries(
            self.clusters,
            groups[among],
            self.units[among],
            self.words,
            self.hashes,
            self.ids,
            self.row_ids,
            max_copies,
        )
        return entries.take(entries.order())


def clustered_records(
    folder: Folder,
    before: DuplicateStage,
    after: DuplicateStage,
    signals: StoredSignals,
    rows: StagedRows,
    entered: Mask,
    entering: Mask,
) -> ClusteredRecords:
    """Return the clusters of some of the records that entered a stage in the run.

    Args:
        before, after: the stage with the settings of the run, and with others, of which only the priorities count.
        entered, entering: bool[n], the records that entered in the run, and those that do now, all among them.
    """
    priorities = len(before.config.priorities)
    places, units, groups = _staged_units(folder, before.name, rows)
    if not np.array_equal(places, np.flatnonzero(entered)):
        raise UsageError(f"{folder.root}: staging of {before.name} does not fit the signals; see thresher verify")
    chosen = entering[places]
    entrants = places[chosen], units[chosen], groups[chosen]
    edges = _edges(folder, before.name)
    nodes = _nodes(signals, before, rows, edges, entered)
    # Records that do not enter any more: a node is left as long as one of its records is.
    here = np.flatnonzero(entering[rows.places(nodes)]) if len(nodes) else nodes
    if not len(here):
        none, no_ids = np.zeros(0, np.int64), RecordIds.concatenate([])
        clusters = Clusters(none, np.zeros(0), none, none)
        return ClusteredRecords(*entrants, none, none, [], np.zeros(0, "V16"), no_ids, clusters)
    table = read_nodes(folder, before.name, nodes, node_columns(priorities))
    numbers = whole(table["content_hash"]).dictionary_encode().indices.to_numpy().astype(np.int64)
    ends = [numbers[np.searchsorted(nodes, edges[:, place])] for place in (0, 1)]
    present, own = np.unique(numbers[here], return_inverse=True)
    renumbered = np.full(len(nodes) + 1, -1, np.int64)
    renumbered[present] = np.arange(len(present))
    first, second = (renumbered[end] for end in ends)
    left = (first >= 0) & (second >= 0)
    jaccard = edges[:, 2] / np.maximum(edges[:, 3], 1)
    table, row_ids = table.take(pa.array(here)), nodes[here]
    hashes, ids = hashes_of(table["content_hash"]), record_ids_of(table)
    at = rows.places(row_ids)
    words = priorities_of(table, priorities)
    if before.config.priorities != after.config.priorities:
        words = _priorities(after, signals, at, whole(table["characters"]).to_numpy())
    protected, characters = protected_of(table), whole(table["characters"]).to_numpy()
    places_in_order = record_ranks(protected, words, characters, hashes, ids, row_ids)
    clusters = find_clusters(
        places_in_order, own.reshape(-1).astype(np.int64), protected, first[left], second[left], jaccard[left]
    )
    return ClusteredRecords(*entrants, at, row_ids, words, hashes, ids, clusters)


def _staged_units(folder: Folder, stage: str, rows: StagedRows) -> tuple[Integers, Integers, Integers]:
    """Return place, units and group number of all records that entered the stage, in the order of the records."""
    parts: list[list[Integers]] = [[], [], []]
    for key, start in zip(rows.keys.tolist(), rows.starts.tolist(), strict=True):
        table = read_signatures(folder, stage, key, ["row", "units", "group"])
        parts[0].append(table.column("row").to_numpy().astype(np.int64) + start)
        parts[1].append(table.column("units").to_numpy())
        parts[2].append(table.column("group").to_numpy())
    places, units, groups = (np.concatenate(part) for part in parts)
    return places, units, groups


def _edges(folder: Folder, stage: str) -> Integers:
    tables = [read_edges(folder, name)[0] for name in edge_files(folder, stage)]
    return np.concatenate(tables) if tables else np.zeros((0, 4), np.int64)


def _nodes(signals: StoredSignals, stage: DuplicateStage, rows: StagedRows, edges: Integers, entered: Mask) -> Integers:
    """Return, ascending, the row ids of all records that have an edge or an equal, and of protected ones."""
    sizes = signals.all(f"{stage.name}.cluster_size").fill_null(0).to_numpy(zero_copy_only=False)
    chosen = entered & (sizes > 1)
    if stage.config.protect:
        protected = pa.compute.is_in(signals.all("source"), value_set=pa.array(stage.config.protect, pa.string()))
        chosen |= entered & protected.to_numpy(zero_copy_only=False)
    for place in (0, 1):
        chosen[rows.places(edges[:, place])] = True
    return rows.row_ids(np.flatnonzero(chosen))


def _priorities(stage: DuplicateStage, signals: StoredSignals, places: Integers, characters: Integers) -> list[Words]:
    """Return the words of other priority keys of some records."""
    taken = pa.array(places)
    columns = {name: signals.all(name).take(taken) for name in stage.signal_columns()}
    columns["source"] = signals.all("source").take(taken)
    batch = pa.RecordBatch.from_pydict(columns)
    return stage.priority_words(batch, batch, characters, pa.array(np.arange(len(places))))
