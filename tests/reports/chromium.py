"""Headless Chromium over its debugging pipe: loads a page and tells what it complained about and asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 120
BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
# The browser reads its orders from descriptor 3 and answers on 4; the pipe's own numbers may be these.
_WITH_PIPES = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in enumerate(pipes, 3):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Page:
    """A page in a browser.

    Attributes:
        complaints: what the console and the browser's log had to say.
        requests: the addresses that were asked for.
    """

    browser: _Browser
    session: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        """Load a local file and wait until it is there."""
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.as_uri())
        self.browser.wait(self, "Page.loadEventFired")
        # What the page does after it is loaded counts as well.
        self.evaluate("new Promise(done => setTimeout(() => done(1), 300))")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the debugging protocol."""
        return self.browser.call(method, self, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    def hear(self, message: dict[str, Any]) -> None:
        """Take in an event."""
        parameters = message.get("params", {})
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(parameters))


class _Browser:
    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._buffer = b""
        self._last = 0

    def call(self, method: str, page: Page | None, session: str | None = None, **parameters: Any) -> Any:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(page)
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]

    def wait(self, page: Page, method: str) -> None:
        while self._read(page).get("method") != method:
            pass

    def _read(self, page: Page | None) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            assert time.monotonic() < end, "the browser does not answer"
            assert self._process.poll() is None, "the browser has ended"
            self._buffer += os.read(self._back, 1 << 16)
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if page is not None and "method" in message:
            page.hear(message)
        return message


@contextmanager
def browser_page(profile: Path) -> Iterator[Page]:
    """Give a page of a new browser, which ends with the block; ``profile`` is an empty folder for it."""
    assert BINARY is not None
    down_read, down_write = os.pipe()
    up_read, up_write = os.pipe()
    command = [
        *(BINARY, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-pipe", f"--user-data-dir={profile}"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_PIPES, str(down_read), str(up_write), *command],
        pass_fds=(down_read, up_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(down_read)
    os.close(up_write)
    try:
        browser = _Browser(process, down_write, up_read)
        target = browser.call("Target.createTarget", None, url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", None, targetId=target, flatten=True)
        yield Page(browser, attached["sessionId"])
    finally:
        process.terminate()
        process.wait(30)
        os.close(down_write)
        os.close(up_read)
