"""What suites hold and what of it can be checked: ``thresher suites list`` and ``check``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from filters.contamination_build import LONG, SHORT, UNCHECKABLE, build_index
from filters.contamination_index import ContaminationIndex
from filters.contamination_settings import ItemLengths
from filters.contamination_tokens import tokens
from filters.suite_config import Benchmark
from filters.suite_items import BenchmarkItem, read_items
from filters.suites import (
    BenchmarkFiles,
    FileSummary,
    Suite,
    all_files,
    benchmark_files,
    content_digest,
    file_summary,
    load_items,
    noted,
)


@dataclass(frozen=True)
class BenchmarkSummary:
    """What ``thresher suites`` tells of a benchmark.

    Attributes:
        name, suite: of the benchmark.
        license: as the suite declares it.
        origin: ``local``, or id and revision of the hub data set.
        files: its local files; empty where none are there.
        missing: why it cannot be read, else None.
        digest: SHA-256 of its meaning and its files, None where these cannot be read.
        items: the number of items; None where they were not read.
        long, short: items that are found also with words changed, and exactly.
        uncheckable: (id, reason) of those that cannot be checked.
        duplicates: (id, id of the first item that reads the same).
        with_answer, with_choices, with_context: items that have these; 0 where the suite declares none.
        declared: which of answer, choices and context the suite declares.
    """

    name: str
    suite: str
    license: str | None
    origin: str
    files: tuple[FileSummary, ...] = ()
    missing: str | None = None
    digest: str | None = None
    items: int | None = None
    long: int = 0
    short: int = 0
    uncheckable: tuple[tuple[str, str], ...] = ()
    duplicates: tuple[tuple[str, str], ...] = ()
    with_answer: int = 0
    with_choices: int = 0
    with_context: int = 0
    declared: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What is odd about the items."""
        counts = {"answer": self.with_answer, "choices": self.with_choices, "context": self.with_context}
        return [
            f"{self.name}: the suite declares {name}, and no item has any; correct the name of the field"
            for name in self.declared
            if self.items and not counts[name]
        ]


def list_suites(suites: Sequence[Suite]) -> list[BenchmarkSummary]:
    """Return the benchmarks of suites with their local files and number of items, by name and suite."""
    summaries = []
    for benchmark in (benchmark for suite in suites for benchmark in suite.benchmarks):
        problems: list[str] = []
        with noted(problems):
            found = benchmark_files(benchmark)
            count = sum(1 for _ in read_items(benchmark, found.files))
            summaries.append(replace(_with_files(found), items=count))
        summaries += [replace(_declared(benchmark), missing=problem) for problem in problems]
    return sorted(summaries, key=lambda summary: (summary.name, summary.suite))


def check_suites(suites: Sequence[Suite], lengths: ItemLengths | None = None) -> list[BenchmarkSummary]:
    """Return the benchmarks of suites with counts of their items, by name.

    Raises:
        UsageError: files are missing or cannot be used; a line for each benchmark names suite, line, file and row.
    """
    return check_files(all_files(suites), lengths)


def check_files(benchmarks: Sequence[BenchmarkFiles], lengths: ItemLengths | None = None) -> list[BenchmarkSummary]:
    """Return what ``check_suites`` tells of benchmarks whose files were found. Raises UsageError."""
    items = load_items(benchmarks)
    index = build_index(items, lengths)
    of_benchmark: dict[str, list[BenchmarkItem]] = {found.config.name: [] for found in benchmarks}
    for item in items:
        of_benchmark[item.benchmark].append(item)
    return [_checked(_with_files(found), of_benchmark[found.config.name], index) for found in benchmarks]


def item_statuses(index: ContaminationIndex, benchmark: str) -> dict[str, int]:
    """Return the status of each item of a benchmark by its id, in the order of the index."""
    if benchmark not in index.benchmarks:
        return {}
    numbers = (index.item_benchmark == index.benchmarks.index(benchmark)).nonzero()[0].tolist()
    return {index.item_id(number): int(index.item_status[number]) for number in numbers}


def _declared(benchmark: Benchmark) -> BenchmarkSummary:
    config = benchmark.config
    origin = "local" if config.hub is None else f"{config.hub.id}@{config.hub.revision}"
    fields = tuple(name for name in ("answer", "choices", "context") if getattr(config, name) is not None)
    return BenchmarkSummary(config.name, str(benchmark.suite), config.license, origin, declared=fields)


def _with_files(found: BenchmarkFiles) -> BenchmarkSummary:
    files = tuple(file_summary(name, path) for name, path in found.files)
    return replace(_declared(found.benchmark), files=files, digest=content_digest([found]))


def _checked(summary: BenchmarkSummary, items: Sequence[BenchmarkItem], index: ContaminationIndex) -> BenchmarkSummary:
    statuses = item_statuses(index, summary.name)
    values = list(statuses.values())
    return replace(
        summary,
        items=len(items),
        long=values.count(LONG),
        short=values.count(SHORT),
        uncheckable=tuple((name, UNCHECKABLE[status]) for name, status in statuses.items() if status in UNCHECKABLE),
        duplicates=tuple(_duplicates(items)),
        with_answer=sum(bool(item.answer) for item in items),
        with_choices=sum(bool(item.choices) for item in items),
        with_context=sum(bool(item.context) for item in items),
    )


def _duplicates(items: Sequence[BenchmarkItem]) -> list[tuple[str, str]]:
    """Return (id, id of the first that reads the same) of items whose tokens are those of an earlier item."""
    first: dict[tuple[tuple[str, ...], ...], str] = {}
    found = []
    for item in items:
        texts = (*item.questions, item.answer, *item.choices, item.context)
        key = tuple(tuple(tokens(text)) for text in texts)
        if any(key) and first.setdefault(key, item.id) != item.id:
            found.append((item.id, first[key]))
    return found
