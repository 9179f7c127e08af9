"""Engines of a run: sound Beam options for each of them, and whatever the user gives wins.

``local`` is Beam's FnApiRunner in this process. ``flink`` and ``spark`` are reached through a Beam job server,
``prism`` through one or as a program on this machine, ``dataflow`` through its service. Without ``--engine``, a
``--runner`` that is not local takes its options as they stand.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus.errors import UsageError
from corpus.filesystem import locate, scheme_of
from pipelines import engine_probes

# Kernels, Arrow and compression work without the GIL: over 1 GB, two threads ran 1.60 times as fast as one, two
# processes (which start and end slower, and hold everything twice) 1.40 times. About a tenth of the work holds the
# GIL, so that threads cannot become more than a few times as fast as one.
MAX_THREADS = 4
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner")
ENGINES = ("local", "flink", "spark", "prism", "dataflow")
# Where Beam's own job servers listen unless they are told otherwise.
DEFAULT_JOB_ENDPOINT = "localhost:8099"
EMBEDDED = "embed"
WORKER_COMMAND = "thresher-worker"
# A Python worker that the engine keeps longer than its restart delay is offered, dead, to every attempt after it was
# lost, and all of them fail. Flink's default delay is 1 s. Spark tries again at once, on the same executor unless it is
# told not to (spark.excludeOnFailure.enabled, see deploy/spark); without any keeping, which would do as well, a new
# worker starts for every stage of a job.
FLINK_ENVIRONMENT_CACHE_MILLIS = 500
SPARK_ENVIRONMENT_CACHE_MILLIS = 10_000
# A thread holds a few batches of 16 MiB; Beam's default of 12 threads for each core would not fit Dataflow's machines.
DATAFLOW_THREADS = 2
# What Dataflow gives the steps of models, and no others; the cheapest GPU of its list that has bf16.
DATAFLOW_ACCELERATOR = "type:nvidia-l4;count:1;install-nvidia-driver"
_ACCELERATOR = re.compile(r"type:[a-z0-9-]+;count:[1-9][0-9]*(;install-nvidia-driver(:[0-9a-z]+)?)?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")


@dataclass(frozen=True)
class Engine:
    """Where a run happens.

    Attributes:
        name: one of ``ENGINES``, or the name of the runner that the user gave without ``--engine``.
        arguments: the Beam options as a command line.
        workers: number of workers; 0 where the engine decides.
        has_own_workers: whether the workers are processes of ours, in place of Beam's.
        job_endpoint: host:port of the Beam job server, where one is used.
        master: address of the engine itself, where the user gave one.
        sees_local_files: whether the workers see the files of this machine under the same paths.
        accelerator: Beam's resource hint for steps whose stages use a GPU; None for none.
    """

    name: str
    arguments: tuple[str, ...]
    workers: int = 0
    has_own_workers: bool = False
    job_endpoint: str | None = None
    master: str | None = None
    sees_local_files: bool = True
    accelerator: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the workers are threads or processes of this run on this machine."""
        return self.name == "local"

    @property
    def parallelism(self) -> int | None:
        """Work that goes on at the same time, as far as it is known: threads, Flink's subtasks, Dataflow's machines.

        None where the engine decides by itself.
        """
        if self.workers:
            return self.workers
        request = _request(self.arguments)
        given = request.value("max_num_workers" if self.name == "dataflow" else "parallelism")
        return int(given) if given is not None and given.isdecimal() else None


