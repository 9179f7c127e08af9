"""Code of the user's as stages, through the whole tool: Python functions and filters of datatrove."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from corpus.errors import ThresherError
from pipelines.cli import main
from tests.pipelines.corpora import documents, report, run, table, write_config

RULES = '''
import pyarrow.compute as pc

def judge(record, shortest=100):
    """Name the language that the words show, and fail on what has no text."""
    text = record["text"]
    if record["quality"] > 0.9:
        raise ValueError(f"no verdict on {record['record_id']}")
    if len(text) < shortest:
        return False, "too short"
    return "Fluss" not in text or (False, "german")

def score(batch):
    return batch.column("quality")

def words(record):
    found = record["text"].split()
    return {"words": len(found), "first": found[0]}
'''
KEEP = {"python": {"name": "mine", "function": "rules.py:judge"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records in two formats and a file of functions; it is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = documents(300)
    pq.write_table(pa.Table.from_pylist(rows[:150]), tmp_path / "a.parquet", row_group_size=40)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[150:]), encoding="utf-8")
    (tmp_path / "rules.py").write_text(RULES, encoding="utf-8")
    return tmp_path


def config(folder: Path, stages: list[Any], output: str = "run", **settings: Any) -> Path:
    files = ["a.parquet", "b.jsonl"]
    return write_config(folder / f"{output}.yaml", files, folder / output, stages, source_column="source", **settings)


def rules_of(found: Any, stage: str) -> dict[str, int]:
    entry = next(entry for entry in found["stages"] if entry["name"] == stage)
    return {rule: counts["first"] for rule, counts in entry["rules"].items()}


def expected(rows: list[dict[str, Any]]) -> Counter[str]:
    """Count what becomes of the records, without any of our code."""
    fates: Counter[str] = Counter()
    for row in rows:
        if not row["text"]:
            fates["empty"] += 1
        elif row["quality"] > 0.9:
            fates["dead"] += 1
        elif len(row["text"]) < 100:
            fates["too short"] += 1
        else:
            fates["german" if "Fluss" in row["text"] else "kept"] += 1
    return fates


def test_reasons_are_rules_and_exceptions_are_dead_letters(folder: Path) -> None:
    assert run(config(folder, [KEEP, "exact_duplicates"], batch_rows=64)) == 0
    fates = expected(documents(300))
    assert all(fates[name] for name in ("dead", "too short", "german", "kept"))
    found = report(folder / "run")
    assert rules_of(found, "mine") == {"german": fates["german"], "too short": fates["too short"]}
    assert found["records"]["dead"] == found["dead_letters"]["stage_error"] == fates["dead"]
    ledger = [row for row in table(folder / "run", "ledger") if row["stage"] == "mine"]
    assert Counter(row["rule"] for row in ledger) == {name: fates[name] for name in ("german", "too short")}
    assert {(row["value"], row["threshold"]) for row in ledger} == {(0.0, 1.0)}
    dead = table(folder / "run", "dead_letters")
    assert len(dead) == fates["dead"]
    for row in dead:
        assert row["error"] == "stage_error"
        assert row["detail"].startswith("mine: ValueError: no verdict on ")
        assert row["detail"].endswith(" (line 8 of rules.py)")
        assert row["raw"]
    accounted = {row["record_id"] for name in ("ledger", "curated") for row in table(folder / "run", name)}
    assert len(accounted) + len(dead) == 300
    assert main(["verify", str(folder / "run")]) == 0


def test_the_run_fails_beyond_max_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = expected(documents(300))["dead"]
    assert run(config(folder, [KEEP], output="some", max_errors=dead)) == 0
    assert run(config(folder, [KEEP], output="few", max_errors=dead - 1)) == 1
    assert f"{dead} dead letters and failed files, more than input.max_errors ({dead - 1})" in capsys.readouterr().err
    assert not (folder / "few/manifest.json").exists()


def test_thresholds_on_scores_and_signals(folder: Path) -> None:
    declared = {"words": {"kind": "int64", "minimum": 20}, "first": {"kind": "string"}}
    stages = [
        {"python": {"name": "length", "function": "rules.py:words", "returns": "signals", "signals": declared}},
        {"python": {"name": "lasting", "function": "rules.py:judge", "arguments": {"shortest": 10_000}}},
    ]
    assert run(config(folder, stages), "--set", "length.signals.words.minimum=70") == 0
    signals = table(folder / "run", "signals")
    rows = [row for row in documents(300) if row["text"]]
    assert Counter(row["length.words"] for row in signals if row["input.characters"]) == Counter(
        len(row["text"].split()) for row in rows
    )
    by_words = sum(len(row["text"].split()) < 70 for row in rows)
    assert rules_of(report(folder / "run"), "length") == {"signals.words.minimum": by_words}
    left = [row for row in table(folder / "run", "ledger") if row["rule"] == "signals.words.minimum"]
    assert {row["threshold"] for row in left} == {70.0}
    assert max(row["value"] for row in left) < 70


def test_a_function_over_batches(folder: Path) -> None:
    stage = {"python": {"function": "rules.py:score", "returns": "score", "batch": True, "minimum": 0.5}}
    parquet = write_config(folder / "c.yaml", ["a.parquet"], folder / "run", [stage])
    assert run(parquet) == 0
    rows = [row for row in documents(300)[:150] if row["text"]]
    assert report(folder / "run")["records"]["kept"] == sum(row["quality"] >= 0.5 for row in rows)
    # Columns of JSON files are one column of objects, so that function fails on each batch of them.
    both = config(folder, [stage], output="both", batch_rows=50)
    assert run(both) == 0
    dead = table(folder / "both", "dead_letters")
    assert {row["detail"].partition(" (")[0] for row in dead} == {
        "python: KeyError: 'Field \"quality\" does not exist in schema'"
    }
    assert len(dead) == sum(bool(row["text"]) for row in documents(300)[150:])


def test_same_bytes_with_other_workers_and_in_another_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datatrove")
    stages = [KEEP, {"datatrove": {"filter": "SamplerFilter", "arguments": {"rate": 0.5}}}]
    assert run(config(folder, stages)) == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("a.parquet", "b.jsonl", "rules.py"):
        (elsewhere / name).write_bytes((folder / name).read_bytes())
    monkeypatch.chdir(elsewhere)
    assert run(config(elsewhere, stages), "--direct_num_workers=2") == 0
    assert (elsewhere / "run/manifest.json").read_bytes() == (folder / "run/manifest.json").read_bytes()
    assert rules_of(report(folder / "run"), "datatrove")["filter"] > 30


def test_another_source_is_another_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(folder, [KEEP])
    assert run(path) == 0
    (folder / "rules.py").write_text(RULES.replace("100", "120"), encoding="utf-8")
    assert run(path) == 2
    assert "stages" in capsys.readouterr().err
    assert run(path, "--overwrite") == 0


def test_datatrove_through_the_tool_is_datatrove(folder: Path) -> None:
    pytest.importorskip("datatrove")
    pytest.importorskip("spacy", reason="datatrove splits English words with spaCy, which is not installed")
    from datatrove.data import Document
    from datatrove.pipeline.filters import GopherQualityFilter

    stage = {"datatrove": {"filter": "GopherQualityFilter", "arguments": {"min_doc_words": 20, "min_stop_words": 3}}}
    assert run(config(folder, [stage])) == 0
    reference = GopherQualityFilter(min_doc_words=20, min_stop_words=3)
    verdicts = [reference.filter(Document(row["text"], "id")) for row in documents(300) if row["text"]]
    reasons = Counter(verdict[1] for verdict in verdicts if verdict is not True)
    assert len(reasons) > 1
    assert rules_of(report(folder / "run"), "datatrove") == {**reasons, "empty_after_edit": 0}
    ledger = table(folder / "run", "ledger")
    assert Counter(row["rule"] for row in ledger if row["stage"] == "datatrove") == reasons
    assert main(["verify", str(folder / "run")]) == 0


def test_edits_of_datatrove_reach_the_curated_files(folder: Path) -> None:
    pytest.importorskip("datatrove")
    from datatrove.data import Document
    from datatrove.pipeline.filters import C4QualityFilter

    arguments = {"min_num_sentences": -1, "min_words_per_line": 9}
    rows = [{"text": "Too short.\nA line has nine words and more than that.[3]\n  Menu"}, {"text": "Menu"}]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stage = {"datatrove": {"filter": "C4QualityFilter", "arguments": arguments}}
    assert run(write_config(folder / "c.yaml", ["c.jsonl"], folder / "run", [stage])) == 0
    document = Document(rows[0]["text"], "id")
    assert C4QualityFilter(**arguments).filter(document) is True
    assert [row["text"] for row in table(folder / "run", "curated")] == [document.text]
    assert rules_of(report(folder / "run"), "datatrove") == {"empty_after_edit": 1}
    evidence = [(row["start"], row["end"], row["action"]) for row in table(folder / "run", "evidence")]
    assert evidence == [(0, 11, "cut"), (52, 62, "cut"), (0, 4, "cut")]
    assert main(["verify", str(folder / "run")]) == 0


def test_many_reasons_are_the_largest_and_others(folder: Path) -> None:
    (folder / "rules.py").write_text("def judge(record):\n    return False, 'length ' + record['id']\n")
    rows = [{"id": f"{number % 1300:04}", "text": "a text"} for number in range(2000)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "many.parquet")
    assert run(write_config(folder / "c.yaml", ["many.parquet"], folder / "run", [KEEP])) == 0
    rules = rules_of(report(folder / "run"), "mine")
    assert len(rules) == 1001
    assert (rules["other"], rules["length 0000"]) == (300, 2)
    assert "length 1299" not in rules
    assert len({row["rule"] for row in table(folder / "run", "ledger")}) == 1300
    assert main(["verify", str(folder / "run")]) == 0


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"python": {"function": "rules.py:jugde"}}, "python.function: .*rules.py has no jugde; did you mean judge?"),
        ({"python": {"function": "no_such_module:judge"}}, "python.function: no module no_such_module was found"),
        ({"python": {}}, "python.function: is missing"),
        ("python", "python.function: is missing"),
        ({"python": {"function": "rules.py:judge", "minimum": 1.0}}, "python: minimum and maximum limit a score"),
        ({"datatrove": {"filter": "GopherFilter"}}, "datatrove.filter: datatrove "),
        (
            {"datatrove": {"filter": "SamplerFilter", "arguments": {"rat": 1}}},
            "datatrove.arguments: SamplerFilter takes no argument 'rat'; did you mean rate?",
        ),
    ],
)
def test_validate_says_what_cannot_be(
    folder: Path, capsys: pytest.CaptureFixture[str], stage: Any, message: str
) -> None:
    assert main(["validate", str(config(folder, [stage]))]) == 2
    error = capsys.readouterr().err
    for part in message.split(".*"):
        assert part in error
    assert f"{folder}/run.yaml:" in error
    assert "Traceback" not in error


def test_what_cannot_be_loaded_ends_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rules.py").write_text("import no_such_thing\ndef judge(record): ...\n")
    assert run(config(folder, [KEEP])) == 2
    assert "rules.py cannot be imported: ModuleNotFoundError: No module named" in capsys.readouterr().err
    stage = {"datatrove": {"filter": "RegexFilter", "arguments": {"regex_exp": "("}}}
    assert run(config(folder, [stage], output="other")) == 2
    assert "datatrove: RegexFilter cannot be used here: " in capsys.readouterr().err
    assert not list((folder / "run").glob("curated/*")) + list((folder / "other").glob("curated/*"))


def test_from_python(folder: Path) -> None:
    settings = {"input": {"files": ["a.parquet"]}, "output": str(folder / "run"), "stages": [KEEP]}
    found = pipelines.run(settings, ["--direct_num_workers=1"])
    fates = expected(documents(300)[:150])
    assert found.report["records"]["kept"] == fates["kept"]
    with pytest.raises(ThresherError, match=r"rules\.py has no other"):
        pipelines.run({**settings, "stages": [{"python": {"function": "rules.py:other"}}]})


def test_stages_says_which_run_at_their_own_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--json"]) == 0
    speeds = {stage["name"]: stage["speed"] for stage in json.loads(capsys.readouterr().out)}
    assert speeds["python"] == speeds["datatrove"] == "per record, in Python"
    assert speeds["language"] == speeds["gopher_quality"] == ""
    assert main(["stages"]) == 0
    printed = capsys.readouterr().out
    assert "python (record, per record, in Python): " in printed
    assert "language (record): " in printed
