"""What of the items of suites can be checked: ``thresher suites check``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from filters.contamination_build import LONG, SHORT, UNCHECKABLE, build_index
from filters.contamination_settings import ItemLengths
from filters.suites import BenchmarkSummary, Suite, all_files, list_suites, load_items


def check_suites(suites: Sequence[Suite], lengths: ItemLengths | None = None) -> list[BenchmarkSummary]:
    """Return the benchmarks of suites with counts of their items, by name.

    Raises:
        UsageError: files are missing or cannot be used; the message names suite, benchmark, file and row.
    """
    items = load_items(all_files(suites))
    index = build_index(items, lengths)
    summaries = []
    for summary in list_suites(suites):
        own = [item for item in items if item.benchmark == summary.name]
        numbers = [
            number
            for number, benchmark in enumerate(index.item_benchmark.tolist())
            if index.benchmarks[benchmark] == summary.name
        ]
        statuses = index.item_status[numbers].tolist()
        uncheckable = tuple(
            (index.item_id(number), UNCHECKABLE[status])
            for number, status in zip(numbers, statuses, strict=True)
            if status in UNCHECKABLE
        )
        summaries.append(
            replace(
                summary,
                items=len(own),
                long=statuses.count(LONG),
                short=statuses.count(SHORT),
                uncheckable=uncheckable,
                with_answer=sum(bool(item.answer) for item in own),
                with_choices=sum(bool(item.choices) for item in own),
                with_context=sum(bool(item.context) for item in own),
            )
        )
    return summaries
