"""Texts on which kernels and rules are tested: generated, hostile and real."""

from __future__ import annotations

import sysconfig
import unicodedata
from pathlib import Path

import unicodedata2
from hypothesis import strategies as st

SHARED = Path(__file__).parents[2].parent / "shared"

# The interpreter may know fewer characters than the pinned Unicode tables; datatrove asks the interpreter.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"]).filter(
    lambda character: unicodedata.category(character) == unicodedata2.category(character)
)
# Few and short words, so that lines and runs of words repeat, also with other borders between words.
PIECES = st.one_of(
    st.sampled_from(
        ["a", "b", "ab", "ba", "the end.", "a b a b", "one line here!", "世界", "กี่", "か\u3099", "e\u0301"]
    ),
    st.sampled_from([" ", "  ", "\n", "\n\n", "\n \n", "\r\n", "\r\n\r\n", "\r", "\u2028", "\x1c", "\t", "\u200b"]),
    st.sampled_from(["...", "?", "\u203d", "。", "\0", "👩‍👩‍👧", "\ufeff", "1", "-", "word word word word word word"]),
    st.text(CHARACTERS, max_size=4),
)
TEXTS = (
    st.lists(PIECES, max_size=60).map("".join)
    | st.lists(PIECES, max_size=60).map(" ".join)
    | st.lists(st.sampled_from(["a", "b", "ab", "aba", "\n"]), max_size=120).map(" ".join)
    | st.lists(PIECES, max_size=8).map("".join).flatmap(lambda text: st.sampled_from([text * 2, f"{text}\n" * 5]))
)

HOSTILE = [
    *[
        "",
        "a",
        " ",
        "\n",
        "\0",
        "\0 \0",
        "\u200b",
        "\u200b\n\u200b",
        "\u0301",
        "\u0301\u0301 \u0301",
        "…",
        ".\r",
        "a\n\n",
    ],
    *[
        "\n" * 1000,
        " " * 1000,
        "\r\n" * 1000,
        "\n \n" * 500,
        "\u200b" * 1000,
        "\r\r\n\n\r",
        "\n\na\n\n",
        "\u2029\u2028",
    ],
    *[
        "a " * 3000,
        "ab a bab " * 500,
        "a\n" * 3000,
        "a\n\n" * 3000,
        "世" * 3000,
        "世界" * 1000,
        "กี่" * 1000,
        "👩‍👩‍👧‍👦 🇰🇷 " * 300,
    ],
    *[
        "x" * 1_000_000,
        ("y" * 100_000 + " ") * 12,
        "." * 100_001,
        "the end.\n" * 40,
        "a\0b a\0b " * 50,
        "\ufeffa \ufeffa",
    ],
    *[
        "a bc d e f ab c d e f",
        "a b c d e\tf\x0bg\x85h i j " * 7,
        "  lead\n  lead\nlead\nlead  \n\tlead",
        "A\n\n \n\nB\n\n \n",
    ],
]


# Behind the texts that are tested, so that kernels read whole blocks there; alone, they end with the memory.
PADDING = "the end of it all, " * 20


def real_texts() -> list[str]:
    """Return pieces of the standard library, and of the shared data where they are beside the repository."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_text(encoding="utf-8")[:6000] for path in sorted(folder.glob("*.py"))]
    texts += [paragraph for text in texts for paragraph in text.split('"""')[1::2]]
    if SHARED.is_dir():
        files = [path for path in (SHARED / "data").rglob("*") if path.suffix in (".tsv", ".csv", ".jsonl", ".md")]
        texts += [path.read_bytes()[:10_000].decode("utf-8", "replace") for path in sorted(files)]
    return [text for text in texts if text]
