"""Feed mutated files to the readers of binary formats, in a process of its own: what crashes takes nobody along.

``python -m tests.trust.fuzzing TARGET SEED SECONDS`` mutates small files for so many seconds of this process and prints
how many it read and how they ended. It ends with an exception at the first answer that is neither records nor the one
kind of error that a user gets to see, and says with which seed that came.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus.errors import ThresherError
from corpus.inputs import InputConfig
from corpus.planning import plan_input
from corpus.readers import read_item

# Above what the process has with everything imported.
MEMORY_BYTES = 3 << 30
LONGEST_SECONDS = 20

Reader = Callable[[Path], str]


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Return bytes that differ from the given ones in one to four places, as faults of disks and enemies make them."""
    result = bytearray(data)
    for _ in range(choose.choice([1, 1, 2, 4])):
        # Headers and footers decide more than what lies between.
        near_end = max(0, len(result) - 600)
        place = choose.choice([choose.randrange(len(result)), choose.randrange(near_end, len(result)), 0]) % len(result)
        size = choose.choice([1, 4, 8])
        kind = choose.randrange(6)
        if kind == 0:
            result[place] ^= 1 << choose.randrange(8)
        elif kind == 1:
            number = choose.choice([0, 1, -1, 2**31 - 1, -(2**31), 2**62, choose.getrandbits(40)])
            result[place : place + size] = number.to_bytes(9, "little", signed=True)[:size]
        elif kind == 2:
            result[place : place + size] = choose.randbytes(size)
        elif kind == 3:
            del result[place : place + choose.choice([1, size, 100])]
        elif kind == 4:
            result[place:place] = result[place : place + choose.choice([1, size, 100])]
        else:
            del result[choose.randrange(len(result)) :]
        if not result:
            return b""
    return bytes(result)


def parquet_files() -> list[bytes]:
    """Return small Parquet files of several encodings, codecs and types."""
    choose = random.Random(0)
    rows = [
        {
            "text": choose.choice(["short", "twice", "über 水 " * 20, f"number {number}"]),
            "id": choose.choice([f"i{number}", None]),
            "tags": ["a", "b"][: number % 3],
            "deep": {"score": number / 3, "name": None if number % 2 else "x"},
            "day": number,
        }
        for number in range(40)
    ]
    table = pa.Table.from_pylist(rows)
    found = []
    for options in (
        {"compression": "snappy"},
        {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "none", "row_group_size": 7, "write_page_index": True},
        {"compression": "gzip", "use_dictionary": ["text"], "write_statistics": False},
        {"compression": "none", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        found.append(sink.getvalue().to_pybytes())
    return found


def read_parquet(path: Path) -> str:
    """Read a file as a run does: every batch, all columns."""
    config = InputConfig(files=[str(path)], id_column="id")
    plan = plan_input(config)
    faults = 0
    for item in plan.items:
        for batch in read_item(item, config, 16, 1 << 20):
            batch.records.validate(full=True)
            faults += batch.dead.num_rows
    return "dead letters" if faults else "records"


def fasttext_files() -> list[bytes]:
    """Return the language model, cut down to what a mutation reaches in short time, and its dense form."""
    from corpus.fasttext import default_model_path

    return [Path(default_model_path()).read_bytes(), *small_models()]


def small_models() -> Iterator[bytes]:
    """Return tiny models as fastText writes them: dense, with n-grams, one for each loss."""
    import struct

    for loss in (1, 2, 3, 4):
        words, labels, buckets, size = [b"the", b"water", b"</s>"], [b"__label__en", b"__label__de"], 50, 4
        body = struct.pack("<2i12id", 793712314, 12, size, 5, 5, 1, 5, 2, loss, 3, buckets, 2, 4, 100, 1e-4)
        body += struct.pack("<3i2q", len(words) + len(labels), len(words), len(labels), 1000, -1)
        for place, entry in enumerate([*words, *labels]):
            body += entry + b"\0" + struct.pack("<qb", 100 - place, place >= len(words))
        for rows in (len(words) + buckets, len(labels)):
            values = np.random.default_rng(loss).normal(size=(rows, size)).astype("<f4")
            body += struct.pack("<?2q", False, rows, size) + values.tobytes()
        yield body


TEXTS = pa.array(
    ["the water of the valley", "", "Straße über das Wasser " * 30, "水", "\x00</s> \n\n x" * 9], pa.string()
)


def read_fasttext(path: Path) -> str:
    """Read a model and label texts with it."""
    from corpus.fasttext import FastTextModel, _load

    _load.cache_clear()
    model = FastTextModel.load(str(path))
    labels, scores = model.predict(TEXTS, np.ones(len(TEXTS), np.bool_))
    assert set(labels.to_pylist()) <= {*model.labels, None}
    assert len(scores) == len(TEXTS)
    return "labels"


def compressed_files(suffix: str) -> list[bytes]:
    """Return JSON Lines packed in one and in several members or frames."""
    import gzip

    import zstandard

    lines = b"".join(b'{"text": "number %d of some lines"}\n' % number for number in range(300))
    pack = gzip.compress if suffix == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    return [pack(lines), pack(lines[:999]) + pack(lines[999:])]


TARGETS: dict[str, tuple[str, Callable[[], list[bytes]], Reader]] = {
    "parquet": ("x.parquet", parquet_files, read_parquet),
    "fasttext": ("x.ftz", fasttext_files, read_fasttext),
    "gz": ("x.jsonl.gz", lambda: compressed_files("gz"), read_parquet),
    "zst": ("x.jsonl.zst", lambda: compressed_files("zst"), read_parquet),
}


def main(target: str, seed: int, seconds: float) -> None:
    """Mutate and read until the time is over."""
    name, make, reader = TARGETS[target]
    files = make()
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / name
        for data in files:
            path.write_bytes(data)
            assert reader(path) in ("records", "labels")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
        end = time.process_time() + seconds
        number = 0
        while time.process_time() < end:
            choose = random.Random(f"{seed}-{number}")
            path.write_bytes(mutated(choose.choice(files), choose))
            started = time.process_time()
            sys.stderr.write(f"seed {seed}-{number}\n")
            try:
                ends[reader(path)] += 1
            except ThresherError as error:
                if name not in str(error) and "input.id_column" not in str(error):
                    raise AssertionError("the message names neither file nor field") from error
                ends["short of memory" if "memory" in str(error) else type(error).__name__] += 1
            assert time.process_time() - started < LONGEST_SECONDS, "it hangs"
            number += 1
    sys.stdout.write(f"{number} {dict(ends)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
