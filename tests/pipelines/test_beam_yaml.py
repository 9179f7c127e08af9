"""Stages as steps of Beam YAML pipelines: what they give is what a run gives."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml  # type: ignore[import-untyped]
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows, TimestampedValue

import corpus.stages
from corpus.errors import ThresherError, UsageError
from corpus.findings import SPAN_SCHEMA
from corpus.inputs import InputConfig
from corpus.stages import EditingStage, Judgement, Rule, Signal, StageConfig, TextBatch, TextField, known_stages
from corpus.verdicts import alive_after, mark_record_stage
from pipelines import beam_yaml_duplicates
from pipelines.beam_yaml_duplicates import REFERENCE, ApplyVerdicts, RowsJob, StageRows
from pipelines.beam_yaml_fields import fields_named
from pipelines.beam_yaml_rows import RowLayout, canonical, read_rows
from pipelines.beam_yaml_staging import RowEncoder, check_staging, make_staging
from tests.pipelines.corpora import ENGLISH, documents, run, table, write_config

pytest.importorskip("apache_beam.yaml.yaml_transform", reason="needs apache-beam[yaml]")

from apache_beam.yaml import main as yaml_main
from apache_beam.yaml.yaml_provider import load_providers, merge_providers
from apache_beam.yaml.yaml_transform import YamlTransform

from pipelines.beam_yaml import DuplicateSettings, StageTransform, stage_provider

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLE = REPOSITORY / "configs" / "beam_yaml" / "pipeline.yaml"
LISTING = str(EXAMPLE.with_name("providers.yaml"))
PROSE = " ".join(ENGLISH)

REASONS = ("stage", "rule", "value", "threshold", "related_id")


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of the Parquet files that a pipeline wrote under a name."""
    return [row for path in sorted(folder.glob(f"{name}*")) for row in pq.read_table(path).to_pylist()]


