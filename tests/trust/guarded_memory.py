"""Run stages over texts whose memory ends, or begins, at a page that may not be touched.

Helpers of kernels take bare pointers, which Numba's bounds checking does not see. Here a read before the first or after
the last byte of the texts, or of their offsets, ends the process: ``python -m tests.trust.guarded_memory SEED ROUNDS``.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corpus.characters_kernel import count_characters
from corpus.stages import RecordStage, TextBatch
from corpus.text import text_buffers
from dedup.shingles import shingle_sets
from dedup.signatures import permutation_constants, signatures
from pipelines.config import config_from_mapping

PAGE = mmap.PAGESIZE
PIECES = [
    *("", " ", "\n", "\n\n", "\r\n", "\t", ".", "...", "…", "#", "- ", "• ", "{", "javascript", "lorem ipsum", "the "),
    *(
        "é",
        "é",
        "ß",
        "ſ",
        "水",
        "日本語",
        "ไทย",
        "한국어",
        "🎉",
        "👩‍👩‍👧",
        "\u202e",
        "\u200b",
        "\x00",
        "\ufeff",
        "\U0010ffff",
    ),
    *("a@b.co", "1.2.3.4", "::1", "DE89370400440532013000", "4111 1111 1111 1111", "+49 30 123456", "https://a.b/c"),
    *("word " * 40, "same line again.\n" * 6, "x" * 3000, "1234567890" * 30, "İstanbul ", "Σίσυφος "),
]


def guarded(data: bytes, at_end: bool) -> tuple[pa.Buffer, mmap.mmap]:
    """Return a buffer of these bytes between two pages that may not be touched, and the mapping that it lies in."""
    pages = max(1, -(-len(data) // PAGE))
    mapping = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    inside = start + PAGE + (pages * PAGE - len(data) if at_end else 0)
    ctypes.memmove(inside, data, len(data))
    library = ctypes.CDLL(None, use_errno=True)
    for page in (start, start + (pages + 1) * PAGE):
        if library.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return pa.foreign_buffer(inside, len(data), mapping), mapping


def guarded_texts(texts: list[str], at_end: bool) -> pa.StringArray:
    """Return texts whose bytes and offsets both are guarded."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [guarded(part, at_end)[0] for part in (offsets.tobytes(), b"".join(encoded))]
    return pa.StringArray.from_buffers(len(texts), *buffers)


def hostile_texts(choose: random.Random) -> list[str]:
    """Return some texts made of pieces that mean something to a rule."""
    return [
        "".join(choose.choices(PIECES, k=choose.choice([0, 1, 2, 5, 20]))) for _ in range(choose.choice([1, 2, 9, 60]))
    ]


def stages(folder: Path) -> Iterator[RecordStage]:
    """Return every stage with kernels that judges texts alone, prepared."""
    (folder / "words.txt").write_text("lorem ipsum\nx\n水\n", encoding="utf-8")
    (folder / "items.jsonl").write_text(
        '{"q": "word word word same line again the same line again word 日本語 ไทย x"}\n{"q": "the é ß"}\n',
        encoding="utf-8",
    )
    (folder / "suite.yaml").write_text("benchmarks: [{name: b, files: items.jsonl, question: q}]", encoding="utf-8")
    listed: list[Any] = [
        *("language", "gopher_quality", "gopher_repetition", "c4_quality", "fineweb_quality", "length", "pii"),
        {"badwords": {"words": {"en": str(folder / "words.txt")}}},
        {"contamination": {"suites": [str(folder / "suite.yaml")], "boilerplate": "off"}},
    ]
    config = config_from_mapping({"input": {"files": ["x"]}, "stages": listed})
    for stage in config.build():
        assert isinstance(stage, RecordStage)
        stage.prepare()
        yield stage


def main(seed: int, rounds: int) -> None:
    """Judge hostile texts in guarded memory with all stages, and make their signatures."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = list(stages(Path(folder)))
        constants = permutation_constants(112, 1)
        for number in range(rounds):
            choose = random.Random(f"{seed}-{number}")
            texts = hostile_texts(choose)
            for at_end in (True, False):
                for stage in prepared:
                    array = guarded_texts(texts, at_end)
                    sys.stderr.write(f"{stage.name} {seed}-{number} {'end' if at_end else 'start'}\n")
                    stage.judge(TextBatch(array, np.ones(len(texts), np.bool_)))
                array = guarded_texts(texts, at_end)
                sys.stderr.write(f"signatures and counts {seed}-{number} {'end' if at_end else 'start'}\n")
                signatures(array, np.ones(len(texts), np.bool_), 5, constants)
                shingle_sets(array, np.ones(len(texts), np.bool_), 2)
                offsets, data = text_buffers(array)
                count_characters(offsets.astype(np.int64), data)
    sys.stdout.write(f"{rounds} rounds, {len(prepared)} stages\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
