"""Beam options of a run: sound defaults for local work, and whatever the user gives wins."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.errors import UsageError

# Kernels, Arrow and compression work without the GIL: over 1 GB, two threads ran 1.60 times as fast as one, two
# processes (which start and end slower, and hold everything twice) 1.40 times. About a tenth of the work holds the
# GIL, so that threads cannot become more than a few times as fast as one.
MAX_THREADS = 4
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner")


@dataclass(frozen=True)
class Engine:
    """Where a run happens.

    Attributes:
        arguments: the Beam options as a command line.
        is_local: whether the workers are threads or processes of this run on this machine.
        workers: number of workers; 0 where the engine decides.
        has_own_workers: whether the workers are processes that ``pipelines.worker`` starts.
    """

    arguments: tuple[str, ...]
    is_local: bool
    workers: int
    has_own_workers: bool = False


def choose_engine(arguments: Sequence[str]) -> Engine:
    """Return the engine for the Beam options that the user gave.

    Without ``--runner``, and for ``--runner=DirectRunner``, the run is local on the FnApiRunner: bare DirectRunner
    would first try to download another runner, and then ignore the worker options. Raises UsageError for an option
    that Beam does not know.
    """
    given, rest = _parse(arguments, ("runner", "direct_num_workers", "direct_running_mode"))
    runner = given.runner or LOCAL_RUNNERS[0]
    if runner not in LOCAL_RUNNERS:
        return Engine(tuple(arguments), is_local=False, workers=0)
    _check_known(rest)
    workers = int(given.direct_num_workers) if given.direct_num_workers is not None else 0
    workers = workers or os.cpu_count() or 1
    mode = given.direct_running_mode or _mode(workers)
    own = mode == "multi_processing"
    local = ["--runner=FnApiRunner", f"--direct_num_workers={workers}", "--no_save_main_session"]
    if not own:
        local.append(f"--direct_running_mode={mode}")
    return Engine((*local, *rest), is_local=True, workers=workers, has_own_workers=own)


def _mode(workers: int) -> str:
    if workers == 1:
        return "in_memory"
    return "multi_threading" if workers <= MAX_THREADS else "multi_processing"


def _parse(arguments: Sequence[str], names: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        parser.add_argument(f"--{name}")
    try:
        return parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UsageError(f"{error}") from None


def _check_known(arguments: Sequence[str]) -> None:
    if not arguments:
        return
    from apache_beam.options.pipeline_options import PipelineOptions

    parser: Any = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    pending = list(PipelineOptions.__subclasses__())
    while pending:
        options = pending.pop()
        pending.extend(options.__subclasses__())
        if "_add_argparse_args" in vars(options):
            options._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        name = unknown[0].split("=")[0]
        near = difflib.get_close_matches(name, [*known, "--set", "--output", "--limit", "--sample", "--overwrite"], 1)
        hint = f"; did you mean {near[0]}?" if near else "; options of thresher and of Beam are accepted"
        raise UsageError(f"unknown option {unknown[0]}{hint}")
