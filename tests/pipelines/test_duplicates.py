"""Duplicate stages through the whole tool: what stays, what leaves, and why, equals a plain reference."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from pipelines.cli import main
from tests.dedup.reference import Budget, Record, find_fates
from tests.pipelines.corpora import report, run, table, write_config
from tests.pipelines.duplicate_runs import (
    CERTAIN,
    as_records,
    check,
    execute,
    hexdigest,
    mixed_rows,
    places_of,
    variants,
    words,
)

BUDGETS = ("0", "0.01", "0.25", "0.29", "0.5", "1")


@pytest.fixture(scope="module")
def mixed() -> list[dict[str, Any]]:
    return mixed_rows()


def test_longest_first_with_protected_sources(mixed: list[dict[str, Any]], tmp_path: Path) -> None:
    out = execute(tmp_path, mixed, [{"near_duplicates": {**CERTAIN, "protect": ["gold"]}}])
    records = as_records(mixed, protected=lambda row: row["source"] == "gold", priority=lambda row: (len(row["text"]),))
    fates = find_fates(records, 0.6, 3)
    check(out, "near_duplicates", 0.6, records, fates)
    assert all(fates[n].rule is None and fates[n].copy_index == 0 for n, r in enumerate(records) if r.protected)
    # The corpus has all that there is to see.
    assert len({fate.size for fate in fates}) > 4
    assert sum(fate.copy_index > 0 and fate.jaccard < 1 for fate in fates) > 20
    assert sum(fate.copy_index > 0 and fate.jaccard == 1 for fate in fates) > 10
    curated = {row["record_id"]: row for row in table(out, "curated")}
    assert curated.keys() == {r.record_id for r, fate in zip(records, fates, strict=True) if fate.rule is None}
    for record, fate in zip(records, fates, strict=True):
        if fate.rule is None:
            row = curated[record.record_id]
            assert (row["cluster_size"], row["copy_index"]) == (fate.size, fate.copy_index)
            assert row["cluster_id"] == xxhash.xxh3_128_hexdigest(f"{record.file}#{record.position}".encode())
            assert row["content_hash"] == record.content_hash


def test_a_list_of_priorities_characters_groups_and_max_copies(mixed: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = {
        **CERTAIN,
        "priority": [{"source": ["b", "a"]}, "length"],
        "budget_unit": "characters",
        "duplication_budget": {"by": "kind", "default": 0.05, "values": {"x": 0.5}},
        "max_copies": 2,
    }
    out = execute(tmp_path, mixed, [{"near_duplicates": settings}])
    places = {"b": 0, "a": -1}
    records = as_records(
        mixed,
        priority=lambda row: (places.get(row["source"]), len(row["text"])),
        group=lambda row: row["kind"],
        units=lambda row: len(row["text"]),
    )
    fates = find_fates(records, 0.6, 3, Budget("0.05", {"x": "0.5"}, 2))
    check(out, "near_duplicates", 0.6, records, fates)
    rules = Counter((fate.rule, fate.copy_index > 0) for fate in fates)
    assert all(rules[rule] > 5 for rule in [("duplication_budget", True), ("max_copies", True), (None, True)])


def tokenizer_file(folder: Path) -> Path:
    """Write a tokenizer that cuts at blanks and around punctuation."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_signal_as_priority_tokens_and_groups_by_a_signal(mixed: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = {
        **CERTAIN,
        "priority": "length.words",
        "budget_unit": "tokens",
        "tokenizer": str(tokenizer_file(tmp_path)),
        "duplication_budget": {"by": "length.words", "default": 0.29, "values": {"4": 0.5, "40": 0.1}},
        "protect": ["gold"],
    }
    out = execute(tmp_path, mixed, ["length", {"near_duplicates": settings}])
    signals = {row["record_id"]: row["length.words"] for row in table(out, "signals")}
    records = as_records(
        mixed,
        priority=lambda row: (signals[row["id"]],),
        group=lambda row: str(signals[row["id"]]),
        units=lambda row: max(1, len(re.findall(r"\w+|[^\w\s]+", row["text"]))),
        protected=lambda row: row["source"] == "gold",
    )
    fates = find_fates(records, 0.6, 3, Budget("0.29", {"4": "0.5", "40": "0.1"}))
    check(out, "near_duplicates", 0.6, records, fates)
    assert sum(fate.copy_index > 0 and fate.rule is None for fate in fates) > 10


