"""The Beam steps of a scorer that keeps the best records: from scores to verdicts on batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam import pvalue

from corpus import selection
from corpus.batch import split_chunk_key
from corpus.batch_layout import MAX_ROWS, ROW_BITS
from corpus.packing import pack_arrays, unpack_arrays
from corpus.selection_entries import Entries
from corpus.selection_keys import Integers, word_numbers
from pipelines.duplicates import Context
from pipelines.selection import Selecting
from scorers.best import KEY_WORDS, BestStage, pack_verdict

Keyed = tuple[int, bytes]

# Fractions of 2 ** 64: items and chunks go round the partitions like points of the plane that keep apart (M. Roberts,
# The unreasonable effectiveness of quasirandom sequences, 2018).
_ITEM_STEP, _CHUNK_STEP = 0xC13FA9A902A6328F, 0x91E10DA5C79E7B1D


def partition_of(key: int, partitions: int) -> int:
    """Return the partition of a batch: about as many batches in each, whatever the number of chunks per item.

    A remainder of the key would not do: its low bits are the chunk, and with 2 ** k partitions nothing else counts.
    """
    item, chunk = split_chunk_key(key)
    place = (item * _ITEM_STEP + chunk * _CHUNK_STEP) & ((1 << 64) - 1)
    return place * partitions >> 64


def best_keys(
    stage: BestStage,
    planned_rows: int,
    key: int,
    records: pa.RecordBatch,
    marks: pa.RecordBatch,
    alive: np.ndarray[Any, np.dtype[np.bool_]],
) -> tuple[list[Keyed], bytes]:
    """Return (partition, packed entries) of a batch, none where it has no score, and the packed totals per group."""
    packed = stage.entries(key, records, marks, alive)
    data = packed.pack()
    keys = [(partition_of(key, stage.partitions(planned_rows)), data)] if len(packed) else []
    return keys, selection.totals(data)


class Together(beam.DoFn):  # type: ignore[misc]
    """(Partition, packed entries of its batches) -> the entries as one."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        """Join the entries of one partition, in the order of their batches."""
        parts = [Entries.unpack(data) for data in element[1]]
        parts.sort(key=lambda part: int(part.row_ids[0]))
        yield Entries.concatenate(parts).pack()


class Lowest(beam.DoFn):  # type: ignore[misc]
    """Entries, with the selection -> the last key that is kept of each group, packed."""

    def process(self, element: bytes, chosen: bytes) -> Iterator[bytes]:
        """Look at one partition."""
        entries = Entries.unpack(element)
        kept = selection.select(element, chosen)
        yield last_words(entries.groups[kept], entries.words[kept, 0])


def last_words(groups: Integers, words: np.ndarray[Any, np.dtype[np.uint64]]) -> bytes:
    """Return (groups in ascending order, the largest word of each), packed."""
    order = np.lexsort((words, groups))
    groups, words = groups[order], words[order]
    last = np.flatnonzero(np.append(groups[1:] != groups[:-1], True)[: len(groups)])
    return pack_arrays([groups[last], words[last]])


class MergeLowest(beam.CombineFn):  # type: ignore[misc]
    """The last words of partitions -> those of all."""

    def create_accumulator(self) -> bytes:
        """Return those of no record."""
        return last_words(np.zeros(0, np.int64), np.zeros(0, np.uint64))

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Merge those of one partition."""
        return self.merge_accumulators([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Merge any number."""
        parts = [unpack_arrays(data, (np.int64, np.uint64)) for data in accumulators]
        return last_words(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the merged ones."""
        return accumulator


class Verdicts(beam.DoFn):  # type: ignore[misc]
    """Entries, with the selection and where the groups are cut -> (batch key, verdict)."""

    def process(self, element: bytes, chosen: bytes, lowest: bytes) -> Iterator[Keyed]:
        """Give the verdicts of one partition; each of its batches gets one."""
        entries = Entries.unpack(element)
        kept = selection.select(element, chosen)
        groups, words = unpack_arrays(lowest, (np.int64, np.uint64))
        keys = entries.row_ids >> ROW_BITS
        for key in np.unique(keys).tolist():
            own = keys == key
            cut = np.isin(groups, entries.groups[own])
            rows = entries.row_ids[own & kept] & (MAX_ROWS - 1)
            yield key, pack_verdict(rows, groups[cut], word_numbers(words[cut], descending=True))


@dataclass(frozen=True)
class BestVerdicts:
    """The steps of one such stage.

    Attributes:
        job: the run.
        stage: the stage, not prepared.
    """

    job: Context
    stage: BestStage

    def apply(self, keys: beam.PCollection, totals: beam.PCollection) -> beam.PCollection:
        """Return (batch key, packed verdict) for each batch with a score.

        Args:
            keys: (partition, packed entries).
            totals: packed totals per group.
        """
        name = self.stage.name
        entries = (
            keys
            | f"{name}: group keys" >> beam.GroupByKey()
            | f"{name}: entries" >> beam.ParDo(Together()).with_output_types(bytes)
        )
        limits = partial(_limits, self.job, name)
        chosen = Selecting(f"{name}: best", limits, KEY_WORDS, self.job.planned_rows).choose(entries, totals)
        lowest = (
            entries
            | f"{name}: lowest kept" >> beam.ParDo(Lowest(), pvalue.AsSingleton(chosen)).with_output_types(bytes)
            | f"{name}: cutoffs" >> beam.CombineGlobally(MergeLowest())
        )
        giving = beam.ParDo(Verdicts(), pvalue.AsSingleton(chosen), pvalue.AsSingleton(lowest))
        return entries | f"{name}: verdicts" >> giving.with_output_types(Keyed)


def _limits(job: Context, name: str, basis: bytes) -> tuple[Integers, Integers]:
    stage = job.stage(name)
    assert isinstance(stage, BestStage)
    return stage.limits(basis)