def by_id(rows: list[dict[str, Any]], name: str, fields: list[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of fields by id. Clusters are called by their first id: their own ids are made of places."""
    clusters: dict[Any, Any] = {}
    for field in fields:
        if field.endswith("cluster_id"):
            for row in sorted(rows, key=lambda row: row[name]):
                clusters.setdefault(row[field], row[name] if row[field] is not None else None)
    found = {row[name]: tuple(clusters.get(row[field], row[field]) for field in fields) for row in rows}
    assert len(found) == len(rows)
    return found


FOUND: dict[str, list[dict[str, Any]]] = {}


class Collect(beam.DoFn):  # type: ignore[misc]
    """Keeps what an output gives; the runner works in this process."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def process(self, element: Any) -> None:
        FOUND[self.tag].append(element._asdict())


def transformed(specs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what the last of some steps gives for rows, by output."""
    FOUND.clear()
    transforms = [{"type": "Create", "config": {"elements": rows}}, *specs]
    for number, spec in enumerate(transforms):
        spec |= {"name": f"step {number}"} | ({"input": f"step {number - 1}"} if number else {})
    last = f"step {len(specs)}"
    outputs = {"good": f"{last}.good", "dropped": f"{last}.dropped"} if "error_handling" in str(specs[-1]) else last
    text = yaml.safe_dump({"type": "composite", "transforms": transforms, "output": outputs})
    with beam.Pipeline("FnApiRunner") as pipeline:
        found = pipeline | YamlTransform(text, providers=merge_providers(load_providers(LISTING)))
        for tag, output in (found if isinstance(found, dict) else {"good": found}).items():
            FOUND[tag] = []
            _ = output | f"Collect {tag}" >> beam.ParDo(Collect(tag))
    return FOUND


def step(kind: str, **settings: Any) -> dict[str, Any]:
    return {"type": kind, "config": {**settings, "error_handling": {"output": "dropped"}}}


def near_copies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Change a word in every sixth text, which is then a near-duplicate of any other that has it whole."""
    for row in rows[::6]:
        row["text"] = row["text"].replace(" the ", " this ", 1)
    return rows


def test_the_example_keeps_drops_and_measures_what_a_run_does(tmp_path: Path) -> None:
    rows = near_copies(documents(600))
    rows[7]["text"] = None
    source = tmp_path / "documents.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=100)
    variables = json.dumps({"input": str(source), "output": str(tmp_path / "yaml")})
    yaml_main.run([f"--yaml_pipeline_file={EXAMPLE}", "--runner=FnApiRunner", f"--jinja_variables={variables}"])
    language = {"keep": ["en"], "minimum_score": 0.65}
    stages = [{"language": language}, "gopher_quality", "exact_duplicates", "near_duplicates"]
    assert run(write_config(tmp_path / "run.yaml", [str(source)], tmp_path / "run", stages, id_column="id")) == 0

    signals = [name for name in table(tmp_path / "run", "signals")[0] if name.partition(".")[0] in known_stages()]
    kept = [row for row in table(tmp_path / "run", "signals") if row["kept"]]
    found = rows_of(tmp_path / "yaml", "kept")
    expected = by_id(kept, "record_id", signals)
    assert by_id(found, "id", [name.replace(".", "_") for name in signals]) == expected
    originals = {row["id"]: row for row in rows}
    assert all({name: row[name] for name in originals[row["id"]]} == originals[row["id"]] for row in found)

    ledger = by_id(table(tmp_path / "run", "ledger"), "record_id", list(REASONS))
    left = by_id(rows_of(tmp_path / "yaml", "dropped"), "id", list(REASONS))
    assert left.pop(rows[7]["id"]) == ("input", "null_text", None, None, None)
    assert left == ledger
    names = {"input", "language", "gopher_quality", "exact_duplicates", "near_duplicates"}
    assert {values[0] for values in ledger.values()} == names
    assert min(len(expected), len(ledger)) > 100


def test_the_listing_has_every_stage_under_its_name(case_stages: None) -> None:
    providers = merge_providers(load_providers(LISTING))
    assert set(known_stages()) <= set(providers)
    assert "near_duplicates" in providers, "a stage that was registered later"


@pytest.mark.parametrize("kind", sorted(known_stages()))
def test_settings_of_stages_and_of_steps_do_not_meet(kind: str) -> None:
    assert not set(DuplicateSettings.model_fields) & set(known_stages()[kind].Config.model_fields)


def test_the_entries_of_the_listing_may_stand_in_the_pipeline_itself(tmp_path: Path) -> None:
    spec = {
        "pipeline": {
            "type": "chain",
            "transforms": [
                {"type": "Create", "config": {"elements": [{"text": PROSE}, {"text": "no"}]}},
                {"type": "length", "config": {"minimum_words": 3}},
                {"type": "WriteToJson", "config": {"path": str(tmp_path / "kept")}},
            ],
        },
        "providers": yaml.safe_load(Path(LISTING).read_text(encoding="utf-8")),
    }
    yaml_main.run([f"--yaml_pipeline={yaml.safe_dump(spec)}", "--runner=FnApiRunner"])
    lines = [line for path in tmp_path.glob("kept*") for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["text"], row["length_words"]) for row in map(json.loads, lines)] == [(PROSE, len(ENGLISH))]


def test_a_listing_may_choose_and_rename() -> None:
    provider = stage_provider({"DetectLanguage": "language"})
    assert list(provider.provided_transforms()) == ["DetectLanguage"]
    assert provider.description("DetectLanguage") == known_stages()["language"].summary
    with pytest.raises(UsageError, match="no stage is called 'langage'; did you mean language"):
        stage_provider({"DetectLanguage": "langage"})


def test_without_error_handling_there_is_one_output_and_rows_that_leave_are_gone() -> None:
    rows = [{"text": PROSE, "number": 1}, {"text": "der Hund", "number": 2}, {"text": PROSE, "number": 3}]
    steps: list[dict[str, Any]] = [{"type": "length", "config": {"minimum_words": 3}}, {"type": "exact_duplicates"}]
    (row,) = transformed(steps, rows)["good"]
    assert (row["text"], row["length_words"], row["exact_duplicates_cluster_size"]) == (PROSE, len(ENGLISH), 2)


def test_pairs_and_columns_that_settings_name() -> None:
    rows = [
        {"question": "What?", "answer": PROSE, "meta": {"license": "MIT"}},
        {"question": "Who?", "answer": PROSE, "meta": {"license": "unknown"}},
        {"question": "Why?", "answer": " \u2003", "meta": {"license": "MIT"}},
    ]
    columns = {"prompt_column": "question", "response_column": "answer"}
    found = transformed([step("license", column="meta.license", allow=["MIT"], **columns)], rows)
    assert [row["question"] for row in found["good"]] == ["What?"]
    reasons = {row["question"]: (row["stage"], row["rule"]) for row in found["dropped"]}
    assert reasons["Why?"] == ("input", "empty_text")
    assert reasons["Who?"][0] == "license"


def test_exact_duplicates_name_the_leader_and_need_no_id() -> None:
    rows = [{"text": text, "number": number} for number, text in enumerate(["a b", "c", "a b", "a b", "c"])]
    found = transformed([step("exact_duplicates")], rows)
    assert Counter(row["text"] for row in found["good"]) == {"a b": 1, "c": 1}
    leaders = {canonical_id(row): row["text"] for row in found["good"]}
    assert [leaders[row["related_id"]] == row["text"] for row in found["dropped"]] == [True] * 3
    assert {row["rule"] for row in found["dropped"]} == {"duplication_budget"}


def canonical_id(row: dict[str, Any]) -> str:
    """The id that a row gets which has none: the hash of its values."""
    ids: list[str] = read_rows(LAYOUT, [(row["text"], row["number"])]).batch.records.column("record_id").to_pylist()
    return ids[0]


LAYOUT = RowLayout(
    ("text", "number"),
    InputConfig(files=["rows"]),
    known_stages()["exact_duplicates"](known_stages()["exact_duplicates"].Config(), "exact_duplicates", "text"),
    (),
)


PRIORITY = [{"source": ["books", "wiki"]}, "length.words"]
BUDGET = {"by": "kind", "default": 0, "values": {"a": 0.25, "b": 1}}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("exact_duplicates", {"priority": PRIORITY, "duplication_budget": BUDGET, "budget_unit": "characters"}),
        ("near_duplicates", {"priority": PRIORITY, "duplication_budget": BUDGET, "max_copies": 2}),
        ("near_duplicates", {"protect": ["news"], "scope": "source", "field": "response"}),
        ("near_duplicates", {"duplication_budget": {"by": "length.words", "values": {"60": 0.5}}, "threshold": 0.7}),
    ],
)
def test_duplicates_are_those_of_a_run(
    kind: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam_yaml_duplicates, "BATCH_BYTES", 10_000)
    rows = near_copies(documents(300, seed=3))
    choose = random.Random(1)
    columns: dict[str, Any] = {"id_column": "id", "source_column": "source"}
    for row in rows[::2]:
        row["text"] = choose.choice(rows[:60])["text"]
    for row in rows:
        row["kind"] = choose.choice(["a", "b", None])
        if "field" in settings:
            row["question"] = row["text"][:40]
            columns |= {"prompt_column": "question", "response_column": "text"}
    source = tmp_path / "documents.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source)
    stages = [{"length": {"minimum_words": 1}}, {kind: settings}]
    assert run(write_config(tmp_path / "run.yaml", [str(source)], tmp_path / "run", stages, **columns)) == 0
    staging = tmp_path / "staging"
    found = transformed(
        [
            {"type": "length", "config": {"minimum_words": 1, **columns}},
            step(kind, **settings, **columns, staging=str(staging), expected_rows=1000),
        ],
        rows,
    )
    signals = [name for name in table(tmp_path / "run", "signals")[0] if name.partition(".")[0] in (kind, "length")]
    entered = [row for row in table(tmp_path / "run", "signals") if row[f"{kind}.cluster_size"] is not None]
    expected = by_id(entered, "record_id", [*signals, "kept"])
    everything = [{**row, "kept": kept} for tag, kept in (("good", True), ("dropped", False)) for row in found[tag]]
    assert by_id(everything, "id", [*(name.replace(".", "_") for name in signals), "kept"]) == expected
    ledger = [row for row in table(tmp_path / "run", "ledger") if row["stage"] == kind]
    assert by_id(found["dropped"], "id", list(REASONS)) == by_id(ledger, "record_id", list(REASONS))
    assert min(len(found["good"]), len(ledger)) > 20
    copies = [row for row in found["good"] if row[f"{kind}_copy_index"]]
    assert bool(copies) == ("duplication_budget" in settings)
    assert len(list(staging.glob(f"{kind}-*/staging/records/*.arrow"))) > 5, "several batches"


