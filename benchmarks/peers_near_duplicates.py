"""A process that finds near-duplicates with another tool, in an environment of its own.

    python benchmarks/peers_near_duplicates.py PEER FILES FOLDER

PEER is ``datatrove``, ``datasketch``, ``rensa`` or ``text-dedup``; FILES is a folder of Parquet files with the columns
id and text; FOLDER is for what the tool writes. Nothing of Thresher is imported here. Each line of input has it go from
the files to the ids of the records that it keeps. The answer has ``seconds`` of the processor, those of its ``steps``,
``elapsed`` seconds, and ``removed``.

Settings are a tool's own but for the threshold of 0.8 and shingles of five tokens; datatrove has no threshold, its 14
bands of 8 stand for 0.72. datasketch and rensa only make signatures and look them up: tokens and shingles are made here
in Python, the first record of those that are found similar is kept.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

THRESHOLD = 0.8
SHINGLE_TOKENS = 5
PERMUTATIONS = 128
RENSA_BANDS = 16
RENSA_SEED = 42
BLOCK = 1000
LIBRARIES = ("datasketch", "rensa")
"""Peers that get their shingles from here."""

UNSPACED = (
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    r"\u1780-\u17ff"  # Khmer
    r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Kana
    r"\u3005-\u3007\u3021-\u3029\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
TOKEN = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_SEPARATORS: dict[int, str] = {}

Times = dict[str, float]


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, as ``benchmarks.exact_pairs`` defines them."""
    import unicodedata2

    if not _SEPARATORS:
        codes = range(sys.maxunicode + 1)
        _SEPARATORS.update((code, " ") for code in codes if unicodedata2.category(chr(code))[0] in "PS")
    return TOKEN.findall(unicodedata2.normalize("NFC", text).casefold().translate(_SEPARATORS))


def shingles(text: str) -> set[bytes]:
    """Return the shingles of a text, each as its tokens with spaces between; none where it has no tokens."""
    words = tokens(text)
    if len(words) <= SHINGLE_TOKENS:
        return {" ".join(words).encode()} if words else set()
    return {
        " ".join(words[start : start + SHINGLE_TOKENS]).encode() for start in range(len(words) - SHINGLE_TOKENS + 1)
    }


def read(files: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ids and texts of blocks of records."""
    import pyarrow.parquet as pq

    for file in sorted(files.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(BLOCK, columns=["id", "text"]):
            yield batch.column("id").to_pylist(), batch.column("text").to_pylist()


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Clock:
    """Seconds of the processor by step."""

    def __init__(self) -> None:
        """Start."""
        self.times: Times = {}
        self._last = processor_seconds()

    def step(self, name: str) -> None:
        """Count the time since the last call to a step."""
        now = processor_seconds()
        self.times[name] = self.times.get(name, 0.0) + now - self._last
        self._last = now


def datasketch(files: Path, folder: Path) -> tuple[Times, list[str]]:
    """Signatures of 128 values and the index of datasketch."""
    from datasketch import MinHash, MinHashLSH  # type: ignore[import-untyped, import-not-found, unused-ignore]

    clock, removed = Clock(), []
    index = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    for ids, texts in read(files):
        clock.step("read")
        sets = [shingles(text) for text in texts]
        clock.step("shingles")
        signatures = MinHash.bulk(sets, num_perm=PERMUTATIONS)
        clock.step("signatures")
        for record_id, signature, members in zip(ids, signatures, sets, strict=True):
            if members and index.query(signature):
                removed.append(record_id)
            elif members:
                index.insert(record_id, signature)
        clock.step("index")
    return clock.times, removed


def rensa(files: Path, folder: Path) -> tuple[Times, list[str]]:
    """Signatures of 128 values and the deduplicator of rensa with 16 bands."""
    from rensa import RMinHash, RMinHashDeduplicator  # type: ignore[import-untyped, import-not-found, unused-ignore]

    clock, removed = Clock(), []
    index = RMinHashDeduplicator(THRESHOLD, PERMUTATIONS, True, RENSA_BANDS, RENSA_SEED)
    for ids, texts in read(files):
        clock.step("read")
        sets = [[shingle.decode() for shingle in shingles(text)] for text in texts]
        clock.step("shingles")
        signatures = RMinHash.from_token_sets(sets, PERMUTATIONS, RENSA_SEED)
        clock.step("signatures")
        for record_id, signature, members in zip(ids, signatures, sets, strict=True):
            if members and not index.add(record_id, signature):
                removed.append(record_id)
        clock.step("index")
    return clock.times, removed


def datatrove(files: Path, folder: Path) -> tuple[Times, list[str]]:
    """The four steps of datatrove, one worker each."""
    import pyarrow.parquet as pq
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig(n_grams=SHINGLE_TOKENS)
    place = {name: str(folder / name) for name in ("signatures", "buckets", "ids", "kept", "logs")}
    reader = ParquetReader(str(files), glob_pattern="*.parquet", text_key="text", id_key="id")
    steps = {
        "signatures": (1, [reader, MinhashDedupSignature(place["signatures"], config)]),
        "buckets": (config.num_buckets, [MinhashDedupBuckets(place["signatures"], place["buckets"], config=config)]),
        "clusters": (1, [MinhashDedupCluster(place["buckets"], place["ids"], config=config)]),
        "filter": (1, [reader, MinhashDedupFilter(place["ids"]), ParquetWriter(place["kept"])]),
    }
    clock = Clock()
    for name, (tasks, pipeline) in steps.items():
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=f"{place['logs']}/{name}").run()
        clock.step(name)
    kept = {value for file in Path(place["kept"]).rglob("*.parquet") for value in pq.read_table(file)["id"].to_pylist()}
    return clock.times, [record_id for ids, _ in read(files) for record_id in ids if record_id not in kept]


def text_dedup(files: Path, folder: Path) -> tuple[Times, list[str]]:
    """The program ``text_dedup.minhash`` with its own number of permutations and bands, one worker."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from text_dedup.minhash import main as program  # type: ignore[import-untyped, import-not-found, unused-ignore]

    clock = Clock()
    output = folder / "kept"
    options = {
        "--path": "parquet",
        "--data_files": str(files / "*.parquet"),
        "--split": "train",
        "--cache_dir": str(folder / "cache"),
        "--output": str(output),
        "--column": "text",
        "--threshold": str(THRESHOLD),
        "--ngram": str(SHINGLE_TOKENS),
        "--num_proc": "1",
    }
    program([part for option in options.items() for part in option], standalone_mode=False)
    clock.step("all")
    kept = set(datasets.load_from_disk(str(output))["id"])
    return clock.times, [record_id for ids, _ in read(files) for record_id in ids if record_id not in kept]


PEERS: dict[str, Callable[[Path, Path], tuple[Times, list[str]]]] = {
    "datatrove": datatrove,
    "datasketch": datasketch,
    "rensa": rensa,
    "text-dedup": text_dedup,
}


def main() -> None:
    """Answer until the input ends; what tools print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer, files, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if peer in LIBRARIES:
        tokens("")  # builds its table
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begin = time.perf_counter()
        times, removed = PEERS[peer](files, folder)
        elapsed = time.perf_counter() - begin
        answer: dict[str, Any] = {
            "seconds": sum(times.values()),
            "elapsed": elapsed,
            "steps": times,
            "removed": removed,
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
