"""The Beam steps of a record stage over schema'd rows, which it judges where they are, bundle by bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue

from corpus.verdicts import mark_record_stage
from pipelines.beam_yaml_rows import RowLayout, Values, judged_rows, read_rows

KEPT, DROPPED = "good", "dropped"
"""Beam's name of what a transform with errors gives, and the tag of what leaves."""

BATCH_ROWS = 4096
BATCH_CHARACTERS = 2 << 20


def row_values(layout: RowLayout, row: Any) -> Values:
    """Return the values of a row of Beam's."""
    return tuple(getattr(row, name) for name in layout.fields)


def as_row(layout: RowLayout, kept: bool, values: Values) -> beam.Row:
    """Return the row of what ``judged_rows`` gives."""
    names = layout.kept_fields if kept else layout.dropped_fields
    return beam.Row(**dict(zip(names, values, strict=True)))


class JudgeRows(beam.DoFn):  # type: ignore[misc]
    """Row -> the row with the signals of a record stage; one that leaves has the tag ``DROPPED``.

    The rows of a bundle are judged in batches of bounded size. Each keeps its timestamp and window.
    """

    def __init__(self, layout: RowLayout) -> None:
        self.layout = layout

    def setup(self) -> None:
        """Load the stage's kernels and models."""
        self.layout.stage.prepare()

    def start_bundle(self) -> None:
        """Begin with an empty batch."""
        self._rows: list[WindowedValue] = []
        self._characters = 0

    def process(
        self,
        element: Any,
        timestamp: Timestamp = beam.DoFn.TimestampParam,
        window: BoundedWindow = beam.DoFn.WindowParam,
        pane: PaneInfo = beam.DoFn.PaneInfoParam,
    ) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Take one row."""
        values = row_values(self.layout, element)
        self._rows.append(WindowedValue(values, timestamp, (window,), pane))
        for column in self.layout.input.text_columns:
            text = values[self.layout.place(column)]
            self._characters += len(text) if isinstance(text, str) else 0
        if len(self._rows) >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS:
            yield from self._judge()

    def finish_bundle(self) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        """Judge the last batch."""
        yield from self._judge()

    def _judge(self) -> Iterator[WindowedValue | pvalue.TaggedOutput]:
        rows = self._rows
        self.start_bundle()
        if not rows:
            return
        read = read_rows(self.layout, [row.value for row in rows])
        judged = mark_record_stage(self.layout.record_stage, read.batch)
        for number, kept, values in judged_rows(self.layout, read, judged):
            row = rows[number].with_value(as_row(self.layout, kept, values))
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