def test_neither_order_nor_bundles_decide_which_duplicate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam_yaml_duplicates, "BATCH_BYTES", 20_000)
    choose = random.Random(5)
    words = choose.choices(ENGLISH, k=80)
    rows = []
    for number in range(150):
        changed = [*words[:70], *(f"{word}{choose.randrange(4)}" for word in words[70:72])]
        rows.append(
            {"id": f"id-{number % 40}", "text": " ".join(changed), "number": number // 2, "origin": "abc"[number % 3]}
        )
    settings = {"id_column": "id", "source_column": "origin", "priority": {"source": ["b", "c"]}, "max_bucket": 2}
    results = []
    for count in (1, 3, 12):
        choose.shuffle(rows)
        found: Counter[Any] = Counter()
        with beam.Pipeline("FnApiRunner") as pipeline:
            parts = [
                pipeline | f"Part {part}" >> beam.Create([beam.Row(**row) for row in rows[part::count]])
                for part in range(count)
            ]
            transform = StageTransform("near_duplicates", {**settings, "error_handling": {"output": "dropped"}})
            judged = parts | beam.Flatten() | transform
            for tag, output in judged.items():
                FOUND[tag] = []
                _ = output | f"Collect {tag}" >> beam.ParDo(Collect(tag))
        for tag in ("good", "dropped"):
            found.update((tag, *map(repr, row.items())) for row in FOUND[tag])
        results.append(found)
    assert results[1:] == results[:1] * 2
    assert sum(results[0].values()) == len(rows)
    assert len({row[0] for row in results[0]}) == 2


def test_rows_of_any_type_pass_duplicates_unchanged(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "text": text,
            "numbers": [1, None],
            "meta": {"deep": {"a": [0.5]}},
            "turns": [{"role": "user"}, None],
            "counts": [("a", 1), ("b", None)],
            "data": b"\xff",
            "flag": True,
        }
        for text in (PROSE, PROSE + " twice", PROSE)
    ]
    source = tmp_path / "rows.parquet"
    counts = pa.array([row["counts"] for row in rows], pa.map_(pa.string(), pa.int64()))
    plain = pa.Table.from_pylist([{name: row[name] for name in row if name != "counts"} for row in rows])
    pq.write_table(plain.append_column("counts", counts), source)
    spec = {
        "type": "chain",
        "transforms": [
            {"type": "ReadFromParquet", "config": {"path": str(source)}},
            {"type": "exact_duplicates"},
            {"type": "near_duplicates", "config": {"threshold": 1.0}},
            {"type": "WriteToParquet", "config": {"path": str(tmp_path / "kept.parquet")}},
        ],
    }
    providers = yaml.safe_load(Path(LISTING).read_text(encoding="utf-8"))
    text = yaml.safe_dump({"pipeline": spec, "providers": providers})
    yaml_main.run([f"--yaml_pipeline={text}", "--runner=FnApiRunner"])
    kept = sorted(rows_of(tmp_path, "kept"), key=lambda row: len(row["text"]))
    assert [{name: row[name] for name in rows[0]} for row in kept] == rows[:2]
    assert [row["exact_duplicates_cluster_size"] for row in kept] == [2, 1]


