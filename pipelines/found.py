"""What the steps of a corpus stage find out about the corpus: one small file, which the next pass reads."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

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
