"""MinHash signatures, value for value those of datasketch, and how to look them up with it.

A signature holds, for each of P permutations of the 32-bit numbers, the smallest image of a record's shingles (A.
Broder, "On the resemblance and containment of documents", 1997): two records agree in each value with a probability of
their Jaccard similarity. The permutations are those of ``datasketch.MinHash`` (2.0) with the scheme ``affine32``: the
low half of a shingle hash goes through the finaliser of MurmurHash3 (A. Appleby), and permutation p maps h to
``multipliers[p] * h + addends[p]`` modulo 2**32, with odd multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.normalisation import to_nfc
from corpus.text import text_buffers
from dedup.shingles import check_shingle_tokens, shingles
from dedup.tokens import token_scratch, token_table

if TYPE_CHECKING:
    from datasketch import MinHash  # type: ignore[import-untyped, unused-ignore]

EMPTY = 0xFFFFFFFF
"""Each value of the signature of a record without tokens."""
LOW_HALF = 0xFFFFFFFF
SCHEME = "affine32"
SEEDS = 1 << 32

Signatures = npt.NDArray[np.uint32]
Permutations = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]


def permutation_constants(permutations: int, seed: int) -> Permutations:
    """Return (multipliers, addends), uint32[permutations] each.

    They come from NumPy's ``RandomState``, whose stream is frozen, in the order in which datasketch draws them; so all
    of them change with the number of permutations.

    Raises:
        ValueError: ``permutations`` below 1, or ``seed`` outside [0, 2**32).
    """
    if permutations < 1:
        raise ValueError(f"permutations is {permutations}: a signature has at least 1 value")
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {seed}: it must be at least 0 and below {SEEDS}")
    random = np.random.RandomState(seed)
    odd = random.randint(0, 1 << 31, permutations, np.uint32) * np.uint32(2) + np.uint32(1)
    return odd, random.randint(0, 1 << 32, permutations, np.uint32)


def signatures(
    texts: pa.StringArray, rows: npt.NDArray[np.bool_], shingle_tokens: int, constants: Permutations
) -> tuple[Signatures, npt.NDArray[np.int32]]:
    """Return the signatures of n texts, and how many tokens each has.

    Args:
        texts: n texts, NFC or not; a null is empty.
        rows: bool[n], the texts to look at; others are as if they had no tokens.
        shingle_tokens: tokens in a shingle, at least 1.
        constants: from ``permutation_constants``, P of them.

    Returns:
        (values, token_counts): uint32[n, P], all ``EMPTY`` where a text has no tokens, and int32[n].

    Raises:
        TypeError: the array has another type than string.
        ValueError: ``shingle_tokens`` is below 1.
    """
    from dedup import signatures_kernel

    check_shingle_tokens(shingle_tokens)
    offsets, data = text_buffers(to_nfc(texts, rows))
    return signatures_kernel.sweep(
        offsets, data, rows, *token_table(), *token_scratch(offsets), shingle_tokens, *constants
    )


def low_half(shingle: int) -> int:
    """Return the 32 bits of a shingle hash that datasketch takes: a ``hashfunc`` for it."""
    return shingle & LOW_HALF


def datasketch_signatures(values: Signatures, seed: int) -> Iterator[MinHash]:
    """Yield stored signatures as objects of datasketch, for example to put them into one of its indices.

    Args:
        values: uint32[n, P], from ``signatures`` with ``permutation_constants(P, seed)``.
        seed: the seed of the stage.
    """
    from datasketch import MinHash

    constants = np.stack(permutation_constants(values.shape[1], seed))
    for row in values:
        yield MinHash(hashvalues=row, permutations=constants, seed=seed, hashfunc=low_half, scheme=SCHEME)


def datasketch_signature_of(text: str, shingle_tokens: int, permutations: int, seed: int) -> MinHash:
    """Return the signature of one text as an object of datasketch, to look up its like among stored ones."""
    from datasketch import MinHash

    signature = MinHash(permutations, seed, hashfunc=low_half, scheme=SCHEME)
    signature.update_batch(sorted(shingles(text, shingle_tokens)))
    return signature
