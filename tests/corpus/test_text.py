import itertools
import re
import sysconfig
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpus.characters_kernel import count_characters
from corpus.stages import TextBatch
from corpus.text import lines, text_buffers, words
from corpus.text_statistics import text_statistics
from corpus.unicode_tables import (
    CODE_POINTS,
    FORMAT,
    LETTER,
    LINE_BREAK,
    MARK,
    PUNCTUATION,
    SEPARATOR,
    UNSPACED,
    WHITE_SPACE,
    category_bits,
    changed_code_points,
    code_point_classes,
    code_points,
)

DATA = Path(__file__).parents[2].parent / "shared" / "data"

# The same scripts as in the tool that lists the true near-duplicates.
UNSPACED_PATTERN = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    r"\u3005-\u3007\u3021-\u3029\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

HOSTILE = [
    "",
    "a",
    "世",
    " ",
    "\n",
    "\u200b",
    " " * 5000,
    "\n" * 5000,
    "\u200b" * 100,
    "x" * 1_000_000,
    "世" * 10_000,
    "\u0301",
    "\u0301\u0301abc",
    "กี่ก็ ี่",
    "e\u0301e\u0301 か\u3099か\u3099 葛\U000e0100城 x\u0e35",
    "👩‍👩‍👧‍👦 🇰🇷🏳️‍🌈 ❤️世❤️",
    "a\r\nb\rc\nd\x0be\x0cf\x1cg\x1dh\x1ei\x85j\u2028k\u2029l\n\r",
    "\r",
    "\r\r\n\n",
    "\0\0 \0 a\0b",
    "한국어는 띄어 쓴다。가\u1100\u1161",
    "\ufeffbom \u00adsoft a\u200db\u2060c",
    "a\u200bb\u200b \u200bc",
    "\u3000全角 空白\u00a0x\u202fy",
    "1,234.5 -- ... … •・。、฿",
    "\U0010ffff\ue000\u0378",
]

TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("ab \n\r\u200b\u2028\x85\t.#世か\u3099กี\u0e48ក្가\u0301é,…•-"),
    ),
    max_size=60,
)


def spans_to_texts(firsts: np.ndarray, starts: np.ndarray, ends: np.ndarray, data: np.ndarray) -> list[list[str]]:
    assert len(starts) == len(ends) == firsts[-1]
    return [
        [data[starts[k] : ends[k]].tobytes().decode() for k in range(first, last)]
        for first, last in itertools.pairwise(firsts)
    ]


def found_in(texts: Sequence[str], rows: Sequence[bool] | None = None) -> list[tuple[int, list[str], list[str]]]:
    """The characters, words and lines of each text, as the kernel finds them."""
    alive = np.ones(len(texts), np.bool_) if rows is None else np.array(rows)
    found = text_statistics(TextBatch(pa.array(texts, pa.string()), alive))
    found_words = spans_to_texts(found.word_firsts, found.word_starts, found.word_ends, found.data)
    found_lines = spans_to_texts(found.line_firsts, found.line_starts, found.line_ends, found.data)
    return list(zip(found.characters.tolist(), found_words, found_lines, strict=True))


def assert_kernels_equal_references(texts: Sequence[str]) -> None:
    assert found_in(texts) == [(len(text), words(text), lines(text)) for text in texts]


def test_classes_are_those_of_the_pinned_package() -> None:
    classes = code_point_classes()
    assert len(classes) == CODE_POINTS
    categories = [unicodedata2.category(chr(code)) for code in range(CODE_POINTS)]
    major = np.array([category[0] for category in categories])
    white_space = [
        category == "Zs" or unicodedata2.bidirectional(chr(code)) in ("WS", "B", "S")
        for code, category in enumerate(categories)
    ]
    assert np.array_equal(classes & LETTER != 0, major == "L")
    assert np.array_equal(classes & MARK != 0, major == "M")
    assert np.array_equal(classes & PUNCTUATION != 0, (major == "P") | (major == "S"))
    assert np.array_equal(classes & FORMAT != 0, np.array(categories) == "Cf")
    assert np.array_equal(classes & WHITE_SPACE != 0, white_space)
    assert np.flatnonzero((classes & SEPARATOR != 0) & (classes & WHITE_SPACE == 0)).tolist() == [0x200B]


def test_bits_of_categories_are_those_of_each_code_point() -> None:
    names = sorted({unicodedata2.category(chr(code)) for code in range(CODE_POINTS)})
    bits = {name: place + 1 for place, name in enumerate(names)}
    expected = [bits[unicodedata2.category(chr(code))] for code in range(CODE_POINTS)]
    assert np.array_equal(category_bits(bits), expected)
    del bits["Lu"]
    assert category_bits(bits)[ord("A")] == 0


@pytest.mark.parametrize("change", [str.casefold, *(partial(unicodedata2.normalize, form) for form in ("NFD", "NFKC"))])
def test_changed_code_points_are_those_that_change_one_by_one(change: Callable[[str], str]) -> None:
    changed = changed_code_points(change)
    assert list(changed) == sorted(changed)
    assert changed == {code: result for code in range(CODE_POINTS) if (result := change(chr(code))) != chr(code)}


def test_classes_agree_with_the_methods_of_str() -> None:
    classes = code_point_classes()
    characters = [chr(code) for code in range(CODE_POINTS)]
    assert np.array_equal(classes & WHITE_SPACE != 0, [character.isspace() for character in characters])
    assert np.array_equal(classes & LINE_BREAK != 0, [len(f"a{c}b".splitlines()) == 2 for c in characters])
    unspaced = np.array([UNSPACED_PATTERN.match(character) is not None for character in characters])
    assert np.array_equal(classes & UNSPACED != 0, unspaced & (classes & MARK == 0))


