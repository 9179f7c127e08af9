"""Clusters, copies and budget of a duplicate stage under other settings, from what the run has stored.

With staging the stage is carried out again over the verified edges that it stored, for all records that entered it or
for some of them: the pairs that are similar do not depend on which other records there are, as long as no bucket was so
large that pairs were left out. Without staging, signals tell how many copies another budget keeps; which of the copies
with the same copy index these are is then not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import chunk_key
from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.selection_keys import NULL_GROUP, Words, group_numbers
from corpus.staging import progress_names, read_records
from dedup.budget import copy_entries, leader_totals, limits
from dedup.cluster_resolution import node_columns
from dedup.duplicates import DuplicateStage
from dedup.leaders import find_clusters, record_ranks
from dedup.nodes import hashes_of, priorities_of, protected_of, record_ids_of, whole
from dedup.staged import edge_files, nodes_folder, read_nodes, read_signatures
from dedup.verification import read_edges
from reports.whatif_tables import Codes, Mask, StoredSignals

Integers = npt.NDArray[np.int64]

STAYS, UNKNOWN = -1, -2
OVER_BUDGET, OVER_MAX_COPIES = 0, 1
"""The numbers of the two rules of a duplicate stage."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of n records at a stage.

    Attributes:
        codes: int8[n], the rule that drops a record, ``STAYS`` or ``UNKNOWN``; of records that do not enter, any.
        staying: least and largest number of the unknown ones that stay; None where nothing is known.
        rule: the rule by which the other unknown ones leave, where ``staying`` is given.
        details: what the report says of the stage as a whole.
    """

    codes: Codes
    staying: tuple[int, int] | None = None
    rule: int = OVER_BUDGET
    details: Mapping[str, Any] = field(default_factory=dict)


class UndecidedError(Exception):
    """Says why stored values do not decide."""


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


def is_staged(folder: Folder, stage: str) -> bool:
    """Say whether the keys of a duplicate stage are in staging."""
    return folder.exists(nodes_folder(stage))


def resolve(
    folder: Folder,
    before: DuplicateStage,
    after: DuplicateStage,
    signals: StoredSignals,
    rows: StagedRows,
    entered: Mask,
    entering: Mask,
) -> Outcome:
    """Return what the stage makes of some of the records that entered it in the run, from its staged edges.

    Args:
        before, after: the stage with the settings of the run, and with others.
        entered, entering: bool[n], the records that entered in the run, and those that do now, all among them.

    Raises:
        UndecidedError: the budget's groups are a column that was not stored.
    """
    priorities = len(before.config.priorities)
    places, units, groups = _staged_units(folder, before.name, rows)
    if not np.array_equal(places, np.flatnonzero(entered)):
        raise UsageError(f"{folder.root}: staging of {before.name} does not fit the signals; see thresher verify")
    chosen = entering[places]
    places, units, groups = places[chosen], units[chosen], groups[chosen]
    groups = _groups(before, after, signals, places, groups)

    edges = _edges(folder, before.name)
    nodes = _nodes(signals, before, rows, edges, entered)
    # Records that do not enter any more: a node is left as long as one of its records is.
    here = np.flatnonzero(entering[rows.places(nodes)]) if len(nodes) else nodes
    config, codes, copies = after.config, np.full(len(entering), STAYS, np.int8), np.zeros(len(places), np.bool_)
    if not len(here):
        _, allowed = limits(config.budget, config.groups, leader_totals(groups, units, copies))
        return Outcome(codes, details=_details(copies, codes[places], allowed, 0))
    table = read_nodes(folder, before.name, nodes, node_columns(priorities))
    hashes = hashes_of(table["content_hash"])
    halves = np.ascontiguousarray(hashes).view(np.uint64).reshape(-1, 2)
    numbers = np.unique(halves, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
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
    max_copies = None if config.max_copies == "off" else config.max_copies
    is_copy = clusters.copy_index > 0
    codes[at[is_copy]] = OVER_BUDGET
    among = np.searchsorted(places, at)
    copies[among[is_copy]] = True
    basis = leader_totals(groups, units, copies)
    numbers_of_groups, allowed = limits(config.budget, config.groups, basis)
    if config.keeps_copies:
        entries = copy_entries(clusters, groups[among], units[among], words, hashes, ids, row_ids, max_copies)
        order = entries.order()
        kept = _prefixes(entries.groups[order], entries.weights[order], numbers_of_groups, allowed)
        codes[rows.places(entries.row_ids[order[kept]])] = STAYS
    if max_copies is not None:
        codes[at[clusters.copy_index > max_copies]] = OVER_MAX_COPIES
    details = _details(copies, codes[places], allowed, int((~is_copy & (clusters.sizes > 1)).sum()))
    return Outcome(codes, details=details)


def _details(copies: Mask, codes: Codes, allowed: Integers, clusters: int) -> dict[str, int]:
    return {
        "leaders": int((~copies).sum()),
        "clusters": clusters,
        "copies_available": int(copies.sum()),
        "copies_kept": int((copies & (codes == STAYS)).sum()),
        "limit": sum(allowed.tolist()),
    }


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
    return np.unique(np.concatenate([rows.row_ids(np.flatnonzero(chosen)), edges[:, 0], edges[:, 1]]))


def _priorities(stage: DuplicateStage, signals: StoredSignals, places: Integers, characters: Integers) -> list[Words]:
    """Return the words of other priority keys of some records."""
    taken = pa.array(places)
    columns = {name: signals.all(name).take(taken) for name in stage.signal_columns()}
    columns["source"] = signals.all("source").take(taken)
    batch = pa.RecordBatch.from_pydict(columns)
    return stage.priority_words(batch, batch, characters, pa.array(np.arange(len(places))))


def _groups(
    before: DuplicateStage, after: DuplicateStage, signals: StoredSignals, places: Integers, staged: Integers | None
) -> Integers:
    """Return the group number of each of some records. Raises UndecidedError for a column that was not stored."""
    groups = after.config.groups
    if groups is None:
        return np.full(len(places), NULL_GROUP)
    same = before.config.groups is not None and before.config.groups.by == groups.by
    if same and staged is not None:
        return staged
    if after.user_columns():
        raise UndecidedError(f"the column {groups.by}, by which the budget is grouped, is not among the signals")
    taken = pa.array(places)
    columns = {name: signals.all(name).take(taken) for name in after.signal_columns()}
    columns["source"] = signals.all("source").take(taken)
    batch = pa.RecordBatch.from_pydict(columns)
    values = after.group_values(batch, batch, pa.array(np.arange(len(places))))
    assert values is not None
    return group_numbers(values)


def _prefixes(groups: Integers, weights: Integers, numbers: Integers, allowed: Integers) -> Mask:
    """Return which of some entries, sorted by group and key, are within the limits of their groups."""
    if not len(groups):
        return np.zeros(0, np.bool_)
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    running = np.cumsum(weights)
    before = np.repeat(running[starts] - weights[starts], np.diff(np.append(starts, len(groups))))
    listed = dict(zip(numbers.tolist(), allowed.tolist(), strict=True))
    room = np.repeat(
        [listed.get(group, 0) for group in groups[starts].tolist()], np.diff(np.append(starts, len(groups)))
    )
    kept: Mask = running - before <= room
    return kept


def estimate(before: DuplicateStage, after: DuplicateStage, signals: StoredSignals, entered: Mask) -> Outcome:
    """Return what another budget or ``max_copies`` makes of the records that entered the stage, from signals alone.

    Copies stay in the order of their copy index; of those of one index only the number that stays is known.

    Raises:
        UndecidedError: the budget's groups are a column that was not stored.
    """
    places = np.flatnonzero(entered)
    taken = pa.array(places)
    name = before.name
    index = signals.all(f"{name}.copy_index").take(taken).to_numpy()
    sizes = signals.all(f"{name}.cluster_size").take(taken).to_numpy()
    units = np.ones(len(places), np.int64)
    if f"{name}.units" in signals.columns:
        units = signals.all(f"{name}.units").take(taken).to_numpy()
    groups = _groups(before, after, signals, places, None)
    if after.config.groups is not None:
        groups = _groups_of_leaders(signals.all(f"{name}.cluster_id").take(taken), sizes, index, groups)
    config = after.config
    copies = index > 0
    codes = np.full(len(entered), STAYS, np.int8)
    here = codes[places]
    here[copies] = OVER_BUDGET
    numbers, allowed = limits(config.budget, config.groups, leader_totals(groups, units, copies))
    low = high = 0
    eligible = copies
    if config.max_copies != "off":
        eligible = copies & (index <= config.max_copies)
        here[index > config.max_copies] = OVER_MAX_COPIES
    if config.keeps_copies:
        for number, limit in zip(numbers.tolist(), allowed.tolist(), strict=True):
            of_group = np.flatnonzero(eligible & (groups == number))
            order = of_group[np.argsort(index[of_group], kind="stable")]
            running = np.cumsum(units[order])
            last = np.append(index[order][1:] != index[order][:-1], True) if len(order) else np.zeros(0, np.bool_)
            ends = np.flatnonzero(last)
            whole_levels = int(np.searchsorted(running[ends], limit, side="right"))
            kept = int(ends[whole_levels - 1]) + 1 if whole_levels else 0
            here[order[:kept]] = STAYS
            if whole_levels < len(ends):
                cut = order[kept : int(ends[whole_levels]) + 1]
                room = limit - (int(running[kept - 1]) if kept else 0)
                fewest, most = _within(units[cut], room)
                if most:
                    here[cut] = UNKNOWN
                low, high = low + fewest, high + most
    codes[places] = here
    return Outcome(codes, (low, high))


def _within(units: Integers, room: int) -> tuple[int, int]:
    """Return how many records at least and at most are the longest prefix within some room, whatever their order."""
    ascending = np.sort(units)
    fewest = int(np.searchsorted(np.cumsum(ascending[::-1]), room, side="right"))
    return fewest, int(np.searchsorted(np.cumsum(ascending), room, side="right"))


def _groups_of_leaders(clusters: pa.StringArray, sizes: Integers, index: Integers, groups: Integers) -> Integers:
    """Return for each record the group of its cluster's leader."""
    found: Integers = groups.copy()
    members = np.flatnonzero(sizes > 1)
    numbers = clusters.take(pa.array(members)).dictionary_encode().indices.to_numpy()
    leaders = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    leads = index[members] == 0
    leaders[numbers[leads]] = groups[members[leads]]
    found[members] = leaders[numbers]
    return found
