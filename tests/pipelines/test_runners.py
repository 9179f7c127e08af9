"""Options for each engine: defaults where the user gives none, and clear refusals."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.options.pipeline_options import DirectOptions, SetupOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from corpus.errors import ThresherError, UsageError
from corpus.planning_types import InputPlan, Item, PlannedFile
from pipelines import runners
from pipelines.beam_options import RememberedOptions
from pipelines.config import config_from_mapping
from pipelines.execution import execute, failure_message
from pipelines.job import Job
from pipelines.local_workers import LEAST_ITEM_BYTES, SMALL_INPUT_BYTES, fit_to_input
from pipelines.runners import check_files, choose_engine, connect

CLOUD = ("--project=p", "--region=r", "--temp_location=gs://bucket/tmp")


def names(arguments: tuple[str, ...]) -> list[str]:
    return [argument.split("=")[0] for argument in arguments]


def test_local_is_the_default() -> None:
    engine = choose_engine([])
    assert engine == choose_engine(["--engine=local"]) == choose_engine(["--runner", "DirectRunner"])
    assert engine.is_local
    assert engine.workers == (os.cpu_count() or 1)
    assert engine.arguments[0] == "--runner=FnApiRunner"
    assert connect(engine) == engine


@pytest.mark.parametrize(
    ("workers", "mode", "own"), [(1, "in_memory", False), (2, "multi_threading", False), (5, None, True)]
)
def test_local_workers(workers: int, mode: str | None, own: bool) -> None:
    engine = choose_engine([f"--direct_num_workers={workers}"])
    assert (engine.workers, engine.has_own_workers) == (workers, own)
    assert (f"--direct_running_mode={mode}" in engine.arguments) == (mode is not None)


def _plan(size: int, items: int = 1) -> InputPlan:
    file = PlannedFile("a.txt", "/in/a.txt", "text", None, size, "0", None, 1, None)
    item = Item(0, "a.txt", "/in/a.txt", "text", None, 0, size, 0, None, None, None, None)
    return InputPlan((file,), (item,) * items, ())


def test_a_small_input_takes_one_worker_unless_the_user_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    def workers(plan: InputPlan, stage: Any = "length", *arguments: str) -> int:
        mapping = {"input": {"files": ["a"]}, "output": "o", "stages": [stage]}
        stages = config_from_mapping(mapping).build(check=False)
        return fit_to_input(choose_engine(arguments), arguments, plan, stages).workers

    assert workers(_plan(SMALL_INPUT_BYTES)) == 1
    assert workers(_plan(SMALL_INPUT_BYTES + 1)) == 3
    assert workers(_plan(1, SMALL_INPUT_BYTES // LEAST_ITEM_BYTES + 1)) == 3
    assert workers(_plan(1), {"judge": {"base_url": "http://localhost:1/v1", "model": "m"}}) == 3
    assert workers(_plan(1), "length", "--direct_num_workers=2") == 2
    assert workers(_plan(1), "length", "--direct_num_workers", "2") == 2
    flink = choose_engine(["--engine=flink"])
    assert fit_to_input(flink, ["--engine=flink"], _plan(1), []) == flink
    kept = fit_to_input(choose_engine(["--job_name=a"]), ["--job_name=a"], _plan(1), [])
    assert {"--job_name=a", "--direct_num_workers=1", "--direct_running_mode=in_memory"} <= set(kept.arguments)


def test_views_of_options_are_made_once_and_share_their_values() -> None:
    options = RememberedOptions(["--direct_num_workers=2"])
    view = options.view_as(DirectOptions)
    assert view is options.view_as(DirectOptions)
    assert view.direct_num_workers == 2
    # Beam copies the options that a pipeline is given, and changes its own.
    own = copy.deepcopy(options)
    own.view_as(DirectOptions).direct_num_workers = 3
    own.view_as(SetupOptions).pickle_library = "dill"
    assert own.view_as(DirectOptions).direct_num_workers == 3
    assert own.get_all_options()["pickle_library"] == "dill"
    assert (view.direct_num_workers, options.view_as(SetupOptions).pickle_library) == (2, "default")


@pytest.mark.parametrize("name", ["flink", "spark"])
def test_job_servers_on_this_machine(name: str) -> None:
    engine = choose_engine([f"--engine={name}"])
    assert not engine.is_local
    assert engine.sees_local_files
    assert engine.job_endpoint == "localhost:8099"
    assert engine.arguments[:2] == ("--runner=PortableRunner", "--job_endpoint=localhost:8099")
    assert "--environment_type=PROCESS" in engine.arguments
    command = next(part for part in engine.arguments if "process_command=" in part).rsplit("=", 1)[1]
    assert Path(command).name == "thresher-worker"
    assert os.access(command, os.X_OK)
    assert (f"--parallelism={os.cpu_count()}" in engine.arguments) == (name == "flink")


def test_what_the_user_gives_wins() -> None:
    given = ["--environment_type=LOOPBACK", "--environment_cache_millis", "7", "--parallelism=3"]
    engine = choose_engine(["--engine=flink", "--job_endpoint=localhost:1", *given])
    assert engine.arguments[-4:] == tuple(given)
    for option in ("--environment_type", "--environment_cache_millis", "--parallelism"):
        assert names(engine.arguments).count(option) == 1
    assert "--environment_options" not in names(engine.arguments)
    assert choose_engine(["--engine=flink", "--runner=FlinkRunner"]).arguments[0] == "--runner=FlinkRunner"


def test_other_machines() -> None:
    """Workers on other machines have a Python of their own, and do not see local files."""
    remote = ["--engine=flink", "--job-endpoint=flink.example:8099"]
    with pytest.raises(UsageError, match=r"give --sdk_container_image=IMAGE .* or --environment_type=PROCESS"):
        choose_engine([*remote, "--parallelism=2"])
    with pytest.raises(UsageError, match=r"give --parallelism=SLOTS, or --master"):
        choose_engine([*remote, "--sdk_container_image=example.org/thresher:1"])
    engine = choose_engine([*remote, "--sdk_container_image=example.org/thresher:1", "--parallelism=2"])
    assert "--environment_type=DOCKER" in engine.arguments
    assert "--environment_options=docker_container_image=example.org/thresher:1" in engine.arguments
    check_files(engine, "s3://bucket/run", ["gs://bucket/*.parquet"])
    for output, files in (("/runs/a", ["s3://b/x"]), ("s3://bucket/run", ["s3://b/x", "pages.jsonl"])):
        with pytest.raises(UsageError, match="is a local path, and the workers of --engine=flink are not on this"):
            check_files(engine, output, files)
    shared = choose_engine(["--shared-files", *remote, "--environment_type=DOCKER", "--parallelism=2"])
    check_files(shared, "/runs/a", ["pages.jsonl"])
    containers = choose_engine(["--engine=spark", "--sdk_container_image=example.org/thresher:1"])
    assert not containers.sees_local_files


def test_a_master_without_a_job_server() -> None:
    engine = choose_engine(["--engine=spark", "--master=local[2]"])
    assert engine.arguments[:2] == ("--runner=SparkRunner", "--spark_master_url=local[2]")
    assert engine.job_endpoint is None
    flink = choose_engine(["--engine=flink", "--master=localhost:8081"])
    assert flink.arguments[:2] == ("--runner=FlinkRunner", "--flink_master=localhost:8081")


def test_prism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no program prism on PATH"):
        choose_engine(["--engine=prism"])
    assert choose_engine(["--engine=prism", "--job-endpoint=localhost:8073"]).job_endpoint == "localhost:8073"
    program = tmp_path / "prism"
    program.touch(0o755)
    engine = choose_engine(["--engine=prism"])
    assert engine.arguments[0] == "--runner=PrismRunner"
    assert f"--prism_location={program}" in engine.arguments
    assert "--environment_type=LOOPBACK" in engine.arguments


def test_dataflow() -> None:
    with pytest.raises(UsageError, match="needs --region, --temp_location"):
        choose_engine(["--engine=dataflow", "--project=p"])
    engine = choose_engine(["--engine=dataflow", *CLOUD])
    setup = next(part for part in engine.arguments if part.startswith("--setup_file=")).split("=")[1]
    assert Path(setup).is_file()
    assert not engine.sees_local_files
    image = choose_engine(
        ["--engine=dataflow", *CLOUD, "--sdk_container_image=i", "--number_of_worker_harness_threads=9"]
    )
    assert "--setup_file" not in names(image.arguments)
    assert names(image.arguments).count("--number_of_worker_harness_threads") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine=flnk"], "--engine: flnk is none; known are local, flink, spark, prism, dataflow"),
        (["--engine=flink", "--runner=DirectRunner"], "contradict each other"),
        (["--job-endpoint=localhost:1"], "--job-endpoint belongs to an engine"),
        (["--master=localhost:1"], "--master belongs to an engine"),
        (["--engine=prism", "--master=x"], "prism has no master"),
        (["--engine=dataflow", "--master=x"], "takes no --master"),
        (["--direct_num_wrkers=2"], "unknown option --direct_num_wrkers=2; did you mean --direct_num_workers?"),
        (["--overwrit"], "did you mean --overwrite?"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        choose_engine(arguments)
    assert message in str(refusal.value)


def test_a_runner_without_an_engine_is_taken_as_it_stands() -> None:
    given = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]
    engine = choose_engine(given)
    assert engine.arguments == tuple(given)
    assert not engine.is_local
    assert connect(engine) == engine


def test_a_cluster_is_used_whole() -> None:
    request = runners._request([])
    assert runners._fit_to_cluster(request, 2, 16) == ["--parallelism=16", "--sdk_worker_parallelism=2"]
    given = runners._request(["--parallelism=3", "--sdk_worker_parallelism=1"])
    assert runners._fit_to_cluster(given, 2, 4) == []
    with pytest.raises(UsageError, match="no slots"):
        runners._fit_to_cluster(request, 0, 0)


@pytest.mark.parametrize(
    ("address", "here"),
    [("localhost:1", True), ("127.0.0.1:1", True), ("[::1]:1", True), ("http://localhost:8081", True),
     ("spark://localhost:7077", True), ("local[4]", True), ("[auto]", True), ("local", True), ("embed", True),
     ("flink.example:8081", False), ("spark://10.0.0.1:7077", False), ("localhost.example:1", False)],
)  # fmt: skip
def test_addresses_of_this_machine(address: str, here: bool) -> None:
    assert runners._is_here(address) == here


def test_a_worker_says_what_it_lacks(tmp_path: Path) -> None:
    config = config_from_mapping({"input": {"files": ["a.jsonl"]}, "output": str(tmp_path), "stages": []})
    with pytest.raises(ThresherError, match=r"does not see the run folder .*; give an output on an object store"):
        Job(config, str(tmp_path), 0, "digest").plan()
    with pytest.raises(ThresherError, match=r"has Thresher .*, and 9\.9 started the run; install the same version"):
        Job(config, str(tmp_path), 0, "digest", version="9.9").plan()
    error = RuntimeError("Error received from SDK harness:\nModuleNotFoundError: No module named 'pipelines'\n")
    assert failure_message(error).startswith("the workers lack Thresher")
    other = RuntimeError("ModuleNotFoundError: No module named 'pipelines_of_others'")
    assert failure_message(other) == "ModuleNotFoundError: No module named 'pipelines_of_others'"


class JobServer(beam_job_api_pb2_grpc.JobServiceServicer):  # type: ignore[misc]
    """What Beam's job servers answer to the question for their options."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe the options."""
        options = [beam_job_api_pb2.PipelineOptionDescriptor(name=name) for name in self.names]
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=options)