def test_no_rows_are_no_duplicates() -> None:
    steps = [{"type": "length", "config": {"minimum_words": 99}}, step("near_duplicates", duplication_budget=0.5)]
    assert transformed(steps, [{"text": "few words", "number": 1}]) == {"good": [], "dropped": []}


def job(root: Path, rows: int = 100) -> RowsJob:
    return RowsJob(LAYOUT, RowEncoder({"text": str, "number": int}), str(root), rows)


def test_a_batch_that_is_not_there_once_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ThresherError, match="batch 5 is there 2 times"):
        list(ApplyVerdicts(job(tmp_path)).process((5, [REFERENCE, REFERENCE])))


def test_a_worker_that_does_not_see_the_staging_folder_says_so(tmp_path: Path) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    check_staging(job(Path(make_staging("x", str(tmp_path), pipeline))).folder)
    with pytest.raises(ThresherError, match=r"does not see the staging folder .*elsewhere; give staging"):
        StageRows(job(tmp_path / "elsewhere")).setup()


def test_a_row_that_is_not_what_its_schema_says_is_an_error() -> None:
    encoder = RowEncoder({"text": str, "number": int})
    assert encoder.decode(encoder.encode(("a", 1))) == ("a", 1)
    with pytest.raises(ThresherError, match=r"not what its schema says .*MapToFields"):
        encoder.encode(("a", None))


