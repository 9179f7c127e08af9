"""The exact join is what other figures rest on: it is compared with every pair, set by set."""

from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.exact_pairs import similar_pairs
from benchmarks.peers_near_duplicates import shingles, tokens
from tests.dedup import reference

WORDS = st.lists(st.sampled_from("a b c d e f".split()), max_size=14).map(" ".join)


def compared(texts: list[str], threshold: float) -> list[tuple[int, int, float]]:
    sets = [shingles(text) for text in texts]
    shares = [
        (a, b, len(sets[a] & sets[b]) / len(sets[a] | sets[b]))
        for a, b in combinations(range(len(texts)), 2)
        if sets[a] and sets[b]
    ]
    return [pair for pair in shares if pair[2] >= threshold]


@given(st.lists(WORDS, max_size=12), st.sampled_from([0.2, 0.5, 0.8, 1.0]))
@example(["", "...", "a", "A!", "b"], 0.8)
@example(["a b c d e f a b c", "a b c d e f a b d", "a b c d e f a b c a b c d e"], 0.5)
@settings(deadline=None)
def test_join_finds_the_pairs_that_a_comparison_of_all_finds(texts: list[str], threshold: float) -> None:
    assert similar_pairs(texts, threshold) == compared(texts, threshold)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n",
        "--- €",
        "The cat's Straße, №5 «sat»",
        "한국어는 띄어 쓴다.",
        "今日は。ＡＢＣ カタカナ",
        "กี่คำ ລາວ ខ្មែរ မြန်မာ",
        "e\u0301le\u0301phant İstanbul",
        "العربية: نَصّ",
    ],
)
def test_tokens_and_shingles_are_those_of_the_reference_by_character_names(text: str) -> None:
    assert tuple(tokens(text)) == reference.tokens(text)
    for repeated in (text, f"{text} " * 4):
        assert shingles(repeated) == {" ".join(run).encode() for run in reference.shingles(repeated, 5)}
