"""Apply rules to signals, and keep what stages found on a batch as columns of its marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.batch import INPUT_RULES, DocumentBatch
from corpus.edited import AFTER, after_column, text_fields, with_texts
from corpus.edited_chats import with_edited_messages
from corpus.findings import apply_edits, concat_findings, edits_of, in_stage, sums_by_row
from corpus.readers.records import WHITE_SPACE
from corpus.stages import (
    CorpusStage,
    CorpusVerdict,
    EditingStage,
    Judgement,
    RecordStage,
    Rule,
    Stage,
    TextBatch,
    TextField,
)

Mask = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.int64]

SIGNAL_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
"""Arrow types of the kinds of signals that tables hold."""

ALIVE = "alive"
UNJUDGED = 1 << 62
"""Bit of the failures of a record that a stage could not judge: it becomes a dead letter."""


def signal_column(stage: str, signal: str) -> str:
    """Return the name of a signal in marks and in the signals table."""
    return f"{stage}.{signal}"


def failures_column(stage: str) -> str:
    """Return the name of the column of a stage's failures; the slash keeps it apart from signals."""
    return f"failures/{stage}"


def error_column(stage: str) -> str:
    """Return the name of the column that says why a stage could not judge a record."""
    return f"error/{stage}"


def reused_column(stage: str) -> str:
    """Return the name of the column that says for which records a stage took what an earlier run had found."""
    return f"reused/{stage}"


def related_columns(stage: str) -> tuple[str, str, str]:
    """Return the names of the columns of a corpus stage's related record: row id, record_id, position."""
    return f"related/{stage}", f"related_id/{stage}", f"related_position/{stage}"


def thresholds(rule: Rule, languages: pa.Array | None) -> pa.Array | pa.Scalar:
    """Return the threshold of a rule for each record, float64; null where it is off.

    Args:
        languages: labels of the records; None stands for records without a label.
    """
    default = pa.scalar(rule.threshold, pa.float64())
    if not rule.by_language or languages is None:
        return default
    labels = sorted(rule.by_language)
    table = pa.array([*(rule.by_language[label] for label in labels), rule.threshold], pa.float64())
    return table.take(pc.fill_null(pc.index_in(languages, pa.array(labels, pa.string())), len(labels)))


def rule_fails(rule: Rule, values: pa.Array, languages: pa.Array | None = None) -> Mask:
    """Return which values do not meet a rule; a null value meets every rule but ``is_set``."""
    if rule.test == "is_set":
        failed = pc.is_null(values)
    elif rule.test == "one_of":
        failed = pc.invert(pc.is_in(values, value_set=pa.array(rule.values, pa.string())))
        failed = pc.and_(failed, pc.is_valid(values))
    else:
        compare = pc.less if rule.test == "at_least" else pc.greater
        failed = pc.fill_null(compare(values, thresholds(rule, languages)), False)
    return np.asarray(failed.to_numpy(zero_copy_only=False), np.bool_)


def failures(rules: Sequence[Rule], signals: Mapping[str, pa.Array], languages: pa.Array | None = None) -> Bits:
    """Return for each row the rules that it does not meet, as a bit mask: bit i is ``rules[i]``."""
    length = len(next(iter(signals.values()))) if signals else 0
    bits = np.zeros(length, np.int64)
    for index, rule in enumerate(rules):
        bits |= rule_fails(rule, signals[rule.signal], languages).astype(np.int64) << index
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


def still_alive(marks: pa.RecordBatch) -> Mask:
    """Return which rows no stage that has marked the batch so far drops."""
    alive = column_mask(marks, ALIVE)
    for name in marks.schema.names:
        if name.startswith(failures_column("")):
            alive = alive & (marks.column(name).to_numpy() == 0)
    return alive


