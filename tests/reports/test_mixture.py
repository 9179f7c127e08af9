"""What the records are made of before and after, and the dataset card that says so."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from huggingface_hub import DatasetCard

from corpus.batch import JSON_COLUMN, USER_PREFIX
from reports import mixture
from reports.counts import total_of
from reports.dataset_card import dataset_card, hub_licence, size_category
from reports.mixture import largest_changes, licences, mixture_counts, mixture_read, mixture_report

COUNTS = ("read", "kept", "characters_read", "characters_kept")


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

    records = pa.record_batch({"source": column("source"), f"{USER_PREFIX}license": column("licence")})
    kept, before, after = (np.array([row[name] for row in rows]) for name in ("kept", "before", "after"))
    sizes = {"characters": (before, after), "tokens": (before // 4, after // 4)}
    return mixture_counts(records, column("language"), kept, sizes)


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
        changes = [abs(entry["share_kept"] - entry["share_read"]) for entry in entries]
        assert changes == sorted(changes, reverse=True)
    both = mixture_read(counts)
    assert both["sources"] == {name: number for name, number in Counter(row["source"] for row in rows).items() if name}
    assert both["none"]["licence"] == sum(row["licence"] is None for row in rows)
    listed = list(largest_changes({"mixture": report}))
    assert [entry for _, entry in listed[:1]] == [max((names[0] for names in report.values()), key=_change)]
    monkeypatch.setattr(mixture, "MAX_NAMES", 2)
    limited = mixture_report(counts)["source"]
    assert limited[:2] == report["source"][:2]
    assert limited[2] == {**report["source"][2], "name": None, "names": 1}


def _change(entry: dict[str, Any]) -> float:
    return abs(float(entry["share_kept"] - entry["share_read"]))


def test_no_record_and_no_kept_record() -> None:
    assert mixture_report({}) == {}
    rows = [{**row, "kept": False} for row in _rows(20)]
    assert {entry["share_kept"] for entry in mixture_report(_counts(rows))["source"]} == {0.0}


def test_licences_of_columns_of_every_kind() -> None:
    def of(values: pa.Array, name: str = f"{USER_PREFIX}licence") -> Any:
        found = licences(pa.record_batch({name: values}))
        return None if found is None else found.to_pylist()

    assert of(pa.array(["MIT", None])) == ["MIT", None]
    assert of(pa.array([1, 2])) == [None, None]
    assert of(pa.array([["MIT"], ["a", "b"]])) == [None, None]
    assert of(pa.array(["x"]), "source") is None
    lines = [orjson.dumps({"license": value}).decode() for value in ("MIT", 3, None)]
    assert of(pa.array([*lines, '{"a": 1}']), JSON_COLUMN) == ["MIT", None, None, None]
    assert of(pa.array(['{"a": "licensed"}']), JSON_COLUMN) is None


def _entry(name: str | None, read: int, kept: int) -> dict[str, Any]:
    return {"name": name, **dict(zip(COUNTS, (read, kept, read, kept), strict=True)), "share_read": 0, "share_kept": 0}


def test_the_card_names_languages_licences_and_size() -> None:
    report = {
        "records": {"read": 5000, "kept": 4000, "dropped": 900, "dead": 100},
        "stages": [{"name": "input", "rules": {"a|b`c\n": {"first": 3}}}],
        "mixture": {
            "language": [_entry("no", 10, 5), _entry("en", 90, 80), _entry("ko", 5, 0), _entry(None, 1, 1)],
            "licence": [_entry("GPL-3.0-only", 1, 1), _entry("MIT", 5, 5), _entry("Own|Licence", 9, 9)],
        },
    }
    card = DatasetCard(dataset_card(report, "ab" * 32))
    data = card.data.to_dict()
    assert data["language"] == ["en", "no"]
    assert data["license"] == ["other", "mit", "gpl-3.0"]
    assert data["size_categories"] == ["1K<n<10K"]
    assert data["task_categories"] == ["text-generation"]
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
