"""The Beam graph: named steps, typed edges, nothing that an engine lacks; its steps through the FnApiRunner."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from corpus.batch import DocumentBatch, encode
from corpus.folder import Folder
from corpus.planning import plan_input
from corpus.readers import read_item
from corpus.staging import ChunkReference, read_marks, read_records
from corpus.verdicts import alive_after, mark_record_stage
from pipelines import steps
from pipelines.config import config_from_mapping
from pipelines.graph import build
from pipelines.job import PLAN_NAME, Job
from tests.pipelines.corpora import STAGES, write_corpus

# Collections between the inner steps of Beam's own transforms.


def _job(folder: Path, files: list[str], stages: list[Any]) -> Job:
    config = config_from_mapping(
        {
            "input": {"files": files, "id_column": "id", "source_column": "source"},
            "output": str(folder),
            "stages": stages,
            "batch_rows": 150,
        }
    )
    plan = plan_input(config.input).to_json().encode()
    Folder(str(folder)).write_bytes(PLAN_NAME, plan)
    return Job(config, str(folder), 1000, hashlib.sha256(plan).hexdigest())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    stages = [*STAGES, {"gopher_quality": {"name": "after"}}]
    return _job(tmp_path / "run", write_corpus(tmp_path / "corpus", 600), stages)


def _proto(job: Job) -> Any:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(pipeline, job)
    return pipeline.to_runner_api()


def test_every_stage_is_a_named_step(job: Job) -> None:
    names = {transform.unique_name for transform in _proto(job).components.transforms.values()}
    for name in (
        "Read",
        "language",
        "gopher_quality",
        "exact_duplicates: buckets",
        "exact_duplicates: clusters",
        "after",
        "Plan shards",
        "Write",
    ):
        assert name in names


def test_the_graph_stays_inside_what_all_engines_can_do(job: Job) -> None:
    components = _proto(job).components
    for transform in components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam.portability.api.beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            assert not payload.state_specs, transform.unique_name
            assert not payload.timer_family_specs, transform.unique_name
            assert not payload.requests_finalization, transform.unique_name
        if transform.spec.urn == "beam:transform:flatten:v1":
            coders = {components.pcollections[name].coder_id for name in transform.inputs.values()}
            assert len(coders) == 1, transform.unique_name


def test_every_edge_has_an_explicit_coder(job: Job) -> None:
    components = _proto(job).components

    def coders(coder_id: str) -> set[str]:
        coder = components.coders[coder_id]
        name = coder.spec.urn
        if name == "beam:coder:pickled_python:v1":
            name = "DocumentBatchCoder" if b"DocumentBatchCoder" in coder.spec.payload else "a pickled coder"
        return {name}.union(*(coders(inner) for inner in coder.component_coder_ids))

    for collection in components.pcollections.values():
        # The parts of Beam's own composites have coders of theirs.
        if "/" not in collection.unique_name:
            found = coders(collection.coder_id) - {"DocumentBatchCoder"}
            assert all(name.startswith("beam:coder:") for name in found), (collection.unique_name, found)


def test_the_graph_does_not_grow_with_files(tmp_path: Path) -> None:
    sizes = []
    for count in (1, 30):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.jsonl").write_text('{"id": "a", "text": "one", "source": "s"}\n')
        sizes.append(len(_proto(_job(folder / "run", [f"{folder}/*.jsonl"], STAGES)).components.transforms))
    assert sizes[0] == sizes[1]


def test_reading_and_marking_give_what_the_pure_functions_give(job: Job) -> None:
    stage = job.config.build()[1]
    stage.prepare()
    expected: list[bytes] = []
    for item in job.plan().items:
        batches = read_item(item, job.config.input, job.config.batch_rows, job.config.batch_bytes)
        expected.extend(encode(mark_record_stage(stage, batch)) for batch in batches)  # type: ignore[arg-type]
    with TestPipeline(runner="FnApiRunner") as pipeline:
        batches = (
            pipeline
            | beam.Create([(number, [number]) for number in range(len(job.plan().items))])
            | beam.ParDo(steps.ReadItems(job)).with_output_types(DocumentBatch)
            # A shuffle between the steps sends every batch through the coder.
            | beam.Reshuffle()
            | beam.ParDo(steps.MarkRecordStage(job, "gopher_quality")).with_output_types(DocumentBatch)
            | beam.Map(encode)
        )
        assert_that(batches, equal_to(expected))


def test_a_step_that_runs_again_gives_the_same_outputs(job: Job) -> None:
    """The second time everything is staged, which no output may show."""
    read, stage = steps.ReadItems(job), steps.StageBatches(job, 1)
    stage.setup()
    marks = [steps.MarkRecordStage(job, name) for name in ("language", "gopher_quality")]
    for mark in marks:
        mark.setup()

    def outputs() -> list[Any]:
        found = []
        for batch in read.process((0, [0])):
            for mark in marks:
                (batch,) = mark.process(batch)
            found.extend(stage.process(batch))
        return [(each.tag, each.value) if isinstance(each, beam.pvalue.TaggedOutput) else each for each in found]

    first = outputs()
    references = [ChunkReference.from_bytes(each[1]) for each in first if isinstance(each[0], int)]
    assert len(references) == 2
    for reference in references:
        records = read_records(job.folder, reference.key, reference.last)
        assert read_marks(job.folder, 1, reference.key).num_rows == records.num_rows == reference.rows
        kept = records.column("bytes").to_numpy()[
            alive_after(read_marks(job.folder, 1, reference.key), stage.current.stages)
        ]
        assert (reference.kept_rows, reference.kept_bytes) == (len(kept), kept.sum())
        assert 0 < reference.kept_rows < reference.rows
    assert outputs() == first
