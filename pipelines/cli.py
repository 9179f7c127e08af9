"""The command line. Heavy imports happen inside the commands: ``thresher --help`` must answer at once."""

from __future__ import annotations

import argparse
import gc
import io
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from corpus.errors import CheckFailedError, ThresherError
from pipelines import (
    compare_command,
    contamination_command,
    explain_command,
    select_command,
    suites_command,
    whatif_command,
)
from pipelines.allocation import keep_freed_memory
from pipelines.terminal import Handler, add_config, add_engine, config_of, console_for, engine_arguments, write_json

INTERRUPTED = 130
COLLECT_AFTER = (50_000, 20, 20)
INTERRUPTED_MESSAGE = "thresher: interrupted; run the same command again to go on\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 usage, 3 a check found something, 130)."""
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.DEBUG if arguments.debug else logging.CRITICAL)
    # Modules and the graph are many objects that stay: looking through them again and again slows each start.
    gc.set_threshold(*COLLECT_AFTER)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets a mark in its place, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        handler: Handler = arguments.handler
        handler(arguments)
    except ThresherError as error:
        if arguments.debug:
            raise
        sys.stderr.write(f"thresher: {_printable(str(error))}\n")
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has seen enough; nothing more can be said on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.stderr.write(INTERRUPTED_MESSAGE)
        return INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        sys.stderr.write(
            f"thresher: unexpected {type(error).__name__}: {_printable(str(error))}\n"
            "this should not happen: run again with --debug and report what it shows\n"
        )
        return 1
    return 0


def _printable(message: str) -> str:
    """Return a message that a terminal only shows: names of files and records in it are those of strangers."""
    return "".join(
        character if character == "\n" or character.isprintable() else character.encode("unicode_escape").decode()
        for character in message
    )


def console() -> None:
    """Run the command line as a program.

    It ends at once: after a failed run, threads of the runner may wait for lost workers for ever, and taking down what
    a run has loaded takes most of a second. Workers end by themselves when this process is gone.
    """
    keep_freed_memory()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)
    _leave(main())


