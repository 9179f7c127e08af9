"""Sort keys of records as fixed-width words, and the total order that they give.

Each part of a key becomes one or two unsigned 64-bit words that sort like the part itself, so that records compare
word by word, the first word first. Whatever the words leave equal is ordered by record_id (UTF-8 bytes, which sort like
code points) and then by row id; within a run row ids ascend with (file, position). Record ids have no fixed width and
are compared only where all words are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.hashing import byte_offsets, value_hashes

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.void]

LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_SIGN = np.uint64(1 << 63)
# The hash of a null group; any fixed number serves.
NULL_GROUP = -0x6E756C6C67727570


def number_words(values: Integers | Floats, *, descending: bool, valid: Mask | None = None) -> Words:
    """Return one word per number that sorts like it, nulls last in either direction.

    Args:
        values: int64[n] or float64[n]; NaN counts as null, and -0.0 equals 0.0.
        descending: whether the largest number comes first.
        valid: bool[n], false where the value is null; default all true.

    Only the last of all int64 values in the chosen direction shares its word with its neighbour: its own is that of
    null.
    """
    if values.dtype == np.float64:
        known = ~np.isnan(values)
        valid = known if valid is None else known & valid
        bits = (values + 0.0).view(np.uint64)
        words = np.where(bits >= _SIGN, ~bits, bits | _SIGN)
    else:
        words = values.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    if descending:
        words = ~words
    limited: Words = np.minimum(words, LARGEST - np.uint64(1))
    if valid is not None:
        limited[~valid] = LARGEST
    return limited


def word_numbers(words: Words, *, descending: bool) -> Floats:
    """Return the finite numbers, float64[n], that ``number_words`` made into words."""
    bits = ~words if descending else words
    return np.where(bits >= _SIGN, bits ^ _SIGN, ~bits).view(np.float64)


def hash_words(hashes: Hashes) -> Words:
    """Return 16-byte hashes as uint64[n, 2] that sort like their bytes (and so like their hex digits)."""
    return np.ascontiguousarray(hashes).view(">u8").reshape(-1, 2).astype(np.uint64)


def key_words(parts: Sequence[Words]) -> Words:
    """Return the parts of a key, each uint64[n] or uint64[n, w], side by side as one contiguous uint64[n, W]."""
    return np.ascontiguousarray(np.column_stack(parts))


def group_numbers(values: pa.StringArray) -> Integers:
    """Return the number of each record's group: a 64-bit hash (XXH3) of its value; null is a group of its own.

    Two of a million distinct values share a number with a probability below 1e-7; they would share one limit.
    """
    numbers = value_hashes(values).view(np.int64)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), NULL_GROUP, numbers)


def group_number(value: str | None) -> int:
    """Return the number of one group."""
    return int(group_numbers(pa.array([value], pa.string()))[0])


@dataclass(frozen=True)
class RecordIds:
    """The ids of n records as UTF-8.

    Attributes:
        offsets: int64[n + 1], where each id starts and ends in ``data``.
        data: uint8 array.
    """

    offsets: Integers
    data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """The bytes of each id."""
        return np.diff(self.offsets).astype(np.int32)

    def value(self, index: int) -> bytes:
        """Return one id."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def take(self, indices: Integers, longest: int | None = None) -> RecordIds:
        """Return chosen ids in the order given, each cut after so many bytes."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        if longest is not None:
            lengths = np.minimum(lengths, longest)
        offsets = _offsets(lengths)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return RecordIds(offsets, self.data[places])

    @staticmethod
    def empty(count: int) -> RecordIds:
        """Return so many ids without a byte."""
        return RecordIds(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))

    @staticmethod
    def from_arrow(ids: pa.StringArray) -> RecordIds:
        """Return the ids of an Arrow array without nulls; the bytes are not copied."""
        offsets = byte_offsets(ids)
        data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        return RecordIds(offsets - offsets[0], data)

    @staticmethod
    def from_lengths(lengths: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> RecordIds:
        """Return ids that lie one after the other in ``data``."""
        return RecordIds(_offsets(lengths), data)

    @staticmethod
    def concatenate(parts: Iterable[RecordIds]) -> RecordIds:
        """Return the ids of all parts, one part after the other."""
        parts = list(parts)
        lengths = np.concatenate([part.lengths for part in parts]) if parts else np.zeros(0, np.int32)
        data = np.concatenate([part.data for part in parts]) if parts else np.zeros(0, np.uint8)
        return RecordIds.from_lengths(lengths, data)


def _offsets(lengths: npt.NDArray[np.integer]) -> Integers:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def same_as_previous(words: Words) -> Mask:
    """Say for each row of uint64[n, W] whether it equals the row before it; the first never does."""
    same = np.zeros(len(words), np.bool_)
    same[1:] = (words[1:] == words[:-1]).all(axis=1)
    return same


def total_order(words: Words, ids: RecordIds, row_ids: Integers) -> Integers:
    """Return the indices of n records sorted by (words, record_id, row id).

    Args:
        words: uint64[n, W].
        ids: the n record ids.
        row_ids: int64[n].
    """
    order = np.lexsort((row_ids, *words.T[::-1]))
    same = same_as_previous(words[order])
    if same.any():
        borders = np.flatnonzero(np.append(~same, True))
        for run in np.flatnonzero(np.diff(borders) > 1).tolist():
            start, end = borders[run], borders[run + 1]
            # Stable: rows of one id keep the order of their row ids.
            order[start:end] = sorted(order[start:end].tolist(), key=ids.value)
    return order


def ranks(order: Integers) -> Integers:
    """Return the place of each record in an order: the inverse of the permutation."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places
