"""The config: what is accepted, what every wrong config is told, and what decides a run's result."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.canonical import config_hash
from corpus.errors import UsageError
from corpus.stages import known_stages
from corpus.yaml_reader import read_yaml
from pipelines.config import RunConfig, config_from_mapping, load_config, semantic_config
from pipelines.yaml_writer import dump_yaml
from tests.pipelines.corpora import NEEDED

REPOSITORY = Path(__file__).parents[2]
CASES = REPOSITORY.parent / "shared" / "cases"
BASE = """\
input:
  files: [input.jsonl]
  text_column: text
  id_column: id
output: out
stages:
  - language: {keep: [en], minimum_score: 0.3}
  - exact_duplicates
  - near_duplicates: {threshold: 0.8, duplication_budget: 0.0}
"""

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not there")
pytestmark = pytest.mark.usefixtures("case_stages")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(BASE)
    return path


def load(path: Path, *sets: str, **changes: str) -> RunConfig:
    """Load the base config with some of its text replaced."""
    text = BASE
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return load_config(path, sets)


def problems(path: Path, old: str, new: str, *sets: str) -> list[str]:
    assert old in BASE
    path.write_text(BASE.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_config(path, sets)
    return [line.replace(str(path), "c.yaml") for line in str(caught.value).splitlines()]


def problems_of_sets(path: Path, *sets: str) -> list[str]:
    return problems(path, "output: out", "output: out", *sets)


def setting(config: RunConfig, stage: str, key: str) -> Any:
    return getattr(next(entry for entry in config.stages if entry.name == stage).config, key)


def test_a_valid_config_gives_its_values_and_the_documented_defaults(base: Path) -> None:
    config = load_config(base)
    assert config.input.files == ["input.jsonl"]
    assert config.output == "out"
    assert [(entry.name, entry.kind) for entry in config.stages] == [
        ("language", "language"),
        ("exact_duplicates", "exact_duplicates"),
        ("near_duplicates", "near_duplicates"),
    ]
    assert setting(config, "language", "minimum_score") == 0.3
    assert (config.batch_rows, config.batch_bytes, config.target_file_bytes) == (8192, 16 << 20, 256 << 20)
    assert pickle.loads(pickle.dumps(config)) == config


def test_no_stages_and_no_output_are_fine() -> None:
    config = config_from_mapping({"input": {"files": ["a.parquet"]}, "stages": []})
    assert config.stages == ()
    assert config.output is None


def test_one_stage_may_stand_twice_under_two_names() -> None:
    stages = ["near_duplicates", {"near_duplicates": {"name": "strict", "threshold": 0.5}}]
    config = config_from_mapping({"input": {"files": ["a"]}, "stages": stages}, ["strict.threshold=0.4"])
    assert [(entry.name, entry.kind) for entry in config.stages] == [
        ("near_duplicates", "near_duplicates"),
        ("strict", "near_duplicates"),
    ]
    assert setting(config, "near_duplicates", "threshold") == 0.8
    assert setting(config, "strict", "threshold") == 0.4


def test_off_switches_a_rule_off(base: Path) -> None:
    config = load_config(base, ["near_duplicates.threshold=off"])
    assert setting(config, "near_duplicates", "threshold") == "off"
    assert config.build()[2].rules() == ()


def test_an_alias_and_set_share_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "input: {files: [a]}\nstages:\n- near_duplicates: &n {threshold: 0.5, field: text}\n"
        "- near_duplicates: {<<: *n, name: second}\n"
    )
    config = load_config(path, ["near_duplicates.threshold=0.1"])
    assert setting(config, "near_duplicates", "threshold") == 0.1
    assert setting(config, "second", "threshold") == 0.5
    assert setting(config, "second", "field") == "text"


# What the stages look at.


def text_fields(source: dict[str, Any], stage: Any) -> list[str]:
    config = config_from_mapping({"input": {"files": ["a"], **source}, "stages": [stage]})
    return [built.text_field for built in config.build()]


@pytest.mark.parametrize(
    ("source", "stage", "expected"),
    [
        ({}, "near_duplicates", "text"),
        ({}, {"near_duplicates": {"field": "text"}}, "text"),
        ({"messages_column": "m"}, "near_duplicates", "both"),
        ({"messages_column": "m"}, "gopher_quality", "response"),
        ({"prompt_column": "p", "response_column": "r"}, {"near_duplicates": {"field": "prompt"}}, "prompt"),
    ],
)
def test_the_text_field_is_the_given_one_or_the_default_of_the_stage(
    source: dict[str, Any], stage: Any, expected: str
) -> None:
    assert text_fields(source, stage) == [expected]


def test_built_stages_have_their_names_and_settings(base: Path) -> None:
    built = load_config(base, ["near_duplicates.name=near"]).build()
    assert [stage.name for stage in built] == ["language", "exact_duplicates", "near"]
    assert built[2].config.model_dump()["threshold"] == 0.8


def test_a_field_that_the_records_do_not_have_is_an_error(base: Path) -> None:
    found = problems(base, "{threshold: 0.8,", "{field: both,")
    assert found == [
        "c.yaml:9: near_duplicates.field: found both; a document has the field text; "
        "input.text_column or its like decides which it is"
    ]
    found = problems(base, "text_column: text", "messages_column: text", "near_duplicates.field=text")
    assert found[0].startswith(
        "--set near_duplicates.field=text: near_duplicates.field: found text; a pair has prompt,"
    )


# The published faults.


@needs_cases
@pytest.mark.parametrize(
    ("file", "line", "path", "meant"),
    [
        ("m01", 9, "near_duplicates.treshold", "did you mean threshold?"),
        ("m02", 9, "near_duplicates.duplication-budget", "did you mean duplication_budget?"),
        ("m03", 6, "threshold", "there is near_duplicates.threshold"),
        ("m04", 9, "near_duplicate", "did you mean near_duplicates?"),
        ("m05", 8, "gopher_quality.minimum_word", "did you mean minimum_words?"),
        ("m06", 5, "input.file", "did you mean files?"),
        ("m07", 7, "language.'minimum_score '", "did you mean minimum_score?"),
        ("m08", 7, "Language", "did you mean language?"),
        ("m09", 6, "stage", "did you mean stages?"),
        ("m10", 7, "language.language", "unknown setting"),
        ("m11", 8, "stages: an item with 2 names (language, gopher_repetition)", "write one item"),
    ],
)
def test_unknown_keys_are_named_with_line_path_and_what_was_meant(file: str, line: int, path: str, meant: str) -> None:
    folder = CASES / "g01-unknown-keys"
    load_config(folder / "base.yaml")
    with pytest.raises(UsageError) as caught:
        load_config(folder / f"{file}.yaml")
    assert caught.value.exit_code == 2
    (message,) = str(caught.value).splitlines()
    assert f"{file}.yaml:{line}: " in message
    assert path in message
    assert meant in message


@needs_cases
@pytest.mark.parametrize(
    ("file", "key", "lines"),
    [
        ("twice", "threshold", (8, 10)),
        ("section", "input", (1, 8)),
        ("same_value", "output", (5, 6)),
        ("quoted", "minimum_words", (7, 7)),
        ("stages_twice", "stages", (6, 8)),
    ],
)
def test_a_key_that_stands_twice_is_named_with_both_lines(file: str, key: str, lines: tuple[int, int]) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(CASES / "g02-duplicate-keys" / f"{file}.yaml")
    message = str(caught.value)
    assert f"{file}.yaml:{lines[1]}: " in message
    assert f"the key '{key}' stands twice, on lines {lines[0]} and {lines[1]}" in message


@needs_cases
def test_a_second_document_is_refused() -> None:
    with pytest.raises(UsageError, match=r"two_documents\.yaml:8: a second YAML document"):
        load_config(CASES / "g02-duplicate-keys" / "two_documents.yaml")


# Where a share is wanted, where a whole number is wanted; None is an error.
SPELLINGS: list[tuple[str, float | None, int | None]] = [
    ("8e-1", 0.8, None),
    ("1e6", None, None),
    ("8.0e-1", 0.8, None),
    ('"0.8"', None, None),
    (".8", 0.8, None),
    ("0,8", None, None),
    ("80%", None, None),
    ("1_000", None, None),
    ("010", None, 10),
    ("0x10", None, 16),
    ("1:30", None, None),
    ("yes", None, None),
    ("true", None, None),
    ("null", None, None),
    ("~", None, None),
    ("", None, None),
    (".inf", None, None),
    (".nan", None, None),
    ("-0.1", None, None),
    ("1.5", None, None),
    ("[0.8]", None, None),
    ("0.8 # comment", 0.8, None),
    ("!!float 8", None, None),
    ("${THRESHOLD}", None, None),
    ("50.0", None, None),
    ("50.5", None, None),
]


@needs_cases
def test_the_spellings_are_those_of_the_case() -> None:
    text = (CASES / "g04-numbers-that-are-none" / "values.yaml").read_text()
    assert [line.removeprefix("- ").strip() for line in text.splitlines()[1:]] == [written for written, *_ in SPELLINGS]


@pytest.mark.parametrize(("written", "share", "whole"), SPELLINGS)
@pytest.mark.parametrize("style", ["flow", "block", "set"])
@pytest.mark.parametrize("whole_number", [False, True])
def test_a_spelling_gives_its_number_or_an_error(
    base: Path, written: str, share: float | None, whole: int | None, style: str, whole_number: bool
) -> None:
    stage, key, expected = (
        ("gopher_quality", "minimum_words", whole) if whole_number else ("near_duplicates", "threshold", share)
    )
    value = f"{stage}: {{{key}: {written}\n    }}" if style == "flow" else f"{stage}:\n      {key}: {written}"
    if style == "set":
        value = f"{stage}: {{{key}: 1}}"
    path = base
    path.write_text(f"input: {{files: [input.jsonl]}}\nstages:\n  - {value}\n")
    sets = [f"{stage}.{key}={written}"] if style == "set" else []
    if expected is None:
        with pytest.raises(UsageError) as caught:
            load_config(path, sets)
        message = str(caught.value)
        assert key in message
        assert stage in message
        assert written.removesuffix(" # comment") in message
        assert "wanted " in message or "not valid YAML: expected" in message
        return
    found = setting(load_config(path, sets), stage, key)
    assert found == expected
    assert type(found) is type(expected)
    stored = semantic_config(load_config(path, sets), {})["stages"][0][stage][key]
    assert json.dumps(stored) == json.dumps(expected)


# Everything else that can be wrong in a file.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  files: [input.jsonl]\n", "", "c.yaml:1: input.files: is missing; it has no default"),
        ("[input.jsonl]", "input.jsonl", "c.yaml:2: input.files: found input.jsonl (text); wanted a list"),
        ("[input.jsonl]", "[]", "c.yaml:2: input.files: found [] (a list); wanted entries, at least 1"),
        ("[input.jsonl]", "[a, 5]", "c.yaml:2: input.files[1]: found 5 (a whole number); wanted text"),
        ("id_column: id", "id_column: no", None),
        ("id_column: id", "id_column: true", "c.yaml:4: input.id_column: found true (a boolean); wanted text"),
        ("id_column: id", "columns: {year: 5}", "wanted string, int64, float64, bool or json"),
        ("id_column: id", "sample: 0", "c.yaml:4: input.sample: found 0 (a whole number); wanted a number above 0"),
        ("id_column: id", "prompt_column: id", "c.yaml:1: input: prompt_column and response_column go together"),
        ("output: out", "output: ''", "c.yaml:5: output: found '' (text); wanted text that is not empty"),
        ("output: out", "batch_rows: 0", "5: batch_rows: found 0 (a whole number); wanted a number of at least 1"),
        ("output: out", "batch_bytes: 16MiB", "c.yaml:5: batch_bytes: found 16MiB (text); wanted a whole number"),
        ("output: out", "target_file_bytes: 1e9", "found 1e9 (a number); wanted a whole number"),
        ("output: out", "outputs: out", "c.yaml:5: outputs: unknown setting here; did you mean output?"),
        ("output: out", "files: out", "c.yaml:5: files: unknown setting here; there is input.files"),
        ("output: out", "zzz: out", "c.yaml:5: zzz: unknown setting here; there are input, output, stages, batch_rows"),
        ("threshold: 0.8", "threshold: null", "near_duplicates.threshold: found null; wanted a number or off"),
        ("threshold: 0.8", "threshold: of", "near_duplicates.threshold: found of (text); wanted a number or off"),
        ("threshold: 0.8", "Threshold: 0.8", "near_duplicates.Threshold: unknown setting here; did you mean thresh"),
        ("threshold: 0.8", "keep: {at_leats: 1}", "near_duplicates.keep.at_leats: unknown setting here; did you mean"),
        ("threshold: 0.8", "keep: 5", "near_duplicates.keep: found 5 (a whole number); wanted a mapping (key: value)"),
        ("threshold: 0.8", "keep: {per: [1]}", "near_duplicates.keep.per[0]: found 1 (a whole number); wanted text"),
        ("threshold: 0.8", "name: Near", "near_duplicates.name: found Near (text); wanted text of the form ^[a-z]"),
        ("threshold: 0.8", "name: input", "near_duplicates.name: input is the name of a section"),
        ("threshold: 0.8", "name: language", "c.yaml:9: language: two stages have this name, on lines 7 and 9"),
        ("- exact_duplicates", "- language", "c.yaml:8: language: two stages have this name, on lines 7 and 8"),
        ("- exact_duplicates", "- exact-duplicates", "c.yaml:8: stages.exact-duplicates: no stage is called 'exact-"),
        ("- exact_duplicates", "- zzz", "c.yaml:8: stages.zzz: no stage is called 'zzz'; there are badwords, "),
        ("- exact_duplicates", "- exact_duplicates:", "c.yaml:8: exact_duplicates: found nothing (null)"),
        ("- exact_duplicates", "- exact_duplicates: 5", "exact_duplicates: found 5 (a whole number); wanted a mapping"),
        ("- exact_duplicates", "- 5", "c.yaml:8: stages[1]: found 5 (a whole number); wanted the name of a stage"),
        ("- exact_duplicates", "- ", "c.yaml:8: stages[1]: found nothing (null); wanted the name of a stage"),
        ("- exact_duplicates", "- {}", "c.yaml:8: stages[1]: found {} (a mapping); wanted the name of a stage"),
        ("- exact_duplicates", "- [a]", 'c.yaml:8: stages[1]: found ["a"] (a list); wanted the name of a stage'),
        (
            "- exact_duplicates",
            "- exact_duplicates:\n    field: text",
            "c.yaml:9: stages: an item with 2 names (exact_duplicates, field); write one item with its own dash for "
            "each stage, or indent the settings further than exact_duplicates",
        ),
        (BASE[BASE.index("stages") :], "", "c.yaml:1: stages: is missing"),
        (BASE[BASE.index("stages") :], "stages:\n", "c.yaml:6: stages: found nothing (null); wanted a list"),
        (BASE[BASE.index("stages") :], "stages: {exact: 1}\n", '6: stages: found {"exact": 1} (a mapping); wanted a'),
        (BASE[: BASE.index("output")], "", "c.yaml:1: input: is missing"),
        (BASE[: BASE.index("output")], "input: a\n", "c.yaml:1: input: found a (text); wanted a mapping (key: value)"),
        (BASE, "", "c.yaml:1: the config is empty; it needs the sections input, output and stages"),
        (BASE, "# nothing\n", "c.yaml:1: the config is empty"),
        (BASE, "- input\n", "c.yaml:1: the config is a list; it needs"),
        (BASE, "input\n", "c.yaml:1: the config is text; it needs"),
    ],
)  # fmt: skip
def test_one_message_names_place_setting_and_what_is_wanted(
    base: Path, old: str, new: str, message: str | None
) -> None:
    if message is None:
        base.write_text(BASE.replace(old, new))
        assert load_config(base).input.id_column == "no"
        return
    (found,) = problems(base, old, new)
    assert found.startswith("c.yaml:")
    assert message in found


def test_all_problems_are_told_in_one_go(base: Path) -> None:
    found = problems(
        base,
        BASE,
        "input: {file: a}\nbatch_row: 5\nstages:\n- near_duplicates: {treshold: 1, field: 5}\n- langs\n- zzz: {}\n",
        "near_duplicates.keep.at_least=x",
        "nothing",
    )
    starts = sorted(line.partition(";")[0].partition(": found")[0] for line in found)
    assert starts == sorted(
        [
            "--set nothing: write --set STAGE.KEY=VALUE, --set input.KEY=VALUE or --set KEY=VALUE",
            "--set near_duplicates.keep.at_least=x: near_duplicates.keep.at_least",
            "c.yaml:1: input.file: unknown setting here",
            "c.yaml:2: batch_row: unknown setting here",
            "c.yaml:4: near_duplicates.treshold: unknown setting here",
            "c.yaml:4: near_duplicates.field",
            "c.yaml:5: stages.langs: no stage is called 'langs'",
            "c.yaml:6: stages.zzz: no stage is called 'zzz'",
        ]
    )


# The command line.


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("near_duplicates.treshold=0.9", "near_duplicates.treshold: unknown setting here; did you mean threshold?"),
        ("near_duplicate.threshold=0.9", "near_duplicate: neither a stage of this config nor a setting; did you mean"),
        ("treshold=0.9", "treshold: neither a stage of this config nor a setting; there is near_duplicates.threshold"),
        ("gopher_quality.minimum_words=5", "gopher_quality: the config does not list this stage; add it under stages"),
        ("zzz.a=1", "zzz: neither a stage of this config nor a setting; there are language, exact_duplicates, near_"),
        ("near_duplicates=1", "near_duplicates is a stage; write --set STAGE.KEY=VALUE"),
        ("input={files: [a]}", "input is set by its parts: write --set STAGE.KEY"),
        ("stages=[]", "stages is set by its parts: write --set STAGE.KEY"),
        ("near_duplicates.threshold", "write --set STAGE.KEY=VALUE"),
        ("=5", "write --set STAGE.KEY=VALUE"),
        ("near_duplicates.threshold=", "near_duplicates.threshold: found nothing (null); wanted a number or off"),
        ("near_duplicates.threshold=[", "not valid YAML"),
        ("near_duplicates.threshold=1\n---\n2", "a second YAML document starts here"),
        ("near_duplicates.threshold={a: 1, a: 2}", "a: the key 'a' stands twice"),
        ("near_duplicates.threshold.x=1", "near_duplicates.threshold holds a number, so nothing is below it"),
        ("input.files.x=1", "input.files holds a list, so nothing is below it"),
        ("output.x=1", "output holds text, so nothing is below it"),
        ("input.file=a", "input.file: unknown setting here; did you mean files?"),
        ("batch_rows=8_000", "batch_rows: found 8_000 (text); wanted a whole number"),
        ("language.name=near_duplicates", "near_duplicates: two stages have this name"),
    ],
)  # fmt: skip
def test_errors_of_set_name_the_option(base: Path, item: str, message: str) -> None:
    (found,) = problems_of_sets(base, item)
    assert (
        found.startswith(f"--set {' '.join(item.splitlines())}: ") or "c.yaml:9: near_duplicates: two stages" in found
    )
    assert message in found


def test_set_reads_yaml_and_the_last_one_wins(base: Path) -> None:
    config = load_config(
        base,
        [
            "near_duplicates.threshold=0.5",
            "near_duplicates.threshold = 1e-1 # comment",
            "near_duplicates.keep.at_least=2",
            "language.keep=[no, de]",
            "exact_duplicates.field=text",
            "input.columns={year: int64}",
            "batch_rows=0x10",
            "output='5'",
        ],
    )
    assert setting(config, "near_duplicates", "threshold") == 0.1
    assert setting(config, "near_duplicates", "keep").at_least == 2.0
    assert setting(config, "language", "keep") == ["no", "de"]
    assert setting(config, "exact_duplicates", "field") == "text"
    assert config.input.columns == {"year": "int64"}
    assert (config.batch_rows, config.output) == (16, "5")


def test_overrides_win_and_are_named_as_options(base: Path) -> None:
    config = load_config(base, ["output=b", "input.limit=1"], {"output": "c", "input.limit": 3, "input.sample": 0.5})
    assert (config.output, config.input.limit, config.input.sample) == ("c", 3, 0.5)
    with pytest.raises(UsageError) as caught:
        load_config(base, [], {"input.sample": 1.5, "input.limit": -1})
    assert sorted(str(caught.value).splitlines()) == [
        "--limit: input.limit: found -1 (a whole number); wanted a number of at least 0",
        "--sample: input.sample: found 1.5 (a number); wanted a number of at most 1",
    ]


# From Python.


def test_a_mapping_is_not_changed_and_may_hold_paths_and_tuples() -> None:
    mapping = {
        "input": {"files": (PurePosixPath("a") / "b.jsonl",)},
        "output": PurePosixPath("runs") / "x",
        "stages": ({"near_duplicates": {"threshold": 0.5}},),
    }
    config = config_from_mapping(mapping, ["near_duplicates.threshold=0.25"])
    assert config.input.files == ["a/b.jsonl"]
    assert config.output == "runs/x"
    assert setting(config, "near_duplicates", "threshold") == 0.25
    assert mapping["stages"] == ({"near_duplicates": {"threshold": 0.5}},)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "config: input: is missing"),
        ({"input": {"files": ["a"]}, "stages": [{"near_duplicates": {"threshold": "1"}}]},
         'config: near_duplicates.threshold: found "1" (text); wanted a number or off; write it without quotes'),
        ({"input": {"files": ["a"]}, "stages": ["near_duplicates", "near_duplicates"]},
         "config: near_duplicates: two stages have this name, on two items"),
        ({"input": {"files": ["a"], "limit": 1 + 2j}, "stages": []}, "config: input.limit: found (1+2j) (a Python"),
        ({"input": {"files": ["a"]}, "stages": [], 5: 6}, "config: the key 5 is a whole number; keys are text"),
    ],
)  # fmt: skip
def test_errors_of_a_mapping_name_the_setting(mapping: dict[Any, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        config_from_mapping(mapping)
    assert message in str(caught.value)


# What decides the result.


def test_the_semantic_config_has_every_setting_and_no_output(base: Path) -> None:
    config = load_config(base, ["near_duplicates.name=near"])
    semantic = semantic_config(config, {"near": {"model": "sha256:ab", "list": "sha256:cd"}, "language": {}})
    assert "output" not in semantic
    assert semantic["input"]["text_column"] == "text"
    assert [next(iter(item)) for item in semantic["stages"]] == ["language", "exact_duplicates", "near_duplicates"]
    exact = semantic["stages"][1]["exact_duplicates"]
    assert (exact["name"], exact["field"], exact["duplication_budget"]) == ("exact_duplicates", "text", 0.0)
    assert semantic["stages"][2]["near_duplicates"] == {
        "name": "near",
        "threshold": 0.8,
        "duplication_budget": 0.0,
        "field": "text",
        "keep": None,
        "model": "sha256:ab",
    }
    assert semantic["fingerprints"] == {"near": {"list": "sha256:cd"}}
    assert semantic["batch_rows"] == 8192


def semantic_hash(**changes: Any) -> str:
    mapping = {"input": {"files": ["a"]}, "stages": ["near_duplicates"], **changes}
    return config_hash(semantic_config(config_from_mapping(mapping), {}))


def test_the_hash_is_that_of_the_meaning() -> None:
    same = semantic_hash()
    assert len(same) == 64
    assert same == semantic_hash(output="elsewhere")
    assert same == semantic_hash(batch_rows=8192, input={"text_column": "text", "files": ["a"]})
    defaults = {"name": "near_duplicates", "threshold": 0.8, "duplication_budget": 0, "field": "text"}
    assert same == semantic_hash(stages=[{"near_duplicates": defaults}])
    assert same == semantic_hash(stages=[{"near_duplicates": {"duplication_budget": 0.0}}])
    assert same != semantic_hash(stages=[{"near_duplicates": {"threshold": 0.81}}])
    assert same != semantic_hash(stages=[{"near_duplicates": {"name": "near"}}])
    assert same != semantic_hash(batch_rows=8191)
    assert same != semantic_hash(input={"files": ["a"], "limit": 5})


def test_every_stage_has_settings_that_survive_being_written(tmp_path: Path) -> None:
    for kind in known_stages():
        stages = [{kind: NEEDED.get(kind, {})}]
        config = config_from_mapping({"input": {"files": ["a"], "text_column": "text"}, "stages": stages})
        semantic = semantic_config(config, {})
        path = tmp_path / "config.yaml"
        path.write_text(dump_yaml(semantic))
        again = semantic_config(load_config(path), {})
        assert again == semantic
        assert config_hash(again) == config_hash(semantic)


@given(st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_share_survives_writing_and_reading(share: float, column: str) -> None:
    mapping = {
        "input": {"files": ["a"], "id_column": column},
        "stages": [{"gopher_quality": {"minimum_alphabetic_words": share}}],
    }
    semantic = semantic_config(config_from_mapping(mapping), {})
    assert semantic_config(config_from_mapping(read_yaml(dump_yaml(semantic), "c").value), {}) == semantic


# Speed.


def test_checking_a_config_imports_nothing_heavy(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("input: {files: [a.jsonl]}\nstages: [exact_duplicates, gopher_quality: {minimum_words: 5}]\n")
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom pipelines.config import load_config\n"
        f"load_config(Path({str(path)!r}), ['gopher_quality.minimum_words=7'])\n"
        "heavy = {'apache_beam', 'numpy', 'pyarrow', 'numba', 'torch', 'pandas', 'fsspec', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), time.process_time() < 0.7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[] True\n", "")


@pytest.mark.parametrize(
    ("stage", "columns", "message"),
    [
        (
            {"license": {"column": "licence", "allow": ["MIT"]}},
            ["url"],
            "stages.license.column: the column licence is not",
        ),
        (
            {"urls": {"column": "meta.url", "domains": "d.txt"}},
            {"url": "string"},
            "stages.urls.column: the column meta.url",
        ),
        (
            {"exact_duplicates": {"duplication_budget": {"by": "topic", "default": 0.1}}},
            ["url"],
            "stages.exact_duplicates.duplication_budget.by: the column topic is not among input.columns",
        ),
    ],
)
def test_a_column_that_a_stage_reads_must_be_carried(stage: dict[str, Any], columns: Any, message: str) -> None:
    mapping = {"input": {"files": ["a"], "columns": columns}, "stages": [stage]}
    with pytest.raises(UsageError, match=message):
        config_from_mapping(mapping).build()


def test_what_only_the_stages_together_show_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = BASE.replace("- exact_duplicates", "- exact_duplicates: {priority: quality.score}")
    path.write_text(text, encoding="utf-8")
    line = len(text.splitlines()) - 1
    with pytest.raises(UsageError, match=rf"^{path}:{line}: stages.exact_duplicates.priority: 'quality.score' is no"):
        load_config(path).build()


def test_columns_within_objects_and_signals_count_as_carried() -> None:
    stages = [
        "language",
        {"urls": {"column": "meta.url", "domains": "d.txt"}},
        {"exact_duplicates": {"duplication_budget": {"by": "language", "default": 0.1}}},
    ]
    config_from_mapping({"input": {"files": ["a"], "columns": ["meta"]}, "stages": stages}).build()
