"""The labelled injection benchmark in small: recall on edited items, none on what is no item."""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contamination import found_by_ours, words_of_questions
from benchmarks.contamination_injections import (
    ANSWER_KINDS,
    FORMAT_KINDS,
    KINDS,
    gsm8k_train,
    near_misses,
    positives,
    write_suite,
)
from filters.contamination import Contamination, ContaminationConfig
from filters.suites import all_files, find_suites, load_items
from tests.filters.texts import SHARED, real_texts

BENCHMARKS = SHARED / "data" / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the shared data are not beside the repository")

EVERY = 60


def test_injected_items_are_found_and_near_misses_are_not(tmp_path: Path) -> None:
    suite = str(write_suite(BENCHMARKS, tmp_path))
    stage = Contamination(ContaminationConfig(suites=[suite], boilerplate="off"), "contamination", "text")
    stage.prepare()
    index = stage._index
    assert index is not None
    assert len(index) == 9657
    items = load_items(all_files(find_suites([suite], "suites")))
    words = words_of_questions(items)
    checkable = {index.item_name(number) for number in np.flatnonzero(index.item_status <= 1).tolist()}
    chosen = [item for item in items[::EVERY] if f"{item.benchmark}/{item.id}" in checkable]
    documents = cycle([text[:2000] for text in real_texts() if text.isascii() and len(text) > 300])
    texts = list(positives(chosen, documents, 0))
    found = found_by_ours(stage, [labelled.text for labelled in texts])
    recalled: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for labelled, names in zip(texts, found, strict=True):
        assert labelled.item is not None
        length = next(least for least in (25, 13, 0) if words[labelled.item] >= least)
        recalled[labelled.kind, length].append(labelled.item in names)
    for kind in KINDS:
        for length in (25, 13):
            cases = recalled[kind, length]
            wanted = {("1 word changed", 13): 0.9, ("2 words changed", 13): 0.0, ("3 words changed", 13): 0.0}
            least = 0.99 if kind in (*FORMAT_KINDS, *ANSWER_KINDS) else wanted.get((kind, length), 0.95)
            assert len(cases) > 3
            assert sum(cases) >= least * len(cases), (kind, length)
    long_enough = [item for item in chosen if words[f"{item.benchmark}/{item.id}"] >= 13]
    negatives = [*near_misses(long_enough, documents, 0), *list(gsm8k_train(BENCHMARKS))[:2000]]
    wrong = found_by_ours(stage, [labelled.text for labelled in negatives if labelled.item is None])
    assert not any(wrong)
