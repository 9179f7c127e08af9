"""Beam's FnApiRunner with worker processes of ours, whose end is noticed."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import psutil

from corpus.errors import ThresherError
from corpus.folder import Folder
from pipelines import worker, worker_client, worker_server
from pipelines.worker import worker_command
from pipelines.worker_server import WorkerServer

_SCRIPTS = {worker.__file__, worker_client.__file__, worker_server.PROGRAM}
_KILL_AGAIN_SECONDS = 0.1
# An exception in the main thread is lost where it comes while something is being finalised.
_WAKE_AGAIN_SECONDS = 5.0
_EXIT = re.compile(r"Worker subprocess exited with return code (-?\d+)")


def local_runner(folder: Folder, server: WorkerServer | None) -> Any:
    """Return a runner whose workers write their logs into the run folder, or to stderr when debugging.

    Args:
        server: what the workers are forks of; None for workers that start by themselves.
    """
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    log = _log(folder) or ""
    command = worker_command(log) if server is None else server.command(log)
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(command))


def flush_at_the_end() -> None:
    """Let Beam's local runners flush what goes to a worker and back when a buffer is full, and at the end of a bundle.

    Beam would also do it once per second, in a thread that empties the buffer after it took what is in it: an element
    that is written between the two is lost. Seen with two workers on a busy machine.
    """
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


def _log(folder: Folder) -> str | None:
    """Return the file that takes what workers print; None where it goes to the terminal, for debugging."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return None
    return folder.path("staging/workers.log") if folder.is_local else os.devnull


@contextmanager
def watched_workers(folder: Folder) -> Iterator[None]:
    """Keep what Beam's workers print off the terminal, and turn the end of a worker into one error.

    Beam prints a traceback for every error that it also raises, and may wait for a lost worker for ever. When it
    closes, it also waits for a worker that was only starting, which nobody tells to end: so the others are killed with
    the first.

    Raises:
        ThresherError: a worker ended before its work was done.
    """
    codes: list[int] = []
    is_over, is_first, ending = threading.Event(), threading.Lock(), threading.Lock()
    in_main = threading.current_thread() is threading.main_thread()
    before = threading.excepthook
    wake_before = signal.signal(signal.SIGUSR1, signal.default_int_handler) if in_main else None

    def notice(arguments: threading.ExceptHookArgs) -> None:
        found = _EXIT.search(str(arguments.exc_value))
        if found is None:
            # The threads that served the worker fail with it; they have nothing to add.
            if not codes and not arguments.exc_type.__module__.startswith("grpc"):
                before(arguments)
            return
        codes.append(int(found[1]))
        if not is_first.acquire(blocking=False):  # of two that end at once, one
            return
        threading.Thread(target=_kill_workers, args=(is_over,), daemon=True).start()
        if in_main:
            threading.Thread(target=_wake_main, args=(is_over, ending), daemon=True).start()

    threading.excepthook = notice
    log = _log(folder)
    try:
        with ExitStack() as stack:
            if log is not None:
                stack.enter_context(redirect_stderr(stack.enter_context(Path(log).open("a", encoding="utf-8"))))
            yield
    except BaseException as error:
        if codes:
            raise ThresherError(_message(codes[0], folder)) from error
        raise
    finally:
        with ending:
            is_over.set()
        threading.excepthook = before
        if in_main:
            signal.signal(signal.SIGUSR1, wake_before)


def _kill_workers(is_over: threading.Event) -> None:
    """Kill the worker processes of this process, those that are starting too, until there is no need for it."""
    while not is_over.wait(_KILL_AGAIN_SECONDS):
        with suppress(psutil.Error):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if _SCRIPTS.intersection(child.cmdline()):
                        child.kill()


def _wake_main(is_over: threading.Event, ending: threading.Lock) -> None:
    """Interrupt the main thread, again if it goes on waiting; never when all is over, which is said under the lock."""
    while True:
        with ending:
            if is_over.is_set():
                return
            # A real signal: the main thread waits for a lock, which _thread.interrupt_main does not wake.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        is_over.wait(_WAKE_AGAIN_SECONDS)


def _message(code: int, folder: Folder) -> str:
    how = f"was killed by signal {-code} (out of memory?)" if code < 0 else f"ended with exit code {code}"
    where = f"; its log is {folder.path('staging/workers.log')}" if folder.is_local else ""
    return f"a worker process {how}{where}"
