"""The Beam steps of a run: thin wrappers that call pure functions of the packages below.

Every step may run twice for the same element, at the same time: files have planned names and planned bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam import pvalue

from corpus.batch import DocumentBatch, split_chunk_key
from corpus.column_inference import column_types
from corpus.column_types import ColumnTypes
from corpus.errors import ThresherError
from corpus.findings import NO_FINDINGS, concat_findings, edits_of
from corpus.folder import Folder
from corpus.planning_types import items_by_work
from corpus.readers import read_item
from corpus.record_ids import count_repeated, id_partitions, pack_ids
from corpus.shards import CURATED, Shard, check_complete, plan_shards
from corpus.stages import VerdictPart
from corpus.staging import (
    ChunkReference,
    empty_dead,
    is_staged,
    read_batch,
    read_current,
    read_findings,
    read_marks,
    read_records,
    staged_chunks,
    write_batch,
    write_marks,
)
from corpus.verdicts import (
    ALIVE,
    alive_after,
    failures_column,
    mark_again,
    mark_corpus_stage,
    mark_record_stage,
    signal_column,
    with_columns,
)
from dedup.duplicates import DuplicateStage
from filters.contamination_corpus import ContaminationCorpus
from filters.quarantine import Quarantine
from pipelines.best import best_keys
from pipelines.boilerplate import by_partition, partitions_of
from pipelines.coders import DocumentBatchCoder
from pipelines.duplicates import stage_signatures
from pipelines.found import found_name
from pipelines.job import Job
from pipelines.passes import Pass
from pipelines.profile import ProfiledDoFn
from pipelines.quarantine import quarantine_keys
from reports.fates import stage_infos
from reports.writing import write_shard
from scorers.best import BestStage
from scorers.scoring import ScoreStage

Keyed: TypeAlias = tuple[int, bytes]
Numbered: TypeAlias = tuple[int, int]

CHUNKS, KEYS, TOTALS, TYPES, IDS = "chunks", "keys", "totals", "types", "ids"
beam.coders.registry.register_coder(DocumentBatch, DocumentBatchCoder)

REFERENCE, VERDICT = b"r", b"v"
IDS_FOLDER = "staging/repeated-ids"


class Step(ProfiledDoFn):
    """A step of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job


class ListItems(Step):
    """Impulse -> (number, item) for all items of the plan, the largest first.

    Runners that deal keys out in turn give each worker about as much that way. Items come from the plan's file, so the
    graph is the same whatever their number.
    """

    def process(self, element: bytes) -> Iterator[Numbered]:
        """List all items."""
        yield from enumerate(items_by_work(self.job.plan()))


class ReadItems(Step):
    """(Number, its one item) -> the item's batches; those of an item that is wholly staged come with their marks.

    Whether they were staged before makes no difference to what leaves the pass, so that a step may run again at any
    time.
    """

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[DocumentBatch]:
        """Read one item."""
        config, folder = self.job.config, self.job.folder
        for index in element[1]:
            chunks = staged_chunks(folder, index)
            if chunks is not None:
                yield from (read_batch(folder, key, last) for key, last in chunks)
            elif self.job.source is not None:
                yield from self._reread(Folder(self.job.source.root), index, self.job.source.reused)
            else:
                item = self.job.plan().items[index]
                yield from read_item(item, config.input, config.batch_rows, config.batch_bytes)

    def _reread(self, folder: Folder, index: int, reused: Sequence[str]) -> Iterator[DocumentBatch]:
        """Read an item as another run staged it, with what some of its stages measured."""
        stages = [self.job.record_stage(name) for name in reused]
        signals = [signal_column(stage.name, signal.name) for stage in stages for signal in stage.signals()]
        for key, last in staged_chunks(folder, index) or ():
            batch = read_batch(folder, key, last)
            yield replace(batch, marks=batch.marks.select([ALIVE, *signals]), findings=NO_FINDINGS, edited=None)


class MarkRecordStage(Step):
    """Batch -> the same batch with the signals and failures of one record stage."""

    def __init__(self, job: Job, name: str) -> None:
        super().__init__(job)
        self.name = name

    def setup(self) -> None:
        """Load the stage's kernels and models."""
        self.stage = self.job.record_stage(self.name)
        source = self.job.source
        self.is_reused = source is not None and self.name in source.reused
        if isinstance(self.stage, ScoreStage):
            self.stage.may_call = source is None or source.allow_calls
        if not self.is_reused:
            self.stage.prepare()

    def process(self, element: DocumentBatch) -> Iterator[DocumentBatch]:
        """Mark one batch."""
        if failures_column(self.name) in element.marks.schema.names:
            yield element
        elif self.is_reused:
            yield mark_again(self.stage, element)
        else:
            yield mark_record_stage(self.stage, element)


