"""Apply rules to signals, and keep what stages found on a batch as columns of its marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import INPUT_RULES
from corpus.stages import CorpusStage, CorpusVerdict, RecordStage, Rule, Stage, TextBatch, TextField

Mask = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.int64]

ALIVE = "alive"


def signal_column(stage: str, signal: str) -> str:
    """Return the name of a signal in marks and in the signals table."""
    return f"{stage}.{signal}"


def failures_column(stage: str) -> str:
    """Return the name of the column of a stage's failures; the slash keeps it apart from signals."""
    return f"failures/{stage}"


def related_columns(stage: str) -> tuple[str, str, str]:
    """Return the names of the columns of a corpus stage's related record: row id, record_id, position."""
    return f"related/{stage}", f"related_id/{stage}", f"related_position/{stage}"


def rule_fails(rule: Rule, values: pa.Array) -> Mask:
    """Return which values do not meet a rule; a null value meets every rule but ``is_set``."""
    if rule.test == "is_set":
        failed = pc.is_null(values)
    elif rule.test == "one_of":
        failed = pc.invert(pc.is_in(values, value_set=pa.array(rule.values, pa.string())))
        failed = pc.and_(failed, pc.is_valid(values))
    else:
        compare = pc.less if rule.test == "at_least" else pc.greater
        failed = pc.fill_null(compare(values, pa.scalar(rule.threshold, pa.float64())), False)
    return np.asarray(failed.to_numpy(zero_copy_only=False), np.bool_)


def failures(rules: Sequence[Rule], signals: Mapping[str, pa.Array]) -> Bits:
    """Return for each row the rules that it does not meet, as a bit mask: bit i is ``rules[i]``."""
    length = len(next(iter(signals.values()))) if signals else 0
    bits = np.zeros(length, np.int64)
    for index, rule in enumerate(rules):
        bits |= rule_fails(rule, signals[rule.signal]).astype(np.int64) << index
    return bits


def first_rule(bits: Bits) -> Bits:
    """Return the number of the lowest bit that is set, -1 where none is."""
    lowest = bits & -bits
    return np.where(bits == 0, -1, np.log2(np.maximum(lowest, 1)).astype(np.int64))


def entering_texts(records: pa.RecordBatch, field: TextField) -> pa.StringArray:
    """Return the texts that a stage looks at; ``both`` is prompt, a blank line, response."""
    if field == "both":
        if "text" in records.schema.names:
            return records.column("text")
        return pc.binary_join_element_wise(records.column("prompt"), records.column("response"), "\n\n")
    return records.column(field)


def column_mask(batch: pa.RecordBatch, name: str) -> Mask:
    """Return a bool column as a NumPy array."""
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.bool_)


def with_columns(marks: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return marks with more columns behind."""
    return pa.RecordBatch.from_arrays([*marks.columns, *columns.values()], names=[*marks.schema.names, *columns.keys()])


def mark_record_stage(stage: RecordStage, records: pa.RecordBatch, marks: pa.RecordBatch) -> pa.RecordBatch:
    """Return marks with the signals and failures of a record stage, on the rows alive when the pass began."""
    alive = column_mask(marks, ALIVE)
    signals = stage.measure(TextBatch(entering_texts(records, stage.text_field), alive, records))
    dead = pa.array(~alive)
    columns = {}
    for signal in stage.signals():
        values = signals[signal.name]
        if not alive.all():
            values = pc.if_else(dead, pa.scalar(None, values.type), values)
        columns[signal_column(stage.name, signal.name)] = values
    bits = failures(stage.rules(), signals)
    columns[failures_column(stage.name)] = pa.array(np.where(alive, bits if len(bits) else 0, 0), pa.int64())
    return with_columns(marks, columns)


def mark_corpus_stage(stage: CorpusStage, verdict: CorpusVerdict, marks: pa.RecordBatch) -> pa.RecordBatch:
    """Return marks with what a corpus stage found."""
    columns = {signal_column(stage.name, name): values for name, values in verdict.signals.items()}
    columns[failures_column(stage.name)] = pa.array(verdict.failures, pa.int64())
    related = (verdict.related, verdict.related_id, verdict.related_position)
    columns.update(zip(related_columns(stage.name), related, strict=True))
    return with_columns(marks, columns)


def alive_after(marks: pa.RecordBatch, stages: Sequence[Stage]) -> Mask:
    """Return which rows are alive after these stages of the marks' pass."""
    alive = column_mask(marks, ALIVE)
    for stage in stages:
        alive = alive & (marks.column(failures_column(stage.name)).to_numpy() == 0)
    return alive


def input_rules(max_record_bytes: int) -> tuple[Rule, ...]:
    """Return the rules of the stage ``input``, in the order of ``INPUT_RULES``."""
    thresholds = (1.0, float(max_record_bytes))
    tests = ("at_least", "at_most")
    signals = ("characters", "bytes")
    return tuple(
        Rule(name, signal, test, threshold)  # type: ignore[arg-type]
        for name, signal, test, threshold in zip(INPUT_RULES, signals, tests, thresholds, strict=True)
    )
