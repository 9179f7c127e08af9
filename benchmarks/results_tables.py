"""Tables of figures in Markdown: one function for each benchmark, from what its JSON file holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.pipeline import TITLES

Figures = Any
Lines = list[str]


class Section(NamedTuple):
    """What the results say of one benchmark.

    Attributes:
        file: name of its JSON file, without the ending.
        title: of the section.
        lines: makes the Markdown of it.
    """

    file: str
    title: str
    lines: Callable[[Figures], Lines]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Lines:
    """Return a table, the first column to the left and the others to the right."""
    ruler = [":--", *["--:"] * (len(head) - 1)]
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ruler, *rows)]


def _load(figures: Figures) -> Lines:
    return [f"Load {figures['machine']['load']:.1f} on {figures['machine']['cores']} cores when it ended.", ""]


def whole_pipeline(figures: Figures) -> Lines:
    """Ours and datatrove's from reader to writer."""
    speed, fates = figures["speed"], figures.get("fates")
    lines = _load(figures) + table(
        ["one core", "MB", "processor s", "spread", "elapsed s", "MB/s"],
        [
            [
                title,
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['processor_seconds']:.2f}",
                "{:.2f} to {:.2f}".format(*row["spread"]),
                f"{row['elapsed']:.2f}",
                f"{row['megabytes_per_second']:.2f}",
            ]
            for name, title in TITLES.items()
            if (row := speed.get(name))
        ],
    )
    if fates is None:
        return [*lines, "", f"datatrove could not be installed: {' '.join(figures['missing'].values())}"]
    passed = speed["datatrove"]["passed"]
    same = fates["both_keep"] + fates["both_drop"]
    return [
        *lines,
        "",
        f"Ours is {speed['times']:.0f} times as fast, start-up included, {speed['times_beyond_start_up']:.0f} times "
        f"beyond it; {speed['times_english']:.0f} and {speed['times_english_beyond_start_up']:.0f} times over the "
        f"documents alone that the first stage keeps as English. Of {fates['documents']:,} documents {same:,} have "
        f"the same fate; {fates['only_ours_keeps']:,} are kept by ours only, {fates['only_datatrove_keeps']:,} by "
        "datatrove only. Left after each stage:",
        "",
        *table(
            ["stage", "ours", "datatrove"],
            [
                [stage, f"{left:,}", f"{passed.get(stage, fates['kept_by_datatrove']):,}"]
                for stage, left in speed["part"]["passed"].items()
                if stage in passed or stage == "near_duplicates"
            ],
        ),
        "",
        "Where ours spends its time, in a further run with `--profile`:",
        "",
        *table(
            ["step", "processor s", "ns a byte"],
            [
                [name, f"{seconds:.2f}", f"{seconds * 1e9 / speed['all']['bytes']:.1f}"]
                for name, seconds in figures["steps"].items()
            ],
        ),
    ]


def scaling(figures: Figures) -> Lines:
    """Cost by size, workers and kind of corpus."""
    head = ["", "MB", "seconds", "processor s", "MB/s", "memory GB", "largest process GB", "shuffled MB"]

    def rows(of: Iterable[Mapping[str, Any]]) -> list[list[str]]:
        return [
            [
                row["case"],
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['seconds']:.1f}",
                f"{row['processor_seconds']:.1f}",
                f"{row['bytes'] / row['seconds'] / 1e6:.1f}",
                f"{row['memory_bytes'] / 1e9:.2f}",
                f"{row['largest_process_bytes'] / 1e9:.2f}",
                f"{row['shuffled_bytes'] / 1e6:.1f}",
            ]
            for row in of
        ]

    lines = _load(figures) + table(head, rows(figures["sizes"]))
    titles = {
        "sources": "number of sources",
        "rules": "stages with rules",
        "copies": "share of near-copies",
        "characters": "characters of a document",
    }
    for name, of in figures["axes"].items():
        lines += ["", *table([titles[name], *head[1:]], rows(of))]
    ratios = ", ".join(f"{times:.2f} at {size} MB" for size, times in figures["summary"]["speed_up"].items())
    growth = figures["summary"]["per_gigabyte_largest_to_smallest"]
    return [
        *lines,
        "",
        f"Two workers to one: {ratios}. A byte of the largest corpus takes {growth:.2f} of one of the smallest. A run "
        f"over one document takes {figures['kept_waiting']['seconds']:.2f} s, a finished run again "
        f"{figures['again_seconds']:.2f} s.",
    ]


def copying(figures: Figures) -> Lines:
    """Exact duplicates beside DuckDB, Polars and a copy."""
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    lines = _load(figures)
    for place, tools in figures["places"].items():
        lines += table(
            [place, "seconds", "spread", "processor s", "MB/s", "memory GB", "records"],
            [
                [
                    name,
                    f"{row['seconds']:.2f}",
                    "{:.2f} to {:.2f}".format(*row["spread"]),
                    f"{row['processor_seconds']:.2f}",
                    f"{figures['bytes'] / row['seconds'] / 1e6:.1f}",
                    f"{row['memory_bytes'] / 1e9:.2f}",
                    f"{row['records']:,}",
                ]
                for name, row in tools.items()
            ],
        )
        lines.append("")
    return [*lines, f"{versions}. Start-up of ours: {figures['start_up']['seconds']:.2f} s."]


def end_to_end(figures: Figures) -> Lines:
    """Language, gopher_quality and exact_duplicates with one and two workers."""
    return table(
        ["MB", "two workers are", "one s", "MB/s", "GB", "two s", "MB/s", "GB", "times"],
        [
            [
                f"{row['megabytes']:.0f}",
                row["mode"],
                *(
                    cell
                    for one in (row["workers_1"], row["workers_2"])
                    for cell in (
                        f"{one['seconds']:.1f}",
                        f"{one['megabytes_per_second']:.1f}",
                        f"{one['memory_gigabytes']:.2f}",
                    )
                ),
                f"{row['speed_up']:.2f}",
            ]
            for row in figures
        ],
    )


