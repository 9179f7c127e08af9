"""The Beam steps of a stage over schema'd rows: bundles of rows become batches, are judged, and are rows again.

Record stages judge the rows of a bundle where they are. Corpus stages need all rows: ``judged_by_corpus_stage``.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue

from corpus.batch_layout import CHUNK_BITS, ITEM_BITS
from corpus.errors import ThresherError
from corpus.verdicts import ALIVE, column_mask, mark_corpus_stage, mark_record_stage
from pipelines.beam_yaml_rows import RowLayout, Values, judged_rows, read_rows

KEPT, DROPPED = "good", "dropped"
"""Beam's name of what a transform with errors gives, and the tag of what leaves."""

BATCH_ROWS = 4096
# With the verdicts of its rows, a batch is a group of a shuffle; and text is not all that a row has.
BATCH_BYTES = 2 << 20

Keyed: TypeAlias = tuple[int, bytes]
ROWS, VERDICT = b"r", b"v"


class StageStep(beam.DoFn):  # type: ignore[misc]
    """A step that needs the stage."""

    def __init__(self, layout: RowLayout) -> None:
        self.layout = layout

    def setup(self) -> None:
        """Load the stage's kernels and models."""
        self.layout.stage.prepare()


class BundleRows(StageStep):
    """Collects the rows of a bundle into batches of bounded size, which ``finish`` takes.

    Rows keep timestamp and window. Sizes count the texts only.
    """

    def start_bundle(self) -> None:
        """Begin with an empty batch."""
        self._rows: list[WindowedValue] = []
        self._bytes = 0

    def process(
        self,
        element: Any,
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        window: BoundedWindow = beam.DoFn.WindowParam,
        pane: PaneInfo = beam.DoFn.PaneInfoParam,
    ) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Take one row."""
        values = tuple(getattr(element, name) for name in self.layout.fields)
        self._rows.append(WindowedValue(values, timestamp, (window,), pane))
        for column in self.layout.input.text_columns:
            text = values[self.layout.place(column)]
            self._bytes += len(text) if isinstance(text, str) else 0
        if len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield from self._take()

    def finish_bundle(self) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Finish the last batch."""
        yield from self._take()

    def _take(self) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        rows = self._rows
        self.start_bundle()
        if rows:
            yield from self.finish(rows)

    def finish(self, rows: list[WindowedValue]) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Yield what becomes of the rows of a batch."""
        raise NotImplementedError


class JudgeRows(BundleRows):
    """Row -> the row with the signals of a record stage; one that leaves has the tag ``DROPPED``."""

    def finish(self, rows: list[WindowedValue]) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Judge a batch."""
        read = read_rows(self.layout, [row.value for row in rows])
        judged = mark_record_stage(self.layout.record_stage, read.batch)
        for number, kept, values in judged_rows(self.layout, read, judged):
            row = rows[number].with_value(_as_row(self.layout, kept, values))
            yield row if kept else pvalue.TaggedOutput(DROPPED, row)


class PassOn(beam.DoFn):  # type: ignore[misc]
    """Row -> the same.

    Beam 2.77 flushes what goes to a step that takes batches (the writers of JSON and CSV are such) before it calls
    ``finish_bundle``, so rows that leave ``JudgeRows`` there would be lost if such a step came next.
    """

    def process(self, element: beam.Row) -> Iterator[beam.Row]:
        """Pass on one row."""
        yield element


def judged_by_record_stage(
    rows: beam.PCollection, layout: RowLayout, row_types: Mapping[str, Any]
) -> Mapping[str, beam.PCollection]:
    """Return the rows that stay (``KEPT``) and that leave (``DROPPED``) by a record stage.

    Args:
        rows: rows with the fields of ``layout``.
        row_types: Beam's types of the two outputs.
    """
    step = beam.ParDo(JudgeRows(layout)).with_output_types(row_types[KEPT], **{DROPPED: row_types[DROPPED]})
    judged = rows | "Judge" >> step.with_outputs(DROPPED, main=KEPT)
    return {
        tag: judged[tag] | f"Pass on {tag}" >> beam.ParDo(PassOn()).with_output_types(row_types[tag])
        for tag in (KEPT, DROPPED)
    }


def _as_row(layout: RowLayout, kept: bool, values: Values) -> beam.Row:
    names = layout.kept_fields if kept else layout.dropped_fields
    return beam.Row(**dict(zip(names, values, strict=True)))


