"""Documents of 1 to 5 kB for measurements, cut from the text of the sample corpus."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.sample import build_sample

FILE_BYTES = 64 << 20
GROUP_ROWS = 4096


def _documents(sample: Path, seed: int) -> Iterator[str]:
    """Yield documents without end; after the first round each begins with a number, so that none is a duplicate."""
    choose = random.Random(seed)
    texts = [
        text
        for path in sorted((sample / "documents").glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    ]
    stream = "\n\n".join(texts)
    turn = 0
    while True:
        start = 0
        while start < len(stream):
            end = start + choose.randrange(1000, 5000)
            text = stream[start:end]
            yield text if turn == 0 else f"Round {turn}, page {start}.\n{text}"
            start = end
        turn += 1


def write_documents(folder: Path, megabytes: int, seed: int = 0) -> int:
    """Write Parquet files with so much text (in 10^6 UTF-8 bytes) below a folder; returns the exact number of bytes.

    The folder also keeps the sample corpus that the text comes from. The same environment gives the same files.
    """
    sample = folder / "sample"
    if not sample.is_dir():
        build_sample(sample)
    target = folder / f"documents-{megabytes}"
    done = target / "bytes.txt"
    if done.exists():
        return int(done.read_text())
    target.mkdir(parents=True, exist_ok=True)
    documents = _documents(sample, seed)
    total = number = 0
    while total < megabytes * 1_000_000:
        rows: list[dict[str, str]] = []
        size = 0
        while size < FILE_BYTES and total + size < megabytes * 1_000_000:
            text = next(documents)
            rows.append({"id": f"{number}-{len(rows)}", "text": text, "source": f"source-{len(rows) % 7}"})
            size += len(text.encode())
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, target / f"part-{number:05d}.parquet", row_group_size=GROUP_ROWS, compression="zstd")
        total += size
        number += 1
    done.write_text(str(total))
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("megabytes", type=int)
    arguments = parser.parse_args()
    print(write_documents(arguments.folder, arguments.megabytes), "bytes of text")
