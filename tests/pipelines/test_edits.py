"""Stages that edit texts, in whole runs: what they cut, what is written, and what the stages behind them see."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.c4 import C4QualityConfig
from filters.c4_reference import read_text
from filters.c4_rules import line_rules
from filters.pii_reference import find_in_text
from pipelines.cli import main
from tests.pipelines.corpora import ENGLISH, report, run, table, write_config
from tests.pipelines.duplicate_runs import hexdigest, write_rows

TOKENS = {"emails": "<EMAIL>", "ip_addresses": "<IP_ADDRESS>", "phone_numbers": "<PHONE_NUMBER>", "line_ends": "\n"}
KINDS = ("emails", "ip_addresses", "phone_numbers")
LINES = C4QualityConfig(minimum_sentences="off", curly_bracket="on")


def cleaned(text: str) -> str:
    """Return what c4_quality leaves of a text."""
    return read_text(text, line_rules(LINES))[1]


def redacted(text: str, *kinds: str) -> str:
    """Return a text without its private data of these kinds."""
    for start, end, kind in reversed(find_in_text(text, public_only=True)):
        if KINDS[kind] in kinds:
            text = text[:start] + TOKENS[KINDS[kind]] + text[end:]
    return text


def replayed(text: str, evidence: Sequence[dict[str, Any]]) -> str:
    """Return a text after the edits that a stage's evidence tells of."""
    for row in sorted(evidence, key=lambda row: -row["start"]):
        text = text[: row["start"]] + TOKENS.get(row["rule"], "") + text[row["end"] :]
    return text


C4 = {"c4_quality": {"minimum_sentences": "off"}}
PII = {"pii": {"ip_addresses": "off", "phone_numbers": "flag"}}
ADDRESSES = {"pii": {"name": "addresses", "emails": "flag", "phone_numbers": "drop"}}
STAGES: list[Any] = [
    {"language": {"name": "as_read"}},
    C4,
    PII,
    "language",
    {"length": {"maximum_characters": 600}},
    "exact_duplicates",
    ADDRESSES,
    {"length": {"name": "size"}},
    {"near_duplicates": {"threshold": 0.7}},
    {"c4_quality": {"name": "again", "minimum_line_words": 9, "minimum_sentences": "off"}},
    {"length": {"name": "last"}},
]
EDITING = ("c4_quality", "pii", "addresses", "again")
MENU = ("Startseite und Kontakt für Sie und die ganze große Familie", "  Menu\r", "Copy · 漢字", "read more …", "\t")


def texts() -> list[str]:
    """Texts with lines that are cut, private data behind letters of many bytes, and copies of all kinds."""
    choose = random.Random(5)
    found = []
    for number in range(160):
        lines = []
        for _ in range(choose.randrange(1, 7)):
            words = choose.choices([*ENGLISH, "é", "漢字", "🎉", "naïve"], k=choose.randrange(6, 26))
            if choose.random() < 0.5:
                words.insert(choose.randrange(len(words)), f"señor.{choose.randrange(9)}@example{number % 7}.com")
            if choose.random() < 0.4:
                words.insert(choose.randrange(len(words)), f"9.9.{choose.randrange(255)}.{choose.randrange(255)}")
            if choose.random() < 0.03:
                words.append("call +49 30 1234567 now")
            lines.append(
                " ".join(words) + choose.choice([".", ".", "!", ".[1]", ' {"a"}.' if number % 9 == 0 else "."])
            )
            lines.extend(choose.choices(MENU, k=choose.choice([0, 1, 2])))
        found.append(choose.choice(["\n", "\r\n", "\n\n"]).join(lines))
    found += ["\n".join([MENU[0], text]) for text in found[:20]]
    found += [text.replace("9.9.", "8.8.") for text in found[20:50]]
    found += [text.replace("señor.", "ante.") for text in found[50:70]]
    german = " ".join([MENU[0]] * 6)
    found += [f"{german}\nThe river and its old bridge have been there for a long time.\n{german}"]
    found += [*MENU, " ".join(MENU), "", " \n", "漢" * 300]
    choose.shuffle(found)
    return found


