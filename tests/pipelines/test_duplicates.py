"""Duplicate stages through the whole tool: what stays, what leaves, and why, equals a plain reference."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import dedup.duplicates
import dedup.proposals
from pipelines.cli import main
from tests.dedup.reference import Budget, Fate, Record, find_fates, jaccard
from tests.pipelines.corpora import report, run, table, write_config

BUDGETS = ("0", "0.01", "0.25", "0.29", "0.5", "1")
# So many bands that no pair at the threshold is missed.
CERTAIN = {"threshold": 0.6, "shingle_tokens": 3, "permutations": 256, "catch_probability": 0.999999999}


def write_rows(folder: Path, rows: Sequence[Mapping[str, Any]], files: int = 2) -> list[str]:
    """Write rows as some Parquet files; returns the input entry."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.Table.from_pylist(list(rows)).schema
    borders = np.linspace(0, len(rows), files + 1).astype(int).tolist()
    for number, (start, end) in enumerate(zip(borders, borders[1:], strict=False)):
        part = pa.Table.from_pylist(list(rows[start:end]), schema=schema)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=70)
    return [f"{folder}/*.parquet"]


def places_of(count: int, files: int = 2) -> list[tuple[str, int]]:
    """Return (file, position) of each of the rows that ``write_rows`` writes."""
    borders = np.linspace(0, count, files + 1).astype(int).tolist()
    return [
        (f"{number}.parquet", row - start)
        for number, (start, end) in enumerate(zip(borders, borders[1:], strict=False))
        for row in range(start, end)
    ]


def hexdigest(*fields: str) -> str:
    """Return the content hash of the text fields of a record."""
    parts = [field.encode() for field in fields]
    if len(parts) > 1:
        parts = [len(part).to_bytes(8, "little") + part for part in parts]
    return xxhash.xxh3_128_hexdigest(b"".join(parts))


def check(folder: Path, stage: str, threshold: float, records: Sequence[Record], fates: Sequence[Fate]) -> None:
    """Compare all tables of a run, and its report, with what the reference found for one stage."""
    signals = {row["record_id"]: row for row in table(folder, "signals")}
    ledger = {row["record_id"]: row for row in table(folder, "ledger") if row["stage"] == stage}
    clusters = {row["record_id"]: row for row in table(folder, "clusters") if row["stage"] == stage}
    for record, fate in zip(records, fates, strict=True):
        leader, found = records[fate.leader], signals[record.record_id]
        cluster_id = xxhash.xxh3_128_hexdigest(f"{leader.file}#{leader.position}".encode())
        similarity = float(fate.jaccard) if fate.copy_index else None
        assert [found[f"{stage}.{name}"] for name in ("cluster_id", "cluster_size", "copy_index", "jaccard")] == [
            cluster_id, fate.size, fate.copy_index, similarity,
        ], record  # fmt: skip
        row = ledger.get(record.record_id, {})
        assert row.get("rule") == fate.rule, record
        if fate.rule:
            over_budget = fate.rule == "duplication_budget"
            assert row["value"] == (similarity if over_budget else fate.copy_index)
            assert not over_budget or row["threshold"] == threshold <= row["value"]
            assert row["related_id"] == leader.record_id
            assert json.loads(row["detail"])["file"] == leader.file
            assert json.loads(row["detail"])["position"] == leader.position
            assert row["content_hash"] is not None
        row = clusters.get(record.record_id, {})
        role = "dropped" if fate.rule else "copy" if fate.copy_index else "leader"
        assert row.get("role") == (role if fate.size > 1 else None)
        if row:
            assert (row["cluster_id"], row["jaccard"]) == (cluster_id, similarity)
            assert (row["file"], row["position"]) == (record.file, record.position)
    assert len(ledger) == sum(fate.rule is not None for fate in fates)
    assert len(clusters) == sum(fate.size > 1 for fate in fates)
    summary = report(folder)["duplicates"][stage]
    copies = [fate for fate in fates if fate.copy_index]
    leaders = len(fates) - len(copies)
    kept = sum(fate.rule is None for fate in copies)
    assert {name: summary[name] for name in ("leaders", "clusters", "copies_available", "copies_kept")} == {
        "leaders": leaders,
        "clusters": sum(fate.size > 1 and not fate.copy_index for fate in fates),
        "copies_available": len(copies),
        "copies_kept": kept,
    }
    assert summary["achieved"] == pytest.approx(kept / leaders if leaders else 0, abs=1e-4)
    assert main(["verify", str(folder)]) == 0


