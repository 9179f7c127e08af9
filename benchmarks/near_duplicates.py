"""Near-duplicates: speed, recall and proof against datatrove, text-dedup, datasketch and rensa, on the same files.

    python -m benchmarks.near_duplicates [--corpus FOLDER] [--truth FILE] [--peers NAME …] [--repetitions 3]
        [--folder FOLDER] [--json FILE]

The documents are those of the sample corpus, or of the Parquet files below ``--corpus`` (columns ``id`` and ``text``).
*Speed*: ours is the whole process ``thresher run`` with the stage ``near_duplicates`` alone, from Parquet to verdicts
and curated records, start-up included; peers go from the same Parquet files to the ids that they keep, their imports
not timed. One worker and one core each, repetitions interleaved; rates and ratios are of seconds of the processor. What
a run over a single record takes is given as start-up. *Signatures* of 128 values are timed by themselves: those of
peers from shingles made before, and with the time to make these in Python; ours always from text, in one sweep. The
target is for text on both sides.

*Truth*: all pairs at 0.8 or more, by ``benchmarks.exact_pairs`` or from ``--truth`` (a Parquet file with the columns
``id_a``, ``id_b``, ``jaccard``). Equal texts are a pair as well. Of each tool is counted: the pairs of which both
records stay (what it missed), and the records that it removed with none that stays similar to them (what it lost).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, bind_to_one_core, concluded, contenders, environments, machine, sample_documents
from benchmarks.peers_near_duplicates import PERMUTATIONS, THRESHOLD, processor_seconds

OURS = "thresher"
PEERS = ("datatrove", "text-dedup", "datasketch", "rensa")
HIGH = 0.9
FILE_BYTES = 64 << 20
GROUP_ROWS = 4096
KERNEL_ROWS = 4096
CHECKED_SIGNATURES = 200
CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id}}
output: {output}
stages:
  - near_duplicates: {{threshold: {threshold}}}
"""
MEGABYTES_PER_SECOND = 30.0
TARGETS = {"datatrove": 60.0}
SIGNATURE_TARGETS = {"datasketch": 20.0, "rensa": 5.0}
MISSED_SHARE = 0.01

Pairs = Sequence[tuple[str, str, float]]


