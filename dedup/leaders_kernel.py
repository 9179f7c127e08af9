"""The walk that finds leaders, compiled; the reference is ``dedup.leaders.walk_reference``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import kernel

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

INTEGERS = "Array(int64, 1, 'C', True)"


@kernel(f"int64[::1]({INTEGERS}, {INTEGERS}, Array(boolean, 1, 'C', True))")
def walk(offsets: Integers, earlier: Integers, stays: Mask) -> Integers:
    """Return, for each of n nodes in their order, its edge to the earliest leader before it, or -1: int64[n].

    A node without such an edge is a leader, and so is one that ``stays``.

    Args:
        offsets: int64[n + 1]: the edges of node k to earlier nodes are ``offsets[k]`` to ``offsets[k + 1]``.
        earlier: int64[m]: the place of the earlier node, ascending within the edges of one node.
        stays: bool[n].
    """
    nodes = len(stays)
    found = np.full(nodes, -1)
    for node in range(nodes):
        for edge in range(offsets[node], offsets[node + 1]):
            before = earlier[edge]
            if found[before] < 0 or stays[before]:
                found[node] = edge
                break
    return found
