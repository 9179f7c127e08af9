"""The whole pipeline against datatrove's: read, language, all rules, contamination, near-duplicates, write.

    python -m benchmarks.pipeline [--corpus FOLDER] [--suite FILE] [--peer-megabytes 5] [--repetitions 3]
        [--folder FOLDER] [--json FILE]

The documents are those of the sample corpus, or of the Parquet files below ``--corpus`` (columns ``id`` and ``text``).
The benchmarks whose items leave are those of ``--suite``, by default the sample corpus's own. Stages, their order and
presets are the same on both sides: English at 0.65 or more, gopher_repetition, gopher_quality, c4_quality and
fineweb_quality with datatrove's numbers, contamination, near-duplicates at 0.8.

*Ours* is the whole process ``thresher run`` over all documents, with its start-up and one worker. *datatrove* goes over
a part: documents spread evenly over the corpus that make up ``--peer-megabytes``, since the whole of a gigabyte would
take it hours; its imports are not timed. Both are bound to the same core and take turns; rates and ratios are of
seconds of the processor per byte of text. *Start-up* is what ours takes for a single record. *English* is the same with
the documents alone that the first stage keeps: where a corpus has many languages, most text meets no other stage.

*Same work*: ours also goes over datatrove's parts. Of both are given the documents left after each stage and how many
documents have the same fate. datatrove's words are those of spaCy, with punctuation marks as words, so that rules of
words differ; near-duplicates are proven with ours only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.near_duplicates import GROUP_ROWS, write_input
from benchmarks.peers import Contender, concluded, contenders, environments, machine, sample_documents
from benchmarks.processes import measured, one_core, thresher_run

STAGES = (
    *("language", "gopher_repetition", "gopher_quality", "c4_quality", "fineweb_quality", "contamination"),
    "near_duplicates",
)
INPUT = """\
input: {{files: ["{files}/*.parquet"], id_column: id}}
output: {output}
stages:
  - language: {{keep: [en], minimum_score: 0.65}}
"""
CONFIG = (
    INPUT
    + """\
  - gopher_repetition: {{preset: datatrove-0.10}}
  - gopher_quality: {{preset: datatrove-0.10}}
  - c4_quality: {{preset: datatrove-0.10}}
  - fineweb_quality: {{preset: datatrove-0.10}}
  - contamination: {{suites: ["{suite}"], action: drop}}
  - near_duplicates: {{threshold: 0.8}}
"""
)
PEER = "datatrove"
# What datatrove goes over, by the name that its figures have.
PARTS = {"datatrove": "part", "datatrove_english": "english_part"}
TITLES = {
    "few": "ours, one record",
    "all": "ours",
    "part": "ours, datatrove's part",
    "datatrove": "datatrove, its part",
    "english": "ours, English",
    "english_part": "ours, datatrove's part of it",
    "datatrove_english": "datatrove, its part of it",
}
START_AND_END = "start, shuffles, report"
MEGABYTES_PER_SECOND = 8.0
TIMES = 80.0
START_SECONDS = 3.0


def write_part(files: Path, target: Path, megabytes: float) -> int:
    """Write documents spread evenly over a folder of Parquet files, at least one; returns the bytes of their text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(files, columns=["id", "text"])
    size = pc.sum(pc.binary_length(table["text"])).as_py()
    step = max(1, round(size / (megabytes * 1e6))) if megabytes else table.num_rows
    return _write(table.take(pa.array(range(0, table.num_rows, step), pa.int64())), target)


def write_kept(files: Path, target: Path, ids: Sequence[str]) -> int:
    """Write the documents of a folder of Parquet files that have these ids; returns the bytes of their text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(files, columns=["id", "text"])
    return _write(table.filter(pc.is_in(table["id"], value_set=pa.array(ids, pa.string()))), target)


def _write(table: Any, target: Path) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target / "part.parquet", row_group_size=GROUP_ROWS, compression="zstd")
    return int(pc.sum(pc.binary_length(table["text"])).as_py())


def write_items(suite: Path, target: Path) -> int:
    """Write the benchmark items of a suite for datatrove's process; returns their number."""
    from filters.suites import all_files, find_suites, load_items

    items = [
        {"name": item.benchmark, "answer": item.answer, "question": "\n".join(item.questions)}
        for item in load_items(all_files(find_suites([str(suite)], "suites")))
    ]
    target.write_text(json.dumps(items), encoding="utf-8")
    return len(items)