def write_input(corpus: Path, target: Path) -> tuple[list[str], list[str]]:
    """Write the columns id and text of a corpus, without blank texts, for all tools; return both.

    The files are made anew each time.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = sorted(corpus.glob("**/*.parquet"))
    if not files:
        sys.exit(f"{corpus}: no Parquet file in this folder")
    ids: list[str] = []
    texts: list[str] = []
    for file in files:
        missing = [name for name in ("id", "text") if name not in pq.read_schema(file).names]
        if missing:
            sys.exit(f"{file}: no column {missing[0]}; wanted are id and text")
        table = pq.read_table(file, columns=["id", "text"])
        for record_id, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            if text and not text.isspace():
                ids.append(str(record_id))
                texts.append(text)
    if len(set(ids)) != len(ids):
        sys.exit(f"{corpus}: {len(ids) - len(set(ids)):,} records have an id that another has; ids must be unique")
    start = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text.encode())
        if size >= FILE_BYTES or end == len(texts):
            table = pa.table({"id": pa.array(ids[start:end]), "text": pa.array(texts[start:end])})
            pq.write_table(table, target / f"part-{start:09d}.parquet", row_group_size=GROUP_ROWS, compression="zstd")
            start, size = end, 0
    return ids, texts


def true_pairs(ids: Sequence[str], texts: Sequence[str], truth: Path | None) -> list[tuple[str, str, float]]:
    """Return (id, id, Jaccard) of all pairs at the threshold."""
    if truth is None:
        from benchmarks.exact_pairs import similar_pairs

        return [(ids[a], ids[b], similarity) for a, b, similarity in similar_pairs(texts, THRESHOLD)]
    import pyarrow.parquet as pq

    table = pq.read_table(truth, columns=["id_a", "id_b", "jaccard"], filters=[("jaccard", ">=", THRESHOLD)])
    known = set(ids)
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    pairs = [(str(a), str(b), similarity) for a, b, similarity in rows]
    unknown = {name for a, b, _ in pairs for name in (a, b)} - known
    if unknown:
        sys.exit(f"{truth}: {len(unknown):,} ids are not in the corpus, for example {min(unknown)}")
    return pairs


def quality(ids: Sequence[str], texts: Sequence[str], pairs: Pairs, removed: Iterable[str]) -> dict[str, int]:
    """Return what a tool missed and what it lost.

    Args:
        pairs: all pairs at the threshold; equal texts are one besides.
        removed: the ids of the records that the tool does not keep.
    """
    gone = set(removed)
    kept_texts = {text for record_id, text in zip(ids, texts, strict=True) if record_id not in gone}
    proven = {record_id for record_id, text in zip(ids, texts, strict=True) if record_id in gone and text in kept_texts}
    both_kept = {THRESHOLD: 0, HIGH: 0}
    for first, second, similarity in pairs:
        if first in gone and second not in gone:
            proven.add(first)
        elif second in gone and first not in gone:
            proven.add(second)
        elif first not in gone:
            for least in both_kept:
                both_kept[least] += similarity >= least
    return {
        "pairs": len(pairs),
        "both_kept": both_kept[THRESHOLD],
        "both_kept_at_0.9": both_kept[HIGH],
        "removed": len(gone),
        "removed_without_kept_similar": len(gone) - len(proven),
    }


# --- Ours -------------------------------------------------------------------------------------------------------------


def run_ours(files: Path, folder: Path) -> dict[str, Any]:
    """Run the program once; returns seconds of the processor, elapsed ones, the removed ids and their leaders."""
    import pyarrow.parquet as pq

    output = folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    config = folder / "near_duplicates.yaml"
    config.write_text(CONFIG.format(files=files, output=output, threshold=THRESHOLD), encoding="utf-8")
    command = [sys.executable, "-m", "pipelines.cli", "run", str(config), "--direct_num_workers=1"]
    began, begin = time.perf_counter(), processor_seconds()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    seconds, elapsed = processor_seconds() - begin, time.perf_counter() - began
    if done.returncode:
        sys.exit(f"the run failed with exit code {done.returncode}: {' '.join(command)}")
    ledger = pq.read_table(output / "ledger", columns=["record_id", "stage", "related_id"])
    others = set(ledger["stage"].to_pylist()) - {"near_duplicates"}
    if others:
        sys.exit(f"{output}/ledger: records left by {', '.join(sorted(others))}; wanted is near_duplicates alone")
    return {
        "seconds": seconds,
        "elapsed": elapsed,
        "removed": ledger["record_id"].to_pylist(),
        "leaders": ledger["related_id"].to_pylist(),
    }


def run_ours_with_start_up(files: Path, few: Path, folder: Path) -> dict[str, Any]:
    """Run the program once, and once over a single record: what that takes is no matter of the corpus."""
    start_up = run_ours(few, folder)["seconds"]
    result = run_ours(files, folder)
    return {**result, "steps": {"start-up": start_up, "beyond it": result["seconds"] - start_up}}


def unproven_leaders(
    ids: Sequence[str], texts: Sequence[str], pairs: Pairs, removed: Sequence[str], leaders: Sequence[str]
) -> int:
    """Return how many removed records name a leader that is gone as well or is not similar to them."""
    text_of = dict(zip(ids, texts, strict=True))
    similar = {(a, b) for a, b, _ in pairs} | {(b, a) for a, b, _ in pairs}
    gone = set(removed)
    return sum(
        leader in gone or not ((one, leader) in similar or text_of[one] == text_of[leader])
        for one, leader in zip(removed, leaders, strict=True)
    )


def serve_signatures(files: Path) -> None:
    """Be the process of our signatures: each line has it make those of all texts, from text."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dedup.near_duplicates import NearDuplicatesConfig
    from dedup.signatures import datasketch_signature_of, permutation_constants, signatures

    bind_to_one_core()
    settings = NearDuplicatesConfig()
    length, permutations, seed = settings.shingle_tokens, PERMUTATIONS, settings.seed
    constants = permutation_constants(permutations, seed)
    texts = pa.concat_tables([pq.read_table(file, columns=["text"]) for file in sorted(files.glob("*.parquet"))])
    parts = [
        chunk.slice(first, KERNEL_ROWS) for chunk in texts["text"].chunks for first in range(0, len(chunk), KERNEL_ROWS)
    ]
    masks = [np.ones(len(part), np.bool_) for part in parts]
    values, _ = signatures(parts[0], masks[0], length, constants)
    checked = min(len(parts[0]), CHECKED_SIGNATURES)
    same = sum(
        bool((datasketch_signature_of(text.as_py(), length, permutations, seed).digest() == row).all())
        for text, row in zip(parts[0][:checked], values[:checked], strict=True)
    )
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        for part, mask in zip(parts, masks, strict=True):
            signatures(part, mask, length, constants)
        answer = {"seconds": time.process_time() - begin, "same": same, "checked": checked}
        print(json.dumps(answer), flush=True)