def words(generator: random.Random, count: int, vocabulary: int = 3000) -> list[str]:
    """Random words."""
    return [f"w{generator.randrange(vocabulary)}" for _ in range(count)]


def variants(generator: random.Random, count: int) -> list[str]:
    """Texts that are more or less like each other, copies among them, short ones, and some without tokens."""
    base = words(generator, generator.choice([2, 4, 15, 40]))
    texts: list[str] = []
    for _ in range(count):
        text = list(base)
        for place in generator.sample(range(len(base)), min(len(base), generator.choice([0, 1, 1, 2, 3]))):
            text[place] = words(generator, 1)[0]
        if generator.random() < 0.2:
            text += words(generator, generator.randrange(6))
        texts.append(" ".join(text).replace("w", generator.choice("wwwW")) + generator.choice(["", ".", "!"]))
        if generator.random() < 0.3:
            texts[-1] = generator.choice(texts)
        if generator.random() < 0.05:
            texts[-1] = generator.choice(["!!!", "—", "🎉 🎉", "今天天气很好我们去公园", "今天天气很好我们去公园吧"])
    return texts


@pytest.fixture(scope="module")
def mixed() -> list[dict[str, Any]]:
    """Rows of several sources and kinds, nulls among both."""
    generator = random.Random(11)
    texts = [text for _ in range(45) for text in variants(generator, generator.randrange(1, 9))]
    generator.shuffle(texts)
    return [
        {
            "id": f"r{generator.randrange(10**6)}-{number}",
            "text": text,
            "source": generator.choice(["a", "b", "gold", "c", None]),
            "kind": generator.choice(["x", "y", None]),
        }
        for number, text in enumerate(texts)
    ]


def as_records(rows: Sequence[Mapping[str, Any]], **of_row: Callable[[Mapping[str, Any]], Any]) -> list[Record]:
    """Return rows as the reference takes them; the keyword arguments give its other attributes."""
    return [
        Record(
            row["id"], file, position, row["text"], hexdigest(row["text"]),
            **{name: function(row) for name, function in of_row.items()},
        )
        for row, (file, position) in zip(rows, places_of(len(rows)), strict=True)
    ]  # fmt: skip


def execute(folder: Path, rows: Sequence[Mapping[str, Any]], stages: list[Any], *options: str, **settings: Any) -> Path:
    """Run stages over rows in batches of 40; returns the run folder."""
    files = write_rows(folder / "data", rows)
    settings = {"id_column": "id", "source_column": "source", "batch_rows": 40, **settings}
    output = folder / "run"
    assert run(write_config(folder / "config.yaml", files, output, stages, **settings), *options) == 0
    return output


def count_words(row: Mapping[str, Any]) -> int:
    """Count the words of a text without a line break."""
    return len(row["text"].split())


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
    assert counts["leaders_dropped_later"] == sum("later_dropped_by" in detail for detail in later)


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
    rows = [
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
    ("texts", "kept", "clusters"),
    [([], 0, 0), (["one record"], 1, 0), (["all the same text"] * 150, 1, 1), (None, 150, 0)],
)
@pytest.mark.parametrize("budget", [0, 0.25])
def test_corpora_of_one_kind(texts: list[str] | None, kept: int, clusters: int, budget: float, tmp_path: Path) -> None:
    if texts is None:
        texts = [" ".join(words(random.Random(number), 30)) for number in range(150)]
    data = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), data)
    stages = [{"near_duplicates": {"duplication_budget": budget}}]
    assert run(write_config(tmp_path / "c.yaml", [str(data)], tmp_path / "run", stages)) == 0
    assert report(tmp_path / "run")["records"]["kept"] == kept + int(budget * kept) * clusters
    assert report(tmp_path / "run")["duplicates"]["near_duplicates"]["clusters"] == clusters
    assert main(["verify", str(tmp_path / "run")]) == 0


