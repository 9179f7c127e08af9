"""From band keys to cliques: which records share a bucket, and so may be near-duplicates.

A record that enters the stage sends one entry per band into the partition of the band's key, and one into that of its
content hash (the band ``EXACT``). A partition sees all entries of its keys: the records of one key are a *bucket*.
Records of one text are one member of a bucket, the one with the smallest row id, and are joined by edges of their own
(stars). What leaves a partition are *cliques*: the members of a bucket, of which all pairs are to be compared.

A clique goes to its *home*, a group of the step that compares: the batch of one of its members, chosen by a hash of row
ids. So the buckets of near-identical records, which have the same members in most bands, meet in one home, where a
pair of several bands is compared once.

Bounds: an entry takes ``ENTRY_BYTES``. Each band has partitions of its own, as far as there are enough, so that the
buckets of one template, which has a hot one in each band, do not meet; one bucket is never cut
(``dedup.large_groups`` has what happens to the largest). A clique of more than
``LARGE`` members has a home by itself, and a bucket of more than ``max_bucket`` is cut into slices of about ``SLICE``
by a hash of content and band. Its earliest records in the total order, by which the others would leave, are in every
slice. In the order a text has the place of its best copy, which such a clique names for each member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpus.batch import first_row_id
from corpus.batch_layout import ROW_BITS
from corpus.packing import pack_arrays, unpack_arrays

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Contents = npt.NDArray[np.uint64]

EXACT = (1 << 16) - 1
"""Number of the band whose key is the content hash; other bands count from 0, and are fewer."""
ENTRY_BYTES = 22
ENTRY_TYPES = (np.int64, np.int32, np.uint16, np.uint64, np.uint64)
"""Arrays of packed entries: the batch key, then rows, bands, keys and content hashes."""
LARGE = 1000
SLICE = 1 << 16

_CLIQUES = (np.uint8, np.uint16, np.int32, np.int64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)

PAIRS, ORDERED = 0, 1
"""Kinds of cliques: compare all pairs, or each member with earlier ones until some are found.

Row ids of the first kind are the members; of the second kind as many more follow, the best copy of each member's text.
"""


def mix(values: Keys) -> Keys:
    """Return a hash of 64-bit values."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(32))) * _MULTIPLIER
        values = (values ^ (values >> np.uint64(29))) * _GOLDEN
    mixed: Keys = values ^ (values >> np.uint64(32))
    return mixed


