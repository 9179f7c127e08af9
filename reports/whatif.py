"""Counts under other thresholds, from what a run has stored.

A record passes the stages in their order, as in a run. Where a stage has measured it (also after an earlier stage of
the same pass dropped it), the stored signals decide under any limits. What is not stored is not guessed: such a record
may stay or leave, which gives bounds of the numbers behind, and the reason why exact ones need ``thresher select``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.stages import CorpusStage, EditingStage, Stage
from dedup.duplicates import DuplicateStage
from reports.fates import StageInfo
from reports.manifest import REPORT_NAME
from reports.verify import read_json
from reports.whatif_best import best
from reports.whatif_changes import changed, unknown_measurements
from reports.whatif_clusters import ClusteredRecords, StagedRows, clustered_records
from reports.whatif_duplicates import Outcome, UndecidedError, estimate, is_staged, resolve
from reports.whatif_flow import GONE, MAYBE, STAYS, SURE, UNKNOWN, Codes, Flow, StageCounts, after, shown
from reports.whatif_group import MeasuredGroup
from reports.whatif_tables import DEAD, Mask, StoredSignals, open_manifest, stored_fates
from scorers.best import BestStage

FLOWS_AT_ONCE = 16
"""Settings that are followed side by side; each takes a byte per record."""

Characters = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Variant:
    """Stages of a run with some settings.

    Attributes:
        stages: in their order; of a corpus stage with a verdict part, that part.
        need_all: for each, whether it is a corpus stage.
    """

    stages: tuple[Stage, ...]
    need_all: tuple[bool, ...]

    @staticmethod
    def of(stages: Sequence[Stage]) -> Variant:
        """Return the variant with the stages of a config."""
        judging = ((stage.verdict_part() if isinstance(stage, CorpusStage) else None) or stage for stage in stages)
        return Variant(tuple(judging), tuple(isinstance(stage, CorpusStage) for stage in stages))


class StoredRun:
    """A finished run, for questions about other thresholds.

    Args:
        root: path or URI of the run folder.
        infos: its stages, ``input`` first.
        settings: the stages with the settings of the run.

    Raises UsageError where the run is unfinished, damaged or of another version.
    """

    def __init__(self, root: str, infos: Sequence[StageInfo], settings: Variant) -> None:
        self.folder = Folder(root)
        manifest = open_manifest(self.folder)
        self.report = read_json(self.folder, REPORT_NAME)
        self.infos = list(infos)
        self.settings = settings
        self.signals = StoredSignals(self.folder, manifest)
        self.fates = stored_fates(self.signals, manifest, infos)
        self._check()
        self._staged: StagedRows | None = None
        self._clustered: dict[str, tuple[Any, Mask, ClusteredRecords]] = {}
        self.checked: set[str] = set()

    def _check(self) -> None:
        dropped = [
            int(((self.fates.left_at == index) & (self.fates.rules != DEAD)).sum()) for index in range(len(self.infos))
        ]
        told = [stage["dropped"] for stage in self.report["stages"]]
        if dropped != told or self.signals.rows < sum(dropped):
            raise UsageError(f"{self.folder.root}: ledger and report do not fit each other; see thresher verify")

    @property
    def is_staged(self) -> bool:
        """Whether staging is there, for exact answers and for ``thresher select``."""
        return self.folder.exists("staging/records")

    def staged(self) -> StagedRows | None:
        """Return how the records lie in staging; None where it was removed."""
        if self._staged is None:
            self._staged = StagedRows.of(self.signals)
        return self._staged

    def clustered(
        self, before: DuplicateStage, after: DuplicateStage, rows: StagedRows, entered: Mask, entering: Mask
    ) -> ClusteredRecords:
        """Return what ``clustered_records`` does; those found last are kept, for settings that only move a budget."""
        last = self._clustered.get(before.name)
        if last is None or last[0] != after.config.priorities or not np.array_equal(last[1], entering):
            found = clustered_records(self.folder, before, after, self.signals, rows, entered, entering)
            last = self._clustered[before.name] = (after.config.priorities, entering.copy(), found)
        return last[2]

    def measured(self, index: int) -> Mask:
        """Return for which records the signals of a stage are stored, or null because that is what was measured."""
        if self.settings.need_all[index - 1] or self.settings.stages[index - 1].speed:
            return self.fates.reached(index)
        corpus_stages = [place for place in range(1, index) if self.settings.need_all[place - 1]]
        return self.fates.reached(max(corpus_stages, default=0) + 1)


def follow(run: StoredRun, variants: Sequence[Variant], objective: str | None = None) -> list[dict[str, Any]]:
    """Return what becomes of the records of a run: as it was, then under each of the variants.

    Each result has ``records`` (read, kept, dropped, dead), ``characters`` kept, ``stages`` and, with an objective,
    ``mean``. A number that is not known is ``{at_least, at_most}``; characters and means are None where they are not.

    Args:
        objective: a signal, ``stage.signal``, whose mean over the kept records is wanted.
    """
    if objective is not None:
        run.signals.check([objective])
    results: list[dict[str, Any]] = []
    for start in range(0, max(len(variants), 1), FLOWS_AT_ONCE):
        found = _Follower(run, variants[start : start + FLOWS_AT_ONCE]).results(objective)
        results.extend(found[1:] if results else found)
    return results


class _Follower:
    """Follows the run itself, the last variant, and others beside it, each from the stage on where it differs."""

    def __init__(self, run: StoredRun, variants: Sequence[Variant]) -> None:
        self.run = run
        self.stages = run.settings.stages
        self.count = len(self.stages)
        self.variants = [*variants, run.settings]
        self.itself = len(variants)
        self.changes = [
            [changed(old, new) for old, new in zip(self.stages, variant.stages, strict=True)]
            for variant in self.variants
        ]
        self.unknown = [unknown_measurements(self.stages, variant.stages) for variant in self.variants]
        self.first = [
            next((place for place, change in enumerate(changes) if change.settings), self.count)
            for changes in self.changes
        ]
        entering = run.fates.reached(1)
        self.base = Flow(np.where(entering, SURE, GONE).astype(np.uint8))
        self.flows = {self.itself: self.base}
        self.characters: Characters = run.signals.all("input.characters").to_numpy().copy()
        self.measured: dict[int, Mask] = {}

    def results(self, objective: str | None) -> list[dict[str, Any]]:
        """Return the results: of the run, then of the variants."""
        place = 0
        while place < self.count:
            stop = place
            while stop < self.count and not self._is_corpus(stop):
                stop += 1
            if stop > place:
                self._record_stages(place, stop)
            if stop < self.count:
                self._corpus_stage(stop)
                stop += 1
            place = stop
        values = None if objective is None else self.run.signals.all(objective)
        ordered = [self.itself, *range(self.itself)]
        return [self._result(self.flows.get(number, self.base), values) for number in ordered]

    def _is_corpus(self, place: int) -> bool:
        return any(variant.need_all[place] for variant in self.variants)

    def _active(self, place: int) -> list[int]:
        """Return the variants that are followed at a stage, the run itself last: others branch off from it."""
        return [number for number in range(self.itself) if self.first[number] <= place] + [self.itself]

    def _record_stages(self, start: int, stop: int) -> None:
        """Follow all through some record stages, a row group at a time."""
        counts = {(number, place): StageCounts() for place in range(start, stop) for number in self._active(place)}
        for number, first in enumerate(self.first[: self.itself]):
            if start <= first < stop:
                self.flows[number] = Flow(np.zeros(len(self.base.states), np.uint8))
        for group in self.run.signals.groups:
            measured = MeasuredGroup(self.run.signals, group)
            rows = measured.rows
            for place in range(start, stop):
                for number in self._active(place):
                    if self.first[number] == place:
                        self.flows[number].states[rows] = self.base.states[rows]
                    states = self.flows[number].states[rows]
                    codes = self._codes(measured, number, place, states, counts[number, place])
                    counts[number, place].count(states, codes)
                    self.flows[number].states[rows] = after(states, codes)
                self._cut(measured, place)
                for number in self._active(place):
                    counts[number, place].add_characters(self.flows[number].states[rows], self.characters[rows])
        for place in range(start, stop):
            for number in self._active(place):
                flow, stage = self.flows[number], self.variants[number].stages[place]
                if self.first[number] == place:
                    flow.begin_as(self.base)
                flow.close(stage, counts[number, place])

    def _codes(
        self,
        group: MeasuredGroup,
        number: int,
        place: int,
        states: npt.NDArray[np.uint8],
        counts: StageCounts,
    ) -> Codes:
        """Return what a stage does to the records of a row group, as rules over stored signals say."""
        run, stage, index = self.run, self.variants[number].stages[place], place + 1
        rows = group.rows
        left, rules = run.fates.left_at[rows], run.fates.rules[rows]
        may_fail = bool(getattr(stage, "may_fail", False))
        if self.unknown[number][place]:
            counts.because(self.unknown[number][place])
            counts.lengths_unknown = counts.lengths_unknown or self._edits(number, place)
            return np.full(len(states), UNKNOWN if stage.rules() or may_fail else STAYS, np.int8)
        reached = run.fates.reached(index, rows)
        codes = np.where(left == index, rules, STAYS).astype(np.int8)
        wanted = states != GONE
        if not self.changes[number][place].settings:
            wanted &= ~reached
        if not wanted.any() or not (stage.rules() or may_fail):
            return codes if not self.changes[number][place].settings else np.where(rules == DEAD, codes, STAYS)
        if index not in self.measured:
            self.measured[index] = run.measured(index)
        measured = self.measured[index][rows]
        if may_fail:
            # Nothing tells a record that could not be judged from one without any value, once another stage dropped it.
            measured = measured & (reached | ~group.without_values(stage))
        codes = np.where(wanted & ~((left == index) & (rules == DEAD)), group.judged(stage), codes)
        missing = wanted & ~measured
        codes[missing] = UNKNOWN
        if missing.any():
            counts.because("it has not measured records that an earlier stage dropped in the run")
            counts.lengths_unknown = counts.lengths_unknown or self._edits(number, place)
        return codes.astype(np.int8)

    def _edits(self, number: int, place: int) -> bool:
        stages = (self.stages[place], self.variants[number].stages[place])
        return any(isinstance(stage, EditingStage) and stage.edits() for stage in stages)

    def _cut(self, group: MeasuredGroup, place: int) -> None:
        """Take into account what the stage cut in the run."""
        if not self._edits(self.itself, place):
            return
        name = self.stages[place].name
        columns = group.columns([f"{name}.characters_added", f"{name}.characters_cut"])
        added, cut = (pc.fill_null(column, 0).to_numpy() for column in columns)
        self.characters[group.rows] += added - cut

    def _corpus_stage(self, place: int) -> None:
        """Follow all through a stage that needs all records."""
        for number in self._active(place):
            if self.first[number] == place:
                self.flows[number] = self.base.copy()
            flow, stage = self.flows[number], self.variants[number].stages[place]
            counts = StageCounts()
            outcome = self._outcome(number, place, flow, counts)
            states = flow.states
            counts.count(states, outcome.codes)
            flow.states = after(states, outcome.codes)
            counts.add_characters(flow.states, self.characters)
            counts.details.update(outcome.details)
            known = outcome.staying is not None
            flow.close(
                stage,
                counts,
                outcome.staying,
                outcome.rule if known else None,
                # The first of all in the order stays in any case.
                least_kept=int(isinstance(stage, DuplicateStage) and not known),
            )

    def _outcome(self, number: int, place: int, flow: Flow, counts: StageCounts) -> Outcome:
        run, index = self.run, place + 1
        stage, change = self.variants[number].stages[place], self.changes[number][place]
        reached = run.fates.reached(index)
        same = not (flow.states == MAYBE).any() and np.array_equal(flow.states == SURE, reached)
        if not self.variants[number].need_all[place] or (same and not isinstance(stage, (DuplicateStage, BestStage))):
            groups = (MeasuredGroup(run.signals, group) for group in run.signals.groups)
            parts = [self._codes(group, number, place, flow.states[group.rows], counts) for group in groups]
            return Outcome(np.concatenate(parts) if parts else np.zeros(0, np.int8))
        if same and not change.settings and not self.unknown[number][place]:
            codes = np.where(run.fates.left_at == index, run.fates.rules, STAYS).astype(np.int8)
            return Outcome(codes, (0, 0))
        try:
            if self.unknown[number][place]:
                raise UndecidedError(self.unknown[number][place])
            if (flow.states == MAYBE).any():
                raise UndecidedError("which records enter it is not known")
            entering = flow.states == SURE
            if (entering & ~reached).any():
                raise UndecidedError("records enter it that did not in the run")
            if isinstance(stage, BestStage):
                return best(stage, run.signals, entering)
            if not isinstance(stage, DuplicateStage):
                raise UndecidedError("other records enter it than in the run")
            return self._duplicates(self.stages[place], stage, entering, reached)
        except UndecidedError as error:
            counts.because(str(error))
            return Outcome(np.full(len(flow.states), UNKNOWN if stage.rules() else STAYS, np.int8))

    def _duplicates(self, before: Stage, stage: DuplicateStage, entering: Mask, reached: Mask) -> Outcome:
        run = self.run
        assert isinstance(before, DuplicateStage)
        reordered = before.config.priorities != stage.config.priorities
        same = bool(np.array_equal(entering, reached))
        pairs: Mapping[str, int] = run.report["duplicates"].get(stage.name, {}).get("pairs", {})
        staged = run.staged() if is_staged(run.folder, stage.name) else None
        if staged is None:
            if reordered or not same:
                raise UndecidedError("its verified edges are not in the run folder any more")
            return estimate(before, stage, run.signals, reached)
        if (reordered or not same) and pairs.get("not_compared"):
            raise UndecidedError("the order decided which pairs of very large buckets were compared")
        self._check_staged(before, staged, reached)
        records = run.clustered(before, stage, staged, reached, entering)
        return resolve(records, before, stage, run.signals)

    def _check_staged(self, stage: DuplicateStage, staged: StagedRows, reached: Mask) -> None:
        """Raise UsageError unless staging gives, with the settings of the run, what the run found."""
        run = self.run
        if stage.name in run.checked:
            return
        records = run.clustered(stage, stage, staged, reached, reached)
        found = resolve(records, stage, stage, run.signals).codes[reached]
        index = next(place for place, info in enumerate(run.infos) if info.name == stage.name)
        told = np.where(run.fates.left_at == index, run.fates.rules, STAYS)[reached]
        if not np.array_equal(found, told):
            raise UsageError(
                f"{run.folder.root}: the edges in staging do not give the duplicates of the run; staging is damaged or "
                "of another version: run again with --overwrite"
            )
        run.checked.add(stage.name)

    def _result(self, flow: Flow, values: pa.Array | None) -> dict[str, Any]:
        report = self.run.report
        records, kept = report["records"], flow.kept()
        entries = [_input_entry(report), *flow.stages]
        dead_before = records["dead"] - int((self.run.fates.rules == DEAD).sum())
        dead = [dead_before + sum(_bound(entry["dead"], end) for entry in flow.stages) for end in (0, 1)]
        dropped = (max(0, records["read"] - kept[1] - dead[1]), records["read"] - kept[0] - dead[0])
        sure, maybe = (int(self.characters[flow.states == state].sum()) for state in (SURE, MAYBE))
        result: dict[str, Any] = {
            "records": {
                "read": records["read"],
                "kept": shown(kept),
                "dropped": shown(dropped),
                "dead": shown((dead[0], dead[1])),
            },
            "characters": flow.characters(sure, maybe) if flow.characters_known else None,
            "stages": entries,
        }
        if values is not None:
            known = pc.filter(values, pa.array(flow.states == SURE)).drop_null()
            exact = not (flow.states == MAYBE).any()
            result["mean"] = float(pc.mean(known).as_py()) if exact and len(known) else None
        return result


def _input_entry(report: Mapping[str, Any]) -> dict[str, Any]:
    stage = report["stages"][0]
    rules = {name: rule["first"] for name, rule in stage["rules"].items()}
    names = ("name", "entered", "dropped", "dead", "characters_out")
    return {**{name: stage[name] for name in names}, "rules": rules}


def _bound(number: int | Mapping[str, int], end: int) -> int:
    return number if isinstance(number, int) else number["at_most" if end else "at_least"]
