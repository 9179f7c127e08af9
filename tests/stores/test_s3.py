"""Input, staging and run folder on S3: a real server on loopback, with a proxy before it that makes faults."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import REPOSITORY
from tests.engines.clusters import Starter, free_ports
from tests.pipelines.corpora import STAGES, run, write_config, write_corpus

s3fs = pytest.importorskip("s3fs", reason="pip install 'thresher[cloud]'")
pytest.importorskip("moto", reason="pip install 'thresher[test]'")

OPTIONS = {"id_column": "id", "source_column": "source", "batch_rows": 130}
KEY = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "secret"}


Refusal: TypeAlias = Callable[[str, str], tuple[int, str] | None]


def _never(method: str, path: str) -> None:
    return None


class Server:
    """The server, and what it does with requests.

    Attributes:
        port: where it listens.
        proxy: where the proxy before it listens.
        refuse: status and code with which the proxy refuses a request (method, path); None lets it through.
        refused: how many it refused.
    """

    def __init__(self, port: int, proxy: int) -> None:
        self.port = port
        self.proxy = proxy
        self.refuse: Refusal = _never
        self.refused = 0
        self.lock = threading.Lock()

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return what a client finds in its environment."""
        return {**KEY, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://localhost:{port or self.port}"}


def _proxy_of(server: Server) -> ThreadingHTTPServer:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with server.lock:
                refusal = server.refuse(self.command, self.path)
                server.refused += refusal is not None
            if refusal is not None:
                status, code = refusal
                data = f"<Error><Code>{code}</Code><Message>{code} of the proxy</Message></Error>".encode()
                headers = [("Content-Type", "application/xml")]
            else:
                upstream = http.client.HTTPConnection("localhost", server.port, timeout=60)
                upstream.request(self.command, self.path, body, dict(self.headers))
                response = upstream.getresponse()
                status, data = response.status, response.read()
                drop = ("content-length", "transfer-encoding", "connection")
                headers = [(name, value) for name, value in response.getheaders() if name.lower() not in drop]
                upstream.close()
                if self.command == "HEAD":
                    headers.append(("Content-Length", response.getheader("Content-Length") or "0"))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD" or refusal is not None:
                self.send_header("Content-Length", str(len(data) if self.command != "HEAD" else 0))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    return ThreadingHTTPServer(("localhost", server.proxy), Proxy)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port, proxy = free_ports(2)
    folder = tmp_path_factory.mktemp("s3")
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        program = shutil.which("moto_server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert program is not None
        starter.start("s3", [program, "-H", "localhost", "-p", str(port)])
        starter.wait("the server answers", lambda: _answers(port))
        found = Server(port, proxy)
        front = _proxy_of(found)
        stack.callback(front.server_close)
        stack.callback(front.shutdown)
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield found


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://localhost:{port}/moto-api/", timeout=2).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def store(server: Server) -> object:
    """A client of the server, with the two buckets made."""
    client = s3fs.S3FileSystem(
        key=KEY["AWS_ACCESS_KEY_ID"],
        secret=KEY["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=f"http://localhost:{server.port}",
        use_listings_cache=False,
    )
    client.mkdir("inputs")
    client.mkdir("runs")
    return client


@pytest.fixture(scope="module")
def corpus(store: s3fs.S3FileSystem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that lie on the disk and in the store alike."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, 900)
    for path in folder.iterdir():
        store.put_file(str(path), f"inputs/pages of today/{path.name}")
    return folder


def config_of(folder: Path, output: str, bucket: str = "inputs") -> Path:
    files = [f"s3://{bucket}/pages of today/*.parquet", f"s3://{bucket}/pages of today/*.jsonl"]
    return write_config(folder / "c.yaml", files, Path("x"), STAGES, **OPTIONS).rename(
        folder / f"{output.rsplit('/', 1)[-1]}.yaml"
    )


def thresher(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    clean |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli", *arguments],
        capture_output=True, text=True, timeout=120, cwd=REPOSITORY, env={**clean, **environment}, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("local")
    config = write_config(
        folder / "c.yaml", [f"{corpus}/*.parquet", f"{corpus}/*.jsonl"], folder / "run", STAGES, **OPTIONS
    )
    assert run(config) == 0
    return (folder / "run/manifest.json").read_bytes()


@pytest.mark.parametrize("mode", ["in_memory", "multi_processing"])
def test_a_run_in_the_store_has_the_same_bytes(
    server: Server, store: s3fs.S3FileSystem, corpus: Path, expected: bytes, mode: str, tmp_path: Path
) -> None:
    output = f"s3://runs/a/{mode}"
    workers = ["--direct_num_workers=2" if mode == "multi_processing" else "--direct_num_workers=1"]
    arguments = ["run", str(config_of(tmp_path, output)), "--output", output, f"--direct_running_mode={mode}", *workers]
    done = thresher(server.environment(), *arguments)
    assert done.returncode == 0, done.stderr
    assert store.cat_file(f"runs/a/{mode}/manifest.json") == expected
    assert not [name for name in store.find(f"runs/a/{mode}") if ".tmp-" in name or "probe" in name]
    assert thresher(server.environment(), "verify", output).returncode == 0
    if mode == "multi_processing":
        return
    again = thresher(server.environment(), *arguments)
    assert "finished before with this config and input" in again.stderr
    assert thresher(server.environment(), *arguments, "--overwrite", "--clean").returncode == 0
    assert store.cat_file(f"runs/a/{mode}/manifest.json") == expected
    assert not store.exists(f"runs/a/{mode}/staging/plan.json")


def test_a_run_survives_a_store_that_is_busy(
    server: Server, store: s3fs.S3FileSystem, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    numbers = itertools.count()
    with refusing(server, lambda method, path: (503, "SlowDown") if next(numbers) % 10 == 9 else None):
        config = config_of(tmp_path, "s3://runs/busy")
        done = thresher(server.environment(server.proxy), "run", str(config), "--output", "s3://runs/busy")
        assert server.refused > 10
    assert done.returncode == 0, done.stderr
    assert store.cat_file("runs/busy/manifest.json") == expected


def test_a_killed_run_goes_on(
    server: Server, store: s3fs.S3FileSystem, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    config = config_of(tmp_path, "s3://runs/killed")
    arguments = ["run", str(config), "--output", "s3://runs/killed", "--direct_num_workers=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", *arguments],
        cwd=REPOSITORY, env={**os.environ, **server.environment()}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not store.exists("runs/killed/staging/records"):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not store.exists("runs/killed/manifest.json")
    done = thresher(server.environment(), *arguments)
    assert done.returncode == 0, done.stderr
    assert "going on with an unfinished run" in done.stderr
    assert store.cat_file("runs/killed/manifest.json") == expected


@contextmanager
def refusing(server: Server, refuse: Refusal) -> Iterator[None]:
    server.refuse, server.refused = refuse, 0
    try:
        yield
    finally:
        server.refuse = _never


def test_missing_buckets(server: Server, corpus: Path, tmp_path: Path) -> None:
    done = thresher(server.environment(), "run", str(config_of(tmp_path, "x")), "--output", "s3://nothing-here/x")
    assert done.returncode == 2
    assert "s3://nothing-here/x/staging/probe: cannot be written: the bucket does not exist" in done.stderr
    config = config_of(tmp_path, "x", bucket="nothing-there")
    done = thresher(server.environment(), "run", str(config), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "s3://nothing-there/pages of today/*.parquet: cannot be listed: the bucket does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_credentials(server: Server, corpus: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in server.environment().items() if name not in KEY}
    done = thresher(environment, "run", str(config_of(tmp_path, "x")), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "there are no credentials; give some (the AWS_ variables" in done.stderr


def test_an_expired_token(server: Server, corpus: Path, tmp_path: Path) -> None:
    with refusing(server, lambda method, path: (400, "ExpiredToken")):
        config = config_of(tmp_path, "x")
        done = thresher(server.environment(server.proxy), "run", str(config), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "the credentials have expired; renew them" in done.stderr


def test_a_token_that_expires_in_the_middle(
    server: Server, store: s3fs.S3FileSystem, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    config = config_of(tmp_path, "x")
    output = "s3://runs/expired"

    staged: list[str] = []

    def once_two_batches_are_staged(method: str, path: str) -> tuple[int, str] | None:
        if method == "PUT" and "/staging/records/" in path:
            staged.append(path)
        return (400, "ExpiredToken") if len(staged) > 2 else None

    with refusing(server, once_two_batches_are_staged):
        done = thresher(server.environment(server.proxy), "run", str(config), "--output", output)
    assert done.returncode == 1, done.stderr
    assert "the credentials have expired; renew them" in done.stderr
    assert done.stderr.rstrip().endswith("run the same command again to go on")
    assert not store.exists("runs/expired/manifest.json")
    assert thresher(server.environment(), "run", str(config), "--output", output).returncode == 0
    assert store.cat_file("runs/expired/manifest.json") == expected


@contextmanager
def enforced(server: Server, actions: str = "0") -> Iterator[None]:
    """Make the server check keys and rights, after some actions that it does not check."""

    def set_to(count: str) -> None:
        url = f"http://localhost:{server.port}/moto-api/reset-auth"
        headers = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, count.encode(), headers), timeout=5).close()

    set_to(actions)
    try:
        yield
    finally:
        set_to("inf")


def test_a_wrong_key(server: Server, corpus: Path, tmp_path: Path) -> None:
    with enforced(server):
        done = thresher(server.environment(), "run", str(config_of(tmp_path, "x")), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "the key or its secret is wrong; correct them" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_key_without_the_right_to_write(
    server: Server, store: s3fs.S3FileSystem, corpus: Path, tmp_path: Path
) -> None:
    boto3 = pytest.importorskip("boto3")
    users = boto3.client(
        "iam", endpoint_url=f"http://localhost:{server.port}", region_name="us-east-1",
        aws_access_key_id="x", aws_secret_access_key="x",
    )  # fmt: skip
    users.create_user(UserName="reader")
    allowed = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "s3:Head*"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    users.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
    key = users.create_access_key(UserName="reader")["AccessKey"]
    environment = server.environment() | {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }
    with enforced(server):
        done = thresher(environment, "run", str(config_of(tmp_path, "x")), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "s3://runs/none/staging/probe: cannot be written: the key has no right to do that; grant it" in done.stderr
    assert not store.exists("runs/none")


def test_a_store_that_does_not_answer(server: Server, corpus: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = server.environment(port) | {"AWS_MAX_ATTEMPTS": "1"}
    done = thresher(environment, "run", str(config_of(tmp_path, "x")), "--output", "s3://runs/none")
    assert done.returncode == 2
    assert "the store does not answer; check the network and the endpoint" in done.stderr
