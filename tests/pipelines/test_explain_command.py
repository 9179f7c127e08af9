"""Explaining single records of a whole run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.explain_command import explain
from tests.pipelines.corpora import ENGLISH, run, table, write_config

STAGES: list[Any] = [
    "language",
    {"pii": {"phone_numbers": "flag"}},
    {"gopher_quality": {"minimum_words": 20, "by_language": {"de": {"minimum_words": 5}}}},
    {"near_duplicates": {"threshold": 0.5, "shingle_tokens": 2}},
    {"length": {"maximum_characters": 400}},
    {"python": {"function": "FUNCTION", "returns": "score"}},
]
HOSTILE = " \x1b[2J\x1b]0;owned\x07 \u202egnirts"
# One that cannot be judged: the function raises.
FUNCTION = "def length(record):\n    return len(record['text']) / (record['record_id'] != 'broken')\n"
WORDS = " ".join(ENGLISH)
GRADES = {"high": 4.5, "low": 1.0, "none": None}


def rows() -> list[dict[str, Any]]:
    long = WORDS + " call +1 202-555-0143 or write to anna@example.com now"
    return [
        {"id": "first", "text": long + HOSTILE + " and then some more words follow here", "source": "web"},
        {"id": "copy", "text": long + HOSTILE + " and then some more words", "source": "web\x1b[31m"},
        {"id": "short", "text": "too short", "source": "web"},
        {"id": "twice", "text": "The first of two that share an id, of some length. " * 3, "source": "web"},
        {"id": "twice", "text": " ".join(reversed(ENGLISH)) + " is the second of them all", "source": "books"},
        {"id": "broken", "text": "This one is long enough for each of the rules that count words, and of no use. " * 2},
        {"id": "long", "text": "One of many sentences that are written here for their length number. " * 12},
        {"id": None, "text": "A record without an id is known by the file that it is in and by where it is. " * 2},
        {"id": "evil\x1b[8m", "text": "too short as well", "source": "web"},
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    lines = [json.dumps(row) for row in rows()]
    lines.insert(2, '{"id": "lost", \x1b[2J broken')
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "function.py").write_text(FUNCTION)
    stages = json.loads(json.dumps(STAGES).replace("FUNCTION", f"{folder}/function.py:length"))
    config = write_config(
        folder / "c.yaml", [f"{folder}/data.jsonl"], folder / "run", stages, id_column="id", source_column="source"
    )
    assert run(config) == 0
    (folder / "function.py").unlink()
    return folder / "run"


def one(folder: Path, record_id: str) -> dict[str, Any]:
    (record,) = explain(str(folder), record_id)["records"]
    return record  # type: ignore[no-any-return]


def stage(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in record["stages"] if entry["name"] == name)


def rule(record: dict[str, Any], name: str, of: str) -> dict[str, Any]:
    return next(entry for entry in stage(record, of)["rules"] if entry["name"] == name)


def test_a_dropped_record_has_its_rule_and_all_signals(finished: Path) -> None:
    record = one(finished, "short")
    assert (record["fate"], record["left_at"], record["source"]) == ("dropped", "gopher_quality", "web")
    ledger = next(row for row in table(finished, "ledger") if row["record_id"] == "short")
    assert record["ledger"] == ledger
    signals = next(row for row in table(finished, "signals") if row["record_id"] == "short")
    found = {f"{entry['name']}.{name}": value for entry in record["stages"] for name, value in entry["signals"].items()}
    assert found == {name: value for name, value in signals.items() if "." in name}
    minimum = rule(record, "minimum_words", "gopher_quality")
    assert (minimum["value"], minimum["threshold"], minimum["meets"]) == (2, 20.0, False)
    assert rule(record, "maximum_words", "gopher_quality")["meets"]
    states = [entry["state"] for entry in record["stages"]]
    assert states == ["passed"] * 3 + ["left"] + ["not reached"] * 3
    assert rule(record, "maximum_characters", "length")["meets"] is None
    assert record["texts"] == [
        {
            "stage": "gopher_quality",
            "fields": {"text": {"text": "too short", "marks": [["too short", None]], "before": 0, "after": 0}},
        }
    ]


def test_a_duplicate_stands_beside_the_record_that_stays(finished: Path) -> None:
    record = one(finished, "copy")
    assert record["ledger"]["related_id"] == "first"
    (cluster,) = record["duplicates"]
    assert (cluster["role"], cluster["cluster_size"], cluster["leader"]["record_id"]) == ("dropped", 2, "first")
    comparison = record["comparison"]
    assert comparison["with"]["jaccard"] == record["ledger"]["value"] == cluster["jaccard"]
    field = comparison["fields"]["text"]
    assert field["text"].startswith(WORDS)
    assert "<EMAIL>" in field["text"]
    assert field["other"] == field["text"] + " follow here"
    # The other way round: the one that stays lists its copies.
    leader = one(finished, "first")
    assert leader["duplicates"][0]["role"] == "leader"
    assert [member["record_id"] for member in leader["duplicates"][0]["members"]] == ["copy"]
    assert "comparison" not in leader


def test_what_was_found_in_a_text_is_marked_and_private_data_is_not_shown(finished: Path) -> None:
    record = one(finished, "first")
    actions = {row["rule"]: row["action"] for row in record["evidence"]}
    assert actions == {"emails": "redact", "phone_numbers": "flag"}
    part = next(part for part in record["texts"] if part["stage"] == "pii")
    marks = {mark: text for text, mark in part["fields"]["text"]["marks"] if mark}
    assert marks["replaced"] == "<EMAIL>"
    assert "found" in marks
    assert "anna@example.com" not in json.dumps(explain(str(finished), "first"), default=vars)


def test_several_records_of_an_id_are_all_shown(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(str(finished), "twice")
    assert [record["source"] for record in found["records"]] == ["web", "books"]
    assert found["records"][0]["position"] < found["records"][1]["position"]
    assert main(["explain", str(finished), "twice"]) == 0
    assert "2 records have this id" in capsys.readouterr().out


def test_dead_letters_and_records_without_an_id(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = one(finished, "broken")
    assert (record["fate"], record["left_at"], record["ledger"]) == ("dead", "python", None)
    (letter,) = explain(str(finished), "broken")["dead_letters"]
    assert letter["error"] == "stage_error"
    assert "ZeroDivisionError" in letter["detail"]
    malformed = next(row for row in table(finished, "dead_letters") if row["error"] == "malformed_json")
    found = explain(str(finished), f"{malformed['file']}#{malformed['position']}")
    assert found["records"] == []
    assert found["dead_letters"][0]["raw"].startswith('{"id": "lost"')
    assert main(["explain", str(finished), f"{malformed['file']}#{malformed['position']}"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    generated = next(row for row in table(finished, "signals") if "#" in row["record_id"])
    assert one(finished, generated["record_id"])["position"] == generated["position"]


@pytest.mark.parametrize("record_id", ["first", "copy", "short", "broken", "long", "evil\x1b[8m"])
def test_nothing_printed_moves_the_terminal(finished: Path, record_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(finished), record_id]) == 0
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\u202e\r")
    assert "gopher_quality" in printed
    assert ("\\x1b[2J" in printed) == (record_id in ("first", "copy"))


def test_json_holds_all_that_is_printed(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(finished), "copy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows_of_text = found["records"][0]["comparison"]["fields"]["text"]["rows"]
    assert rows_of_text[-1]["right"][-1] == [" follow here", True]
    assert found["records"][0]["source"] == "web\x1b[31m"


def test_an_unknown_id_names_the_nearest(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(finished), "frist"]) == 2
    assert "the nearest ids are 'first'" in capsys.readouterr().err
    assert main(["explain", str(finished), "evil"]) == 2
    error = capsys.readouterr().err
    assert "evil\\x1b[8m" in error
    assert "\x1b" not in error
    assert main(["explain", str(finished / "nothing"), "first"]) == 2
    assert "is it the folder of a finished run?" in capsys.readouterr().err


def test_without_staging_texts_of_kept_records_come_from_curated(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    assert main(["clean", str(folder)]) == 0
    written = next(row for row in table(folder, "curated") if row["record_id"] == "first")
    assert one(folder, "first")["texts"][-1]["fields"]["text"]["text"] == written["text"]
    for record_id in ("copy", "short"):
        record = one(folder, record_id)
        assert "staging was removed" in record["texts"][0]["missing"]
        assert record["ledger"] == one(finished, record_id)["ledger"]
    assert "staging was removed" in one(folder, "copy")["comparison"]["missing"]


def test_a_score_that_is_missing_meets_no_limit(tmp_path: Path) -> None:
    lines = [json.dumps({"id": name, "text": f"a text of {name}", "grade": grade}) for name, grade in GRADES.items()]
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stages: list[Any] = [{"column": {"column": "grade", "keep": {"at_least": 3}}}]
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/data.jsonl"], tmp_path / "run", stages, id_column="id")
    assert run(config) == 0
    found = {name: rule(one(tmp_path / "run", name), "keep", "column")["meets"] for name in GRADES}
    assert found == {"high": True, "low": False, "none": None}
