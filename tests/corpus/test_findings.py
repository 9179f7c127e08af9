"""Spans of texts, and the edits that they stand for, against slices of Python strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.errors import ThresherError
from corpus.findings import (
    EDIT_COLUMNS,
    FINDING_SCHEMA,
    SPAN_SCHEMA,
    apply_edits,
    apply_findings,
    byte_spans,
    concat_findings,
    edits_of,
    findings_of_rows,
    in_stage,
)

CHARACTERS = st.text(alphabet="a é語😀\n\0", max_size=12)


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int, int, str]]]:
    texts = draw(st.lists(CHARACTERS, min_size=1, max_size=5))
    edits = []
    for row, text in enumerate(texts):
        places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=4)))
        for start, end in zip(places[::2], places[1::2], strict=False):
            edits.append((row, start, end, draw(CHARACTERS)))
    return texts, edits


def spans_of(texts: pa.StringArray, edits: list[tuple[int, int, int, str]]) -> pa.RecordBatch:
    values = texts.to_pylist()
    rows = np.array([row for row, *_ in edits], np.int64)
    starts = np.array([len(values[row][:start].encode()) for row, start, _, _ in edits], np.int64)
    ends = np.array([len(values[row][:end].encode()) for row, _, end, _ in edits], np.int64)
    replacements = pa.array([replacement for *_, replacement in edits], pa.string())
    return byte_spans(texts, rows, starts, ends, "rule", "redact", replacements)


@pytest.mark.parametrize("behind", ["behind", "a block and more behind " * 9])
@given(edited_texts())
def test_edits_replace_slices_of_code_points(
    behind: str, case: tuple[list[str], list[tuple[int, int, int, str]]]
) -> None:
    texts, edits = case
    # A slice, so that offsets do not begin at 0.
    array = pa.array(["before", *texts, behind]).slice(1, len(texts))
    spans = spans_of(array, edits)
    assert [(row["row"], row["start"], row["end"]) for row in spans.to_pylist()] == [edit[:3] for edit in edits]
    wanted = list(texts)
    for row, start, end, replacement in reversed(edits):
        wanted[row] = wanted[row][:start] + replacement + wanted[row][end:]
    edited = apply_edits(array, spans)
    edited.validate(full=True)
    assert edited.to_pylist() == wanted


@pytest.mark.parametrize("behind", ["", "a block and more behind " * 9])
@pytest.mark.parametrize("length", [1, 2, 62, 63, 64, 65, 127, 128, 129, 200])
def test_one_long_character_anywhere_in_a_text(length: int, behind: str) -> None:
    texts = ["a" * place + "é" + "a" * (length - place - 1) for place in range(length)]
    array = pa.array([*texts, "a" * length, behind])
    spans = spans_of(array, [(row, length - 1, length, "") for row in range(length + 1)])
    assert [(row["start"], row["end"]) for row in spans.to_pylist()] == [(length - 1, length)] * (length + 1)
    assert apply_edits(array, spans).to_pylist() == [*(text[:-1] for text in texts), "a" * (length - 1), behind]


def test_nulls_stay_null() -> None:
    array = pa.array(["x", None, "a@b", None]).slice(1)
    edited = apply_edits(array, byte_spans(array, np.array([1]), np.array([0]), np.array([3]), "emails", "cut"))
    assert edited.to_pylist() == [None, "", None]


@pytest.mark.parametrize("places", [[(0, 2), (1, 3)], [(2, 3), (0, 1)], [(0, 9)], [(3, 2)]])
def test_spans_that_overlap_or_leave_the_text_are_a_fault(places: list[tuple[int, int]]) -> None:
    rows = [
        {"row": 0, "start": start, "end": end, "rule": "r", "action": "cut", "replacement": None}
        for start, end in places
    ]
    spans = pa.RecordBatch.from_pylist([dict.fromkeys(SPAN_SCHEMA.names) | row for row in rows], schema=SPAN_SCHEMA)
    with pytest.raises(ThresherError, match="spans of row 0"):
        apply_edits(pa.array(["abcd"]), spans)


def test_stages_edit_one_after_the_other_and_flags_change_nothing() -> None:
    first = pa.array(["one two three"])
    cut = byte_spans(first, np.array([0]), np.array([4]), np.array([8]), "lines", "cut")
    second = apply_edits(first, cut)
    assert second.to_pylist() == ["one three"]
    redacted = byte_spans(second, np.array([0]), np.array([4]), np.array([9]), "names", "redact", "<NAME>")
    flagged = byte_spans(second, np.array([0]), np.array([0]), np.array([3]), "names", "flag")
    parts = [in_stage(cut, "a", "text"), in_stage(flagged, "b", "text"), in_stage(redacted, "c", "text")]
    findings = concat_findings(parts)
    assert findings.schema == FINDING_SCHEMA
    assert edits_of(findings).column("stage").to_pylist() == ["a", "c"]
    assert apply_findings({"text": first}, findings)["text"].to_pylist() == ["one <NAME>"]
    assert apply_findings({"prompt": first}, findings)["prompt"].to_pylist() == ["one two three"]


@given(edited_texts(), st.data())
def test_edits_of_chosen_rows_are_those_of_all(
    case: tuple[list[str], list[tuple[int, int, int, str]]], data: st.DataObject
) -> None:
    texts, edits = case
    array = pa.array(texts)
    findings = in_stage(spans_of(array, edits), "redact", "text").select(EDIT_COLUMNS)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(texts) - 1)))), np.int64)
    everything = apply_findings({"text": array}, findings)["text"]
    places = pa.array(rows)
    chosen = apply_findings({"text": array.take(places)}, findings_of_rows(findings, rows, len(texts)))["text"]
    assert chosen.to_pylist() == everything.take(places).to_pylist()
