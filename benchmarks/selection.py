"""The exact selection of the duplication budget over generated copies: processor time, memory, bytes of each step.

    python -m benchmarks.selection [--records 10000000 100000000] [--groups 1 10000] [--json FILE]

Each measurement is a process of its own that does what one worker of the graph does when it gets every partition, one
after the other: it packs nothing that it keeps, and what it holds is one partition and the message of a step. The
partitions are generated anew for each step, from their number, as packed arrays like those that cross a shuffle: copy
index, one priority (a length), content hash, record_id of 20 bytes, group, units in characters. Generating is not
timed, but its memory counts in the peak (the largest resident set of the process, with interpreter and libraries, whose
own size is given beside it).

Every group may keep a quarter of the units of its copies. Checked at the end, by sums over all partitions: each group
keeps no more than its limit, and its unused room is smaller than the largest unit.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpus import selection
from corpus.selection_entries import Entries
from corpus.selection_keys import RecordIds

PARTITION = 1 << 16
LARGEST_UNIT = 5000
WIDTH = 4
# Messages that one call of a merge takes in.
FAN_IN = 16


def generate(partition: int, records: int, groups: int) -> bytes:
    """Return the packed copies of one partition."""
    generator = np.random.default_rng([7, partition])
    size = min(PARTITION, records - partition * PARTITION)
    row_ids = partition * PARTITION + np.arange(size)
    lengths = np.minimum(20 + generator.exponential(800, size), LARGEST_UNIT).astype(np.int64)
    words = np.empty((size, WIDTH), np.uint64)
    words[:, 0] = np.minimum(generator.pareto(1.0, size), 1e6).astype(np.uint64) + np.uint64(1)
    words[:, 1] = np.uint64(0xFFFFFFFFFFFFFFFF) - lengths.astype(np.uint64)
    words[:, 2:] = generator.integers(0, 2**64, (size, 2), np.uint64, endpoint=False)
    digits = np.full((size, 20), 48, np.uint8)
    for place in range(10):
        digits[:, 19 - place] += (row_ids // 10**place % 10).astype(np.uint8)
    ids = RecordIds(np.arange(size + 1) * 20, digits.reshape(-1))
    numbers = (generator.random(size) ** 3 * groups).astype(np.int64) * 7919 - 10**6
    return Entries(numbers, words, lengths, row_ids, ids).pack()


class Meter:
    """Seconds of processor time and bytes per step."""

    def __init__(self, partitions: int, make: Callable[[int], bytes]) -> None:
        """Take the number of partitions and what makes one."""
        self.partitions, self.make = partitions, make
        self.steps: list[dict[str, Any]] = []
        self.largest_partition = 0

    def over_partitions(self, step: str, work: Callable[[bytes], Any]) -> Iterator[Any]:
        """Yield the result of a step for each partition."""
        seconds, messages = 0.0, 0
        for partition in range(self.partitions):
            packed = self.make(partition)
            self.largest_partition = max(self.largest_partition, len(packed))
            begin = time.process_time()
            result = work(packed)
            seconds += time.process_time() - begin
            messages += len(result) if isinstance(result, bytes) else 0
            yield result
        self.steps.append({"step": step, "seconds": seconds, "bytes": messages})

    def merged(self, step: str, work: Callable[[bytes], bytes], merge: Callable[[Iterable[bytes]], bytes]) -> bytes:
        """Return the sum of a step's results over all partitions, of which so many are held at a time."""
        held: list[bytes] = []
        seconds = 0.0
        for part in self.over_partitions(step, work):
            held.append(part)
            if len(held) == FAN_IN:
                begin = time.process_time()
                held = [merge(held)]
                seconds += time.process_time() - begin
        result = merge(held)
        self.steps.append({"step": "+ merge", "seconds": seconds})
        return result

    def alone(self, step: str, work: Callable[[], bytes]) -> bytes:
        """Return the result of a step that is done once; its size is that of a side input."""
        begin = time.process_time()
        result = work()
        self.steps.append({"step": step, "seconds": time.process_time() - begin, "side_input_bytes": len(result)})
        return result


def narrowed(meter: Meter, search: bytes) -> bytes:
    """Return the search after one round."""
    samples = meter.merged(
        "sample", lambda part: selection.sample(part, search), lambda parts: selection.merge_samples(parts, WIDTH)
    )
    splitters = meter.alone("split", lambda: selection.split(search, samples))
    counts = meter.merged("count", lambda part: selection.count(part, splitters), selection.merge_totals)
    return meter.alone("narrow", lambda: selection.narrow(search, splitters, counts))