def test_temporary_staging_is_removed_and_a_given_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    pipeline = beam.Pipeline("FnApiRunner")
    root = Path(make_staging("near_duplicates", None, pipeline))
    assert root.is_dir()
    assert root.parent == temporary
    given = Path(make_staging("near_duplicates", str(tmp_path / "given"), pipeline))
    other = Path(make_staging("near_duplicates", str(tmp_path / "given"), pipeline))
    assert given != other
    del pipeline
    gc.collect()
    assert not root.exists()
    assert given.is_dir()
    assert [
        row["number"] for row in transformed([step("near_duplicates")], [{"text": PROSE, "number": 1}])["good"]
    ] == [1]
    gc.collect()
    assert list(temporary.glob("thresher-*")) == []


@pytest.mark.parametrize(
    ("options", "staging", "message"),
    [
        (["--runner=FlinkRunner"], None, "staging is missing, and workers of FlinkRunner are not on this machine"),
        (["--runner=PortableRunner", "--job_endpoint=localhost:1"], None, "staging is missing"),
        (["--runner=FnApiRunner"], "hf://data/x", "staging: found hf://data/x, where workers .* cannot write"),
        (["--runner=FnApiRunner"], "ftp://data/x", "staging: .*unknown scheme ftp"),
        (["--runner=FnApiRunner"], "s3://key:secret@data/x", "staging: .*credentials in a URI"),
        (["--runner=FnApiRunner"], "/dev/null/x", "staging: cannot be written .*/dev/null/x"),
    ],
)
def test_staging_that_workers_cannot_share_is_an_error(options: list[str], staging: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_staging("near_duplicates", staging, beam.Pipeline(options=PipelineOptions(options)))


def test_engines_with_workers_on_this_machine_need_no_staging() -> None:
    options = ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--environment_type=LOOPBACK"]
    pipeline = beam.Pipeline(options=PipelineOptions(options))
    root = Path(make_staging("near_duplicates", None, pipeline))
    assert root.is_dir()


def test_dataflow_cannot_write_to_a_local_folder(tmp_path: Path) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    pipeline.runner = type("DataflowRunner", (), {})()
    with pytest.raises(UsageError, match="where workers of DataflowRunner cannot write; give a folder that all"):
        make_staging("near_duplicates", str(tmp_path), pipeline)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priority": {"source": ["a"]}}, "priority is about sources; give source_column"),
        ({"scope": "source"}, "scope is about sources"),
        ({"protect": ["a"]}, "protect is about sources"),
        ({"duplication_budget": {"by": "source"}}, "duplication_budget.by is about sources"),
        ({"priority": "reward_model"}, "priority: reward_model: its input has no field reward_model_score"),
        ({"priority": "length.wrods"}, "no field length_wrods; did you mean length_words"),
        ({"priority": ["length", "kind.label"]}, "the field kind_label is .*str.*; wanted is a number"),
        ({"duplication_budget": {"by": "kidn.label"}}, "duplication_budget.by: kidn.label: its input has no field"),
        ({"duplication_budget": {"by": "language"}}, "no field language_label"),
        ({"source_column": "origin"}, "its input has no field origin; there are text, length_words, kind_label"),
    ],
)
def test_what_a_duplicate_stage_reads_must_be_fields(settings: dict[str, Any], message: str) -> None:
    rows = beam.Pipeline("FnApiRunner") | beam.Create([beam.Row(text="a", length_words=1, kind_label="x")])
    with pytest.raises(UsageError, match=message):
        StageTransform("near_duplicates", settings).expand(rows)


