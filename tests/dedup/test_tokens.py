"""Tokens: kernel, plain Python and the tool that lists the true near-duplicates agree, in all scripts."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.case_folding import LATER_THAN_UNICODE_13
from corpus.full_folding_table import expansions, full_fold
from corpus.normalisation import (
    COMPOSES_WITH_LAST,
    COMPOSES_WITH_NEXT,
    composition_classes,
    may_change,
    to_nfc,
)
from corpus.normalisation_kernel import may_change as may_change_kernel
from corpus.text import text_buffers
from corpus.unicode_tables import CODE_POINTS, code_points
from dedup.tokens import (
    ASCII_SEPARATORS,
    EXPANDS,
    FOLDED,
    SEPARATOR,
    UNSPACED,
    most_tokens,
    token_hash,
    token_hashes,
    token_table,
    tokens,
)
from tests.filters.texts import CHARACTERS, HOSTILE, real_texts

LATER = {chr(code_point) for code_point in code_points(LATER_THAN_UNICODE_13).tolist()}

# Pieces that compose, decompose, reorder, fold to several, stand alone, separate, or only look as if they did.
PIECES = [
    *[
        "e\u0301",
        "\u0301",
        "\u0323\u0301",
        "\u0301\u0323",
        "a\u0315\u0300\u05ae",
        "\u0344",
        "\u212b",
        "\u0958",
        "\u0345",
    ],
    *[
        "\u1100\u1161\u11a8",
        "\u1161",
        "\u11a8",
        "가\u11a8",
        "각",
        "\u09c7\u09be",
        "\u09be",
        "ক",
        "\u0bc6\u0bbe",
        "\u1025\u102e",
    ],
    *["ß", "ﬁ", "İ", "ŉ", "ΐ", "ẞ", "ς", "Σ", "Ǆ", "ᾈ", "\U00010400", "K", "ſ", "ı"],
    *["か\u3099", "\u3099", "が", "ｶﾞ", "世", "々", "〇", "\U00020000", "\uf900", "\U0002f800", "・", "。"],
    *["กี่", "฿", "ๆ", "ກໍາ", "ក្", "៛", "မြန်", "ꩰ", "꧁", "नि", "ع\u064e", "שׁ", "\ufb2a"],
    *[" ", "\n", "\x1c", "\x85", "\u00a0", "\u200b", "\u200d", "\u3000", "\ufeff", "\u00ad", "\u2028", "\0"],
    *["a", "B", "z", "1", "_", "-", ".", "😀", "€", "'", "\u0378", "\ue000", "\U0010ffff"],
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from(PIECES) | st.text(CHARACTERS, max_size=3), max_size=40).map("".join),
)


def assert_kernel_equals_reference(texts: Sequence[str]) -> None:
    offsets, hashes = token_hashes(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
    assert hashes.dtype == np.uint64
    for text, (first, last) in zip(texts, itertools.pairwise(offsets.tolist()), strict=True):
        assert hashes[first:last].tolist() == [token_hash(token) for token in tokens(text)]


@pytest.fixture(scope="module")
def words() -> Callable[[str], list[str]]:
    """The definition of tokens in the tool that lists the true near-duplicates."""
    path = Path(__file__).parents[2].parent / "shared" / "tools" / "corpus" / "near_duplicate_truth.py"
    if not path.is_file():
        pytest.skip(f"no reference: {path} does not exist")
    spec = importlib.util.spec_from_file_location("near_duplicate_truth", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    found: Callable[[str], list[str]] = module.words
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World - it's 3.14!", ["hello", "world", "it", "s", "3", "14"]),
        ("한국어는 띄어쓰기를 한다.", ["한국어는", "띄어쓰기를", "한다"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", ["한국"]),
        ("今天，我们go去。", ["今", "天", "我", "们", "go", "去"]),
        ("これはペンです・か\u3099", ["こ", "れ", "は", "ペ", "ン", "で", "す", "が"]),
        ("ก็ดี ๑฿", ["ก", "็", "ด", "ี", "๑"]),
        ("ມື້", ["ມ", "ື", "້"]),
        ("မြန်", ["မ", "ြ", "န", "်"]),
        ("ខ្មែរ", ["ខ", "្", "ម", "ែ", "រ"]),
        ("بَيْت، كبير؟", ["بَيْت", "كبير"]),
        ("गाँव का कुआँ।", ["गाँव", "का", "कुआँ"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("ΣΟΦΟΣ σοφος σοφός", ["σοφοσ", "σοφοσ", "σοφόσ"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("for i in range(10): x_1 += y[i]  # sum", "for i in range 10 x 1 y i sum".split()),
        ("a\u200bb c\u200dd", ["a\u200bb", "c\u200dd"]),
        ("a\u00a0b\u3000c\u2028d\x1ce", ["a", "b", "c", "d", "e"]),
        ("!!! 😀 …", []),
        ("", []),
        (" \n\t", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected
    assert_kernel_equals_reference([text])


@given(st.lists(TEXTS, max_size=5))
def test_kernel_equals_reference_on_random_unicode(texts: list[str]) -> None:
    assert_kernel_equals_reference(texts)


def test_kernel_equals_reference_on_hostile_texts() -> None:
    long = [
        "x" * 300_000,
        "a世" * 20_000,
        "a" + "\u0301\u0323" * 50_000,
        "ΐ" * 10_000,
        "\u0301" * 10_000,
        "가\u11a8" * 9_000,
    ]
    assert_kernel_equals_reference([*PIECES, *long, *HOSTILE])


def test_kernel_equals_reference_on_every_code_point() -> None:
    characters = [chr(code) for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000]
    blocks = ["".join(characters[start : start + 4096]) for start in range(0, len(characters), 4096)]
    apart = [
        "".join(f"x{character}y" for character in block[:: 7 if ord(block[0]) < 0x30000 else 97]) for block in blocks
    ]
    assert_kernel_equals_reference(blocks + apart)


def test_kernel_equals_reference_on_real_texts() -> None:
    assert_kernel_equals_reference(real_texts()[::5])


@given(TEXTS)
@example("\u0130 \u0149 \u1e9a \u0587")
def test_tokens_are_those_of_the_tool_of_true_pairs(words: Callable[[str], list[str]], text: str) -> None:
    # The tool asks the interpreter, which may know fewer characters than the pinned tables.
    known = "".join(c for c in text if c not in LATER and unicodedata.category(c) == unicodedata2.category(c))
    assert tokens(known) == words(known)


@given(TEXTS)
def test_canonically_equivalent_texts_have_the_same_tokens(text: str) -> None:
    decomposed = unicodedata2.normalize("NFD", text)
    assert tokens(text) == tokens(decomposed)
    first, second = (token_hashes(pa.array([form]), np.ones(1, np.bool_))[1].tolist() for form in (text, decomposed))
    assert first == second


@given(TEXTS)
def test_no_text_has_more_tokens_than_its_scratch_holds(text: str) -> None:
    normalised = unicodedata2.normalize("NFC", text)
    assert len(tokens(text)) <= most_tokens(len(normalised.encode()))


def test_the_bound_of_tokens_is_reached() -> None:
    for text in ("a", "a b", "a世a", "世", "a b a世a世a"):
        assert len(tokens(text)) == most_tokens(len(text.encode())) - (text == "世")


def test_hashes_are_the_same_everywhere_and_for_ever() -> None:
    assert token_hash("") == 0x164381959B920BEE
    hashes = [token_hash(token) for token in ("cat", "猫", "고양이")]
    assert hashes == [0xE2A41F69ED560955, 0x940FF3699BFDE555, 0x94DEB2E3B3B1A8E2]


def test_lengths_and_ends_of_words_count() -> None:
    distinct = [
        "a",
        "a\0",
        "\0",
        "\0a",
        "\0\0",
        *("a" * size for size in range(2, 40)),
        *("b" * 8 * k for k in range(1, 5)),
    ]
    assert len({token_hash(token) for token in distinct}) == len(distinct)
    assert_kernel_equals_reference([" ".join(distinct), *distinct])


def test_separators_of_ascii_are_those_of_the_table() -> None:
    entries, _ = token_table()
    listed = {code for first, last in ASCII_SEPARATORS for code in range(first, last + 1)}
    assert listed == set(np.flatnonzero(entries[:0x80] & SEPARATOR).tolist())
    others = [code for code in range(0x80) if code not in listed]
    assert [int(entries[code]) for code in others] == [ord(chr(code).lower()) for code in others]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 300])
def test_blocks_end_anywhere(size: int) -> None:
    """Texts of ASCII around a letter beyond it, with and without bytes behind them that can be read."""
    plain = ("The quick_brown FOX; jumps\tover\0 13 lazydogsandmorethaneight " * 6)[:size]
    texts = [plain, plain + "é", "É" + plain, plain[: size // 2] + "語" + plain[size // 2 :], plain + "ŉ" * 3]
    assert_kernel_equals_reference(texts)
    assert_kernel_equals_reference([*texts[::-1], "x" * 200])


def test_no_text_is_more_than_three_times_as_long_when_folded() -> None:
    entries, expanded = token_table()
    for code in [*range(0xD800), *range(0xE000, CODE_POINTS)]:
        entry = int(entries[code])
        if entry < EXPANDS:
            folded = len(chr(entry).encode())
        elif entry & EXPANDS:
            folded = sum(len(chr(part).encode()) for part in expanded[entry & FOLDED].tolist() if part >= 0)
        else:
            folded = 1 + (len(chr(entry & FOLDED).encode()) + 1 if entry & UNSPACED else 0)
        assert folded <= 3 * len(chr(code).encode()), hex(code)


def test_short_tokens_do_not_collide() -> None:
    letters = [
        chr(code) for code in [*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x3B1, 0x3C2), *range(0x430, 0x450)]
    ]
    words_of_one_to_three = [
        "".join(word) for size in (1, 2, 3) for word in itertools.product(letters, repeat=size) if "ς" not in word
    ]
    _, hashes = token_hashes(pa.array([" ".join(words_of_one_to_three)]), np.ones(1, np.bool_))
    assert len(np.unique(hashes)) == len(words_of_one_to_three) == len(hashes) > 500_000
    assert len(np.unique(hashes.astype(np.uint32))) > len(hashes) * (1 - 2e-4)  # 7e-5 share a half by chance


def test_masked_rows_slices_and_nulls() -> None:
    texts = pa.array(["left out", "e\u0301 b", None, "c", "e\u0301"]).slice(1)
    offsets, hashes = token_hashes(texts, np.array([True, True, True, False]))
    assert offsets.tolist() == [0, 2, 2, 3, 3]
    assert hashes.tolist() == [token_hash(token) for token in ("é", "b", "c")]
    nothing = token_hashes(pa.array([], pa.string()), np.zeros(0, np.bool_))
    assert [part.tolist() for part in nothing] == [[0], []]
    with pytest.raises(TypeError, match="type string, not large_string"):
        token_hashes(pa.array(["a"], pa.large_string()), np.ones(1, np.bool_))


def test_the_table_cannot_be_changed_by_accident() -> None:
    for part in token_table():
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1


# --- What tokens are made of: normalisation and folding


@given(TEXTS)
@example("\u09c7\u09be ক\u09be")
def test_what_may_change_is_found(text: str) -> None:
    array = pa.array([text])
    found = may_change_kernel(*text_buffers(array), np.ones(1, np.bool_), composition_classes())[0]
    assert found == may_change(text)
    normalised = unicodedata2.normalize("NFC", text)
    assert found or normalised == text
    assert to_nfc(array, np.ones(1, np.bool_)).to_pylist() == [normalised]


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 65, 127, 128, 129, 200])
def test_what_may_change_is_found_behind_plain_text(length: int) -> None:
    plain = "a" * length
    texts = [plain, plain + "\u0301", plain + "é", plain + "\u0301" + plain, plain + "é" + plain + "\u0301", ""]
    array = pa.array([text + ending for text in texts for ending in ("", "z" * 70)])
    found = may_change_kernel(*text_buffers(array), np.ones(len(array), np.bool_), composition_classes())
    assert found.tolist() == [may_change(text) for text in array.to_pylist()]
    assert 0 < found.sum() < len(found)


def test_every_pair_that_composes_is_normalised() -> None:
    classes = composition_classes()
    firsts = [chr(code) for code in np.flatnonzero(classes & COMPOSES_WITH_NEXT).tolist()]
    lasts = [chr(code) for code in np.flatnonzero(classes & COMPOSES_WITH_LAST).tolist()]
    marks = [chr(code) for code in np.flatnonzero(classes).tolist()]
    others = [chr(code) for code in range(0xA0, 0x1F000, 53) if not 0xD800 <= code < 0xE000]
    pairs = [first + last for first in firsts[::2] + others for last in lasts]
    pairs += [before + mark for before in ("a", "\u0627", "\u09c7", "\u0323", "x\u0315", "ẏ") for mark in marks]
    # Composites with few successors of their own, and the rarest of compositions: two letters of equal rank.
    pairs += ["".join(run) for run in itertools.product("\U00016d63\U00016d67\U00016d68\U00016d69\U00016d6a", repeat=3)]
    assert len(pairs) > 100_000
    expected = [unicodedata2.normalize("NFC", pair) for pair in pairs]
    assert to_nfc(pa.array(pairs), np.ones(len(pairs), np.bool_)).to_pylist() == expected


def test_common_text_of_scripts_with_marks_is_not_normalised_again() -> None:
    for text in ("বাংলা ভাষা কথা", "தமிழ் நாடு", "മലയാളം ഭാഷ", "မြန်မာစာ", "ภาษาไทย", "한국어", "עִבְרִית", "naïve café"):
        assert unicodedata2.normalize("NFC", text) == text
        assert not may_change(text), text
    array = pa.array(["plain", "naïve"])
    assert to_nfc(array, np.ones(2, np.bool_)) is array


def test_rows_that_are_masked_are_not_normalised() -> None:
    array = pa.array(["e\u0301", "e\u0301", None])
    assert to_nfc(array, np.array([True, False, True])).to_pylist() == ["é", "e\u0301", None]


def test_full_folding_is_that_of_python_for_letters_that_all_interpreters_know() -> None:
    for code_point in range(CODE_POINTS):
        character = chr(code_point)
        assert full_fold(character) == (character if character in LATER else character.casefold())
    assert len(expansions()) == 104
    assert full_fold("Straße ﬃ İ ΐ") == "strasse ffi i\u0307 \u03b9\u0308\u0301"