class Ours:
    """The program with the whole pipeline."""

    def __init__(self, folder: Path, suite: Path) -> None:
        """Take the folder for configs and runs, and the suite file."""
        self._folder, self._suite = folder, suite

    def run(self, files: Path, config_text: str = CONFIG, *options: str) -> dict[str, Any]:
        """Run once over a folder of files; returns what it took, the documents left by stage, and the ids kept."""
        import pyarrow.parquet as pq

        output, config = self._folder / "run", self._folder / "pipeline.yaml"
        config.write_text(config_text.format(files=files, output=output, suite=self._suite), encoding="utf-8")
        used = measured(thresher_run(config, output, 1, *options), one_core())
        report = json.loads((output / "report.json").read_text(encoding="utf-8"))
        return {
            **asdict(used),
            "passed": {stage["name"]: stage["entered"] - stage["dropped"] for stage in report["stages"]},
            "records": report["records"],
            "kept": pq.read_table(output / "curated", columns=["record_id"])["record_id"].to_pylist(),
        }

    def steps(self, files: Path) -> dict[str, float]:
        """Return the seconds of the processor of each step that took a hundredth or more, and of all that is none."""
        taken = self.run(files, CONFIG, "--profile")["processor_seconds"]
        details = json.loads((self._folder / "run" / "run.json").read_text(encoding="utf-8"))
        steps = {step["step"]: step["processor_seconds"] for step in details["profile"]["steps"]}
        large = {name: seconds for name, seconds in steps.items() if seconds >= 0.01 * taken}
        small = sum(steps.values()) - sum(large.values())
        return {**large, "smaller steps": small, START_AND_END: taken - sum(steps.values())}


def compare(
    ours: Ours, files: Mapping[str, Path], peers: Mapping[str, Contender], repetitions: int
) -> dict[str, list[Any]]:
    """Run both in turns; returns the answers of each repetition.

    Args:
        ours: the program.
        files: folders of documents: ``few``, a single one; ``all`` and ``english``, and of both datatrove's part.
        peers: datatrove's processes, none where it cannot be installed.
        repetitions: how often each runs.
    """
    answers: dict[str, list[Any]] = {name: [] for name in (*files, *peers)}
    # Compiles what is not compiled yet, kernels of pairs as well, and builds the index of the suite.
    ours.run(files["part"])
    for _ in range(repetitions):
        for name, folder in files.items():
            answers[name].append(ours.run(folder))
        for name, peer in peers.items():
            answers[name].append(peer.ask("go"))
    return answers