def _interrupted(number: int, frame: object) -> None:
    """End at once: an exception could get lost in Beam's closing, which waits for workers."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        sys.__stderr__.write("\x1b[?25h")  # the progress bar hides the cursor
    if sys.__stderr__ is not None:
        sys.__stderr__.write(INTERRUPTED_MESSAGE)
    _leave(INTERRUPTED)


def _leave(code: int) -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    os._exit(code)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with all commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="log everything, and show tracebacks")
    parser = argparse.ArgumentParser(
        prog="thresher", description="Curate training data for language models.", allow_abbrev=False
    )
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, parents=[common], allow_abbrev=False)
        sub.set_defaults(handler=handler, takes_rest=name == "run")
        return sub

    run = command("run", _run, "Run a config; go on with an unfinished run, report a finished one.")
    run.epilog = "Options that are not listed go to Beam, such as --runner and --direct_num_workers."
    add_config(run)
    run.add_argument("--overwrite", action="store_true", help="replace a run that is in the output folder")
    run.add_argument("--clean", action="store_true", help="remove staging when the run is finished")
    run.add_argument("--profile", action="store_true", help="measure where the time goes")
    run.add_argument("--json", action="store_true", help="print the drop report as JSON")
    add_engine(run)
    plan = command("plan", _plan, "Show what a run would do; reads no text.")
    add_config(plan)
    plan.add_argument("--json", action="store_true", help="print as JSON")
    validate = command("validate", _validate, "Check a config.")
    add_config(validate)
    schema = command("schema", _schema, "Print the JSON Schema of a config, report, manifest or file of limits.")
    schema.add_argument("what", nargs="?", default="config", choices=["config", "report", "manifest", "limits"])
    stages = command("stages", _stages, "List all stages with their settings, defaults and sources.")
    stages.add_argument("--json", action="store_true", help="print as JSON")
    sample = command("sample", _sample, "Build the sample corpus from the installed Python packages.")
    sample.add_argument("folder", metavar="DIR")
    report = command("report", _report, "Print the drop report of a run again.")
    report.add_argument("run", metavar="RUN")
    output = report.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print report.json")
    output.add_argument("--html", action="store_true", help="make report.html again")
    clean = command("clean", _clean, "Remove the staging of a finished run.")
    clean.add_argument("run", metavar="RUN")
    verify = command("verify", _verify, "Check a run against its manifest: hashes, counts, conservation.")
    verify.add_argument("run", metavar="RUN")
    verify.add_argument("--json", action="store_true", help="print as JSON")
    compare_command.add(command)
    contamination_command.add(command)
    select_command.add(command)
    suites_command.add(command)
    explain_command.add(command)
    whatif_command.add(command)
    return parser


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = command_parser()
    arguments, rest = parser.parse_known_args(argv)
    arguments.rest = rest
    if rest and not arguments.takes_rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def _run(arguments: argparse.Namespace) -> None:
    config, engine = config_of(arguments), engine_arguments(arguments)
    from pipelines.local_workers import early_server

    with early_server(config, engine) as server:
        from pipelines.execution import execute

        run = execute(
            config,
            engine,
            overwrite=arguments.overwrite,
            clean=arguments.clean,
            profile=arguments.profile,
            console=console_for(stderr=True),
            server=server,
        )
    from reports.drop_report import print_report

    if arguments.json:
        write_json(run.report)
    else:
        print_report(run.report, run.details, console_for())
        _print_profile(run.details)


def _print_profile(details: Mapping[str, Any]) -> None:
    if "profile" in details:
        from pipelines.profile import print_profile

        print_profile(details["profile"], console_for())


def _plan(arguments: argparse.Namespace) -> None:
    from pipelines.execution import describe_plan

    plan = describe_plan(config_of(arguments))
    if arguments.json:
        write_json(plan)
        return
    console = console_for()
    about = "" if plan["rows_are_exact"] else "about "
    console.print(
        ", ".join(f"{plan[name]:,} {name[: len(name) - (plan[name] == 1)]}" for name in ("files", "items", "bytes"))
        + f", {about}{plan['rows']:,} rows"
    )
    for number, names in enumerate(plan["passes"], 1):
        console.print(f"pass {number}: {', '.join(names) or 'copy'}", markup=False)
    console.print(
        f"shuffled: {plan['shuffled_bytes']:,} bytes; memory of a local driver for it: "
        f"{plan['driver_memory_bytes']:,} bytes; disk for staging and output: up to {2 * plan['bytes']:,} bytes "
        "times the compression of the input"
    )
    for warning in plan["warnings"]:
        console.print(f"warning: {warning}", markup=False)


def _validate(arguments: argparse.Namespace) -> None:
    config = config_of(arguments)
    names = ", ".join(stage.name for stage in config.build()) or "no stages"
    sys.stdout.write(f"{arguments.config}: valid ({names})\n")


def _schema(arguments: argparse.Namespace) -> None:
    if arguments.what == "config":
        from pipelines.schemas import config_schema

        write_json(config_schema())
    elif arguments.what == "limits":
        from pipelines.schemas import limits_schema

        write_json(limits_schema())
    else:
        from reports.schemas import manifest_schema, report_schema

        write_json(report_schema() if arguments.what == "report" else manifest_schema())


def _stages(arguments: argparse.Namespace) -> None:
    from pipelines.schemas import stages_table

    table = stages_table()
    if arguments.json:
        write_json(table)
        return
    console = console_for()
    for stage in table:
        kind = ", ".join(filter(None, (stage["kind"], stage["speed"])))
        console.print(f"[bold]{stage['name']}[/bold] ({kind}): {stage['summary']}", soft_wrap=True)
        for setting in stage["settings"]:
            text = f"  {setting['name']} = {setting['default']}: {setting['description']}"
            console.print(text, markup=False, soft_wrap=True)
        documentation = textwrap.indent(stage["documentation"], "  ")
        console.print(f"\n{documentation}\n", markup=False, soft_wrap=True, style="dim")


def _sample(arguments: argparse.Namespace) -> None:
    from corpus.sample import build_sample

    counts = build_sample(Path(arguments.folder))
    sys.stdout.write(
        f"{arguments.folder}: {counts.documents:,} documents ({counts.text_bytes / 1e6:.1f} MB of text), "
        f"{counts.pairs:,} pairs, {counts.suite_items:,} benchmark items; {counts.skipped_files:,} files left out\n"
    )


def _report(arguments: argparse.Namespace) -> None:
    from pipelines.finished_run import absolute, load_run
    from reports.drop_report import print_report

    run = load_run(absolute(arguments.run))
    if arguments.html:
        from pipelines.html_report import write_html

        sys.stdout.write(f"{write_html(run)}\n")
    elif arguments.json:
        write_json(run.report)
    else:
        print_report(run.report, run.details, console_for())
        _print_profile(run.details)


def _clean(arguments: argparse.Namespace) -> None:
    from corpus.folder import Folder
    from pipelines.finished_run import absolute, load_run
    from pipelines.run_folder import locked, remove_staging

    folder = Folder(load_run(absolute(arguments.run)).root)
    with locked(folder):
        remove_staging(folder)


def _verify(arguments: argparse.Namespace) -> None:
    from pipelines.finished_run import absolute
    from reports.verify import verify

    findings = verify(absolute(arguments.run))
    if arguments.json:
        write_json({"run": arguments.run, "findings": findings})
    if findings:
        raise CheckFailedError("\n  ".join([f"{arguments.run}: {len(findings)} findings", *findings]))
    if not arguments.json:
        sys.stdout.write(f"{arguments.run}: every file, count and hash is as the manifest says\n")


if __name__ == "__main__":
    console()
