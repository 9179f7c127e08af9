"""What users see when a run on an engine cannot begin, fails, or is stopped."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import apache_beam
import pytest

from pipelines import engine_probes, remote_worker
from tests.engines.clusters import Cluster, free_ports
from tests.engines.configs import document_config
from tests.engines.runs import started, thresher, wait
from tests.pipelines.corpora import write_corpus


def test_an_interruption_ends_the_job(flink: Cluster, tmp_path: Path) -> None:
    files = write_corpus(tmp_path / "corpus", 15_000)
    with started(document_config(tmp_path, files, tmp_path / "run"), tmp_path / "run", flink) as run:
        run.process.send_signal(signal.SIGINT)
        code, errors = run.finish()
    # Kernels that were just changed are compiled first, and the run says so.
    *before, last = errors.splitlines()
    assert (code, last) == (130, "thresher: interrupted; run the same command again to go on"), errors
    assert all(line.startswith("compiling kernels") for line in before), errors
    wait(
        "the job ends",
        lambda: all(job["state"] not in ("RUNNING", "CANCELLING") for job in flink.ask("/jobs/overview")["jobs"]),
    )
    last = max(flink.ask("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
    assert last["state"] == "CANCELED"


def test_workers_without_thresher(flink: Cluster, few: Path, tmp_path: Path) -> None:
    """A worker whose Python has Beam only: no site module, so that no path of an editable install is there."""
    site = Path(apache_beam.__file__).parents[1]
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, types\n"
        f"sys.path.append({str(site)!r})\n"
        "errors = types.SimpleNamespace(UsageError=Exception)\n"
        "sys.modules.update({'corpus': types.ModuleType('corpus'), 'corpus.errors': errors})\n"
        "boot = {'__name__': 'boot'}\n"
        f"exec(open({remote_worker.__file__!r}).read(), boot)\n"
        "del sys.modules['corpus'], sys.modules['corpus.errors']\n"
        "boot['main']()\n"
    )
    command = tmp_path / "worker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {program} "$@"\n')
    command.chmod(0o755)
    options = ["--environment_type=PROCESS", f"--environment_options=process_command={command}", "--job_name=lacking"]
    done = thresher("run", str(few), "--output", str(tmp_path / "run"), *flink.options, *options)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("thresher: the workers lack Thresher (No module named "), done.stderr
    assert len(done.stderr.splitlines()) == 2
    # Flink tries several times, and what comes last may be an interruption.
    told = engine_probes.flink_failures(flink.rest, "lacking")
    assert any("No module named 'pipelines'" in trace for trace in told)
    done = thresher("run", str(few), "--output", str(tmp_path / "run"), *flink.options)
    assert done.returncode == 0, done.stderr


def test_more_slots_than_there_are(flink: Cluster, few: Path, tmp_path: Path) -> None:
    done = thresher("run", str(few), "--output", str(tmp_path / "run"), *flink.options, "--parallelism=99")
    assert done.returncode == 2
    assert "the Flink cluster has 4 slots" in done.stderr


def test_options_that_the_engine_does_not_know(flink: Cluster, few: Path, tmp_path: Path) -> None:
    done = thresher("run", str(few), "--output", str(tmp_path / "run"), *flink.options, "--paralelism=2")
    assert done.returncode == 2
    assert "unknown option --paralelism=2; did you mean --parallelism?" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--job-endpoint=localhost:{}"], "no Beam job server answers at localhost:{} (Connection refused)"),
        (["--job-endpoint=localhost:{}", "--master=localhost:{}"], "no Beam job server answers at localhost:{}"),
        (
            ["--job-endpoint=localhost"],
            "--job-endpoint: localhost is no address of a Beam job server; wanted HOST:PORT",
        ),
    ],
)
def test_an_engine_that_cannot_be_reached(options: list[str], message: str, few: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    given = [option.format(port) for option in options]
    done = thresher("run", str(few), "--output", str(tmp_path / "run"), "--engine=flink", *given)
    assert done.returncode in (1, 2)
    assert message.format(port) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_engine_itself_in_place_of_its_job_server(flink: Cluster, few: Path, tmp_path: Path) -> None:
    rest = flink.rest.removeprefix("http://")
    arguments = ["run", str(few), "--output", str(tmp_path / "run"), "--engine=flink"]
    done = thresher(*arguments, f"--job-endpoint={rest}")
    assert done.returncode == 1
    assert f"what listens at {rest} is no Beam job server" in done.stderr
    assert not (tmp_path / "run").exists()