def with_lengths_of_their_own(texts: Sequence[str]) -> list[str]:
    """Make texts of which no two different ones are equally long."""
    made: dict[str, str] = {}
    lengths: set[int] = set()
    for text in texts:
        if text not in made:
            size = next(size for size in range(1, 1000) if len(text) + 1 + size not in lengths)
            made[text] = f"{text} {'z' * size}"
            lengths.add(len(made[text]))
    return [made[text] for text in texts]


def test_each_source_is_a_world_with_a_budget_of_its_own(tmp_path: Path) -> None:
    generator = random.Random(5)
    texts = [" ".join(words(generator, 12)) for _ in range(100)]
    texts = with_lengths_of_their_own(texts + texts[:30] + texts[:30])
    rows = [
        {"id": f"{budget}/{generator.random()}-{number}", "text": text, "source": f"budget {budget}"}
        for budget in BUDGETS
        for number, text in enumerate(texts)
    ]
    for row in rows:
        # The same ids in all sources, so that what stays can be compared.
        row["id"] = f"{row['source']}/{xxhash.xxh3_64_hexdigest(row['id'].split('-')[-1].encode())}"
    for number in range(40):
        for place, text in enumerate(with_lengths_of_their_own(variants(generator, generator.randrange(1, 13)))):
            rows.append({"id": f"world {number}/{place}", "text": text, "source": f"world {number}"})
    generator.shuffle(rows)
    values = {f"budget {budget}": float(budget) for budget in BUDGETS}
    settings = {
        **CERTAIN,
        "scope": "source",
        "duplication_budget": {"by": "source", "default": 0.5, "values": values},
    }
    out = execute(tmp_path, rows, [{"near_duplicates": settings}])
    records = as_records(
        rows,
        world=lambda row: row["source"],
        group=lambda row: row["source"],
        priority=lambda row: (len(row["text"]),),
    )
    fates = find_fates(records, 0.6, 3, Budget("0.5", {f"budget {budget}": budget for budget in BUDGETS}))
    check(out, "near_duplicates", 0.6, records, fates)
    kept = [
        {row["record_id"].split("/")[1] for row in table(out, "curated") if row["source"] == f"budget {budget}"}
        for budget in BUDGETS
    ]
    # 100 leaders and 60 copies: 0.29 of 100 is 29, though 0.29 * 100 is below it.
    assert [len(ids) for ids in kept] == [100, 101, 125, 129, 150, 160]
    assert all(smaller < larger for smaller, larger in zip(kept, kept[1:], strict=False))


def test_two_duplicate_stages_and_a_record_stage_between(mixed: list[dict[str, Any]], tmp_path: Path) -> None:
    stages = [
        {"exact_duplicates": {"duplication_budget": 0.1, "priority": {"source": ["gold"]}}},
        {"length": {"minimum_words": 4}},
        {"near_duplicates": {**CERTAIN, "priority": "length.words", "duplication_budget": 0.05}},
    ]
    out = execute(tmp_path, mixed, stages)
    records = as_records(mixed, priority=lambda row: (0 if row["source"] == "gold" else None,))
    fates = find_fates(records, None, budget=Budget("0.1"))
    check(out, "exact_duplicates", 1.0, records, fates)
    assert any(fate.copy_index > 0 and fate.rule is None for fate in fates)
    words_of = {row["record_id"]: row["length.words"] for row in table(out, "signals")}
    entering = [
        replace(record, priority=(words_of[record.record_id],))
        for record, fate in zip(records, fates, strict=True)
        if fate.rule is None and words_of[record.record_id] >= 4
    ]
    check(out, "near_duplicates", 0.6, entering, find_fates(entering, 0.6, 3, Budget("0.05")))
    # Some leaders of the first stage were dropped by the second.
    later = [json.loads(row["detail"]) for row in table(out, "ledger") if row["stage"] == "exact_duplicates"]
    assert {detail.get("later_dropped_by") for detail in later} == {None, "length", "near_duplicates"}
    counts = report(out)["duplicates"]["exact_duplicates"]
    assert counts["copies_of_leaders_dropped_later"] == sum("later_dropped_by" in detail for detail in later)
    assert 0 < counts["leaders_dropped_later"] < counts["copies_of_leaders_dropped_later"]
    assert counts["in_output"]["achieved"] != counts["achieved"]


