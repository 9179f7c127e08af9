"""``thresher compare`` and the section ``checks``, on real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from tests.pipelines.corpora import documents, run, write_config

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
