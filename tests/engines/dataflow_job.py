"""Translate a run for Dataflow, without sending it: ``python dataflow_job.py FOLDER RESULT OPTION…``.

FOLDER holds the config and gets the plan; RESULT gets the job as JSON. What Beam would upload is kept here, and its
questions to the cloud are left out; all else is Beam's own code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.dataflow.internal import apiclient

from corpus.folder import Folder
from corpus.planning import plan_input
from pipelines.config import load_config
from pipelines.graph import build
from pipelines.job import PLAN_NAME, Job
from pipelines.runners import choose_engine, connect


def main(folder: Path, result: Path, options: list[str]) -> None:
    """Write the job and its pipeline."""
    config = load_config(folder / "c.yaml", [], {})
    plan = plan_input(config.input).to_json().encode()
    Folder(str(folder / "run")).write_bytes(PLAN_NAME, plan)
    job = Job(config, str(folder / "run"), 1000, hashlib.sha256(plan).hexdigest())
    engine = connect(choose_engine(["--engine=dataflow", "--shared-files", *options]))
    staged: dict[str, bytes] = {}

    def keep(
        self: Any, location: str, name: str, stream: Any, mime_type: str = "", total_size: int | None = None
    ) -> None:
        staged[f"{location.rstrip('/')}/{name}"] = stream.read()

    arguments = [*engine.arguments, "--template_location=gs://bucket-of-tests/template.json"]
    resources: list[str] = []

    def note(self: Any, pipeline: Any, options: PipelineOptions) -> list[str]:
        resources.extend(
            artifact.type_payload.decode(errors="replace")
            for environment in pipeline.components.environments.values()
            for artifact in environment.dependencies
        )
        return []

    with (
        mock.patch.object(apiclient.DataflowApplicationClient, "stage_file", keep),
        mock.patch.object(apiclient.DataflowApplicationClient, "_stage_resources", note),
        mock.patch.object(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled"),
    ):
        pipeline = beam.Pipeline(runner=DataflowRunner(), options=PipelineOptions(arguments))
        build(pipeline, job)
        pipeline.run()
    proto = beam_runner_api_pb2.Pipeline.FromString(
        next(data for name, data in staged.items() if name.endswith("pipeline.pb"))
    )
    found = {
        "job": json.loads(staged["gs://bucket-of-tests/template.json"]),
        "steps": [transform.unique_name for transform in proto.components.transforms.values()],
        "resources": resources,
    }
    result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
