"""The command ``thresher compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.terminal import AddCommand, console_for, write_json

if TYPE_CHECKING:
    from reports.limits import Limits


def add(command: AddCommand) -> None:
    """Add the command."""
    parser = command("compare", _compare, "Compare two finished runs; exit 3 where they differ beyond limits.")
    parser.add_argument("before", metavar="RUN_A", help="the earlier run")
    parser.add_argument("after", metavar="RUN_B", help="the later run")
    parser.add_argument("--limits", metavar="FILE", help="YAML file of limits; see thresher schema limits")
    parser.add_argument("--html", metavar="FILE", help="write a page with the comparison")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _compare(arguments: argparse.Namespace) -> None:
    from corpus.errors import CheckFailedError
    from pipelines.finished_run import absolute
    from reports.compare import ComparedRun, beyond, cause, compare
    from reports.comparison_html import comparison_html
    from reports.comparison_text import print_comparison

    limits = read_limits(Path(arguments.limits) if arguments.limits else None)
    runs = [ComparedRun.open(absolute(root)) for root in (arguments.before, arguments.after)]
    comparison = compare(*runs)
    sentence, found = cause(comparison, limits), beyond(comparison, limits)
    if arguments.html:
        Path(arguments.html).write_bytes(comparison_html(comparison, sentence, found))
    if arguments.json:
        write_json({"cause": sentence, "beyond": found, **comparison})
    else:
        print_comparison(comparison, sentence, found, console_for())
    if found:
        raise CheckFailedError(f"{arguments.after}: {len(found)} differences from {arguments.before} beyond the limits")


def read_limits(path: Path | None) -> Limits:
    """Return the limits in a file, or the defaults. Raises UsageError naming file, line and field."""
    from pydantic import ValidationError

    from corpus.config_problems import Problems
    from corpus.yaml_reader import read_yaml_file
    from reports.limits import Limits

    if path is None:
        return Limits()
    problems = Problems(read_yaml_file(path))
    try:
        return Limits.model_validate(problems.document.value)
    except ValidationError as error:
        problems.add_validation_error(error, Limits, ())
        problems.raise_if_any()
        raise
