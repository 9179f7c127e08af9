"""Contamination: recall and precision on injected benchmark items, beside datatrove's n-gram rule, and speed.

    python -m benchmarks.contamination WORK [--shared ../shared] [--items 150] [--seed 0] [--json FILE]
    python -m benchmarks.contamination WORK --index-only 1000000

Items of every suite below ``shared/data/benchmarks`` are put into documents of the sample corpus in each kind of
``benchmarks.contamination_injections``; negatives are the same documents without, GSM8K train, licence texts,
instruction data, Korean prose, and near misses. A text counts as found where the stage would drop it; a positive, where
also an item with its text is named. Recall is over items that ``thresher suites check`` calls checkable. datatrove's
rule is that of ``NGramsDecontFilter`` (12-grams of answers and junctions; in a second column also of questions).
Speed is processor time of one thread on the documents without items.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from benchmarks.contamination_injections import (
    KINDS,
    LabelledText,
    gsm8k_train,
    licence_texts,
    near_misses,
    other_negatives,
    paraphrases,
    positives,
    write_suite,
)
from benchmarks.documents import write_documents
from corpus.stages import TextBatch
from corpus.verdicts import failures
from filters.contamination import Contamination, ContaminationConfig
from filters.contamination_build import UNCHECKABLE, build_index
from filters.contamination_index import open_index, write_index
from filters.contamination_tokens import ALONE_BIT
from filters.suite_items import BenchmarkItem
from filters.suites import all_files, find_suites, load_items

BATCH_ROWS = 8192
CHUNK_ITEMS = 10_000
DOCUMENT_CHARACTERS = 2000
LENGTHS = ((25, "25 and more"), (13, "13 to 24"), (8, "8 to 12"), (0, "below 8"))


def read_documents(work: Path, megabytes: int) -> list[str]:
    """Return documents of about 2 kB from the sample corpus."""
    write_documents(work, megabytes)
    texts = [
        text
        for path in sorted((work / f"documents-{megabytes}").glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    ]
    return [text[:DOCUMENT_CHARACTERS] for text in texts]


def cycle(documents: Sequence[str], seed: int) -> Iterator[str]:
    """Yield documents in a random order, without end."""
    choose = random.Random(seed)
    while True:
        yield from choose.sample(documents, len(documents))


def batches(texts: Sequence[str]) -> list[TextBatch]:
    """Return texts as batches of a stage."""
    parts = [texts[start : start + BATCH_ROWS] for start in range(0, len(texts), BATCH_ROWS)]
    return [TextBatch(pa.array(part, pa.string()), np.ones(len(part), np.bool_)) for part in parts]


def found_by_ours(stage: Contamination, texts: Sequence[str]) -> list[set[str]]:
    """Return the names of the items found in each text that the stage would drop."""
    found: list[set[str]] = []
    for batch in batches(texts):
        judgement = stage.judge(batch)
        dropped = failures(stage.rules(), judgement.signals) != 0
        names: list[set[str]] = [set() for _ in range(len(batch))]
        assert judgement.findings is not None
        for finding in judgement.findings.select(["row", "related", "action"]).to_pylist():
            if dropped[finding["row"]] and finding["action"] == "drop":
                names[finding["row"]].add(finding["related"])
        found += names
    return found


class DatatroveRule:
    """datatrove's n-gram rule: its own hashes, tokenizer and filter over an index of these items."""

    def __init__(self, items: Sequence[BenchmarkItem], questions: bool) -> None:
        from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer

        config = NGramsDecontConfig(find_query_ngrams=questions)
        self.filter = NGramsDecontFilter("unused", config=config)
        # datatrove 0.10 gives its hash texts, of which xxhash takes only the bytes since version 4.
        self.filter.hash_func = lambda text: xxhash.xxh64_intdigest(text.encode())
        # The indexer asks for a package with task lists, which are not needed to hash items.
        indexer = object.__new__(NGramsDecontIndexer)
        indexer.config, indexer.tokenizer, indexer.hash_func = config, self.filter.tokenizer, self.filter.hash_func
        self.filter._index_hashes = {
            value: item.benchmark
            for item in items
            for value in indexer.compute_hashes(item.answer, "\n".join(item.questions))
        }

    def drops(self, text: str) -> bool:
        """Say whether a text holds an n-gram of the index."""
        from datatrove.data import Document

        return self.filter.filter(Document(text=text, id="")) is not True