class Redact(EditingStage):
    """Cuts the first word, and fails on the text ``broken``."""

    summary = "Cuts the first word."
    Config = StageConfig
    may_fail = True

    def edits(self) -> bool:
        return True

    def own_signals(self) -> tuple[Signal, ...]:
        return (Signal("found", "int64", "Words cut."),)

    def own_rules(self) -> tuple[Rule, ...]:
        return ()

    def judge(self, batch: TextBatch) -> Judgement:
        texts = batch.texts.to_pylist()
        spans = [
            {"row": row, "start": 0, "end": len(text.split(" ")[0]), "rule": "first", "action": "cut"}
            for row, text in enumerate(texts)
            if batch.alive[row]
        ]
        errors = ["no such luck" if text == "broken" else None for text in texts]
        return Judgement(
            {"found": pa.array([1] * len(texts), pa.int64())},
            pa.RecordBatch.from_pylist(spans, schema=SPAN_SCHEMA),
            pa.array(errors, pa.string()),
        )


@pytest.fixture
def redact() -> Iterator[None]:
    classes = corpus.stages._REGISTRY.classes
    known_stages()
    corpus.stages.stage("redact")(Redact)
    known_stages.cache_clear()
    yield
    del classes["redact"]
    known_stages.cache_clear()


def test_edited_rows_come_out_edited_and_what_cannot_be_judged_leaves(redact: None) -> None:
    rows = [{"text": text, "number": number} for number, text in enumerate(["one two", "three", "broken", ""])]
    found = transformed([step("redact", name="cutter")], rows)
    (row,) = found["good"]
    assert (row["text"], row["number"], row["cutter_found"], row["cutter_characters_cut"]) == (" two", 0, 1, 3)
    left = {row["text"]: row for row in found["dropped"]}
    assert (left["three"]["rule"], left["three"]["value"], left["three"]["threshold"]) == ("empty_after_edit", 0.0, 1.0)
    assert (left["broken"]["rule"], json.loads(left["broken"]["detail"])) == ("stage_error", {"error": "no such luck"})
    assert (left[""]["stage"], left[""]["cutter_found"]) == ("input", None)


def test_names_that_are_taken_make_way_and_other_values_pass_unchanged() -> None:
    values = {"stage": "mine", "length_words": [1, 2], "when": {"deep": [1.5, None]}}
    found = transformed([step("length", minimum_words=3)], [{"text": PROSE, **values}, {"text": "no", **values}])
    (kept,), (left,) = found["good"], found["dropped"]
    assert (kept["input_length_words"], kept["length_words"], kept["stage"]) == ([1, 2], len(ENGLISH), "mine")
    assert (left["input_stage"], left["stage"], left["value"], left["threshold"]) == ("mine", "length", 1.0, 3.0)
    assert as_mapping(kept["when"]) == as_mapping(left["when"]) == values["when"]


def as_mapping(value: Any) -> Any:
    return value if isinstance(value, dict) else value._asdict()


