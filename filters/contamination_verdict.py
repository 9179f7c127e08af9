"""From the evidence of a batch to scores and counts per record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from filters.contamination_evidence import Evidence
from filters.contamination_index import ContaminationIndex
from filters.contamination_settings import (
    ANSWER,
    ANSWER_NEAR,
    CHOICES_NEAR,
    CONTEXT_NEAR,
    EXACT,
    JUNCTION,
    KIND,
    LONG_WORDS,
    NEEDS_PART,
    TELLING_NEAR,
)

LONG, MEDIUM, SHORT, QUESTION_ONLY = 0, 1, 2, 3
"""Classes of matches: by the length of what is found; the last is too short to count without its answer."""
CLASS_RULES = ("threshold", "medium_threshold", "short_items", "question_only")

LEAST_REMAINING = 2
"""An entry of which less than one in so many of its weight is left is set aside as a whole."""

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class Verdict(NamedTuple):
    """What the evidence on n records with m matches comes to.

    Attributes:
        scores: float64[m], the share of the entry, by weight, that is found; 0 where it is set aside.
        classes: uint8[m], the class of each match.
        long_scores, medium_scores: float64[n], the highest score of each class, 0 without a match.
        short_items, question_only: int64[n], the number of items found of each class.
        best: int64[n], the item with the highest score that counts, of equal ones the first; -1 without one.
    """

    scores: Floats
    classes: npt.NDArray[np.uint8]
    long_scores: Floats
    medium_scores: Floats
    short_items: Numbers
    question_only: Numbers
    best: Numbers


def verdict(
    evidence: Evidence, index: ContaminationIndex, length: int, aside: npt.NDArray[np.bool_] | None = None
) -> Verdict:
    """Return scores and counts of n records.

    Args:
        evidence: what was found in them.
        index: the index that it was found with.
        length: n.
        aside: the tokens of entries that do not count, see ``filters.contamination_boilerplate.tokens_aside``; None
            where all do.
    """
    scores = match_scores(evidence, index, aside)
    flags = index.entry_flags[evidence.entries]
    words = index.entry_words[evidence.entries]
    classes = np.where(flags & EXACT, SHORT, np.where(words < LONG_WORDS, MEDIUM, LONG)).astype(np.uint8)
    alone = (flags & NEEDS_PART != 0) & (evidence.near & TELLING_NEAR == 0)
    classes[alone] = QUESTION_ONLY
    rows = evidence.rows.astype(np.int64)
    best = np.full(length, -1, np.int64)
    counting = np.flatnonzero((classes != QUESTION_ONLY) & (scores > 0))
    order = counting[np.lexsort((evidence.items[counting], -scores[counting], rows[counting]))]
    first = order[np.diff(rows[order], prepend=-1) != 0]
    best[rows[first]] = evidence.items[first]
    found = scores > 0
    return Verdict(
        scores,
        classes,
        _highest(length, rows, scores, classes == LONG),
        _highest(length, rows, scores, classes == MEDIUM),
        _items(length, rows, evidence.items, (classes == SHORT) & found),
        _items(length, rows, evidence.items, (classes == QUESTION_ONLY) & found),
        best,
    )


def match_scores(evidence: Evidence, index: ContaminationIndex, aside: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Return the share of its entry, by weight, that each match holds, float64[m]."""
    scores = np.zeros(len(evidence.rows), np.float64)
    bounds = evidence.matched_offsets.tolist()
    for number, entry in enumerate(evidence.entries.tolist()):
        start, stop = int(index.entry_starts[entry]), int(index.entry_starts[entry + 1])
        weights = index.weights[start:stop].astype(np.int64)
        total = int(weights.sum())
        if aside is not None:
            weights = np.where(aside[start:stop], 0, weights)
        remaining = int(weights.sum())
        if remaining * LEAST_REMAINING >= total:
            matched = evidence.matched[bounds[number] : bounds[number + 1]]
            scores[number] = int(weights[matched].sum()) / remaining
    return scores


def found_part(flags: int, near: int) -> str:
    """Return in words which part of an item was found, given the entry's flags and what is near."""
    kind = flags & KIND
    if kind == ANSWER:
        return "answer"
    if kind == JUNCTION or near & ANSWER_NEAR:
        return "question and answer"
    return "question"


def near_parts(near: int) -> list[str]:
    """Return the names of the parts of an item that stand near a match."""
    names = ((ANSWER_NEAR, "answer"), (CHOICES_NEAR, "choices"), (CONTEXT_NEAR, "context"))
    return [name for bit, name in names if near & bit]


def _highest(length: int, rows: Numbers, scores: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
    highest = np.zeros(length, np.float64)
    np.maximum.at(highest, rows[chosen], scores[chosen])
    return highest


def _items(length: int, rows: Numbers, items: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_]) -> Numbers:
    pairs = np.unique(np.column_stack([rows[chosen], items[chosen]]), axis=0)
    return np.bincount(pairs[:, 0], minlength=length).astype(np.int64)
