"""A bad shard is set aside by the whole tool: its records leave, the others stay, and everything adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.quarantine import FEWEST_PARTITIONS, partitions_of
from tests.pipelines.corpora import ENGLISH, report, run, table, write_config

WORDS = " ".join(ENGLISH)
SOURCES = 8
BROKEN, SHORT = "s3", "s5"


def _write(folder: Path, names: str = "{}.jsonl") -> list[str]:
    """Write a file per source: of one 60 % of the lines are broken, of another 60 % of the texts are too short."""
    folder.mkdir()
    for number in range(SOURCES):
        source = f"s{number}"
        lines = []
        for row in range(150):
            bad = row % 5 in (0, 2, 3)
            text = "Too short." if bad and source == SHORT else f"{WORDS} {source} {row}.\nNo end of this line"
            line = json.dumps({"id": f"{source}-{row}", "text": text, "source": source})
            lines.append("{broken" if bad and source == BROKEN else line)
        (folder / names.format(source)).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{folder}/*.jsonl"]


def _run(tmp_path: Path, name: str, *options: str, files: list[str] | None = None, **settings: Any) -> tuple[int, Path]:
    folder = tmp_path / name
    given = files or ([f"{tmp_path}/corpus/*.jsonl"] if (tmp_path / "corpus").exists() else _write(tmp_path / "corpus"))
    # Cutting lines without an end goes on at the records, which then are others than those read.
    cut = {"c4_quality": {"preset": "tfds", "minimum_sentences": "off", "minimum_line_words": "off"}}
    stages = [{"gopher_quality": {"minimum_words": 20}}, cut, {"quarantine": settings}, "exact_duplicates"]
    layout = {"source_column": "source"} if settings.get("by") != "file" else {}
    config = write_config(tmp_path / f"{name}.yaml", given, folder, stages, id_column="id", **layout)
    return run(config, *options), folder


def test_bad_shards_are_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A line that cannot be parsed has no source, so that its file stands for it.
    code, folder = _run(tmp_path, "run", by="file", maximum_dead_deviation="off")
    assert code == 0
    assert "2 of 8 files are far off the others" in capsys.readouterr().out
    found = report(folder)
    left = {stage["name"]: stage for stage in found["stages"]}["quarantine"]
    assert left["dropped"] == 60 + 60
    assert {name: rule["first"] for name, rule in left["rules"].items() if rule["first"]} == {
        "maximum_dead_share": 60,
        "maximum_drop_deviation": 60,
    }
    entry = found["quarantine"]["quarantine"]
    assert (entry["by"], entry["judged"], entry["set_aside"]) == ("file", SOURCES, 2)
    broken, short = sorted(entry["groups"], key=lambda group: str(group["name"]))
    assert (broken["name"], broken["read"], broken["dead"]) == (f"{BROKEN}.jsonl", 150, 90)
    assert (short["name"], short["dropped"], short["drop_share"]) == (f"{SHORT}.jsonl", 90, 0.6)
    kept = {row["record_id"].split("-")[0] for row in table(folder, "curated")}
    assert kept == {f"s{number}" for number in range(SOURCES)} - {BROKEN, SHORT}
    ledger = [
        row for row in table(folder, "ledger") if row["stage"] == "quarantine" and row["file"] == f"{BROKEN}.jsonl"
    ]
    assert {(row["rule"], row["value"], row["threshold"]) for row in ledger} == {("maximum_dead_share", 0.6, 0.2)}
    assert main(["verify", str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "2 of 8 files are far off the others" in page
    assert f"<bdi>{BROKEN}.jsonl</bdi>" in page
    # Signals come first: another limit is counted from what is stored, and selected without reading again.
    capsys.readouterr()
    change = ["--set", "quarantine.maximum_dead_share=0.7"]
    assert main(["whatif", str(folder), *change, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["select", str(folder), "--output", str(tmp_path / "other"), *change, "--direct_num_workers=1"]) == 0
    assert report(tmp_path / "other")["records"]["kept"] == len(table(folder, "curated")) + 60
    assert str(report(tmp_path / "other")["records"]["kept"]) in json.dumps(told)


def test_other_workers_and_shards_set_the_same_aside(tmp_path: Path) -> None:
    _, one = _run(tmp_path, "one", maximum_drop_share=0.5)
    code, three = _run(tmp_path, "three", "--direct_num_workers=3", maximum_drop_share=0.5)
    assert code == 0
    assert (one / "manifest.json").read_bytes() == (three / "manifest.json").read_bytes()
    files = _write(tmp_path / "joined", "{}.jsonl")
    whole = tmp_path / "joined" / "all.jsonl"
    parts = sorted((tmp_path / "joined").glob("s*.jsonl"), reverse=True)
    whole.write_text("".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8")
    for part in parts:
        part.unlink()
    _, joined = _run(tmp_path, "all", files=files, maximum_drop_share=0.5)
    assert report(joined)["quarantine"]["quarantine"]["groups"][0]["name"] == SHORT
    ids = [
        {row["record_id"] for row in table(folder, "curated") if row["source"] != BROKEN} for folder in (one, joined)
    ]
    assert ids[0] == ids[1]


def test_flag_lists_and_fail_ends_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, folder = _run(tmp_path, "run", action="flag", maximum_drop_share=0.5)
    assert code == 0
    found = report(folder)
    assert found["quarantine"]["quarantine"]["set_aside"] == 1
    assert next(stage for stage in found["stages"] if stage["name"] == "quarantine")["dropped"] == 0
    capsys.readouterr()
    code, folder = _run(tmp_path, "failed", action="fail", maximum_drop_share=0.5)
    assert code == 1
    error = capsys.readouterr().err
    assert f"{SHORT}: 0 of 150 records are dead letters, 90 were dropped" in error
    assert "or set its action to drop or flag" in error
    assert not (folder / "manifest.json").exists()


def test_a_broken_line_is_of_no_source_and_limits_per_file_count_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A stage that fails on records makes them dead, in a pass before the last one that the shares are taken from.
    (tmp_path / "rules.py").write_text(
        "def judge(record):\n    if record['source'] == 's2':\n        raise ValueError\n    return True\n",
        encoding="utf-8",
    )
    # Ninety broken lines in one file are enough to be judged, but nobody knows their sources.
    stages = [
        {"python": {"function": f"{tmp_path}/rules.py:judge"}},
        "exact_duplicates",
        {"quarantine": {"minimum_records": 80}},
    ]
    layout: dict[str, Any] = {"id_column": "id", "source_column": "source"}
    files = _write(tmp_path / "corpus")
    limit = {"share": 0.5, "per": "file"}
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", stages, max_errors=limit, **layout)
    assert run(config) == 1
    error = capsys.readouterr().err
    assert "2 files have more dead letters and failed files than input.max_errors.share (0.5), the worst: " in error
    assert f"s2.jsonl (150 of 150), {BROKEN}.jsonl (90 of 150); see " in error
    assert not (tmp_path / "run/manifest.json").exists()
    # The limit is no part of the result, so with another one the same run goes on.
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", stages, max_errors=240, **layout)
    assert run(config) == 0
    assert "going on with an unfinished run" in capsys.readouterr().err
    entry = report(tmp_path / "run")["quarantine"]["quarantine"]
    # Of the source of the broken lines 60 records are known, too few to be judged.
    assert (entry["by"], entry["judged"]) == ("source", SOURCES - 1)
    assert {group["name"]: (group["read"], group["dead"], group["dropped"]) for group in entry["groups"]} == {
        "s2": (150, 150, 0),
        SHORT: (150, 0, 89),
    }


def test_partitions_hold_as_many_groups_as_there_may_be() -> None:
    assert partitions_of(0) == FEWEST_PARTITIONS
    assert partitions_of(5_000_000_000) * (4 << 20) >= 5_000_000_000 * 40