def test_fields_of_pairs(tmp_path: Path) -> None:
    generator = random.Random(8)
    prompts = [text for _ in range(30) for text in variants(generator, 5)]
    responses = [text for _ in range(30) for text in variants(generator, 5)]
    rows = [
        {
            "id": str(number),
            "prompt": generator.choice(prompts),
            "response": generator.choice(responses),
            "source": "s",
        }
        for number in range(120)
    ]
    rows += [{**row, "id": f"again {row['id']}"} for row in rows[:15]]
    rows += [{**row, "id": f"like {row['id']}", "response": row["response"] + " more"} for row in rows[15:40]]
    stages = [
        {"near_duplicates": {**CERTAIN, "name": name, "field": name, "priority": "length"}}
        for name in ("both", "prompt", "response")
    ]
    stages[0]["near_duplicates"].pop("field")  # the default
    stages[0]["near_duplicates"]["duplication_budget"] = 0.25
    stages[1]["near_duplicates"]["duplication_budget"] = 0.5
    out = execute(tmp_path, rows, stages, prompt_column="prompt", response_column="response")
    alive = dict(zip([row["id"] for row in rows], places_of(len(rows)), strict=True))
    for stage, budget in (("both", "0.25"), ("prompt", "0.5"), ("response", "0")):
        records = []
        for row in rows:
            if row["id"] in alive:
                both = stage == "both"
                text = f"{row['prompt']}\n\n{row['response']}" if both else row[stage]
                # The length of a pair is that of its fields.
                length = len(row["prompt"]) + len(row["response"]) if both else len(text)
                digest = hexdigest(row["prompt"], row["response"]) if both else hexdigest(text)
                records.append(Record(row["id"], *alive[row["id"]], text, digest, (length,)))
        fates = find_fates(records, 0.6, 3, Budget(budget))
        check(out, stage, 0.6, records, fates)
        assert sum(fate.rule is not None for fate in fates) > 5
        for record, fate in zip(records, fates, strict=True):
            if fate.rule:
                alive.pop(record.record_id)
    assert {row["record_id"] for row in table(out, "curated")} == alive.keys()


# Similarities by hand: the number of common and of all runs of five tokens.
SCRIPTS = {
    # 11 characters are 11 tokens, 7 runs; one more behind is one more run.
    "zh": ("今天天气很好我们去公园", "今天天气很好，我们去公园吧！", 7, 8),
    # 13 characters, 9 runs; the last replaced: one run each is not common.
    "ja": ("私は毎朝コーヒーを飲みます", "私は毎朝コーヒーを飲みまし", 8, 10),
    # 10 words, 6 runs, and a word in front.
    "ko": (
        "오늘은 날씨가 아주 좋아서 우리는 함께 공원에 가기로 했습니다 정말로",
        "그런데 오늘은 날씨가 아주 좋아서 우리는 함께 공원에 가기로 했습니다 정말로",
        6, 7,
    ),
    # Nine characters of a script without spaces, two of them marks: 5 runs; one more character: 6.
    "th": ("สวัสดีครับ", "สวัสดีครับผ", 6, 7),
    # 8 words, 4 runs, other punctuation.
    "ar": (
        "ذهبت إلى السوق لشراء الخبز والحليب والبيض اليوم",
        "ذهبت إلى السوق، لشراء الخبز والحليب والبيض؛ اليوم!",
        4, 4,
    ),
    # def add a b return a b: 7 tokens, 3 runs. Symbols and indentation make no difference.
    "code": ("def add(a, b):\n    return a + b\n", "def add(a,b): return a+b", 3, 3),
    # Two runs of which one is common: too little.
    "unlike": ("one two three four five six", "one two three four five seven", 1, 3),
    # Fewer tokens than a shingle are one shingle.
    "short": ("Hello, world", "hello   WORLD!", 1, 1),
    "short, other order": ("world of wonders", "wonders of world", 0, 2),
}  # fmt: skip