class PassStep(Step):
    """What the last steps of a pass share."""

    def __init__(self, job: Job, number: int) -> None:
        super().__init__(job)
        self.number = number

    def setup(self) -> None:
        """Build the stages of the pass."""
        passes = self.job.passes()[: self.number]
        self.current: Pass = passes[-1]
        self.before = [[stage.name for stage in earlier.stages] for earlier in passes]
        feeds = self.current.feeds
        # A scorer is prepared by the step that scores: without leave to call a judge there may be no key for it.
        if feeds and not isinstance(feeds, BestStage):
            feeds.prepare()

    def finished(self, batch: DocumentBatch, dead: int) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Yield the reference of a batch, and what the corpus stage takes of it."""
        key, records, marks = batch.key, batch.current, batch.marks
        alive = alive_after(marks, self.current.record_stages)
        kept = int(records.column("bytes").to_numpy()[alive].sum())
        reference = ChunkReference(key, batch.last, records.num_rows, dead, int(alive.sum()), kept)
        yield key, reference.to_bytes()
        stage = self.current.feeds
        if isinstance(stage, DuplicateStage):
            # Its keys are made from what is staged, once it is known how many records there are.
            keys: list[Keyed] = []
            totals = stage_signatures(stage, self.job.folder, key, batch.file, records, marks, alive)
            yield pvalue.TaggedOutput(TOTALS, totals)
        elif isinstance(stage, BestStage):
            keys, totals = best_keys(stage, self.job.planned_rows, key, records, marks, alive)
            yield pvalue.TaggedOutput(TOTALS, totals)
        elif isinstance(stage, ContaminationCorpus):
            keys = by_partition(stage.sources(batch.file, records, marks, alive), partitions_of(stage))
        elif isinstance(stage, Quarantine):
            keys = quarantine_keys(stage, self.job, batch, dead, self.before)
        else:
            keys = []
        for keyed in keys:
            yield pvalue.TaggedOutput(KEYS, keyed)


class StageBatches(PassStep):
    """The end of pass 1: batch -> its staging files, reference, column types, packed ids, a corpus stage's keys."""

    def process(self, element: DocumentBatch) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Stage one batch."""
        key, records, config = element.key, element.records, self.job.config.input
        if is_staged(self.job.folder, key, element.last):
            # An earlier attempt got this far. A judge may have answered otherwise then, and later passes read that.
            element = replace(element, marks=read_marks(self.job.folder, 1, key))
        else:
            write_batch(self.job.folder, element)
        yield from self.finished(element, element.dead.num_rows)
        yield pvalue.TaggedOutput(TYPES, column_types(key, records, config.declared_columns).to_bytes())
        if config.id_column is not None:
            for keyed in pack_ids(key, records, id_partitions(self.job.planned_rows)):
                yield pvalue.TaggedOutput(IDS, keyed)


def _with_alive(marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    return marks.set_column(marks.schema.get_field_index(ALIVE), ALIVE, pa.array(alive))


class OpenPass(PassStep):
    """(Batch key, its reference and its verdicts) -> the batch read back from staging, as a later pass begins."""

    def setup(self) -> None:
        """Build the stages of the pass."""
        super().setup()
        self.received = False

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[DocumentBatch]:
        """Read one batch back and apply the verdicts of the corpus stage to it."""
        key, values = element
        references: list[bytes] = []
        verdicts: list[bytes] = []
        for value in values:
            kind, rest = value[:1], value[1:]
            (references if kind == REFERENCE else verdicts).append(rest)
        if len(references) != 1:
            item, chunk = split_chunk_key(key)
            raise ThresherError(f"item {item}: its batches are not all there, once each ({chunk}: {len(references)})")
        reference = ChunkReference.from_bytes(references[0])
        # Engines give the values of a group in any order.
        verdicts.sort()
        folder = self.job.folder
        opening, part = self.current.verdicts_of, self.current.verdict_part
        assert opening is not None
        wanted = opening.columns()
        # Stages need texts, and a corpus stage behind reads whatever its keys are made of.
        needs_all = bool(self.current.record_stages or self.current.feeds or part or wanted is None)
        columns = None if needs_all else sorted({"bytes", "input_failures", *(wanted or ())})
        records = read_records(folder, key, reference.last, columns)
        file = records.schema.metadata[b"file"].decode()
        records = read_current(folder, self.number - 1, key, records)
        passes = self.job.passes()
        before = read_marks(folder, self.number - 1, key)
        alive = alive_after(before, passes[self.number - 2].record_stages)
        read_later = {name for later in passes[self.number - 1 :] for name in later.signal_columns}
        carried = {name: before.column(name) for name in sorted(read_later.intersection(before.schema.names))}
        entered = pa.RecordBatch.from_arrays([pa.array(alive)], names=[ALIVE])
        item, chunk = split_chunk_key(key)
        marks = with_columns(entered, carried)
        batch = DocumentBatch(item, chunk, reference.last, file, records, empty_dead(), marks, earlier=self._edits(key))
        if part is not None:
            yield self._judged(part, batch, before)
            return
        items = self.job.plan().items
        verdict = opening.apply(key, records, alive, before, verdicts, lambda item: items[item].file)
        marks = mark_corpus_stage(opening, verdict, batch.marks)
        yield replace(batch, marks=_with_alive(marks, alive & (verdict.failures == 0)))

    def _edits(self, key: int) -> pa.RecordBatch:
        """Return the edits of the passes before, where a stage needs them to find the turns of a chat in its text."""
        if all(stage.chat_column is None for stage in self.current.measuring):
            return NO_FINDINGS
        folder, numbers = self.job.folder, range(1, self.number)
        return concat_findings([edits_of(read_findings(folder, number, key)) for number in numbers])

    def _judged(self, part: VerdictPart, batch: DocumentBatch, before: pa.RecordBatch) -> DocumentBatch:
        """Return a batch with the verdict of the part that gives it."""
        if not self.received:
            part.prepare()
            part.receive(self.job.folder.read_bytes(found_name(part.name)))
            self.received = True
        read = {name: before.column(name) for name in part.signal_columns() if name not in batch.marks.schema.names}
        judged = mark_record_stage(part, replace(batch, marks=with_columns(batch.marks, read)))
        marks = judged.marks.select([name for name in judged.marks.schema.names if name not in read])
        return replace(judged, marks=_with_alive(marks, alive_after(marks, [part])))


class StageMarks(PassStep):
    """The end of a later pass: batch -> its marks file, reference and packed keys."""

    def process(self, element: DocumentBatch) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Store the marks of one batch."""
        write_marks(self.job.folder, self.number, element.key, element.marks, element.findings)
        dead = int(element.records.schema.metadata[b"dead"])
        yield from self.finished(element, dead)