@contextmanager
def job_server(*names: str) -> Iterator[str]:
    """Serve such options on loopback; gives the address."""
    server = grpc.server(ThreadPoolExecutor(1))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(JobServer(*names), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


# Some of the options that Beam's Flink job servers 2.34.0 and 2.62.0 really described.
OLD_OPTIONS = ("environment_cache_millis", "flink_master", "insert_bundle_parallelism", "sdk_worker_parallelism")
NEW_OPTIONS = ("environment_cache_millis", "flink_master", "bundle_processor_cache_timeout", "sdk_worker_parallelism")


def test_a_job_server_of_an_old_beam(tmp_path: Path) -> None:
    """It is refused before the input is looked at; as found with Beam's own job server 2.34.0."""
    with job_server(*OLD_OPTIONS) as address:
        config = config_from_mapping(
            {"input": {"files": [str(tmp_path / "none")]}, "output": str(tmp_path / "run"), "stages": []}
        )
        with pytest.raises(ThresherError) as refusal:
            execute(config, ["--engine=flink", f"--job-endpoint={address}"])
        assert f"the Beam job server at {address} is older than Beam 2.62, and Thresher" in str(refusal.value)
        with pytest.raises(ThresherError, match="is older than Beam"):
            connect(choose_engine(["--engine=spark", f"--job-endpoint={address}"]))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("names", [NEW_OPTIONS, ()])
def test_job_servers_that_will_do(names: tuple[str, ...]) -> None:
    with job_server(*names) as address:
        engine = choose_engine(["--engine=flink", f"--job-endpoint={address}", "--parallelism=3"])
        assert connect(engine) == engine


def test_parallelism() -> None:
    assert choose_engine(["--direct_num_workers=3"]).parallelism == 3
    assert choose_engine(["--engine=flink", "--parallelism", "5"]).parallelism == 5
    assert choose_engine(["--engine=spark"]).parallelism is None
    assert choose_engine(["--engine=dataflow", *CLOUD]).parallelism is None
    assert choose_engine(["--engine=dataflow", *CLOUD, "--max_num_workers=20"]).parallelism == 20


def test_failures_are_asked_for_where_they_can_be() -> None:
    assert runners.failures(choose_engine([])) == []
    nobody = ["--engine=flink", "--job-endpoint=localhost:1", "--master=localhost:1", "--job_name=any"]
    assert runners.failures(choose_engine(nobody)) == []
