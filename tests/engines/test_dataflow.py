"""The job that Dataflow would get, produced without a cloud; it was never sent there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.engines.configs import document_config
from tests.engines.libraries import CACHE, note_use
from tests.pipelines.corpora import write_corpus

CLOUD = ["--project=tests", "--region=us-central1", "--temp_location=gs://bucket-of-tests/tmp", "--no_auth"]
IMAGE = "example.org/thresher:0.1"


@pytest.fixture(scope="session")
def packages() -> Path:
    """Beam's packages for Dataflow, fetched once into the user's cache: too many for every test environment."""
    constraints = REPOSITORY / "constraints.txt"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}-{hashlib.sha256(constraints.read_bytes()).hexdigest()[:12]}"
    target = CACHE / f"dataflow-{version}"
    if target.is_dir():
        note_use(target)
        return target
    half = target.with_name(f"{target.name}.{os.getpid()}")
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(half)]
    done = subprocess.run(
        [*install, "-c", str(constraints), "apache-beam[gcp]"], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        pytest.skip(f"apache-beam[gcp] cannot be installed: {done.stderr[-300:]}")
    try:
        half.rename(target)
    except OSError:
        shutil.rmtree(half)
    note_use(target)
    return target


def translate(packages: Path, folder: Path, *options: str) -> Any:
    document_config(folder, write_corpus(folder / "corpus", 300), folder / "run").rename(folder / "c.yaml")
    # Any credentials will do; without some, Google's client asks the network for them.
    key = {"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}
    (folder / "key.json").write_text(json.dumps(key))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{packages}{os.pathsep}{REPOSITORY}",
        "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "key.json"),
    }
    program = Path(__file__).with_name("dataflow_job.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), str(folder / "job.json"), *CLOUD, *options],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "job.json").read_text())


def test_the_job(packages: Path, tmp_path: Path) -> None:
    found = translate(
        packages, tmp_path, f"--sdk_container_image={IMAGE}", "--machine_type=n2-standard-4", "--max_num_workers=20",
        "--dataflow_service_options=worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver",
    )  # fmt: skip
    job = found["job"]
    assert job["type"] == "JOB_TYPE_BATCH"
    (pool,) = job["environment"]["workerPools"]
    assert pool["machineType"] == "n2-standard-4"
    assert pool["numThreadsPerWorker"] == 2
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 20
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    accelerator = "worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver"
    assert job["environment"]["serviceOptions"] == [accelerator]
    for step in ("Read", "language", "gopher_quality", "Stage", "again", "Write"):
        assert step in found["steps"]
    assert any(step.startswith("exact_duplicates: ") for step in found["steps"])
    # The image has Thresher; nothing is sent along.
    assert not [name for name in found["resources"] if "thresher-" in name]


def test_the_package_goes_along_without_an_image(packages: Path, tmp_path: Path) -> None:
    found = translate(packages, tmp_path, "--number_of_worker_harness_threads=5")
    assert any("thresher-" in name for name in found["resources"])
    (pool,) = found["job"]["environment"]["workerPools"]
    assert pool["numThreadsPerWorker"] == 5
