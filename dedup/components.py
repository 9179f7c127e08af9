"""Connected components over edges of row ids: the label of a component is its smallest row id.

*Pairs* are the one form of everything here: int64 row ids, two by two, as bytes (16 per pair). Edges are pairs in any
order. A *forest* is a list of pairs (node, label), one per node that is not its component's label, sorted by node: so
it is a list of edges as well, and the forest of forests is the forest of all their edges. That makes it an associative
and commutative sum of bounded size.

Two ways lead to the same labels. The packed forest (``create``, ``add``, ``merge``, ``extract``) holds all nodes that
have edges in one process. Beyond what that can hold, rounds over partitioned pairs do it: the pairs of node v, each
with a smaller node, lie in the partition of v. A round replaces each pair (v, w) by (v, m), where m is the smallest
neighbour of w that the partition of w knows (w, if it knows none), and then lets each partition replace its pairs by
the forest that they span. Both keep what is connected, and what is left once no pair changes is the forest. A round is

    ask    -> (group by partition) answer -> (group by partition) follow -> spread -> (group by partition) next round

These are the large-star and the small-star of Kiveris, Lattanzi, Mirrokni, Rastogi and Vassilvitskii, "Connected
Components in MapReduce and Beyond" (SoCC 2014), with two changes against hot keys: a partition asks for a node once,
however many of its pairs lead there, and it sends one pair per node. So no node, the centre of a star included, costs
more messages than there are partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.hashing import value_hashes
from corpus.packing import rows_by_part

Integers = npt.NDArray[np.int64]

PAIR_BYTES = 16
"""A forest takes this much per node that is not the smallest of its component."""
# Pairs that an accumulator takes in before it is made a forest, beyond those that its forest has.
PENDING_PAIRS = 1 << 16


def pack_pairs(first: Integers, second: Integers) -> bytes:
    """Return pairs, int64[m] each, as bytes."""
    return np.column_stack([first, second]).astype(np.int64, copy=False).tobytes()


def unpack_pairs(parts: Iterable[bytes]) -> Integers:
    """Return the pairs of all parts as int64[m, 2]."""
    return np.frombuffer(b"".join(parts), np.int64).reshape(-1, 2)


def accumulator_bytes(nodes: int) -> int:
    """Return the most that an accumulator over edges between so many nodes takes, the pairs just added aside."""
    return 8 + PAIR_BYTES * (2 * nodes + PENDING_PAIRS)


def spanning_forest(parts: Iterable[bytes]) -> bytes:
    """Return the forest of all pairs of the parts."""
    from dedup.components_kernel import label_nodes

    pairs = unpack_pairs(parts)
    nodes, numbers = np.unique(pairs, return_inverse=True)
    first, second = np.ascontiguousarray(numbers.reshape(-1, 2).T)
    labels = label_nodes(first, second, len(nodes))
    others = np.flatnonzero(labels != np.arange(len(nodes)))
    return pack_pairs(nodes[others], nodes[labels[others]])


def labels_reference(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the label of every node of some edges: the plain-Python reference of the kernel."""
    neighbours: dict[int, set[int]] = {}
    for first, second in edges:
        neighbours.setdefault(first, set()).add(second)
        neighbours.setdefault(second, set()).add(first)
    labels: dict[int, int] = {}
    for start in sorted(neighbours):
        todo = [start]
        while todo:
            node = todo.pop()
            if node not in labels:
                labels[node] = start
                todo += neighbours[node]
    return labels


def create() -> bytes:
    """Return an empty accumulator: the number of pairs of its forest (int64), then that forest, then pairs added."""
    return bytes(8)


def add(accumulator: bytes, pairs: bytes) -> bytes:
    """Return an accumulator with more pairs (edges, or a forest)."""
    return merge([accumulator, bytes(8) + pairs])


