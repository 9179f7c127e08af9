"""A process that curates documents with datatrove from reader to writer, in an environment of its own.

    python benchmarks/peers_pipeline.py FILES FOLDER MODEL ITEMS

FILES is a folder of Parquet files with the columns id and text; FOLDER is for what it writes; MODEL is fastText's
lid.176 in a file; ITEMS is a JSON file with a list of benchmark items as ``{"name", "answer", "question"}``. Nothing of
Thresher is imported here. Each line of input has it go through all stages, one worker each, as datatrove's own example
of FineWeb does it: language, the filters of Gopher, C4 and FineWeb and the n-grams of the benchmarks in one pass that
writes what is left; then the four steps of MinHash. The answer has ``seconds`` of the processor, those of its
``steps``, ``elapsed`` seconds, the documents that each filter ``passed``, and the ids of those ``kept``.

Settings are datatrove's own, but for English at 0.65 or more and shingles of five words, as our stages have them, and
the questions of benchmark items, which count as well.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from peers_near_duplicates import SHINGLE_TOKENS, Clock, Times  # type: ignore[import-not-found, unused-ignore]

LANGUAGE, MINIMUM_SCORE = "en", 0.65


def language_filter(model: str) -> Any:
    """Return datatrove's language filter with a model from a file, not from the network."""
    from datatrove.pipeline.filters import LanguageFilter

    made = LanguageFilter([LANGUAGE], MINIMUM_SCORE)
    made.model.MODEL_URL = model
    return made


def contamination_filter(items: Path, folder: Path) -> Any:
    """Return datatrove's filter of n-grams with an index of these items, written as its indexer does."""
    import numpy as np
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer

    config = NGramsDecontConfig(find_query_ngrams=True)
    made = NGramsDecontFilter(str(folder), config=config)
    # The indexer asks for a package with task lists, which are not needed to hash items.
    indexer = object.__new__(NGramsDecontIndexer)
    indexer.config, indexer.tokenizer, indexer.hash_func = config, made.tokenizer, made.hash_func
    hashes: dict[str, set[int]] = {}
    for item in json.loads(items.read_text(encoding="utf-8")):
        hashes.setdefault(item["name"], set()).update(indexer.compute_hashes(item["answer"], item["question"]))
    folder.mkdir(parents=True)
    for name, values in hashes.items():
        np.array(sorted(values), config.hash_config.np_descr).tofile(folder / f"{name}.index.hashes")
    return made


def curate(files: Path, folder: Path, model: str, items: Path) -> tuple[Times, dict[str, int], list[str]]:
    """Return the times of the steps, the documents that each filter passed, and the ids of those kept at the end."""
    import pyarrow.parquet as pq
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig(n_grams=SHINGLE_TOKENS)
    place = {
        name: str(folder / name) for name in ("filtered", "signatures", "buckets", "ids", "kept", "logs", "hashes")
    }
    filters = {
        "language": language_filter(model),
        "gopher_repetition": GopherRepetitionFilter(),
        "gopher_quality": GopherQualityFilter(),
        "c4_quality": C4QualityFilter(),
        "fineweb_quality": FineWebQualityFilter(),
        "contamination": contamination_filter(items, Path(place["hashes"])),
    }
    source = ParquetReader(str(files), text_key="text", id_key="id")
    filtered = ParquetReader(place["filtered"], text_key="text", id_key="id")
    steps = {
        "filters": (1, [source, *filters.values(), ParquetWriter(place["filtered"])]),
        "signatures": (1, [filtered, MinhashDedupSignature(place["signatures"], config)]),
        "buckets": (config.num_buckets, [MinhashDedupBuckets(place["signatures"], place["buckets"], config=config)]),
        "clusters": (1, [MinhashDedupCluster(place["buckets"], place["ids"], config=config)]),
        "write": (1, [filtered, MinhashDedupFilter(place["ids"]), ParquetWriter(place["kept"])]),
    }
    clock = Clock()
    passed: dict[str, int] = {}
    for name, (tasks, pipeline) in steps.items():
        told = LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=f"{place['logs']}/{name}").run()
        clock.step(name)
        if name == "filters":
            # One entry for each step of the pipeline, the reader first and the writer last.
            entries = zip(filters, told.stats[1:-1], strict=True)
            passed = {stage: int(entry.stats["forwarded"].total) for stage, entry in entries}
    kept = [value for file in Path(place["kept"]).rglob("*.parquet") for value in pq.read_table(file)["id"].to_pylist()]
    return clock.times, passed, kept


def main() -> None:
    """Answer until the input ends; what tools print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    files, folder, model, items = sys.argv[1:]
    # Where datatrove copies the language model to.
    os.environ["HF_ASSETS_CACHE"] = f"{folder}-assets"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    # Loads spaCy, which is not timed.
    load_word_tokenizer("eng").word_tokenize("Ready.")
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir(parents=True)
        begin = time.perf_counter()
        times, passed, kept = curate(Path(files), Path(folder), model, Path(items))
        answer = {
            "seconds": sum(times.values()),
            "elapsed": time.perf_counter() - begin,
            "steps": times,
            "passed": passed,
            "kept": kept,
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
