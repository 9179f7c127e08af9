"""What Beam starts for a worker: asks ``pipelines.worker_server`` for it, and ends as it ends.

Started as ``python worker_client.py SERVER SECRET LOG NAMES``: the name of the server's socket, what it must be told,
the file that takes what the worker prints, and the environment variables that it needs, by commas. Only the standard
library may be imported, little of it: a run waits for this.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Pass the environment on and wait."""
    # Ctrl-C reaches the whole process group; the driver answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server, secret, log, names = sys.argv[1:]
    environment = {name: os.environ[name] for name in names.split(",") if name in os.environ}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{server}")
        connection.sendall(json.dumps([secret, log, environment]).encode() + b"\n")
        answer = connection.recv(16)
    # Without an answer the server was killed, and its workers end with it.
    code = int(answer) if answer else -signal.SIGKILL
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