Result = tuple[list[str], list[str], list[tuple[str, str, float]]]


def result(folder: Path) -> Result:
    """What must be the same whatever the files, batches, workers and partitions: hashes, ids, reasons."""
    curated = table(folder, "curated")
    left = [(row["record_id"], row["related_id"], row["value"]) for row in table(folder, "ledger")]
    return sorted(row["content_hash"] for row in curated), sorted(row["record_id"] for row in curated), sorted(left)


STAGE: dict[str, Any] = {"near_duplicates": {"duplication_budget": 0.1, "threshold": 0.6, "shingle_tokens": 3}}


@pytest.fixture(scope="module")
def plain(mixed: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return execute(tmp_path_factory.mktemp("plain"), mixed, [STAGE])


def test_shuffled_rows_in_other_files_without_ids_and_with(
    mixed: list[dict[str, Any]], plain: Path, tmp_path: Path
) -> None:
    rows = list(mixed)
    random.Random(2).shuffle(rows)
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(5):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows[number::5]]
        (folder / f"{9 - number}-other.jsonl").write_text("".join(lines), encoding="utf-8")
    config = write_config(
        tmp_path / "c.yaml", [str(folder)], tmp_path / "run", [STAGE], id_column="id", source_column="source"
    )
    assert run(config, "--direct_num_workers=2") == 0
    assert result(tmp_path / "run") == result(plain)
    without = write_config(tmp_path / "d.yaml", [str(folder)], tmp_path / "without", [STAGE])
    assert run(without) == 0
    assert result(tmp_path / "without")[0] == result(plain)[0]


