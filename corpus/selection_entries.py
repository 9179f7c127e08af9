"""The packed arrays of an exact selection: entries to choose from, and boundaries between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpus.packing import pack_arrays, unpack_arrays
from corpus.selection_keys import LARGEST, Integers, RecordIds, Words, total_order

BEFORE, AT, AFTER = -1, 0, 1

_DTYPES = (np.int64, np.int64, np.uint64, np.int64, np.int64, np.int32, np.uint8)
_SIGN = np.uint64(1 << 63)


def _pack(groups: Integers, words: Words, numbers: Integers, row_ids: Integers, ids: RecordIds) -> bytes:
    # The arrays of odd sizes come last, so that the others stay aligned.
    width = np.array([words.shape[1]], np.int64)
    return pack_arrays([width, groups, words.reshape(-1), numbers, row_ids, ids.lengths, ids.data])


def _unpack(data: bytes) -> tuple[Integers, Words, Integers, Integers, RecordIds]:
    width, groups, words, numbers, row_ids, lengths, id_data = unpack_arrays(data, _DTYPES)
    return groups, words.reshape(-1, int(width[0])), numbers, row_ids, RecordIds.from_lengths(lengths, id_data)


def _with_group(groups: Integers, words: Words) -> Words:
    return np.column_stack([groups.view(np.uint64) ^ _SIGN, words])


@dataclass(frozen=True)
class Entries:
    """The n records of one partition that a selection may keep.

    Attributes:
        groups: int64[n], the number of each record's group; each group has its own limit.
        words: contiguous uint64[n, W], the sort key (``corpus.selection_keys``); W is the same in all partitions.
        weights: int64[n], at least 1 each: how much of the limit a record takes.
        row_ids: int64[n], unique.
        ids: the n record ids.
    """

    groups: Integers
    words: Words
    weights: Integers
    row_ids: Integers
    ids: RecordIds

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.groups)

    def pack(self) -> bytes:
        """Return the entries as bytes, 28 + 8 W bytes per record and its id.

        Raises:
            ValueError: a weight is below 1, so that the longest prefix within a limit would be ambiguous to users.
        """
        if len(self.weights) and int(self.weights.min()) < 1:
            raise ValueError("weights of a selection must be at least 1")
        return _pack(self.groups, self.words, self.weights, self.row_ids, self.ids)

    @staticmethod
    def unpack(data: bytes) -> Entries:
        """Return packed entries; the arrays are read-only views."""
        return Entries(*_unpack(data))

    def take(self, indices: Integers) -> Entries:
        """Return chosen records in the order given."""
        return Entries(
            self.groups[indices],
            self.words[indices],
            self.weights[indices],
            self.row_ids[indices],
            self.ids.take(indices),
        )

    @staticmethod
    def concatenate(parts: Iterable[Entries]) -> Entries:
        """Return the records of one or more parts, one part after the other."""
        parts = list(parts)
        return Entries(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.row_ids for part in parts]),
            RecordIds.concatenate(part.ids for part in parts),
        )

    def order(self) -> Integers:
        """Return the indices of the records sorted by (group, words, record_id, row id)."""
        return total_order(_with_group(self.groups, self.words), self.ids, self.row_ids)


@dataclass(frozen=True)
class Boundaries:
    """Places between records in the order of (group, words, record_id, row id).

    Attributes:
        groups, words: as of entries, for b boundaries.
        ties: int64[b]: ``BEFORE`` or ``AFTER`` all records with these words (id and row id do not count then), or
            ``AT``: after the record with this id and row id, present or not.
        row_ids, ids: of boundaries ``AT`` a record.
    """

    groups: Integers
    words: Words
    ties: Integers
    row_ids: Integers
    ids: RecordIds

    def __len__(self) -> int:
        """Return the number of boundaries."""
        return len(self.groups)

    def pack(self) -> bytes:
        """Return the boundaries as bytes, 28 + 8 W bytes per boundary and its id."""
        return _pack(self.groups, self.words, self.ties, self.row_ids, self.ids)

    @staticmethod
    def unpack(data: bytes) -> Boundaries:
        """Return packed boundaries; the arrays are read-only views."""
        return Boundaries(*_unpack(data))

    @staticmethod
    def at_ends(groups: Integers, width: int, tie: int) -> Boundaries:
        """Return a boundary before all (``BEFORE``) or after all (``AFTER``) records of each group."""
        count = len(groups)
        words = np.full((count, width), LARGEST if tie == AFTER else np.uint64(0))
        return Boundaries(groups, words, np.full(count, tie), np.zeros(count, np.int64), RecordIds.empty(count))

    @staticmethod
    def after(entries: Entries, indices: Integers, exact: npt.NDArray[np.bool_], longest: int) -> Boundaries:
        """Return the boundaries after chosen records.

        Args:
            entries, indices: the records.
            exact: bool, one per index: true where records with the same words may lie on both sides.
            longest: a longer id is cut after so many bytes, so that its boundary lies somewhere before the record.
        """
        ids = entries.ids.take(indices[exact], longest)
        lengths = np.zeros(len(indices), np.int32)
        lengths[exact] = ids.lengths
        return Boundaries(
            entries.groups[indices],
            entries.words[indices],
            np.where(exact, AT, AFTER),
            np.where(exact, entries.row_ids[indices], 0),
            RecordIds.from_lengths(lengths, ids.data),
        )

    def take(self, indices: Integers) -> Boundaries:
        """Return chosen boundaries in the order given."""
        return Boundaries(
            self.groups[indices], self.words[indices], self.ties[indices], self.row_ids[indices], self.ids.take(indices)
        )

    @staticmethod
    def concatenate(parts: Iterable[Boundaries]) -> Boundaries:
        """Return the boundaries of one or more parts, one part after the other."""
        parts = list(parts)
        return Boundaries(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.ties for part in parts]),
            np.concatenate([part.row_ids for part in parts]),
            RecordIds.concatenate(part.ids for part in parts),
        )

    def order(self) -> Integers:
        """Return the indices of the boundaries in ascending order."""
        words = np.column_stack([_with_group(self.groups, self.words), (self.ties + 1).astype(np.uint64)])
        return total_order(words, self.ids, self.row_ids)


def _sortable(groups: Integers, words: Words) -> npt.NDArray[np.bytes_]:
    """Return keys of one fixed width that compare, as bytes, like (group, words)."""
    keys = _with_group(groups, words).astype(">u8")
    return keys.view(f"S{8 * keys.shape[1]}").reshape(-1)


def locate(entries: Entries, boundaries: Boundaries) -> Integers:
    """Return how many of the boundaries, which are in ascending order, lie before each entry: int64[n]."""
    if not len(boundaries):
        return np.zeros(len(entries), np.int64)
    limits = _sortable(boundaries.groups, boundaries.words)
    keys = _sortable(entries.groups, entries.words)
    found: Integers = np.searchsorted(limits, keys)
    tied = np.flatnonzero((found < len(limits)) & (limits[np.minimum(found, len(limits) - 1)] == keys))
    # Boundaries with an entry's own words: BEFORE lies before it, AFTER does not, AT depends on ids.
    ends = np.searchsorted(limits, keys[tied], side="right")
    before = np.append(0, np.cumsum(boundaries.ties == BEFORE))
    at = np.append(0, np.cumsum(boundaries.ties == AT))
    starts = found[tied]
    found[tied] += before[ends] - before[starts]
    by_id = np.flatnonzero(at[ends] > at[starts])
    if len(by_id):
        limit_keys = [(boundaries.ids.value(place), row) for place, row in enumerate(boundaries.row_ids.tolist())]
        last = (found[tied] + at[ends] - at[starts])[by_id].tolist()
        for entry, end in zip(tied[by_id].tolist(), last, strict=True):
            key = (entries.ids.value(entry), int(entries.row_ids[entry]))
            found[entry] = bisect_left(limit_keys, key, int(found[entry]), end)
    return found