@dataclass(frozen=True)
class _Request:
    """What the user gave: the options named here, all others as a command line, and the names of those."""

    engine: str | None
    master: str | None
    job_endpoint: str | None
    shared_files: bool
    accelerator: str | None
    runner: str | None
    rest: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Whether one of these Beam options is among the others."""
        given = {part.split("=", 1)[0].lstrip("-").replace("-", "_") for part in self.rest if part.startswith("--")}
        return not given.isdisjoint(names)

    def value(self, name: str) -> str | None:
        """The value of one of the other options."""
        found, _ = _parse(self.rest, (name,))
        value: str | None = getattr(found, name)
        return value

    def with_defaults(self, defaults: Sequence[str]) -> tuple[str, ...]:
        """Return the command line with the defaults whose options the user did not give."""
        return (*(part for part in defaults if not self.has(part.split("=", 1)[0].lstrip("-"))), *self.rest)


def choose_engine(arguments: Sequence[str]) -> Engine:
    """Return the engine for the options that the user gave: ``--engine`` and what goes with it, and Beam's.

    Without ``--runner``, and for ``--runner=DirectRunner``, a local run is on the FnApiRunner: bare DirectRunner would
    first try to download another runner, and then ignore the worker options. Raises UsageError for options that
    contradict each other, that are missing, or that neither Beam nor the engine knows.
    """
    request = _request(arguments)
    if request.accelerator is not None and not _ACCELERATOR.fullmatch(request.accelerator):
        raise UsageError(
            f"--accelerator={request.accelerator}: wanted is type:NAME;count:NUMBER, with ;install-nvidia-driver "
            f"behind where the machines have none, such as {DATAFLOW_ACCELERATOR}"
        )
    if request.engine in (None, "local"):
        if request.runner is None or request.runner in LOCAL_RUNNERS:
            return _local(request)
        return replace(_as_given(request), accelerator=request.accelerator)
    if request.runner in LOCAL_RUNNERS:
        raise UsageError(f"--engine={request.engine} and --runner={request.runner} contradict each other; take one out")
    presets: dict[str, Callable[[_Request], Engine]] = {
        "flink": _flink,
        "spark": _spark,
        "prism": _prism,
        "dataflow": _dataflow,
    }
    assert request.engine is not None
    engine = presets[request.engine](request)
    return replace(
        engine,
        sees_local_files=engine.sees_local_files or request.shared_files,
        accelerator=request.accelerator or engine.accelerator,
    )


def connect(engine: Engine) -> Engine:
    """Return the engine with what only it can tell, after a check that it can be reached.

    Raises ThresherError where it cannot be reached, UsageError where it does not know an option.
    """
    extra: list[str] = []
    known: frozenset[str] = frozenset()
    request = _request(engine.arguments)
    if engine.name == "dataflow":
        engine_probes.check_dataflow(offline=request.has("dry_run", "no_auth"))
    elif engine.job_endpoint is not None and engine.job_endpoint != EMBEDDED:
        known = engine_probes.job_server_options(engine.job_endpoint)
    if engine.name == "flink" and engine.master is not None:
        extra = _fit_to_cluster(request, *engine_probes.flink_slots(engine.master))
        if not request.has("job_name"):
            extra.append(f"--job_name=thresher-{uuid.uuid4().hex[:12]}")
    if engine.name == "spark" and engine.master is not None:
        engine_probes.check_spark(engine.master)
    # What a job server takes that Beam has yet to start cannot be known now.
    if engine.name in ("prism", "dataflow") or (engine.name in ENGINES and known):
        engine_probes.check_known(request.rest, known)
    return replace(engine, arguments=(*engine.arguments, *extra))


def cancel(engine: Engine, result: Any) -> None:
    """End a job on its engine, as far as that is possible from here.

    Flink's job server does not pass this on; its REST service, where the user named it with ``--master``, does.

    Args:
        result: what Beam returned for the job.
    """
    with suppress(Exception):
        result.cancel()
    name = _request(engine.arguments).value("job_name")
    if engine.name == "flink" and engine.master is not None and name is not None:
        engine_probes.cancel_flink_job(engine.master, name)


def failures(engine: Engine) -> list[str]:
    """Return what the engine itself says about failed attempts of its job, where it can be asked.

    What reaches the submitting process of a job that was tried several times is the failure that came last, such as the
    interruption of a step whose job had failed already.
    """
    name = _request(engine.arguments).value("job_name")
    if engine.name == "flink" and engine.master is not None and name is not None:
        return engine_probes.flink_failures(engine.master, name)
    return []


def check_files(engine: Engine, output: str, inputs: Sequence[str]) -> None:
    """Raise UsageError if workers on other machines would have to see files of this one."""
    if engine.sees_local_files:
        return
    for entry in (output, *inputs):
        if scheme_of(locate(entry)) == "file":
            raise UsageError(
                f"{entry} is a local path, and the workers of --engine={engine.name} are not on this machine; give an "
                "s3:// or gs:// path, or --shared-files if they all see it under this path"
            )


def _request(arguments: Sequence[str]) -> _Request:
    parser = _parser(("master", "runner"))
    parser.add_argument("--engine")
    parser.add_argument("--job-endpoint", "--job_endpoint")
    parser.add_argument("--shared-files", action="store_true")
    parser.add_argument("--accelerator")
    given, rest = _parse_with(parser, arguments)
    if given.engine is not None and given.engine not in ENGINES:
        raise UsageError(f"--engine: {given.engine} is none; known are {', '.join(ENGINES)}")
    return _Request(
        given.engine,
        given.master,
        given.job_endpoint,
        given.shared_files,
        given.accelerator,
        given.runner,
        tuple(rest),
    )


def _local(request: _Request) -> Engine:
    for name in ("master", "job_endpoint"):
        if getattr(request, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} belongs to an engine; give --engine as well (flink, spark or prism)")
    if request.accelerator is not None:
        raise UsageError("--accelerator belongs to an engine; give --engine as well, such as dataflow")
    given, rest = _parse(request.rest, ("direct_num_workers", "direct_running_mode"))
    engine_probes.check_known(rest)
    workers = int(given.direct_num_workers) if given.direct_num_workers is not None else 0
    workers = workers or os.cpu_count() or 1
    mode = given.direct_running_mode or _mode(workers)
    own = mode == "multi_processing"
    local = ["--runner=FnApiRunner", f"--direct_num_workers={workers}", "--no_save_main_session"]
    if not own:
        local.append(f"--direct_running_mode={mode}")
    return Engine("local", (*local, *rest), workers=workers, has_own_workers=own)


def _mode(workers: int) -> str:
    if workers == 1:
        return "in_memory"
    return "multi_threading" if workers <= MAX_THREADS else "multi_processing"


def _as_given(request: _Request) -> Engine:
    endpoint = [f"--job_endpoint={request.job_endpoint}"] if request.job_endpoint is not None else []
    return Engine(
        f"{request.runner}",
        (f"--runner={request.runner}", *endpoint, *request.rest),
        job_endpoint=request.job_endpoint,
        sees_local_files=request.runner != "DataflowRunner" or request.shared_files,
    )


def _flink(request: _Request) -> Engine:
    engine = _through_job_server(request, "FlinkRunner", "flink_master", FLINK_ENVIRONMENT_CACHE_MILLIS)
    if engine.master is None and not request.has("parallelism"):
        if not _is_here(engine.job_endpoint):
            raise UsageError(
                f"--engine=flink at {engine.job_endpoint}: give --parallelism=SLOTS, or --master=HOST:PORT of Flink's "
                "REST service to use all slots; Flink's own default is 1"
            )
        return replace(engine, arguments=(*engine.arguments, f"--parallelism={os.cpu_count() or 1}"))
    return engine


def _spark(request: _Request) -> Engine:
    return _through_job_server(request, "SparkRunner", "spark_master_url", SPARK_ENVIRONMENT_CACHE_MILLIS)


def _through_job_server(request: _Request, own_runner: str, master_option: str, cache: int) -> Engine:
    """Return an engine behind a job server: a running one, or with only ``--master`` one that Beam starts."""
    endpoint = request.job_endpoint
    if endpoint is None and request.master is None:
        endpoint = DEFAULT_JOB_ENDPOINT
    if endpoint is not None:
        runner = [f"--runner={request.runner or 'PortableRunner'}", f"--job_endpoint={endpoint}"]
    else:
        runner = [f"--runner={request.runner or own_runner}", f"--{master_option}={request.master}"]
    here = _is_here(endpoint or request.master)
    environment, sees = _environment(request, here)
    defaults = [*environment, f"--environment_cache_millis={cache}", "--no_save_main_session"]
    return Engine(
        f"{request.engine}",
        (*runner, *request.with_defaults(defaults)),
        job_endpoint=endpoint,
        master=request.master,
        sees_local_files=sees,
    )


def _environment(request: _Request, here: bool) -> tuple[list[str], bool]:
    """Return the options for the workers' Python, and whether they see the files of this machine."""
    image = request.value("sdk_container_image")
    kind = request.value("environment_type")
    if kind is not None or request.has("environment_config", "environment_options", "environment_option"):
        return [], kind == "LOOPBACK" or (here and kind in ("PROCESS", "EXTERNAL"))
    if image is not None:
        return ["--environment_type=DOCKER", f"--environment_options=docker_container_image={image}"], False
    if not here:
        raise UsageError(
            f"--engine={request.engine}: the workers are on other machines; give --sdk_container_image=IMAGE with "
            "Thresher in it (see deploy/Dockerfile), or --environment_type=PROCESS with "
            f"--environment_options=process_command=/path/to/{WORKER_COMMAND} where it is installed on each of them"
        )
    return ["--environment_type=PROCESS", f"--environment_options=process_command={_worker_command()}"], True