def with_columns(marks: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return marks with more columns behind."""
    return pa.RecordBatch.from_arrays([*marks.columns, *columns.values()], names=[*marks.schema.names, *columns.keys()])


def mark_record_stage(stage: RecordStage, batch: DocumentBatch) -> DocumentBatch:
    """Return a batch with what a record stage found, and with its edits.

    A stage looks at all rows that were alive when the pass began, so that its signals are there for other thresholds of
    the stages before it; a slow one (``Stage.speed``) at those that are alive still.
    """
    records, marks = batch.current, batch.marks
    # What has left already is not measured by slow stages.
    alive = still_alive(marks) if stage.speed else column_mask(marks, ALIVE)
    languages = None
    own = stage.language_column in {signal_column(stage.name, signal.name) for signal in stage.signals()}
    if stage.language_column is not None and not own:
        languages = marks.column(stage.language_column)
    if stage.chat_column is not None:
        edits = edits_of(concat_findings([batch.earlier, batch.findings]))
        records = with_edited_messages(records, stage.chat_column, edits)
    judgements = {}
    for field in _judged_fields(stage, records):
        shared = batch.shared.setdefault(field, {})
        texts = TextBatch(entering_texts(records, field), alive, records, languages, shared, field, marks)
        judgements[field] = stage.judge(texts)
    signals, findings, errors = _combined(stage, judgements)
    judged = alive
    columns: dict[str, pa.Array] = {}
    if stage.may_fail:
        failed = np.zeros(len(alive), np.bool_)
        if errors is not None:
            failed = alive & errors.is_valid().to_numpy(zero_copy_only=False)
        judged = alive & ~failed
        known = errors if errors is not None else pa.nulls(len(alive), pa.string())
        columns[error_column(stage.name)] = pc.if_else(pa.array(failed), known, pa.scalar(None, pa.string()))
    if findings.num_rows and not judged.all():
        findings = findings.filter(pa.array(judged[findings.column("row").to_numpy()]))
    edited = batch.edited
    shared_after = batch.shared
    if isinstance(stage, EditingStage) and stage.edits():
        edited_records, more = _edit(records, findings)
        signals |= more
        if edited_records is not records:
            edited, shared_after = edited_records, {}
    for signal in stage.signals():
        values = signals[signal.name]
        if not judged.all():
            values = pc.if_else(pa.array(~judged), pa.scalar(None, values.type), values)
        columns[signal_column(stage.name, signal.name)] = values
    for judgement in judgements.values():
        if judgement.reused is not None:
            columns[reused_column(stage.name)] = pa.array(judgement.reused & judged)
    if own:
        languages = signals[str(stage.language_column).removeprefix(signal_column(stage.name, ""))]
    bits = failures(stage.rules(), signals, languages)
    bits = np.where(judged, bits if len(bits) else 0, np.where(alive, UNJUDGED, 0))
    columns[failures_column(stage.name)] = pa.array(bits, pa.int64())
    marks = with_columns(marks, columns)
    if edited is not batch.edited and edited is not None:
        after = {after_column(name): edited.column(name) for name in AFTER}
        names = [name for name in marks.schema.names if name not in after]
        marks = with_columns(marks.select(names), after)
    found = concat_findings([batch.findings, findings])
    return replace(batch, marks=marks, findings=found, edited=edited, shared=shared_after)


def mark_again(stage: RecordStage, batch: DocumentBatch) -> DocumentBatch:
    """Return a batch whose marks have the signals of a stage with what its rules make of them."""
    marks = batch.marks
    alive = column_mask(marks, ALIVE)
    languages = None if stage.language_column is None else marks.column(stage.language_column)
    signals = {signal.name: marks.column(signal_column(stage.name, signal.name)) for signal in stage.signals()}
    bits = failures(stage.rules(), signals, languages)
    bits = np.where(alive, bits if len(bits) else 0, 0)
    return replace(batch, marks=with_columns(marks, {failures_column(stage.name): pa.array(bits, pa.int64())}))


def _judged_fields(stage: RecordStage, records: pa.RecordBatch) -> tuple[TextField, ...]:
    if stage.text_field == "both" and isinstance(stage, EditingStage):
        return text_fields(records)  # type: ignore[return-value]
    return (stage.text_field,)


def _combined(
    stage: RecordStage, judgements: Mapping[TextField, Judgement]
) -> tuple[dict[str, pa.Array], pa.RecordBatch, pa.Array | None]:
    """Return signals, findings and errors of a stage that judged one field, or each field of a pair by itself."""
    signals: dict[str, pa.Array] = {}
    findings = []
    errors = None
    for field, judgement in judgements.items():
        for name, values in judgement.signals.items():
            signals[name] = pc.add(signals[name], values) if name in signals else values
        if judgement.findings is not None:
            findings.append(in_stage(judgement.findings, stage.name, field))
        if judgement.errors is not None:
            errors = judgement.errors if errors is None else pc.coalesce(errors, judgement.errors)
    return signals, concat_findings(findings), errors


def _edit(records: pa.RecordBatch, findings: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """Return records with the edits of one stage made, and the signals that count them."""
    length = records.num_rows
    edits = edits_of(findings)
    rows = edits.column("row").to_numpy().astype(np.int64)
    cut = pc.subtract(edits.column("end"), edits.column("start")).to_numpy().astype(np.int64)
    added = pc.utf8_length(pc.fill_null(edits.column("replacement"), "")).to_numpy().astype(np.int64)
    if len(rows):
        texts = {}
        names = text_fields(records)
        for field in names:
            # A filter copies all edits.
            of_field = edits if len(names) == 1 else edits.filter(pc.equal(edits.column("field"), field))
            if of_field.num_rows:
                texts[field] = apply_edits(records.column(field), of_field)
        records = with_texts(records, texts, pa.array(np.flatnonzero(np.bincount(rows, minlength=length))))
    left = records.column("characters").to_numpy().copy()
    if len(rows):
        changed = np.flatnonzero(np.bincount(rows, minlength=length))
        # A pair without a response is empty, as in the input.
        last = records.column(text_fields(records)[-1]).take(pa.array(changed))
        blank = pc.equal(pc.binary_length(pc.utf8_trim(last, characters=WHITE_SPACE)), 0)
        left[changed[blank.to_numpy(zero_copy_only=False)]] = 0
    counts = (np.bincount(rows, minlength=length), sums_by_row(length, rows, cut), sums_by_row(length, rows, added))
    names = ("edits", "characters_cut", "characters_added", "characters_left")
    return records, {
        name: pa.array(values.astype(np.int64)) for name, values in zip(names, (*counts, left), strict=True)
    }


def mark_corpus_stage(stage: CorpusStage, verdict: CorpusVerdict, marks: pa.RecordBatch) -> pa.RecordBatch:
    """Return marks with what a corpus stage found."""
    columns = {signal_column(stage.name, name): values for name, values in verdict.signals.items()}
    columns[failures_column(stage.name)] = pa.array(verdict.failures, pa.int64())
    if verdict.related is not None:
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