def write(folder: Path, name: str, stages: list[Any], *options: str, **settings: Any) -> Path:
    rows = [{"id": f"t{number}", "text": text} for number, text in enumerate(texts())]
    files = write_rows(folder / f"data-{name}", rows)
    config = write_config(folder / f"{name}.yaml", files, folder / name, stages, id_column="id", **settings)
    assert run(config, *options) == 0
    return folder / name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("edits"), "run", STAGES, batch_rows=32)


def stage_texts(text: str) -> dict[str, str]:
    """Return the text that enters each stage of ``STAGES``, and the one that is written."""
    left = cleaned(text)
    without = redacted(left, "emails")
    later = redacted(without, "ip_addresses")
    rules = line_rules(C4QualityConfig(minimum_sentences="off", minimum_line_words=9))
    entering = {"input": text, "as_read": text, "c4_quality": text, "pii": left}
    entering |= dict.fromkeys(("language", "length", "exact_duplicates", "addresses"), without)
    entering |= dict.fromkeys(("size", "near_duplicates", "again"), later)
    return entering | {"last": (last := read_text(later, rules)[1]), "written": last}


@pytest.fixture(scope="module")
def entering() -> dict[str, dict[str, str]]:
    """Record id -> the text that enters each stage."""
    return {f"t{number}": stage_texts(text) for number, text in enumerate(texts())}


def test_what_is_written_is_what_the_stages_left(finished: Path, entering: dict[str, dict[str, str]]) -> None:
    curated = table(finished, "curated")
    for row in curated:
        assert row["text"] == entering[row["record_id"]]["written"]
        assert row["content_hash"] == hexdigest(row["text"])
    assert sum(row["text"] != entering[row["record_id"]]["input"] for row in curated) > 100
    assert main(["verify", str(finished)]) == 0
    left = Counter((row["stage"], row["rule"]) for row in table(finished, "ledger"))
    for stage, rule in [
        ("input", "empty_text"),
        ("c4_quality", "curly_bracket"),
        ("c4_quality", "empty_after_edit"),
        ("length", "maximum_characters"),
        ("exact_duplicates", "duplication_budget"),
        ("addresses", "phone_numbers"),
        ("near_duplicates", "duplication_budget"),
        ("again", "empty_after_edit"),
    ]:
        assert left.pop((stage, rule)) > 0
    assert not left


def test_evidence_spans_are_places_in_the_text_that_enters_the_stage(
    finished: Path, entering: dict[str, dict[str, str]]
) -> None:
    evidence: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table(finished, "evidence"):
        evidence.setdefault((row["record_id"], row["stage"]), []).append(row)
        cut = entering[row["record_id"]][row["stage"]][row["start"] : row["end"]]
        if row["rule"] == "emails":
            assert cut.count("@") == 1
            assert cut.startswith(("señor.", "ante."))
        elif row["rule"] == "ip_addresses":
            assert cut.startswith(("8.8.", "9.9."))
        elif row["rule"] == "phone_numbers":
            assert cut == "+49 30 1234567"
        elif row["rule"] == "citations":
            assert cut.strip() == "[1]"
    assert Counter(row["action"] for rows in evidence.values() for row in rows).keys() == {
        "cut", "redact", "flag", "drop",
    }  # fmt: skip
    signals = {row["record_id"]: row for row in table(finished, "signals")}
    behind = {"c4_quality": "pii", "pii": "language", "addresses": "size", "again": "last"}
    kept = 0
    for record, row in signals.items():
        if not row["kept"]:
            continue
        kept += 1
        for stage, following in behind.items():
            rows = [one for one in evidence.get((record, stage), []) if one["action"] in ("cut", "redact")]
            assert replayed(entering[record][stage], rows) == entering[record][following]
            assert row[f"{stage}.edits"] == len(rows)
            assert row[f"{stage}.characters_cut"] == sum(one["end"] - one["start"] for one in rows)
            assert row[f"{stage}.characters_left"] == len(entering[record][following])
    assert kept > 100