@dataclass(frozen=True)
class Entries:
    """The n entries of a batch, by partition.

    Attributes:
        key: batch key.
        parts: int64[n], ascending.
        rows, bands, keys, contents: int32[n], uint16[n], uint64[n] and uint64[n].
    """

    key: int
    parts: Integers
    rows: npt.NDArray[np.int32]
    bands: npt.NDArray[np.uint16]
    keys: Keys
    contents: Contents

    @staticmethod
    def of(
        key: int,
        rows: Integers,
        bands: Keys,
        has_tokens: npt.NDArray[np.bool_],
        hashes: npt.NDArray[np.void],
        parts: int,
    ) -> Entries:
        """Return the entries of a batch.

        Args:
            key: batch key.
            rows: int64[n], the rows that enter the stage.
            bands: uint64[n, b], their band keys.
            has_tokens: bool[n]; a row without tokens takes part in the band ``EXACT`` only.
            hashes: V16[n], their content hashes.
            parts: number of partitions.
        """
        halves = np.ascontiguousarray(hashes).view(np.uint64).reshape(-1, 2)
        with_tokens = np.flatnonzero(has_tokens)
        count = bands.shape[1]
        keys = np.concatenate([bands[with_tokens].T.reshape(-1), halves[:, 0]])
        numbers = np.concatenate([np.repeat(np.arange(count), len(with_tokens)), np.full(len(rows), EXACT)])
        chosen = np.concatenate([np.tile(with_tokens, count), np.arange(len(rows))])
        # Each band has its own range of partitions; the content hash comes behind the others.
        of_band = max(1, parts // (count + 1))
        place = (mix(keys) % np.uint64(of_band)).astype(np.int64)
        part = (np.minimum(numbers, count) * of_band + place) % parts
        order = np.argsort(part, kind="stable")
        of_row = chosen[order]
        columns = rows.astype(np.int32)[of_row], numbers[order].astype(np.uint16), keys[order], halves[:, 1][of_row]
        return Entries(key, part[order], *columns)

    def counts(self) -> tuple[Integers, Integers]:
        """Return the partitions that have entries, ascending, and how many each has."""
        return np.unique(self.parts, return_counts=True)

    def packed(self) -> Iterator[tuple[int, bytes]]:
        """Yield (partition, packed entries)."""
        for part in np.unique(self.parts).tolist():
            yield part, self.packed_of(part)

    def packed_of(self, part: int) -> bytes:
        """Return the packed entries of a partition."""
        first, last = np.searchsorted(self.parts, (part, part + 1))
        columns = [column[first:last] for column in (self.rows, self.bands, self.keys, self.contents)]
        return pack_arrays([np.array([self.key], np.int64), *columns])


def pairs_among(count: int) -> int:
    """Return how many pairs so many records make."""
    return count * (count - 1) // 2


@dataclass(frozen=True)
class Proposals:
    """What a partition proposes.

    Attributes:
        cliques: (home, packed cliques); a home is a row id.
        candidates: (batch key, packed int32 rows) of the records in cliques.
        stars: int64[m, 2], row ids of records of one text: the smallest, and each other.
        not_compared: pairs of members of buckets that are in no clique, counted per bucket.
    """

    cliques: list[tuple[int, bytes]]
    candidates: list[tuple[int, bytes]]
    stars: Integers
    not_compared: int


NOTHING = Proposals([], [], np.zeros((0, 2), np.int64), 0)


def _meeting(keys: Keys) -> Integers:
    """Return the places of keys that occur more than once."""
    order = np.argsort(keys)
    ordered = keys[order]
    repeats = np.append(False, ordered[1:] == ordered[:-1])[: len(keys)]
    meeting: Integers = order[repeats | np.append(repeats[1:], False)[: len(keys)]]
    return meeting


def smallest(row_ids: Integers, starts: Integers) -> Integers:
    """Return the first row id of each group: the best copy where copies of a text stand next to each other anyway."""
    return row_ids[starts]


def propose(
    packed: Iterable[bytes],
    max_bucket: int,
    earliest: Callable[[Integers], Integers],
    best_copies: Callable[[Integers, Integers], Integers] = smallest,
) -> Proposals:
    """Return the cliques of a partition; the order of ``packed`` does not matter.

    Args:
        max_bucket: members up to which all pairs of a bucket are compared.
        earliest: gives a few row ids of many (``dedup.nodes.earliest``), ascending as these are.
        best_copies: gives the first of each group in the total order (``dedup.nodes.best_copies``), for all row ids
            and where each group starts; a group has the copies of one text, with ascending row ids.
    """
    columns: list[list[npt.NDArray[np.generic]]] = [[], [], [], []]
    for data in packed:
        key, rows, bands, keys, contents = unpack_arrays(data, ENTRY_TYPES)
        for column, values in zip(
            columns, (first_row_id(int(key[0])) + rows.astype(np.int64), bands, keys, contents), strict=True
        ):
            column.append(values)
    if not columns[0]:
        return NOTHING
    row_ids, bands, keys, contents = (np.concatenate(column) for column in columns)
    # Most keys occur once, and one sort of numbers takes less than four that are stable.
    meeting = _meeting(keys)
    if not len(meeting):
        return NOTHING
    row_ids, bands, keys, contents = row_ids[meeting], bands[meeting], keys[meeting], contents[meeting]
    order = np.lexsort((row_ids, contents, keys, bands))
    row_ids, bands, keys, contents = row_ids[order], bands[order], keys[order], contents[order]
    new_bucket = np.append(True, (keys[1:] != keys[:-1]) | (bands[1:] != bands[:-1]))
    new_member = new_bucket | np.append(True, contents[1:] != contents[:-1])

    exact = np.flatnonzero((bands == EXACT) & ~new_member)
    member_starts = np.flatnonzero(new_member)
    first = row_ids[member_starts[np.searchsorted(member_starts, exact, side="right") - 1]]
    stars = np.column_stack([first, row_ids[exact]])

    members = np.flatnonzero(new_member & (bands != EXACT))
    starts = np.flatnonzero(new_bucket[members])
    sizes = np.diff(np.append(starts, len(members)))
    ends = np.append(np.flatnonzero(new_bucket), len(row_ids))
    cliques = _Cliques(earliest)
    paired = (sizes > 1) & (sizes <= max_bucket)
    if paired.any():
        of_pairs = members[np.repeat(paired, sizes)]
        cliques.add_pairs(bands[members[starts[paired]]], sizes[paired], row_ids[of_pairs])
    large = np.flatnonzero(sizes > max(1, max_bucket))
    for start, size in zip(starts[large].tolist(), sizes[large].tolist(), strict=True):
        chosen = members[start : start + size]
        end = ends[np.searchsorted(ends, chosen[-1], side="right")]
        best = best_copies(row_ids[chosen[0] : end], chosen - chosen[0])
        cliques.add_slices(int(bands[chosen[0]]), row_ids[chosen], best, contents[chosen])
    return Proposals(cliques.packed(), cliques.candidates(), stars, cliques.not_compared)


class _Cliques:
    """Gathers cliques and deals them out to their homes."""

    def __init__(self, earliest: Callable[[Integers], Integers]) -> None:
        self.not_compared = 0
        self._earliest = earliest
        self._packed: list[tuple[int, bytes]] = []
        self._members: list[Integers] = []

    def add_pairs(self, bands: npt.NDArray[np.uint16], sizes: Integers, row_ids: Integers) -> None:
        """Add cliques of at least two members each, given the members of one behind those of the other."""
        clique = np.repeat(np.arange(len(sizes)), sizes)
        row_ids = row_ids[np.lexsort((row_ids, clique))]
        starts = np.cumsum(sizes) - sizes
        # The hash is a bijection, so one member of each clique has the smallest.
        hashes = mix(row_ids.astype(np.uint64))
        chosen = row_ids[hashes == np.repeat(np.minimum.reduceat(hashes, starts), sizes)]
        homes = np.where(sizes > LARGE, chosen, chosen >> ROW_BITS << ROW_BITS)
        order = np.argsort(homes, kind="stable")
        row_ids = row_ids[_members_of(order, starts, sizes)]
        bands, sizes, homes = bands[order], sizes[order], homes[order]
        firsts = np.flatnonzero(np.append(True, homes[1:] != homes[:-1]))
        borders = np.append(0, np.cumsum(sizes))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(homes)], strict=True):
            kinds = np.full(last - first, PAIRS, np.uint8)
            own = row_ids[borders[first] : borders[last]]
            packed = pack_arrays([kinds, bands[first:last], sizes[first:last].astype(np.int32), own])
            self._packed.append((int(homes[first]), packed))
        self._members.append(row_ids)

    def _add_ordered(self, band: int, row_ids: Integers, best: Integers) -> None:
        """Add a clique with the best copy of each member's text."""
        order = np.argsort(row_ids)
        row_ids = row_ids[order]
        # Ordered cliques are walked one by one: there is nothing to gain where they meet, and they are large.
        member = int(row_ids[np.argmin(mix(row_ids.astype(np.uint64) ^ mix(np.array([1 + band], np.uint64))))])
        home = member if len(row_ids) > LARGE else member >> ROW_BITS << ROW_BITS
        self._packed.append((home, pack_cliques([(ORDERED, band, np.concatenate([row_ids, best[order]]))])))
        self._members.append(row_ids)

    def add_slices(self, band: int, row_ids: Integers, best: Integers, contents: Contents) -> None:
        """Add a bucket that is too large for all pairs."""
        count = -(-len(row_ids) // SLICE)
        if count == 1:
            self._add_ordered(band, row_ids, best)
            return
        others = ~np.isin(best, self._earliest(np.sort(best)))
        # Each band cuts otherwise, so that two records part in one band and meet in another.
        part = mix(contents ^ np.uint64(band)) % np.uint64(count)
        self.not_compared += pairs_among(int(others.sum()))
        for number in range(count):
            chosen = others & (part == number)
            self.not_compared -= pairs_among(int(chosen.sum()))
            if chosen.any():
                self._add_ordered(band, row_ids[~others | chosen], best[~others | chosen])

    def packed(self) -> list[tuple[int, bytes]]:
        """Return (home, packed cliques)."""
        return self._packed

    def candidates(self) -> list[tuple[int, bytes]]:
        """Return (batch key, packed rows) of all members."""
        if not self._members:
            return []
        row_ids = np.unique(np.concatenate(self._members))
        keys = row_ids >> ROW_BITS
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        ends = np.append(starts[1:], len(keys))
        rows = (row_ids & ((1 << ROW_BITS) - 1)).astype(np.int32)
        return [
            (int(keys[start]), rows[start:end].tobytes())
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


def pack_cliques(cliques: list[tuple[int, int, Integers]]) -> bytes:
    """Return (kind, band, row ids) of cliques as bytes."""
    kinds = np.array([kind for kind, *_ in cliques], np.uint8)
    bands = np.array([band for _, band, _ in cliques], np.uint16)
    sizes = np.array([len(row_ids) for *_, row_ids in cliques], np.int32)
    return pack_arrays([kinds, bands, sizes, np.concatenate([row_ids for *_, row_ids in cliques])])


def unpack_ordered(packed: Iterable[bytes]) -> list[tuple[int, Integers]]:
    """Return (band, members and their best copies) of the ordered cliques of a home, in one order."""
    cliques: list[tuple[int, Integers]] = []
    for data in packed:
        kinds, bands, sizes, row_ids = unpack_arrays(data, _CLIQUES)
        ends = np.cumsum(sizes, dtype=np.int64)
        for number in np.flatnonzero(kinds == ORDERED).tolist():
            end = int(ends[number])
            cliques.append((int(bands[number]), row_ids[end - int(sizes[number]) : end]))
    cliques.sort(key=lambda clique: (clique[0], int(clique[1][0]), len(clique[1])))
    return cliques


def unpack_pairs(packed: Iterable[bytes]) -> tuple[npt.NDArray[np.uint16], Integers, Integers]:
    """Return bands uint16[c], sizes int64[c] and row ids, of one clique behind the other, where all pairs are compared.

    The order depends on nothing but the cliques.
    """
    columns = [unpack_arrays(data, _CLIQUES) for data in packed]
    kinds, bands, sizes, row_ids = (
        np.concatenate([part[place] for part in columns] or [np.zeros(0, kind)]) for place, kind in enumerate(_CLIQUES)
    )
    sizes = sizes.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    paired = np.flatnonzero(kinds == PAIRS)
    firsts = row_ids[starts[paired]]
    order = paired[np.lexsort((sizes[paired], firsts, bands[paired]))]
    return bands[order], sizes[order], row_ids[_members_of(order, starts, sizes)]


def _members_of(order: Integers, starts: Integers, sizes: Integers) -> Integers:
    """Return the places of the members of some cliques, one clique behind the other."""
    chosen = sizes[order]
    ends = np.cumsum(chosen)
    places: Integers = np.arange(int(chosen.sum())) + np.repeat(starts[order] - (ends - chosen), chosen)
    return places
