"""Every config that ships, as the pipeline that an engine would get: nothing in it that some engine lacks."""

from __future__ import annotations

import base64
import bz2
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2 as api

from corpus.folder import Folder
from corpus.planning import plan_input
from pipelines.config import load_config
from pipelines.graph import build
from pipelines.job import PLAN_NAME, Job
from tests.conftest import REPOSITORY

CONFIGS = sorted(path.stem for path in (REPOSITORY / "configs").glob("*.yaml"))
# The transforms that an engine carries out itself; all others are made of them.
PRIMITIVES = {"pardo", "group_by_key", "flatten", "impulse"}
# Collections of Beam's own transforms; ours have standard coders or the coder of batches.
# Four at most: the count of records, two sizes and the forest, all of which every engine of these tests has taken.
MAX_SIDE_INPUTS = 4


def _pipeline(name: str, folder: Path, *sets: str, accelerator: str | None = None) -> api.Pipeline:
    """Return a config's pipeline over a few records with all the columns that configs name."""
    rows = [
        {
            "id": f"{n}", "text": f"Text {n}.", "source": "s", "license": "MIT", "prompt": "Why?", "response": "So.",
            "url": "https://example.org/a", "kind": "k", "date": "2024",
        }
        for n in range(3)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = "a.jsonl" if name == "pairs" else "a.parquet"
    config = load_config(REPOSITORY / "configs" / f"{name}.yaml", [f"input.files=[{folder / file}]", *sets], {})
    plan = plan_input(config.input).to_json().encode()
    Folder(str(folder / "run")).write_bytes(PLAN_NAME, plan)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    digest = hashlib.sha256(plan).hexdigest()
    build(pipeline, Job(config, str(folder / "run"), 1000, digest, accelerator=accelerator))
    return pipeline.to_runner_api()


@pytest.fixture(scope="module", params=CONFIGS)
def proto(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> api.Pipeline:
    return _pipeline(request.param, tmp_path_factory.mktemp(request.param))


def _kind(transform: Any) -> str:
    return str(transform.spec.urn).removeprefix("beam:transform:").split(":")[0]


def test_only_transforms_that_every_engine_has(proto: api.Pipeline) -> None:
    for transform in proto.components.transforms.values():
        # What is made of nothing gives out what it got.
        if transform.subtransforms or set(transform.outputs.values()) <= set(transform.inputs.values()):
            continue
        assert _kind(transform) in PRIMITIVES, (transform.unique_name, transform.spec.urn)


def test_steps_have_no_state_timers_or_finalizers(proto: api.Pipeline) -> None:
    for transform in proto.components.transforms.values():
        if _kind(transform) == "pardo":
            payload = api.ParDoPayload.FromString(transform.spec.payload)
            assert not payload.state_specs, transform.unique_name
            assert not payload.timer_family_specs, transform.unique_name
            assert not payload.requests_finalization, transform.unique_name
            assert not payload.requires_stable_input, transform.unique_name
            assert not payload.requires_time_sorted_input, transform.unique_name
            assert len(payload.side_inputs) <= MAX_SIDE_INPUTS, transform.unique_name


def test_there_is_one_language_and_one_window(proto: api.Pipeline) -> None:
    capabilities = [environment.capabilities for environment in proto.components.environments.values()]
    assert len({tuple(sorted(one)) for one in capabilities}) == 1
    for strategy in proto.components.windowing_strategies.values():
        assert strategy.window_fn.urn == "beam:window_fn:global_windows:v1"
        assert api.Trigger.WhichOneof(strategy.trigger, "trigger") == "default"
    assert all(collection.is_bounded == api.IsBounded.BOUNDED for collection in proto.components.pcollections.values())


def _is_beams(name: str) -> bool:
    """Say whether a step is a part of one of Beam's own composites, as CombineGlobally is."""
    return "/" in name or name in ("Workers", "Have Thresher")


def test_steps_are_classes_of_ours_not_pickled_functions(proto: api.Pipeline) -> None:
    """A pickled function holds its code as it was on the machine that submitted; a class is the workers' own."""
    steps = []
    for transform in proto.components.transforms.values():
        own = not _is_beams(transform.unique_name)
        if _kind(transform) == "pardo" and own:
            payload = api.ParDoPayload.FromString(transform.spec.payload).do_fn.payload
            steps.append(transform.unique_name)
            assert re.search(rb"pipelines\.[a-z_]+", _unpacked(payload)), transform.unique_name
            assert b"_make_function" not in _unpacked(payload), transform.unique_name
    assert len(steps) >= 6


def _unpacked(payload: bytes) -> bytes:
    """Return a pickled step without Beam's packing."""
    return bz2.decompress(base64.b64decode(payload))


def test_a_pickled_function_is_seen() -> None:
    assert b"_make_function" in _unpacked(pickler.dumps(lambda: None))


def test_coders_are_standard_or_ours(proto: api.Pipeline) -> None:
    coders = proto.components.coders

    def foreign(coder_id: str) -> set[str]:
        coder = coders[coder_id]
        inner = set().union(*(foreign(one) for one in coder.component_coder_ids))
        if coder.spec.urn.startswith("beam:coder:") and coder.spec.urn != "beam:coder:pickled_python:v1":
            return inner
        return inner if b"DocumentBatchCoder" in coder.spec.payload else {*inner, coder.spec.urn}

    for collection in proto.components.pcollections.values():
        if not _is_beams(collection.unique_name.lstrip("0123456789").split(".")[0]):
            assert not foreign(collection.coder_id), collection.unique_name


def test_what_goes_into_one_flatten_has_one_coder(proto: api.Pipeline) -> None:
    collections = proto.components.pcollections
    for transform in proto.components.transforms.values():
        if _kind(transform) == "flatten":
            assert len({collections[name].coder_id for name in transform.inputs.values()}) == 1, transform.unique_name


@pytest.mark.parametrize("name", CONFIGS)
def test_step_names_are_stable_and_readable(name: str, tmp_path: Path) -> None:
    found = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        steps = [transform.unique_name for transform in _pipeline(name, folder).components.transforms.values()]
        assert len(steps) == len(set(steps))
        found.append(sorted(step.split("/")[0] for step in steps))
    assert found[0] == found[1]
    own = {step for step in found[0] if not step.startswith("ref_")}
    assert not [step for step in own if "lambda" in step or "ParDo(" in step or len(step) > 60]
    config = load_config(REPOSITORY / "configs" / f"{name}.yaml", [], {})
    assert all(any(stage.name in step for step in own) for stage in config.stages)


def test_steps_of_models_ask_for_a_gpu_and_no_others_do(tmp_path: Path) -> None:
    hint = "type:nvidia-l4;count:1;install-nvidia-driver"
    found = _pipeline("pairs", tmp_path, "reward_model.device=cuda", accelerator=hint)
    asking = {
        transform.unique_name.partition("/")[0]
        for transform in found.components.transforms.values()
        if found.components.environments[transform.environment_id].resource_hints
    }
    assert asking == {"reward_model"}
    (environment,) = (
        environment for environment in found.components.environments.values() if environment.resource_hints
    )
    assert list(environment.resource_hints.values()) == [hint.encode()]
    without = _pipeline("pairs", tmp_path, "reward_model.device=cuda")
    assert not any(environment.resource_hints for environment in without.components.environments.values())
