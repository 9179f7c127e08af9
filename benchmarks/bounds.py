"""The largest element, key group and side input of a run, in bytes: what an engine has to hold on its heap at once.

The run is a local one in this process, and is watched from outside: the steps of the pipeline are wrapped, and what
goes in and out is measured as it would be sent. Two sizes tell what grows. For a corpus of 10 TB the same documents run
once more as if they were a part of it, that is, with keys in as many partitions: a group then has the bytes of all
keys, times how much larger the corpus is, divided by the partitions.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam import pvalue

from benchmarks.documents import FILE_BYTES, write_documents
from corpus.batch import DocumentBatch, encode
from corpus.stages import known_stages
from pipelines import duplicate_clusters, duplicates, execution
from pipelines.config import load_config

CONFIG = """\
input: {{files: ["{files}/*.parquet"], id_column: id, source_column: source}}
output: {output}
stages:
  - language: {{keep: [en], minimum_score: 0.65}}
  - gopher_quality
{corpus_stages}
"""
CORPUS_STAGES = ("exact_duplicates", "near_duplicates")
# What Flink's heap takes for a group, from ``benchmarks.flink_groups``, rounded up: for its values of any size, or, if
# that is more, for each of many small ones.
HEAP_PER_BYTE = 10
HEAP_PER_VALUE = 350
LARGE_CORPORA = (10**12, 10**13)
KEY_BYTES = 8


@dataclass
class Sizes:
    """What was seen of a step.

    Attributes:
        element: bytes of the largest element that leaves it.
        group: bytes of the values in the largest group that enters it.
        values: number of values in the group of the most.
        side_input: bytes of its largest side input.
        groups: number of groups that entered it.
        all_bytes: bytes of the values in all groups.
        all_values: number of values in all groups.
        largest_key: the largest of the groups' keys; of keys that are numbers of partitions, one less than these.
    """

    element: int = 0
    group: int = 0
    values: int = 0
    side_input: int = 0
    groups: int = 0
    all_bytes: int = 0
    all_values: int = 0
    largest_key: int = 0

    def enter(self, key: int, values: list[Any]) -> None:
        """Take in a group."""
        size = sum(map(sent, values))
        self.group, self.values = max(self.group, size), max(self.values, len(values))
        self.groups += 1
        self.all_bytes += size
        self.all_values += len(values)
        self.largest_key = max(self.largest_key, key)

    def scaled(self, times: float) -> tuple[int, int]:
        """Return bytes and values of a group in a corpus that is so many times as large, with partitions as here.

        Where keys count the elements, one for each, more elements make more groups.
        """
        if self.groups == self.all_values == self.largest_key + 1:
            return self.group, self.values
        share = times / (self.largest_key + 1)
        return max(self.group, int(self.all_bytes * share)), max(self.values, int(self.all_values * share))


def sent(value: Any) -> int:
    """Return the bytes of an element between two workers: batches as Arrow IPC, numbers with 8 bytes."""
    if isinstance(value, pvalue.TaggedOutput):
        return sent(value.value)
    if isinstance(value, DocumentBatch):
        return len(encode(value))
    if isinstance(value, Mapping):
        return sum(map(sent, value.items()))
    if isinstance(value, (tuple, list)):
        return sum(map(sent, value))
    return len(value) if isinstance(value, (bytes, str)) else KEY_BYTES


def _ours(base: Any) -> Iterator[Any]:
    """Yield all classes of the pipeline below a class of Beam's."""
    for each in base.__subclasses__():
        if each.__module__.startswith("pipelines."):
            yield each
        yield from _ours(each)


def watch() -> dict[str, Sizes]:
    """Wrap all steps of the pipeline in this process; returns where the sizes of later runs go, by step."""
    seen: dict[str, Sizes] = defaultdict(Sizes)
    importlib.import_module("pipelines.graph")
    for step in set(_ours(beam.DoFn)):
        if "process" in vars(step):
            step.process = _watched(step.process, seen)
    for combine in set(_ours(beam.CombineFn)):
        if "merge_accumulators" in vars(combine):
            combine.merge_accumulators = _merging(combine.merge_accumulators, seen)
    return seen


