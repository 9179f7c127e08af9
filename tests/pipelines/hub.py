"""A hub of data sets on this machine: the part of the hub's interface that copying a data set needs, over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote


class Hub:
    """Data sets by id: files by name. ``refused`` holds the ids that ask for an account."""

    def __init__(self, data_sets: Mapping[str, dict[str, bytes]]) -> None:
        self.data_sets = {name: dict(files) for name, files in data_sets.items()}
        self.refused: set[str] = set()
        self.url = ""

    def commit(self, name: str) -> str:
        """Return a commit that changes with the content."""
        return hashlib.sha1(json.dumps(sorted(map(repr, self.data_sets[name].items()))).encode()).hexdigest()


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve a hub at ``hub.url`` as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(self.path.partition("?")[0])
            if path.startswith("/api/datasets/"):
                kind = "tree" if "/tree/" in path else "revision"
                name, _, revision = path.removeprefix("/api/datasets/").partition(f"/{kind}/")
                self._about(kind, name, revision)
            else:
                name, _, rest = path.removeprefix("/datasets/").partition("/resolve/")
                self._file(name, *rest.split("/", 1))

        def _about(self, kind: str, name: str, revision: str) -> None:
            if name in hub.refused:
                self._send(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
            elif name not in hub.data_sets:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif revision not in ("v1", hub.commit(name)):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            else:
                files = hub.data_sets[name]
                about: Any = [
                    {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for file, data in files.items()
                ]
                if kind == "revision":
                    siblings = [{"rfilename": file} for file in files]
                    about = {"_id": "0", "id": name, "sha": hub.commit(name), "siblings": siblings}
                self._send(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

        def _file(self, name: str, commit: str, file: str) -> None:
            assert commit == hub.commit(name)
            data = hub.data_sets[name][file]
            self._send(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit})

        def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
