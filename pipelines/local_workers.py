"""Which workers a local run has: one, threads, or processes that are forks of a server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.errors import ThresherError
from corpus.filesystem import scheme_of
from corpus.planning_files import find_files
from corpus.planning_types import InputPlan
from corpus.stages import Stage, measuring_part
from pipelines.runners import Engine, choose_engine
from pipelines.worker_server import WorkerServer
from reports.manifest import MANIFEST_NAME
from scorers.scoring import ScoreStage

if TYPE_CHECKING:
    from pipelines.config import RunConfig

# Below this, a second worker takes longer to start, and to be asked at each step, than it saves.
SMALL_INPUT_BYTES = 8 << 20
# From here on, workers that are processes save more, not waiting for each other's interpreter, than they take to start.
LARGE_INPUT_BYTES = 128 << 20
PROCESSES = "--direct_running_mode=multi_processing"
# An item takes its time to be opened, whatever is in it.
LEAST_ITEM_BYTES = 128 << 10
# Other systems' libraries do not bear it.
FORKS = sys.platform == "linux"


def fit_to_input(engine: Engine, arguments: Sequence[str], plan: InputPlan, stages: Sequence[Stage]) -> Engine:
    """Return the engine with workers that suit the input, where it is local and as far as the user left it open.

    A small input gets one worker, but for stages that are slow for each record. A large one gets processes, where they
    can be forks, in place of threads; models are there once for all threads, and keep these.

    Args:
        arguments: the options that the user gave, from which ``engine`` was chosen.
    """
    if not engine.is_local or _gives(arguments, "--direct_running_mode"):
        return engine
    work = max(_planned_bytes(plan), LEAST_ITEM_BYTES * len(plan.items))
    if work <= SMALL_INPUT_BYTES:
        keeps = _gives(arguments, "--direct_num_workers") or any(stage.speed for stage in stages)
        return engine if keeps else choose_engine([*arguments, "--direct_num_workers=1"])
    return choose_engine([*arguments, PROCESSES]) if _suits_processes(engine, work, stages) else engine


def _gives(arguments: Sequence[str], option: str) -> bool:
    return any(argument.startswith(option) for argument in arguments)


def _planned_bytes(plan: InputPlan) -> int:
    """Return about how many bytes of the files are read: with a limit, the share of a file that its records make up."""
    limits = {item.file: item.limit for item in plan.items}
    total = 0.0
    for file in plan.files:
        if file.file in limits:
            limit = limits[file.file]
            total += file.size if limit is None else file.size * min(1, limit / max(1, file.likely_rows))
    return int(total)


def _suits_processes(engine: Engine, work: int, stages: Sequence[Stage]) -> bool:
    is_large = engine.workers > 1 and work >= LARGE_INPUT_BYTES
    return FORKS and is_large and not any(isinstance(measuring_part(stage), ScoreStage) for stage in stages)


def early_server(config: RunConfig, arguments: Sequence[str]) -> AbstractContextManager[WorkerServer | None]:
    """Start the server of a run's workers, before anything heavy is loaded, where the run is likely to use it.

    What is wrong with config, input or options is left to the run to say.
    """
    with suppress(ThresherError, OSError):
        engine = choose_engine(arguments)
        is_here = engine.is_local and all(
            scheme_of(place) == "file" for place in (*config.input.files, config.output or "")
        )
        is_new = not Path(config.output or "", MANIFEST_NAME).exists()
        if is_here and is_new and config.input.limit is None:
            size = sum(file.size for file in find_files(config.input.files)[0])
            suits = not _gives(arguments, "--direct_running_mode") and _suits_processes(engine, size, config.build())
            if FORKS and (engine.has_own_workers or suits):
                return WorkerServer()
    return nullcontext()


def server_of(engine: Engine, early: WorkerServer | None) -> AbstractContextManager[WorkerServer | None]:
    """Return the server that the workers of a run are forks of: the one that was started early, or a new one.

    None where its workers are no forks, or where no server can be had, as in a sandbox; one that was started early and
    is not needed is ended.
    """
    if engine.has_own_workers and FORKS:
        with suppress(OSError):
            return early or WorkerServer()
    elif early is not None:
        early.end()
    return nullcontext()