def _watched(process: Callable[..., Any], seen: dict[str, Sizes]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(process)
    def watched(self: Any, element: Any, *side_inputs: Any, **named: Any) -> Iterator[Any]:
        sizes = seen[f"{type(self).__name__} {getattr(self, 'name', getattr(self, 'number', ''))}".rstrip()]
        if isinstance(element, tuple) and isinstance(element[0], int) and not isinstance(element[1], (bytes, int)):
            values = list(element[1])
            element = element[0], values
            sizes.enter(element[0], values)
        for value in (*side_inputs, *named.values()):
            sizes.side_input = max(sizes.side_input, sent(value))
        for output in process(self, element, *side_inputs, **named) or ():
            sizes.element = max(sizes.element, sent(output))
            yield output

    return watched


def _merging(merge: Callable[..., Any], seen: dict[str, Sizes]) -> Callable[..., Any]:
    @functools.wraps(merge)
    def merging(self: Any, accumulators: Any) -> Any:
        merged = merge(self, accumulators)
        sizes = seen[type(self).__name__]
        sizes.element = max(sizes.element, sent(merged))
        return merged

    return merging


def measure(folder: Path, megabytes: int, seen: dict[str, Sizes], planned_rows: int | None = None) -> dict[str, Any]:
    """Run over so many megabytes of documents and return what was seen.

    Args:
        folder: of the benchmarks; the run folder stays below it.
        seen: what ``watch`` gave.
        planned_rows: of a larger corpus that the documents are taken to be a part of.
    """
    size = write_documents(folder, megabytes)
    output = folder / "bounds"
    shutil.rmtree(output, ignore_errors=True)
    config = folder / "bounds.yaml"
    corpus_stages = "\n".join(f"  - {name}" for name in CORPUS_STAGES if name in known_stages())
    files = folder / f"documents-{megabytes}"
    config.write_text(CONFIG.format(files=files, output=output, corpus_stages=corpus_stages))
    seen.clear()
    with ExitStack() as stack:
        if planned_rows is not None:
            stack.enter_context(mock.patch.object(execution, "planned_rows", return_value=planned_rows))
            # Duplicate stages count the records that enter.
            for module in (duplicates, duplicate_clusters):
                stack.enter_context(mock.patch.object(module, "records_in", return_value=planned_rows))
        run = execution.execute(load_config(config), ["--direct_num_workers=1"])
    return {"bytes": size, "rows": run.report["records"]["read"], "steps": {name: seen[name] for name in sorted(seen)}}


def at_scale(folder: Path, megabytes: int, seen: dict[str, Sizes], rows: int, corpus_bytes: int) -> dict[str, Any]:
    """Return (bytes, values) of the largest group of each step for a corpus of so many bytes of such documents."""
    found = measure(folder, megabytes, seen, rows)
    times = corpus_bytes / found["bytes"]
    groups = {name: sizes.scaled(times) for name, sizes in found["steps"].items() if sizes.groups}
    heap = max(max(HEAP_PER_BYTE * size, HEAP_PER_VALUE * values) for size, values in groups.values())
    return {"bytes": corpus_bytes, "rows": rows, "groups": groups, "heap": heap}


def main() -> None:
    """Measure two sizes, and give the group sizes of larger corpora."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.megabytes[-1] * 1_000_000 <= FILE_BYTES:
        # Keys of batches are told from those of partitions by the items in them: one item has keys like the latter.
        parser.error(f"--megabytes: the last must be more than one file of {FILE_BYTES / 1e6:.0f} MB")
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    seen = watch()
    results: dict[str, Any] = {"measured": [], "at_scale": []}
    for megabytes in arguments.megabytes:
        found = measure(folder, megabytes, seen)
        results["measured"].append(found)
        print(f"{found['bytes'] / 1e6:.0f} MB, {found['rows']:,} records")
        for name, sizes in found["steps"].items():
            print(
                f"  {name:36} element {sizes.element:12,}  group {sizes.group:11,} in up to {sizes.values:6,} values"
                f"  side input {sizes.side_input:6,}"
            )
    found = results["measured"][-1]
    for corpus_bytes in LARGE_CORPORA:
        rows = found["rows"] * corpus_bytes // found["bytes"]
        scaled = at_scale(folder, arguments.megabytes[-1], seen, rows, corpus_bytes)
        results["at_scale"].append(scaled)
        heap = scaled["heap"] / 2**20
        print(f"{corpus_bytes / 1e12:.0f} TB, {rows:,} records: {heap:.0f} MiB of heap for the largest group")
        for name, (size, values) in scaled["groups"].items():
            print(f"  {name:36} group {size:12,} in {values:10,} values")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2, default=asdict))


if __name__ == "__main__":
    main()
