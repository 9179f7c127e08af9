"""N-grams of the index that occur all over a corpus: counted by source, to be set aside before the verdict.

A licence, a quotation, a template is no sign that a benchmark leaked. ``ngram_sources`` packs which n-grams of the
index occur in which sources, ``merge_sources`` adds such packs up in any order, ``set_aside`` names the n-grams that
occur in too many sources, and ``tokens_aside`` says which tokens of the index then do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.errors import UsageError
from corpus.packing import pack_arrays, unpack_arrays
from filters.contamination_evidence import Evidence, gather
from filters.contamination_index import ContaminationIndex
from filters.contamination_settings import EXACT, NGRAM_TOKENS

Numbers = npt.NDArray[np.int64]
Sources = npt.NDArray[np.uint64]


def ngram_sources(evidence: Evidence, sources: Sources, limit: int) -> bytes:
    """Return which n-grams of the index occur in which sources, packed; at most ``limit`` sources of each.

    Args:
        evidence: of a batch of n records.
        sources: uint64[n], a hash of the source of each record.
        limit: sources from which on an n-gram will be set aside.
    """
    return _packed_sources(evidence.ngrams.astype(np.uint64), sources.astype(np.uint64)[evidence.ngram_rows], limit)


def merge_sources(packs: Sequence[bytes], limit: int) -> bytes:
    """Return several packs of ``ngram_sources`` as one. Order and grouping make no difference.

    Of an n-gram with more sources than ``limit`` the smallest hashes stay, so a pack has at most 16 bytes for each of
    the first ``limit`` sources of an n-gram.
    """
    parts = [unpack_arrays(pack, (np.uint64, np.uint64)) for pack in packs]
    none = np.zeros(0, np.uint64)
    ngrams = np.concatenate([none, *(part[0] for part in parts)])
    sources = np.concatenate([none, *(part[1] for part in parts)])
    return _packed_sources(ngrams, sources, limit)


def set_aside(pack: bytes, limit: int) -> npt.NDArray[np.uint32]:
    """Return the n-grams that occur in ``limit`` sources or more, uint32, ascending."""
    ngrams, _ = unpack_arrays(pack, (np.uint64, np.uint64))
    distinct, counts = np.unique(ngrams, return_counts=True)
    return distinct[counts >= limit].astype(np.uint32)


def _packed_sources(ngrams: npt.NDArray[np.uint64], sources: npt.NDArray[np.uint64], limit: int) -> bytes:
    pairs = np.unique(np.column_stack([ngrams, sources]), axis=0)
    begins = np.flatnonzero(np.diff(pairs[:, 0], prepend=~pairs[:1, 0]))
    rank = np.arange(len(pairs)) - np.repeat(begins, np.diff(np.append(begins, len(pairs))))
    kept = pairs[rank < limit]
    return pack_arrays([kept[:, 0].copy(), kept[:, 1].copy()])


def tokens_aside(index: ContaminationIndex, aside: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Return which tokens of the entries lie in n-grams set aside and in no other n-gram, bool.

    An entry that is found exactly stands and falls with the one n-gram that the index has of it.
    """
    count = int(index.entry_starts[-1])
    away = np.zeros(count, np.bool_)
    if not len(aside):
        return away
    set_aside = index.postings[np.isin(ngram_numbers(index), aside)].astype(np.int64)
    inside = _covering(set_aside, count)
    away[:] = (inside > 0) & (inside == _covering(index.postings, count))
    entries = np.searchsorted(index.entry_starts, set_aside, side="right") - 1
    for entry in entries[(index.entry_flags[entries] & EXACT) != 0].tolist():
        away[index.entry_starts[entry] : index.entry_starts[entry + 1]] = True
    return away


def _covering(starts: npt.NDArray[np.integer], count: int) -> npt.NDArray[np.int8]:
    """Return in how many n-grams each of so many tokens lies, given where these start; each place stands once."""
    steps = np.zeros(count + NGRAM_TOKENS, np.int8)
    steps[starts] += 1
    steps[starts.astype(np.int64) + NGRAM_TOKENS] -= 1
    covering: npt.NDArray[np.int8] = np.cumsum(steps, dtype=np.int8)[:count]
    return covering


def ngram_numbers(index: ContaminationIndex) -> Numbers:
    """Return for each posting the number of the first posting of its n-gram, int64."""
    postings = index.postings.astype(np.int64)
    same = np.ones(len(postings), np.bool_)
    same[:1] = False
    # One token of all n-grams at a time: of a million items these are 36 million.
    for token in range(NGRAM_TOKENS):
        tokens = index.tokens[postings + token]
        same[1:] &= tokens[1:] == tokens[:-1]
    numbers = np.where(same, 0, np.arange(len(postings)))
    return np.maximum.accumulate(numbers)


def listed_ngrams(index: ContaminationIndex, path: str) -> npt.NDArray[np.uint32]:
    """Return the n-grams of the index that occur in the texts of a file, one per line, uint32, ascending.

    Raises UsageError where the file cannot be read as UTF-8 text.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the file of boilerplate cannot be read: {error}") from None
    texts = pa.array(lines, pa.string())
    return np.unique(gather(texts, np.ones(len(lines), np.bool_), index, 0).ngrams)
