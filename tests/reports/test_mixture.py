"""What the records are made of before and after, and the dataset card that says so."""

from __future__ import annotations

import inspect
import io
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard, DatasetCardData
from rich.console import Console

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.column_inference import column_types
from corpus.column_types import ColumnTypes
from corpus.columns import output_columns
from reports import mixture
from reports.counts import total_of
from reports.dataset_card import dataset_card, hub_licence, size_category
from reports.mixture import (
    largest_changes,
    licence_columns,
    licences,
    manifest_mixture,
    mixture_counts,
    mixture_report,
    print_mixture,
    shares_of,
    sizes_of,
)
from reports.text_sizes import CountedSizes, counted_sizes
from reports.verify import verify
from tests.pipelines.corpora import report, run, write_config

COUNTS = ("read", "kept", "characters_read", "characters_kept", "words_read", "words_kept")


def _rows(count: int) -> list[dict[str, Any]]:
    choose = random.Random(3)
    return [
        {
            "source": choose.choice(["web", "books", None]),
            "language": choose.choice(["en", "ko", None]),
            "licence": choose.choice(["MIT", "Apache-2.0", None]),
            "kept": choose.random() < 0.4,
            "before": choose.randrange(100, 200),
            "after": choose.randrange(50, 100),
        }
        for _ in range(count)
    ]


