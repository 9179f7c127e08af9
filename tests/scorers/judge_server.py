"""A judge for tests: a process that speaks OpenAI's chat protocol on 127.0.0.1, well or badly, as each text asks for.

Started as ``python judge_server.py [--key KEY] [--delay SECONDS] [--refuses WORD …]``; the first line that it prints is
its port. What a text wants is in it as ``[behaviour argument]``. ``GET /log`` tells what was asked.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.request import urlopen

REPLIES = {
    "json": '{"score": 4.5, "explanation": "right, with 1 slip"}',
    "korean": "이 답변은 정확합니다.\n점수: 4.5점 (5점 만점)",
    "prose": "There are 2 slips in it, so I rate this answer 3.5 out of 5.",
    "out_of_range": '{"score": 7}',
    "ambiguous": "Score: 4. On reflection, score: 2.",
    "unparsable": "I like it very much.",
    "torn": '{"score": 4',
    "negative": "Score: -1",
}
WANTED = re.compile(r"\[(\w+)(?: ([\w.]+))?\]")


class Judge(BaseHTTPRequestHandler):
    """Answers as the text asks for."""

    protocol_version = "HTTP/1.1"
    options: argparse.Namespace
    lock = threading.Lock()
    calls: ClassVar[collections.Counter[str]] = collections.Counter()
    times: ClassVar[dict[str, list[float]]] = collections.defaultdict(list)
    requests: ClassVar[list[dict[str, Any]]] = []
    under_way = 0
    most_under_way = 0

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.send(status, json.dumps({"error": {"message": message, "code": code}}).encode(), **headers)

    def say(self, text: Any, finish: str = "stop", **message: Any) -> None:
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
        self.send(
            200, json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        )

    def do_GET(self) -> None:
        log = {
            "calls": dict(self.calls), "total": sum(self.calls.values()), "times": self.times,
            "most_under_way": self.most_under_way, "requests": self.requests,
        }  # fmt: skip
        self.send(200, json.dumps(log).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = request["messages"][-1]["content"]
        text = re.findall(r"<(?:answer|text) \w+>\n(.*?)\n</", asked, re.DOTALL)[-1]
        with Judge.lock:
            self.calls[text] += 1
            self.times[text].append(time.monotonic())
            self.requests.append({**request, "path": self.path})
            Judge.under_way += 1
            Judge.most_under_way = max(Judge.most_under_way, Judge.under_way)
            count = self.calls[text]
        try:
            self.answer(request, text, count)
        except ConnectionError:
            self.close_connection = True
        finally:
            with Judge.lock:
                Judge.under_way -= 1

    def answer(self, request: dict[str, Any], text: str, count: int) -> None:
        time.sleep(self.options.delay)
        authorization = self.headers.get("authorization", "")
        if self.options.key and authorization != f"Bearer {self.options.key}":
            return self.fail(401, f"Incorrect API key provided: {authorization}", "invalid_api_key")
        for setting in self.options.refuses:
            if setting in request:
                hint = " Use 'max_completion_tokens' instead." if setting == "max_tokens" else ""
                return self.fail(400, f"Unsupported parameter: '{setting}'.{hint}", "unsupported_parameter")
        found = WANTED.search(text)
        wanted, argument = (found[1], found[2] or "") if found else ("says", "json")
        first = count <= int(argument) if argument.isdecimal() else True
        if wanted == "says":
            return self.say(REPLIES[argument])
        if wanted == "score":
            return self.say(json.dumps({"score": float(argument), "explanation": "so it is"}))
        if wanted == "wavers":
            return self.say(f"Score: {min(count, 5)}")
        if wanted == "slow":
            time.sleep(float(argument))
            return self.say(REPLIES["json"])
        if wanted == "busy" and first:
            return self.fail(429, "Rate limit reached", "rate_limit_exceeded", retry_after="1")
        if wanted == "busy_long":
            return self.fail(429, "Come back tomorrow", "rate_limit_exceeded", retry_after="86400")
        if wanted == "no_credit":
            return self.fail(429, "You exceeded your current quota", "insufficient_quota")
        if wanted == "broken" and first:
            return self.fail(500, "The server had an error")
        if wanted == "gateway" and first:
            return self.send(502, b"<html>Bad gateway</html>", content_type="text/html")
        if wanted == "html" and first:
            return self.send(200, b"<html>Please log in</html>", content_type="text/html")
        if wanted == "torn_body" and first:
            body = json.dumps({"choices": [{"message": {"content": REPLIES["json"]}}]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if wanted == "torn_json" and first:
            return self.send(200, b'{"choices": [{"message": {"content": "4.5')
        if wanted == "hangs_up" and first:
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if wanted == "drips":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000000")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
            return None
        if wanted == "no_choices":
            return self.send(200, b'{"choices": []}')
        if wanted == "surrogate":
            return self.say("\ud800 score: 4")
        if wanted == "surrogate_500":
            return self.fail(500, "\ud800 failed")
        if wanted == "deep":
            return self.send(200, b'{"choices": ' + b"[" * 100_000)
        if wanted == "null":
            return self.say(None)
        if wanted == "parts":
            return self.say([{"type": "text", "text": "Score: "}, {"type": "text", "text": "3"}])
        if wanted == "length":
            return self.say('{"score": 4', finish="length")
        if wanted == "thinks":
            return self.say("", finish="length")
        if wanted == "refuses":
            return self.say(None, refusal="I cannot help with that.")
        if wanted == "filtered":
            return self.say("", finish="content_filter")
        if wanted == "filter_400":
            return self.fail(400, "The response was filtered", "content_filter")
        if wanted == "context":
            return self.fail(400, "This model's maximum context length is 8192 tokens", "context_length_exceeded")
        if wanted == "invalid":
            return self.fail(400, "Invalid request")
        if wanted == "forbidden":
            return self.fail(403, f"Not allowed with {authorization}")
        if wanted == "unknown_model":
            return self.fail(404, "The model does not exist", "model_not_found")
        if wanted == "tells_key":
            return self.say(f"Your key is {authorization}.")
        if wanted == "tells_key_500":
            return self.fail(500, f"Failed with {authorization}")
        return self.say(REPLIES["json"])


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as the tests open."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed in these tests."""


class JudgeProcess:
    """The server of one test: its address, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def log(self) -> Any:
        """Return what the server was asked so far."""
        with urlopen(self.base_url.replace("/v1", "/log"), timeout=10) as answer:
            return json.load(answer)


@contextmanager
def judge_process(*options: str) -> Iterator[JudgeProcess]:
    """Start a server process; it ends with the context."""
    with subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield JudgeProcess(int(process.stdout.readline()))
        finally:
            process.kill()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", default="")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--refuses", action="append", default=[])
    Judge.options = parser.parse_args()
    server = Server(("127.0.0.1", 0), Judge)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
