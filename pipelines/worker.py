"""A local worker process: Beam's own, that ends with the driver and leaves the terminal to it.

Started as ``python worker.py DRIVER_PID LOG``. What a worker says goes to the log file: errors travel to the
driver with the result of their bundle, where they become one message.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path


def worker_command(log: str) -> str:
    """Return the shell command that starts a worker of this process; an empty ``log`` leaves its errors on stderr."""
    command = [sys.executable, __file__, str(os.getpid()), log]
    return f"exec {shlex.join(command)}"


def _end_with(parent: int) -> None:
    """End this process, whatever it does, once its parent is gone, even if that was killed and nobody took notice."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def run(parent: int, log: str) -> None:
    """Be a worker until the driver has no more work, and end this process; it ends with its parent as well.

    Args:
        parent: the process that it ends with.
        log: file that takes what it prints; empty where that goes to the terminal.
    """
    # Ctrl-C reaches the whole process group; the driver answers it, and workers follow the driver.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if log:
        # Both: a reader of the driver's output must not have to wait for a worker that outlives it.
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, sys.stdout.fileno())
        os.dup2(file, sys.stderr.fileno())
    from pipelines.allocation import keep_freed_memory

    keep_freed_memory()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)
    # All is said and written; taking the interpreter down would keep the driver waiting.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    # With ``-m`` the current folder would come first, and a user's folder named corpus could hide our package.
    sys.path[0] = str(Path(__file__).parent.parent)
    run(int(sys.argv[1]), sys.argv[2])
