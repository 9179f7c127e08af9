"""Groups of keys that no engine is to build, because a hot bucket or chance made them too large.

Such a group has references to batches, whose entries are read from staging by the one process that takes the group:
up to ``MOST_ENTRIES`` are held at once and proposed as ever. A bucket that alone has more is left out, in this band:
its pairs are counted as not compared. That depends on the bucket alone, so the numbers of partitions and batches change
nothing. Equal texts are never left out: too many are an error that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from corpus.errors import ThresherError
from corpus.packing import pack_arrays, unpack_arrays
from dedup.proposals import ENTRY_TYPES, EXACT, Integers, Keys, pairs_among

MOST_ENTRIES = 3 << 20
"""66 MiB; one process sorts so much with ease."""


def read_group(batches: Sequence[int], packed_of: Callable[[int], bytes]) -> tuple[list[bytes], int]:
    """Return the packed entries of a group, and how many pairs of buckets that were left out are not compared.

    Args:
        batches: keys of the batches that have entries in the group.
        packed_of: gives the packed entries of a batch in this group.

    Raises:
        ThresherError: the group has more than twice ``MOST_ENTRIES`` in buckets that are not left out.
    """
    held, count = [], 0
    for data in map(packed_of, batches):
        held.append(data)
        count += _count(data)
        if count > MOST_ENTRIES:
            break
    else:
        return held, 0
    held = []
    keys, counts = _buckets(batches, packed_of)
    left_out = keys[counts > MOST_ENTRIES]
    removed, kept = np.zeros(len(left_out), np.int64), 0
    for data in map(packed_of, batches):
        entries = unpack_arrays(data, ENTRY_TYPES)
        leaves = np.isin(entries[3], left_out) & (entries[2] != EXACT)
        np.add.at(removed, np.searchsorted(left_out, entries[3][leaves]), 1)
        held.append(pack_arrays([entries[0], *(column[~leaves] for column in entries[1:])]))
        kept += int((~leaves).sum())
        if kept > 2 * MOST_ENTRIES:
            raise ThresherError(
                f"more than {2 * MOST_ENTRIES:,} records meet in one group of keys, in which equal texts are never "
                "left out; take equal texts out before, or set scope: source"
            )
    return held, sum(map(pairs_among, removed.tolist()))


def _count(data: bytes) -> int:
    return len(unpack_arrays(data, ENTRY_TYPES)[1])


def _buckets(batches: Sequence[int], packed_of: Callable[[int], bytes]) -> tuple[Keys, Integers]:
    """Return all keys, ascending, and how many entries each has; what is held grows with the number of keys only."""
    keys, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for data in map(packed_of, batches):
        more, of_more = np.unique(unpack_arrays(data, ENTRY_TYPES)[3], return_counts=True)
        keys, places = np.unique(np.concatenate([keys, more]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, of_more]), len(keys)).astype(np.int64)
    return keys, counts