# --- The comparison ---------------------------------------------------------------------------------------------------


def compare(files: Path, folder: Path, peers: Sequence[str], repetitions: int) -> dict[str, Any]:
    """Run all tools in turns; returns per tool the answers of each repetition, and what cannot be installed."""
    import pyarrow.parquet as pq

    pythons, missing = environments(folder, peers)
    commands = {
        peer: [str(python), "benchmarks/peers_near_duplicates.py", peer, str(files), str(folder / "peer" / peer)]
        for peer, python in pythons.items()
    }
    commands["signatures"] = [sys.executable, "-m", "benchmarks.near_duplicates", "--signatures", str(files)]
    answers: dict[str, list[Any]] = {name: [] for name in (OURS, *commands)}
    few = folder / "near-duplicates-few"
    first = sorted(files.glob("*.parquet"))[0]
    few.mkdir(exist_ok=True)
    pq.write_table(pq.read_table(first).slice(0, 1), few / "part.parquet")
    # Compiles what is not compiled yet: some kernels are loaded only where records are similar.
    run_ours(files, folder)
    with contenders(commands, folder / "logs") as started:
        for _ in range(repetitions):
            answers[OURS].append(run_ours_with_start_up(files, few, folder))
            for name, contender in started.items():
                answers[name].append(contender.ask("go"))
    return {"answers": answers, "missing": missing}


