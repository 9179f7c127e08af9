"""``thresher contamination``: which items of benchmarks a data set holds, without a config."""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from corpus.errors import CheckFailedError, UsageError
from pipelines.terminal import AddCommand, console_for, write_json

STAGE = "contamination"
LISTED_IDS = 20
"""Ids of a benchmark that the table shows; ``--json`` and ``report.json`` have all."""


def add(command: AddCommand) -> None:
    """Add the command."""
    parser = command(STAGE, _contamination, "Report which items of benchmarks a data set holds; exit code 3 for any.")
    parser.epilog = (
        "It runs the stage contamination with the action flag. Without --output the run folder is a temporary one, "
        "about as large as the data set. Options that are not listed go to Beam, such as --direct_num_workers."
    )
    parser.set_defaults(takes_rest=True)
    parser.add_argument("corpus", nargs="+", metavar="CORPUS", help="files, folders or globs: Parquet, JSONL, text")
    parser.add_argument(
        "--suites", nargs="+", action="extend", required=True, metavar="FILE", help="suite files or globs"
    )
    columns = parser.add_argument_group("columns", "by default those with the usual names")
    columns.add_argument("--text-column", metavar="NAME", help="the text of a document")
    columns.add_argument("--prompt-column", metavar="NAME", help="the prompt of a pair")
    columns.add_argument("--response-column", metavar="NAME", help="the response of a pair")
    columns.add_argument("--messages-column", metavar="NAME", help="the messages of a chat")
    columns.add_argument("--id-column", metavar="NAME", help="ids of the records, for evidence/")
    columns.add_argument("--source-column", metavar="NAME", help="sources of the records, by which boilerplate is told")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, as contamination.threshold=0.7",
    )
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--limit", type=int, metavar="N", help="read the first N records only")
    some.add_argument("--sample", type=float, metavar="FRACTION", help="read this share of the records, by hash")
    parser.add_argument("--output", metavar="DIR", help="keep the run folder, with evidence/ and report.json")
    parser.add_argument("--overwrite", action="store_true", help="replace a run that is in DIR")
    parser.add_argument("--json", action="store_true", help="print as JSON, with the ids of all items found")


def _contamination(arguments: argparse.Namespace) -> None:
    with _run_folder(arguments.output) as folder:
        report, warnings = _run(arguments, folder)
    benchmarks: Mapping[str, Any] = report[STAGE][STAGE]
    if arguments.json:
        write_json({"records": report["records"], "benchmarks": benchmarks, "warnings": warnings})
    else:
        _print(report, warnings)
    if any(entry["found"] for entry in benchmarks.values()):
        counts = ", ".join(f"{name} {entry['found']:,}" for name, entry in benchmarks.items() if entry["found"])
        raise CheckFailedError(
            f"items of benchmarks are in the data set: {counts}; leave these items out of an evaluation, or drop the "
            "records with the stage contamination"
        )


def _run(arguments: argparse.Namespace, folder: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the report of a run in the folder, and its warnings. Raises UsageError, ThresherError."""
    from pipelines.config import config_from_mapping
    from pipelines.execution import execute

    others = ("id_column", "source_column", "limit", "sample")
    given = {name: getattr(arguments, name) for name in others if getattr(arguments, name) is not None}
    config = {
        "input": {"files": arguments.corpus, **_text_columns(arguments), **given},
        "output": folder,
        "stages": [{STAGE: {"suites": arguments.suites, "action": "flag"}}],
    }
    run = execute(
        config_from_mapping(config, arguments.sets),
        arguments.rest,
        overwrite=arguments.overwrite,
        console=console_for(stderr=True),
    )
    return run.report, list(run.details.get("warnings", []))


def _text_columns(arguments: argparse.Namespace) -> dict[str, str]:
    names = ("text_column", "prompt_column", "response_column", "messages_column")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if given:
        return given
    from corpus.text_columns import guess_text_columns

    try:
        return guess_text_columns(arguments.corpus)
    except UsageError as error:
        raise UsageError(
            f"{error}; the options are --text-column, --prompt-column with --response-column, --messages-column"
        ) from None


def _print(report: Mapping[str, Any], warnings: list[str]) -> None:
    from reports.contamination import print_contamination

    console = console_for()
    print_contamination(report[STAGE], console)
    for name, entry in report[STAGE][STAGE].items():
        ids = entry["ids"]
        more = f" and {len(ids) - LISTED_IDS:,} more (all with --json)" if len(ids) > LISTED_IDS else ""
        if ids:
            console.print(f"{name}: {', '.join(ids[:LISTED_IDS])}{more}", markup=False, soft_wrap=True)
    records = report["records"]
    searched = next(stage["entered"] for stage in report["stages"] if stage["name"] == STAGE)
    console.print(f"{searched:,} of {records['read']:,} records were searched", markup=False)
    if records["dead"]:
        warnings = [*warnings, f"{records['dead']:,} records could not be read, and were not searched"]
    if report["files_failed"]:
        warnings = [*warnings, f"{report['files_failed']:,} files could not be read to their end"]
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


@contextmanager
def _run_folder(output: str | None) -> Iterator[str]:
    """Give the run folder: that of the user, or a temporary one, removed also where the command is interrupted."""
    if output is not None:
        yield output
        return
    folder = tempfile.mkdtemp(prefix="thresher-contamination-")
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler

                def leave(number: int, frame: Any, handler: Any = handler) -> None:
                    _remove_while_it_is_written(Path(folder))
                    handler(number, frame)

                signal.signal(number, leave)
    try:
        yield str(Path(folder) / "run")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_while_it_is_written(folder: Path) -> None:
    """Remove a folder that workers write to: a file in its place keeps them from making it anew meanwhile."""
    with suppress(OSError):
        gone = folder.rename(folder.with_suffix(".gone"))
        folder.touch()
        shutil.rmtree(gone, ignore_errors=True)
        folder.unlink()
