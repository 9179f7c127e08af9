"""Real engines on loopback: they are started, awaited and stopped."""

from __future__ import annotations

import json
import random
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.engines import libraries
from tests.engines.servers import Server, Starter

# Below the ports that systems hand out to connections that go out: nothing takes one before its server does.
_PORTS = range(15_000, 32_000)
_FLINK_OPENS = (
    "java.lang java.net java.io java.nio sun.nio.ch java.lang.reflect java.text java.time java.util "
    "java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks"
).split()
_SPARK_OPENS = (
    "java.nio java.lang java.util java.lang.invoke java.util.concurrent java.util.concurrent.atomic java.net java.io"
).split()
# A JVM that lives for a minute is better off without a second compiler and threads for garbage collection.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# A task that failed goes to another executor, since the Python worker of the first may be lost. By default two such
# failures exclude a whole machine, and all executors of these tests are on one.
SPARK = {
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "9",
    "spark.ui.enabled": "false",
}


def java(*options: str, heap: str, opens: Sequence[str], exports: str) -> list[str]:
    """Return the start of a Java command with the packages opened that the engine reaches into."""
    return ["java", f"-Xmx{heap}", *_opened(opens, exports), *options]


def _opened(opens: Sequence[str], exports: str) -> list[str]:
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opens]
    return [*opened, f"--add-exports=java.base/{exports}=ALL-UNNAMED"]


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


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind(("127.0.0.1", random.choice(_PORTS)))
                found.append(one.getsockname()[1])
        return found


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
def flink(folder: Path, task_managers: int = 2, machine: Sequence[str] = SHORT_LIVED) -> Iterator[Cluster]:
    """Run a Flink standalone cluster of a JobManager and TaskManagers, and a Beam job server in front of it.

    Args:
        folder: an empty folder for configuration and logs.
        machine: options of all JVMs.
    """
    found = libraries.jars("flink")
    rpc, rest, job, artifact, expansion = free_ports(5)
    (folder / "conf").mkdir()
    shutil.copy(REPOSITORY / "deploy/flink/config.yaml", folder / "conf/config.yaml")
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        own = {"jobmanager.rpc.port": rpc, "rest.port": rest, "io.tmp.dirs": folder / "tmp"}
        settings = [f"-D{name}={value}" for name, value in own.items()]

        def command(heap: str, main: str, *options: str) -> list[str]:
            start = java(*machine, *options, heap=heap, opens=_FLINK_OPENS, exports="sun.net.util")
            return [*start, "-cp", f"{found}/*", main, "--configDir", "conf", *settings]

        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        starter.start("jobmanager", command("512m", entry))
        # What Flink's own start script would work out from the configuration.
        direct = ("-XX:MaxDirectMemorySize=512m", "-XX:MaxMetaspaceSize=256m")
        worker = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        for number in range(task_managers):
            identity = [f"-Dtaskmanager.resource-id=taskmanager-{number}"]
            starter.start(f"taskmanager-{number}", [*command("640m", worker, *direct), *identity])
        driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"
        ports = _job_server_ports(job, artifact, expansion, folder)
        classes = f"{libraries.stage_nothing('flink')}:{found}/*"
        server = ["java", "-Xmx512m", *machine, "-cp", classes, driver]
        starter.start("job-server", [*server, *ports, f"--flink-master=localhost:{rest}"])
        url = f"http://localhost:{rest}"
        starter.wait(
            "the TaskManagers register",
            lambda: (fetch_json(f"{url}/overview") or {}).get("taskmanagers") == task_managers,
        )
        starter.wait("the job server listens", lambda: listens(job))
        options = ["--engine=flink", f"--job-endpoint=localhost:{job}", f"--master=localhost:{rest}", "--parallelism=2"]
        yield Cluster(options, starter.servers, url)


@contextmanager
def spark_local(folder: Path, machine: Sequence[str] = SHORT_LIVED) -> Iterator[Cluster]:
    """Run a Beam job server with Spark and two cores inside it."""
    with ExitStack() as stack:
        starter = Starter(folder, stack)
        job = _spark_job_server(starter, "local[2]", machine)
        starter.wait("the job server listens", lambda: listens(job))
        yield Cluster(["--engine=spark", f"--job-endpoint=localhost:{job}"], starter.servers)


@contextmanager
def spark(folder: Path, machine: Sequence[str] = SHORT_LIVED) -> Iterator[Cluster]:
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
            start = java(*machine, heap="384m", opens=_SPARK_OPENS, exports="sun.nio.ch")
            return [*start, "-cp", f"{found}/*", f"org.apache.spark.deploy.{main}", "--host", "localhost", *arguments]

        master = command("master.Master", "--port", str(port), "--webui-port", str(web))
        starter.start("master", master, **environment)
        url = f"spark://localhost:{port}"
        job = _spark_job_server(starter, url, machine, **environment)
        starter.wait("the master listens", lambda: listens(port))
        for number, own in enumerate(webs):
            sizes = ("--cores", "1", "--memory", "1500m", "--work-dir", str(folder / f"work-{number}"))
            worker = command("worker.Worker", *sizes, "--webui-port", str(own), url)
            starter.start(f"worker-{number}", worker, **environment)
        rest = f"http://localhost:{web}/json/"
        starter.wait("the workers register", lambda: (fetch_json(rest) or {}).get("aliveworkers") == len(webs))
        starter.wait("the job server listens", lambda: listens(job))
        yield Cluster(["--engine=spark", f"--job-endpoint=localhost:{job}", f"--master={url}"], starter.servers)


def _spark_job_server(starter: Starter, master: str, machine: Sequence[str], **environment: str) -> int:
    found = libraries.jars("spark")
    job, artifact, expansion = free_ports(3)
    # Spark takes its settings from the system properties of the program that submits.
    executors = " ".join([*machine, *_opened(_SPARK_OPENS, "sun.nio.ch")])
    settings = [f"-D{name}={value}" for name, value in {**SPARK, "spark.executor.extraJavaOptions": executors}.items()]
    classes = ["-cp", f"{libraries.stage_nothing('spark')}:{found}/*"]
    start = java(*machine, *settings, *classes, heap="1g", opens=_SPARK_OPENS, exports="sun.nio.ch")
    driver = "org.apache.beam.runners.spark.SparkJobServerDriver"
    ports = _job_server_ports(job, artifact, expansion, starter.folder)
    starter.start("job-server", [*start, driver, *ports, f"--spark-master-url={master}"], **environment)
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
