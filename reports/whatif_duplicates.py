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

from corpus.folder import Folder
from corpus.selection_keys import NULL_GROUP, group_numbers
from dedup.budget import leader_totals, limits
from dedup.duplicates import DuplicateStage
from dedup.staged import nodes_folder
from reports.whatif_clusters import ClusteredRecords
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


def is_staged(folder: Folder, stage: str) -> bool:
    """Say whether the keys of a duplicate stage are in staging."""
    return folder.exists(nodes_folder(stage))


def resolve(
    records: ClusteredRecords, before: DuplicateStage, after: DuplicateStage, signals: StoredSignals
) -> Outcome:
    """Return what the stage makes of the records that enter it.

    Args:
        records: their clusters by the priorities of ``after``.
        before, after: the stage with the settings of the run, and with others.

    Raises:
        UndecidedError: the budget's groups are a column that was not stored.
    """
    places, units, config = records.places, records.units, after.config
    groups = _groups(before, after, signals, places, records.groups)
    codes, copies = np.full(signals.rows, STAYS, np.int8), np.zeros(len(places), np.bool_)
    max_copies = None if config.max_copies == "off" else config.max_copies
    clusters, is_copy, at = records.clusters, records.is_copy, records.at
    codes[at[is_copy]] = OVER_BUDGET
    copies[np.searchsorted(places, at[is_copy])] = True
    numbers, allowed = limits(config.budget, config.groups, leader_totals(groups, units, copies))
    if config.keeps_copies and len(at):
        entries = records.ordered_copies(groups, max_copies)
        kept = _prefixes(entries.groups, entries.weights, numbers, allowed)
        codes[at[np.searchsorted(records.row_ids, entries.row_ids[kept])]] = STAYS
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