def test_characters_balance_as_a_recount_of_evidence_says(finished: Path, entering: dict[str, dict[str, str]]) -> None:
    left_at = {row["record_id"]: row["stage"] for row in table(finished, "ledger")}
    inside = set(entering)
    evidence = [row for row in table(finished, "evidence") if row["action"] in ("cut", "redact")]
    for stage in report(finished)["stages"]:
        name = stage["name"]
        sizes = {record: len(entering[record][name]) for record in inside}
        leaving = {record for record in inside if left_at.get(record) == name}
        inside -= leaving
        edits = [row for row in evidence if row["stage"] == name and row["record_id"] in inside]
        expected = {
            "entered": len(sizes),
            "dropped": len(leaving),
            "edited": len({row["record_id"] for row in edits}),
            "characters_in": sum(sizes.values()),
            "characters_dropped": sum(sizes[record] for record in leaving),
            "characters_cut": sum(row["end"] - row["start"] for row in edits),
            "characters_added": sum(len(TOKENS.get(row["rule"], "")) for row in edits),
        }
        assert {key: stage[key] for key in expected} == expected, name
        assert (stage["edited"] > 0) is (name in EDITING)
        assert stage["characters_out"] == (
            stage["characters_in"] - stage["characters_dropped"] - stage["characters_cut"] + stage["characters_added"]
        )
    assert stage["characters_out"] == sum(len(entering[record]["written"]) for record in inside)


def test_stages_behind_an_edit_judge_the_edited_text(finished: Path, entering: dict[str, dict[str, str]]) -> None:
    signals = table(finished, "signals")
    languages = set()
    for row in signals:
        of_record = entering[row["record_id"]]
        assert row["input.characters"] == len(of_record["input"])
        for stage in ("length", "size", "last"):
            if row[f"{stage}.characters"] is not None:
                assert row[f"{stage}.characters"] == len(of_record[stage])
        if row["kept"]:
            languages.add((row["as_read.label"], row["language.label"]))
    assert ("de", "en") in languages
    assert {row["record_id"]: row["language"] for row in table(finished, "curated")} == {
        row["record_id"]: row["language.label"] for row in signals if row["kept"]
    }
    copies = changed = alike = 0
    for row in table(finished, "ledger"):
        if row["related_id"] is None:
            continue
        mine, other = entering[row["record_id"]], entering[row["related_id"]]
        if row["stage"] == "exact_duplicates":
            assert mine["exact_duplicates"] == other["exact_duplicates"]
            copies += 1
            changed += mine["input"] != other["input"]
        elif mine["near_duplicates"] == other["near_duplicates"]:
            assert row["value"] == 1.0
            assert mine["exact_duplicates"] != other["exact_duplicates"]
            alike += 1
    assert copies > changed > 20
    assert alike > 5
    reached = [row["record_id"] for row in signals if row["addresses.edits"] is not None]
    texts_then = [entering[record]["exact_duplicates"] for record in reached]
    assert len(set(texts_then)) == len(texts_then)
    last = [entering[row["record_id"]]["near_duplicates"] for row in signals if row["again.edits"] is not None]
    assert len(set(last)) == len(last)
    assert report(finished)["duplicates"]["near_duplicates"]["copies_available"] > 10