def _counts(rows: list[dict[str, Any]]) -> Any:
    def column(name: str) -> pa.Array:
        return pa.array([row[name] for row in rows], pa.string())

    kept, before, after = (np.array([row[name] for row in rows]) for name in ("kept", "before", "after"))
    sizes = {"characters": (before, after), "tokens": (before // 4, after // 4)}
    return mixture_counts({name: column(name) for name in ("source", "language", "licence")}, kept, sizes)


def test_counts_of_batches_add_up_to_the_shares_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(300)
    counts = total_of([_counts(rows[:120]), _counts(rows[120:])])
    assert counts == _counts(rows)
    report = mixture_report(counts)
    kept = [row for row in rows if row["kept"]]
    for group, entries in report.items():
        read, left = (Counter(row[group] for row in part) for part in (rows, kept))
        assert {entry["name"]: (entry["read"], entry["kept"]) for entry in entries} == {
            name: (read[name], left[name]) for name in read
        }
        for entry in entries:
            own = [row for row in rows if row[group] == entry["name"]]
            assert entry["characters_read"] == sum(row["before"] for row in own)
            assert entry["characters_kept"] == sum(row["after"] for row in own if row["kept"])
            assert entry["tokens_read"] == sum(row["before"] // 4 for row in own)
            assert entry["tokens_kept"] == sum(row["after"] // 4 for row in own if row["kept"])
            assert entry["share_read"] == pytest.approx(read[entry["name"]] / 300, abs=1e-6)
            assert entry["share_kept"] == pytest.approx(left[entry["name"]] / len(kept), abs=1e-6)
            characters = sum(row["before"] for row in rows), sum(row["after"] for row in kept)
            own_characters = sum(row["before"] for row in own), sum(row["after"] for row in own if row["kept"])
            assert shares_of(entry, ["characters"])[1] == pytest.approx(
                [part / whole for part, whole in zip(own_characters, characters, strict=True)], abs=1e-6
            )
            assert entry["tokens_share_read"] == pytest.approx(
                entry["tokens_read"] / sum(row["before"] // 4 for row in rows), abs=1e-6
            )
        changes = [abs(entry["share_kept"] - entry["share_read"]) for entry in entries]
        assert changes == sorted(changes, reverse=True)
        for name in ("", "characters_", "tokens_"):
            assert sum(entry[f"{name}share_read"] for entry in entries) == pytest.approx(1, abs=1e-5)
    both = manifest_mixture(counts, "read")
    assert both["sources"] == {name: number for name, number in Counter(row["source"] for row in rows).items() if name}
    assert both["none"]["licence"] == sum(row["licence"] is None for row in rows)
    of_kept = manifest_mixture(counts, "characters_kept")
    assert of_kept["languages"]["ko"] == sum(row["after"] for row in kept if row["language"] == "ko")
    assert of_kept["none"]["sources"] == sum(row["after"] for row in kept if row["source"] is None)
    assert sizes_of({"mixture": report}) == ("characters", "tokens")
    assert largest_changes({"mixture": report}, 1) == [(group, entries[0]) for group, entries in report.items()]
    monkeypatch.setattr(mixture, "MAX_NAMES", 2)
    limited = mixture_report(counts)["source"]
    assert limited[:2] == report["source"][:2]
    assert limited[2] == {**report["source"][2], "name": None, "names": 1}


def test_the_table_has_the_ten_largest_changes_of_each_group() -> None:
    rows = [
        {**row, "source": f"s{number:02}", "language": "en", "licence": "MIT" if row["kept"] else "x\x1b[31m"}
        for number, row in enumerate(_rows(30))
    ]
    console = Console(file=io.StringIO(), width=200)
    report: dict[str, Any] = {"records": {"kept": 12}, "mixture": mixture_report(_counts(rows))}
    print_mixture(report, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    shown = re.findall(r"\bs\d\d\b", printed)
    assert len(shown) == len(set(shown)) == 10
    first = report["mixture"]["source"][0]
    change = 100 * (first["characters_share_kept"] - first["characters_share_read"])
    assert f"{change:+.1f}" in printed
    # A group of one name has no mixture.
    assert "language" not in printed
    assert "licence" in printed
    assert "\x1b" not in printed
    print_mixture({**report, "records": {"kept": 0}}, console)
    print_mixture({"records": {"kept": 9}, "mixture": {}}, console)
    assert console.file.getvalue() == printed  # type: ignore[attr-defined]


def test_no_record_and_no_kept_record() -> None:
    assert mixture_report({}) == {}
    rows = [{**row, "kept": False} for row in _rows(20)]
    assert {entry["share_kept"] for entry in mixture_report(_counts(rows))["source"]} == {0.0}


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        (
            [{"user/licence": ["MIT", None]}, {JSON_COLUMN: ['{"licence": "Zlib"}', "{}"]}],
            [["MIT", None], ["Zlib", None]],
        ),
        ([{"user/license": ["MIT"], "user/licence": ["x"]}, {"source": ["a"]}], [["MIT"], [None]]),
        ([{"user/license": [1]}, {JSON_COLUMN: ['{"license": 1.5}']}], None),
        ([{"user/license": [["MIT"]]}], None),
        ([{JSON_COLUMN: ['{"a": "license"}']}], None),
        # What the curated files write as JSON text is counted as that.
        ([{"user/license": ["MIT"]}, {JSON_COLUMN: ['{"license": 3}', '{"license": null}']}], [['"MIT"'], ["3", None]]),
    ],
)
def test_licences_are_those_of_the_curated_files(
    batches: list[dict[str, list[Any]]], wanted: list[list[str | None]] | None
) -> None:
    records = [pa.record_batch(batch) for batch in batches]
    types = ColumnTypes()
    for key, batch in enumerate(records):
        types = types.merge(column_types(key, batch))
    found = [licences(batch, types) for batch in records]
    if wanted is None:
        assert found == [None] * len(records)
        assert licence_columns(types) == []
        return
    assert [column.to_pylist() for column in found] == wanted
    for batch, values in zip(records, found, strict=True):
        assert dict(output_columns(batch, types))[types.names[0]].equals(values)
        assert set(licence_columns(types)) & {JSON_COLUMN, f"{USER_PREFIX}{types.names[0]}"}


def test_the_mixture_of_a_run_is_that_of_its_files(tmp_path: Path) -> None:
    """Before and after, in records and characters, from Parquet and JSONL; the report agrees with the manifest."""
    licence = ["MIT", "Zlib", None]
    rows = [
        {"text": f"{number} " + "word " * (number % 7), "source": f"s{number % 2}", "license": licence[number % 3]}
        for number in range(90)
    ]
    pq.write_table(pa.Table.from_pylist(rows[:50]), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[50:]), encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.jsonl")]
    stages = [{"length": {"minimum_words": 4}}]
    assert run(write_config(tmp_path / "c.yaml", files, tmp_path / "run", stages, source_column="source")) == 0
    found = report(tmp_path / "run")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text(encoding="utf-8"))
    kept = [row for row in rows if len(row["text"].split()) >= 4]
    for group, plural, column in (("source", "sources", "source"), ("licence", "licence", "license")):
        entries = {entry["name"]: entry for entry in found["mixture"][group]}
        for name, part in (("mixture_read", rows), ("mixture", kept)):
            counts = Counter(row[column] for row in part)
            characters = {key: sum(len(row["text"]) for row in part if row[column] == key) for key in counts}
            told = {**manifest[name][plural]}
            of_characters = {**manifest[name.replace("mixture", "mixture_characters")][plural]}
            if None in counts:
                told[None] = manifest[name]["none"][plural]
                of_characters[None] = manifest[name.replace("mixture", "mixture_characters")]["none"][plural]
            assert told == counts
            assert of_characters == characters
            side = "read" if name == "mixture_read" else "kept"
            assert {key: entries[key][side] for key in counts} == counts
            assert {key: entries[key][f"characters_{side}"] for key in counts} == characters
            words = {key: sum(len(row["text"].split()) for row in part if row[column] == key) for key in counts}
            assert {key: entries[key][f"words_{side}"] for key in counts} == words
    stage = found["stages"][-1]
    words_read, words_kept = (sum(len(row["text"].split()) for row in part) for part in (rows, kept))
    assert counted_sizes(found) == CountedSizes("words", "length", words_read, words_kept, ())
    assert (stage["words_in"], stage["words_out"]) == (words_read, words_kept)
    assert verify(str(tmp_path / "run")) == []


def _entry(name: str | None, read: int, kept: int) -> dict[str, Any]:
    shares = {f"{size}share_{side}": read / 1000 for size in ("", "characters_", "words_") for side in ("read", "kept")}
    return {"name": name, **dict(zip(COUNTS, (read, kept) * 3, strict=True)), **shares}


def test_the_card_names_languages_licences_and_size() -> None:
    words = {"edited": 0, "words_in": 1500, "words_out": 1234}
    report: dict[str, Any] = {
        "records": {"read": 5000, "kept": 4000, "dropped": 900, "dead": 100},
        "stages": [
            {"name": "input", "rules": {"a|b`c\n": {"first": 3}}, "characters_out": 9000},
            {"name": "length", "rules": {}, "characters_out": 8000, **words},
        ],
        "mixture": {
            "language": [_entry("no", 10, 5), _entry("en", 90, 80), _entry("ko", 5, 0), _entry("cmn_Hans", 1, 1)],
            "licence": [_entry("GPL-3.0-only", 1, 1), _entry("MIT", 5, 5), _entry("Own|Licence", 9, 9)],
        },
    }
    card = DatasetCard(dataset_card(report, "ab" * 32))
    data = card.data.to_dict()
    # Two fields that the hub documents and the class takes as further ones.
    assert data.keys() - {"configs", "tags"} <= inspect.signature(DatasetCardData).parameters.keys()
    assert data["language"] == ["en", "no", "cmn"]
    assert data["license"] == ["other", "mit", "gpl-3.0"]
    assert data["size_categories"] == ["1K<n<10K"]
    assert data["task_categories"] == ["text-generation"]
    assert "They have 8,000 characters, 1,234 words as counted by `length`." in card.text
    assert (
        "| group | name | records read | records kept | characters read | characters kept | words read |" in card.text
    )
    assert "| language | `no` | 1.0 % | 1.0 % |" in card.text
    # Words of texts that changed since are not those of the records kept.
    report["stages"].append({"name": "pii", "rules": {}, "characters_out": 7000, **words, "edited": 2})
    assert "They have 7,000 characters.\n" in dataset_card(report, "ab" * 32)
    assert counted_sizes(report) == CountedSizes("words", "length", 1500, 1234, ("pii",))
    assert "| input | `a\u2223b'c\ufffd` | 3 |" in card.text


def test_categories_of_the_hub() -> None:
    assert [size_category(number) for number in (0, 999, 1000, 9_999_999, 10**12)] == [
        "n<1K",
        "n<1K",
        "1K<n<10K",
        "1M<n<10M",
        "n>1T",
    ]
    assert [hub_licence(name) for name in ("MIT", "Apache-2.0", "GPL-2.0-or-later", "Sleepycat")] == [
        "mit",
        "apache-2.0",
        "gpl-2.0",
        "other",
    ]