def test_classes_cannot_be_changed_by_accident() -> None:
    with pytest.raises(ValueError, match="read-only"):
        code_point_classes()[0] = 1


def test_code_points_reads_ranges() -> None:
    assert code_points("A-D 85 2028-2029").tolist() == [10, 11, 12, 13, 0x85, 0x2028, 0x2029]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world - again!", ["Hello,", "world", "-", "again!"]),
        ("今天，我们go去", ["今", "天", "，", "我", "们", "go", "去"]),
        ("カ゚ード", ["カ゚", "ー", "ド"]),
        ("ตลาด เด็กๆ", ["ต", "ล", "า", "ด", "เ", "ด็", "ก", "ๆ"]),
        ("한국어는 띄어 쓴다.", ["한국어는", "띄어", "쓴다."]),
        ("a\u200bb \u200b c", ["a", "b", "c"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("\u0e48abc", ["\u0e48abc"]),
        ("", []),
        (" \n\u200b", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(TEXTS)
@example("a\r\nb\n\rc\x85\u2028")
def test_words_and_lines_keep_to_their_laws(text: str) -> None:
    assert lines(text) == text.splitlines()
    assert "".join(words(text)) == "".join("".join(text.split()).split("\u200b"))
    if not UNSPACED_PATTERN.search(text):
        assert words(text) == text.replace("\u200b", " ").split()


@given(st.lists(TEXTS, max_size=6))
@example(HOSTILE)
@settings(deadline=None)
def test_kernels_equal_references_on_random_unicode(texts: list[str]) -> None:
    assert_kernels_equal_references(texts)


def test_kernels_equal_references_on_hostile_texts_one_by_one() -> None:
    for text in HOSTILE:
        assert_kernels_equal_references([text])


def test_kernels_equal_references_on_every_code_point() -> None:
    characters = [chr(code) for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000]
    blocks = ["".join(characters[start : start + 256]) for start in range(0, len(characters), 256)]
    around = [f"a{block[::16]}b{block[::-7]}" for block in blocks]
    assert_kernels_equal_references(blocks + around)


def test_kernels_equal_references_on_the_standard_library() -> None:
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    assert len(texts) > 100
    assert_kernels_equal_references(texts)


def test_kernels_equal_references_on_real_data() -> None:
    if not DATA.is_dir():
        pytest.skip("the shared data are not beside the repository")
    files = sorted(path for path in DATA.rglob("*") if path.suffix in (".tsv", ".csv", ".jsonl", ".md"))
    texts = [path.read_bytes()[:60_000].decode("utf-8", "replace") for path in files]
    assert any("가" in text for text in texts)
    assert_kernels_equal_references(texts)


@given(st.lists(TEXTS, max_size=6), st.lists(st.integers(0, 150), min_size=7, max_size=7))
@example(HOSTILE, [0, 1, 63, 64, 65, 128, 129])
@settings(deadline=None)
def test_characters_are_counted(texts: list[str], fillings: list[int]) -> None:
    # Whole blocks before and after what takes several bytes, also across the border of two.
    texts = [*texts, *("a" * count + "é水🎉" * (count % 7) for count in fillings)]
    array = pa.array(texts, pa.string())
    for part in (array, array.slice(1), array.slice(2, 3)):
        offsets, data = text_buffers(part)
        assert count_characters(offsets.astype(np.int64), data).tolist() == [len(text) for text in part.to_pylist()]


def test_rows_that_are_masked_are_left_out() -> None:
    found = found_in(["one two\nthree", "four five", "six"], [False, True, False])
    assert found == [(0, [], []), (9, ["four", "five"], ["four five"]), (0, [], [])]


def texts_of(array: pa.StringArray) -> list[str]:
    offsets, data = text_buffers(array)
    assert (offsets.dtype, data.dtype) == (np.int32, np.uint8)
    return [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]


def test_text_buffers_of_slices_nulls_and_nothing() -> None:
    array = pa.array(["ab", None, "", "世界", "c"])
    assert texts_of(array) == ["ab", "", "", "世界", "c"]
    assert texts_of(array.slice(1, 3)) == ["", "", "世界"]
    assert texts_of(array.slice(5)) == []
    assert texts_of(pa.array([], pa.string())) == []
    assert texts_of(pa.nulls(3, pa.string())) == ["", "", ""]
    assert texts_of(pa.array(["", ""])) == ["", ""]


def test_text_buffers_of_a_slice_copies_nothing() -> None:
    array = pa.array(["ab", "cd", "ef"])
    offsets, data = text_buffers(array.slice(1))
    assert offsets.tolist() == [2, 4, 6]
    assert data.ctypes.data == array.buffers()[2].address


def test_text_buffers_hides_bytes_under_a_null() -> None:
    buffers = pa.array(["ab", "secret", "c"]).buffers()
    array = pa.StringArray.from_buffers(3, buffers[1], buffers[2], pa.py_buffer(b"\x05"))
    assert array.to_pylist() == ["ab", None, "c"]
    assert texts_of(array) == ["ab", "", "c"]
    assert texts_of(array.slice(1)) == ["", "c"]


def test_text_buffers_wants_strings() -> None:
    with pytest.raises(TypeError, match="type string, not large_string"):
        text_buffers(pa.array(["a"], pa.large_string()))
