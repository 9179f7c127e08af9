"""``thresher suites list | check | fetch``: the benchmarks that suite files declare, and local copies of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.errors import UsageError
from pipelines.terminal import AddCommand, console_for, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from filters.suite_check import BenchmarkSummary
    from filters.suite_config import Benchmark
    from filters.suite_hub import HubCopy
    from filters.suites import BenchmarkFiles, Suite

LISTED = 10
"""Items of a benchmark that are listed for each reason; ``--json`` has all."""
SHOWN_HASH = 12
"""Hexadecimal digits of a hash that a table shows."""


def add(command: AddCommand) -> None:
    """Add the command with its three actions."""
    parser = command("suites", _suites, "List, check and fetch the benchmarks that suite files declare.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help="print as JSON")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        return sub

    listing = action("list", "List benchmarks, with their files where these are on this machine.")
    listing.add_argument("suites", nargs="*", metavar="FILE", help="suite files or globs; default the ready-made ones")
    check = action("check", "Read suites, and list the items that cannot be checked and those that stand twice.")
    check.add_argument("suites", nargs="+", metavar="FILE", help="suite files or globs")
    fetch = action("fetch", "Copy the hub data sets of benchmarks to this machine.")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; default all that name a hub data set")
    fetch.add_argument(
        "--suites", nargs="+", action="extend", metavar="FILE", help="suite files or globs; default the ready-made ones"
    )
    fetch.add_argument(
        "--into",
        metavar="DIR",
        help="folder for the copies and for a suite file fetched.yaml over them; default the user's cache, where "
        "suites with hub data sets look for them",
    )


def _suites(arguments: argparse.Namespace) -> None:
    {"list": _list, "check": _check, "fetch": _fetch}[arguments.action](arguments)


def ready_made() -> list[str]:
    """Return the suite files that are installed with Thresher."""
    import configs

    return sorted(str(path) for path in Path(configs.__path__[0], "suites").glob("*.yaml"))


def _list(arguments: argparse.Namespace) -> None:
    from filters.suite_check import list_suites
    from filters.suites import read_suites

    # Read one by one: two suites that declare the same benchmark are no fault here.
    summaries = list_suites(read_suites(arguments.suites or ready_made(), "suites list"))
    if arguments.json:
        write_json({"benchmarks": [asdict(summary) for summary in summaries]})
        return
    console = console_for()
    _print_table(
        console,
        ("benchmark", "suite", "data set", "licence"),
        ("files", "items"),
        [
            [
                summary.name,
                Path(summary.suite).name,
                summary.origin,
                summary.license or "",
                "" if summary.missing else f"{len(summary.files):,}",
                "" if summary.items is None else f"{summary.items:,}",
            ]
            for summary in summaries
        ],
    )
    missing = [summary for summary in summaries if summary.missing is not None]
    if missing:
        console.print(
            f"not on this machine, or not readable: {len(missing):,}; the first: {missing[0].missing}",
            markup=False,
            soft_wrap=True,
        )


def _check(arguments: argparse.Namespace) -> None:
    from filters.suite_check import check_suites
    from filters.suites import find_suites

    suites = find_suites(arguments.suites, "suites check")
    summaries = check_suites(suites)
    if arguments.json:
        write_json({"benchmarks": [{**asdict(summary), "warnings": summary.warnings} for summary in summaries]})
    else:
        _print_checked(summaries)


def _print_checked(summaries: Sequence[BenchmarkSummary]) -> None:
    console = console_for()
    _print_table(
        console,
        ("benchmark", "licence", "SHA-256"),
        ("items", "checkable", "exactly only", "not checkable", "duplicates"),
        [
            [
                summary.name,
                summary.license or "",
                (summary.digest or "")[:SHOWN_HASH],
                f"{summary.items:,}",
                f"{summary.long + summary.short:,}",
                f"{summary.short:,}",
                f"{len(summary.uncheckable):,}",
                f"{len(summary.duplicates):,}",
            ]
            for summary in summaries
        ],
    )
    for summary in summaries:
        reasons: dict[str, list[str]] = {}
        for name, reason in summary.uncheckable:
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            console.print(f"{summary.name}: {reason}: {_some(names)}", markup=False, soft_wrap=True)
        if summary.duplicates:
            names = [f"{name} (as {first})" for name, first in summary.duplicates]
            console.print(f"{summary.name}: reads the same as another: {_some(names)}", markup=False, soft_wrap=True)
        for warning in summary.warnings:
            console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED:,} more (all with --json)" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _fetch(arguments: argparse.Namespace) -> None:
    from filters.suite_check import check_files
    from filters.suite_hub import by_data_set, fetch
    from filters.suites import benchmark_files, noted, raise_noted, read_suites

    suites = read_suites(arguments.suites or ready_made(), "suites fetch")
    into = None if arguments.into is None else Path(arguments.into)
    problems: list[str] = []
    files: list[BenchmarkFiles] = []
    copies: dict[str, HubCopy] = {}
    for hub, benchmarks in by_data_set(_chosen(suites, arguments.names)).items():
        # One that asks for an account is no reason to go without the others.
        with noted(problems):
            copy = fetch(hub, benchmarks, into)
            files.extend(benchmark_files(benchmark, copy.folder) for benchmark in benchmarks)
            copies.update(dict.fromkeys((benchmark.config.name for benchmark in benchmarks), copy))
    summaries: list[BenchmarkSummary] = []
    suite = None
    with noted(problems):
        summaries = check_files(sorted(files, key=lambda found: found.config.name))
        suite = None if into is None or not files else _write_suite(into, files, copies)
    if arguments.json:
        entries = [{**asdict(summary), "commit": copies[summary.name].commit} for summary in summaries]
        write_json({"suite": suite, "benchmarks": entries})
    elif summaries:
        _print_fetched(summaries, copies, suite)
    raise_noted(problems)


def _print_fetched(summaries: Sequence[BenchmarkSummary], copies: Mapping[str, HubCopy], suite: str | None) -> None:
    console = console_for()
    _print_table(
        console,
        ("benchmark", "data set", "commit", "SHA-256"),
        ("files", "bytes", "items"),
        [
            [
                summary.name,
                summary.origin,
                copies[summary.name].commit[:SHOWN_HASH],
                (summary.digest or "")[:SHOWN_HASH],
                f"{len(summary.files):,}",
                f"{sum(file.bytes for file in summary.files):,}",
                f"{summary.items:,}",
            ]
            for summary in summaries
        ],
    )
    if suite is not None:
        console.print(f"a suite over these copies: {suite}", markup=False, soft_wrap=True)


def _chosen(suites: Sequence[Suite], names: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks of these names, or all, that have a hub data set. Raises UsageError."""
    declared = [benchmark for suite in suites for benchmark in suite.benchmarks if benchmark.config.hub is not None]
    known = sorted({benchmark.config.name for benchmark in declared})
    for name in names:
        if name not in known:
            from corpus.config_problems import nearest

            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known) or 'none'}"
            raise UsageError(f"suites fetch: no benchmark with a hub data set is called {name}; {hint}")
    if not declared:
        raise UsageError("suites fetch: the suites name no hub data set; give others with --suites")
    chosen = [benchmark for benchmark in declared if not names or benchmark.config.name in names]
    first: dict[str, Benchmark] = {}
    for benchmark in chosen:
        owner = first.setdefault(benchmark.config.name, benchmark)
        if owner is not benchmark:
            raise benchmark.problem("name", f"it is declared in {owner.places['name']} too; give one with --suites")
    return chosen


def _write_suite(into: Path, files: Sequence[BenchmarkFiles], copies: Mapping[str, HubCopy]) -> str:
    """Write a suite file over copies in a folder, so that the folder can be used without the hub; return its path."""
    from pipelines.yaml_writer import dump_yaml

    entries = []
    for found in files:
        folder = copies[found.config.name].folder.relative_to(into).as_posix()
        config = found.config.model_dump(mode="json", exclude={"hub"}, exclude_defaults=True)
        entries.append({**config, "files": [f"{folder}/{pattern}" for pattern in found.config.patterns]})
    commits = {f"#   {copy.hub.id} at {copy.hub.revision}: commit {copy.commit}\n": None for copy in copies.values()}
    path = into / "fetched.yaml"
    text = f"# Copies of hub data sets:\n{''.join(commits)}{dump_yaml({'benchmarks': entries})}"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}; name another --into") from None
    return str(path)


def _print_table(console: Console, texts: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
