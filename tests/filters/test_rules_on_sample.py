"""Kernels of the rules beside their plain-Python references, on the records of ``thresher sample``.

Of the packages that are the sample's sources, every ``STRIDE``-th is looked at: the references need minutes for all.
``THRESHER_SAMPLE_STRIDE=1 pytest tests/filters/test_rules_on_sample.py`` looks at every record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from corpus.findings import apply_edits
from corpus.sample import collect
from corpus.sample_sources import environment_sources
from corpus.stages import TextBatch
from corpus.text import lines, words
from corpus.text_statistics import text_statistics
from filters import fineweb_counts, gopher_counts, repetition_counts
from filters.badword_lists import find_in_batch, find_in_text, word_list
from filters.c4_counts import read_batch
from filters.c4_reference import read_text
from filters.c4_rules import LIMITS, Preset, line_rules
from filters.counting import Preset as CountingPreset
from filters.gopher import STOP_WORDS
from tests.filters.counting import by_text

STRIDE = int(os.environ.get("THRESHER_SAMPLE_STRIDE", "30"))
COUNTING_PRESETS: tuple[CountingPreset, ...] = ("thresher-1", "datatrove-0.10")
C4_PRESETS: tuple[Preset, ...] = tuple(LIMITS)
ENTRIES = ["the", "default value", "return", "not implemented", "(", "==", "世界"]
SHORT_LINE = 30
BATCH_TEXTS = 2000


@pytest.fixture(scope="module")
def sample() -> list[str]:
    """The distinct texts of the sample's documents."""
    documents = collect(list(environment_sources())[::STRIDE]).documents
    texts = list(dict.fromkeys(document.text for document in documents))
    assert texts
    return texts


def batches(texts: Sequence[str]) -> Iterator[tuple[Sequence[str], TextBatch]]:
    for first in range(0, len(texts), BATCH_TEXTS):
        chosen = texts[first : first + BATCH_TEXTS]
        yield chosen, TextBatch(pa.array(chosen, pa.string()), np.ones(len(chosen), np.bool_))


def test_words_and_lines(sample: list[str]) -> None:
    for texts, batch in batches(sample):
        found = text_statistics(batch)
        assert found.words().tolist() == [len(words(text)) for text in texts]
        assert found.lines().tolist() == [len(lines(text)) for text in texts]
        assert found.characters.tolist() == [len(text) for text in texts]


@pytest.mark.parametrize("preset", COUNTING_PRESETS)
def test_gopher_quality(sample: list[str], preset: CountingPreset) -> None:
    table = gopher_counts.stop_word_table([STOP_WORDS])
    for texts, batch in batches(sample):
        chosen = np.zeros(len(texts), np.int64)
        found = by_text(gopher_counts.count_words_and_lines(text_statistics(batch), preset, table, chosen))
        assert found == [gopher_counts.count_text(text, preset, STOP_WORDS) for text in texts]


@pytest.mark.parametrize("preset", COUNTING_PRESETS)
def test_gopher_repetition(sample: list[str], preset: CountingPreset) -> None:
    for texts, batch in batches(sample):
        found = by_text(repetition_counts.count_repetitions(text_statistics(batch), preset))
        assert found == [repetition_counts.count_text(text, preset) for text in texts]


@pytest.mark.parametrize("preset", COUNTING_PRESETS)
def test_fineweb_quality(sample: list[str], preset: CountingPreset) -> None:
    for texts, batch in batches(sample):
        short = np.full(len(texts), SHORT_LINE)
        found = by_text(fineweb_counts.count_lines(text_statistics(batch), preset, short))
        assert found == [fineweb_counts.count_text(text, preset, SHORT_LINE) for text in texts]


@pytest.mark.parametrize("preset", C4_PRESETS)
def test_c4_quality(sample: list[str], preset: Preset) -> None:
    from filters.c4 import C4QualityConfig

    rules = line_rules(C4QualityConfig(preset=preset))
    for texts, batch in batches(sample):
        counts, findings = read_batch(batch, rules, "cut")
        left = apply_edits(batch.texts, findings).to_pylist()
        assert list(zip(counts.T.tolist(), left, strict=True)) == [read_text(text, rules) for text in texts]


def test_badwords(sample: list[str]) -> None:
    for texts, batch in batches(sample[::4]):
        counts, firsts = find_in_batch(batch.texts, batch.alive, word_list(ENTRIES))
        found = list(zip(counts.tolist(), firsts.tolist(), strict=True))
        assert found == [find_in_text(text, ENTRIES) for text in texts]