def test_a_row_without_a_usable_text_leaves_under_the_name_of_its_fault() -> None:
    layout = RowLayout(("text", "id"), InputConfig(files=["rows"], id_column="id"), LAYOUT.stage, ())
    faulty = [
        (None, 1),
        (5, 2),
        ("\ud800", 3),
        ("fine", "x" * 5000),
        ("fine", None),
        ("fine", 7),
        ("x" * (13 << 20), 8),
    ]
    read = read_rows(layout, faulty)
    assert {number: fault.error for number, fault in read.faults.items()} == {
        0: "null_text",
        1: "wrong_type",
        2: "invalid_unicode",
        3: "id_too_long",
    }
    assert read.batch.records.column("record_id").to_pylist()[1:] == ["7", "8"]
    assert read.batch.marks.column("alive").to_pylist() == [True, True, False]


def test_the_id_of_a_row_does_not_depend_on_the_order_of_its_fields() -> None:
    other = RowLayout(LAYOUT.fields[::-1], LAYOUT.input, LAYOUT.stage, ())
    ids = [
        read_rows(layout, [row]).batch.records["record_id"] for layout, row in ((LAYOUT, ("a", 1)), (other, (1, "a")))
    ]
    assert ids[0] == ids[1]
    assert ids[0] != read_rows(LAYOUT, [("a", 2)]).batch.records["record_id"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (beam.Row(a=1), {"a": 1}),
        ((1, b"\xff", 1 << 70), [1, b"\xff", 1 << 70]),
    ],
)
def test_equal_values_have_the_same_canonical_text(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical([one])


def test_rows_keep_their_windows_and_duplicates_are_looked_for_in_one() -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(range(4)) | beam.Map(lambda number: beam.Row(text="a b c", number=number))
        stamped = rows | beam.Map(lambda row: TimestampedValue(row, row.number * 10)).with_output_types(
            rows.element_type
        )
        windowed = stamped | beam.WindowInto(FixedWindows(20))
        measured = windowed | StageTransform("length", {"minimum_words": 1})
        times = measured | beam.Map(lambda row, when=beam.DoFn.TimestampParam: (row.number, when.micros // 10**6))
        assert_that(times, lambda found: sorted(found) == [(n, n * 10) for n in range(4)] or fail(found), label="a")
        with pytest.raises(UsageError, match=r"exact_duplicates: all rows are compared, .*before WindowInto"):
            _ = measured | StageTransform("exact_duplicates", {})


def fail(found: Any) -> NoReturn:
    raise AssertionError(found)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{type: langage}", "Unknown type or missing provider for type langage"),
        ("{type: gopher_quality, config: {minimum_wrods: 3}}", "unknown setting here; did you mean minimum_words?"),
        ("{type: gopher_quality, config: {minimum_words: many}}", r"gopher_quality: minimum_words: found \"many\""),
        ("{type: gopher_quality, config: {minimum_words: off}}", 'write "off", "no" and the like in quotes'),
        ("{type: length, config: {staging: folder}}", "staging: unknown setting here"),
        ("{type: exact_duplicates, config: {stagin: folder}}", "unknown setting here; did you mean staging"),
        ("{type: length, config: {text: body}}", "text: unknown setting here; .*text_column"),
        ("{type: length, config: {text_column: 3}}", "text_column: found 3"),
        ("{type: length, config: {prompt_column: text}}", "prompt_column and response_column go together: give both"),
        ("{type: length, config: {field: prompt}}", "length: field: found prompt; a document has the field text"),
        ("{type: length, config: {error_handling: {to: dropped}}}", "Missing output|unknown setting"),
        ("{type: length, config: {text_column: txt}}", "its input has no field txt; did you mean text?"),
        ("{type: length, config: {id_column: identity}}", "its input has no field identity; there are text, number"),
        ("{type: length, config: {text_column: number}}", "the field number is .*; wanted is a string"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_when_the_pipeline_is_built(spec: str, message: str) -> None:
    text = f"""
    type: composite
    transforms:
      - {{type: Create, config: {{elements: [{{text: abc, number: 1}}]}}}}
      - {{input: Create, {spec[1:-1]}}}
    """
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    with pytest.raises(Exception, match=message):
        _ = pipeline | YamlTransform(text, providers=merge_providers(load_providers(LISTING)))


def test_rows_without_a_schema_are_refused() -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    with pytest.raises(UsageError, match=r"its input has no schema .*MapToFields"):
        _ = pipeline | beam.Create(["text"]) | StageTransform("length", {})


def test_a_stage_by_language_reads_the_label_of_the_stage_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_stages()["length"], "uses_languages", lambda self: True)
    transform = StageTransform("length", {"language_stage": "tongue"})
    pipeline = beam.Pipeline("FnApiRunner")
    rows = pipeline | beam.Create([beam.Row(text="a", tongue_label="en")])
    assert isinstance(transform.expand(rows), beam.PCollection)
    with pytest.raises(UsageError, match="its input has no field language_label"):
        StageTransform("length", {}).expand(rows)
    layout = RowLayout(("text", "tongue_label"), InputConfig(files=["rows"]), transform._stage, ())
    marks = read_rows(layout, [("a", "en"), ("b", None)]).batch.marks
    assert marks.column("tongue.label").to_pylist() == ["en", None]


@pytest.mark.parametrize(
    ("by", "signals"),
    [("language", ("tongue.label",)), ("kind.name", ("kind.name",)), ("kind", ()), ("meta.kind", ()), ("source", ())],
)
def test_groups_of_a_budget_are_signals_or_columns(by: str, signals: tuple[str, ...]) -> None:
    settings = {"language_stage": "tongue", "source_column": "kind", "duplication_budget": {"by": by}}
    transform = StageTransform("exact_duplicates", settings)
    row = beam.Row(text="a", tongue_label="en", language="x", kind="x", kind_name="z", meta=beam.Row(kind="y"))
    transform.expand(beam.Pipeline("FnApiRunner") | beam.Create([row]))
    assert transform._stage.signal_columns() == signals


@pytest.mark.parametrize("per", ["language", "kind.name", "kind", "meta.kind", "source"])
def test_groups_of_a_limit_are_signals_or_columns(per: str) -> None:
    keep = {"at_least": 2.0, "per": per, "values": {"x": 1.0}}
    settings = {"language_stage": "tongue", "source_column": "kind", "column": "quality", "keep": keep}
    transform = StageTransform("column", settings)
    fields = {"text": "a", "tongue_label": "x", "kind": "x", "kind_name": "x", "meta": beam.Row(kind="x"), "quality": 1}
    transform.expand(beam.Pipeline("FnApiRunner") | beam.Create([beam.Row(**fields)]))
    read = tuple(fields_named(transform._stage.config.model_dump(), fields))
    layout = RowLayout(tuple(fields), InputConfig(files=["rows"], source_column="kind"), transform._stage, read)
    row = [{"kind": "x"} if name == "meta" else value for name, value in fields.items()]
    others = [{"kind": "y"} if name == "meta" else value.replace("x", "y") if isinstance(value, str) else value
              for name, value in fields.items()]  # fmt: skip
    batch = read_rows(layout, [tuple(row), tuple(others)]).batch
    assert alive_after(mark_record_stage(layout.record_stage, batch).marks, [layout.stage]).tolist() == [True, False]


def test_a_limit_of_sources_needs_the_field_of_the_source() -> None:
    rows = beam.Pipeline("FnApiRunner") | beam.Create([beam.Row(text="a", quality=1)])
    for per, message in (("source", "keep.per is about sources"), ("knid", "keep.per: knid: its input has no field")):
        keep = {"at_least": 2.0, "per": per, "values": {"x": 1.0}}
        with pytest.raises(UsageError, match=message):
            StageTransform("column", {"column": "quality", "keep": keep}).expand(rows)


def test_the_field_of_a_stage_defaults_as_in_a_run() -> None:
    fields: dict[str, TextField] = {"length": "response", "exact_duplicates": "both"}
    columns = {"prompt_column": "p", "response_column": "r"}
    for kind, field in fields.items():
        assert StageTransform(kind, columns)._stage.text_field == field
