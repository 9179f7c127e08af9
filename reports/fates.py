"""Read what all passes found on a batch, and say for each record where it left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.batch import INPUT_STAGE
from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.stages import Rule, Stage
from corpus.staging import read_marks
from corpus.verdicts import (
    UNJUDGED,
    error_column,
    failures_column,
    first_rule,
    input_rules,
    related_columns,
    signal_column,
)

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StageInfo:
    """A stage as the reports see it.

    Attributes:
        name: the stage's name; ``input`` for the rules of the input.
        pass_number: the pass whose marks have its columns; 0 for ``input``.
        rules: its rules, bit i of its failures being rule i.
        stage: the stage itself; None for ``input``.
    """

    name: str
    pass_number: int
    rules: tuple[Rule, ...]
    stage: Stage | None


def stage_infos(passes: Sequence[tuple[int, Sequence[Stage]]], config: InputConfig) -> list[StageInfo]:
    """Return all stages in order, ``input`` first, for (pass number, stages) of each pass."""
    infos = [StageInfo(INPUT_STAGE, 0, input_rules(config.max_record_bytes), None)]
    for number, stages in passes:
        infos.extend(StageInfo(stage.name, number, stage.rules(), stage) for stage in stages)
    return infos


@dataclass(frozen=True)
class Fates:
    """What happened to the n records of a batch.

    Attributes:
        columns: every mark of every pass by name.
        failures: per stage the bit masks of the rules that a record does not meet, int64 of n.
        left_at: index of the stage where the record left, -1 where it was kept; int64 of n.
        dead: whether it left because that stage could not judge it; bool of n.
    """

    columns: Mapping[str, pa.Array]
    failures: tuple[Integers, ...]
    left_at: Integers
    dead: Mask

    @property
    def kept(self) -> Mask:
        """Which records were kept."""
        return self.left_at < 0

    @property
    def dropped(self) -> Mask:
        """Which records left by a rule."""
        return (self.left_at >= 0) & ~self.dead

    def entered(self, index: int) -> Mask:
        """Return which records entered the stage of this index."""
        return (self.left_at < 0) | (self.left_at >= index)

    def signal(self, info: StageInfo, name: str) -> pa.Array:
        """Return a signal of a stage."""
        return self.columns[signal_column(info.name, name)]

    def rule_names(self, info: StageInfo, rule: Rule) -> pa.StringArray:
        """Return under which name a rule drops each record."""
        if rule.named_by is None:
            return pa.repeat(rule.name, len(self.left_at))
        return self.signal(info, rule.named_by).fill_null(rule.name)

    def edit_counts(self, info: StageInfo, name: str) -> Integers:
        """Return a signal of a stage's edits, 0 where it made none."""
        return self.signal(info, name).fill_null(0).to_numpy()  # type: ignore[no-any-return]

    def error(self, info: StageInfo) -> pa.Array | None:
        """Return why a stage could not judge records, None for a stage that judges all."""
        return self.columns.get(error_column(info.name))

    def languages(self, info: StageInfo) -> pa.Array | None:
        """Return the labels of the records that the rules of a stage depend on, None where they depend on none."""
        column = info.stage.language_column if info.stage else None
        return None if column is None else self.columns[column]

    def related(self, info: StageInfo) -> tuple[pa.Array, pa.Array, pa.Array] | None:
        """Return row id, record_id and position of the records that a corpus stage names, None for other stages."""
        names = related_columns(info.name)
        if names[0] not in self.columns:
            return None
        return self.columns[names[0]], self.columns[names[1]], self.columns[names[2]]


def read_fates(folder: Folder, key: int, records: pa.RecordBatch, infos: Sequence[StageInfo]) -> Fates:
    """Return the fates of a batch's records; ``records`` needs the column ``input_failures`` only."""
    columns: dict[str, pa.Array] = {}
    for number in range(1, max(info.pass_number for info in infos) + 1):
        marks = read_marks(folder, number, key)
        columns.update(zip(marks.schema.names, marks.columns, strict=True))
    failures = [records.column("input_failures").to_numpy()]
    failures.extend(columns[failures_column(info.name)].to_numpy() for info in infos[1:])
    return Fates(columns, tuple(failures), *leaving(failures))


def leaving(failures: Sequence[Integers]) -> tuple[Integers, Mask]:
    """Return at which stage each of n records left, and whether it did because that stage could not judge it.

    Args:
        failures: int64[n] of each stage, in order: bit masks of the rules that a record does not meet, 0 where it does.

    Returns:
        The stage's index, int64[n], -1 where the record is still there; and bool[n].
    """
    left_at = np.full(len(failures[0]), -1, np.int64)
    dead = np.zeros(len(failures[0]), np.bool_)
    for index in range(len(failures) - 1, -1, -1):
        left = failures[index] != 0
        left_at[left] = index
        dead[left] = failures[index][left] == UNJUDGED
    return left_at, dead


def first_rules(fates: Fates, index: int) -> Integers:
    """Return for each record the first rule of a stage that it does not meet, -1 where it meets all."""
    return first_rule(fates.failures[index])
