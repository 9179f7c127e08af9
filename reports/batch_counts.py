"""What the report and the manifest sum up over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.stages import CorpusStage, EditingStage, RecordStage
from reports.counts import Counts, add, balance
from reports.fates import Fates, StageInfo, first_rules
from reports.mixture import mixture_counts
from reports.scores import score_counts
from reports.tables import STAGE_ERROR
from reports.text_sizes import stage_sizes, text_sizes


def _grouped(keys: pa.Array, masks: dict[str, Any]) -> dict[Any, dict[str, int]]:
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
    licences: pa.Array | None,
) -> Counts:
    """Return what the report and the manifest sum up over batches.

    Args:
        language: the name of the language stage whose labels the report groups by.
        licences: of the records; None where they have no column for it.
    """
    length = records.num_rows
    kept = fates.kept
    faults = dead.column("position").is_null().to_numpy(zero_copy_only=False).astype(bool)
    dead_rows = int((~faults).sum())
    counts: Counts = {
        "records": balance(
            length + dead_rows, int(kept.sum()), int(fates.dropped.sum()), dead_rows + int(fates.dead.sum())
        ),
        "bytes": int(records.column("bytes").to_numpy().sum()),
        "generated_ids": records.column("generated_id").true_count,
        "file_faults": {file: 1} if faults.any() else {},
        "files": {
            file: {
                "rows": length + dead_rows,
                "dead": dead_rows + int(fates.dead.sum()),
                "digest": int(records.column("row_digest").to_numpy().sum(dtype=np.int64)),
            }
        },
        "dead_letters": {},
        "stages": {},
        "by_source": {},
        "by_language": {},
    }
    for error in [*dead.column("error").to_pylist(), *([STAGE_ERROR] * int(fates.dead.sum()))]:
        counts["dead_letters"][error] = counts["dead_letters"].get(error, 0) + 1
    all_rows = np.ones(length, np.bool_)
    masks = {"read": all_rows, "kept": kept, "dropped": fates.dropped, "dead": fates.dead}
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
    failing = np.sum([np.bitwise_count(bits.astype(np.uint64)) for bits in fates.failures], axis=0, dtype=np.int64)
    counted = text_sizes(fates, infos)
    for index, info in enumerate(infos):
        counts["stages"][info.name], characters = _stage_counts(index, info, fates, characters, failing == 1)
        if counted is not None:
            counts["stages"][info.name] |= stage_sizes(counted, index, fates)
    before = records.column("characters").to_numpy()
    sizes = {"characters": (before, characters)}
    if counted is not None:
        sizes[counted.unit] = (counted.counts, counted.counts)
    names = {"source": records.column("source"), "language": labels if language else None, "licence": licences}
    counts["mixture"] = mixture_counts(names, kept, sizes)
    counts["overlap"] = _overlap(fates, infos)
    counts |= score_counts(infos, fates, records, labels)
    return counts


def _stage_counts(
    index: int, info: StageInfo, fates: Fates, characters: Any, fail_once: npt.NDArray[np.bool_]
) -> tuple[Counts, Any]:
    """Return the counts of a stage, and the characters of the records behind it.

    Args:
        characters: int64 per record, those that enter the stage.
        fail_once: which records fail one rule of all stages.
    """
    entered = fates.entered(index)
    left = fates.left_at == index
    stayed = entered & ~left
    cut = added = edits = np.zeros(len(entered), np.int64)
    if isinstance(info.stage, EditingStage) and info.stage.edits():
        edits, cut, added = (fates.edit_counts(info, name) for name in ("edits", "characters_cut", "characters_added"))
    after = characters - cut + added
    first = first_rules(fates, index)
    bits = np.where(entered, fates.failures[index], 0)
    rules: Counts = {}
    for number, rule in enumerate(info.rules):
        masks = {"first": left & (first == number), "alone": fail_once & (bits == 1 << number)}
        if rule.named_by is None:
            add(rules, {rule.name: {name: int(mask.sum()) for name, mask in masks.items()}})
        else:
            failing = np.any(list(masks.values()), axis=0)
            names = fates.rule_names(info, rule).filter(pa.array(failing))
            add(rules, _grouped(names, {name: mask[failing] for name, mask in masks.items()}))
    counts: Counts = {
        "entered": int(entered.sum()),
        "dropped": int((left & ~fates.dead).sum()),
        "dead": int((left & fates.dead).sum()),
        "edited": int((stayed & (edits > 0)).sum()),
        "characters_in": int(characters[entered].sum()),
        "characters_dropped": int(characters[left].sum()),
        "characters_cut": int(cut[stayed].sum()),
        "characters_added": int(added[stayed].sum()),
        "characters_out": int(after[stayed].sum()),
        "rules": rules,
    }
    if info.stage is not None:
        marks = {
            signal.name: fates.signal(info, signal.name).filter(pa.array(entered)) for signal in info.stage.signals()
        }
        if isinstance(info.stage, CorpusStage):
            found = info.stage.summary_counts(marks, left[entered])
            if found:
                counts["duplicates"] = found
                kept = fates.kept[entered]
                of_kept = {name: values.filter(pa.array(kept)) for name, values in marks.items()}
                counts["in_output"] = info.stage.summary_counts(of_kept, np.zeros(int(kept.sum()), np.bool_))
        read = {name: fates.columns[name].filter(pa.array(entered)) for name in info.stage.signal_columns()}
        counts["notices"] = info.stage.notice_counts({**marks, **read})
    return counts, after


def _overlap(fates: Fates, infos: Sequence[StageInfo]) -> Counts:
    """Return for each rule of a record stage, and each other one of its pass, how many records fail both.

    The record stages of a pass judge the same records, those alive when it began, whatever the others find; only slow
    ones leave out what left before them.
    """
    failing: dict[int, dict[str, Any]] = {}
    for index, info in enumerate(infos):
        if isinstance(info.stage, RecordStage):
            for number, rule in enumerate(info.rules):
                failed = fates.failures[index] >> number & 1
                if failed.any():
                    failing.setdefault(info.pass_number, {})[f"{info.name}/{rule.name}"] = failed
    counts: Counts = {}
    for rules in failing.values():
        # 64 records to a word. A product of matrices would take threads of its own, which wait for each other.
        bits = np.packbits(np.stack(list(rules.values())).astype(np.bool_), axis=1)
        words = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
        both = np.bitwise_count(words[:, None] & words).sum(axis=2, dtype=np.int64)
        for row, name in enumerate(rules):
            counts[name] = {other: int(both[row, place]) for place, other in enumerate(rules) if both[row, place]}
    return counts
