"""Prove candidate pairs: exact Jaccard similarity of the shingle sets of the members of cliques.

Most candidates of a band are no near-duplicates. Signatures that agree in far fewer permutations than the threshold
makes likely rule them out: the number of agreements of a pair at the threshold t is binomial, and a pair is left out
``DEVIATIONS`` standard deviations below its mean (about 3 in 100,000 pairs exactly at the threshold, and hardly any
above it). What remains is compared exactly.

A clique of the kind ``ORDERED`` comes of a bucket with too many members for all pairs. Its members stand in the total
order, and each one is compared with earlier members until it has ``ENOUGH`` proven ones: the first ``ANCHORS`` of all
(those of the bucket, also where it was cut), then, in buckets that a further row of the signature refines, the first
``ANCHORS`` and up to ``WINDOW`` before it. The other pairs are counted as not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import floor, sqrt

import numpy as np
import numpy.typing as npt

from corpus.folder import Folder
from corpus.packing import pack_arrays, unpack_arrays
from dedup.candidates import Candidates
from dedup.intersections import jaccard_counts
from dedup.nodes import staged_ranks
from dedup.proposals import pairs_among, unpack_ordered, unpack_pairs
from dedup.shingles import at_threshold

Integers = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int32]

DEVIATIONS = 4.0
ANCHORS, WINDOW, ENOUGH = 16, 256, 2
ROOM = 1 << 20
SHINGLE_BYTES = 128 << 20

_COUNTS = 4 * 8
_EDGES = (np.int64, np.int64, np.int32, np.int32)
EDGE_BYTES = 24
"""An edge in packed edges."""


@dataclass
class Edges:
    """Pairs with a similarity of at least the threshold, and what was counted on the way.

    Attributes:
        pairs: parts of int64[m, 4]: two row ids, sizes of intersection and union.
        proposed: pairs of cliques, each once per home.
        verified: pairs whose similarity was computed exactly.
        not_compared: pairs of ordered cliques that were not looked at.
    """

    pairs: list[Integers] = field(default_factory=list)
    proposed: int = 0
    verified: int = 0
    not_compared: int = 0

    def table(self) -> Integers:
        """Return all edges, sorted, as int64[m, 4]."""
        if not self.pairs:
            return np.zeros((0, 4), np.int64)
        table = np.concatenate(self.pairs)
        return table[np.lexsort((table[:, 1], table[:, 0]))]


def pack_edges(table: Integers) -> bytes:
    """Return edges, int64[m, 4], as bytes."""
    return pack_arrays([column.astype(kind) for column, kind in zip(table.T, _EDGES, strict=True)])


def unpack_edges(parts: Iterable[bytes | memoryview]) -> Integers:
    """Return the edges of all parts as int64[m, 4]."""
    tables = [np.column_stack(unpack_arrays(data, _EDGES)).astype(np.int64, copy=False) for data in parts]
    return np.concatenate(tables) if tables else np.zeros((0, 4), np.int64)


def write_edges(folder: Folder, name: str, table: Integers, counts: bytes, cliques: int) -> None:
    """Store the edges of a home, the packed counts of its pairs, and the bytes of the cliques that they come from."""
    folder.write_bytes(name, counts + np.int64(cliques).tobytes() + pack_edges(table))


def read_edges(folder: Folder, name: str) -> tuple[Integers, bytes, int]:
    """Return the edges of a home as int64[m, 4], its packed counts, and the bytes of its cliques."""
    data = folder.read_bytes(name)
    head = _COUNTS + 8
    return unpack_edges([data[head:]]), data[:_COUNTS], int(np.frombuffer(data, np.int64, 1, _COUNTS)[0])


def least_agreements(threshold: float, permutations: int) -> int:
    """Return in how many permutations the signatures of a pair must agree to be worth an exact comparison."""
    mean = threshold * permutations
    return max(0, floor(mean - DEVIATIONS * sqrt(mean * (1 - threshold))))


def _marked(places: Pairs, count: int) -> npt.NDArray[np.bool_]:
    """Return which of so many places are among some: quicker than to sort these."""
    marks = np.zeros(count, np.bool_)
    marks[places] = True
    return marks


@dataclass(frozen=True)
class Verifier:
    """Proves the pairs of cliques.

    Attributes:
        folder: the run folder.
        stage: name of the stage, whose staged files are read.
        threshold: least similarity.
        permutations: of the signatures.
        bands, rows: number of bands, and of values in each.
        priorities: number of priority keys of the total order.
    """

    folder: Folder
    stage: str
    threshold: float
    permutations: int
    bands: int
    rows: int
    priorities: int

    def verify(self, packed: Iterable[bytes]) -> Edges:
        """Return the edges of the cliques of a home; the order of ``packed`` does not matter."""
        packed = list(packed)
        edges = Edges()
        bands, sizes, members = unpack_pairs(packed)
        if len(bands):
            self._all_pairs(bands, sizes, members, edges)
        for band, listed in unpack_ordered(packed):
            self._ordered(band, listed, edges)
        return edges

    def _candidates(self, row_ids: Integers) -> Candidates:
        return Candidates(self.folder, self.stage, row_ids, self.permutations)

    def _all_pairs(
        self, bands: npt.NDArray[np.uint16], sizes: Integers, members_of_all: Integers, edges: Edges
    ) -> None:
        from dedup.verification_kernel import CLIQUE, COMPARED, FOUND, likely_pairs

        row_ids, places = np.unique(members_of_all, return_inverse=True)
        candidates = self._candidates(row_ids)
        members = places.astype(np.int32)
        clique_of = np.full((len(row_ids), self.bands), -1, np.int32)
        clique_of[members, np.repeat(bands, sizes)] = np.repeat(np.arange(len(sizes)), sizes)
        offsets = np.append(0, np.cumsum(sizes))
        pairs, state = np.empty((ROOM, 2), np.int32), np.zeros(5, np.int64)
        least = least_agreements(self.threshold, self.permutations)
        while state[CLIQUE] < len(sizes):
            likely_pairs(offsets, members, bands, clique_of, candidates.signatures, least, pairs, state)
            self._prove(pairs[: state[FOUND]], row_ids, candidates, edges)
        edges.proposed += int(state[COMPARED])

    def _prove(self, pairs: Pairs, row_ids: Integers, candidates: Candidates, edges: Edges) -> npt.NDArray[np.bool_]:
        """Compare pairs of places in ``row_ids``, keep the edges, and return which of the pairs are edges."""
        proven = np.zeros(len(pairs), np.bool_)
        edges.verified += len(pairs)
        for chosen in self._blocks(pairs, candidates):
            block = pairs[chosen]
            is_needed = _marked(block, len(row_ids))
            held, offsets, hashes = candidates.sets(np.flatnonzero(is_needed))
            first, second = np.ascontiguousarray(held[(np.cumsum(is_needed) - 1)[block]].T.astype(np.int32))
            common, union = jaccard_counts(offsets, hashes, first, second, self.threshold)
            similar = at_threshold(common, union, self.threshold)
            proven[chosen] = similar
            ends = np.sort(row_ids[block[similar]], axis=1)
            edges.pairs.append(np.column_stack([ends, common[similar], union[similar]]))
        return proven

    def _blocks(self, pairs: Pairs, candidates: Candidates) -> Iterable[Integers]:
        """Cut pairs into blocks whose shingle sets take about ``SHINGLE_BYTES``, unless one pair takes more."""
        if not len(pairs):
            return
        sizes = 8 * candidates.counts
        if sizes[_marked(pairs, len(sizes))].sum() <= SHINGLE_BYTES:
            yield np.arange(len(pairs))
            return
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        weights = np.cumsum(sizes[pairs[order]].sum(axis=1))
        starts = np.unique(np.searchsorted(weights, np.arange(0, weights[-1], SHINGLE_BYTES)))
        yield from np.split(order, starts[1:])

    def _ordered(self, band: int, listed: Integers, edges: Edges) -> None:
        row_ids, best = listed.reshape(2, -1)
        candidates = self._candidates(row_ids)
        candidates.hold_all()
        by_order = np.argsort(staged_ranks(self.folder, self.stage, self.priorities, best))
        count = len(row_ids)
        found = np.zeros(count, np.int64)
        # Anchors are the first of all. In the order itself they are the places from 0.
        first = np.zeros(count, np.int64)
        compared = self._rounds(by_order, first, first + ANCHORS, candidates, row_ids, found, edges)
        others = by_order[ANCHORS:]
        minima = candidates.signatures[others, (band * self.rows + self.rows) % self.permutations]
        refined = np.argsort(minima, kind="stable")
        minima = minima[refined]
        starts = np.flatnonzero(np.append(True, minima[1:] != minima[:-1])[: len(others)])
        bucket = np.repeat(starts, np.diff(np.append(starts, len(others))))
        places = np.arange(len(others))
        # The first of a refined bucket before the last: what stands just before may be copies of them.
        compared += self._rounds(others[refined], bucket, bucket + ANCHORS, candidates, row_ids, found, edges)
        previous = np.minimum(np.maximum(bucket + ANCHORS, places - WINDOW), places)
        compared += self._rounds(others[refined], previous, places, candidates, row_ids, found, edges)
        edges.proposed += compared
        edges.not_compared += pairs_among(count) - compared

    def _rounds(
        self,
        order: Integers,
        previous: Integers,
        ends: Integers,
        candidates: Candidates,
        row_ids: Integers,
        found: Integers,
        edges: Edges,
    ) -> int:
        """Compare members with earlier ones, the next one of each per round, and return how many pairs that were.

        Args:
            order: the members in the order in which they are compared.
            previous: first place that each is compared with.
            ends: place behind the last one that each is compared with.
            found: how many edges each member has; counted on.
        """
        from dedup.verification_kernel import next_pairs

        least = least_agreements(self.threshold, self.permutations)
        places = previous.copy()
        pairs = np.empty((len(order), 2), np.int32)
        while True:
            done = (found[order] >= ENOUGH).astype(np.uint8)
            count = next_pairs(order, ends, candidates.signatures, least, places, done, pairs)
            if not count:
                return int((places - previous).sum())
            members = order[pairs[:count]]
            proven = self._prove(members.astype(np.int32), row_ids, candidates, edges)
            np.add.at(found, members[proven, 0], 1)