def _worker_command() -> str:
    beside = Path(sys.executable).with_name(WORKER_COMMAND)
    found = str(beside) if beside.is_file() else shutil.which(WORKER_COMMAND)
    if found is None:
        raise UsageError(
            f"{WORKER_COMMAND} is not installed beside {sys.executable}; install Thresher there (pip install .), or "
            "give --environment_type"
        )
    return found


def _prism(request: _Request) -> Engine:
    if request.master is not None:
        raise UsageError("--engine=prism has no master; give --job-endpoint=HOST:PORT, or nothing to start Prism")
    defaults = ["--environment_type=LOOPBACK", "--no_save_main_session"]
    if request.job_endpoint is not None:
        runner = [f"--runner={request.runner or 'PortableRunner'}", f"--job_endpoint={request.job_endpoint}"]
    else:
        runner = [f"--runner={request.runner or 'PrismRunner'}"]
        if not request.has("prism_location"):
            found = shutil.which("prism")
            if found is None:
                raise UsageError(
                    "--engine=prism: there is no program prism on PATH; give --prism_location=FILE, --job-endpoint="
                    "HOST:PORT of a running one, or build it: "
                    "go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
                )
            defaults.append(f"--prism_location={found}")
    # Prism runs Python in the process that submits, and nowhere else.
    arguments = (*runner, *request.with_defaults(defaults))
    return Engine("prism", arguments, job_endpoint=request.job_endpoint)


