"""What the commands of the command line share. It imports nothing heavy at its top."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import RunConfig

Handler = Callable[[argparse.Namespace], None]


class AddCommand(Protocol):
    """Adds a command to the command line and returns its parser, for its arguments."""

    def __call__(self, name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
        """Add the command ``name``, which ``handler`` carries out; ``text`` says what it does."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the config and the options that change its settings."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument("--output", metavar="DIR", help="the run folder, instead of output: in the config")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="STAGE.KEY=VALUE", help="a setting")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--limit", type=int, metavar="N", help="read the first N records only")
    some.add_argument("--sample", type=float, metavar="FRACTION", help="read this share of the records, by hash")


def config_of(arguments: argparse.Namespace) -> RunConfig:
    """Return the config that ``add_config``'s arguments name, checked. Raises UsageError."""
    from pipelines.config import load_config

    overrides = {"output": arguments.output, "input.limit": arguments.limit, "input.sample": arguments.sample}
    given = {key: value for key, value in overrides.items() if value is not None}
    return load_config(Path(arguments.config), arguments.sets, given)


def console_for(stderr: bool = False) -> Console:
    """Return a console on standard output or error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe or a file has no width of its own; 80 columns would cut tables that nobody looks at in a window.
    return Console(file=stream, width=None if stream.isatty() else 120, highlight=False)


def write_json(value: Any) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose an engine; ``pipelines.runners`` reads them together with Beam's."""
    engine = parser.add_argument_group("engine")
    engine.add_argument("--engine", metavar="NAME", help="local (default), flink, spark, prism or dataflow")
    engine.add_argument("--job-endpoint", "--job_endpoint", metavar="HOST:PORT", help="Beam job server of the engine")
    engine.add_argument("--master", metavar="ADDRESS", help="REST service of Flink, or master URL of Spark")
    engine.add_argument("--accelerator", metavar="HINT", help="GPU for the steps of models: type:NAME;count:NUMBER")
    engine.add_argument("--shared-files", action="store_true", help="remote workers see local paths as this machine")


def engine_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return what ``add_engine``'s arguments and the options of Beam say, as a command line."""
    named = {
        "engine": arguments.engine,
        "job-endpoint": arguments.job_endpoint,
        "master": arguments.master,
        "accelerator": arguments.accelerator,
    }
    given = [f"--{name}={value}" for name, value in named.items() if value is not None]
    shared = ["--shared-files"] if arguments.shared_files else []
    return [*given, *shared, *arguments.rest]
