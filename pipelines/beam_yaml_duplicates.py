"""The Beam steps of a duplicate stage over schema'd rows.

    rows -> encoded -> their bytes -> number of batches
              |                            |
              +-------- by hash ----> batches, staged -> DuplicateVerdicts -> by batch -> rows

A row's hash decides its batch and its place there. So nothing depends on the bundles in which rows come, and a step
that runs again writes the same files. Rows cross one shuffle, the one by hash; from there on they lie in staging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam import pvalue

from corpus.batch import chunk_key
from corpus.batch_layout import MAX_ITEMS
from corpus.errors import ThresherError
from corpus.folder import Folder
from corpus.staging import ChunkReference, write_batch
from corpus.verdicts import ALIVE, column_mask, mark_corpus_stage
from dedup.duplicates import DuplicateStage
from pipelines.beam_yaml_rows import ROWS_FILE, RowLayout, judged_rows, read_rows, row_digest
from pipelines.beam_yaml_staging import RowEncoder, check_staging, read_staged_rows, write_staged_rows
from pipelines.beam_yaml_steps import DROPPED, KEPT, as_row, row_values
from pipelines.duplicate_graph import DuplicateVerdicts
from pipelines.duplicates import prefixed, stage_signatures

# A batch is a group of a shuffle, whose size varies around this.
BATCH_BYTES = 2 << 20
ROW_BYTES = 100
DIGEST_BYTES = 16

Keyed: TypeAlias = tuple[int, bytes]
REFERENCES, TOTALS = "references", "totals"
REFERENCE, VERDICT = b"r", b"v"


@dataclass(frozen=True)
class RowsJob:
    """What the steps need to know of a duplicate stage over rows; see ``pipelines.duplicates.Context``.

    Attributes:
        layout: fields and stage.
        encoder: rows as bytes.
        root: path or URI of the staging folder.
        planned_rows: rows that are expected.
        shuffles_by_files: no, since nothing says where the workers are.
    """

    layout: RowLayout
    encoder: RowEncoder
    root: str
    planned_rows: int
    shuffles_by_files: bool = False

    @property
    def folder(self) -> Folder:
        """The staging folder, which is laid out like a run folder."""
        return Folder(self.root)

    def stage(self, name: str) -> DuplicateStage:
        """Return the stage of this name, which is the only one."""
        stage = self.layout.duplicate_stage
        assert name == stage.name
        return stage


class RowsStep(beam.DoFn):  # type: ignore[misc]
    """A step over rows."""

    def __init__(self, job: RowsJob) -> None:
        self.job = job


class EncodeRows(RowsStep):
    """Row -> its hash, and behind it its values, as bytes."""

    def process(self, element: Any) -> Iterator[bytes]:
        """Encode one row."""
        values = row_values(self.job.layout, element)
        yield row_digest(self.job.layout, values) + self.job.encoder.encode(values)


class Size(beam.DoFn):  # type: ignore[misc]
    """Bytes -> how many they are, with what a row takes beside them."""

    def process(self, element: bytes) -> Iterator[int]:
        """Measure one row."""
        yield len(element) + ROW_BYTES


class Spread(beam.DoFn):  # type: ignore[misc]
    """Encoded row, with the size of all -> (number of its batch, the encoded row)."""

    def process(self, element: bytes, size: int) -> Iterator[Keyed]:
        """Choose the batch of one row."""
        batches = min(-(-size // BATCH_BYTES), MAX_ITEMS)
        yield int.from_bytes(element[:8], "little") % batches, element


class StageRows(RowsStep):
    """(Number of a batch, its encoded rows) -> staging files, reference and totals."""

    def setup(self) -> None:
        """Load the stage's kernels."""
        check_staging(self.job.folder)
        self.job.layout.stage.prepare()

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed | pvalue.TaggedOutput]:
        """Stage one batch."""
        job, folder = self.job, self.job.folder
        # Engines give the values of a group in any order; the hash is in front.
        encoded = [data[DIGEST_BYTES:] for data in sorted(element[1])]
        key = chunk_key(element[0], 0)
        batch = read_rows(job.layout, [job.encoder.decode(data) for data in encoded], key).batch
        write_staged_rows(folder, key, encoded)
        write_batch(folder, batch)
        alive = column_mask(batch.marks, ALIVE)
        kept_bytes = int(batch.records.column("bytes").to_numpy()[alive].sum())
        yield key, ChunkReference(key, True, len(alive), 0, int(alive.sum()), kept_bytes).to_bytes()
        stage = job.layout.duplicate_stage
        totals = stage_signatures(stage, folder, key, batch.file, batch.records, batch.marks, alive)
        yield pvalue.TaggedOutput(TOTALS, totals)