def test_five_processes_give_the_same_bytes(mixed: list[dict[str, Any]], plain: Path, tmp_path: Path) -> None:
    options = ("--direct_num_workers=5", "--direct_running_mode=multi_processing")
    out = execute(tmp_path, mixed, [STAGE], *options)
    assert (out / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_other_batches_and_partitions(
    mixed: list[dict[str, Any]], plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup.duplicates, "GROUP_BYTES", 5000)
    out = execute(tmp_path, mixed, [STAGE], batch_rows=7)
    assert result(out) == result(plain)
    # The same edges, though a pair that two batches are home to is compared twice.
    found, expected = (report(folder)["duplicates"]["near_duplicates"] for folder in (out, plain))
    assert found["pairs"].pop("at_threshold") == expected["pairs"].pop("at_threshold") > 50
    assert found.pop("pairs").keys() == expected.pop("pairs").keys()
    assert found == expected


def test_an_unfinished_run_goes_on_to_the_same_bytes(mixed: list[dict[str, Any]], plain: Path, tmp_path: Path) -> None:
    # Stopped after verification, with half of what was staged gone.
    out = execute(tmp_path, mixed, [STAGE])
    (out / "manifest.json").unlink()
    shutil.rmtree(out / "curated")
    shutil.rmtree(out / "staging/marks-2")
    staged = sorted((out / "staging/near-near_duplicates").rglob("*.arrow"))
    assert {path.parent.name for path in staged} == {"signatures", "shingles"}
    for path in staged[::2]:
        path.unlink()
    # What a crash in the middle of a write would leave.
    staged[1].with_name(f".tmp-0-{staged[1].name}").write_bytes(b"half")
    assert run(tmp_path / "config.yaml") == 0
    assert (out / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_hot_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup.proposals, "SLICE", 600)
    stream = words(random.Random(4), 700, 10**6)
    page = " ".join(words(random.Random(5), 60, 10**6))
    rows = [{"id": f"page {number}", "text": f"{page} {number}", "source": "page"} for number in range(1500)]
    rows += [{"id": f"same {number}", "text": page, "source": "same"} for number in range(700)]
    # Each is similar to ten on either side.
    rows += [
        {"id": f"drift {number}", "text": " ".join(stream[number : number + 100]), "source": "drift"}
        for number in range(400)
    ]
    random.Random(6).shuffle(rows)
    out = execute(tmp_path, rows, [{"near_duplicates": {"max_bucket": 50, "threshold": 0.8}}], batch_rows=500)
    kept = Counter(row["source"] for row in table(out, "curated"))
    # All pages are similar to each other and to their common part; of those at most one pair in a hundred stays.
    assert kept["page"] + kept["same"] == 1
    assert 400 / 21 <= kept["drift"] <= 400 / 5
    texts = {row["id"]: row["text"] for row in rows}
    stays = {row["record_id"] for row in table(out, "curated")}
    ledger = table(out, "ledger")
    assert len(ledger) == len(rows) - len(stays)
    for row in ledger:
        left, right = (
            Record(name, "", 0, texts[name], hexdigest(texts[name])) for name in (row["record_id"], row["related_id"])
        )
        assert row["related_id"] in stays
        assert row["value"] == float(jaccard(left, right, 5)) >= 0.8
    pairs = report(out)["duplicates"]["near_duplicates"]["pairs"]
    distinct = 1500 + 1 + 400
    assert pairs["not_compared"] > 10 * distinct
    assert pairs["verified"] <= 16 * 3 * distinct
    assert pairs["verified"] <= pairs["proposed"] <= 16 * (16 + 256) * distinct


CONFIG_FAULTS = [
    ({"threshold": 0}, ["near_duplicates.threshold", "above 0"]),
    ({"threshold": 1.01}, ["near_duplicates.threshold", "at most 1"]),
    ({"bands": 20, "rows": 6}, ["bands", "rows", "20 x 6", "permutations (112)"]),
    ({"bands": 20}, ["bands", "rows"]),
    ({"rows": 5}, ["bands", "rows"]),
    ({"bands": 0, "rows": 5}, ["bands"]),
    ({"threshold": 0.05, "permutations": 10}, ["catch_probability", "threshold", "permutations"]),
    ({"duplication_budget": -0.1}, ["duplication_budget", "0"]),
    ({"duplication_budget": {"by": "kind", "default": -1}}, ["duplication_budget", "default"]),
    ({"duplication_budget": {"by": "kind", "values": {"x": -1}}}, ["duplication_budget", "values"]),
    ({"duplication_budget": {"default": 1}}, ["duplication_budget", "by"]),
    ({"budget_unit": "tokens", "duplication_budget": 0.5}, ["budget_unit", "tokens", "tokenizer"]),
    ({"budget_unit": "words"}, ["budget_unit", "records"]),
    ({"max_copies": -1}, ["max_copies"]),
    ({"max_bucket": 1}, ["max_bucket"]),
    ({"priority": []}, ["priority"]),
    ({"priority": {"source": []}}, ["priority"]),
    ({"priority": {"sources": ["a"]}}, ["priority", "sources"]),
    ({"scope": "language"}, ["scope", "corpus", "source"]),
    ({"field": "prompt"}, ["field", "text"]),
    ({"priority": "no.signal"}, ["priority", "no.signal"]),
    ({"priority": "gopher_quality.words"}, ["priority", "gopher_quality.words"]),
    ({"priority": "language.label"}, ["priority", "language.label"]),
]


@pytest.mark.parametrize(("settings", "said"), CONFIG_FAULTS, ids=[str(fault[0]) for fault in CONFIG_FAULTS])
def test_config_faults_name_the_fields(
    settings: dict[str, Any], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"text": ["a text"]}), tmp_path / "a.parquet")
    stages = ["language", {"near_duplicates": settings}, "gopher_quality"]
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/a.parquet"], tmp_path / "run", stages)
    # What a priority refers to is looked up when the stages are built.
    signals = isinstance(settings.get("priority"), str)
    for command in ("run",) if signals else ("validate", "run"):
        assert main([command, str(config)]) == 2, command
        message = capsys.readouterr().err
        assert "near_duplicates" in message
        assert not [part for part in said if part not in message], message
        assert "Traceback" not in message
    assert not (tmp_path / "run").exists()


