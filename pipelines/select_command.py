"""The command ``thresher select``."""

from __future__ import annotations

import argparse

from pipelines.terminal import AddCommand, add_engine, console_for, engine_arguments, write_json


def add(command: AddCommand) -> None:
    """Add the command."""
    parser = command("select", _select, "Make a new run under other settings, from the staging of a finished one.")
    parser.epilog = "Options that are not listed go to Beam, as those of run do."
    parser.add_argument("run", metavar="RUN", help="the finished run")
    parser.add_argument("--output", metavar="DIR", required=True, help="the new run folder")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="STAGE.KEY=VALUE", help="a setting")
    parser.add_argument("--allow-calls", action="store_true", help="let a judge score what has no score yet")
    parser.add_argument("--json", action="store_true", help="print the drop report as JSON")
    add_engine(parser)
    parser.set_defaults(takes_rest=True)


def _select(arguments: argparse.Namespace) -> None:
    from pipelines.select import select
    from reports.drop_report import print_report

    run = select(
        arguments.run,
        arguments.output,
        arguments.sets,
        engine_arguments(arguments),
        allow_calls=arguments.allow_calls,
        console=console_for(stderr=True),
    )
    if arguments.json:
        write_json(run.report)
    else:
        print_report(run.report, run.details, console_for())
