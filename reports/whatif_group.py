"""What a run has measured of the records of a row group, and what rules make of it.

Settings that are followed side by side share most of their rules, so each column is read and each rule applied once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpus.stages import Rule, Stage
from corpus.verdicts import rule_fails, signal_column
from reports.whatif_flow import STAYS
from reports.whatif_tables import Codes, Mask, RowGroup, StoredSignals


class MeasuredGroup:
    """The n records of a row group.

    Attributes:
        rows: where they are among all records.
    """

    def __init__(self, signals: StoredSignals, group: RowGroup) -> None:
        self.rows = slice(group.start, group.stop)
        self._signals = signals
        self._group = group
        self._columns: dict[str, pa.Array] = {}
        self._failing: dict[str, list[tuple[Rule, Mask]]] = {}

    def columns(self, names: Sequence[str]) -> list[pa.Array]:
        """Return some columns. Raises UsageError for one that was not stored."""
        lacking = [name for name in dict.fromkeys(names) if name not in self._columns]
        if lacking:
            self._columns.update(self._signals.read(self._group, lacking))
        return [self._columns[name] for name in names]

    def judged(self, stage: Stage) -> Codes:
        """Return the rule of a stage that drops each record, as its signals say; ``STAYS`` where none does."""
        codes = np.full(self.rows.stop - self.rows.start, STAYS, np.int8)
        rules = stage.rules()
        # All that the rules need, read in one go.
        self.columns([*_names(stage), *([stage.language_column] if stage.language_column else [])])
        for number in reversed(range(len(rules))):
            np.copyto(codes, number, where=self._fails(stage, rules[number]))
        return codes

    def _fails(self, stage: Stage, rule: Rule) -> Mask:
        of_stage = self._failing.setdefault(stage.name, [])
        for known, failing in of_stage:
            if known == rule:
                return failing
        languages = self.columns([stage.language_column])[0] if stage.language_column else None
        failing = rule_fails(rule, self.columns([signal_column(stage.name, rule.signal)])[0], languages)
        of_stage.append((rule, failing))
        return failing

    def without_values(self, stage: Stage) -> Mask:
        """Return which records have no value at all of those that the rules of a stage look at."""
        empty = np.ones(self.rows.stop - self.rows.start, np.bool_)
        for column in self.columns(_names(stage)):
            empty &= column.is_null().to_numpy(zero_copy_only=False)
        return empty


def _names(stage: Stage) -> list[str]:
    return [signal_column(stage.name, rule.signal) for rule in stage.rules()]
