"""What a run over 10 TB on 1,000 cores would take, from measured unit costs: ``benchmarks/SCALING.md``.

Nothing here was run at that size. Costs per byte come from ``benchmarks.scaling`` (one worker, the difference between
its largest and its smallest corpus), groups of keys from ``benchmarks.bounds``, with the partitions of 10 TB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.results_engines import largest_group
from benchmarks.results_tables import Lines, table
from corpus.planning import ITEM_BYTES, MAX_RANGES
from dedup.near_duplicates import NearDuplicatesConfig

CORPUS_BYTES = 10**13
CORES = 1000
# An assumption, not a measurement: what one of the cores sends and receives.
NETWORK_BYTES_PER_SECOND = 50e6
NOT_RUN = "not run"


@dataclass(frozen=True)
class UnitCosts:
    """What was measured.

    Attributes:
        start_seconds: seconds of the processor that do not grow with the corpus.
        seconds_per_byte: seconds of the processor for each byte of text beyond these.
        shuffled_per_byte: bytes shuffled for each byte of text.
        clustered_per_byte: records with near-duplicates for each byte of text.
        share_of_two: speed of two workers to twice that of one.
        memory_bytes: of one worker with its driver, at the smallest corpus.
    """

    start_seconds: float
    seconds_per_byte: float
    shuffled_per_byte: float
    clustered_per_byte: float
    share_of_two: float
    memory_bytes: int


def unit_costs(scaling: Mapping[str, Any]) -> UnitCosts:
    """Return the unit costs from the figures of ``benchmarks.scaling``. Raises SystemExit if it had one size only."""
    one = sorted((row for row in scaling["sizes"] if row["workers"] == 1), key=lambda row: row["bytes"])
    least, most = one[0], one[-1]
    grown = most["bytes"] - least["bytes"]
    if not grown:
        raise SystemExit(
            "scaling.json: one size only; costs per byte need two: run benchmarks.scaling --sizes with two"
        )
    per_byte = (most["processor_seconds"] - least["processor_seconds"]) / grown
    return UnitCosts(
        start_seconds=least["processor_seconds"] - per_byte * least["bytes"],
        seconds_per_byte=per_byte,
        shuffled_per_byte=most["shuffled_bytes"] / most["bytes"],
        clustered_per_byte=most["clustered_records"] / most["bytes"],
        share_of_two=list(scaling["summary"]["speed_up"].values())[-1] / 2,
        memory_bytes=least["memory_bytes"],
    )


def estimate(scaling: Mapping[str, Any] | None, bounds: Mapping[str, Any] | None) -> Lines:
    """Return the page, with *not run* for what rests on a benchmark that was not run."""
    lines = [
        "# An estimate for 10 TB on 1,000 cores",
        "",
        "Written by `python -m benchmarks.results` from the figures of `benchmarks.scaling` and `benchmarks.bounds`. "
        "It is arithmetic: no run of this size was made. Costs per byte are taken to stay what they are between the "
        "smallest and the largest corpus that was measured, on the machine that `RESULTS.md` names.",
        "",
        f"D = {CORPUS_BYTES / 1e12:.0f} TB of text, W = {CORES:,} cores with one worker each.",
        "",
    ]
    lines += _of_scaling(unit_costs(scaling)) if scaling else [f"Seconds, shuffle, memory: {NOT_RUN} (scaling)."]
    lines += ["", "## Largest key", ""]
    return [*lines, *(_of_bounds(bounds) if bounds else [f"{NOT_RUN} (bounds)"])]


def _of_scaling(costs: UnitCosts) -> Lines:
    compute = CORPUS_BYTES * costs.seconds_per_byte / CORES
    slowest = compute / costs.share_of_two
    shuffled = CORPUS_BYTES * costs.shuffled_per_byte
    network = shuffled / (CORES * NETWORK_BYTES_PER_SECOND)
    item = max(ITEM_BYTES, CORPUS_BYTES // MAX_RANGES)
    tail = item * costs.seconds_per_byte
    clustered = CORPUS_BYTES * costs.clustered_per_byte
    forest = NearDuplicatesConfig().max_forest_edges
    total = (costs.start_seconds + compute + tail + network, costs.start_seconds + slowest + tail + network)
    measured = table(
        ["measured", "value"],
        [
            ["f, start-up, processor", f"{costs.start_seconds:.2f} s"],
            [
                "c, processor time per byte",
                f"{costs.seconds_per_byte * 1e9:.1f} ns ({1e-6 / costs.seconds_per_byte:.1f} MB/s)",
            ],
            ["s, bytes shuffled per byte", f"{costs.shuffled_per_byte:.4f}"],
            ["q, records with near-duplicates per GB", f"{costs.clustered_per_byte * 1e9:,.0f}"],
            ["e, two workers to twice one", f"{costs.share_of_two:.2f}"],
            ["m, memory of one worker, driver included", f"{costs.memory_bytes / 1e9:.2f} GB"],
        ],
    )
    derived = table(
        ["derived", "formula", "value"],
        [
            ["compute, if cores do not disturb each other", "D c / W", _duration(compute)],
            ["compute, if they do as two on one machine did", "D c / (W e)", _duration(slowest)],
            ["a last item that starts when all others end", "I c", f"{_duration(tail)} (I = {item / 2**20:,.0f} MiB)"],
            ["shuffled in all", "D s", f"{shuffled / 1e12:.3f} TB"],
            ["shuffled by each worker", "D s / W", f"{shuffled / CORES / 1e9:.2f} GB"],
            [
                f"time on the network, at an assumed {NETWORK_BYTES_PER_SECOND / 1e6:.0f} MB/s a core",
                "D s / (W n)",
                _duration(network),
            ],
            ["whole run", "f + compute + I c + D s / (W n)", f"{_duration(total[0])} to {_duration(total[1])}"],
            ["records with near-duplicates", "D q", f"{clustered:,.0f}"],
        ],
    )
    rounds = (
        f"That is more than `max_forest_edges` ({forest:,}), so clusters are resolved by rounds, a job each; what "
        "these take was not measured and is not in the sum."
        if clustered > forest
        else f"That is within `max_forest_edges` ({forest:,}): one job."
    )
    memory = (
        "Memory of a worker is m and what the engine holds of a group (below); a worker keeps one batch and one item, "
        "which do not grow with D. m includes the driver, which on a cluster runs elsewhere."
    )
    return [*measured, "", *derived, "", rounds, "", memory]


def _of_bounds(bounds: Mapping[str, Any]) -> Lines:
    lines: Lines = []
    for scaled in bounds["at_scale"]:
        if scaled["bytes"] == CORPUS_BYTES:
            name, (size, values) = largest_group(scaled)
            lines += [
                f"The largest group of one key is that of {name}: {size:,} bytes in {values:,} values. It is the bytes "
                f"of all keys of {scaled['rows']:,} records, divided by the partitions that are planned for them. On "
                f"Flink the most heap of one group is {scaled['heap'] / 2**20:.0f} MiB.",
                "",
                *table(
                    ["step", "bytes of its largest group", "values"],
                    [[step, f"{group[0]:,}", f"{group[1]:,}"] for step, group in scaled["groups"].items()],
                ),
            ]
    return lines or [f"{NOT_RUN} for {CORPUS_BYTES / 1e12:.0f} TB"]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
