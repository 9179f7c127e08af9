"""The tables that account for every record of a batch: ledger, signals, dead letters, and the counts of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import DEAD_SCHEMA
from corpus.hashing import hex_hashes
from corpus.stages import CorpusStage, Rule
from reports.counts import Counts, balance
from reports.fates import Fates, StageInfo, first_rules

LEDGER_SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("content_hash", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("stage", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("related_id", pa.string()),
        ("detail", pa.string()),
    ]
)

SIGNAL_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}

LATER = "later_dropped_by"

# Row id of a leader -> (its file, the stage that dropped it later or None).
Leaders = Callable[[Sequence[int]], list[tuple[str, str | None]]]

RECORD_COLUMNS = (
    "record_id",
    "source",
    "position",
    "content_hash",
    "characters",
    "bytes",
    "input_failures",
    "row_digest",
    "generated_id",
)


def signals_schema(infos: Sequence[StageInfo]) -> pa.Schema:
    """Return the schema of the signals table."""
    fields = [
        ("record_id", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("kept", pa.bool_()),
        ("input.characters", pa.int64()),
        ("input.bytes", pa.int64()),
    ]
    for info in infos[1:]:
        assert info.stage is not None
        fields.extend((f"{info.name}.{signal.name}", SIGNAL_TYPES[signal.kind]) for signal in info.stage.signals())
    return pa.schema(fields)


def signals_table(file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo]) -> pa.Table:
    """Return one row per decoded record with every measured value."""
    schema = signals_schema(infos)
    columns = [
        records.column("record_id"),
        records.column("source"),
        pa.repeat(file, records.num_rows),
        records.column("position"),
        pa.array(fates.kept),
        records.column("characters"),
        records.column("bytes"),
    ]
    columns.extend(fates.columns[name] for name in schema.names[len(columns) :])
    return pa.Table.from_arrays(
        [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _rule_values(
    info: StageInfo, rule: Rule, records: pa.RecordBatch, fates: Fates
) -> tuple[pa.Array, list[str | None]]:
    """Return the measured values (float64) and details of all records under a rule."""
    length = records.num_rows
    if info.stage is None:
        if rule.name == "empty_text":
            return pa.array(np.zeros(length)), [None] * length
        return records.column("bytes").cast(pa.float64()), [None] * length
    values = fates.signal(info, rule.signal)
    if not pa.types.is_string(values.type):
        return values.cast(pa.float64()), [None] * length
    details = [None if value is None else _json({rule.signal: value}) for value in values.to_pylist()]
    return pa.nulls(length, pa.float64()), details


def ledger_table(
    file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo], leaders: Leaders
) -> pa.Table:
    """Return one row per record that left, in the order of the records."""
    parts: list[pa.Table] = []
    order: list[Any] = []
    for index, info in enumerate(infos):
        left = fates.left_at == index
        if not left.any():
            continue
        rules = first_rules(fates, index)
        for number, rule in enumerate(info.rules):
            rows = np.flatnonzero(left & (rules == number))
            if not len(rows):
                continue
            values, details = _rule_values(info, rule, records, fates)
            threshold = rule.threshold
            related_ids: Any = pa.nulls(len(rows), pa.string())
            related = fates.related(info)
            value = values.take(rows)
            detail = [details[row] for row in rows.tolist()]
            if related is not None:
                # The measured value of a duplicate is its similarity with the record that stays.
                value, threshold = pa.array(np.ones(len(rows))), 1.0
                related_ids = related[1].take(rows)
                detail = _related_details(related[0].take(rows), related[2].take(rows), leaders)
            taken = records.take(pa.array(rows))
            parts.append(
                pa.Table.from_arrays(
                    [
                        taken.column("record_id"),
                        hex_hashes(taken.column("content_hash")),
                        taken.column("source"),
                        pa.repeat(file, len(rows)),
                        taken.column("position"),
                        pa.repeat(info.name, len(rows)),
                        pa.repeat(rule.name, len(rows)),
                        value,
                        pa.array([threshold] * len(rows), pa.float64()),
                        related_ids,
                        pa.array(detail, pa.string()),
                    ],
                    schema=LEDGER_SCHEMA,
                )
            )
            order.append(rows)
    if not parts:
        return LEDGER_SCHEMA.empty_table()
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def _related_details(row_ids: pa.Array, positions: pa.Array, leaders: Leaders) -> list[str | None]:
    details: list[str | None] = []
    for (file, dropped_by), position in zip(leaders(row_ids.to_pylist()), positions.to_pylist(), strict=True):
        detail = {"file": file, "position": position}
        details.append(_json(detail | {LATER: dropped_by} if dropped_by else detail))
    return details


def leaders_dropped_later(ledger: pa.Table) -> Counts:
    """Return, as counts of the stages, the rows of a ledger whose related record a later stage dropped."""
    later = pc.and_(pc.is_valid(ledger["related_id"]), pc.match_substring(ledger["detail"], f'"{LATER}"'))
    stages = ledger["stage"].filter(pc.fill_null(later, False)).value_counts().to_pylist()
    return {"stages": {entry["values"]: {"duplicates": {"leaders_dropped_later": entry["counts"]}} for entry in stages}}


def dead_table(dead: pa.RecordBatch) -> pa.Table:
    """Return the dead letters as a table."""
    return pa.Table.from_batches([dead.cast(DEAD_SCHEMA)])


def _grouped(keys: pa.Array, masks: dict[str, Any]) -> dict[str | None, dict[str, int]]:
    """Return for each key the sums of the masks."""
    table = pa.table({"key": keys, **{name: pa.array(mask.astype(np.int64)) for name, mask in masks.items()}})
    sums = table.group_by("key", use_threads=False).aggregate([(name, "sum") for name in masks])
    rows = sums.to_pylist()
    return {row["key"]: {name: row[f"{name}_sum"] for name in masks} for row in rows}


def _named(prefix: str, groups: dict[str | None, dict[str, int]]) -> Counts:
    null = groups.pop(None, None)
    counts: Counts = {f"by_{prefix}": groups}
    if null is not None:
        counts[f"no_{prefix}"] = null
    return counts


def chunk_counts(
    file: str,
    records: pa.RecordBatch,
    dead: pa.RecordBatch,
    fates: Fates,
    infos: Sequence[StageInfo],
    language: str | None,
) -> Counts:
    """Return what the report and the manifest sum up over batches.

    Args:
        language: the name of the language stage whose labels the report groups by.
    """
    length = records.num_rows
    kept = fates.kept
    faults = dead.column("position").is_null().to_numpy(zero_copy_only=False).astype(bool)
    dead_rows = int((~faults).sum())
    counts: Counts = {
        "records": balance(length + dead_rows, int(kept.sum()), length - int(kept.sum()), dead_rows),
        "bytes": int(records.column("bytes").to_numpy().sum()),
        "generated_ids": records.column("generated_id").true_count,
        "file_faults": {file: 1} if faults.any() else {},
        "files": {
            file: {
                "rows": length + dead_rows,
                "digest": int(records.column("row_digest").to_numpy().sum(dtype=np.int64)),
            }
        },
        "dead_letters": {},
        "stages": {},
        "by_source": {},
        "by_language": {},
    }
    for error in dead.column("error").to_pylist():
        counts["dead_letters"][error] = counts["dead_letters"].get(error, 0) + 1
    all_rows = np.ones(length, np.bool_)
    masks = {"read": all_rows, "kept": kept, "dropped": ~kept, "dead": ~all_rows}
    sources = _grouped(records.column("source"), masks)
    for source in dead.column("source").filter(pa.array(~faults)).to_pylist():
        entry = sources.setdefault(source, balance())
        entry["read"] += 1
        entry["dead"] += 1
    counts |= _named("source", sources)
    labels = fates.columns[f"{language}.label"] if language else pa.nulls(length, pa.string())
    languages = _grouped(labels, masks)
    if dead_rows:
        entry = languages.setdefault(None, balance())
        entry["read"] += dead_rows
        entry["dead"] += dead_rows
    counts |= _named("language", languages)
    characters = records.column("characters").to_numpy()
    for index, info in enumerate(infos):
        counts["stages"][info.name] = _stage_counts(index, info, fates, characters)
    return counts


def _stage_counts(index: int, info: StageInfo, fates: Fates, characters: Any) -> Counts:
    entered = fates.entered(index)
    left = fates.left_at == index
    first = first_rules(fates, index)
    bits = np.where(entered, fates.failures[index], 0)
    rules = {
        rule.name: {
            "first": int((left & (first == number)).sum()),
            "alone": int((bits == 1 << number).sum()),
        }
        for number, rule in enumerate(info.rules)
    }
    counts: Counts = {
        "entered": int(entered.sum()),
        "dropped": int(left.sum()),
        "edited": 0,
        "characters_in": int(characters[entered].sum()),
        "characters_out": int(characters[entered & ~left].sum()),
        "rules": rules,
    }
    if isinstance(info.stage, CorpusStage):
        marks = {
            signal.name: fates.signal(info, signal.name).filter(pa.array(entered)) for signal in info.stage.signals()
        }
        counts["duplicates"] = info.stage.summary_counts(marks, left[entered])
    return counts