def same_text(items: Sequence[BenchmarkItem]) -> dict[str, set[str]]:
    """Return for each item those with the same question, itself included: either name is right."""
    by_question: dict[str, set[str]] = defaultdict(set)
    for item in items:
        by_question[item.questions[0]].add(f"{item.benchmark}/{item.id}")
    return {f"{item.benchmark}/{item.id}": by_question[item.questions[0]] for item in items}


def words_of_questions(items: Sequence[BenchmarkItem]) -> dict[str, int]:
    """Return the words of each item's question as the stage counts them."""
    from filters.contamination_tokens import token_hash, tokens

    words = {}
    for item in items:
        alone = [token_hash(token) & ALONE_BIT for token in tokens(item.questions[0])]
        words[f"{item.benchmark}/{item.id}"] = alone.count(0) + alone.count(1) // 2
    return words


def quality(work: Path, shared: Path, per_benchmark: int, seed: int, with_datatrove: bool) -> dict[str, Any]:
    """Return recall by kind and length, and precision, of ours and of datatrove's rule."""
    suite = write_suite(shared / "data/benchmarks", Path(tempfile.mkdtemp()))
    stage = Contamination(ContaminationConfig(suites=[str(suite)], boilerplate="off"), "contamination", "text")
    stage.prepare()
    index = stage._index
    assert index is not None
    items = load_items(all_files(find_suites([str(suite)], "suites")))
    checkable = {index.item_name(number) for number in np.flatnonzero(index.item_status <= 1).tolist()}
    words = words_of_questions(items)
    choose = random.Random(seed)
    chosen: list[BenchmarkItem] = []
    for benchmark in index.benchmarks:
        own = [item for item in items if item.benchmark == benchmark and f"{benchmark}/{item.id}" in checkable]
        chosen += choose.sample(own, min(per_benchmark, len(own)))
    documents = read_documents(work, 20)
    stream = cycle(documents, seed)
    clean = [LabelledText(text, "document", None) for text in documents[:3000]]
    long_enough = [item for item in chosen if words[f"{item.benchmark}/{item.id}"] >= 13]
    texts = [
        *positives(chosen, stream, seed),
        *clean,
        *gsm8k_train(shared / "data/benchmarks"),
        *licence_texts(),
        *other_negatives(shared / "data"),
        *near_misses(long_enough, stream, seed),
        *paraphrases(shared / "data"),
    ]
    found = found_by_ours(stage, [labelled.text for labelled in texts])
    rules = {}
    if with_datatrove:
        for name, questions in (("datatrove", False), ("datatrove with questions", True)):
            rule = DatatroveRule(items, questions)
            rules[name] = [rule.drops(labelled.text) for labelled in texts]
    right = same_text(items)
    table: dict[str, dict[str, list[float]]] = {}
    wrong: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    flagged: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    examples: list[dict[str, Any]] = []
    for number, (labelled, names) in enumerate(zip(texts, found, strict=True)):
        verdicts = {"thresher": bool(names), **{name: values[number] for name, values in rules.items()}}
        hit = labelled.item is not None and bool(names & right[labelled.item])
        length = "all"
        if labelled.kind in KINDS and labelled.item is not None:
            length = next(name for least, name in LENGTHS if words[labelled.item] >= least)
        cell = table.setdefault(labelled.kind, {}).setdefault(length, [0.0] * (1 + len(verdicts)))
        cell[0] += 1
        for column, (name, verdict) in enumerate(verdicts.items(), 1):
            # Of ours the item must be the right one, where the text has one.
            counted = hit if name == "thresher" and labelled.item is not None else verdict
            cell[column] += counted
            if labelled.kind != "paraphrase":
                flagged[name][0] += verdict
                flagged[name][1] += verdict and (hit if name == "thresher" else labelled.item is not None)
                wrong[name][labelled.kind] += verdict and labelled.item is None
        if names and labelled.item is None and len(examples) < 20:
            examples.append({"kind": labelled.kind, "items": sorted(names), "text": labelled.text[:300]})
    return {
        "columns": ["texts", "thresher", *rules],
        "uncheckable": {reason: int((index.item_status == status).sum()) for status, reason in UNCHECKABLE.items()},
        "found": table,
        "precision": {name: right_ones / max(1, total) for name, (total, right_ones) in flagged.items()},
        "wrong": {name: dict(kinds) for name, kinds in wrong.items()},
        "examples_wrong": examples,
    }


