"""The Beam graph of a run: the same for every runner, whatever the number of files, sources or workers.

Elements are batches, or pairs of an int key and packed bytes; text never crosses a shuffle.
"""

from __future__ import annotations

import importlib
import itertools

import apache_beam as beam
from apache_beam import pvalue

from corpus.batch import DocumentBatch
from dedup.duplicates import DuplicateStage
from filters.contamination_corpus import ContaminationCorpus
from filters.quarantine import Quarantine
from pipelines import steps
from pipelines.best import BestVerdicts
from pipelines.boilerplate import BoilerplateVerdicts
from pipelines.duplicate_graph import DuplicateVerdicts
from pipelines.duplicates import prefixed
from pipelines.job import Job
from pipelines.passes import Pass
from pipelines.quarantine import QuarantineVerdicts
from scorers.best import BestStage


def _marked(batches: beam.PCollection, job: Job, current: Pass) -> beam.PCollection:
    for stage in current.measuring:
        step = beam.ParDo(steps.MarkRecordStage(job, stage.name)).with_output_types(DocumentBatch)
        if stage.accelerator and job.accelerator:
            step = step.with_resource_hints(accelerator=job.accelerator)
        batches = batches | stage.name >> step
    return batches


def _pass_outputs(step: beam.DoFn) -> beam.PTransform:
    tags = {steps.KEYS: steps.Keyed, steps.TOTALS: bytes}
    return beam.ParDo(step).with_output_types(steps.Keyed, **tags).with_outputs(*tags, main=steps.CHUNKS)


def _first_pass_outputs(step: beam.DoFn) -> beam.PTransform:
    tags = {
        steps.KEYS: steps.Keyed,
        steps.TOTALS: bytes,
        steps.TYPES: bytes,
        steps.IDS: steps.Keyed,
    }
    return beam.ParDo(step).with_output_types(steps.Keyed, **tags).with_outputs(*tags, main=steps.CHUNKS)


def _verdicts(job: Job, current: Pass, staged: beam.pvalue.DoOutputsTuple) -> beam.PCollection:
    """Return (batch key, packed verdicts) of the corpus stage that a pass feeds."""
    stage, chunks, keys = current.feeds, staged[steps.CHUNKS], staged[steps.KEYS]
    if isinstance(stage, BestStage):
        return BestVerdicts(job, stage).apply(keys, staged[steps.TOTALS])
    if isinstance(stage, ContaminationCorpus):
        return BoilerplateVerdicts(job, stage).apply(keys, chunks)
    if isinstance(stage, Quarantine):
        return QuarantineVerdicts(job, stage).apply(keys, chunks)
    assert isinstance(stage, DuplicateStage)
    return DuplicateVerdicts(job, stage, current.number).apply(chunks, staged[steps.TOTALS])


def build(pipeline: beam.Pipeline, job: Job) -> None:
    """Add all steps of a run to a pipeline."""
    # An engine may wait for ever for workers that cannot load a step. Loading this one takes Beam alone; it fails.
    _ = (
        pipeline
        | "Workers" >> beam.Create([steps.__name__], reshuffle=False).with_output_types(str)
        | "Have Thresher" >> beam.Filter(importlib.import_module)
    )
    passes = job.passes()
    first = passes[0]
    items = (
        pipeline
        | "Start" >> beam.Impulse()
        | "Items" >> beam.ParDo(steps.ListItems(job)).with_output_types(steps.Numbered)
        | "Spread items" >> beam.GroupByKey()
    )
    read = items | "Read" >> beam.ParDo(steps.ReadItems(job)).with_output_types(DocumentBatch)
    staged = _marked(read, job, first) | "Stage" >> _first_pass_outputs(steps.StageBatches(job, 1))
    types = staged[steps.TYPES] | "Merge column types" >> beam.CombineGlobally(steps.MergeTypes())
    if job.config.input.id_column is not None:
        _ = (
            staged[steps.IDS]
            | "Group ids" >> beam.GroupByKey()
            | "Repeated ids" >> beam.ParDo(steps.CountRepeatedIds(job)).with_output_types(int)
        )
    for before, current in itertools.pairwise(passes):
        chunks = staged[steps.CHUNKS]
        verdicts = _verdicts(job, before, staged)
        references = chunks | f"Pass {current.number}: batches" >> prefixed(steps.REFERENCE)
        found = verdicts | f"Pass {current.number}: verdicts" >> prefixed(steps.VERDICT)
        batches = (
            (references, found)
            | f"Pass {current.number}: both" >> beam.Flatten()
            | f"Pass {current.number}: by batch" >> beam.GroupByKey()
            | f"Pass {current.number}: open"
            >> beam.ParDo(steps.OpenPass(job, current.number)).with_output_types(DocumentBatch)
        )
        marked = _marked(batches, job, current)
        staged = marked | f"Pass {current.number}: stage" >> _pass_outputs(steps.StageMarks(job, current.number))
    _ = (
        staged[steps.CHUNKS]
        | "For all batches" >> beam.ParDo(steps.Together(job)).with_output_types(steps.Keyed)
        | "All batches" >> beam.GroupByKey()
        | "Plan shards" >> beam.ParDo(steps.PlanShards(job)).with_output_types(steps.Keyed)
        | "Spread shards" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(steps.WriteShard(job), pvalue.AsSingleton(types)).with_output_types(int)
    )
