"""Beam coders of the elements that are not plain int or bytes."""

from __future__ import annotations

import apache_beam as beam

from corpus.batch import DocumentBatch, decode, encode


class DocumentBatchCoder(beam.coders.Coder):  # type: ignore[misc]
    """Arrow IPC for batches; a slice ships its own rows only, never its parent's buffers."""

    def encode(self, value: DocumentBatch) -> bytes:
        """Return the batch as bytes."""
        return encode(value)

    def decode(self, encoded: bytes) -> DocumentBatch:
        """Return the batch of such bytes."""
        return decode(encoded)

    def is_deterministic(self) -> bool:
        """Equal batches have equal bytes."""
        return True

    def estimate_size(self, value: DocumentBatch) -> int:
        """Return the size in bytes without encoding."""
        return sum(part.get_total_buffer_size() for part in (value.records, value.dead, value.marks, value.findings))

    def to_type_hint(self) -> type[DocumentBatch]:
        """Return the type that is encoded."""
        return DocumentBatch
