"""``thresher contamination``, and what a report says of benchmarks."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from pipelines.contamination_command import _run_folder
from reports.schemas import report_schema
from tests.pipelines.corpora import report, table

FILLER = "the quiet market sold fruit and books under yellow lamps while people walked along the old street"
GARDEN = (
    "A gardener plants seven rows of quince trees beside a river and waters each third row every morning; how many "
    "rows stay dry on the tenth day of June?"
)
HARBOUR = (
    "Three captains leave the northern harbour at dawn with cargo of amber, tin and wool; which of them reaches the "
    "island first if the wind turns at noon?"
)
SHORT = "Which metal melts in the hand?"
TEXTS = [
    FILLER,
    f"{FILLER} {GARDEN} {FILLER}",
    f"{GARDEN.upper()}\n\n{HARBOUR}",
    f"{FILLER} {SHORT} {FILLER}",
    f"{GARDEN} {GARDEN}",
    " ",
]
GARDENS = {"items": 3, "not_checkable": 1, "found": 1, "records": 3, "share": 1 / 3, "ids": ["g/1"]}
HARBOURS = {"items": 1, "not_checkable": 0, "found": 1, "records": 1, "share": 1.0, "ids": ["1"]}
WANTED = {"gardens": GARDENS, "harbours": HARBOURS}


@pytest.fixture
def suite(tmp_path: Path) -> str:
    """Two benchmarks, of which one has a short item and one that cannot be checked."""
    rows = [("g/1", GARDEN, "four"), ("g/2", SHORT, "gallium"), ("g/3", "", "")]
    lines = [json.dumps({"id": name, "q": question, "a": answer}) for name, question, answer in rows]
    (tmp_path / "gardens.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "harbours.jsonl").write_text(json.dumps({"q": HARBOUR}), encoding="utf-8")
    path = tmp_path / "suite.yaml"
    path.write_text(
        "benchmarks:\n- {name: gardens, files: gardens.jsonl, id: id, question: q, answer: a}\n"
        "- {name: harbours, files: harbours.jsonl, question: q}\n",
        encoding="utf-8",
    )
    return str(path)


def corpus(folder: Path, **columns: list[str]) -> str:
    """Write a Parquet file with these columns, with ids beside them."""
    length = len(next(iter(columns.values())))
    ids = [f"d{number}" for number in range(length)]
    pq.write_table(pa.table({"id": ids, **columns}), folder / "corpus.parquet", row_group_size=2)
    return str(folder / "corpus.parquet")


def contamination(*arguments: str) -> int:
    return main(["contamination", *arguments, "--direct_num_workers=1"])


def test_what_is_found_is_told_by_benchmark(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    files = corpus(tmp_path, text=TEXTS)
    assert contamination(files, "--suites", suite, "--json") == 3
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["benchmarks"] == WANTED
    assert found["records"]["read"] == 6
    assert "items of benchmarks are in the data set: gardens 1, harbours 1; leave these items out" in printed.err
    assert contamination(files, "--suites", suite) == 3
    printed = capsys.readouterr()
    rows = [line.replace("│", " ").split() for line in printed.out.splitlines()]
    assert ["gardens", "3", "2", "1", "33.33", "%", "3"] in rows
    assert ["harbours", "1", "1", "1", "100.00", "%", "1"] in rows
    assert "gardens: g/1" in printed.out
    assert "5 of 6 records were searched" in printed.out
    assert not list((tmp_path / "temporary").glob("thresher-contamination-*"))


def test_a_clean_data_set_ends_with_0(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.jsonl").write_text(f"{json.dumps({'content': FILLER})}\n{{broken\n", encoding="utf-8")
    assert contamination(str(tmp_path / "corpus.jsonl"), "--suites", suite) == 0
    out = capsys.readouterr().out
    assert "warning: 1 records could not be read, and were not searched" in out
    assert contamination(str(tmp_path / "corpus.jsonl"), "--suites", suite, "--json") == 0
    assert all(entry["found"] == 0 for entry in json.loads(capsys.readouterr().out)["benchmarks"].values())


def test_pairs_are_searched_as_one_text(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = corpus(tmp_path, prompt=[SHORT, FILLER], response=["That is gallium.", FILLER])
    assert contamination(files, "--suites", suite, "--json") == 3
    assert json.loads(capsys.readouterr().out)["benchmarks"]["gardens"]["ids"] == ["g/2"]
    only = contamination(files, "--suites", suite, "--text-column", "prompt")
    assert only == 0, "the question alone is too short to count"


def test_the_run_folder_can_be_kept(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, output = corpus(tmp_path, text=TEXTS), tmp_path / "run"
    options = ("--suites", suite, "--output", str(output), "--id-column", "id")
    assert contamination(files, *options) == 3
    assert report(output)["contamination"] == {"contamination": WANTED}
    jsonschema.validate(report(output), report_schema())
    assert main(["verify", str(output)]) == 0
    counting = [row for row in table(output, "evidence") if row["rule"] != "question_only"]
    assert {row["action"] for row in counting} == {"flag"}
    assert sorted({(row["record_id"], row["related"]) for row in counting}) == [
        ("d1", "gardens/g/1"),
        ("d2", "gardens/g/1"),
        ("d2", "harbours/1"),
        ("d4", "gardens/g/1"),
    ]
    assert report(output)["records"]["kept"] == 5
    capsys.readouterr()
    assert contamination(files, *options) == 3
    assert "finished before with this config and input" in capsys.readouterr().err
    assert contamination(files, *options, "--set", "contamination.short_items=off") == 2
    assert "short_items" in capsys.readouterr().err
    assert contamination(files, *options, "--set", "contamination.short_items=off", "--overwrite") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suites", "none.yaml"], "contamination.suites: none.yaml matches no file"),
        (["--suites", "SUITE", "--text-column", "txt"], "there is no column txt; its columns are: id, text"),
        (["--suites", "SUITE", "--prompt-column", "text"], "prompt_column and response_column go together"),
        (["--suites", "SUITE", "--set", "contamination.treshold=1"], "did you mean threshold?"),
        (["--suites", "SUITE", "--limit", "-1"], "limit"),
    ],
)
def test_what_cannot_be_used_ends_with_2(
    arguments: list[str], message: str, suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = corpus(tmp_path, text=TEXTS)
    given = [suite if argument == "SUITE" else argument for argument in arguments]
    assert contamination(files, *given) == 2
    assert message in capsys.readouterr().err


def test_columns_that_are_not_plain_are_asked_for(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contamination(corpus(tmp_path, body=TEXTS), "--suites", suite) == 2
    error = capsys.readouterr().err
    assert "no column has the usual name of a text" in error
    assert "the options are --text-column" in error


def test_a_faulty_suite_is_told_before_the_run(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(suite).read_text(encoding="utf-8")
    Path(suite).write_text(text.replace("answer: a", "answer: reply"), encoding="utf-8")
    output = tmp_path / "run"
    assert contamination(corpus(tmp_path, text=TEXTS), "--suites", suite, "--output", str(output)) == 2
    message = "suite.yaml:2: benchmark gardens: gardens.jsonl, row 1: answer: there is no field reply; the fields are "
    assert message in capsys.readouterr().err
    assert not (output / "manifest.json").exists()


def test_an_interruption_leaves_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with _run_folder(None) as folder:
            (Path(folder) / "staging").mkdir(parents=True)
            signal.raise_signal(signal.SIGTERM)
            assert not Path(folder).parent.exists()
        assert seen == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert len(seen) == 2, "the handler of before is back"
    finally:
        signal.signal(signal.SIGTERM, before)


STAGES: list[Any] = [
    {"contamination": {"action": "drop"}},
    {"contamination": {"name": "cutting", "action": "cut", "margin": 0, "minimum_left": 1}},
]


@pytest.mark.parametrize("boilerplate", ["off", 50])
@pytest.mark.parametrize("stage", STAGES, ids=["drop", "cut"])
def test_the_report_counts_distinct_records_whatever_the_action(
    stage: dict[str, Any], boilerplate: Any, suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pipelines

    settings = {**stage["contamination"], "suites": [suite], "boilerplate": boilerplate}
    config = {
        "input": {"files": [corpus(tmp_path, text=TEXTS)]},
        "output": str(tmp_path / "run"),
        "stages": [{"contamination": settings}, "exact_duplicates"],
        "batch_rows": 2,
    }
    run = pipelines.run(config, ["--direct_num_workers=1"])
    assert run.report["contamination"] == {settings.get("name", "contamination"): WANTED}
    jsonschema.validate(run.report, report_schema())
    assert main(["report", str(tmp_path / "run")]) == 0
    assert f"Benchmarks ({settings.get('name', 'contamination')})" in capsys.readouterr().out


def test_a_run_without_the_stage_has_an_empty_section(tmp_path: Path) -> None:
    import pipelines

    config = {"input": {"files": [corpus(tmp_path, text=TEXTS)]}, "output": str(tmp_path / "run"), "stages": []}
    assert pipelines.run(config, ["--direct_num_workers=1"]).report["contamination"] == {}