def read_shard(path: Path) -> Iterator[bytes]:
    """Yield what was appended to a shard's file."""
    with open(path, "rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def measure(records: int, groups: int) -> dict[str, Any]:
    """Run one selection in this process."""
    meter = Meter(-(-records // PARTITION), lambda partition: generate(partition, records, groups))
    # Libraries are loaded before anything is timed.
    selection.select(
        generate(0, 1, 1), selection.finish(selection.start(b"\0" * 24, *(np.zeros(0, np.int64),) * 2, WIDTH), [])
    )

    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    all_totals = meter.merged("totals", selection.totals, selection.merge_totals)
    numbers, _, weights = selection.unpack_totals(all_totals)
    limits = weights // 4
    search = meter.alone("start", lambda: selection.start(all_totals, numbers, limits, WIDTH))
    rounds = selection.rounds_needed(records)
    for _ in range(rounds):
        search = narrowed(meter, search)
    left = int(selection.Search.unpack(search).counts.sum())
    gathered_bytes = largest_shard = 0
    with tempfile.TemporaryDirectory() as folder:
        # An engine holds the shards; here the disk does.
        for gathered in meter.over_partitions("gather", lambda part: [*selection.gather(part, search)]):
            for shard, packed in gathered:
                gathered_bytes += len(packed)
                with open(Path(folder) / str(shard), "ab") as file:
                    pickle.dump(packed, file)
        resolved, seconds = [], 0.0
        for path in sorted(Path(folder).iterdir()):
            largest_shard = max(largest_shard, path.stat().st_size)
            packed_entries = [*read_shard(path)]
            begin = time.process_time()
            resolved.append(selection.resolve(packed_entries, search))
            seconds += time.process_time() - begin
    meter.steps.append({"step": "resolve", "seconds": seconds})
    chosen = meter.alone("finish", lambda: selection.finish(search, resolved))

    used = np.zeros(len(numbers), np.int64)
    kept = 0

    def keep(packed: bytes) -> tuple[bytes, np.ndarray[Any, Any]]:
        return packed, selection.select(packed, chosen)

    for packed, mask in meter.over_partitions("select", keep):
        part = Entries.unpack(packed)
        np.add.at(used, np.searchsorted(numbers, part.groups[mask]), part.weights[mask])
        kept += int(mask.sum())
    exact = bool((used <= limits).all() and (limits - used < LARGEST_UNIT).all())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "records": records,
        "groups": len(numbers),
        "rounds": rounds,
        "kept": kept,
        "within_limits": exact,
        "left_after_rounds": left,
        "gathered_bytes": gathered_bytes,
        "largest_shard_bytes": largest_shard,
        "largest_partition_bytes": meter.largest_partition,
        "seconds": sum(step["seconds"] for step in meter.steps),
        "baseline_bytes": baseline * unit,
        "peak_bytes": peak * unit,
        "steps": meter.steps,
    }


def report(figures: dict[str, Any]) -> None:
    """Print one measurement."""
    print(
        f"{figures['records']:,} copies, {figures['groups']:,} groups: {figures['seconds']:.1f} s CPU, peak "
        f"{figures['peak_bytes'] / 1e6:.0f} MB (libraries {figures['baseline_bytes'] / 1e6:.0f}), kept "
        f"{figures['kept']:,}, within limits: {figures['within_limits']}"
    )
    print(
        f"  {figures['rounds']} rounds left {figures['left_after_rounds']:,} records, gathered "
        f"{figures['gathered_bytes'] / 1e6:.1f} MB, largest shard {figures['largest_shard_bytes'] / 1e6:.1f} MB, "
        f"largest partition {figures['largest_partition_bytes'] / 1e6:.1f} MB"
    )
    for step in figures["steps"]:
        sizes = [
            f"{step[key] / 1e6:8.2f} MB {name}"
            for key, name in (("bytes", "of messages"), ("side_input_bytes", "side input"))
            if step.get(key)
        ]
        print(f"  {step['step']:10}{step['seconds']:8.2f} s {' '.join(sizes)}")


def main() -> int:
    """Measure each combination in a process of its own; exit code 3 if a limit or 200 MB are exceeded."""
    parser = argparse.ArgumentParser(description="Exact selection over generated copies.")
    parser.add_argument("--records", type=int, nargs="+", default=[10_000_000], help="numbers of copies")
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 10_000], help="numbers of groups")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.records[0], arguments.groups[0])))
        return 0
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found = []
    for records in arguments.records:
        for groups in arguments.groups:
            command = [sys.executable, "-m", "benchmarks.selection", "--one"]
            done = subprocess.run(
                [*command, "--records", str(records), "--groups", str(groups)], stdout=subprocess.PIPE, check=True
            )
            found.append(json.loads(done.stdout))
            report(found[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    met = all(figures["within_limits"] and figures["peak_bytes"] <= 200e6 for figures in found)
    print("targets met" if met else "targets missed")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
