"""The Beam steps of ``contamination`` with boilerplate: in how many sources does each n-gram of the index occur?

n-grams and sources of batches -> by partition of the n-grams: sources counted -> n-grams set aside -> a file, which the
next pass reads; every batch is told that it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from corpus.packing import pack_arrays, rows_by_part, unpack_arrays
from filters.contamination_boilerplate import merge_sources, set_aside
from filters.contamination_corpus import ContaminationCorpus
from pipelines.duplicates import Context
from pipelines.found import Keyed, found_name, shuffled_bytes, told
from pipelines.profile import ProfiledDoFn
from reports.closing import SHUFFLED, summary_name

FEWEST_PARTITIONS = 64
PARTITION_BYTES = 8 << 20
"""What a partition may hold at most."""
PAIR_BYTES = 16
"""An n-gram and one of its sources."""


def partitions_of(stage: ContaminationCorpus) -> int:
    """Return the number of partitions of the n-grams of a stage that is prepared.

    Of each n-gram the first ``boilerplate`` sources are kept, so the index tells how much there can be.
    """
    most = len(stage.index().postings) * stage.limit * PAIR_BYTES
    return max(FEWEST_PARTITIONS, -(-most // PARTITION_BYTES))


def by_partition(pack: bytes, partitions: int) -> list[Keyed]:
    """Return packed n-grams and sources as (partition, packed)."""
    ngrams, sources = unpack_arrays(pack, (np.uint64, np.uint64))
    parts = (ngrams % np.uint64(partitions)).astype(np.int64)
    return [(part, pack_arrays([ngrams[rows], sources[rows]])) for part, rows in rows_by_part(parts)]


class MergeSources(beam.CombineFn):  # type: ignore[misc]
    """Packed n-grams and sources -> the same merged, at most so many sources of each n-gram."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def create_accumulator(self) -> bytes:
        """Return those of no text."""
        return merge_sources([], self.limit)

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Merge those of one batch."""
        return self.merge_accumulators([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Merge any number."""
        return merge_sources(list(accumulators), self.limit)

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the merged ones."""
        return accumulator


class SetAside(beam.DoFn):  # type: ignore[misc]
    """(Partition, merged n-grams and sources) -> the n-grams that occur in too many sources, uint32."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def process(self, element: Keyed) -> Iterator[bytes]:
        """Look at one partition."""
        yield set_aside(element[1], self.limit).tobytes()


class JoinNgrams(beam.CombineFn):  # type: ignore[misc]
    """n-grams, uint32 -> all of them, ascending."""

    def create_accumulator(self) -> bytes:
        """Return none."""
        return b""

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add those of one partition."""
        return mutable_accumulator + element

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Join any number."""
        return b"".join(accumulators)

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return them in order."""
        return np.sort(np.frombuffer(accumulator, np.uint32)).tobytes()


class WriteFound(ProfiledDoFn):
    """The n-grams set aside -> writes what the verdict needs and what the report says; gives their number."""

    def __init__(self, job: Context, name: str) -> None:
        self.job = job
        self.name = name

    def setup(self) -> None:
        """Load the index."""
        stage = self.job.stage(self.name)
        assert isinstance(stage, ContaminationCorpus)
        stage.prepare()
        self.stage = stage

    def process(self, element: bytes, shuffled: int) -> Iterator[int]:
        """Write both files."""
        data, summary = self.stage.found(np.frombuffer(element, np.uint32))
        self.job.folder.write_bytes(found_name(self.name), data)
        text = json.dumps({SHUFFLED: shuffled, **summary}, sort_keys=True)
        self.job.folder.write_bytes(summary_name(self.name), text.encode())
        yield len(data)


@dataclass(frozen=True)
class BoilerplateVerdicts:
    """The steps of one such stage.

    Attributes:
        job: the run.
        stage: the stage, not prepared.
    """

    job: Context
    stage: ContaminationCorpus

    def apply(self, keys: beam.PCollection, chunks: beam.PCollection) -> beam.PCollection:
        """Return (batch key, nothing) for each batch, once it can be judged.

        Args:
            keys: (partition, packed n-grams and sources).
            chunks: (batch key, packed reference) of all batches.
        """
        name, limit = self.stage.name, self.stage.limit
        aside = (
            keys
            | f"{name}: sources of n-grams" >> beam.CombinePerKey(MergeSources(limit))
            | f"{name}: in too many" >> beam.ParDo(SetAside(limit)).with_output_types(bytes)
            | f"{name}: set aside" >> beam.CombineGlobally(JoinNgrams())
        )
        writing = beam.ParDo(WriteFound(self.job, name), shuffled_bytes(name, keys)).with_output_types(int)
        return told(name, chunks, aside | f"{name}: write" >> writing)