def run_faults(folder: Path, stages: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run stages over two records; returns the exit code and what was said."""
    pq.write_table(pa.table({"text": ["a text", "another"], "kind": ["x", None]}), folder / "a.parquet")
    code = run(write_config(folder / "c.yaml", [f"{folder}/a.parquet"], folder / "run", stages))
    return code, capsys.readouterr().err


def test_a_group_column_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [{"near_duplicates": {"duplication_budget": {"by": "kinds", "default": 0.5}}}]
    code, message = run_faults(tmp_path, stages, capsys)
    assert code == 1, message
    assert "near_duplicates.duplication_budget.by" in message
    assert "kinds" in message
    assert "kind" in message.replace("kinds", "")


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 5}'])
def test_a_tokenizer_that_is_none(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    stages = [{"near_duplicates": {"duplication_budget": 0.5, "budget_unit": "tokens", "tokenizer": str(path)}}]
    code, message = run_faults(tmp_path, stages, capsys)
    assert code == 2, message
    assert "tokenizer.json" in message
    assert "Traceback" not in message


Case = Callable[[str, list[Any]], Path]


@pytest.fixture
def case(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Run stages over a file of the hostile cases, in a copy of its folder."""

    def run_case(file: str, stages: list[Any]) -> Path:
        folder = tmp_path / file.split("/")[0]
        if not (shared / "cases" / folder.name).is_dir():
            pytest.skip(f"no such case: {folder.name}")
        if not folder.exists():
            shutil.copytree(shared / "cases" / folder.name, folder, copy_function=shutil.copyfile)
            if (folder / "make_input.py").exists():
                subprocess.run([sys.executable, "make_input.py"], cwd=folder, check=True, capture_output=True)
        monkeypatch.chdir(folder)
        output = folder / f"out-{len(list(folder.glob('out-*')))}"
        config = write_config(folder / "config.yaml", [file.split("/")[1]], output, stages, id_column="id")
        assert run(config) == 0
        assert main(["verify", str(output)]) == 0
        return output

    return run_case


def survivors(folder: Path, stage: str = "near_duplicates") -> dict[str, str]:
    """Return for each record that left by a stage the one that it is a duplicate of."""
    return {row["record_id"]: row["related_id"] for row in table(folder, "ledger") if row["stage"] == stage}


def test_d01_shorter_than_a_shingle(case: Case) -> None:
    out = case("d01-shorter-than-a-shingle/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    clusters = {frozenset({name, leader}) for name, leader in left.items()}
    assert len(left) == 4
    for group, count in (({"a1", "a3", "a4"}, 2), ({"a5", "a7"}, 1), ({"b1", "b3"}, 1)):
        assert sum(cluster <= group for cluster in clusters) == count
    assert {row["record_id"] for row in table(out, "ledger") if row["rule"] == "empty_text"} == {"c1", "c2", "c3"}
    assert report(out)["records"]["kept"] == 15


def test_d02_text_that_is_not_latin(case: Case) -> None:
    out = case("d02-non-latin-is-not-empty/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    assert len(left) == 4
    assert all({name, leader} == {name.removesuffix("_copy"), name.removesuffix("_copy") + "_copy"}
               for name, leader in left.items())  # fmt: skip
    assert {row["value"] for row in table(out, "ledger")} == {1.0}
    assert report(out)["records"]["kept"] == 9
    prefix = case("d02-non-latin-is-not-empty/prefix.jsonl", ["near_duplicates"])
    assert report(prefix)["records"]["kept"] == 2


def test_d04_pairs_at_the_threshold(case: Case) -> None:
    thresholds = {"at_81": 0.81, "at_80": 0.8, "at_78": 0.78}
    stages = [{"near_duplicates": {"name": name, "threshold": value}} for name, value in thresholds.items()]
    out = case("d04-pairs-at-the-threshold/input.jsonl", stages)
    values: dict[str, Counter[str]] = {name: Counter() for name in thresholds}
    for row in table(out, "ledger"):
        assert {row["record_id"], row["related_id"]} == {f"{row['record_id'][:-1]}{side}" for side in "ab"}
        values[row["stage"]][f"{row['record_id'][1]}: {row['value']:.6f}"] += 1
    assert values["at_81"].keys() == {"0: 0.935484", "1: 0.818182"}
    assert values["at_80"].keys() - {"1: 0.818182"} == {"2: 0.800000"}
    assert values["at_78"].keys() - {"1: 0.818182", "2: 0.800000"} == {"3: 0.782178"}
    assert values["at_81"]["0: 0.935484"] == 10
    for name, level in (("at_81", "1: 0.818182"), ("at_80", "2: 0.800000"), ("at_78", "3: 0.782178")):
        assert values[name][level] >= 9


def test_d05_chains(case: Case) -> None:
    out = case("d05-chain/input.jsonl", ["near_duplicates"])
    left = survivors(out)
    assert {name: leader for name, leader in left.items() if name[:2] != "g3"} == {
        "g1a": "g1b",
        "g1c": "g1b",
        "g2b": "g2a",
    }
    kept = {row["record_id"]: row for row in table(out, "curated")}
    third = {name for name in kept if name.startswith("g3")}
    assert "g3a" in third
    assert 5 <= len(third) <= 6
    values = json.loads(Path("values.json").read_text())
    similar = {frozenset({pair["a"], pair["b"]}) for pair in values if pair["jaccard"] >= 0.8}
    assert all(frozenset({name, leader}) in similar and leader in kept for name, leader in left.items())
    assert not any(pair <= kept.keys() for pair in similar)
    assert (kept["g1b"]["cluster_size"], kept["g2a"]["cluster_size"], kept["g2c"]["cluster_size"]) == (3, 2, 1)
    assert len({row["cluster_id"] for row in kept.values()}) == len(kept)


def test_d07_a_hot_cluster(case: Case) -> None:
    # Leaders and ten copies, then leaders only.
    stages = [{"near_duplicates": {"name": "twice", "duplication_budget": 1.0}}, "near_duplicates"]
    out = case("d07-hot-cluster/input.jsonl", stages)
    found = report(out)["duplicates"]["twice"]
    assert (found["leaders"], found["copies_kept"], found["limit"], found["clusters"]) == (10, 10, 10, 7)
    sizes = Counter(row["cluster_id"] for row in table(out, "clusters") if row["stage"] == "twice")
    assert sorted(sizes.values()) == [50, 51, 52, 101, 257, 2000, 10001]
    assert found["pairs"]["verified"] < 5_000_000
    kept = sorted(row["record_id"].rsplit("-", 1)[0] for row in table(out, "curated"))
    assert kept == ["hot", "s101", "s257", "s50", "s51", "s52", "same", "single", "single", "single"]
    assert "hot-lead" in {row["record_id"] for row in table(out, "curated")}
    assert report(out)["records"] == {"read": 12515, "kept": 10, "dropped": 12505, "dead": 0}


def test_d10_ids_of_the_user(case: Case) -> None:
    out = case("d10-ids-of-the-user/input.jsonl", [{"near_duplicates": {"threshold": 0.6}}])
    kept = {row["record_id"]: row for row in table(out, "curated")}
    assert kept.keys() - {"B#1", "B#2"} == {"doc/A 2", "Cü1", "0007"}
    left = {row["record_id"]: (row["related_id"], row["value"]) for row in table(out, "ledger")}
    assert left["doc/A 1"] == left["doc/A 3"] == ("doc/A 2", 27 / 28)
    assert {row["value"] for row in table(out, "ledger")} == {27 / 28, 11 / 16}
    members: dict[str, set[str]] = {}
    for row in table(out, "clusters"):
        members.setdefault(row["cluster_id"], set()).add(row["record_id"])
    assert sorted(map(sorted, members.values())) == [["B#1", "B#2"], ["doc/A 1", "doc/A 2", "doc/A 3"]]
    assert {kept[name]["cluster_size"] for name in ("doc/A 2", "Cü1", "0007")} == {3, 1}
    assert members[kept["doc/A 2"]["cluster_id"]] == {"doc/A 1", "doc/A 2", "doc/A 3"}