def _dataflow(request: _Request) -> Engine:
    for name in ("master", "job_endpoint"):
        if getattr(request, name) is not None:
            raise UsageError(f"--engine=dataflow takes no --{name.replace('_', '-')}; give --project and --region")
    missing = [f"--{name}" for name in ("project", "region", "temp_location") if not request.has(name)]
    if missing:
        raise UsageError(f"--engine=dataflow needs {', '.join(missing)} (temp_location is a gs:// folder)")
    defaults = [f"--number_of_worker_harness_threads={DATAFLOW_THREADS}", "--no_save_main_session"]
    if not request.has("sdk_container_image"):
        setup = Path(__file__).parents[1] / "setup.py"
        if not request.has("setup_file") and not setup.is_file():
            raise UsageError(
                "--engine=dataflow: the workers need Thresher; give --sdk_container_image=IMAGE (see "
                "deploy/Dockerfile), or --setup_file of a checkout"
            )
        defaults.append(f"--setup_file={setup}")
    arguments = (f"--runner={request.runner or 'DataflowRunner'}", *request.with_defaults(defaults))
    return Engine("dataflow", arguments, sees_local_files=False, accelerator=DATAFLOW_ACCELERATOR)


def _fit_to_cluster(request: _Request, task_managers: int, slots: int) -> list[str]:
    """Return the options that use all slots of a Flink cluster, as far as the user gave none."""
    wanted = request.value("parallelism")
    if wanted is not None and wanted.isdecimal() and int(wanted) > slots:
        raise UsageError(f"--parallelism={wanted}: the Flink cluster has {slots} slots; the job would wait for ever")
    if not slots:
        raise UsageError("the Flink cluster has no slots: no TaskManager is running")
    per_manager = -(-slots // task_managers)
    found = {"parallelism": slots, "sdk_worker_parallelism": -(-per_manager // MAX_THREADS)}
    return [f"--{name}={value}" for name, value in found.items() if not request.has(name)]


def _is_here(address: str | None) -> bool:
    """Whether an address (host:port, or a URL) is on this machine; engines inside a process are."""
    host = (address or "").split("://", 1)[-1].rsplit(":", 1)[0]
    return host in _LOOPBACK or host.startswith(("[auto]", "[local]", "local[")) or address in ("local", EMBEDDED)


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        parser.add_argument(f"--{name}")
    return parser


def _parse(arguments: Sequence[str], names: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    return _parse_with(_parser(names), arguments)


def _parse_with(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    try:
        return parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UsageError(f"{error}") from None