def speed(work: Path, shared: Path, with_datatrove: bool, repetitions: int) -> dict[str, float]:
    """Return microseconds per document of about 2 kB, all suites loaded: medians over repetitions in turn.

    ``words alone`` is the pass over the words with an index of one item."""
    from filters.contamination_evidence import gather

    suite = write_suite(shared / "data/benchmarks", Path(tempfile.mkdtemp()))
    stage = Contamination(ContaminationConfig(suites=[str(suite)], boilerplate="off"), "contamination", "text")
    stage.prepare()
    documents = read_documents(work, 20)
    parts = batches(documents)
    index = stage._index
    assert index is not None

    nothing = build_index([BenchmarkItem("nothing", "1", ("no document holds these words in this order",))])
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repetitions):
        for name, work_of in (
            ("stage", lambda: [stage.judge(part) for part in parts]),
            ("evidence", lambda: [gather(part.texts, part.alive, index, 50) for part in parts]),
            ("words alone", lambda: [gather(part.texts, part.alive, nothing, 50) for part in parts]),
        ):
            begin = time.process_time()
            work_of()
            seconds[name].append(time.process_time() - begin)
    result = {name: sorted(values)[len(values) // 2] / len(documents) * 1e6 for name, values in seconds.items()}
    if with_datatrove:
        rule = DatatroveRule(load_items(all_files(find_suites([str(suite)], "suites"))), False)
        some = documents[:2000]
        begin = time.process_time()
        for text in some:
            rule.drops(text)
        result["datatrove"] = (time.process_time() - begin) / len(some) * 1e6
    result["bytes per document"] = sum(len(text.encode()) for text in documents) / len(documents)
    return result


def index_size(work: Path, count: int, seed: int) -> dict[str, float]:
    """Return size of the index file and seconds to build it, for so many generated items of 40 words."""
    choose = np.random.default_rng(seed)
    vocabulary = np.array([f"word{number}" for number in range(50_000)])
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    items: list[BenchmarkItem] = []
    for start in range(0, count, CHUNK_ITEMS):
        drawn = choose.choice(len(vocabulary), (min(CHUNK_ITEMS, count - start), 40), p=weights / weights.sum())
        for number, words in enumerate(vocabulary[drawn], start):
            items.append(BenchmarkItem("generated", str(number), (" ".join(words),)))
    begin = time.process_time()
    index = build_index(items)
    seconds = time.process_time() - begin
    path = work / "generated.index"
    write_index(index, path)
    size = path.stat().st_size
    assert len(open_index(path)) == count
    path.unlink()
    return {"items": count, "megabytes": size / 1e6, "seconds": seconds}


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    if "found" in result:
        columns = result["columns"]
        print(f"{'kind':28}{'words':14}" + "".join(f"{name:>26}" for name in columns))
        for kind, lengths in result["found"].items():
            for length, cell in sorted(lengths.items()):
                shares = "".join(f"{value / cell[0]:26.4f}" for value in cell[1:])
                print(f"{kind:28}{length:14}{int(cell[0]):26}{shares}")
        print("precision", {name: round(value, 4) for name, value in result["precision"].items()})
        print("wrong", json.dumps(result["wrong"]))
    for name in ("speed", "index"):
        if name in result:
            print(name, {key: round(value, 2) for key, value in result[name].items()})


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for the sample corpus and its documents")
    parser.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument("--items", type=int, default=150, help="items of each benchmark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--without-datatrove", action="store_true")
    parser.add_argument("--index-only", type=int, metavar="ITEMS", help="only build an index of generated items")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.index_only:
        result: dict[str, Any] = {"index": index_size(arguments.work, arguments.index_only, arguments.seed)}
    else:
        datatrove = not arguments.without_datatrove
        result = quality(arguments.work, arguments.shared, arguments.items, arguments.seed, datatrove)
        result["speed"] = speed(arguments.work, arguments.shared, datatrove, arguments.repetitions)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
