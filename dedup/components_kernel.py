"""Union-find over compact node numbers, compiled; the reference is ``dedup.components.labels_reference``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text_kernel import pointer

Integers = npt.NDArray[np.int64]

INTEGERS = "Array(int64, 1, 'C', True)"


@inlined
def find_root(parents: Integers, node: int) -> int:
    """Return the root of a node's tree, halving the path to it."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel(f"int64[::1]({INTEGERS}, {INTEGERS}, int64)")
def label_nodes(first: Integers, second: Integers, nodes: int) -> Integers:
    """Return the smallest node of each node's component: int64[nodes].

    Args:
        first, second: int64[m], the two ends of m edges, 0 to ``nodes`` - 1.
        nodes: number of nodes.
    """
    labels = np.arange(nodes)
    parents = pointer(labels)
    for edge in range(len(first)):
        left, right = find_root(parents, first[edge]), find_root(parents, second[edge])
        if left < right:
            parents[right] = left
        elif right < left:
            parents[left] = right
    # A parent is never larger than its child, so it has its label by now.
    for node in range(nodes):
        labels[node] = labels[labels[node]]
    return labels
