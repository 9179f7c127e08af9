"""Batches of token sequences: sorted by length, cut by a budget of tokens, padded, with their attention masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenSequence:
    """A record as a model reads it.

    Attributes:
        ids: int64 [n], token ids.
        types: int64 [n], token type ids (0: first segment, 1: second).
    """

    ids: Integers
    types: Integers

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class PaddedBatch:
    """Records of one forward pass.

    Attributes:
        rows: int64 [n], which sequences these are.
        ids, mask, types: int64 [n, width].
    """

    rows: Integers
    ids: Integers
    mask: Integers
    types: Integers

    def halves(self) -> tuple[PaddedBatch, PaddedBatch]:
        """Return the batch in two parts, for one of at least two records."""
        middle = len(self.rows) // 2
        return self._part(slice(None, middle)), self._part(slice(middle, None))

    def _part(self, part: slice) -> PaddedBatch:
        # Without the columns that were there for the other half only.
        columns = self.mask[part].any(axis=0)
        arrays = (array[part][:, columns] for array in (self.ids, self.mask, self.types))
        return PaddedBatch(self.rows[part], *arrays)


def cut_batches(lengths: Sequence[int], budget: int, most_rows: int | None = None) -> Iterator[Integers]:
    """Yield the rows of each batch, longest sequences first.

    Args:
        lengths: tokens of each sequence.
        budget: most tokens of a batch, padding included; a longer sequence is a batch by itself.
        most_rows: most sequences of a batch; None for no limit.
    """
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, int(sizes[order[start]])))
        if most_rows is not None:
            count = min(count, most_rows)
        yield order[start : start + count]
        start += count


def pad(sequences: Sequence[TokenSequence], rows: Integers, padding: int, left: bool) -> PaddedBatch:
    """Return chosen sequences as one batch.

    Args:
        sequences: all sequences.
        rows: which of them.
        padding: token id of the padding.
        left: whether it stands before the sequences; else behind.
    """
    chosen = [sequences[row] for row in rows.tolist()]
    width = max(map(len, chosen))
    ids = np.full((len(chosen), width), padding, np.int64)
    mask = np.zeros((len(chosen), width), np.int64)
    types = np.zeros((len(chosen), width), np.int64)
    for place, sequence in enumerate(chosen):
        start = width - len(sequence) if left else 0
        end = start + len(sequence)
        ids[place, start:end], types[place, start:end], mask[place, start:end] = sequence.ids, sequence.types, 1
    return PaddedBatch(rows, ids, mask, types)