def medians(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median time of each step."""
    return {step: statistics.median(one["steps"][step] for one in answers) for step in answers[0]["steps"]}


def summary(answers: dict[str, list[Any]], size: int) -> dict[str, Any]:
    """Return times, rates and ratios, without what belongs to single records."""
    own = answers.pop("signatures")
    signature_seconds = statistics.median(one["seconds"] for one in own)
    signatures = {"seconds": signature_seconds, "megabytes_per_second": size / signature_seconds / 1e6}
    ours = statistics.median(one["seconds"] for one in answers[OURS])
    tools = {}
    for name, runs in answers.items():
        seconds = [one["seconds"] for one in runs]
        steps = medians(runs)
        median = statistics.median(seconds)
        tools[name] = {
            "seconds": median,
            "spread": [min(seconds), max(seconds)],
            "elapsed": statistics.median(one["elapsed"] for one in runs),
            "steps": steps,
            "megabytes_per_second": size / median / 1e6,
            "ours_is_times_faster": median / ours,
        }
        if "shingles" in steps:
            tools[name]["signatures_from_shingles_to_ours_from_text"] = steps["signatures"] / signature_seconds
            from_text = steps["shingles"] + steps["signatures"]
            tools[name]["signatures_from_text_to_ours_from_text"] = from_text / signature_seconds
    return {"tools": tools, "signatures": {**signatures, "same": own[0]["same"], "checked": own[0]["checked"]}}


def report(figures: dict[str, Any]) -> None:
    """Print the figures as tables."""
    on, corpus, signatures = figures["machine"], figures["corpus"], figures["signatures"]
    print(
        f"{corpus['records']:,} records, {corpus['bytes'] / 1e6:.1f} MB, {corpus['pairs']:,} pairs at {THRESHOLD} or "
        f"more; one core, load {on['load']:.1f} on {on['cores']} cores"
    )
    print(
        f"  {'':12}{'CPU s':>8}{'elapsed':>9}{'MB/s':>8}{'ours x':>8}"
        f"{'both kept':>11}{'>= 0.9':>8}{'removed':>9}{'lost':>7}"
    )
    for name, tool in figures["tools"].items():
        found = tool["quality"]
        print(
            f"  {name:12}{tool['seconds']:8.2f}{tool['elapsed']:9.2f}{tool['megabytes_per_second']:8.2f}"
            f"{tool['ours_is_times_faster']:8.1f}"
            f"{found['both_kept'] / max(found['pairs'], 1):11.2%}{found['both_kept_at_0.9']:8,}{found['removed']:9,}"
            f"{found['removed_without_kept_similar']:7,}   "
            + ", ".join(f"{step} {seconds:.2f}" for step, seconds in tool["steps"].items())
        )
    print("  MB/s, steps and ratios: of CPU seconds; both kept: of the pairs; lost: removed, and nothing similar stays")
    for peer, reason in figures["missing"].items():
        print(f"  {peer} cannot be installed here: {reason}")
    beyond = figures["tools"][OURS]["steps"]["beyond it"]
    print(f"ours beyond start-up: {corpus['bytes'] / beyond / 1e6:.1f} MB/s")
    print(f"ours: {figures['unproven']} removed records name a leader that is gone or not similar")
    print(
        f"signatures of {PERMUTATIONS} values, ours from text: {signatures['megabytes_per_second']:.1f} MB/s; "
        f"{signatures['same']} of {signatures['checked']} are those of datasketch (affine32)"
    )
    for name, tool in figures["tools"].items():
        if "signatures_from_text_to_ours_from_text" in tool:
            print(
                f"  {name:12}ours x{tool['signatures_from_shingles_to_ours_from_text']:.1f} where its shingles are "
                f"given, x{tool['signatures_from_text_to_ours_from_text']:.1f} from text"
            )


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    tools, signatures = figures["tools"], figures["signatures"]
    ours = tools[OURS]
    found = [
        f"{name}: {tools[name]['ours_is_times_faster']:.1f} times as fast, wanted are {target:.0f}"
        for name, target in TARGETS.items()
        if name in tools and tools[name]["ours_is_times_faster"] < target
    ]
    found += [
        f"signatures of {name}: {times:.1f} times as fast, wanted are {target:.0f}"
        for name, target in SIGNATURE_TARGETS.items()
        if name in tools and (times := tools[name]["signatures_from_text_to_ours_from_text"]) < target
    ]
    if ours["megabytes_per_second"] < MEGABYTES_PER_SECOND:
        found.append(f"whole run: {ours['megabytes_per_second']:.1f} MB/s, wanted are {MEGABYTES_PER_SECOND:.0f}")
    quality_of_ours = ours["quality"]
    if quality_of_ours["both_kept"] > MISSED_SHARE * quality_of_ours["pairs"] or quality_of_ours["both_kept_at_0.9"]:
        found.append(
            f"both records of {quality_of_ours['both_kept']:,} of {quality_of_ours['pairs']:,} pairs are kept "
            f"({quality_of_ours['both_kept_at_0.9']:,} at {HIGH}), wanted are {MISSED_SHARE:.0%} (0)"
        )
    if figures["unproven"] or quality_of_ours["removed_without_kept_similar"]:
        found.append(f"{figures['unproven']} removed records are not similar to their leader")
    if signatures["same"] != signatures["checked"]:
        found.append(f"{signatures['checked'] - signatures['same']} signatures are not those of datasketch")
    return found


def main() -> int:
    """Compare, print and say which targets are missed (exit code 3 if any)."""
    if sys.argv[1:2] == ["--signatures"]:
        serve_signatures(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description="Speed, recall and proof of near-duplicates.")
    parser.add_argument("--corpus", type=Path, help="folder of Parquet files with columns id and text")
    parser.add_argument("--truth", type=Path, help="Parquet file with id_a, id_b, jaccard; by default computed")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default all")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each tool runs (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for environments and outputs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    bind_to_one_core()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "near-duplicates"
    ids, texts = write_input(arguments.corpus or sample_documents(folder), files)
    pairs = true_pairs(ids, texts, arguments.truth)
    size = sum(len(text.encode()) for text in texts)
    compared = compare(files, folder, arguments.peers, arguments.repetitions)
    answers = compared["answers"]
    last = {name: runs[-1] for name, runs in answers.items() if name != "signatures"}
    figures: dict[str, Any] = {
        "machine": machine(),
        "corpus": {"records": len(ids), "bytes": size, "pairs": len(pairs)},
        "missing": compared["missing"],
        "unproven": unproven_leaders(ids, texts, pairs, last[OURS]["removed"], last[OURS]["leaders"]),
        **summary(answers, size),
    }
    for name, answer in last.items():
        figures["tools"][name]["quality"] = quality(ids, texts, pairs, answer["removed"])
    report(figures)
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
