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
from corpus.readers.faults import RAW_BYTES
from corpus.stages import Rule
from corpus.verdicts import SIGNAL_TYPES, thresholds
from reports.counts import Counts
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

EVIDENCE_SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("stage", pa.string()),
        ("rule", pa.string()),
        ("action", pa.string()),
        ("field", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("value", pa.float64()),
        ("related", pa.string()),
        ("detail", pa.string()),
    ]
)

CLUSTERS_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("cluster_id", pa.string()),
        ("record_id", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("role", pa.string()),
        ("jaccard", pa.float64()),
    ]
)

STAGE_ERROR = "stage_error"

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
    info: StageInfo, rule: Rule, records: pa.RecordBatch, fates: Fates, rows: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Return the measured values (float64) and details (strings) of chosen records under a rule."""
    length = len(rows)
    nothing = pa.nulls(length, pa.string())
    if info.stage is None:
        if rule.name == "empty_text":
            return pa.array(np.zeros(length)), nothing
        return records.column("bytes").take(rows).cast(pa.float64()), nothing
    values = fates.signal(info, rule.signal).take(rows)
    if not pa.types.is_string(values.type):
        return values.cast(pa.float64()), nothing
    encoded = values.dictionary_encode()
    details = pa.array([_json({rule.signal: value}) for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.nulls(length, pa.float64()), details.take(encoded.indices)


def ledger_table(
    file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo], leaders: Leaders
) -> pa.Table:
    """Return one row per record that left, in the order of the records."""
    parts: list[pa.Table] = []
    order: list[Any] = []
    for index, info in enumerate(infos):
        left = (fates.left_at == index) & ~fates.dead
        if not left.any():
            continue
        rules = first_rules(fates, index)
        languages = fates.languages(info)
        for number, rule in enumerate(info.rules):
            places = np.flatnonzero(left & (rules == number))
            if not len(places):
                continue
            rows = pa.array(places)
            values, detail = _rule_values(info, rule, records, fates, rows)
            threshold = thresholds(rule, languages)
            if rule.limited_by is not None:
                threshold = fates.signal(info, rule.limited_by)
            limits = pa.repeat(threshold, len(rows)) if isinstance(threshold, pa.Scalar) else threshold.take(rows)
            related_ids: Any = pa.nulls(len(rows), pa.string())
            related = fates.related(info)
            if related is not None:
                related_ids = related[1].take(rows)
                detail = _related_details(related[0].take(rows), related[2].take(rows), leaders)
            taken = records.take(rows)
            parts.append(
                pa.Table.from_arrays(
                    [
                        taken.column("record_id"),
                        hex_hashes(taken.column("content_hash")),
                        taken.column("source"),
                        pa.repeat(file, len(rows)),
                        taken.column("position"),
                        pa.repeat(info.name, len(rows)),
                        fates.rule_names(info, rule).take(rows),
                        values,
                        limits,
                        related_ids,
                        detail,
                    ],
                    schema=LEDGER_SCHEMA,
                )
            )
            order.append(places)
    if not parts:
        return LEDGER_SCHEMA.empty_table()
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def _related_details(row_ids: pa.Array, positions: pa.Array, leaders: Leaders) -> pa.StringArray:
    details: list[str] = []
    for (file, dropped_by), position in zip(leaders(row_ids.to_pylist()), positions.to_pylist(), strict=True):
        detail = {"file": file, "position": position}
        details.append(_json(detail | {LATER: dropped_by} if dropped_by else detail))
    return pa.array(details, pa.string())


def copies_of_leaders_dropped_later(ledger: pa.Table) -> Counts:
    """Return, as counts of the stages, the rows of a ledger whose related record a later stage dropped."""
    later = pc.and_(pc.is_valid(ledger["related_id"]), pc.match_substring(ledger["detail"], f'"{LATER}"'))
    stages = ledger["stage"].filter(pc.fill_null(later, False)).value_counts().to_pylist()
    name = "copies_of_leaders_dropped_later"
    return {"stages": {entry["values"]: {"duplicates": {name: entry["counts"]}} for entry in stages}}


def dead_table(dead: pa.RecordBatch) -> pa.Table:
    """Return the dead letters as a table."""
    return pa.Table.from_batches([dead.cast(DEAD_SCHEMA)])


def unjudged_table(
    file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo], texts: Sequence[pa.Array]
) -> pa.Table:
    """Return a dead letter for each record that a stage could not judge.

    Args:
        texts: the text fields of the records, with all edits made.
    """
    rows = np.flatnonzero(fates.dead)
    details = []
    for row in rows.tolist():
        info = infos[int(fates.left_at[row])]
        errors = fates.error(info)
        details.append(f"{info.name}: {errors[row].as_py() if errors is not None else 'unknown'}")
    raw = [b"\n\n".join(text[row].as_py().encode() for text in texts)[:RAW_BYTES] for row in rows.tolist()]
    taken = records.take(pa.array(rows))
    columns = [
        taken.column("source"),
        pa.repeat(file, len(rows)),
        taken.column("position"),
        pa.repeat(STAGE_ERROR, len(rows)),
        pa.array(details, pa.string()),
        pa.array(raw, pa.binary()),
    ]
    return pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)


def evidence_table(
    file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo], findings: pa.RecordBatch
) -> pa.Table:
    """Return what stages found in the texts of the records that entered them, in the order of stage, field, record."""
    if not findings.num_rows:
        return EVIDENCE_SCHEMA.empty_table()
    rows = findings.column("row").to_numpy()
    entered = np.zeros(len(rows), np.bool_)
    for index, info in enumerate(infos):
        of_stage = pc.equal(findings.column("stage"), info.name).to_numpy(zero_copy_only=False)
        entered |= of_stage & fates.entered(index)[rows]
    found = findings.filter(pa.array(entered))
    taken = records.take(found.column("row"))
    columns = {
        "record_id": taken.column("record_id"),
        "file": pa.repeat(file, found.num_rows),
        "position": taken.column("position"),
        "start": found.column("start").cast(pa.int64()),
        "end": found.column("end").cast(pa.int64()),
    }
    return pa.Table.from_arrays(
        [columns[name] if name in columns else found.column(name) for name in EVIDENCE_SCHEMA.names],
        schema=EVIDENCE_SCHEMA,
    )


def clusters_table(file: str, records: pa.RecordBatch, fates: Fates, infos: Sequence[StageInfo]) -> pa.Table:
    """Return the members of clusters of two and more, per duplicate stage, with their similarity with the leader."""
    parts = []
    for index, info in enumerate(infos):
        if info.stage is None or "cluster_id" not in info.stage.curated_columns():
            continue
        sizes = fates.signal(info, "cluster_size").fill_null(0).to_numpy(zero_copy_only=False)
        rows = pa.array(np.flatnonzero(fates.entered(index) & (sizes > 1)))
        taken = records.take(rows)
        leads = pc.equal(fates.signal(info, "copy_index").take(rows), 0)
        dropped = pa.array(fates.left_at == index).take(rows)
        columns = [
            pa.repeat(info.name, len(rows)),
            fates.signal(info, "cluster_id").take(rows),
            taken.column("record_id"),
            pa.repeat(file, len(rows)),
            taken.column("position"),
            pc.if_else(leads, "leader", pc.if_else(dropped, "dropped", "copy")),
            fates.signal(info, "jaccard").take(rows),
        ]
        parts.append(pa.Table.from_arrays(columns, schema=CLUSTERS_SCHEMA))
    return pa.concat_tables(parts) if parts else CLUSTERS_SCHEMA.empty_table()