def merge(accumulators: Iterable[bytes]) -> bytes:
    """Return the sum of accumulators; its forest is made anew once the pairs added outnumber those of the largest."""
    parts = list(accumulators)
    parts.sort(key=len, reverse=True)
    compacted = int.from_bytes(parts[0][:8], "little") if parts else 0
    pairs = b"".join(part[8:] for part in parts)
    if len(pairs) > PAIR_BYTES * (2 * compacted + PENDING_PAIRS):
        pairs = spanning_forest([pairs])
        compacted = len(pairs) // PAIR_BYTES
    return compacted.to_bytes(8, "little") + pairs


def extract(accumulator: bytes) -> bytes:
    """Return the forest of an accumulator; it is the same for the same edges in whatever order and grouping."""
    return spanning_forest([accumulator[8:]])


def labels_of(row_ids: Integers, forest: bytes) -> Integers:
    """Return the label of each row id; one that the forest does not have is its own component's."""
    pairs = unpack_pairs([forest])
    labels: Integers = np.array(row_ids)
    if len(pairs):
        found = pairs[np.minimum(np.searchsorted(pairs[:, 0], row_ids), len(pairs) - 1)]
        labels = np.where(found[:, 0] == row_ids, found[:, 1], row_ids)
    return labels


def partition_of(row_ids: Integers, partitions: int) -> Integers:
    """Return the partition of each node, 0 to ``partitions`` - 1, by a hash of its row id."""
    parts: Integers = (value_hashes(pa.array(row_ids)) % np.uint64(partitions)).astype(np.int64)
    return parts


def _by_partition(keys: Integers, rows: Integers, partitions: int) -> Iterator[tuple[int, bytes]]:
    parts = partition_of(keys, partitions)
    for part, own in rows_by_part(parts):
        yield part, rows[own].tobytes()


def spread(pairs: Iterable[bytes], partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield (partition of the node, packed pairs) of the forest that some pairs span: what ends a round.

    Applied to parts of the edges, it also makes the pairs that the first round starts with.
    """
    forest = unpack_pairs([spanning_forest(pairs)])
    yield from _by_partition(forest[:, 0], forest, partitions)


def ask(partition: int, pairs: Iterable[bytes], partitions: int) -> Iterator[tuple[int, bytes]]:
    """Yield (partition asked, packed (node, partition that asks)), once per distinct node that pairs lead to."""
    nodes = np.unique(unpack_pairs(pairs)[:, 1])
    yield from _by_partition(nodes, np.column_stack([nodes, np.full(len(nodes), partition)]), partitions)


def answer(pairs: Iterable[bytes], questions: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (partition that asked, packed (node, its smallest neighbour or itself)).

    Args:
        pairs: the pairs of the partition asked; may be none.
        questions: what ``ask`` sent to it.
    """
    known, asked = unpack_pairs(pairs), unpack_pairs(questions)
    order = np.lexsort((known[:, 1], known[:, 0]))
    known = known[order]
    known = known[np.append(True, known[1:, 0] != known[:-1, 0])[: len(known)]]
    answers = np.column_stack([asked[:, 0], labels_of(asked[:, 0], known.tobytes())])
    for part in np.unique(asked[:, 1]).tolist():
        yield part, answers[asked[:, 1] == part].tobytes()


def follow(pairs: Iterable[bytes], answers: Iterable[bytes]) -> tuple[bytes, int]:
    """Return (packed pairs with each second node replaced by its answer, number of changes that are not settled).

    A change is a pair that was replaced, or a second pair of one node. Once no partition counts one, the pairs of all
    partitions together are the forest; ``spanning_forest`` of one partition's sorts them for ``labels_of``.
    """
    old = unpack_pairs(pairs)
    replies = unpack_pairs(answers)
    replies = replies[np.argsort(replies[:, 0])]
    new = labels_of(old[:, 1], replies.tobytes())
    changes = int((new != old[:, 1]).sum()) + len(old) - len(np.unique(old[:, 0]))
    return pack_pairs(old[:, 0], new), changes
