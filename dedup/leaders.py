"""Leaders without chaining: which records stay, and which one each other record is a duplicate of.

In one total order each record that has a verified edge to an earlier record that is kept leaves, with the earliest such
leader as the one that it is related to; else it becomes a leader. A record is never dropped because of one that was
dropped itself, so each removal is proven by an edge to a record that stays. Components only split the work: any number
of whole components may be walked at once.

The total order is: protected records first, then the priority keys (null last), longer in code points, content hash,
record_id, file, position. Records with the same content hash are one *node*: they have the same edges, and a Jaccard of
1.0 with each other. A cluster is a leader with the records that point to it.

Protected records always stay. Each is a leader, even where it is a duplicate of another protected one; its units count
among those of the leaders, and it never takes room in a duplication budget. They come first so that a duplicate of a
protected record leaves even where it would come before it by priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpus.selection_keys import (
    Hashes,
    Integers,
    Mask,
    RecordIds,
    Words,
    hash_words,
    key_words,
    number_words,
    ranks,
    total_order,
)

Floats = npt.NDArray[np.float64]


def record_ranks(
    protected: Mask,
    priorities: Sequence[Words],
    characters: Integers,
    content_hashes: Hashes,
    record_ids: RecordIds,
    row_ids: Integers,
) -> Integers:
    """Return the place of each of n records in the total order: int64[n], 0 for the first.

    Args:
        protected: bool[n].
        priorities: uint64[n] each, the first decides first (``corpus.selection_keys.number_words``, descending for a
            signal or a score; for an order of sources, ascending over each source's place in the list).
        characters: int64[n], code points.
        content_hashes: V16[n].
        record_ids: n ids.
        row_ids: int64[n], ascending with (file, position).
    """
    first = number_words(protected.astype(np.int64), descending=True)
    longer = number_words(characters, descending=True)
    words = key_words([first, *priorities, longer, hash_words(content_hashes)])
    return ranks(total_order(words, record_ids, row_ids))


@dataclass(frozen=True)
class Clusters:
    """What became of n records.

    Attributes:
        leaders: int64[n], the index of each record's leader; a leader has its own.
        jaccard: float64[n], the similarity with the leader; 1.0 for the leader itself.
        copy_index: int64[n], 0 for a leader, else the place among its copies in the total order, from 1.
        sizes: int64[n], members of the record's cluster, the leader included.
    """

    leaders: Integers
    jaccard: Floats
    copy_index: Integers
    sizes: Integers


def walk_reference(edges: Sequence[tuple[int, int]], stays: Sequence[bool]) -> list[int]:
    """Return the place of the earliest leader that each node has an edge to, or -1: plain-Python reference.

    Args:
        edges: pairs of places in the order, either first.
        stays: for each node, whether it is a leader in any case.
    """
    found: list[int] = []
    for node, _ in enumerate(stays):
        neighbours = {left + right - node for left, right in edges if node in (left, right)}
        leaders = [before for before in neighbours if before < node and (found[before] < 0 or stays[before])]
        found.append(min(leaders, default=-1))
    return found


def _walk_nodes(
    places: Integers, stays: Mask, first: Integers, second: Integers, jaccard: Floats
) -> tuple[Integers, Floats]:
    """Return (place of the earliest leader before it or -1, Jaccard of that edge) per node, in the nodes' order.

    ``places`` is the place of each node in the order, ``stays`` is in that order, the ends of edges are nodes.
    """
    from dedup.leaders_kernel import walk

    later = np.maximum(places[first], places[second])
    earlier = np.minimum(places[first], places[second])
    # One key sorts several times faster than two; places are far below the root of the largest int64.
    order = np.argsort(later * len(places) + earlier, kind="stable")
    offsets = np.searchsorted(later[order], np.arange(len(places) + 1))
    edges = walk(offsets, earlier[order], stays)
    points = np.flatnonzero(edges >= 0)
    chosen = order[edges[points]]
    leaders, similarity = np.full(len(places), -1), np.ones(len(places))
    leaders[points], similarity[points] = earlier[chosen], jaccard[chosen]
    return leaders, similarity


def find_clusters(
    places: Integers, nodes: Integers, protected: Mask, first: Integers, second: Integers, jaccard: Floats
) -> Clusters:
    """Return leaders and copies of n records that make up whole components.

    Args:
        places: int64[n], each record's place in the total order (``record_ranks``).
        nodes: int64[n], each record's node, 0 to k - 1, each with at least one record: its content hash, numbered.
        protected: bool[n].
        first, second: int64[m], the two different nodes of each verified edge, in either direction.
        jaccard: float64[m], at least the threshold each.

    Raises:
        ValueError: an edge joins a node with itself.
    """
    if bool((first == second).any()):
        raise ValueError("an edge joins a node with itself; records with the same content hash are one node")
    by_place = np.argsort(places)
    ordered_nodes = nodes[by_place]
    # The first record of each node, and from that the order of nodes.
    node_first = np.unique(ordered_nodes, return_index=True)[1]
    node_order = np.argsort(node_first)
    node_places = ranks(node_order)
    stays = np.zeros(len(node_order), np.bool_)
    stays[node_places[nodes[protected]]] = True
    found, similarity = _walk_nodes(node_places, stays, first, second, jaccard)

    # Back to records: a record points to its node's earliest leader, or to its node's own first record.
    record_node = node_places[ordered_nodes]
    opening = node_first[node_order]
    target = np.where(found >= 0, opening[found], opening)
    leader_place = target[record_node]
    own = protected[by_place] | (leader_place == np.arange(len(by_place)))
    leader_place = np.where(own, np.arange(len(by_place)), leader_place)
    leaders, jaccards = np.empty(len(places), np.int64), np.empty(len(places))
    leaders[by_place] = by_place[leader_place]
    jaccards[by_place] = np.where(own, 1.0, similarity[record_node])
    copy_index, sizes = number_copies(leaders, places)
    return Clusters(leaders, jaccards, copy_index, sizes)


def number_copies(leaders: Integers, places: Integers) -> tuple[Integers, Integers]:
    """Return (copy index, cluster size), int64[n] each, given each record's leader and place in the total order."""
    order = np.lexsort((places, leaders))
    ordered = leaders[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(order)])
    lengths = np.diff(np.append(starts, len(order)))
    copy_index, sizes = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    copy_index[order] = np.arange(len(order)) - np.repeat(starts, lengths)
    sizes[order] = np.repeat(lengths, lengths)
    return copy_index, sizes
