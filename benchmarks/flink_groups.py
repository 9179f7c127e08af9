"""The largest key groups of a run, on a Flink TaskManager with the heap of ``deploy/flink/config.yaml``.

Flink builds the values of one key on the heap, and then writes them as one record, which must fit into a sort buffer
(64 MB at 512 MB of managed memory; a larger group fails with "The record exceeds the maximum size of a sort buffer").
Each case groups so many values of so many bytes under one key. Its figure is the largest heap that a TaskManager had
after a collection during the case; heap that is not in use any more can be among it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.engines import collections
from pipelines.runners import choose_engine, connect
from tests.engines import clusters, libraries
from tests.engines.clusters import Cluster

# (values, bytes of each): a full group of packed keys; keys of 10 TB, one element for nearly each record; all batches
# of 1, 10 and 20 TB.
CASES = ((8, 1 << 20), (131_000, 34), (60_000, 42), (600_000, 42), (1_200_000, 42))


class Make(beam.DoFn):  # type: ignore[misc]
    """Anything -> so many (0, bytes)."""

    def __init__(self, values: int, size: int) -> None:
        self.values, self.size = values, size

    def process(self, element: bytes) -> Iterator[tuple[int, bytes]]:
        """Make the values of one key."""
        for number in range(self.values):
            yield 0, bytes([number % 251]) * self.size


class Count(beam.DoFn):  # type: ignore[misc]
    """(Key, its values) -> nothing; fails unless all are there."""

    def __init__(self, values: int, size: int) -> None:
        self.expected = values, values * size

    def process(self, element: tuple[int, Iterable[bytes]]) -> None:
        """Count the values and their bytes."""
        count = size = 0
        for value in element[1]:
            count, size = count + 1, size + len(value)
        if (count, size) != self.expected:
            raise ValueError(f"{count} values with {size} bytes arrived of {self.expected}")


def measure(cluster: Cluster, folder: Path, values: int, size: int) -> dict[str, Any]:
    """Group so many values of so many bytes; returns seconds and the TaskManagers' heap in bytes."""
    seen = {name: len(found) for name, found in collections(folder, cluster).items()}
    started = time.monotonic()
    engine = connect(choose_engine(cluster.options))
    with beam.Pipeline(options=PipelineOptions(list(engine.arguments))) as pipeline:
        made = beam.ParDo(Make(values, size)).with_output_types(tuple[int, bytes])
        _ = pipeline | beam.Impulse() | made | beam.GroupByKey() | beam.ParDo(Count(values, size))
    heap = [
        after
        for name, found in collections(folder, cluster).items()
        if name.startswith("taskmanager")
        for _, after in found[seen.get(name, 0) :]
    ]
    return {
        "values": values,
        "value_bytes": size,
        "seconds": time.monotonic() - started,
        "heap_bytes": max(heap, default=0),
    }


def main() -> None:
    """Measure all cases on one cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    _, reason = libraries.fetched("flink")
    if reason:
        print(f"left out: {reason}")
        return
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with clusters.flink(folder, machine=[f"-Xlog:gc:file={folder}/gc-%p.log"]) as cluster:
            for values, size in CASES:
                found = measure(cluster, folder, values, size)
                results.append(found)
                print(
                    f"{values:,} values of {size:,} bytes ({values * size / 2**20:.1f} MiB): {found['seconds']:.1f} s, "
                    f"heap {found['heap_bytes'] / 2**20:.0f} MiB",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
