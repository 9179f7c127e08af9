"""Real engines on loopback: their processes started, awaited and stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import REPOSITORY
from tests.engines import libraries

START_SECONDS = 120.0
WORKER = "thresher-worker"

_FLINK_OPENS = (
    "java.lang java.net java.io java.nio sun.nio.ch java.lang.reflect java.text java.time java.util "
    "java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks"
).split()
_SPARK_OPENS = (
    "java.nio java.lang java.util java.lang.invoke java.util.concurrent java.util.concurrent.atomic java.net java.io"
).split()


def java(*options: str, heap: str, opens: Sequence[str], exports: str) -> list[str]:
    """Return the start of a Java command with the packages opened that the engine reaches into."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opens]
    return ["java", f"-Xmx{heap}", *opened, f"--add-exports=java.base/{exports}=ALL-UNNAMED", *options]


@dataclass
class Server:
    """A process in a session of its own, so that what it starts ends with it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill the process alone, as a fault would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process and all that it started."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python workers of ours among the processes below it."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if any(WORKER in part for part in _command(process))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@dataclass
class Cluster:
    """A running engine.

    Attributes:
        options: what ``thresher run`` takes to use it.
        servers: its processes by name.
        rest: URL of a service that tells about jobs, where there is one.
    """

    options: list[str]
    servers: dict[str, Server] = field(default_factory=dict)
    rest: str = ""

    def ask(self, path: str) -> Any:
        """Return what the service says."""
        return fetch_json(f"{self.rest}{path}")


class Starter:
    """Starts the servers of a cluster, and stops them in reverse."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.servers: dict[str, Server] = {}
        self._stack = stack

    def start(self, name: str, command: Sequence[str], **environment: str) -> Server:
        """Start one server."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        server = Server(name, process, log)
        self.servers[name] = server
        self._stack.callback(server.stop)
        return server

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until a condition holds; fails with the end of the logs where a server ends before."""
        end = time.monotonic() + START_SECONDS
        while not ready():
            ended = [server.name for server in self.servers.values() if server.process.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(f"{name}: {server.log.read_text()[-2000:]}" for name, server in self.servers.items())
                raise AssertionError(f"{what}: {f'{ended} ended' if ended else 'not in time'}\n{logs}")
            time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def listens(port: int) -> bool:
    """Say whether something listens on a port of loopback."""
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True


def fetch_json(url: str) -> Any:
    """Return the JSON at a URL; None where nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (OSError, urllib.error.URLError):
        return None


@contextmanager
def flink(folder: Path, task_managers: int = 2) -> Iterator[Cluster]:
    """Run a Flink standalone cluster of a JobManager and TaskManagers, and a Beam job server in front of it."""
    found = libraries.jars("flink")
    rpc, rest, job, artifact, expansion = free_ports(5)
    (folder / "conf").mkdir()
    shutil.copy(REPOSITORY / "deploy/flink/config.yaml", folder / "conf/config.yaml")
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        own = {"jobmanager.rpc.port": rpc, "rest.port": rest, "io.tmp.dirs": folder / "tmp"}
        settings = [f"-D{name}={value}" for name, value in own.items()]

        def command(heap: str, main: str, *options: str) -> list[str]:
            machine = java(*options, heap=heap, opens=_FLINK_OPENS, exports="sun.net.util")
            return [*machine, "-cp", f"{found}/*", main, "--configDir", "conf", *settings]

        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        starter.start("jobmanager", command("512m", entry))
        # What Flink's own start script would work out from the configuration.
        direct = ("-XX:MaxDirectMemorySize=512m", "-XX:MaxMetaspaceSize=256m")
        worker = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        for number in range(task_managers):
            identity = [f"-Dtaskmanager.resource-id=taskmanager-{number}"]
            starter.start(f"taskmanager-{number}", [*command("640m", worker, *direct), *identity])
        classes = libraries.stage_nothing(found, folder / "classes")
        url = f"http://localhost:{rest}"
        starter.wait(
            "the TaskManagers register",
            lambda: (fetch_json(f"{url}/overview") or {}).get("taskmanagers") == task_managers,
        )
        driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"
        ports = _job_server_ports(job, artifact, expansion, folder)
        machine = ["java", "-Xmx512m", "-cp", f"{classes}:{found}/*", driver]
        starter.start("job-server", [*machine, *ports, f"--flink-master=localhost:{rest}"])
        starter.wait("the job server listens", lambda: listens(job))
        options = ["--engine=flink", f"--job-endpoint=localhost:{job}", f"--master=localhost:{rest}", "--parallelism=2"]
        yield Cluster(options, starter.servers, url)


@contextmanager
def spark_local(folder: Path) -> Iterator[Cluster]:
    """Run a Beam job server with Spark and two cores inside it."""
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        port = _spark_job_server(starter, "local[2]", libraries.jars("spark"))
        yield Cluster(["--engine=spark", f"--job-endpoint=localhost:{port}"], starter.servers)


@contextmanager
def spark(folder: Path) -> Iterator[Cluster]:
    """Run a Spark standalone cluster of a master and two workers, and a Beam job server in front of it."""
    found = libraries.jars("spark")
    home = folder / "home"
    home.mkdir()
    (home / "jars").symlink_to(found)
    # The executors' launcher looks for these, since there is no installation with a bin folder.
    environment = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_IP": "127.0.0.1"}
    port, web, *webs = free_ports(4)
    with ExitStack() as stack:
        starter = Starter(folder, stack)

        def command(main: str, *arguments: str) -> list[str]:
            machine = java(heap="384m", opens=_SPARK_OPENS, exports="sun.nio.ch")
            return [*machine, "-cp", f"{found}/*", f"org.apache.spark.deploy.{main}", "--host", "localhost", *arguments]

        master = command("master.Master", "--port", str(port), "--webui-port", str(web))
        starter.start("master", master, **environment)
        starter.wait("the master listens", lambda: listens(port))
        url = f"spark://localhost:{port}"
        for number, own in enumerate(webs):
            sizes = ("--cores", "1", "--memory", "1500m", "--work-dir", str(folder / f"work-{number}"))
            worker = command("worker.Worker", *sizes, "--webui-port", str(own), url)
            starter.start(f"worker-{number}", worker, **environment)
        rest = f"http://localhost:{web}/json/"
        starter.wait("the workers register", lambda: (fetch_json(rest) or {}).get("aliveworkers") == len(webs))
        job = _spark_job_server(starter, url, found, **environment)
        yield Cluster(["--engine=spark", f"--job-endpoint=localhost:{job}", f"--master={url}"], starter.servers)


def _spark_job_server(starter: Starter, master: str, found: Path, **environment: str) -> int:
    job, artifact, expansion = free_ports(3)
    classes = libraries.stage_nothing(found, starter.folder / "classes")
    driver = "org.apache.beam.runners.spark.SparkJobServerDriver"
    ports = _job_server_ports(job, artifact, expansion, starter.folder)
    machine = java("-cp", f"{classes}:{found}/*", heap="1g", opens=_SPARK_OPENS, exports="sun.nio.ch")
    starter.start("job-server", [*machine, driver, *ports, f"--spark-master-url={master}"], **environment)
    starter.wait("the job server listens", lambda: listens(job))
    return job


def _job_server_ports(job: int, artifact: int, expansion: int, folder: Path) -> list[str]:
    ports = [f"--job-port={job}", f"--artifact-port={artifact}", f"--expansion-port={expansion}"]
    return ["--job-host=localhost", *ports, f"--artifacts-dir={folder / 'artifacts'}"]


@contextmanager
def prism(folder: Path) -> Iterator[Cluster]:
    """Run Beam's Prism."""
    program = libraries.prism()
    (port,) = free_ports(1)
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        starter.start("prism", [str(program), f"--job_port={port}", "--serve_http=false"])
        starter.wait("prism listens", lambda: listens(port))
        yield Cluster(["--engine=prism", f"--job-endpoint=localhost:{port}"], starter.servers)
