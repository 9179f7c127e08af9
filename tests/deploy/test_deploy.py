"""What can be checked of the deployment files without a cluster."""

from __future__ import annotations

import argparse
import json
import re
import runpy
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam
import pytest
import yaml

from pipelines import runners
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"


def test_the_template_has_a_parameter_for_each_argument(tmp_path: Path) -> None:
    command_line = runpy.run_path(str(DEPLOY / "dataflow/main.py"), run_name="template")["command_line"]
    metadata = json.loads((DEPLOY / "dataflow/metadata.json").read_text())
    wanted: dict[str, bool] = {}
    add: Any = argparse.ArgumentParser.add_argument

    def note(self: Any, name: str, *more: Any, **settings: Any) -> Any:
        if not name.startswith(("-h", "--runner")):
            wanted[name.lstrip("-")] = bool(settings.get("required"))
        return add(self, name, *more, **settings)

    (tmp_path / "c.yaml").write_text("stages: []\n")
    given = [f"--config={tmp_path / 'c.yaml'}", "--output=gs://b/run", "--set=a.b=1;a.c=2", "--project=p"]
    with mock.patch.object(argparse.ArgumentParser, "add_argument", note):
        found = command_line([*given, "--runner=DataflowRunner"], tmp_path)
    required = {parameter["name"]: not parameter["isOptional"] for parameter in metadata["parameters"]}
    assert required.items() >= wanted.items()
    assert found == [
        "run", str(tmp_path / "config.yaml"), "--output=gs://b/run", "--set=a.b=1", "--set=a.c=2", "--engine=dataflow",
        "--project=p",
    ]  # fmt: skip
    assert (tmp_path / "config.yaml").read_text() == "stages: []\n"
    for parameter in metadata["parameters"]:
        for pattern in parameter.get("regexes", []):
            re.compile(pattern)
    assert json.loads((DEPLOY / "dataflow/template.json").read_text())["sdkInfo"] == {"language": "PYTHON"}


def test_flink_restarts_after_the_worker_is_forgotten() -> None:
    config = yaml.safe_load((DEPLOY / "flink/config.yaml").read_text())
    delay, unit = config["restart-strategy"]["fixed-delay"]["delay"].split()
    assert unit == "s"
    assert int(delay) * 1000 > runners.FLINK_ENVIRONMENT_CACHE_MILLIS


def test_kubernetes_settings_are_those_that_were_run() -> None:
    def flat(value: Any, name: str = "") -> dict[str, str]:
        if not isinstance(value, dict):
            return {name: str(value).lower()}
        return {
            key: text for part, inner in value.items() for key, text in flat(inner, f"{name}.{part}".strip(".")).items()
        }

    ran = flat(yaml.safe_load((DEPLOY / "flink/config.yaml").read_text()))
    documents = list(yaml.safe_load_all((DEPLOY / "flink/kubernetes.yaml").read_text()))
    settings = documents[0]["spec"]["flinkConfiguration"]
    assert settings
    assert {name: ran.get(name) for name in settings} == settings


@pytest.mark.parametrize("name", ["Dockerfile", "flink/kubernetes.yaml", "spark/submit.sh"])
def test_images_have_the_version_of_beam(name: str) -> None:
    text = (DEPLOY / name).read_text()
    versions = re.findall(r"(?:BEAM=|job_server:)([0-9.]+)", text)
    assert versions
    assert set(versions) == {apache_beam.__version__}


def test_every_package_goes_into_the_image() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert packages <= set(re.findall(r"^COPY (\w+) ", text, re.MULTILINE))
