"""One process, started as a user starts it, with what it took: seconds, seconds of the processor, memory.

Seconds of the processor are those of the process and of all that it started and waited for. Memory, where it is wanted,
is looked at again and again, at least once a second: the largest sum over all processes of what belongs to each alone
plus its part of what they share (PSS), and the largest resident set of one. That holds up processes which leave no core
free: two workers on two cores took 4 to 7 % longer, one worker 1 to 2 %.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers import ROOT
from benchmarks.peers_near_duplicates import processor_seconds

# To look takes the system longer the more memory there is.
LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS, INTERVALS = 0.1, 1.0, 10


@dataclass(frozen=True)
class Used:
    """What a process took.

    Attributes:
        seconds: from its start to its end.
        processor_seconds: of it and of the processes that it started, in user and in system mode.
        memory_bytes: the largest sum of the proportional sets of all its processes; 0 where nobody looked.
        largest_process_bytes: the largest resident set of one of them; 0 likewise.
        processes: the most that there were at a time; 0 likewise.
    """

    seconds: float
    processor_seconds: float
    memory_bytes: int
    largest_process_bytes: int
    processes: int


def measured(command: Sequence[str], cores: Collection[int] | None = None, watch: bool = True) -> Used:
    """Run a command to its end, what it prints to nowhere.

    Args:
        command: the program and its arguments.
        cores: those that it may use; all where None.
        watch: whether memory is looked at.

    Raises:
        SystemExit: it failed; the message has what it wrote to the standard error.
    """
    begun, processor = time.monotonic(), processor_seconds()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    if cores is not None and allowed is not None:
        os.sched_setaffinity(0, cores)
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
    finally:
        if allowed is not None:
            os.sched_setaffinity(0, allowed)
    watched = psutil.Process(process.pid)
    together = largest = most = 0
    while watch:
        with suppress(psutil.Error):
            found = [_sizes(each) for each in (watched, *watched.children(recursive=True))]
            together = max(together, sum(proportional for proportional, _ in found))
            largest = max(largest, *(resident for _, resident in found))
            most = max(most, len(found))
        try:
            # Reads what it writes to the standard error, which would wait for a reader otherwise.
            elapsed = time.monotonic() - begun
            interval = min(MOST_INTERVAL_SECONDS, max(LEAST_INTERVAL_SECONDS, elapsed / INTERVALS))
            _, errors = process.communicate(timeout=interval)
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}\n{errors}")
    return Used(time.monotonic() - begun, processor_seconds() - processor, together, largest, most)


def _sizes(process: psutil.Process) -> tuple[int, int]:
    """Return the proportional and the resident set of a process, zeros where it just ended."""
    with suppress(psutil.Error):
        sizes = process.memory_full_info()
        # Only Linux knows proportional sets.
        return getattr(sizes, "pss", sizes.uss), sizes.rss
    return 0, 0


def one_core() -> set[int] | None:
    """Return the last core that this process may use, None where the system does not bind processes."""
    return {max(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else None


def thresher_run(config: Path, output: Path, workers: int, *options: str) -> list[str]:
    """Return the command line of a run; what an earlier one left in its output folder is removed."""
    shutil.rmtree(output, ignore_errors=True)
    return [
        *(sys.executable, "-m", "pipelines.cli", "run", str(config)),
        *("--output", str(output), f"--direct_num_workers={workers}", *options),
    ]