def test_same_bytes_with_other_workers_and_same_records_with_other_batches(finished: Path, tmp_path: Path) -> None:
    two = write(tmp_path, "two", STAGES, "--direct_num_workers=2", batch_rows=32)
    assert (two / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()
    whole = write(tmp_path, "whole", STAGES)
    digests = [json.loads((folder / "manifest.json").read_text())["content_digest"] for folder in (finished, whole)]
    assert digests[0] == digests[1]
    for name in ("ledger", "signals", "curated"):
        assert table(finished, name) == table(whole, name)
    in_order = [
        sorted(table(folder, "evidence"), key=lambda row: json.dumps(row, sort_keys=True))
        for folder in (finished, whole)
    ]
    assert in_order[0] == in_order[1]
    assert report(finished) == report(whole)


PAIRS = [
    ("Write to a@example.com", "I wrote to b@example.com on that day.\nMenu"),
    ("Write to c@example.com", "I wrote to d@example.com on that day.\nHome"),
    ("Menu", "This is a sentence of words.\n9.9.9.9"),
    ("x@example.com", "Menu\nHome"),
    ("漢字 y@example.com and 9.9.9.9", "The address 漢 9.9.9.9 is one of theirs."),
]


@pytest.mark.parametrize(
    ("field", "fields"), [(None, ("prompt", "response")), ("both", ("prompt", "response")), ("response", ("response",))]
)
def test_pairs(tmp_path: Path, field: str | None, fields: tuple[str, ...]) -> None:
    rows = [{"id": f"p{number}", "prompt": pair[0], "response": pair[1]} for number, pair in enumerate(PAIRS)]
    files = write_rows(tmp_path / "data", rows, files=1)
    stages = [C4, {"pii": {"ip_addresses": "flag", **({"field": field} if field else {})}}, "exact_duplicates"]
    columns = {"prompt_column": "prompt", "response_column": "response", "id_column": "id"}
    output = tmp_path / "run"
    assert run(write_config(tmp_path / "c.yaml", files, output, stages, batch_rows=2, **columns)) == 0
    assert main(["verify", str(output)]) == 0
    expected = {}
    for number, (prompt, response) in enumerate(PAIRS):
        texts = {"prompt": prompt, "response": cleaned(response)}
        expected[f"p{number}"] = {
            name: redacted(text, "emails") if name in fields else text for name, text in texts.items()
        }
    ledger = {(row["record_id"], row["stage"], row["rule"]): row for row in table(output, "ledger")}
    emptied = ledger.pop(("p3", "c4_quality", "empty_after_edit"))
    assert (emptied["value"], emptied["threshold"]) == (0.0, 1.0)
    assert expected.pop("p3")["response"] == ""
    if "prompt" in fields:
        # The first two pairs are one once the addresses are gone.
        assert {(stage, rule) for _, stage, rule in ledger} == {("exact_duplicates", "duplication_budget")}
        for record, _, _ in ledger:
            assert expected.pop(record) == {"prompt": "Write to <EMAIL>", "response": "I wrote to <EMAIL> on that day."}
    else:
        assert not ledger
    curated = table(output, "curated")
    assert {row["record_id"]: {name: row[name] for name in ("prompt", "response")} for row in curated} == expected
    for row in curated:
        assert row["content_hash"] == hexdigest(row["prompt"], row["response"])
    numbers = {row["record_id"]: int(row["record_id"][1:]) for row in curated}
    for row in table(output, "evidence"):
        if row["stage"] == "pii" and row["record_id"] in numbers:
            prompt, response = PAIRS[numbers[row["record_id"]]]
            cut = {"prompt": prompt, "response": cleaned(response)}[row["field"]][row["start"] : row["end"]]
            assert "@example.com" in cut or cut == "9.9.9.9"
            assert row["field"] in fields


def chat(number: int) -> list[dict[str, Any]]:
    """A chat with turns that are cut in part and wholly, turns without content, one behind the answer, more fields."""
    answer = ["Menu", "He wrote to c@example.com about it.\nMenu\nThen 9.9.9.9 was gone."][number % 4 > 0]
    contents = [
        ("system", f"Chat {number}: be kind to 漢字, k@example.com and all.\nMenu"),
        ("user", "Startseite"),
        ("assistant", None),
        ("tool", ""),
        ("user", f"Write to user.{number % 2}@example.com or a@example.com.[1]\r\n\r\n  And to 9.9.9.9 too. "),
        ("assistant", answer),
        ("user", "Thanks, z@example.com"),
    ]
    return [
        {"role": role, "content": content, "weight": number + place / 2, "calls": [{"name": "f@example.com"}] * place}
        for place, (role, content) in enumerate(contents)
    ]


def edited_chat(number: int) -> list[dict[str, Any]]:
    """The chat after the stages of the test."""
    messages = chat(number)
    messages[0]["content"] = f"Chat {number}: be kind to 漢字, <EMAIL> and all.\n"  # a line of the prompt ends here
    messages[1]["content"] = ""
    messages[4]["content"] = "Write to <EMAIL> or <EMAIL>.\nAnd to <IP_ADDRESS> too."
    messages[5]["content"] = "He wrote to <EMAIL> about it.\nThen <IP_ADDRESS> was gone."
    return messages


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_chats(tmp_path: Path, kind: str) -> None:
    rows = [{"id": f"c{number}", "messages": chat(number), "tag": "a@example.com"} for number in range(12)]
    rows.append(rows[-1] | {"id": "copy"})
    if kind == "jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / "chats.jsonl").write_text("".join(lines), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chats.parquet", row_group_size=5)
    both = {"c4_quality": {"minimum_sentences": "off", "field": "both"}}
    later = {"pii": {"name": "addresses", "field": "both"}}
    output = tmp_path / "run"
    config = write_config(
        tmp_path / "c.yaml", [f"{tmp_path}/chats.*"], output, [both, PII, "exact_duplicates", later], batch_rows=3,
        messages_column="messages", id_column="id",
    )  # fmt: skip
    assert run(config) == 0
    assert main(["verify", str(output)]) == 0
    left = {row["record_id"]: (row["stage"], row["rule"]) for row in table(output, "ledger")}
    assert len(left) == 4
    assert {left.pop(f"c{number}") for number in (0, 4, 8)} == {("c4_quality", "empty_after_edit")}
    assert set(left) < {"c11", "copy"}
    assert set(left.values()) == {("exact_duplicates", "duplication_budget")}
    curated = table(output, "curated")
    assert len(curated) == 9
    for row in curated:
        number = 11 if row["record_id"] == "copy" else int(row["record_id"][1:])
        assert row["messages"] == edited_chat(number)
        assert row["tag"] == "a@example.com"
        *before, answer = [message["content"] for message in row["messages"][:6]]
        assert row["content_hash"] == hexdigest("\n\n".join(content for content in before if content), answer)
    assert report(output)["stages"][-1]["edited"] == 9


