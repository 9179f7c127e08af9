"""All pairs of similar texts by exact Jaccard similarity, without MinHash and without the code that is measured.

Text is put in NFC and case-folded; each code point of category P or S becomes a space; tokens are runs between white
space, and single code points in scripts written without spaces. A text is the set of its runs of five tokens, or the
one run of all if it has fewer. Unicode's categories are those of the pinned package, letters' cases the interpreter's.

The join is that of R. Bayardo, Y. Ma and R. Srikant, "Scaling up all pairs similarity search" (WWW 2007). Where J(a, b)
is at least t, a and b have at least t * |a| shingles in common; so with the shingles of every set in one order, rare
ones first, some common one is among the first |a| - ceil(t * |a|) + 1 of a, and likewise of b. Pairs that meet there
are compared in full. Sets hold 64-bit hashes of shingles: two different ones of 10^8 are equal with probability 0.0003.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import xxhash

from benchmarks.peers_near_duplicates import shingles

Numbers = npt.NDArray[np.int64]
Pairs = list[tuple[int, int, float]]

# Keeps a product of a threshold and a size that is a whole number from being rounded up to the next.
ROUNDING = 1e-9


def shingle_hashes(text: str) -> npt.NDArray[np.uint64]:
    """Return the 64-bit hashes of the shingles of a text, each once."""
    return np.array([xxhash.xxh3_64_intdigest(shingle) for shingle in shingles(text)], np.uint64)


@numba.njit(cache=False)  # type: ignore[untyped-decorator, unused-ignore]
def _join(
    offsets: Numbers, members: Numbers, prefixes: Numbers, firsts: Numbers, postings: Numbers, threshold: float
) -> Pairs:
    """Return (row, earlier row, Jaccard) of all pairs at a threshold.

    Row r, by ascending size, is ``members[offsets[r] : offsets[r + 1]]``, ascending; the rows with m among their first
    ``prefixes[r]`` members are ``postings[firsts[m] : firsts[m + 1]]``, ascending.
    """
    found = [(0, 0, 0.0)]
    met_by = np.full(len(prefixes), -1, np.int64)
    for row in range(len(prefixes)):
        start, end = offsets[row], offsets[row + 1]
        for place in range(start, start + prefixes[row]):
            for at in range(firsts[members[place]], firsts[members[place] + 1]):
                other = postings[at]
                if other >= row:
                    break
                first, last = offsets[other], offsets[other + 1]
                if met_by[other] == row or last - first < threshold * (end - start) - ROUNDING:
                    continue
                met_by[other] = row
                common, left, right = 0, start, first
                while left < end and right < last:
                    one, two = members[left], members[right]
                    common += one == two
                    left += one <= two
                    right += two <= one
                similarity = common / (end - start + last - first - common)
                if similarity >= threshold:
                    found.append((row, other, similarity))
    return found[1:]


def similar_pairs(texts: Sequence[str], threshold: float) -> Pairs:
    """Return (a, b, Jaccard), a < b, of all pairs of texts at a threshold above 0; a text without tokens is in none.

    Memory is about 60 bytes per shingle.
    """
    hashes = [shingle_hashes(text) for text in texts]
    sizes = np.array([len(one) for one in hashes], np.int64)
    by_size = np.argsort(sizes, kind="stable")
    by_size = by_size[sizes[by_size] > 0]
    if not len(by_size):
        return []
    sizes = sizes[by_size]
    _, numbers, counts = np.unique(
        np.concatenate([hashes[text] for text in by_size.tolist()]), return_inverse=True, return_counts=True
    )
    ranks = np.empty(len(counts), np.int64)
    ranks[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    rows = np.repeat(np.arange(len(sizes)), sizes)
    members = ranks[numbers]
    members = members[np.lexsort((members, rows))]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    prefixes = sizes - np.ceil(threshold * sizes - ROUNDING).astype(np.int64) + 1
    in_prefix = np.arange(len(members)) - offsets[rows] < prefixes[rows]
    order = np.lexsort((rows[in_prefix], members[in_prefix]))
    firsts = np.concatenate(([0], np.cumsum(np.bincount(members[in_prefix], minlength=len(counts)))))
    found: Any = _join(offsets, members, prefixes, firsts, rows[in_prefix][order], threshold)
    place = by_size.tolist()
    return sorted((min(place[a], place[b]), max(place[a], place[b]), similarity) for a, b, similarity in found)
