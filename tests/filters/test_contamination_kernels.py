"""Tokens, n-grams, matches and parts of the contamination stage: kernels against plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.text import text_buffers
from filters.contamination_build import build_index, token_weights
from filters.contamination_evidence import Evidence, gather
from filters.contamination_index import ContaminationIndex, open_index, write_index
from filters.contamination_kernel import MOST_HITS, find_matches
from filters.contamination_ngrams import MOST_POSTINGS, RAREST, ngram_hash, ngram_hashes
from filters.contamination_reference import (
    find_in_text,
    ngrams_of,
    parts_near_in_text,
    text_hashes,
)
from filters.contamination_settings import ItemLengths
from filters.contamination_token_kernel import token_hashes
from filters.contamination_tokens import original_spans, ready_texts, token_hash, token_table, tokens
from filters.suite_items import BenchmarkItem
from tests.filters.texts import HOSTILE, TEXTS, real_texts

WORDS = ["red", "blue", "one", "two", "of", "the", "cats", "世", "界", "Straße", "don't"]


Found = tuple[list[int], list[tuple[int, int, int, tuple[int, ...]]]]


def kernel_tokens(texts: Sequence[str]) -> list[list[int]]:
    array = pa.array(texts, pa.string())
    rows = np.ones(len(texts), np.bool_)
    firsts, hashes, _, _ = token_hashes(*text_buffers(ready_texts(array, rows)), rows, *token_table())
    return [hashes[firsts[row] : firsts[row + 1]].tolist() for row in range(len(texts))]


def items_of(texts: Sequence[str], answer: str = "") -> list[BenchmarkItem]:
    return [BenchmarkItem("test", str(number), (text,), answer) for number, text in enumerate(texts)]


def found(texts: Sequence[str], index: ContaminationIndex) -> list[Found]:
    """What the kernel finds in each text, in the form of ``find_in_text``."""
    rows = np.ones(len(texts), np.bool_)
    ngrams, matches, offsets, matched = find_matches(
        *text_buffers(ready_texts(pa.array(texts, pa.string()), rows)),
        rows,
        *token_table(),
        index.tokens,
        index.weights,
        index.entry_starts,
        index.entry_flags,
        index.postings,
        index.directory,
        index.bits,
    )
    results: list[Found] = [([], []) for _ in texts]
    for row, ngram in ngrams.reshape(-1, 2).tolist():
        results[row][0].append(ngram)
    for number, (row, entry, first, stop, _, _, weight, _) in enumerate(matches.tolist()):
        own = matched[offsets[number] : offsets[number + 1]].tolist()
        start = int(index.entry_starts[entry])
        assert weight == sum(int(index.weights[start + token]) for token in own)
        results[row][1].append((entry, first, stop, tuple(own)))
    return results


def assert_same(texts: Sequence[str], index: ContaminationIndex) -> int:
    """Compare the kernel with the reference; return how many matches there are."""
    ngrams = ngrams_of(index)
    count = 0
    for text, (kernel_ngrams, kernel_matches) in zip(texts, found(texts, index), strict=True):
        reference_ngrams, reference_matches = find_in_text(text, index, ngrams)
        assert kernel_ngrams == reference_ngrams
        assert kernel_matches == [tuple(match) for match in reference_matches]
        count += len(kernel_matches)
    return count


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The gardener's “Orchard”", ["the", "gardeners", "orchard"]),
        ("gardener’s GARDENERS gardener´s gardener＇s", ["gardeners"] * 4),
        ("Ｆｕｌｌ　width ﬁne", ["full", "width", "fine"]),
        ("al\u00adthough zero\u200b \u200bwidth", ["although", "zero", "width"]),
        ("Zoe\u0308 Zoë", ["zoë", "zoë"]),
        ("f(x)=a_b-c, 3.5%", ["f", "x", "a", "b", "c", "3", "5"]),
        ("漢字と かな", ["漢", "字", "と", "か", "な"]),
        ("ｶﾞガ", ["ガ", "ガ"]),
        ("½ ㍿ …", ["1", "2", "株", "式", "会", "社"]),
        ("한국어 문장은", ["한국어", "문장은"]),
        ("... !? \u200b", []),
    ],
)
def test_tokens(text: str, wanted: list[str]) -> None:
    assert tokens(text) == wanted
    assert kernel_tokens([text]) == [[token_hash(token) for token in wanted]]


@given(st.lists(TEXTS, max_size=4))
@settings(deadline=None, max_examples=60)
def test_token_kernel_equals_reference(texts: list[str]) -> None:
    assert kernel_tokens(texts) == [text_hashes(text) for text in texts]


def test_token_kernel_equals_reference_on_real_and_hostile_texts() -> None:
    texts = [*real_texts()[:80], *HOSTILE]
    assert kernel_tokens(texts) == [text_hashes(text) for text in texts]


def test_token_kernel_equals_reference_on_every_code_point_beside_a_mark() -> None:
    choose = random.Random(0)
    points = [point for point in range(0x80, 0x20000) if not 0xD800 <= point < 0xE000]
    samples = [choose.sample(points, 200) for _ in range(40)]
    texts = ["".join(f"{chr(point)}a{chr(point)}\u0301\u3099" for point in sample) for sample in samples]
    assert kernel_tokens(texts) == [text_hashes(text) for text in texts]


@given(
    st.lists(st.sampled_from(["a", "e\u0301", "ﬁ", "ｶ", "ﾞ", " ", "世", "½", "\u1100", "\u1161", "x" * 5]), max_size=12)
)
def test_spans_in_nfkc_lead_back_to_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    ready = ready_texts(pa.array([text]), np.ones(1, np.bool_))[0].as_py()
    firsts, _, starts, ends = token_hashes(*text_buffers(pa.array([ready])), np.ones(1, np.bool_), *token_table())
    if ready == text:
        return
    first, last = original_spans(text, starts.astype(np.int64), ends.astype(np.int64))
    for number in range(int(firsts[1])):
        piece = text.encode()[first[number] : last[number]].decode()
        own = ready.encode()[starts[number] : ends[number]].decode()
        assert set(tokens(own)) <= set(tokens(piece))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=20))
def test_ngram_hashes_equal_reference(hashes: list[int]) -> None:
    rolled = ngram_hashes(np.array(hashes, np.uint32))
    for place in range(len(hashes) - 4):
        assert int(rolled[place]) == ngram_hash(hashes[place : place + 5])


def test_weights_are_halved_by_frequency() -> None:
    starts = np.array([0, 2, 4, 6, 8])
    hashes = np.array([2, 4, 2, 6, 2, 8, 2, 8], np.uint32)
    assert token_weights(hashes, starts).tolist() == [16, 32, 16, 32, 16, 24, 16, 24]


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=3, max_size=40).map(" ".join), min_size=1, max_size=5),
    st.lists(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), min_size=1, max_size=3),
    st.integers(5, 30),
)
@settings(deadline=None, max_examples=100)
def test_match_kernel_equals_reference_on_random_words(items: list[str], texts: list[str], edited: int) -> None:
    index = build_index(items_of(items), ItemLengths(5, edited, 5))
    assert_same([*texts, *items, " ".join(items), f"{texts[0]} {items[0]} {texts[0]} {items[-1]}"], index)


@pytest.mark.parametrize("seed", range(12))
def test_match_kernel_equals_reference_on_edited_items(seed: int) -> None:
    choose = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(80)]
    items = [" ".join(choose.choices(vocabulary, k=choose.randrange(5, 60))) for _ in range(30)]
    index = build_index(items_of(items))
    texts = []
    for item in items:
        words = item.split()
        for _ in range(choose.randrange(4)):
            place = choose.randrange(len(words))
            words[place : place + choose.randrange(2)] = choose.choices(vocabulary, k=choose.randrange(3))
            words = words or ["w0"]
        texts.append(" ".join([*choose.choices(vocabulary, k=30), *words, *choose.choices(vocabulary, k=30)]))
    assert assert_same([*texts, " ".join(texts)], index) > 0


def test_match_kernel_equals_reference_on_long_items_and_real_texts() -> None:
    texts = [text for text in real_texts() if len(text) > 500][:40]
    items = [text[100:400] for text in texts] + [texts[0] * 2, texts[1][:5000]]
    index = build_index(items_of(items))
    assert np.diff(index.entry_starts).max() > 512
    assert assert_same([*texts, texts[0] * 3], index) >= len(texts)


def test_repeated_phrases_stay_cheap_and_equal() -> None:
    items = [f"write a function to find the {word} of a given list using the {word} method" for word in ["sum", "mean"]]
    index = build_index(items_of(items))
    texts = ["write a function to find the " * 400, f"{items[0]}. {items[0]}\n{items[1]} " * 3]
    assert_same(texts, index)
    spans = [match[1:3] for match in found(texts, index)[1][1] if match[0] == 0 and len(match[3]) == 15]
    assert spans == [(start + place, start + place + 15) for start in (0, 45, 90) for place in (0, 15)]


def test_frequent_ngrams_lead_to_few_entries_and_every_entry_keeps_some() -> None:
    items = [f"what is the name of the person called n{number} or m{number} in the old story" for number in range(200)]
    index = build_index(items_of(items))
    counts = np.bincount(np.searchsorted(index.entry_starts, index.postings, side="right") - 1, minlength=200)
    assert counts.min() >= RAREST
    for item in items[::37]:
        _, matches = found([item], index)[0]
        assert any(len(match[3]) == 15 for match in matches)


def test_texts_with_very_many_hits_are_looked_at_piece_by_piece() -> None:
    phrase = "write a function to find the"
    items = [f"{phrase} {' '.join(f'w{number}x{word}' for word in range(30))}" for number in range(MOST_POSTINGS)]
    index = build_index(items_of(items))
    repeats = MOST_HITS // MOST_POSTINGS
    text = f"{items[0]} {f'{phrase} ' * repeats} {items[1]}"
    ngrams, matches = found([text], index)[0]
    assert len(ngrams) * MOST_POSTINGS > MOST_HITS
    assert [match[0] for match in matches] == [0, 1]
    assert_same([text], index)


PARTS = st.lists(st.sampled_from(WORDS[:7]), min_size=1, max_size=12).map(" ".join)


@given(st.lists(PARTS, max_size=4), PARTS, PARTS, st.lists(PARTS, min_size=2, max_size=6), st.integers(0, 8))
@settings(deadline=None, max_examples=100)
def test_parts_kernel_equals_reference(
    choices: list[str], answer: str, context: str, around: list[str], distance: int
) -> None:
    question = "alpha beta gamma delta epsilon zeta"
    index = build_index([BenchmarkItem("test", "1", (question,), answer, tuple(choices), context)])
    half = len(around) // 2
    text = " ".join([*around[:half], question, *around[half:]])
    evidence = gather(pa.array([text]), np.ones(1, np.bool_), index, distance)
    _, matches = find_in_text(text, index, ngrams_of(index))
    wanted = [parts_near_in_text(text, match.first, match.stop, 0, index, distance) for match in matches]
    assert sorted(evidence.near.tolist()) == sorted(wanted)


def test_evidence_survives_packing() -> None:
    index = build_index(items_of(["one two three four five six seven eight nine ten"]))
    texts = pa.array(["zero one two three four five six seven eight nine ten eleven", None, ""])
    evidence = gather(texts, np.array([True, False, True]), index, 50)
    assert len(evidence.rows) == 1
    unpacked = Evidence.unpacked(evidence.packed())
    for name in Evidence._fields:
        assert getattr(unpacked, name).tolist() == getattr(evidence, name).tolist()


def test_evidence_does_not_depend_on_the_batch() -> None:
    texts = [text for text in real_texts() if len(text) > 300][:30]
    index = build_index(items_of([text[50:250] for text in texts]))
    whole = gather(pa.array(texts), np.ones(len(texts), np.bool_), index, 50)
    for row, text in enumerate(texts):
        single = gather(pa.array([text]), np.ones(1, np.bool_), index, 50)
        own = whole.rows == row
        assert whole.entries[own].tolist() == single.entries.tolist()
        assert whole.starts[own].tolist() == single.starts.tolist()
        assert whole.ngrams[whole.ngram_rows == row].tolist() == single.ngrams.tolist()


def test_index_is_the_same_in_any_order_of_items_and_after_a_round_trip(tmp_path: Path) -> None:
    items = items_of([f"{text} w{number} is it" for number, text in enumerate(["one two three four five"] * 30)], "yes")
    items += [BenchmarkItem("another", "x", ("seven eight nine ten eleven twelve",), "a long answer")]
    shuffled = random.Random(1).sample(items, len(items))
    write_index(build_index(items), tmp_path / "first")
    write_index(build_index(shuffled), tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    opened = open_index(tmp_path / "first")
    assert opened.benchmarks == ("another", "test")
    assert opened.item_name(0) == "another/x"
    assert len(opened) == len(items)


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    index = build_index(items_of(["", "?", "too short"]))
    write_index(index, tmp_path / "index")
    evidence = gather(pa.array(["too short " * 30]), np.ones(1, np.bool_), open_index(tmp_path / "index"), 50)
    assert len(evidence.rows) == len(evidence.ngrams) == 0
