"""``thresher compare`` and the section ``checks``, on real runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.folder import Folder
from pipelines.cli import main
from reports.compare import ComparedRun, cause, compare
from reports.limits import Limits
from tests.pipelines.corpora import ENGLISH, documents, run, write_config

STAGES: list[Any] = [{"language": {"keep": ["en"]}}, {"gopher_quality": {"minimum_words": 20}}, "exact_duplicates"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs over the same records, the same with another config, and over records of which many are cut short."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [{**row, "id": f"{number}"} for number, row in enumerate(documents(900))]
    for name, kept in (("same", 1.0), ("short", 0.3)):
        table = [{**row, "text": row["text"][: int(len(row["text"]) * kept)]} for row in rows]
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(table), folder / name / "a.parquet")
    found = {}
    for name, data, options in (
        ("first", "same", []),
        ("again", "same", []),
        ("strict", "same", ["--set", "gopher_quality.minimum_words=70"]),
        ("short", "short", []),
    ):
        files = [str(folder / data / "*.parquet")]
        config = write_config(folder / f"{name}.yaml", files, folder / f"run-{name}", STAGES, source_column="source")
        assert run(config, *options) == 0
        found[name] = folder / f"run-{name}"
    return found


def _compare(*arguments: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["compare", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_equal_runs_are_equal(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _compare(runs["first"], runs["again"], capsys=capsys)
    assert code == 0
    assert (
        found["cause"] == "the config is the same; the input is the same, and no signal of an unchanged stage shifted"
    )
    assert found["beyond"] == found["config"] == found["columns"] == []
    assert all(entry.get("kolmogorov_smirnov", 0) == 0 for entry in found["signals"])
    assert found["common"]["share_of_before"] == found["common"]["share_of_after"] == 1


def test_another_config(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _compare(runs["first"], runs["strict"], capsys=capsys)
    assert code == 3
    assert found["config"] == ["stages.gopher_quality.minimum_words: 20 before, 70 after"]
    assert "the input is the same, and no signal" in found["cause"]
    assert (found["rules"][0]["stage"], found["rules"][0]["rule"]) == ("gopher_quality", "minimum_words")
    assert any(line.startswith("gopher_quality, minimum_words") for line in found["beyond"])
    records = found["records"]
    share = records["after"]["kept"] / records["after"]["read"] - records["before"]["kept"] / records["before"]["read"]
    assert found["kept_share"]["change"] == pytest.approx(share)


def test_other_data(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _compare(runs["first"], runs["short"], capsys=capsys)
    assert code == 3
    assert found["config"] == []
    assert found["inputs"] == {"same": 0, "changed": 1, "added": 0, "removed": 0}
    assert "the input differs, and" in found["cause"]
    words = next(entry for entry in found["signals"] if entry["signal"] == "gopher_quality.words")
    assert words["stability_index"] > 0.25
    assert words["median"]["after"] < words["median"]["before"]
    assert words["precision"] == 0
    labels = next(entry for entry in found["signals"] if entry["signal"] == "language.label")
    assert 0 < labels["total_variation"] < 1
    assert labels["total_variation"] == pytest.approx(sum(abs(row["change"]) for row in labels["names"]) / 2)


def test_limits_in_a_file(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose = tmp_path / "loose.yaml"
    loose.write_text("{kept_share: off, drop_share: off, mixture: off, missing_share: off, stability_index: off}")
    assert _compare(runs["first"], runs["short"], "--limits", loose, capsys=capsys)[0] == 0
    loose.write_text("kept_shar: 0.5\n")
    assert main(["compare", str(runs["first"]), str(runs["short"]), "--limits", str(loose)]) == 2
    assert "kept_share" in capsys.readouterr().err
    assert main(["compare", str(runs["first"]), str(tmp_path)]) == 2
    assert "is it the folder of a finished run?" in capsys.readouterr().err
    assert main(["compare", str(runs["first"]), str(runs["short"])]) == 3
    assert "beyond the limits: gopher_quality" in capsys.readouterr().out


def test_checks_before_a_run_is_published(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runs["first"].parent / "first.yaml"
    folder = tmp_path / "run"

    def checked(**checks: Any) -> tuple[int, str]:
        capsys.readouterr()
        settings = json.dumps(checks)
        code = run(config, "--output", str(folder), "--set", f"checks={settings}")
        return code, capsys.readouterr().err

    code, message = checked(
        maximum_drop_share={"gopher_quality": 0.01, "input": 0.5},
        minimum_kept=100_000,
        minimum_language_share={"en": 0.5, "ko": 0.1},
    )
    assert code == 1
    assert "3 checks are not met, so nothing is published" in message
    for part in ("gopher_quality drops", "fewer than minimum_kept (100,000)", "the language ko is 0.00 %"):
        assert part in message
    assert not (folder / "manifest.json").exists()
    assert json.loads((folder / "report.json").read_text())["records"]["read"] == 900
    code, message = checked(against=str(runs["short"]))
    assert code == 1
    assert "against" in message
    code, message = checked(maximum_drop_share={"gopher": 0.5})
    assert code == 2
    assert "checks.maximum_drop_share.gopher: no stage has this name" in message
    code, message = checked(against=str(runs["again"]), minimum_source_share={"web": 0.01})
    assert code == 0, message
    assert (folder / "manifest.json").read_bytes() == (runs["first"] / "manifest.json").read_bytes()
    # Checks that are new are asked of the finished run as well.
    code, message = checked(minimum_kept=100_000)
    assert code == 1
    assert "the run was published before, and 1 checks are not met" in message
    assert checked(minimum_kept=1)[0] == 0


def test_an_earlier_run_that_is_none_is_found_before_the_run(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = runs["first"].parent / "first.yaml", tmp_path / "run"
    for against, message in (
        (tmp_path / "none", "is it the folder of a finished run?"),
        (folder, "is the output itself"),
    ):
        options = ["--output", str(folder), "--set", f"checks.against={against}"]
        assert run(config, *options) == 2
        assert not folder.exists()
        error = capsys.readouterr().err
        assert "checks.against: " in error
        assert message in error
    before = (runs["again"] / "manifest.json").read_bytes()
    options = ["--output", str(runs["again"]), "--overwrite", "--set", f"checks.against={runs['again']}"]
    assert run(config, *options) == 2
    assert (runs["again"] / "manifest.json").read_bytes() == before


def test_a_share_is_one_of_all_that_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records without a language or source count as kept."""
    texts = [" ".join(ENGLISH), *(f"{number} 123 456" for number in range(3))]
    rows = [{"text": text, "source": "web" if number < 2 else None} for number, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    files = [str(tmp_path / "a.parquet")]
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", ["language"], source_column="source")
    low = "checks={minimum_language_share: {en: 0.25}, minimum_source_share: {web: 0.5}}"
    high = "checks={minimum_language_share: {en: 0.3}, minimum_source_share: {web: 0.6}}"
    assert run(config, "--set", high) == 1
    error = capsys.readouterr().err
    assert "the language en is 25.00 % of what is kept" in error
    assert "the source web is 50.00 % of what is kept" in error
    assert run(config, "--set", low) == 0
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "other", [])
    assert main(["validate", str(config), "--set", low]) == 2
    assert "checks.minimum_language_share: no stage finds languages" in capsys.readouterr().err


