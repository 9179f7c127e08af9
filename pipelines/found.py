"""What the steps of a corpus stage find out about the corpus: one small file, which the next pass reads."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam import pvalue

from pipelines.combining import Sum

Keyed = tuple[int, bytes]


def found_name(stage: str) -> str:
    """Return the name of the file with what the steps of a stage found out about the corpus."""
    return f"staging/found/{stage}.bin"


class Announce(beam.DoFn):  # type: ignore[misc]
    """(Batch key, its reference) -> (batch key, nothing), once the file is written."""

    def process(self, element: Keyed, found: int) -> Iterator[Keyed]:
        """Tell one batch."""
        yield element[0], b""


class Size(beam.DoFn):  # type: ignore[misc]
    """(Partition, packed) -> the bytes that it shuffles."""

    def process(self, element: Keyed) -> Iterator[int]:
        """Measure one."""
        yield len(element[1])


def shuffled_bytes(name: str, keys: beam.PCollection) -> pvalue.AsSideInput:
    """Return how many bytes the keys of a stage are, for the step that writes its file."""
    sizes = keys | f"{name}: sizes" >> beam.ParDo(Size()).with_output_types(int)
    return pvalue.AsSingleton(sizes | f"{name}: shuffled" >> beam.CombineGlobally(Sum()))


def told(name: str, chunks: beam.PCollection, written: beam.PCollection) -> beam.PCollection:
    """Return (batch key, nothing) for each batch, once a stage's file is written.

    Args:
        chunks: (batch key, packed reference) of all batches.
        written: one number, from the step that writes.
    """
    telling = beam.ParDo(Announce(), pvalue.AsSingleton(written)).with_output_types(Keyed)
    return chunks | f"{name}: tell" >> telling
