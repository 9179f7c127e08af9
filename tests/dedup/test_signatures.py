"""Signatures: bit for bit those of datasketch over the same shingle hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup.shingles import shingles
from dedup.signatures import (
    EMPTY,
    Signatures,
    datasketch_signature_of,
    datasketch_signatures,
    low_half,
    permutation_constants,
    signatures,
)
from dedup.signatures_kernel import BLOCK
from dedup.tokens import tokens
from tests.filters.texts import HOSTILE, TEXTS, real_texts

datasketch = pytest.importorskip("datasketch", minversion="2.0")


def signed(texts: Sequence[str], shingle_tokens: int, permutations: int, seed: int) -> tuple[Signatures, list[int]]:
    constants = permutation_constants(permutations, seed)
    values, counts = signatures(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), shingle_tokens, constants)
    assert (values.dtype, values.shape, counts.dtype) == (np.uint32, (len(texts), permutations), np.int32)
    return values, counts.tolist()


def assert_those_of_datasketch(texts: Sequence[str], shingle_tokens: int, permutations: int, seed: int) -> None:
    values, counts = signed(texts, shingle_tokens, permutations, seed)
    assert counts == [len(tokens(text)) for text in texts]
    for row, text in zip(values, texts, strict=True):
        expected = datasketch.MinHash(permutations, seed, hashfunc=low_half, scheme="affine32")
        expected.update_batch(shingles(text, shingle_tokens))
        assert row.tolist() == expected.hashvalues.tolist()


@given(st.lists(TEXTS, max_size=3), st.integers(1, 6), st.integers(1, 130), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_signatures_are_those_of_datasketch(
    texts: list[str], shingle_tokens: int, permutations: int, seed: int
) -> None:
    assert_those_of_datasketch(texts, shingle_tokens, permutations, seed)


def test_signatures_of_hostile_texts_are_those_of_datasketch() -> None:
    assert_those_of_datasketch([text for text in HOSTILE if len(text) < 50_000], 5, 112, 1)


def test_signatures_of_real_texts_are_those_of_datasketch() -> None:
    assert_those_of_datasketch(real_texts()[::23], 5, 112, 1)


@pytest.mark.parametrize("count", [1, 31, 32, 33, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 40])
def test_texts_around_the_size_of_a_block(count: int) -> None:
    assert_those_of_datasketch([" ".join(map(str, range(count + 4)))], 5, 16, 7)


def test_permutations_are_those_of_datasketch() -> None:
    for permutations, seed in ((1, 0), (112, 1), (256, 2**32 - 1)):
        theirs = datasketch.MinHash(permutations, seed, scheme="affine32").permutations
        assert np.array_equal(np.stack(permutation_constants(permutations, seed)), theirs)


def test_known_values() -> None:
    values, counts = signed(["The quick brown fox jumps over the lazy dog"], 5, 4, 1)
    assert values.tolist() == [[1256415022, 2380032964, 957135664, 441454850]]
    assert counts == [9]


def test_records_without_tokens_are_empty() -> None:
    texts = pa.array(["left out", "!!!", None, "a b", "a b"]).slice(1)
    values, counts = signatures(texts, np.array([True, True, True, False]), 5, permutation_constants(8, 1))
    assert counts.tolist() == [0, 0, 2, 0]
    assert (values[[0, 1, 3]] == EMPTY).all()
    assert (values[2] != EMPTY).all()
    assert signed([], 5, 8, 1)[0].shape == (0, 8)


def test_the_share_of_equal_values_estimates_the_similarity() -> None:
    numbers = list(map(str, range(2000)))
    texts = [" ".join(numbers[:1500]), " ".join(numbers[500:])]
    values, _ = signed(texts, 1, 1024, 3)
    assert abs((values[0] == values[1]).mean() - 0.5) < 0.06  # four standard deviations


def test_stored_signatures_answer_look_ups_of_datasketch() -> None:
    words = [str(number) for number in range(60)]
    texts = [" ".join(words), " ".join([*words[:40], "x", *words[41:]]), " ".join(reversed(words)), "cat"]
    values, _ = signed(texts, 5, 112, 9)
    stored = list(datasketch_signatures(values, 9))
    index = datasketch.MinHashLSH(params=(16, 6), num_perm=112)
    for number, signature in enumerate(stored):
        index.insert(number, signature)
    assert index.query(datasketch_signature_of("Cat!", 5, 112, 9)) == [3]
    asked = datasketch_signature_of(" ".join(words), 5, 112, 9)
    assert asked == stored[0]
    assert set(index.query(asked)) <= {0, 1}
    assert abs(asked.jaccard(stored[1]) - 51 / 61) < 0.2
    # A stored signature can be updated, with shingle hashes, as one made from its text.
    signature = stored[0]
    for shingle in shingles("one more sentence with seven words", 5):
        signature.update(shingle)
    joined = datasketch_signature_of("one more sentence with seven words", 5, 112, 9)
    joined.merge(asked)
    assert signature == joined
    assert values[0].tolist() == asked.hashvalues.tolist()


@pytest.mark.parametrize(
    ("permutations", "seed", "message"),
    [(0, 1, "permutations is 0"), (8, -1, "seed is -1"), (8, 2**32, "seed is 4294967296")],
)
def test_bad_constants(permutations: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        permutation_constants(permutations, seed)


def test_bad_arguments() -> None:
    constants, rows = permutation_constants(8, 1), np.ones(1, np.bool_)
    with pytest.raises(ValueError, match="shingle_tokens is 0"):
        signatures(pa.array(["a"]), rows, 0, constants)
    with pytest.raises(TypeError, match="type string, not large_string"):
        signatures(pa.array(["a"], pa.large_string()), rows, 5, constants)
