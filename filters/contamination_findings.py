"""Findings and signals of the stage ``contamination`` from the evidence of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from corpus.findings import Action, byte_spans, sums_by_row
from corpus.stages import Judgement
from corpus.text import Bytes, Offsets, text_buffers
from filters.contamination import ContaminationConfig
from filters.contamination_evidence import Evidence
from filters.contamination_index import ContaminationIndex
from filters.contamination_verdict import (
    CLASS_RULES,
    LONG,
    MEDIUM,
    QUESTION_ONLY,
    SHORT,
    Verdict,
    found_part,
    near_parts,
    verdict,
)

SHOWN_BYTES = 600
"""Bytes of the matched text that a finding shows."""

Numbers = npt.NDArray[np.int64]


def judgement(
    texts: pa.StringArray,
    evidence: Evidence,
    index: ContaminationIndex,
    config: ContaminationConfig,
    aside: npt.NDArray[np.bool_] | None = None,
) -> Judgement:
    """Return signals and findings on n texts.

    Args:
        texts: the texts that were searched.
        evidence: what was found in them, with the index.
        aside: tokens of the index that do not count, see ``filters.contamination_verdict.verdict``.
    """
    found = verdict(evidence, index, len(texts), aside)
    chosen = _without_overlaps(evidence, found, _over_limits(found, config))
    signals = {"short_items": pa.array(found.short_items), "question_only": pa.array(found.question_only)}
    if config.action == "cut":
        findings, cut = _cuts(texts, evidence, found, index, config, chosen)
        signals |= {"items": pa.array(_item_counts(texts, evidence, found, chosen))}
        signals |= {"characters_missing": pa.array(_missing(texts, findings, cut, config))}
        return Judgement(signals, findings)
    names = [index.item_name(item) if item >= 0 else None for item in found.best.tolist()]
    signals |= {
        "score": pa.array(found.long_scores),
        "medium_score": pa.array(found.medium_scores),
        "best_item": pa.array(names, pa.string()),
    }
    return Judgement(signals, _listed(texts, evidence, found, index, config.action, chosen))


def _over_limits(found: Verdict, config: ContaminationConfig) -> npt.NDArray[np.bool_]:
    """Return which matches are over the limit of their class, and short questions without an answer."""
    limits = {LONG: config.threshold, MEDIUM: config.medium_threshold}
    over = np.zeros(len(found.scores), np.bool_)
    for number, limit in limits.items():
        if limit != "off":
            over |= (found.classes == number) & (found.scores > limit)
    if config.short_items == "on":
        over |= ((found.classes == SHORT) | (found.classes == QUESTION_ONLY)) & (found.scores > 0)
    return over


def _without_overlaps(evidence: Evidence, found: Verdict, over: npt.NDArray[np.bool_]) -> Numbers:
    """Return the matches to list, in order: of those of one item that overlap, the one with the highest score."""
    numbers = np.flatnonzero(over)
    order = numbers[
        np.lexsort(
            (
                evidence.entries[numbers],
                evidence.starts[numbers],
                evidence.starts[numbers].astype(np.int64) - evidence.ends[numbers],
                -found.scores[numbers],
                found.classes[numbers] == QUESTION_ONLY,
            )
        )
    ]
    taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
    kept = []
    for number in order.tolist():
        start, end = int(evidence.starts[number]), int(evidence.ends[number])
        spans = taken.setdefault((int(evidence.rows[number]), int(evidence.items[number])), [])
        if all(end <= first or last <= start for first, last in spans):
            spans.append((start, end))
            kept.append(number)
    chosen = np.array(kept, np.int64)
    return chosen[np.lexsort((evidence.items[chosen], evidence.starts[chosen], evidence.rows[chosen]))]


def _detail(offsets: Offsets, data: Bytes, evidence: Evidence, index: ContaminationIndex, match: int) -> dict[str, Any]:
    entry, near = int(evidence.entries[match]), int(evidence.near[match])
    start, end = int(evidence.starts[match]), int(evidence.ends[match])
    text = int(offsets[evidence.rows[match]])
    shown = data[text + start : text + min(end, start + SHOWN_BYTES)].tobytes()
    return {
        "part": found_part(int(index.entry_flags[entry]), near),
        "near": near_parts(near),
        "words": int(index.entry_words[entry]),
        "tokens": int(index.entry_starts[entry + 1] - index.entry_starts[entry]),
        "tokens_found": int(evidence.matched_offsets[match + 1] - evidence.matched_offsets[match]),
        "text": shown.decode("utf-8", "ignore"),
    }


def _listed(
    texts: pa.StringArray,
    evidence: Evidence,
    found: Verdict,
    index: ContaminationIndex,
    action: Action,
    chosen: Numbers,
) -> pa.RecordBatch:
    classes = found.classes[chosen]
    offsets, data = text_buffers(texts)
    rules = pa.array([CLASS_RULES[number] for number in classes.tolist()], pa.string())
    findings = byte_spans(
        texts,
        evidence.rows[chosen].astype(np.int64),
        evidence.starts[chosen].astype(np.int64),
        evidence.ends[chosen].astype(np.int64),
        rules,
        action,
        value=pa.array(found.scores[chosen]),
        related=pa.array([index.item_name(item) for item in evidence.items[chosen].tolist()], pa.string()),
        detail=pa.array(
            [orjson.dumps(_detail(offsets, data, evidence, index, match)).decode() for match in chosen.tolist()],
            pa.string(),
        ),
    )
    actions = pa.array(np.where(classes == QUESTION_ONLY, "flag", action).tolist(), pa.string())
    place = findings.schema.get_field_index("action")
    return findings.set_column(place, findings.schema.field(place), actions)


def _item_counts(texts: pa.StringArray, evidence: Evidence, found: Verdict, chosen: Numbers) -> Numbers:
    cut = chosen[found.classes[chosen] != QUESTION_ONLY]
    pairs = np.unique(np.column_stack([evidence.rows[cut], evidence.items[cut]]).astype(np.int64), axis=0)
    return np.bincount(pairs[:, 0], minlength=len(texts)).astype(np.int64)


def _cuts(
    texts: pa.StringArray,
    evidence: Evidence,
    found: Verdict,
    index: ContaminationIndex,
    config: ContaminationConfig,
    chosen: Numbers,
) -> tuple[pa.RecordBatch, Numbers]:
    """Return findings whose spans are widened by the margin and joined where they meet, and the rows that are cut."""
    listed = _listed(texts, evidence, found, index, "cut", chosen)
    lengths = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    joined: list[dict[str, Any]] = []
    for finding in listed.to_pylist():
        if finding["action"] == "cut":
            finding["start"] = max(0, finding["start"] - config.margin)
            finding["end"] = min(int(lengths[finding["row"]]), finding["end"] + config.margin)
            last = next((other for other in reversed(joined) if other["action"] == "cut"), None)
            if last is not None and last["row"] == finding["row"] and finding["start"] <= last["end"]:
                best = max(last, finding, key=lambda one: float(one["value"]))
                last.update(
                    {name: best[name] for name in ("rule", "value", "related", "detail")},
                    end=max(last["end"], finding["end"]),
                    others=[*last.get("others", []), last["related"] if best is finding else finding["related"]],
                )
                continue
        joined.append(finding)
    for finding in joined:
        others = sorted({*finding.pop("others", [])} - {finding["related"]})
        if others:
            detail = {**orjson.loads(finding["detail"]), "other_items": others}
            finding["detail"] = orjson.dumps(detail).decode()
    joined.sort(key=lambda finding: (finding["row"], finding["start"]))
    findings = pa.RecordBatch.from_pylist(joined, schema=listed.schema)
    rows = [finding["row"] for finding in joined if finding["action"] == "cut"]
    return findings, np.unique(np.array(rows, np.int64))


def _missing(texts: pa.StringArray, findings: pa.RecordBatch, cut: Numbers, config: ContaminationConfig) -> Numbers:
    """Return the characters by which the texts that are cut fall short of ``minimum_left``; 0 for all others."""
    missing = np.zeros(len(texts), np.int64)
    if config.minimum_left == "off" or not len(cut):
        return missing
    own = findings.filter(pc.equal(findings.column("action"), "cut"))
    rows = own.column("row").to_numpy().astype(np.int64)
    spans = pc.subtract(own.column("end"), own.column("start")).to_numpy().astype(np.int64)
    left = pc.utf8_length(texts.take(pa.array(cut))).to_numpy() - sums_by_row(len(texts), rows, spans)[cut]
    missing[cut] = np.maximum(0, config.minimum_left - left)
    return missing
