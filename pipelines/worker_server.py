"""Local workers as forks of one process that has loaded what steps need, while the driver still makes the graph.

A worker of its own takes more than a second to load Beam and the steps; a fork has them at once, and shares their
memory. The driver must not fork itself: it runs threads of Beam and gRPC.

Beam starts a command for each worker, the *client*. It passes what Beam put into its environment to the server over a
socket, waits, and ends as the worker ended. The server's arguments are the number of the inherited socket, what clients
have to say, and, for who looks at the list of processes, the number of the driver; standard input brings names of
modules, with the driver's path to find them, and its end is that of the server and its workers.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import compare_digest, token_hex
from types import TracebackType

MODULES = ("apache_beam.runners.worker.sdk_worker_main", "pipelines.graph")
ENVIRONMENT = ("CONTROL_API_SERVICE_DESCRIPTOR", "LOGGING_API_SERVICE_DESCRIPTOR", "PIPELINE_OPTIONS", "WORKER_ID")
# Neither may the current folder hide our packages nor this one the standard library's ``select``.
PROGRAM = (
    f"import sys; sys.path[0] = {str(Path(__file__).parent.parent)!r}; from pipelines.worker_server import main; main()"
)
# Without the site's packages it starts in a hundredth of a second.
CLIENT = (sys.executable, "-I", "-S", str(Path(__file__).with_name("worker_client.py")))

_CREDENTIALS = struct.Struct("3i")
# A client sends its message at once. The options of a pipeline are a part of it.
_CLIENT_SECONDS, _MESSAGE_BYTES = 5.0, 16 << 20


class WorkerServer:
    """A server as the driver sees it; the end of the ``with`` block ends it and what is left of its workers."""

    def __init__(self) -> None:
        """Start it."""
        # Of the kernel's own names: no file is left behind. Who connects must be of this user, and, since containers
        # that share the network see the name and may have the same user, say what only the command lines say.
        self._name, self._secret = f"\0thresher-{token_hex(8)}", token_hex(16)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._name)
            listener.listen()
            number = listener.fileno()
            # What Beam says when it is loaded is the driver's to say.
            nowhere = None if logging.getLogger().isEnabledFor(logging.DEBUG) else subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(number), self._secret, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=nowhere,
                stderr=nowhere,
                pass_fds=[number],
            )

    def load(self, modules: Iterable[str]) -> None:
        """Have modules loaded before workers are made, which find further ones where this process finds them."""
        assert self._process.stdin is not None
        path = [place for place in sys.path if isinstance(place, str)]
        # Where it is gone, the first worker that cannot start says so.
        with suppress(BrokenPipeError):
            self._process.stdin.write((json.dumps([path, sorted(modules)]) + "\n").encode())
            self._process.stdin.flush()

    def command(self, log: str) -> str:
        """Return the shell command that starts a worker.

        Args:
            log: file that takes what it prints; empty where it goes to the terminal.
        """
        return f"exec {shlex.join([*CLIENT, self._name[1:], self._secret, log, ','.join(ENVIRONMENT)])}"

    def end(self) -> None:
        """End it; from then on its workers count among what this process waited for."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> WorkerServer:
        """Return the server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.end()


class _Forks:
    """The workers of a server."""

    def __init__(self, listener: socket.socket, secret: str) -> None:
        self._listener, self._secret = listener, secret
        self._connections: dict[int, socket.socket] = {}
        self._pending = b""
        # Wakes the server when a worker ends.
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake)

    def serve(self) -> None:
        """Make and watch workers until the driver closes standard input."""
        while True:
            clients = {connection: pid for pid, connection in self._connections.items()}
            waited_for: list[int | socket.socket] = [0, self._woken, self._listener, *clients]
            ready, _, _ = select.select(waited_for, [], [])
            if self._woken in ready:
                os.read(self._woken, 1 << 10)
                self._bury()
            # Modules that were asked for come before workers.
            if 0 in ready and not self._load():
                self._kill(list(self._connections))
                return
            if self._listener in ready and 0 not in ready:
                self._make(self._listener.accept()[0])
            # A client says nothing more: it was killed.
            self._kill([clients[one] for one in ready if isinstance(one, socket.socket) and one in clients])

    def _load(self) -> bool:
        """Take the path of the driver and load the modules that standard input names; says whether it goes on."""
        data = os.read(0, 1 << 20)
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            sys.path[:], names = json.loads(line)
            for name in names:
                importlib.import_module(name)
        return bool(data)

    def _asked(self, connection: socket.socket) -> tuple[str, dict[str, str]] | None:
        """Return the log and the environment that an own client sends; None for anybody else."""
        _, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.getuid():
            return None
        connection.settimeout(_CLIENT_SECONDS)
        try:
            with connection.makefile("rb") as file:
                secret, log, environment = json.loads(file.readline(_MESSAGE_BYTES))
            is_own = compare_digest(secret, self._secret)
        except (OSError, TypeError, ValueError):
            return None
        connection.settimeout(None)
        return (log, environment) if is_own else None

    def _make(self, connection: socket.socket) -> None:
        asked = self._asked(connection)
        if asked is None:
            connection.close()
            return
        # What is there stays as it is, in the memory that all share.
        gc.collect()
        gc.freeze()
        pid = os.fork()
        if pid:
            self._connections[pid] = connection
            return
        try:
            self._be_worker(connection, *asked)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def _be_worker(self, connection: socket.socket, log: str, environment: dict[str, str]) -> None:
        from pipelines import worker

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._listener, connection, *self._connections.values()):
            one.close()
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.environ.update(environment)
        worker.run(os.getppid(), log)

    def _bury(self) -> None:
        """Tell the clients of workers that ended how they ended."""
        for pid, connection in list(self._connections.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._connections[pid]
                # There is nobody to tell where the client was killed.
                with connection, suppress(OSError):
                    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid in self._connections:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self._connections.pop(pid).close()


def main() -> None:
    """Serve until the driver is gone or has no more work."""
    # Ctrl-C reaches the whole process group; the driver answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    forks = _Forks(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    for name in MODULES:
        importlib.import_module(name)
    forks.serve()
    os._exit(0)
