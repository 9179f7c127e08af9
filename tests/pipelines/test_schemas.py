"""The JSON Schema of a config, and the table of stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from corpus.stages import known_stages
from corpus.yaml_reader import read_yaml_file
from pipelines.config import config_from_mapping, semantic_config
from pipelines.schemas import config_schema, stages_table
from tests.pipelines.corpora import NEEDED

CASES = Path(__file__).parents[3] / "shared" / "cases"

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not there")
pytestmark = pytest.mark.usefixtures("case_stages")


def accepts(value: Any) -> bool:
    return jsonschema.Draft202012Validator(config_schema()).is_valid(value)


def config(**changes: Any) -> dict[str, Any]:
    return {"input": {"files": ["a"]}, "stages": ["near_duplicates"], **changes}


def test_it_is_a_schema_and_plain_json() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_no_object_accepts_keys_that_it_does_not_list() -> None:
    def objects(value: Any) -> list[dict[str, Any]]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        own = [value] if isinstance(value, dict) and "properties" in value else []
        return own + [found for part in inner for found in objects(part)]

    found = objects(config_schema())
    assert len(found) > 2 * len(known_stages())
    assert all(value["additionalProperties"] is False for value in found)


@needs_cases
def test_it_rejects_the_files_of_the_case_and_accepts_their_base() -> None:
    folder = CASES / "g01-unknown-keys"
    assert accepts(read_yaml_file(folder / "base.yaml").value)
    files = sorted(folder.glob("m*.yaml"))
    assert len(files) == 11
    assert [path.name for path in files if accepts(read_yaml_file(path).value)] == []


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (config(), True),
        (config(stages=[]), True),
        (config(stages=[{"near_duplicates": {}}]), True),
        (config(stages=[{"near_duplicates": {"threshold": "off", "keep": {"at_least": 1}}}]), True),
        (config(output=None, batch_rows=1), True),
        (config(stages=[{"near_duplicates": None}]), False),
        (config(stages=[{"near_duplicates": {"threshold": None}}]), False),
        (config(stages=[{"near_duplicates": {"threshold": True}}]), False),
        (config(stages=[{"near_duplicates": {"threshold": "0.8"}}]), False),
        (config(stages=[{"near_duplicates": {"threshold": 1.5}}]), False),
        (config(stages=[{"near_duplicates": {"keep": {"at_leats": 1}}}]), False),
        (config(stages=[{}]), False),
        (config(stages={"near_duplicates": {}}), False),
        (config(batch_rows=0), False),
        (config(batch_rows=1.5), False),
        (config(input={}), False),
        (config(input={"files": []}), False),
        ({"input": {"files": ["a"]}}, False),
        ({"stages": []}, False),
    ],
)
def test_it_agrees_with_the_checks_of_a_run(value: dict[str, Any], valid: bool) -> None:
    assert accepts(value) is valid
    try:
        config_from_mapping(value)
        loaded = True
    except Exception as error:
        assert type(error).__name__ == "UsageError"  # noqa: PT017
        loaded = False
    assert loaded is valid


def test_it_accepts_a_semantic_config() -> None:
    stages = [{kind: NEEDED.get(kind, {})} for kind in known_stages()]
    assert accepts(semantic_config(config_from_mapping(config(stages=stages)), {}))


def test_the_table_lists_every_stage_with_its_settings() -> None:
    table = {entry["name"]: entry for entry in stages_table()}
    assert list(table) == list(known_stages())
    assert table["near_duplicates"]["kind"] == "record"
    assert table["exact_duplicates"]["kind"] == "corpus"
    settings = {setting["name"]: setting for setting in table["near_duplicates"]["settings"]}
    assert settings["threshold"] == {
        "name": "threshold",
        "required": False,
        "default": 0.8,
        "description": "Largest share of characters.",
    }
    assert json.loads(json.dumps(stages_table())) == stages_table()


def test_every_setting_and_stage_is_described() -> None:
    for entry in stages_table():
        assert entry["summary"]
        assert all(setting["description"] for setting in entry["settings"]), entry["name"]