def same_fates(ids: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> dict[str, int]:
    """Return how many documents both keep, both drop, or only one of them keeps."""
    one, other = set(ours), set(theirs)
    return {
        "documents": len(ids),
        "both_keep": len(one & other),
        "both_drop": len(set(ids) - one - other),
        "only_ours_keeps": len(one - other),
        "only_datatrove_keeps": len(other - one),
    }


def summary(answers: Mapping[str, list[Any]], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return times, rates and the ratio, without what belongs to single records."""
    figures: dict[str, Any] = {}
    for name, runs in answers.items():
        seconds = [run.get("processor_seconds", run.get("seconds")) for run in runs]
        elapsed = [run["elapsed"] if "elapsed" in run else run["seconds"] for run in runs]
        size = sizes[PARTS.get(name, name)]
        figures[name] = {
            "bytes": size,
            "processor_seconds": statistics.median(seconds),
            "spread": [min(seconds), max(seconds)],
            "elapsed": statistics.median(elapsed),
            "megabytes_per_second": size / statistics.median(seconds) / 1e6,
            "passed": runs[-1]["passed"],
            **{key: runs[-1][key] for key in ("steps", "records", "memory_bytes") if key in runs[-1]},
        }
    start_up = figures["few"]["processor_seconds"]
    for name in ("all", "english"):
        beyond = figures[name]["processor_seconds"] - start_up
        figures[name]["megabytes_per_second_beyond_start_up"] = sizes[name] / beyond / 1e6
    for name, peer, times in (("all", "datatrove", "times"), ("english", "datatrove_english", "times_english")):
        if peer in figures:
            theirs = figures[peer]["megabytes_per_second"]
            figures[times] = figures[name]["megabytes_per_second"] / theirs
            figures[f"{times}_beyond_start_up"] = figures[name]["megabytes_per_second_beyond_start_up"] / theirs
    return figures


def report(figures: Mapping[str, Any]) -> None:
    """Print the figures as tables."""
    on, speed = figures["machine"], figures["speed"]
    print(f"one core, load {on['load']:.1f} on {on['cores']} cores; {figures['items']:,} benchmark items")
    print(f"  {'':24}{'MB':>9}{'CPU s':>9}{'elapsed':>9}{'MB/s':>9}")
    for name, title in TITLES.items():
        if name in speed:
            row = speed[name]
            print(
                f"  {title:24}{row['bytes'] / 1e6:9.1f}{row['processor_seconds']:9.2f}{row['elapsed']:9.2f}"
                f"{row['megabytes_per_second']:9.2f}"
            )
    print(f"ours beyond start-up: {speed['all']['megabytes_per_second_beyond_start_up']:.1f} MB/s")
    if "times" not in speed:
        print(f"datatrove cannot be installed here: {figures['missing'][PEER]}")
        return
    print(
        f"ours is {speed['times']:.0f} times as fast as datatrove, start-up included "
        f"({speed['times_beyond_start_up']:.0f} beyond it); {speed['times_english']:.0f} times over English alone"
    )
    print(
        "ns of the processor per byte: "
        + ", ".join(f"{name} {seconds * 1e9 / speed['all']['bytes']:.1f}" for name, seconds in figures["steps"].items())
    )
    print("documents of the part left after each stage")
    for stage in STAGES:
        theirs = speed["datatrove"]["passed"].get(stage, figures["fates"]["kept_by_datatrove"])
        print(f"  {stage:24}{speed['part']['passed'][stage]:9,}{theirs:9,}")
    fates = figures["fates"]
    same = fates["both_keep"] + fates["both_drop"]
    print(
        f"same fate: {same:,} of {fates['documents']:,} documents; only ours keeps {fates['only_ours_keeps']:,}, only "
        f"datatrove {fates['only_datatrove_keeps']:,}"
    )


def missed(figures: Mapping[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    speed = figures["speed"]
    found = []
    if speed["all"]["megabytes_per_second"] < MEGABYTES_PER_SECOND:
        found.append(f"{speed['all']['megabytes_per_second']:.1f} MB/s, wanted are {MEGABYTES_PER_SECOND:.0f}")
    if speed.get("times", TIMES) < TIMES:
        found.append(f"datatrove: {speed['times']:.0f} times as fast, wanted are {TIMES:.0f}")
    if speed["few"]["elapsed"] > START_SECONDS:
        found.append(f"a single record takes {speed['few']['elapsed']:.1f} s, wanted are {START_SECONDS:.0f}")
    return found


def main() -> int:
    """Compare, print and say which targets are missed (exit code 3 if any)."""
    parser = argparse.ArgumentParser(description="Speed of the whole pipeline beside datatrove's.")
    parser.add_argument("--corpus", type=Path, help="folder of Parquet files with columns id and text")
    parser.add_argument("--suite", type=Path, help="suite file of benchmarks; by default the sample corpus's own")
    parser.add_argument("--peer-megabytes", type=float, default=5, help="text that datatrove gets (default 5)")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each runs (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for environments and outputs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    import pyarrow.parquet as pq

    from corpus.fasttext import default_model_path

    folder = arguments.folder.absolute() / "pipeline"
    folder.mkdir(parents=True, exist_ok=True)
    sample = sample_documents(arguments.folder.absolute())
    files = {name: folder / name for name in ("few", "all", "part", "english", "english_part")}
    _, texts = write_input(arguments.corpus or sample, files["all"])
    sizes = {
        "all": sum(len(text.encode()) for text in texts),
        "part": write_part(files["all"], files["part"], arguments.peer_megabytes),
        "few": write_part(files["all"], files["few"], 0),
    }
    suite = (arguments.suite or sample.parent / "suite" / "stdlib.yaml").absolute()
    ours = Ours(folder, suite)
    sizes["english"] = write_kept(files["all"], files["english"], ours.run(files["all"], INPUT)["kept"])
    sizes["english_part"] = write_part(files["english"], files["english_part"], arguments.peer_megabytes)
    items = write_items(suite, folder / "items.json")
    # Next to those of other comparisons.
    pythons, missing = environments(arguments.folder.absolute(), [PEER])
    commands = {
        name: [
            *(str(pythons[PEER]), "benchmarks/peers_pipeline.py", str(files[part]), str(folder / name)),
            *(default_model_path(), str(folder / "items.json")),
        ]
        for name, part in PARTS.items()
        if PEER in pythons
    }
    with contenders(commands, folder / "logs") as started:
        answers = compare(ours, files, started, arguments.repetitions)
    steps = ours.steps(files["all"])
    figures: dict[str, Any] = {
        "machine": machine(),
        "items": items,
        "corpus": {"records": len(texts), "bytes": sizes["all"]},
        "missing": missing,
        "speed": summary(answers, sizes),
        "steps": steps,
    }
    if PEER in answers:
        ids = pq.read_table(files["part"], columns=["id"])["id"].to_pylist()
        theirs = answers["datatrove"][-1]["kept"]
        figures["fates"] = {
            **same_fates(ids, answers["part"][-1]["kept"], theirs),
            "kept_by_datatrove": len(theirs),
        }
    report(figures)
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
