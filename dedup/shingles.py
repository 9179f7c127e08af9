"""The shingles of a text: the set of its runs of a fixed number of tokens, each as a 64-bit hash.

A text with fewer tokens than that has one shingle, all its tokens; a text without tokens has none. Equal runs, and
only they but for a chance of 2**-64 per pair, have equal hashes; the length of a run is a part of its hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.normalisation import to_nfc
from corpus.text import text_buffers
from dedup.bands import exact_fraction
from dedup.tokens import Hashes, mix, token_hash, token_scratch, token_table, tokens

SHINGLE_SEED = 0xC2B2AE3D27D4EB4F
SHINGLE_MULTIPLIER = 0xD6E8FEB86659FD93

INT32_LIMIT = 1 << 32

Counts = npt.NDArray[np.int32]
ShingleSets = tuple[npt.NDArray[np.int64], Hashes]


def shingle_hash(run: Sequence[str]) -> int:
    """Return the hash of a run of tokens, unsigned: the plain-Python reference of the kernel."""
    state = SHINGLE_SEED ^ len(run)
    for token in run:
        state = mix(state, token_hash(token), SHINGLE_MULTIPLIER)
    return state


def shingles(text: str, shingle_tokens: int) -> set[int]:
    """Return the shingle hashes of a text: the plain-Python reference of the kernels.

    Args:
        text: any text.
        shingle_tokens: tokens in a run, at least 1.
    """
    sequence = tokens(text)
    starts = range(max(len(sequence) - shingle_tokens, 0) + 1) if sequence else ()
    return {shingle_hash(sequence[start : start + shingle_tokens]) for start in starts}


def shingle_sets(texts: pa.StringArray, rows: npt.NDArray[np.bool_], shingle_tokens: int) -> ShingleSets:
    """Return the shingle hashes of selected texts, each once and in ascending order.

    Sorting takes most of the time, so select only the texts that are to be compared.

    Args:
        texts: n texts, NFC or not; a null is empty.
        rows: bool[n], the texts to look at; others have no shingles.
        shingle_tokens: tokens in a run, at least 1.

    Returns:
        (offsets, hashes): the set of text i is ``hashes[offsets[i]:offsets[i + 1]]``; int64[n + 1] and uint64.

    Raises:
        TypeError: the array has another type than string.
        ValueError: ``shingle_tokens`` is below 1.
    """
    from dedup import shingles_kernel

    check_shingle_tokens(shingle_tokens)
    offsets, data = text_buffers(to_nfc(texts, rows))
    scratch, folded = token_scratch(offsets)
    return shingles_kernel.shingle_sets(
        offsets, data, rows, *token_table(), scratch, folded, shingle_tokens, np.empty_like(scratch)
    )


def check_shingle_tokens(shingle_tokens: int) -> None:
    """Raise ValueError where runs of so many tokens cannot be."""
    if shingle_tokens < 1:
        raise ValueError(f"shingle_tokens is {shingle_tokens}: a shingle has at least 1 token")


def at_threshold(intersections: Counts, unions: Counts, threshold: float) -> npt.NDArray[np.bool_]:
    """Say which of n pairs have a Jaccard similarity of at least the threshold, exactly: nothing is rounded.

    Args:
        intersections, unions: int32[n], from ``dedup.intersections.jaccard_counts``.
        threshold: meant as the decimal in which it is written, above 0 and at most 1.

    Returns:
        bool[n]; false where the union is 0, that is where neither text has tokens.
    """
    exact = exact_fraction(threshold)
    if exact.denominator >= INT32_LIMIT:  # the products of int64 below could overflow
        pairs = zip(intersections.tolist(), unions.tolist(), strict=True)
        met = (common * exact.denominator >= union * exact.numerator for common, union in pairs)
        similar = np.fromiter(met, np.bool_, len(unions))
    else:
        similar = intersections.astype(np.int64) * exact.denominator >= unions.astype(np.int64) * exact.numerator
    return similar & (unions > 0)
