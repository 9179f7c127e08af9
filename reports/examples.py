"""Choose the records that the HTML report shows for each rule: some that it dropped, and some that barely stayed.

The choice is random but repeatable: records are ordered by a hash of file, position and a fixed seed. Barely kept are
those whose value is nearest to the threshold, at most a tenth of it away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.folder import Folder
from corpus.stages import Rule
from corpus.verdicts import rule_fails, thresholds
from reports.fates import StageInfo
from reports.signal_rows import Floats, SignalRows, group_numbers, row_keys, smallest_per_group, stream

DROPPED_EXAMPLES = 4
BARELY_KEPT_EXAMPLES = 3
NEAREST_SHARE = 0.1

_LEDGER_COLUMNS = (
    "record_id",
    "source",
    "file",
    "position",
    "stage",
    "rule",
    "value",
    "threshold",
    "related_id",
    "detail",
)
_RECORD_COLUMNS = ("record_id", "source", "file", "position")


@dataclass(frozen=True)
class Example:
    """A record that shows what a rule does.

    Attributes:
        record_id, source, file, position: as in the ledger.
        value, threshold: the measured value and its limit; None where the rule has none.
        related_id: the record that it is a copy of.
        detail: content of the ledger's column ``detail``.
    """

    record_id: str
    source: str | None
    file: str
    position: int
    value: float | None
    threshold: float | None
    related_id: str | None = None
    detail: Any = None


def dropped_examples(
    folder: Folder, names: Sequence[str], rules: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[Example]]:
    """Return records that each (stage, rule) dropped, from the ledger.

    Args:
        names: the ledger's files.
    """
    wanted = [f"{stage}/{rule}" for stage, rule in rules]
    chosen: pa.Table | None = None
    for batch in stream(folder, names, _LEDGER_COLUMNS):
        groups = group_numbers(pc.binary_join_element_wise(batch["stage"], batch["rule"], "/"), wanted)
        keys = row_keys(batch["file"], batch["position"])
        found = pa.Table.from_batches([batch]).append_column("group", pa.array(groups))
        found = found.append_column("key", pa.array(keys)).filter(pa.array(groups >= 0))
        chosen = _first(found if chosen is None else pa.concat_tables([chosen, found]))
    examples: dict[tuple[str, str], list[Example]] = {}
    for row in chosen.to_pylist() if chosen is not None else []:
        example = Example(
            **{name: row[name] for name in (*_RECORD_COLUMNS, "value", "threshold", "related_id")},
            detail=json.loads(row["detail"]) if row["detail"] else None,
        )
        examples.setdefault((row["stage"], row["rule"]), []).append(example)
    return examples


def _first(table: pa.Table) -> pa.Table:
    groups, keys, positions = (table[name].to_numpy() for name in ("group", "key", "position"))
    return table.take(pa.array(smallest_per_group(groups, (keys, positions), DROPPED_EXAMPLES)))


@dataclass
class _Nearest:
    """The nearest records so far: a table with distance, key, value and threshold beside the record's columns."""

    info: StageInfo
    rule: Rule
    table: pa.Table | None = None

    @property
    def signal(self) -> str:
        return f"{self.info.name}.{self.rule.signal}"


class BarelyKept:
    """Finds the kept records that are nearest to the threshold of each rule that compares numbers."""

    def __init__(self, infos: Sequence[StageInfo], numeric: frozenset[str]) -> None:
        self._nearest = [
            _Nearest(info, rule)
            for info in infos
            for rule in info.rules
            if rule.test in ("at_least", "at_most")
            and f"{info.name}.{rule.signal}" in numeric
            # Nothing is nearer to "none at all" than what nearly all records have.
            and not (rule.test == "at_most" and rule.threshold == 0)
        ]
        columns = {name for one in self._nearest for name in (one.signal, _language_column(one.info)) if name}
        self.columns = (*_RECORD_COLUMNS, *sorted(columns))

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""
        for one in self._nearest:
            column = _language_column(one.info)
            languages = rows.column(column) if column else None
            limits = _numbers(thresholds(one.rule, languages), len(rows))
            values = rows.numbers(one.signal)
            distances = np.abs(values - limits)
            stays = rows.kept & ~rule_fails(one.rule, rows.column(one.signal), languages)
            near = np.flatnonzero(stays & (distances <= NEAREST_SHARE * np.abs(limits)))
            if len(near) > BARELY_KEPT_EXAMPLES:
                farthest = np.partition(distances[near], BARELY_KEPT_EXAMPLES - 1)[BARELY_KEPT_EXAMPLES - 1]
                near = near[distances[near] <= farthest]
            if not len(near):
                continue
            taken = pa.Table.from_batches([rows.batch.select(_RECORD_COLUMNS)]).take(pa.array(near))
            for name, array in (("value", values), ("threshold", limits), ("distance", distances), ("key", rows.keys)):
                taken = taken.append_column(name, pa.array(array[near]))
            table = taken if one.table is None else pa.concat_tables([one.table, taken])
            orders = [table[name].to_numpy() for name in ("distance", "key", "position")]
            first = smallest_per_group(np.zeros(len(table), np.int64), orders, BARELY_KEPT_EXAMPLES)
            one.table = table.take(pa.array(first))

    def examples(self) -> dict[tuple[str, str], list[Example]]:
        """Return the records by (stage, rule)."""
        return {
            (one.info.name, one.rule.name): [
                Example(**{name: row[name] for name in (*_RECORD_COLUMNS, "value", "threshold")})
                for row in one.table.to_pylist()
            ]
            for one in self._nearest
            if one.table is not None
        }


def _language_column(info: StageInfo) -> str | None:
    return info.stage.language_column if info.stage else None


def _numbers(limits: pa.Array | pa.Scalar, length: int) -> Floats:
    if isinstance(limits, pa.Scalar):
        value = limits.as_py()
        return np.full(length, np.nan if value is None else value, np.float64)
    numbers: npt.NDArray[np.float64] = limits.to_numpy(zero_copy_only=False)
    return numbers
