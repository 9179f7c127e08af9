"""Quality rules of Gopher, C4 and FineWeb: agreement with datatrove, and speed beside it, dolma and data-juicer.

    python -m benchmarks.rules [--corpus FOLDER] [--documents 100] [--repetitions 3] [--folder FOLDER] [--json FILE]

Documents are texts of the sample corpus, or of the Parquet files below ``--corpus``: pages as they are, those of one
source joined until they have 7.7 kB, the size of a web page. Peers get each document once per repetition. Ours gets
them as often as make up ``MEGABYTES``, in batches as a run makes them; a batch costs the same whatever stood in the one
before it, since nothing is kept between batches. What is timed begins with texts and ends with signals and verdicts.

*Speed* has all four filters of datatrove with its own word splitter, and once more with ``str.split`` in its place,
since that splitter is most of its time; dolma's taggers for Gopher and C4, which measure only; and those filters of
data-juicer that come nearest. Repetitions are interleaved, on one core; seconds are those of the processor, which
others on the machine touch least. *Families* gives the time of stages and recipes alone and in pairs: what a
second one adds to a first. The target is for a recipe added to that of Gopher, whose rules are two stages; what each
stage adds to each other is printed, too. C4 comes last, for the stages behind it would see its edits.

*Agreement* counts documents on which our preset ``datatrove-0.10`` and datatrove have the same verdict (kept or not)
and the same reason: with datatrove's own splitter, and with our words and sentences in its place, where all must be.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import bind_to_one_core, concluded, contenders, environments, machine, sample_documents

OURS = "thresher"
PRESET = "datatrove-0.10"
# In the order in which they run; C4 edits the text.
STAGES = ("gopher_quality", "gopher_repetition", "fineweb_quality", "c4_quality")
ALL = "+".join(STAGES)
# Stages by recipe: the rules of Gopher are one, though they are two stages.
RECIPES = {"gopher": ("gopher_quality", "gopher_repetition"), "fineweb": ("fineweb_quality",), "c4": ("c4_quality",)}
# The rules that dolma's taggers measure, too.
OF_DOLMA = "+".join((*RECIPES["gopher"], *RECIPES["c4"]))
FIRST_RECIPE = "gopher"
PEERS = {"datatrove": "datatrove", "datatrove-plain": "datatrove", "dolma": "dolma", "data-juicer": "data-juicer"}
SPLITTERS = {"datatrove": "its own splitter", "datatrove-plain": "str.split, a line is a sentence"}
OUR_WORDS = "with our words and sentences in place of its own"
TARGETS = {"datatrove": 200.0, "dolma": 10.0, "data-juicer": 10.0}
MEGABYTES_PER_SECOND = 40.0
SECOND_TO_FIRST = 0.5
DOCUMENT_BYTES = 7700
LEAST_BYTES = 6900  # the last page of a document goes beyond it
MEGABYTES = 16
BATCH_BYTES = 16 << 20
PASSES = 3
"""Of ours over all batches in each repetition; a peer goes over the documents once, which takes it longer."""

# Reasons of datatrove that are named otherwise than our rules.
REASONS = {
    "gopher_short_doc": "minimum_words",
    "gopher_long_doc": "maximum_words",
    "gopher_below_avg_threshold": "minimum_mean_word_length",
    "gopher_above_avg_threshold": "maximum_mean_word_length",
    "gopher_too_many_hashes": "maximum_hash_ratio",
    "gopher_too_many_ellipsis": "maximum_ellipsis_ratio",
    "gopher_too_many_bullets": "maximum_bullet_lines",
    "gopher_too_many_end_ellipsis": "maximum_ellipsis_lines",
    "gopher_below_alpha_threshold": "minimum_alphabetic_words",
    "gopher_enough_stop_words": "minimum_stop_words",
    "dup_para_frac": "maximum_duplicate_paragraphs",
    "dup_para_char_frac": "maximum_duplicate_paragraph_characters",
    "dup_line_frac": "maximum_duplicate_lines",
    "dup_line_char_frac": "maximum_duplicate_line_characters",
    **{f"top_{size}_gram": f"maximum_top_{size}_gram_characters" for size in (2, 3, 4)},
    **{f"duplicated_{size}_n_grams": f"maximum_duplicate_{size}_gram_characters" for size in range(5, 11)},
    "line_punct_ratio": "minimum_punctuated_lines",
    "short_line_ratio": "maximum_short_lines",
    "char_dup_ratio": "maximum_duplicate_line_characters",
    "list_ratio": "maximum_newline_ratio",
    "too_few_sentences": "minimum_sentences",
}


def joined_texts(texts: Sequence[str], sources: Sequence[str], least: int = LEAST_BYTES) -> Iterator[str]:
    """Yield texts of neighbouring rows of one source, joined by blank lines until they have so many UTF-8 bytes.

    What remains at the end of a source is left out.
    """
    for _, rows in itertools.groupby(zip(sources, texts, strict=True), key=lambda row: row[0]):
        parts: list[str] = []
        size = 0
        for _, text in rows:
            parts.append(text)
            size += len(text.encode()) + 2
            if size >= least:
                yield "\n\n".join(parts)
                parts, size = [], 0


def read_documents(corpus: Path, count: int) -> list[str]:
    """Return so many documents, spread evenly over a folder of Parquet files with the columns text and source."""
    import pyarrow.parquet as pq

    files = sorted(corpus.glob("**/*.parquet"))
    if not files:
        sys.exit(f"{corpus}: no Parquet file in this folder")
    documents: list[str] = []
    for file in files:
        table = pq.read_table(file, columns=["text", "source"])
        documents += joined_texts(table["text"].to_pylist(), table["source"].to_pylist())
    # Single pages that are far longer would weigh as much as all others.
    documents = [text for text in documents if len(text.encode()) <= 2 * DOCUMENT_BYTES]
    step = max(1, len(documents) // count)
    return documents[::step][:count]


# --- Ours -------------------------------------------------------------------------------------------------------------


def made_stages(names: Sequence[str]) -> list[Any]:
    """Return prepared stages with the preset of datatrove."""
    from corpus.stages import known_stages

    stages = []
    for name in names:
        cls: Any = known_stages()[name]
        stages.append(cls(cls.Config(preset=PRESET), name, "text"))
        stages[-1].prepare()
    return stages


def made_batches(texts: Sequence[str]) -> list[Any]:
    """Return the batches of a pass over texts, each text as often as they need to make up ``MEGABYTES``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from corpus.batch import DocumentBatch
    from corpus.hashing import content_hashes
    from corpus.staging import empty_dead
    from corpus.verdicts import ALIVE

    size = sum(len(text.encode()) for text in texts)
    wanted = list(texts) * max(1, -(-MEGABYTES * 1_000_000 // size))
    rows_per_batch = max(1, BATCH_BYTES * len(texts) // size)
    batches: list[Any] = []
    for first in range(0, len(wanted), rows_per_batch):
        array = pa.array(wanted[first : first + rows_per_batch], pa.string())
        columns = {
            "content_hash": content_hashes([array]),
            "characters": pc.cast(pc.utf8_length(array), pa.int64()),
            "bytes": pc.cast(pc.binary_length(array), pa.int64()),
            "text": array,
        }
        records = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        marks = pa.RecordBatch.from_arrays([pa.array(np.ones(len(array), np.bool_))], names=[ALIVE])
        batches.append(DocumentBatch(0, len(batches), False, "", records, empty_dead(), marks))
    return batches


def our_reasons(texts: Sequence[str]) -> dict[str, list[str | None]]:
    """Return for each stage the first rule that drops each text, None where it stays."""
    from dataclasses import replace

    from corpus.verdicts import failures_column, first_rule, mark_record_stage

    batch = made_batches(texts)[0]
    batch = replace(batch, records=batch.records.slice(0, len(texts)), marks=batch.marks.slice(0, len(texts)))
    reasons: dict[str, list[str | None]] = {}
    for stage in made_stages(STAGES):
        batch = mark_record_stage(stage, batch)
        names = [rule.name for rule in stage.rules()]
        first = first_rule(batch.marks.column(failures_column(stage.name)).to_numpy())
        reasons[stage.name] = [None if rule < 0 else names[rule] for rule in first.tolist()]
    return reasons


def run_ours(text_path: str) -> None:
    """Be the process of our stages: each line names stages joined by ``+``, or asks for the reasons."""
    from dataclasses import replace

    from corpus.verdicts import mark_record_stage

    bind_to_one_core()
    texts: list[str] = json.loads(Path(text_path).read_text(encoding="utf-8"))
    batches = made_batches(texts)
    stages = {stage.name: stage for stage in made_stages(STAGES)}
    size = sum(batch.records.column("text").nbytes for batch in batches)
    rows = sum(batch.records.num_rows for batch in batches)

    def once(chosen: Sequence[str]) -> float:
        begin = time.process_time()
        for batch in batches:
            marked = replace(batch, shared={})
            for name in chosen:
                marked = mark_record_stage(stages[name], marked)
        return time.process_time() - begin

    once(STAGES)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "reasons":
            print(json.dumps(our_reasons(texts)), flush=True)
        else:
            chosen = line.strip().split("+")
            # The first one finds the caches as another process left them.
            _, *passes = (once(chosen) for _ in range(1 + PASSES))
            print(json.dumps({"seconds": statistics.median(passes), "rows": rows, "bytes": size}), flush=True)


# --- Agreement --------------------------------------------------------------------------------------------------------


def reasons_with_our_words(texts: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the reasons of datatrove, from this environment, with our words and sentences in place of its own."""
    from datatrove.pipeline.filters import c4_filters, fineweb_quality_filter, gopher_quality_filter
    from datatrove.pipeline.filters import gopher_repetition_filter as repetition_filter

    from benchmarks.peers_rules import datatrove_filters
    from corpus.text import words
    from filters.c4_reference import sentences

    for module in (gopher_quality_filter, repetition_filter, fineweb_quality_filter):
        module.split_into_words = lambda text, language: words(text)
    c4_filters.split_into_sentences = lambda text, language: sentences(text)
    return {name: [judge(text) for text in texts] for name, judge in datatrove_filters(plain=False).items()}


def agreement(ours: dict[str, list[str | None]], theirs: dict[str, list[str | None]]) -> dict[str, dict[str, Any]]:
    """Return for each filter how many documents have the same verdict and the same reason on both sides."""
    found = {}
    for name in STAGES:
        reasons = [REASONS.get(reason, reason) if reason else None for reason in theirs[name]]
        pairs = list(zip(ours[name], reasons, strict=True))
        found[name] = {
            "documents": len(pairs),
            "dropped_by_datatrove": sum(reason is not None for reason in reasons),
            "same_verdict": sum((one is None) == (other is None) for one, other in pairs),
            "same_reason": sum(one == other for one, other in pairs),
        }
    return found


# --- Speed ------------------------------------------------------------------------------------------------------------


def in_order(stages: Iterable[str]) -> str:
    """Return stages in the order in which they run, joined."""
    return "+".join(sorted(stages, key=STAGES.index))


def families() -> list[str]:
    """Return each stage, each pair of stages, each recipe, each pair of recipes, and all."""
    pairs = [in_order(pair) for pair in itertools.combinations(STAGES, 2)]
    recipes = [in_order((*first, *second)) for first, second in itertools.combinations(RECIPES.values(), 2)]
    return list(dict.fromkeys([*STAGES, *pairs, *recipes, ALL]))


def second_to_first(seconds: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return for each first stage or recipe what each second one adds to its time, as a share of that time."""
    stages = {name: (name,) for name in STAGES}
    shares: dict[str, dict[str, float]] = {}
    for kind in (RECIPES, stages):
        for first, second in itertools.permutations(kind, 2):
            both = in_order((*kind[first], *kind[second]))
            shares.setdefault(first, {})[second] = seconds[both] / seconds[in_order(kind[first])] - 1
    return shares


def speed(texts: Sequence[str], folder: Path, repetitions: int) -> dict[str, Any]:
    """Time everything on the same texts, repetitions interleaved; returns seconds per kind of work, and reasons."""
    text_path = folder / "rules-texts.json"
    text_path.write_text(json.dumps(list(texts)), encoding="utf-8")
    commands = {OURS: [sys.executable, "-m", "benchmarks.rules", "--ours", str(text_path)]}
    pythons, missing = environments(folder, PEERS.values())
    for name, peer in PEERS.items():
        if peer in pythons:
            commands[name] = [str(pythons[peer]), "benchmarks/peers_rules.py", name, str(text_path)]
    seconds: dict[str, list[float]] = {name: [] for name in [*families(), *commands] if name != OURS}
    reasons: dict[str, Any] = {}
    with contenders(commands, folder / "logs") as started:
        ours = started.pop(OURS)
        reasons[OURS] = ours.ask("reasons")
        work: dict[str, Any] = {}
        for _ in range(repetitions):
            for family in families():
                work = ours.ask(family)
                seconds[family].append(work["seconds"])
            for name, contender in started.items():
                answer = contender.ask("all")
                seconds[name].append(answer["seconds"])
                reasons[name] = answer["reasons"]
    size = sum(len(text.encode()) for text in texts)
    bytes_of = {name: work["bytes"] if name in families() else size for name in seconds}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rates = {name: bytes_of[name] / medians[name] / 1e6 for name in seconds}
    return {
        "documents": len(texts),
        "bytes": size,
        "our_rows": work["rows"],
        "seconds": seconds,
        "megabytes_per_second": rates,
        "times": {name: rates[OF_DOLMA if name == "dolma" else ALL] / rates[name] for name in started},
        "second_to_first": second_to_first(medians),
        "missing": missing,
        "reasons": reasons,
    }


def report(figures: dict[str, Any]) -> None:
    """Print the figures as tables."""
    fast = figures["speed"]
    rates = fast["megabytes_per_second"]
    on = figures["machine"]
    print(
        f"{fast['documents']} documents of {fast['bytes'] / fast['documents']:,.0f} bytes on average, for ours "
        f"{fast['our_rows']:,} by repeating them; one core, load {on['load']:.1f} on {on['cores']} cores"
    )
    print(f"  {'':58}{'MB/s':>8}  slowest/fastest")
    for name, values in fast["seconds"].items():
        times = f"   ours x{fast['times'][name]:,.0f}" if name in fast["times"] else ""
        print(f"  {name:58}{rates[name]:8.2f}  {max(values) / min(values):.2f}{times}")
    for peer, reason in fast["missing"].items():
        print(f"  {peer} cannot be installed here: {reason}")
    print("what a second recipe or stage adds to the time of a first, as a share of it")
    for first, shares in fast["second_to_first"].items():
        print(f"  {first:20}" + ", ".join(f"{second} {share:.2f}" for second, share in shares.items()))
    for splitter, found in figures["agreement"].items():
        print(f"agreement with datatrove, {splitter}")
        for name, counts in found.items():
            print(
                f"  {name:20}{counts['same_verdict'] / counts['documents']:8.1%} same verdict"
                f"{counts['same_reason'] / counts['documents']:8.1%} same reason, of {counts['documents']} documents "
                f"({counts['dropped_by_datatrove']} dropped there)"
            )


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    fast = figures["speed"]
    found = [
        f"{name}: {times:.0f} times as fast, wanted are {TARGETS[name]:.0f}"
        for name, times in fast["times"].items()
        if times < TARGETS.get(name, 0)
    ]
    rate = fast["megabytes_per_second"][ALL]
    if rate < MEGABYTES_PER_SECOND:
        found.append(f"all rules: {rate:.1f} MB/s, wanted are {MEGABYTES_PER_SECOND:.0f}")
    found += [
        f"{second} adds {share:.2f} of the time of {FIRST_RECIPE}, wanted is below {SECOND_TO_FIRST}"
        for second, share in fast["second_to_first"][FIRST_RECIPE].items()
        if share >= SECOND_TO_FIRST
    ]
    found += [
        f"{name}: {counts['same_reason']} of {counts['documents']} reasons are the same with our words"
        for name, counts in figures["agreement"][OUR_WORDS].items()
        if counts["same_reason"] != counts["documents"]
    ]
    return found


def main() -> int:
    """Run both parts, print them and say which targets are missed (exit code 3 if any)."""
    if sys.argv[1:2] == ["--ours"]:
        run_ours(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description="Agreement and speed of the quality rules.")
    parser.add_argument("--corpus", type=Path, help="folder of Parquet files with columns text and source")
    parser.add_argument("--documents", type=int, default=100, help="how many documents (default 100)")
    parser.add_argument("--agreement", type=int, default=1000, help="how many with our words in datatrove (1000)")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each contender does all (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for environments and the sample")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    corpus = arguments.corpus or sample_documents(folder)
    texts = read_documents(corpus, arguments.documents)
    figures: dict[str, Any] = {"machine": machine(), "speed": speed(texts, folder, arguments.repetitions)}
    reasons = figures["speed"].pop("reasons")
    figures["agreement"] = {
        f"{name} ({SPLITTERS[name]})": agreement(reasons[OURS], reasons[name]) for name in SPLITTERS if name in reasons
    }
    more = read_documents(corpus, arguments.agreement)
    figures["agreement"][OUR_WORDS] = agreement(our_reasons(more), reasons_with_our_words(more))
    report(figures)
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