def test_similarities_by_hand_in_all_scripts(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": f"{name} {place}", "text": text, "source": name}
        for name, pair in SCRIPTS.items()
        for place, text in enumerate(pair[:2])
    ]
    # Copies of what is shorter than a shingle, and of what has no tokens; these are duplicates of nothing else.
    rows += [{"id": f"copy {n}", "text": text, "source": None} for n, text in enumerate(["hi", "hi", "¡!", "¡!", "?"])]
    settings = {"threshold": 0.7, "permutations": 256, "catch_probability": 0.999999999}
    out = execute(tmp_path, rows, [{"near_duplicates": settings}])
    values = {row["record_id"].rsplit(" ", 1)[0]: row["value"] for row in table(out, "ledger")}
    expected = {name: common / union for name, (_, _, common, union) in SCRIPTS.items() if common >= 0.7 * union}
    assert values == {**expected, "copy": 1.0}
    left = {row["record_id"]: row["related_id"] for row in table(out, "ledger")}
    assert {record: leader for record, leader in left.items() if record.startswith("copy")} == {
        "copy 1": "copy 0",
        "copy 3": "copy 2",
    }


def test_a_chain_leaves_only_what_is_similar_to_what_stays(tmp_path: Path) -> None:
    text = words(random.Random(1), 130, 10**6)
    links = {"a": text[:100], "b": text[8:108], "c": text[16:116]}
    rows = []
    for first in "abc":
        for name, link in links.items():
            tail = ["tail"] if name == first else []
            rows.append({"id": f"{first}: {name}", "text": " ".join(link + tail), "source": first})
    settings = {"scope": "source", "permutations": 256, "catch_probability": 0.999999999}
    out = execute(tmp_path, rows, [{"near_duplicates": settings}])
    # 96 runs each, 8 of which are not those of the next one: 88/104; two links further 80/112.
    assert {row["record_id"]: (row["related_id"], row["value"]) for row in table(out, "ledger")} == {
        "a: b": ("a: a", 88 / 105),
        "b: a": ("b: b", 88 / 105),
        "b: c": ("b: b", 88 / 105),
        "c: b": ("c: c", 88 / 105),
    }


def test_an_editing_stage_before_is_judged_by_what_it_leaves(tmp_path: Path) -> None:
    rows = [
        {"id": str(number), "text": f"Write to {name}@example.org about the offer of last week.", "source": "s"}
        for number, name in enumerate(["anna", "bartholomew", "chris"])
    ]
    out = execute(tmp_path, rows, ["pii", "exact_duplicates"])
    left = {row["record_id"]: (row["stage"], row["value"], row["related_id"]) for row in table(out, "ledger")}
    assert left == {"1": ("exact_duplicates", 1.0, "0"), "2": ("exact_duplicates", 1.0, "0")}
    near = execute(tmp_path / "near", rows, ["pii", {"near_duplicates": {"duplication_budget": 1}}])
    (kept, copy) = table(near, "curated")
    assert (kept["copy_index"], copy["copy_index"], kept["cluster_size"]) == (0, 1, 3)
    assert kept["text"] == copy["text"]


@pytest.mark.parametrize(
    ("texts", "kept", "clusters", "budget"),
    [
        ([], 0, 0, 0),
        ([], 0, 0, 0.25),
        (["one record"], 1, 0, 0.25),
        (["all the same text"] * 150, 1, 1, 0.25),
        (None, 150, 0, 0.25),
    ],
)
def test_corpora_of_one_kind(texts: list[str] | None, kept: int, clusters: int, budget: float, tmp_path: Path) -> None:
    if texts is None:
        texts = [" ".join(words(random.Random(number), 30)) for number in range(150)]
    data = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), data)
    stages = [{"near_duplicates": {"duplication_budget": budget}}]
    assert run(write_config(tmp_path / "c.yaml", [str(data)], tmp_path / "run", stages)) == 0
    # A quarter of one leader is no copy.
    assert report(tmp_path / "run")["records"]["kept"] == kept
    found = report(tmp_path / "run")["duplicates"]["near_duplicates"]
    assert (found["leaders"], found["clusters"], found["limit"]) == (kept, clusters, int(budget * kept))
    assert main(["verify", str(tmp_path / "run")]) == 0
