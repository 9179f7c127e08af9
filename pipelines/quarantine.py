"""The Beam steps of ``quarantine``: how many records of each source or file are dead, and how many were dropped?

Counts of batches -> by partition of the sources: summed up, those with enough records -> all together -> a file, which
the next pass reads; every batch is told that it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import DocumentBatch
from corpus.errors import ThresherError
from corpus.packing import rows_by_part
from corpus.staging import read_dead, read_marks, read_records, records_name
from corpus.verdicts import failures_column
from filters.quarantine import Quarantine, group_hashes, group_names
from filters.quarantine_groups import GROUP_BYTES, Groups, count_groups, merge_groups
from pipelines.duplicates import Context
from pipelines.found import Keyed, found_name, shuffled_bytes, told
from pipelines.job import Job
from pipelines.profile import ProfiledDoFn
from reports.closing import SHUFFLED, summary_name
from reports.fates import leaving

PARTITION_BYTES = 4 << 20
FEWEST_PARTITIONS = 16


def partitions_of(planned_rows: int) -> int:
    """Return the number of partitions of the groups, if each record were a group of its own."""
    return max(FEWEST_PARTITIONS, -(-planned_rows * GROUP_BYTES // PARTITION_BYTES))


def quarantine_keys(
    stage: Quarantine,
    job: Job,
    batch: DocumentBatch,
    dead: int,
    before: Sequence[Sequence[str]],
) -> list[Keyed]:
    """Return (partition, packed counts) of a batch that is staged.

    Args:
        batch: as the pass that the stage ends leaves it.
        dead: number of its dead letters.
        before: names of the stages in the marks of each pass so far, in order.
    """
    marks = [*(read_marks(job.folder, number, batch.key) for number in range(1, len(before))), batch.marks]
    failures = [batch.records.column("input_failures").to_numpy()]
    for names, columns in zip(before, marks, strict=True):
        failures.extend(columns.column(failures_column(name)).to_numpy() for name in names)
    left_at, unjudged = leaving(failures)
    own = group_hashes(stage.config, batch.file, batch.records.column("source"))
    letters = _dead_groups(stage, job, batch) if dead else own[:0]
    counts = count_groups(batch.key, own, left_at < 0, letters, unjudged)
    partitions = partitions_of(job.planned_rows)
    parts = (counts.hashes % np.uint64(partitions)).astype(np.int64)
    return [(part, counts.take(rows).pack()) for part, rows in rows_by_part(parts)]


def _dead_groups(stage: Quarantine, job: Job, batch: DocumentBatch) -> npt.NDArray[np.uint64]:
    letters = read_dead(job.folder, batch.key)
    # A fault of the file has no position; it is no record.
    sources = letters.column("source").filter(pc.is_valid(letters.column("position")))
    if stage.config.by == "source" and job.config.input.source_column is not None:
        # A line that cannot be decoded has the file in the place of a source that nobody knows.
        sources = sources.filter(pc.fill_null(pc.not_equal(sources, batch.file), True))
    return group_hashes(stage.config, batch.file, sources)


class MergeGroups(beam.CombineFn):  # type: ignore[misc]
    """Packed counts of groups -> their sums."""

    def create_accumulator(self) -> bytes:
        """Return those of no record."""
        return merge_groups([]).pack()

    def add_input(self, mutable_accumulator: bytes, element: bytes) -> bytes:
        """Add those of one batch."""
        return self.merge_accumulators([mutable_accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        """Add any number."""
        return merge_groups(map(Groups.unpack, accumulators)).pack()

    def extract_output(self, accumulator: bytes) -> bytes:
        """Return the sums."""
        return accumulator


class QuarantineStep(ProfiledDoFn):
    """A step of one such stage."""

    def __init__(self, job: Context, name: str) -> None:
        self.job = job
        self.name = name

    def setup(self) -> None:
        """Build the stage."""
        stage = self.job.stage(self.name)
        assert isinstance(stage, Quarantine)
        self.stage = stage


class Large(QuarantineStep):
    """(Partition, counts of its groups) -> those with enough records to be judged."""

    def process(self, element: Keyed) -> Iterator[bytes]:
        """Look at one partition."""
        groups = Groups.unpack(element[1])
        large = groups.take(np.flatnonzero(groups.read >= self.stage.config.minimum_records))
        self.stage.check_number(len(large))
        if len(large):
            yield large.pack()


class Judge(QuarantineStep):
    """Counts of all groups that are judged -> writes their shares, and what the report says; gives their number."""

    def process(self, element: bytes, shuffled: int) -> Iterator[int]:
        """Write both files. Raises ThresherError where bad groups end the run."""
        groups, folder = Groups.unpack(element), self.job.folder
        self.stage.check_number(len(groups))
        data, listed, number = self.stage.found(groups)
        listed = [self._named(entry) for entry in listed]
        if listed and self.stage.config.action == "fail":
            raise ThresherError(_failure(self.stage, listed, number))
        folder.write_bytes(found_name(self.name), data)
        found = {"by": self.stage.config.by, "judged": len(groups), "set_aside": number, "groups": listed}
        text = json.dumps({SHUFFLED: shuffled, "quarantine": found}, sort_keys=True)
        folder.write_bytes(summary_name(self.name), text.encode())
        yield len(groups)

    def _named(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of the report with the name of its group."""
        key, wanted, folder = entry["place"], entry["hash"], self.job.folder
        records = read_records(folder, key, folder.exists(records_name(key, last=True)), ["source"])
        file = records.schema.metadata[b"file"].decode()
        sources = records.column("source")
        if int(records.schema.metadata[b"dead"]):
            sources = pa.concat_arrays([sources, read_dead(folder, key).column("source")])
        names = dict(group_names(self.stage.config, file, sources))
        return {
            "name": names[wanted],
            **{name: value for name, value in entry.items() if name not in ("hash", "place")},
        }


def _failure(stage: Quarantine, listed: Sequence[Mapping[str, Any]], number: int) -> str:
    """Return the message, on one line: of longer ones engines may show the first alone."""
    shown = "; ".join(
        f"{entry['name']}: {entry['dead']:,} of {entry['read']:,} records are dead letters, {entry['dropped']:,} were "
        f"dropped ({', '.join(entry['limits'])})"
        for entry in listed[:5]
    )
    more = f"; and {number - 5:,} more" if number > 5 else ""
    return (
        f"{stage.name}: {number:,} of the {stage.config.by}s are far off the others: {shown}{more}. Leave them out of "
        f"input.files, change the limits of {stage.name}, or set its action to drop or flag"
    )


@dataclass(frozen=True)
class QuarantineVerdicts:
    """The steps of one such stage.

    Attributes:
        job: the run.
        stage: the stage, not prepared.
    """

    job: Context
    stage: Quarantine

    def apply(self, keys: beam.PCollection, chunks: beam.PCollection) -> beam.PCollection:
        """Return (batch key, nothing) for each batch, once it can be judged.

        Args:
            keys: (partition, packed counts of groups).
            chunks: (batch key, packed reference) of all batches.
        """
        name = self.stage.name
        groups = (
            keys
            | f"{name}: counts" >> beam.CombinePerKey(MergeGroups())
            | f"{name}: large" >> beam.ParDo(Large(self.job, name)).with_output_types(bytes)
            | f"{name}: all" >> beam.CombineGlobally(MergeGroups())
        )
        judging = beam.ParDo(Judge(self.job, name), shuffled_bytes(name, keys)).with_output_types(int)
        return told(name, chunks, groups | f"{name}: judge" >> judging)
