"""Tables of figures in Markdown: engines, bounds, and what happens when parts fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.results_tables import Figures, Lines, table


def engines(figures: Figures) -> Lines:
    """Local workers, Flink and Spark over the same documents."""
    return [
        f"{figures['bytes'] / 1e6:.0f} MB of text.",
        "",
        *table(
            ["engine", "workers", "seconds", "MB/s a worker", "of local", "start-up s", "Python MB", "manifest"],
            [
                [
                    name,
                    row["workers"],
                    f"{row['seconds']:.1f}",
                    f"{row['rate_per_worker'] / 1e6:.1f}",
                    f"{row['relative_to_local']:.0%}",
                    f"{row['start_up_seconds']:+.1f}",
                    f"{row['python_bytes'] / 1e6:.0f}",
                    "the same" if row["same_manifest"] else "ANOTHER",
                ]
                for name, row in figures["engines"].items()
            ],
        ),
    ]


def bounds(figures: Figures) -> Lines:
    """Largest elements, groups and side inputs."""
    lines: Lines = []
    for found in figures["measured"]:
        lines += [
            f"{found['bytes'] / 1e6:.0f} MB, {found['rows']:,} records:",
            "",
            *table(
                ["step", "largest element", "largest group", "in values", "side input"],
                [
                    [
                        name,
                        f"{sizes['element']:,}",
                        f"{sizes['group']:,}",
                        f"{sizes['values']:,}",
                        f"{sizes['side_input']:,}",
                    ]
                    for name, sizes in found["steps"].items()
                ],
            ),
            "",
        ]
    for scaled in figures["at_scale"]:
        name, (size, values) = largest_group(scaled)
        lines += [
            f"Keys as in {scaled['bytes'] / 1e12:.0f} TB: the largest group is that of {name}, {size:,} bytes in "
            f"{values:,} values; the most heap of a group on Flink is {scaled['heap'] / 2**20:.0f} MiB.",
            "",
        ]
    return lines


def largest_group(scaled: Any) -> tuple[str, Sequence[int]]:
    """Return the step with the largest group and its (bytes, values), from what ``benchmarks.bounds`` scaled."""
    name = max(scaled["groups"], key=lambda step: scaled["groups"][step][0])
    return name, scaled["groups"][name]


def flink_groups(figures: Figures) -> Lines:
    """The largest key groups on Flink."""
    return table(
        ["values", "bytes of each", "seconds", "heap MiB"],
        [
            [
                f"{row['values']:,}",
                f"{row['value_bytes']:,}",
                f"{row['seconds']:.1f}",
                f"{row['heap_bytes'] / 2**20:.0f}",
            ]
            for row in figures
        ],
    )


def kills(figures: Figures) -> Lines:
    """Runs that are killed and go on."""
    found = figures["kills"]
    whole = sum(not kill["problems"] for kill in found)
    return [f"{len(found)} runs were killed; {whole} went on to the same files with nothing left over."]


def malformed_lines(figures: Figures) -> Lines:
    """Reading of malformed lines."""
    return [
        f"{figures['malformed']:,} malformed lines among {figures['good']:,} good ones: "
        f"{'every line is accounted for' if figures['whole'] else 'LINES ARE LOST'}. "
        "Speed to that of good lines alone: "
        + ", ".join(f"{ratio:.2f} ({name.replace('_', ' ')})" for name, ratio in figures["ratios"].items())
        + "."
    ]
