"""Stages as steps of Beam YAML pipelines: what they give is what a run gives."""

from __future__ import annotations

import json
import pickle
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
from hypothesis import given
from hypothesis import strategies as st

import corpus.stages
from corpus.errors import UsageError
from corpus.findings import SPAN_SCHEMA
from corpus.inputs import InputConfig
from corpus.stages import EditingStage, Judgement, Rule, Signal, StageConfig, TextBatch, TextField, known_stages
from pipelines.beam_yaml_rows import RowLayout, canonical, read_rows
from pipelines.beam_yaml_steps import ROWS, VERDICT, ApplyVerdicts, PackKeys, ResolveKeys
from tests.pipelines.corpora import ENGLISH, documents, run, table, write_config

pytest.importorskip("apache_beam.yaml.yaml_transform", reason="needs apache-beam[yaml]")

from apache_beam.yaml import main as yaml_main
from apache_beam.yaml.yaml_provider import load_providers, merge_providers
from apache_beam.yaml.yaml_transform import YamlTransform

from pipelines.beam_yaml import RowSettings, StageTransform, stage_provider

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLE = REPOSITORY / "configs" / "beam_yaml" / "pipeline.yaml"
LISTING = str(EXAMPLE.with_name("providers.yaml"))
PROSE = " ".join(ENGLISH)

REASONS = ("stage", "rule", "value", "threshold", "related_id")


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of the Parquet files that a pipeline wrote under a name."""
    return [row for path in sorted(folder.glob(f"{name}*")) for row in pq.read_table(path).to_pylist()]


def by_id(rows: list[dict[str, Any]], name: str, fields: list[str]) -> dict[str, tuple[Any, ...]]:
    found = {row[name]: tuple(row[field] for field in fields) for row in rows}
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


def test_the_example_keeps_drops_and_measures_what_a_run_does(tmp_path: Path) -> None:
    rows = documents(600)
    rows[7]["text"] = None
    source = tmp_path / "documents.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=100)
    variables = json.dumps({"input": str(source), "output": str(tmp_path / "yaml")})
    yaml_main.run([f"--yaml_pipeline_file={EXAMPLE}", "--runner=FnApiRunner", f"--jinja_variables={variables}"])
    stages = [{"language": {"keep": ["en"], "minimum_score": 0.65}}, "gopher_quality", "exact_duplicates"]
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
    assert {values[0] for values in ledger.values()} == {"input", "language", "gopher_quality", "exact_duplicates"}
    assert min(len(expected), len(ledger)) > 100


def test_the_listing_has_every_stage_under_its_name(case_stages: None) -> None:
    providers = merge_providers(load_providers(LISTING))
    assert set(known_stages()) <= set(providers)
    assert "near_duplicates" in providers, "a stage that was registered later"


@pytest.mark.parametrize("kind", sorted(known_stages()))
def test_settings_of_stages_and_of_steps_do_not_meet(kind: str) -> None:
    assert not set(RowSettings.model_fields) & set(known_stages()[kind].Config.model_fields)


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
    assert (row["text"], row["length_words"], row["exact_duplicates_copies"]) == (PROSE, len(ENGLISH), 2)


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


def resolved(rows: list[tuple[Any, ...]], cuts: list[int], partitions: int) -> tuple[Counter[Any], Counter[Any]]:
    """Return what stays and what leaves where rows come in batches cut at some places."""
    borders = [0, *sorted(cuts), len(rows)]
    batches = {
        key * 7919 + 1: rows[start:end] for key, (start, end) in enumerate(zip(borders, borders[1:], strict=False))
    }
    pack, resolve, apply = PackKeys(LAYOUT, partitions), ResolveKeys(LAYOUT), ApplyVerdicts(LAYOUT)
    packed_rows = {key: pickle.dumps(values) for key, values in batches.items() if values}
    groups: dict[int, list[bytes]] = {}
    for key, data in packed_rows.items():
        for part, packed in pack.process((key, data)):
            groups.setdefault(part, []).append(packed)
    meeting = {key: [ROWS + data] for key, data in packed_rows.items()}
    for group in groups.items():
        for key, verdict in resolve.process(group):
            meeting[key].append(VERDICT + verdict)
    kept: Counter[Any] = Counter()
    left: Counter[Any] = Counter()
    for key, values in meeting.items():
        for row in apply.process((key, iter(values[::-1]))):
            tagged = isinstance(row, beam.pvalue.TaggedOutput)
            (left if tagged else kept)[tuple(row.value if tagged else row)] += 1
    return kept, left


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b c", "d", ""]), st.integers(0, 3)), max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
def test_neither_order_nor_bundles_decide_which_duplicate_stays(
    rows: list[tuple[Any, ...]], choose: random.Random, partitions: int
) -> None:
    kept, left = resolved(rows, [], 1)
    shuffled = choose.sample(rows, len(rows))
    cuts = choose.choices(range(len(rows) + 1), k=4)
    assert resolved(shuffled, cuts, partitions) == (kept, left)
    assert {row[0] for row in kept} == {text for text, _ in rows if text}
    assert sum(kept.values()) == len({text for text, _ in rows if text})
    assert sum(kept.values()) + sum(left.values()) == len(rows)


def test_a_batch_that_is_not_there_once_is_an_error() -> None:
    data = ROWS + pickle.dumps([("a", 1)])
    with pytest.raises(Exception, match="batch 5 is there 2 times"):
        list(ApplyVerdicts(LAYOUT).process((5, [data, data])))


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


def test_rows_keep_their_windows_and_copies_in_other_windows_are_none() -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(range(4)) | beam.Map(lambda number: beam.Row(text="a b c", number=number))
        stamped = rows | beam.Map(lambda row: TimestampedValue(row, row.number * 10)).with_output_types(
            rows.element_type
        )
        windowed = stamped | beam.WindowInto(FixedWindows(20))
        measured = windowed | StageTransform("length", {"minimum_words": 1})
        times = measured | beam.Map(lambda row, when=beam.DoFn.TimestampParam: (row.number, when.micros // 10**6))
        assert_that(times, lambda found: sorted(found) == [(n, n * 10) for n in range(4)] or fail(found), label="a")
        unique = measured | StageTransform("exact_duplicates", {}) | beam.Map(lambda row: row.number // 2)
        assert_that(unique, lambda found: sorted(found) == [0, 1] or fail(found), label="b")


def fail(found: Any) -> NoReturn:
    raise AssertionError(found)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{type: langage}", "Unknown type or missing provider for type langage"),
        ("{type: gopher_quality, config: {minimum_wrods: 3}}", "unknown setting here; did you mean minimum_words?"),
        ("{type: gopher_quality, config: {minimum_words: many}}", r"gopher_quality: minimum_words: found \"many\""),
        ("{type: gopher_quality, config: {minimum_words: off}}", 'write "off", "no" and the like in quotes'),
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


def test_the_field_of_a_stage_defaults_as_in_a_run() -> None:
    fields: dict[str, TextField] = {"length": "response", "exact_duplicates": "both"}
    columns = {"prompt_column": "p", "response_column": "r"}
    for kind, field in fields.items():
        assert StageTransform(kind, columns)._stage.text_field == field