def file_of(item: int) -> str:
    """Return the file of all records of rows."""
    return ROWS_FILE


class ApplyVerdicts(RowsStep):
    """(Batch key, its reference and its verdicts) -> its rows, as the step of a record stage gives them."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[beam.Row | pvalue.TaggedOutput]:
        """Apply the verdicts to one batch."""
        job, stage = self.job, self.job.layout.duplicate_stage
        key, values = element
        parts: dict[bytes, list[bytes]] = {REFERENCE: [], VERDICT: []}
        for value in values:
            parts[value[:1]].append(value[1:])
        if len(parts[REFERENCE]) != 1:
            raise ThresherError(f"{stage.name}: batch {key} is there {len(parts[REFERENCE])} times; run it again")
        rows = [job.encoder.decode(data) for data in read_staged_rows(job.folder, key)]
        read = read_rows(job.layout, rows, key)
        batch = read.batch
        verdict = stage.apply(
            key, batch.records, column_mask(batch.marks, ALIVE), batch.marks, sorted(parts[VERDICT]), file_of
        )
        judged = replace(batch, marks=mark_corpus_stage(stage, verdict, batch.marks))
        for _, kept, row_values_after in judged_rows(job.layout, read, judged):
            row = as_row(job.layout, kept, row_values_after)
            yield row if kept else pvalue.TaggedOutput(DROPPED, row)


def judged_by_duplicate_stage(
    rows: beam.PCollection, job: RowsJob, row_types: Mapping[str, Any]
) -> Mapping[str, beam.PCollection]:
    """Return the rows that stay (``KEPT``) and that leave (``DROPPED``) by a duplicate stage.

    Args:
        rows: rows with the fields of the job's layout, bounded and in the global window.
        row_types: Beam's types of the two outputs.
    """
    encoded = rows | "Encode" >> beam.ParDo(EncodeRows(job)).with_output_types(bytes)
    size = (
        encoded
        | "Sizes" >> beam.ParDo(Size()).with_output_types(int)
        | "Size of all" >> beam.CombineGlobally(sum).with_output_types(int)
    )
    staged = (
        encoded
        | "Spread" >> beam.ParDo(Spread(), pvalue.AsSingleton(size)).with_output_types(Keyed)
        | "Batches" >> beam.GroupByKey()
        | "Stage"
        >> beam.ParDo(StageRows(job)).with_output_types(Keyed, **{TOTALS: bytes}).with_outputs(TOTALS, main=REFERENCES)
    )
    references = staged[REFERENCES]
    duplicates = DuplicateVerdicts(job, job.layout.duplicate_stage, 1)
    verdicts = duplicates.apply(references, staged[TOTALS])
    applying = beam.ParDo(ApplyVerdicts(job)).with_output_types(row_types[KEPT], **{DROPPED: row_types[DROPPED]})
    both = (
        references | "References" >> prefixed(REFERENCE),
        verdicts | "Verdicts" >> prefixed(VERDICT),
    )
    return (  # type: ignore[no-any-return]
        both
        | "Both" >> beam.Flatten()
        | "By batch" >> beam.GroupByKey()
        | "Apply" >> applying.with_outputs(DROPPED, main=KEPT)
    )