class MergeTypes(beam.CombineFn):  # type: ignore[misc]
    """Packed column types of batches -> the merged types, packed."""

    def create_accumulator(self) -> bytes:
        """Return the types of no column."""
        return ColumnTypes().to_bytes()

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Merge one batch."""
        return self.merge_accumulators([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Merge any number."""
        merged = ColumnTypes()
        for data in accumulators:
            merged = merged.merge(ColumnTypes.from_bytes(data))
        return merged.to_bytes()

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the merged types."""
        return accumulator


class CountRepeatedIds(Step):
    """(Partition, packed ids of all batches) -> writes how many records repeat an id, where some do."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[int]:
        """Count one partition."""
        part, packed = element
        count, example = count_repeated(packed)
        if count:
            text = json.dumps({"records": count, "example": example})
            self.job.folder.write_bytes(f"{IDS_FOLDER}/{part:06d}.json", text.encode())
        yield count


class Together(Step):
    """(Batch key, reference) -> (0, reference): planning the shards needs all of them, 41 bytes each."""

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Give one reference the common key."""
        yield 0, element[1]


def _work(shard: Shard) -> int:
    # Text costs about eight times what the other tables do.
    return len(shard.chunks) * (8 if shard.kind == CURATED else 1)


class PlanShards(Step):
    """(0, references of all batches) -> (number, packed shard)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed]:
        """Plan all output files."""
        references = [ChunkReference.from_bytes(data) for data in element[1]]
        check_complete(references, self.job.plan(), self.job.config.input)
        shards = plan_shards(references, self.job.config.target_file_bytes)
        # Runners that deal keys out in turn give each worker about as much when the large ones come first.
        shards.sort(key=_work, reverse=True)
        for number, shard in enumerate(shards):
            yield number, shard.to_bytes()


class WriteShard(Step):
    """(Number, packed shard) -> its files; gives the number of its batches."""

    def setup(self) -> None:
        """Build the stages, for their rules and signals."""
        passes = [(current.number, current.stages) for current in self.job.passes()]
        self.infos = stage_infos(passes, self.job.config.input)

    def process(self, element: tuple[int, Iterable[bytes]], types: bytes) -> Iterator[int]:
        """Write one shard."""
        for data in element[1]:
            shard = Shard.from_bytes(data)
            files = [item.file for item in self.job.plan().items]
            column_types = ColumnTypes.from_bytes(types)
            write_shard(self.job.folder, shard, self.job.config.input, self.infos, column_types, files)
            yield len(shard.chunks)
