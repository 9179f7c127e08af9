"""Corpora that differ in one thing: size, sources, share of copies, length of the documents.

Documents are cut from the text of the sample corpus. From the second round through it on each begins with a number and
cuts fall elsewhere, so that documents are no copies but for those that are asked for; some are still similar.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers import sample_documents

FILE_BYTES = 16 << 20
GROUP_ROWS = 4096
REMEMBERED = 10_000
"""A copy is one of a document among so many before it."""


@dataclass(frozen=True)
class Variant:
    """What a corpus is like.

    Attributes:
        megabytes: text in 10^6 UTF-8 bytes, copies included.
        characters: of a document, on average.
        sources: number of sources.
        copies: share of the documents that are a copy of an earlier one.
        changed: copies have another last word; otherwise they are equal.
    """

    megabytes: float
    characters: int = 3000
    sources: int = 7
    copies: float = 0.0
    changed: bool = True

    @property
    def name(self) -> str:
        """The name of its folder."""
        kind = "near" if self.changed else "exact"
        return f"{self.megabytes:g}-{self.characters}-{self.sources}-{self.copies:g}-{kind}"


def written(folder: Path, variant: Variant) -> tuple[Path, int]:
    """Write Parquet files with the columns id, text and source below a folder, unless they are there.

    Returns:
        (files, size): their folder, and the exact number of UTF-8 bytes of text.
    """
    target = folder / "variants" / variant.name
    done = target / "bytes.txt"
    if done.exists():
        return target, int(done.read_text())
    target.mkdir(parents=True, exist_ok=True)
    documents = _documents(_stream(sample_documents(folder)), variant)
    total = number = file = 0
    while total < variant.megabytes * 1e6:
        texts: list[str] = []
        size = 0
        while size < FILE_BYTES and total + size < variant.megabytes * 1e6:
            texts.append(next(documents))
            size += len(texts[-1].encode())
        numbers = range(number, number + len(texts))
        table = pa.table(
            {
                "id": [str(one) for one in numbers],
                "text": texts,
                "source": [f"source-{one % variant.sources}" for one in numbers],
            }
        )
        pq.write_table(table, target / f"part-{file:05d}.parquet", row_group_size=GROUP_ROWS, compression="zstd")
        total, number, file = total + size, number + len(texts), file + 1
    done.write_text(str(total))
    return target, total


def _stream(sample: Path) -> str:
    """Return all text of the sample corpus."""
    return "\n\n".join(
        text
        for path in sorted(sample.glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    )


def _documents(stream: str, variant: Variant) -> Iterator[str]:
    """Yield documents without end, copies of earlier ones among them."""
    choose = random.Random(0)
    earlier: list[str] = []
    for document in _cut(stream, variant.characters, choose):
        while earlier and choose.random() < variant.copies:
            copy = earlier[choose.randrange(len(earlier))]
            yield f"{copy} copy{choose.randrange(10**6)}" if variant.changed else copy
        if len(earlier) < REMEMBERED:
            earlier.append(document)
        else:
            earlier[choose.randrange(REMEMBERED)] = document
        yield document


def _cut(stream: str, characters: int, choose: random.Random) -> Iterator[str]:
    """Yield parts of a text from a third to five thirds of so many characters, round after round."""
    turn = 0
    while True:
        start = 0
        while start < len(stream):
            end = start + choose.randrange(max(1, characters // 3), max(2, characters * 5 // 3))
            text = stream[start:end]
            yield text if turn == 0 else f"Round {turn}, page {start}.\n{text}"
            start = end
        turn += 1
