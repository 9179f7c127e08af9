from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.punctuation import DATATROVE_PUNCTUATION, TERMINAL_PUNCTUATION, punctuation
from corpus.stages import TextBatch
from corpus.text import lines, words
from corpus.text_statistics import TextStatistics, statistics_classes, text_statistics
from corpus.text_statistics_kernel import WORD_CLASSES
from corpus.unicode_tables import code_points
from tests.filters.texts import HOSTILE, TEXTS, real_texts

# Runs of ASCII as long as blocks and longer, so that words, lines and other code points lie across their borders.
LONG = st.lists(
    st.one_of(
        st.builds(
            lambda text, times: text * times, st.sampled_from(["a", " ", "\n", "\r\n", "ab ", "#."]), st.integers(1, 70)
        ),
        TEXTS,
        st.text(st.characters(max_codepoint=0x7F), max_size=80),
    ),
    max_size=6,
).map("".join)


def measured(texts: Sequence[str | None]) -> TextStatistics:
    return text_statistics(TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_)))


def assert_equals_reference(texts: Sequence[str]) -> None:
    found = measured(texts)
    data = found.data.tobytes()
    classes = statistics_classes()
    for row, text in enumerate(texts):
        first, last = found.word_firsts[row], found.word_firsts[row + 1]
        starts, ends = found.word_starts[first:last].tolist(), found.word_ends[first:last].tolist()
        expected = words(text)
        assert [data[start:end].decode() for start, end in zip(starts, ends, strict=True)] == expected
        assert np.diff(found.word_characters[first : last + 1]).tolist() == [len(word) for word in expected]
        bits = [int(np.bitwise_or.reduce(classes[list(map(ord, word))])) & WORD_CLASSES for word in expected]
        assert found.word_classes[first:last].tolist() == bits
        first, last = found.line_firsts[row], found.line_firsts[row + 1]
        starts, ends = found.line_starts[first:last].tolist(), found.line_ends[first:last].tolist()
        split = lines(text)
        assert [data[start:end].decode() for start, end in zip(starts, ends, strict=True)] == split
        assert np.diff(found.line_words[first : last + 1]).tolist() == [len(words(line)) for line in split]
        assert found.characters[row] == len(text)
    assert found.words().tolist() == [len(words(text)) for text in texts]
    assert found.lines().tolist() == [len(lines(text)) for text in texts]


@given(st.lists(LONG, max_size=4))
@settings(deadline=None)
def test_tables_equal_reference_on_random_unicode(texts: list[str]) -> None:
    assert_equals_reference(texts)


def test_tables_equal_reference_on_hostile_texts() -> None:
    assert_equals_reference(HOSTILE)
    for text in HOSTILE:
        assert_equals_reference([text[:5000]])  # the end of the text is that of the buffer


def test_tables_equal_reference_on_real_texts() -> None:
    assert_equals_reference(real_texts()[::4])


def test_every_ascii_character_has_its_classes() -> None:
    characters = list(map(chr, range(0x80)))
    assert_equals_reference([f"{'a' * 40} {character} {'b' * 40}" for character in characters])
    assert_equals_reference([f"世{character}世{character}e\u0301{character}" for character in characters])


@pytest.mark.parametrize("length", range(60, 70))
def test_a_carriage_return_before_the_border_of_a_block_ends_one_line(length: int) -> None:
    assert_equals_reference(
        ["x" * length + "\r\ny" * 30, "x" * length + "\r", "x" * length + "\r\n", "世" + "\r\n" * length]
    )


def test_texts_do_not_run_into_each_other() -> None:
    assert_equals_reference(["x\r", "\ny", "y" * 100, "z" * 100, "", "世", "\u0301a", "a" * 64, "\u0301 " * 64])


def test_slices_nulls_and_masked_rows() -> None:
    texts = pa.array(["left out", None, "a b\nc", "masked text", "d"]).slice(1)
    batch = TextBatch(texts, np.array([True, True, False, True]))
    found = text_statistics(batch)
    assert found.words().tolist() == [0, 3, 0, 1]
    assert found.lines().tolist() == [0, 2, 0, 1]
    assert found.characters.tolist() == [0, 5, 0, 1]
    assert found.line_words.tolist() == [0, 2, 3, 4]


def test_no_texts() -> None:
    found = measured([])
    assert found.word_firsts.tolist() == found.line_firsts.tolist() == [0]
    assert len(found.word_starts) == len(found.line_starts) == 0


def test_one_sweep_serves_all_who_share() -> None:
    texts, alive = pa.array(["a b", "c"]), np.ones(2, np.bool_)
    batch = TextBatch(texts, alive)
    assert text_statistics(batch) is text_statistics(batch)
    assert text_statistics(TextBatch(texts, alive, shared=batch.shared)) is text_statistics(batch)
    assert text_statistics(TextBatch(texts, alive)) is not text_statistics(batch)


def test_punctuation_is_that_of_datatrove() -> None:
    text = pytest.importorskip("datatrove.utils.text")
    assert set(map(chr, np.flatnonzero(punctuation("datatrove-0.10")).tolist())) == text.PUNCTUATION_SET
    assert set(map(chr, code_points(DATATROVE_PUNCTUATION).tolist())) == text.PUNCTUATION_SET
    assert set(map(chr, code_points(TERMINAL_PUNCTUATION).tolist())) == text.TERMINAL_PUNCTUATION
