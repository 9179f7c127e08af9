"""The command ``thresher explain``: everything known about one record of a run."""

from __future__ import annotations

import argparse
from typing import Any

from pipelines.terminal import AddCommand, console_for, write_json


def add(command: AddCommand) -> None:
    """Add the command."""
    parser = command("explain", _explain, "Show everything known about one record: signals, verdict, duplicates, text.")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("record", metavar="RECORD_ID", help="the record's id; file#position where it has none")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _explain(arguments: argparse.Namespace) -> None:
    from reports.explain_print import print_explanation

    found = explain(arguments.run, arguments.record)
    if arguments.json:
        write_json(plain(found))
    else:
        print_explanation(found, console_for())


def explain(root: str, record_id: str) -> dict[str, Any]:
    """Return what a finished run knows about the records of an id, see ``reports.explain.explain``.

    Args:
        root: path or URI of the run folder.

    Raises:
        UsageError: the run cannot be used, or has no such record.
    """
    from corpus.folder import Folder
    from corpus.planning_types import InputPlan
    from pipelines.finished_run import absolute
    from pipelines.job import PLAN_NAME
    from pipelines.passes import compile_passes
    from pipelines.stored_config import stored_config
    from reports import explain as explaining
    from reports.fates import stage_infos
    from reports.whatif_tables import open_manifest

    folder = Folder(absolute(root))
    config = stored_config(open_manifest(folder)["config"])
    passes = [(current.number, current.stages) for current in compile_passes(config.build(check=False))]
    plan = InputPlan.from_json(folder.read_bytes(PLAN_NAME).decode()) if folder.exists(PLAN_NAME) else None
    run = explaining.ExplainedRun(folder, config.input, stage_infos(passes, config.input), plan)
    return {"run": root, **explaining.explain(run, record_id)}


def plain(value: Any) -> Any:
    """Return what was found as JSON has it."""
    from dataclasses import asdict

    from reports.explain_diff import DiffRow

    if isinstance(value, DiffRow):
        return asdict(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
