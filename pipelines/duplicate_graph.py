"""The Beam graph of a duplicate stage: from packed keys to verdicts on batches.

sizes -> keys -> buckets: cliques -> pairs -> proven edges -> forest
                 members of stars                 |              |
                 candidates -> shingles staged    members, edges by component -> clusters -> verdicts
                                                                                 copies -> selection
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam import pvalue

from dedup.budget import BudgetGroups, key_width, limits
from dedup.duplicates import DuplicateStage
from pipelines.combining import Forest, MergeTotals, Sum, SumCounts
from pipelines.duplicate_clusters import (
    LabelEdges,
    LabelNodes,
    ResolveClusters,
    Selected,
    SendUnits,
    SizeEdges,
    SizeNodes,
    WriteSummary,
)
from pipelines.duplicates import (
    CANDIDATES,
    CLIQUES,
    COPIES,
    COUNTS,
    EDGES,
    MAIN,
    MEMBERS,
    REFERENCE,
    ROWS,
    TOTALS,
    VERDICTS,
    Context,
    Keyed,
    Propose,
    SendKeys,
    SizeKeys,
    StageShingles,
    Verify,
    prefixed,
)
from pipelines.selection import Selecting


def _counted(step: beam.DoFn, *sides: pvalue.AsSideInput) -> beam.PTransform:
    """Return a step that gives keyed packed values, with its counts beside them."""
    return beam.ParDo(step, *sides).with_output_types(Keyed, **{COUNTS: bytes}).with_outputs(COUNTS, main=MAIN)


def _sizes(label: str, values: beam.PCollection, step: beam.DoFn, *sides: pvalue.AsSideInput) -> pvalue.AsSideInput:
    """Return the sum of the packed totals that a step gives, for other steps."""
    totals = values | label >> beam.ParDo(step, *sides).with_output_types(bytes)
    return pvalue.AsSingleton(totals | f"{label}, all" >> beam.CombineGlobally(MergeTotals()))


@dataclass(frozen=True)
class DuplicateVerdicts:
    """The steps of one duplicate stage.

    Attributes:
        job: the run.
        stage: the stage, not prepared.
        pass_number: the pass whose survivors enter the stage.
    """

    job: Context
    stage: DuplicateStage
    pass_number: int

    def apply(self, chunks: beam.PCollection, totals: beam.PCollection) -> beam.PCollection:
        """Return (batch key, packed verdicts).

        Args:
            chunks: (batch key, packed reference) of all batches; their signatures are staged.
            totals: packed totals per group of the budget, of all records that enter.
        """
        name, job, stage = self.stage.name, self.job, self.stage
        entering = pvalue.AsSingleton(totals | f"{name}: records" >> beam.CombineGlobally(MergeTotals()))
        key_sizes = _sizes(f"{name}: sizes of keys", chunks, SizeKeys(job, name), entering)
        keys = chunks | f"{name}: keys" >> _counted(SendKeys(job, name), entering, key_sizes)
        proposed = (
            keys[MAIN]
            | f"{name}: group keys" >> beam.GroupByKey()
            | f"{name}: buckets"
            >> beam.ParDo(Propose(job, name), entering)
            .with_output_types(Keyed, **{CANDIDATES: Keyed, MEMBERS: Keyed, COUNTS: bytes})
            .with_outputs(CANDIDATES, MEMBERS, COUNTS, main=CLIQUES)
        )
        members, counts, forest = [proposed[MEMBERS]], [keys[COUNTS], proposed[COUNTS]], []
        if stage.bands:
            verified, staged_counts = self._verified(proposed[CLIQUES], proposed[CANDIDATES], chunks)
            members.append(verified[MEMBERS])
            counts += [verified[COUNTS], staged_counts]
            forest_of_all = verified[EDGES] | f"{name}: components" >> beam.CombineGlobally(
                Forest(stage.max_forest_edges)
            )
            forest = [pvalue.AsSingleton(forest_of_all)]
        by_batch = members | f"{name}: all members" >> beam.Flatten() | f"{name}: members by batch" >> beam.GroupByKey()
        sides = [entering, _sizes(f"{name}: sizes of nodes", by_batch, SizeNodes(job, name), entering, *forest)]
        if stage.bands:
            sides.append(_sizes(f"{name}: sizes of edges", verified[EDGES], SizeEdges(job, name), entering, *forest))
        sides += forest
        nodes = by_batch | f"{name}: nodes by component" >> _counted(LabelNodes(job, name), *sides)
        edges = []
        if stage.bands:
            labelled = verified[EDGES] | f"{name}: edges by component" >> _counted(LabelEdges(job, name), *sides)
            edges.append(labelled[MAIN])
            counts.append(labelled[COUNTS])
        tags = {COPIES: bytes, TOTALS: bytes, COUNTS: bytes}
        resolved = (
            [nodes[MAIN], *edges]
            | f"{name}: nodes and edges" >> beam.Flatten()
            | f"{name}: by component" >> beam.GroupByKey()
            | f"{name}: clusters"
            >> beam.ParDo(ResolveClusters(job, name))
            .with_output_types(Keyed, **tags)
            .with_outputs(*tags, main=VERDICTS)
        )
        basis = [totals, resolved[TOTALS]] | f"{name}: leaders and copies" >> beam.Flatten()
        leaders = basis | f"{name}: leaders" >> beam.CombineGlobally(MergeTotals())
        self._summary([*counts, nodes[COUNTS], resolved[COUNTS]], leaders)
        verdicts = [resolved[VERDICTS]]
        if stage.has_units:
            sending = beam.ParDo(SendUnits(job, name), pvalue.AsSingleton(leaders)).with_output_types(Keyed)
            verdicts.append(chunks | f"{name}: units" >> sending)
        config = stage.config
        if config.keeps_copies:
            allowed = partial(_limits, config.budget, config.groups)
            selecting = Selecting(f"{name}: budget", allowed, key_width(len(config.priorities)), job.planned_rows)
            kept = selecting.apply(resolved[COPIES], basis)
            verdicts.append(kept | f"{name}: kept copies" >> beam.ParDo(Selected()).with_output_types(Keyed))
        return verdicts | f"{name}: verdicts" >> beam.Flatten()

    def _verified(
        self, cliques: beam.PCollection, candidates: beam.PCollection, chunks: beam.PCollection
    ) -> tuple[pvalue.DoOutputsTuple, beam.PCollection]:
        name, job = self.stage.name, self.job
        references = chunks | f"{name}: batches" >> prefixed(REFERENCE)
        rows = candidates | f"{name}: candidates" >> prefixed(ROWS)
        staging = beam.ParDo(StageShingles(job, name, self.pass_number)).with_output_types(int, **{COUNTS: bytes})
        shingles = (
            [references, rows]
            | f"{name}: both" >> beam.Flatten()
            | f"{name}: candidates by batch" >> beam.GroupByKey()
            | f"{name}: shingles" >> staging.with_outputs(COUNTS, main=MAIN)
        )
        staged = shingles[MAIN] | f"{name}: all shingles" >> beam.CombineGlobally(Sum())
        tags = {MEMBERS: Keyed, COUNTS: bytes}
        verifying = beam.ParDo(Verify(job, name), pvalue.AsSingleton(staged))
        verified = (
            cliques
            | f"{name}: cliques by home" >> beam.GroupByKey()
            | f"{name}: verify" >> verifying.with_output_types(Keyed, **tags).with_outputs(*tags, main=EDGES)
        )
        return verified, shingles[COUNTS]

    def _summary(self, counts: list[beam.PCollection], leaders: beam.PCollection) -> None:
        name = self.stage.name
        writing = beam.ParDo(WriteSummary(self.job, name), pvalue.AsSingleton(leaders)).with_output_types(int)
        _ = (
            counts
            | f"{name}: pair counts" >> beam.Flatten()
            | f"{name}: pairs" >> beam.CombineGlobally(SumCounts())
            | f"{name}: summary" >> writing
        )


def _limits(budget: float, groups: BudgetGroups | None, basis: bytes) -> tuple[Any, Any]:
    return limits(budget, groups, basis)
