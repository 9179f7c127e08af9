"""What is asked of a run before it is published: errors that are too many, and the ``checks`` of its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpus.errors import ThresherError, UsageError
from corpus.filesystem import locate
from corpus.folder import Folder
from corpus.planning_types import InputPlan
from pipelines.config import RunConfig
from reports.checks import broken_checks
from reports.closing import Books
from reports.compare import ComparedRun
from reports.error_limits import too_many_errors
from reports.manifest import REPORT_NAME, input_entries, mixture, to_json


def check_earlier_run(config: RunConfig, root: str) -> None:
    """Raise UsageError where the run that ``checks.against`` names cannot be compared with, before anything is done.

    Args:
        config: the config of the new run.
        root: its folder, as ``corpus.filesystem.locate`` gives it.
    """
    if config.checks is None or config.checks.against is None:
        return
    against = config.checks.against
    if locate(against).rstrip("/") == root:
        raise UsageError(f"checks.against: {against} is the output itself; name another run, or give another --output")
    try:
        ComparedRun.open(locate(against))
    except UsageError as error:
        raise UsageError(f"checks.against: {error}") from None


def check_finished(config: RunConfig, folder: Folder) -> None:
    """Raise ThresherError where a finished run does not meet the ``checks`` of a config, which may be new."""
    broken = [] if config.checks is None else broken_checks(config.checks, ComparedRun.open(folder.root))
    if broken:
        raise ThresherError(
            "\n  ".join(
                [f"{folder.root}: the run was published before, and {len(broken)} checks are not met:", *broken]
            )
        )


def check_books(config: RunConfig, plan: InputPlan, books: Books, semantic: Mapping[str, Any]) -> None:
    """Raise an error where a run must not be published; the report is kept where ``checks`` are broken."""
    records = books.report["records"]
    beyond = too_many_errors(config.input, books.counts)
    if beyond is not None:
        raise ThresherError(f"{beyond}; see {books.folder.path('dead_letters')}")
    if plan.files and books.report["files_failed"] == len(plan.files) and not records["read"]:
        raise ThresherError(f"every input file failed; see {books.folder.path('dead_letters')}")
    if records["read"] and books.report["dead_letters"].get("missing_text", 0) == records["read"]:
        names = ", ".join(config.input.text_columns)
        raise ThresherError(f"no record has the column {names}; name the text column in input")
    if books.repeated_example is not None and config.input.duplicate_ids == "fail":
        raise ThresherError(
            f"{books.report['repeated_ids']} records repeat an id, the first of them {books.repeated_example}; "
            "make them unique, or set input.duplicate_ids: report"
        )
    if config.checks is None:
        return
    entries = input_entries(books.files, {}, books.counts.get("files", {}))
    inputs = {entry["file"]: entry["digest"] for entry in entries}
    run = ComparedRun(books.folder, books.report, semantic, inputs, mixture(books.mixture))
    broken = broken_checks(config.checks, run)
    if broken:
        books.folder.write_bytes(REPORT_NAME, to_json(books.report))
        raise ThresherError(
            "\n  ".join([f"{len(broken)} checks are not met, so nothing is published:", *broken])
            + f"\nthe report is {books.folder.path(REPORT_NAME)}; with other checks the same command goes on"
        )
