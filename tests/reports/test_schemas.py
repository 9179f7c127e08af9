"""The published schemas describe what runs write."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pipelines.cli import main
from reports.schemas import manifest_schema, report_schema
from tests.pipelines.corpora import STAGES, run, write_config, write_corpus


@pytest.mark.parametrize("stages", [[], STAGES])
def test_reports_and_manifests_fit_their_schemas(tmp_path: Path, stages: list[object]) -> None:
    files = write_corpus(tmp_path / "corpus", 300)
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", stages, id_column="id", source_column="source")
    assert run(config) == 0
    for name, schema in (("report", report_schema()), ("manifest", manifest_schema())):
        content = json.loads((tmp_path / f"run/{name}.json").read_text())
        jsonschema.validate(content, schema)
        for key in schema["required"]:
            part = {other: value for other, value in content.items() if other != key}
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(part, schema)


@pytest.mark.parametrize("what", ["config", "report", "manifest"])
def test_schemas_are_printed(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", what]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))
