"""Keys of the bands of signatures, compiled: two records agree in a band where they share a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import kernel
from dedup.signatures import Signatures
from dedup.tokens import Hashes
from dedup.tokens_kernel import mix

BAND_SEED, BAND_MULTIPLIER = np.uint64(0x27D4EB2F165667C5), np.uint64(0x9FB21C651E98DF25)


@kernel("uint64[:, ::1](Array(uint32, 2, 'C', True), Array(boolean, 1, 'C', True), int64, int64)")
def band_keys(signatures: Signatures, selected: npt.NDArray[np.bool_], bands: int, rows: int) -> Hashes:
    """Return the keys of the selected records, in their order.

    The number of the band is a part of the key, so keys of different bands may lie in one array. A key is a 64-bit
    hash: records that share one without agreeing in a band are possible and only cost a comparison.

    Args:
        signatures: uint32[n, P]; P is at least ``bands * rows``.
        selected: bool[n]; leave out records without tokens, which would all agree.
        bands, rows: how many bands, of how many values each.

    Returns:
        uint64[m, bands], one row per selected record.
    """
    keys = np.empty((np.count_nonzero(selected), bands), np.uint64)
    place = 0
    for record in range(len(selected)):
        if not selected[record]:
            continue
        for band in range(bands):
            state = BAND_SEED ^ np.uint64(band)
            for value in range(band * rows, (band + 1) * rows):
                state = mix(state, np.uint64(signatures[record, value]), BAND_MULTIPLIER)
            keys[place, band] = state
        place += 1
    return keys