def _compared(folder: Path, config: Mapping[str, Any], mixture: Mapping[str, Mapping[str, int]]) -> ComparedRun:
    records = {"read": 2, "kept": 2, "dropped": 0, "dead": 0}
    return ComparedRun(Folder(str(folder)), {"records": records, "stages": [], "by_source": {}}, config, {}, mixture)


def test_records_without_a_name_are_part_of_a_mixture(tmp_path: Path) -> None:
    before = _compared(tmp_path, {"stages": []}, {"languages": {"en": 999_999}, "none": {"languages": 1}})
    after = _compared(tmp_path, {"stages": []}, {"languages": {"en": 600_000}, "none": {"licences": 5}})
    found = compare(before, after)["mixture"]
    assert {group: entry["total_variation"] for group, entry in found.items()} == {"languages": pytest.approx(1e-6)}
    half = _compared(tmp_path, {"stages": []}, {"languages": {"en": 500}, "none": {"languages": 500}})
    found = compare(before, half)["mixture"]["languages"]
    assert found["total_variation"] == pytest.approx(0.5, abs=1e-5)
    assert {row["name"]: row["after"] for row in found["names"]} == {"en": 0.5, "(none)": 0.5}


@pytest.mark.parametrize(
    ("before", "after", "drifting"),
    [
        ({}, {}, True),
        ({}, {"fingerprints": {"language": {"model": "aa"}}}, False),
        ({"fingerprints": {"language": {"model": "aa"}}}, {"fingerprints": {"language": {"model": "bb"}}}, False),
        ({"fingerprints": {"pii": {"table": "aa"}}}, {"fingerprints": {"pii": {"table": "bb"}}}, True),
        ({"batch_rows": 5}, {"batch_rows": 6}, True),
    ],
)
def test_a_stage_with_another_model_is_a_changed_one(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], drifting: bool
) -> None:
    configs = ({"stages": [{"language": {"name": "language"}}], **more} for more in (before, after))
    comparison = compare(*(_compared(tmp_path, config, {}) for config in configs))
    comparison["signals"] = [{"signal": "language.score", "stability_index": 1.0}]
    assert ("first language.score" in cause(comparison, Limits())) == drifting


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("manifest.json", b"{}", "manifest.json: no 'inputs' in it"),
        ("manifest.json", b'{"a', "manifest.json: damaged"),
        ("report.json", None, "no report.json"),
        ("signals/part-00000-of-00001.parquet", None, "signals/part-00000-of-00001.parquet: the file is missing"),
        ("signals/part-00000-of-00001.parquet", b"PAR1", "signals/part-00000-of-00001.parquet: damaged"),
        ("curated/part-00000-of-00001.parquet", b"PAR1", "curated/part-00000-of-00001.parquet: damaged"),
    ],
)
def test_a_damaged_run(
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    data: bytes | None,
    message: str,
) -> None:
    damaged = tmp_path / "run"
    shutil.copytree(runs["first"], damaged)
    (damaged / file).unlink()
    if data is not None:
        (damaged / file).write_bytes(data)
    assert main(["compare", str(runs["first"]), str(damaged)]) == 2
    assert message in capsys.readouterr().err


def test_the_schema_of_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "limits"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid({"kept_share": 0.1, "mixture": "off", "columns": False})
    assert not valid({"kept_share": 2})
    assert not valid({"kept_shar": 0.1})


def test_the_page_of_a_comparison(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "compare.html"
    assert main(["compare", str(runs["first"]), str(runs["short"]), "--html", str(page)]) == 3
    text = page.read_text(encoding="utf-8")
    for part in ("default-src 'none'", "Beyond the limits", "gopher_quality.words", "minimum_words", "stability index"):
        assert part in text
    assert "Signal language.label" in text
    assert "<script" not in text
    assert "http://" not in text.replace("http-equiv", "")