class KeyRows(BundleRows):
    """Row -> (key, packed rows) for the batches of a bundle, each of the rows of one window.

    The key is drawn, since a bundle may run again with other rows. It decides nothing but which of two rows stays that
    are the same in every field.
    """

    def finish(self, rows: list[WindowedValue]) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Pack a batch, one element for each window."""
        windows: dict[BoundedWindow, list[Values]] = {}
        for row in rows:
            windows.setdefault(row.windows[0], []).append(row.value)
        for window, values in windows.items():
            key = secrets.randbits(ITEM_BITS + CHUNK_BITS)
            yield WindowedValue((key, pickle.dumps(values)), window.max_timestamp(), (window,))


class PackKeys(StageStep):
    """(Key, packed rows) -> (partition, packed keys of a corpus stage)."""

    def __init__(self, layout: RowLayout, partitions: int) -> None:
        super().__init__(layout)
        self.partitions = partitions

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Pack one batch."""
        key, packed = element
        batch = read_rows(self.layout, pickle.loads(packed), key).batch
        yield from self.layout.corpus_stage.pack(key, batch.records, column_mask(batch.marks, ALIVE), self.partitions)


class ResolveKeys(StageStep):
    """(Partition, packed keys of all batches) -> (key of a batch, packed verdicts)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed]:
        """Resolve one partition."""
        yield from self.layout.corpus_stage.resolve(element[1])


class Prefix(beam.DoFn):  # type: ignore[misc]
    """(Key, bytes) -> the same behind a prefix that says what they are."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def process(self, element: Keyed) -> Iterator[Keyed]:
        """Mark one value."""
        yield element[0], self.prefix + element[1]


class ApplyVerdicts(StageStep):
    """(Key, the batch's packed rows and its verdicts) -> its rows, as ``JudgeRows`` gives them."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[beam.Row | pvalue.TaggedOutput]:
        """Apply the verdicts to one batch."""
        stage = self.layout.corpus_stage
        key, values = element
        packed: list[bytes] = []
        verdicts: list[bytes] = []
        for value in values:
            kind, rest = value[:1], value[1:]
            (packed if kind == ROWS else verdicts).append(rest)
        if len(packed) != 1:
            raise ThresherError(f"{stage.name}: batch {key} is there {len(packed)} times, not once; run it again")
        # Engines give the values of a group in any order.
        verdicts.sort()
        read = read_rows(self.layout, pickle.loads(packed[0]), key)
        batch = read.batch
        verdict = stage.apply(key, batch.records, column_mask(batch.marks, ALIVE), verdicts)
        judged = replace(batch, marks=mark_corpus_stage(stage, verdict, batch.marks))
        for _, kept, row_values in judged_rows(self.layout, read, judged):
            row = _as_row(self.layout, kept, row_values)
            yield row if kept else pvalue.TaggedOutput(DROPPED, row)


def corpus_verdicts(batches: beam.PCollection, layout: RowLayout, partitions: int) -> beam.PCollection:
    """Return (key of a batch, packed verdicts) of a corpus stage for (key, packed rows).

    No text is in the groups: only what the stage packs. Nothing else knows how a corpus stage comes to its verdicts:
    by one grouping. Beyond the rows that the partitions are meant for, groups grow past the bound of
    ``CorpusStage.partitions``; that costs memory of the worker that resolves one, and changes no verdict.
    """
    return (
        batches
        | "Pack" >> beam.ParDo(PackKeys(layout, partitions)).with_output_types(Keyed)
        | "Group keys" >> beam.GroupByKey()
        | "Resolve" >> beam.ParDo(ResolveKeys(layout)).with_output_types(Keyed)
    )


def judged_by_corpus_stage(
    rows: beam.PCollection, layout: RowLayout, partitions: int, row_types: Mapping[str, Any]
) -> Mapping[str, beam.PCollection]:
    """Return the rows that stay (``KEPT``) and that leave (``DROPPED``) by a corpus stage.

    Text crosses two shuffles, in groups of one batch: one that fixes what is in which batch, and one where a batch
    meets its verdicts.

    Args:
        rows: rows with the fields of ``layout``.
        partitions: of the keys, from ``CorpusStage.partitions``.
        row_types: Beam's types of the two outputs.
    """
    batches = (
        rows
        | "Batch" >> beam.ParDo(KeyRows(layout)).with_output_types(Keyed)
        # An engine may run the step before once more for the second of its two users, and get other batches.
        | "Fix batches" >> beam.Reshuffle()
    )
    verdicts = corpus_verdicts(batches, layout, partitions)
    apply = beam.ParDo(ApplyVerdicts(layout)).with_output_types(row_types[KEPT], **{DROPPED: row_types[DROPPED]})
    both = (
        batches | "Rows" >> beam.ParDo(Prefix(ROWS)).with_output_types(Keyed),
        verdicts | "Verdicts" >> beam.ParDo(Prefix(VERDICT)).with_output_types(Keyed),
    )
    return (  # type: ignore[no-any-return]
        both
        | "Both" >> beam.Flatten()
        | "By batch" >> beam.GroupByKey()
        | "Apply" >> apply.with_outputs(DROPPED, main=KEPT)
    )
