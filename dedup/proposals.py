"""From band keys to cliques: which records share a bucket, and so may be near-duplicates.

A record that enters the stage sends one entry per band into the partition of the band's key, and one into that of its
content hash (the band ``EXACT``). A partition sees all entries of its keys: the records of one key are a *bucket*.
Records of one text are one member of a bucket, the one with the smallest row id, and are joined by edges of their own
(stars). What leaves a partition are *cliques*: the members of a bucket, of which all pairs are to be compared.

A clique goes to its *home*, a group of the step that compares: the batch of one of its members, chosen by a hash of row
ids. So the buckets of near-identical records, which have the same members in most bands, meet in one home, where a
pair of several bands is compared once.

Bounds: an entry takes ``ENTRY_BYTES``; a clique of more than ``LARGE`` members has a home by itself, and a bucket of
more than ``max_bucket`` is cut into slices of about ``SLICE`` by a hash of content and band. Its earliest records in
the total order, by which the others would leave, are in every slice.
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
LARGE = 1000
SLICE = 1 << 16

_ENTRIES = (np.int64, np.int32, np.uint16, np.uint64, np.uint64)
_CLIQUES = (np.uint8, np.uint16, np.int32, np.int64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)

PAIRS, ORDERED = 0, 1
"""Kinds of cliques: compare all pairs, or each member with earlier ones until some are found."""


def mix(values: Keys) -> Keys:
    """Return a hash of 64-bit values."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(32))) * _MULTIPLIER
        values = (values ^ (values >> np.uint64(29))) * _GOLDEN
    mixed: Keys = values ^ (values >> np.uint64(32))
    return mixed


def pack_entries(
    key: int, rows: Integers, bands: Keys, has_tokens: npt.NDArray[np.bool_], hashes: npt.NDArray[np.void], parts: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (partition, packed entries) of a batch.

    Args:
        key: batch key.
        rows: int64[n], the rows that enter the stage.
        bands: uint64[n, b], their band keys.
        has_tokens: bool[n]; a row without tokens takes part in the band ``EXACT`` only.
        hashes: V16[n], their content hashes.
        parts: number of partitions.
    """
    halves = np.ascontiguousarray(hashes).view(np.uint64).reshape(-1, 2)
    contents = halves[:, 1]
    with_tokens = np.flatnonzero(has_tokens)
    count = bands.shape[1]
    keys = np.concatenate([bands[with_tokens].T.reshape(-1), halves[:, 0]])
    numbers = np.concatenate([np.repeat(np.arange(count), len(with_tokens)), np.full(len(rows), EXACT)])
    chosen = np.concatenate([np.tile(with_tokens, count), np.arange(len(rows))])
    salted = (keys ^ numbers.astype(np.uint64)).astype(np.uint64)
    part = (mix(salted) % np.uint64(parts)).astype(np.int64)
    order = np.argsort(part, kind="stable")
    borders = np.searchsorted(part[order], np.arange(parts + 1))
    rows32 = rows.astype(np.int32)
    for number in np.flatnonzero(np.diff(borders)).tolist():
        taken = order[borders[number] : borders[number + 1]]
        of_row = chosen[taken]
        columns = [rows32[of_row], numbers[taken].astype(np.uint16), keys[taken], contents[of_row]]
        yield number, pack_arrays([np.array([key], np.int64), *columns])


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


def propose(packed: Iterable[bytes], max_bucket: int, earliest: Callable[[Integers], Integers]) -> Proposals:
    """Return the cliques of a partition; the order of ``packed`` does not matter.

    Args:
        max_bucket: members up to which all pairs of a bucket are compared.
        earliest: gives a few row ids of many (``dedup.nodes.earliest``), ascending as these are.
    """
    columns: list[list[npt.NDArray[np.generic]]] = [[], [], [], []]
    for data in packed:
        key, rows, bands, keys, contents = unpack_arrays(data, _ENTRIES)
        for column, values in zip(
            columns, (first_row_id(int(key[0])) + rows.astype(np.int64), bands, keys, contents), strict=True
        ):
            column.append(values)
    if not columns[0]:
        return Proposals([], [], np.zeros((0, 2), np.int64), 0)
    row_ids, bands, keys, contents = (np.concatenate(column) for column in columns)
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
    shared = sizes > 1
    cliques = _Cliques(earliest)
    for start, size in zip(starts[shared].tolist(), sizes[shared].tolist(), strict=True):
        chosen = members[start : start + size]
        if size <= max_bucket:
            cliques.add(PAIRS, int(bands[chosen[0]]), row_ids[chosen])
        else:
            cliques.add_slices(int(bands[chosen[0]]), row_ids[chosen], contents[chosen])
    return Proposals(cliques.packed(), cliques.candidates(), stars, cliques.not_compared)


class _Cliques:
    """Gathers cliques and deals them out to their homes."""

    def __init__(self, earliest: Callable[[Integers], Integers]) -> None:
        self.not_compared = 0
        self._earliest = earliest
        self._by_home: dict[int, list[tuple[int, int, Integers]]] = {}
        self._members: list[Integers] = []

    def add(self, kind: int, band: int, row_ids: Integers) -> None:
        """Add a clique of at least two members."""
        row_ids = np.sort(row_ids)
        member = int(row_ids[np.argmin(mix(row_ids.astype(np.uint64)))])
        home = member if len(row_ids) > LARGE else member >> ROW_BITS << ROW_BITS
        self._by_home.setdefault(home, []).append((kind, band, row_ids))
        self._members.append(row_ids)

    def add_slices(self, band: int, row_ids: Integers, contents: Contents) -> None:
        """Add a bucket that is too large for all pairs."""
        count = -(-len(row_ids) // SLICE)
        if count == 1:
            self.add(ORDERED, band, row_ids)
            return
        order = np.argsort(row_ids)
        row_ids, contents = row_ids[order], contents[order]
        anchors = self._earliest(row_ids)
        others = ~np.isin(row_ids, anchors)
        # Each band cuts otherwise, so that two records part in one band and meet in another.
        part = mix(contents ^ np.uint64(band)) % np.uint64(count)
        self.not_compared += pairs_among(int(others.sum()))
        for number in range(count):
            chosen = row_ids[others & (part == number)]
            self.not_compared -= pairs_among(len(chosen))
            if len(chosen):
                self.add(ORDERED, band, np.concatenate([anchors, chosen]))

    def packed(self) -> list[tuple[int, bytes]]:
        """Return (home, packed cliques)."""
        return [(home, pack_cliques(cliques)) for home, cliques in self._by_home.items()]

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


def unpack_cliques(packed: Iterable[bytes]) -> list[tuple[int, int, Integers]]:
    """Return the cliques of a home in an order that depends on nothing but them."""
    cliques: list[tuple[int, int, Integers]] = []
    for data in packed:
        kinds, bands, sizes, row_ids = unpack_arrays(data, _CLIQUES)
        parts = np.split(row_ids, np.cumsum(sizes)[:-1])
        cliques.extend(zip(kinds.tolist(), bands.tolist(), parts, strict=True))
    cliques.sort(key=lambda clique: (clique[1], int(clique[2][0]), len(clique[2])))
    return cliques