FUNCTION = """
def judge(record, log):
    text = record["text"]
    with open(log, "a", encoding="utf-8") as file:
        print(record["record_id"], repr(text), file=file)
    if "fail" in text:
        raise ValueError(f"cannot judge {text}")
    return "leave" not in text
"""


def test_dead_letters_of_a_stage_hold_the_edited_text(tmp_path: Path) -> None:
    texts = {
        "short": "a@example.com",
        "fails": "Please fail for b@example.com from 9.9.9.9 on this day.\nMenu of c@example.com",
        "card": "Pay with 4111 1111 1111 1111 and fail here, d@example.com now.",
        "leaves": "Please leave me, e@example.com, alone on this day.",
        "stays": "Please keep f@example.com and the others here.",
        "again": "Please keep g@example.com and the others here.",
    }
    rows = [{"id": name, "text": text} for name, text in texts.items()]
    (tmp_path / "rules.py").write_text(FUNCTION, encoding="utf-8")
    files = write_rows(tmp_path / "data", rows, files=1)
    log = tmp_path / "log.txt"
    stages = [
        C4,
        {"length": {"minimum_characters": 15}},
        {"pii": {"payment_cards": "drop"}},
        {"python": {"function": f"{tmp_path}/rules.py:judge", "arguments": {"log": str(log)}}},
        "exact_duplicates",
        {"length": {"name": "last"}},
    ]
    output = tmp_path / "run"
    assert run(write_config(tmp_path / "c.yaml", files, output, stages, id_column="id")) == 0
    assert main(["verify", str(output)]) == 0
    (dead,) = table(output, "dead_letters")
    assert dead["raw"].decode() == "Please fail for <EMAIL> from <IP_ADDRESS> on this day."
    assert dead["detail"].startswith(f"python: ValueError: cannot judge {dead['raw'].decode()}")
    assert (dead["file"], dead["position"], dead["error"]) == ("0.parquet", 1, "stage_error")
    called = [line.split(" ", 1) for line in log.read_text(encoding="utf-8").splitlines()]
    assert {name for name, _ in called} == {"fails", "leaves", "stays", "again"}
    for path in [log, *(path for path in output.rglob("*") if path.is_file() and "staging" not in path.parts)]:
        assert b"@example.com" not in path.read_bytes(), path
    left = {row["record_id"]: (row["stage"], row["rule"]) for row in table(output, "ledger")}
    assert left.pop("short") == ("c4_quality", "empty_after_edit")
    assert left.pop("card") == ("pii", "payment_cards")
    assert left.pop("leaves") == ("python", "function")
    ((copy, why),) = left.items()
    assert (copy in ("stays", "again"), why) == (True, ("exact_duplicates", "duplication_budget"))
    assert report(output)["records"] == {"read": 6, "kept": 1, "dropped": 4, "dead": 1}
