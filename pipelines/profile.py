"""Where the time of a run goes: ``thresher run --profile``.

Each step of a job measures what its own code takes, without the steps that it feeds: an engine runs these while a step
waits in ``yield``. Processes write their sums into the run folder after each bundle, and the driver adds them up. What
is left of the workers' time is the engine's: shuffles, coders, waiting.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from rich.console import Console
from rich.table import Table

from corpus.folder import Folder
from pipelines.run_folder import PROFILE_FOLDER

SECONDS, PROCESSOR, ELEMENTS = "seconds", "processor_seconds", "elements"

_TOKEN = secrets.token_hex(4)
_LOCK = threading.Lock()
_SUMS: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
"""By run folder with the name of the run's start, and by step."""


class ProfiledDoFn(beam.DoFn):  # type: ignore[misc]
    """A step that can be measured: ``job`` says whether and where, ``name``, if it has one, of which stage it is."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "process" in vars(cls):
            cls.process = _measured(cls.process)

    def __dir__(self) -> list[str]:
        """Return the methods that Beam calls: it looks through the parameters of all it finds, eight times in a run."""
        return ["process", "setup", "start_bundle", "finish_bundle", "teardown"]

    def finish_bundle(self) -> None:
        """Write what was measured so far."""
        if getattr(self.job, "profile", False):
            write(self.job.folder)


def _measured(process: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(process)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        outputs = process(self, *args, **kwargs)
        if not getattr(self.job, "profile", False):
            return outputs
        name = getattr(self, "name", None)
        label = type(self).__name__ + (f" ({name})" if name else "")
        return _timed(outputs, self.job.folder, label)

    return measured


def _timed(outputs: Iterator[Any], folder: Folder, label: str) -> Iterator[Any]:
    clock = processor = 0.0
    try:
        outputs = iter(outputs)
        while True:
            begun = time.perf_counter(), time.thread_time()
            try:
                output = next(outputs)
            except StopIteration:
                return
            finally:
                clock += time.perf_counter() - begun[0]
                processor += time.thread_time() - begun[1]
            yield output
    finally:
        with _LOCK:
            steps = _SUMS.setdefault((folder.root, folder.run), {})
            sums = steps.setdefault(label, {SECONDS: 0.0, PROCESSOR: 0.0, ELEMENTS: 0})
            sums[SECONDS] += clock
            sums[PROCESSOR] += processor
            sums[ELEMENTS] += 1


def write(folder: Folder) -> None:
    """Write the sums of this process."""
    with _LOCK:
        data = json.dumps(_SUMS.get((folder.root, folder.run), {})).encode()
    folder.write_bytes(f"{PROFILE_FOLDER}/{platform.node()}-{os.getpid()}-{_TOKEN}.json", data)


def collect(folder: Folder, seconds: float, workers: int) -> dict[str, Any]:
    """Return what all processes measured, the most costly step first, and what is left of the workers' time.

    Args:
        folder: the run folder.
        seconds: how long the run took.
        workers: number of workers; 0 where it is not known.
    """
    steps: dict[str, dict[str, float]] = {}
    for name in folder.names(PROFILE_FOLDER):
        for label, sums in json.loads(folder.read_bytes(name)).items():
            total = steps.setdefault(label, dict.fromkeys(sums, 0))
            for key, value in sums.items():
                total[key] += value
    ordered = sorted(steps.items(), key=lambda step: -step[1][SECONDS])
    rows = [{"step": label, **{key: round(value, 3) for key, value in sums.items()}} for label, sums in ordered]
    profile: dict[str, Any] = {"steps": rows}
    if workers:
        busy = sum(sums[SECONDS] for sums in steps.values())
        profile["other_seconds"] = round(max(0.0, workers * seconds - busy), 3)
    return profile


def print_profile(profile: dict[str, Any], console: Console) -> None:
    """Print where the time went."""
    table = Table(title="Profile", title_justify="left", title_style="bold")
    table.add_column("step")
    for name in ("seconds", "of processor", "elements"):
        table.add_column(name, justify="right")
    for row in profile["steps"]:
        table.add_row(row["step"], f"{row[SECONDS]:.2f}", f"{row[PROCESSOR]:.2f}", f"{row[ELEMENTS]:,.0f}")
    if "other_seconds" in profile:
        table.add_row("start, engine, shuffles, waiting", f"{profile['other_seconds']:.2f}", "", "")
    console.print(table)
