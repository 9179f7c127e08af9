"""Corpora with duplicates, runs over them, and a comparison of all their tables with the reference."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipelines.cli import main
from tests.dedup.reference import Fate, Record
from tests.pipelines.corpora import report, run, table, write_config

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
    units = sum(record.units for record, fate in zip(records, fates, strict=True) if not fate.copy_index)
    copy_units = sum(
        record.units for record, fate in zip(records, fates, strict=True) if fate.copy_index and fate.rule is None
    )
    assert (summary["leader_units"], summary["copy_units_kept"]) == (units, copy_units)
    assert summary["achieved"] == (copy_units / units if units else 0)
    left = [(record, fate) for record, fate in zip(records, fates, strict=True) if signals[record.record_id]["kept"]]
    units = sum(record.units for record, fate in left if not fate.copy_index)
    copy_units = sum(record.units for record, fate in left if fate.copy_index)
    output = {
        "leaders": sum(not fate.copy_index for _, fate in left),
        "copies_kept": sum(fate.copy_index > 0 for _, fate in left),
        "leader_units": units,
        "copy_units_kept": copy_units,
        "achieved": copy_units / units if units else None if copy_units else 0,
    }
    assert summary["in_output"] == output
    gone = {
        place
        for place, (record, fate) in enumerate(zip(records, fates, strict=True))
        if fate.size > 1 and not fate.copy_index and not signals[record.record_id]["kept"]
    }
    assert summary["leaders_dropped_later"] == len(gone)
    assert summary["copies_of_leaders_dropped_later"] == sum(
        fate.rule is not None and fate.leader in gone for fate in fates
    )
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


@cache
def mixed_rows() -> list[dict[str, Any]]:
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