def language(figures: Figures) -> Lines:
    """Inference beside fastText's bindings."""
    same = figures["agreement"]
    return [
        *table(
            ["one core", "texts/s", "MB/s", "slowest / fastest", "ours is times faster"],
            [
                [
                    row["version"] or name,
                    f"{row['texts_per_second']:,.0f}",
                    f"{row['megabytes_per_second']:.1f}",
                    f"{row['slowest_to_fastest']:.2f}",
                    f"{row['ours_is_times_faster']:.1f}",
                ]
                for name, row in figures["speed"]["contenders"].items()
            ],
        ),
        "",
        f"Of {same['texts']:,} whole texts {same['labels_different']:,} have another label than with fastText; scores "
        f"differ by at most {same['largest_score_difference']:.1e}.",
    ]


def rules(figures: Figures) -> Lines:
    """Stages with rules beside datatrove, dolma and data-juicer."""
    fast = figures["speed"]
    lines = _load(figures) + table(
        ["one core", "MB/s", "slowest / fastest", "ours is times faster"],
        [
            [
                name.replace("+", ", "),
                f"{fast['megabytes_per_second'][name]:.2f}",
                f"{max(values) / min(values):.2f}",
                f"{fast['times'][name]:,.0f}" if name in fast["times"] else "",
            ]
            for name, values in fast["seconds"].items()
        ],
    )
    for splitter, found in figures["agreement"].items():
        lines += [
            "",
            *table(
                [f"agreement with datatrove, {splitter}", "documents", "same verdict", "same reason"],
                [
                    [name, f"{row['documents']:,}", f"{row['same_verdict']:,}", f"{row['same_reason']:,}"]
                    for name, row in found.items()
                ],
            ),
        ]
    return lines + [f"\n{name} could not be installed: {reason}" for name, reason in fast["missing"].items()]


def near_duplicates(figures: Figures) -> Lines:
    """Near-duplicates beside datatrove, text-dedup, datasketch and rensa."""
    corpus, signatures = figures["corpus"], figures["signatures"]
    pairs = max(corpus["pairs"], 1)
    return [
        *_load(figures),
        f"{corpus['records']:,} records, {corpus['bytes'] / 1e6:.1f} MB, {corpus['pairs']:,} pairs at 0.8 or more.",
        "",
        *table(
            ["one core", "processor s", "MB/s", "ours is times faster", "both kept", "of those >= 0.9", "lost"],
            [
                [
                    name,
                    f"{tool['seconds']:.2f}",
                    f"{tool['megabytes_per_second']:.2f}",
                    f"{tool['ours_is_times_faster']:.1f}",
                    f"{tool['quality']['both_kept'] / pairs:.2%}",
                    f"{tool['quality']['both_kept_at_0.9']:,}",
                    f"{tool['quality']['removed_without_kept_similar']:,}",
                ]
                for name, tool in figures["tools"].items()
            ],
        ),
        "",
        f"Signatures of 128 values from text: {signatures['megabytes_per_second']:.1f} MB/s; "
        f"{signatures['same']} of {signatures['checked']} are those of datasketch. {figures['unproven']} removed "
        "records name a leader that is gone or not similar.",
        *(f"\n{name} could not be installed: {reason}" for name, reason in figures["missing"].items()),
    ]


def contamination(figures: Figures) -> Lines:
    """Recall, precision and speed on injected benchmark items."""
    columns = figures["columns"]
    lines = table(
        ["kind, words of the question", *columns],
        [
            [f"{kind}, {length}", f"{cell[0]:,.0f}", *(f"{value / cell[0]:.2%}" for value in cell[1:])]
            for kind, lengths in figures["found"].items()
            for length, cell in sorted(lengths.items())
        ],
    )
    precision = ", ".join(f"{name} {value:.4f}" for name, value in figures["precision"].items())
    speed = ", ".join(f"{name} {value:,.1f}" for name, value in figures["speed"].items())
    return [*lines, "", f"Precision: {precision}. Microseconds for each document, one core: {speed}."]


def presets(figures: Figures) -> Lines:
    """Records on which presets differ."""
    return table(
        ["stage", "what", "records"],
        [[stage, what, f"{count:,}"] for stage, counts in figures.items() for what, count in counts.items()],
    )


def scorers(figures: Figures) -> Lines:
    """Scoring beside a bare loop and transformers.pipeline."""
    return [
        *_load(figures),
        *table(
            ["one core", "records/s", "ours is times faster"],
            [
                [name, f"{rate:.1f}", f"{figures['times'][name]:.2f}" if name in figures["times"] else ""]
                for name, rate in figures["records_per_second"].items()
            ],
        ),
        "",
        f"Largest difference between scores: {figures['largest_difference']:.1e}.",
    ]


def gpu(figures: Figures) -> Lines:
    """Scoring on a GPU."""
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in figures["tokens_per_second"].items())
    return [f"{figures['gpu']}, {figures['dtype']}: tokens/s {rates}; ours is {figures['share']:.2f} of the passes."]


def selection(figures: Figures) -> Lines:
    """The exact selection of the duplication budget."""
    return table(
        ["copies", "groups", "processor s", "peak MB", "gathered MB", "within limits"],
        [
            [
                f"{row['records']:,}",
                f"{row['groups']:,}",
                f"{row['seconds']:.1f}",
                f"{row['peak_bytes'] / 1e6:.0f}",
                f"{row['gathered_bytes'] / 1e6:.1f}",
                "yes" if row["within_limits"] else "NO",
            ]
            for row in figures
        ],
    )
