"""Edits of a pair come back into the chat that it was made of."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.edited_chats import Span, edited_turns, with_edited_messages
from corpus.findings import apply_edits, byte_spans, concat_findings, edits_of, in_stage

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Write to a@b.de"},
    {"role": "assistant", "content": None},
    {"role": "user", "content": "or c@d.fr"},
    {"role": "assistant", "content": "I wrote to a@b.de"},
    {"role": "user", "content": "thanks, a@b.de"},
]
PROMPT = "Be kind.\n\nWrite to a@b.de\n\nor c@d.fr"


@st.composite
def chats(draw: st.DrawFn) -> tuple[list[str], list[Span]]:
    contents = draw(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4))
    spans: list[Span] = []
    start = 0
    for content in contents:
        places = sorted(draw(st.sets(st.integers(0, len(content)), max_size=4)))
        for first, last in zip(places[::2], places[1::2], strict=False):
            spans.append((start + first, start + last, draw(st.text("xy", max_size=3))))
        start += len(content) + 2
    return contents, spans


@given(chats())
def test_edits_within_turns_leave_the_joined_text_that_they_make(case: tuple[list[str], list[Span]]) -> None:
    contents, spans = case
    text = "\n\n".join(contents)
    for start, end, replacement in reversed(spans):
        text = text[:start] + replacement + text[end:]
    assert "\n\n".join(edited_turns(contents, [spans])) == text


@pytest.mark.parametrize(
    ("contents", "stages", "expected"),
    [
        (["abc", "def"], [[(0, 8, "Z")]], ["Z", ""]),
        (["abc", "def"], [[(2, 6, "")]], ["ab", "ef"]),
        (["abc", "def"], [[(1, 2, "X")], [(2, 6, "")]], ["aX", "ef"]),
        (["abc", "def"], [[(3, 5, "")], [(2, 4, "--")]], ["ab--", "ef"]),
        (["ab", "cd"], [[(6, 6, "end")]], ["ab", "cdend"]),
    ],
)
def test_edits_across_turns(contents: list[str], stages: list[list[Span]], expected: list[str]) -> None:
    assert edited_turns(contents, stages) == expected


def _seconds_per_line(lines: int) -> float:
    """Return the processor time that it takes to cut every second line of a turn, the best of three."""
    content = "\n".join(f"menu {line:05}\nThis line {line:05} stays." for line in range(lines))
    spans: list[Span] = [(start, start + 11, "") for start in range(0, len(content), 34)]
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        left = edited_turns([content, "no more"], [spans])
        best = min(best, time.process_time() - start)
        assert left == ["\n".join(f"This line {line:05} stays." for line in range(lines)), "no more"]
    return best / lines


def test_a_cut_costs_the_same_however_many_there_are() -> None:
    """Cut by cut, each copying the rest of the text, would cost 16 times as much per line here."""
    assert _seconds_per_line(20_000) < 4 * _seconds_per_line(1_250)


def _findings(texts: pa.StringArray, field: str) -> pa.RecordBatch:
    rows, starts, ends = [], [], []
    for row, text in enumerate(texts.to_pylist()):
        for address in ("a@b.de", "c@d.fr"):
            if address in text:
                rows.append(row)
                starts.append(text.index(address))
                ends.append(text.index(address) + len(address))
    spans = byte_spans(texts, np.array(rows), np.array(starts), np.array(ends), "emails", "redact", "<EMAIL>")
    return in_stage(spans, "pii", field)


@pytest.mark.parametrize("as_json", [True, False])
def test_both_kinds_of_columns(as_json: bool) -> None:
    prompts, responses = pa.array(["hi", PROMPT]), pa.array(["hello", "I wrote to a@b.de"])
    findings = concat_findings([_findings(prompts, "prompt"), _findings(responses, "response")])
    plain = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    column: Any
    if as_json:
        column, name = pa.array([json.dumps({"n": 1, "messages": chat}) for chat in (plain, CHAT)]), "json"
    else:
        column, name = pa.array([plain, CHAT]), "user/messages"
    records = pa.RecordBatch.from_arrays([prompts, responses, column], names=["prompt", "response", name])
    edited = with_edited_messages(records, "messages", edits_of(findings))
    values = edited.column(name).to_pylist()
    found = [json.loads(value)["messages"] for value in values] if as_json else values
    assert found[0] == plain
    assert [message["content"] for message in found[1]] == [
        "Be kind.",
        "Write to <EMAIL>",
        None,
        "or <EMAIL>",
        "I wrote to <EMAIL>",
        "thanks, a@b.de",
    ]
    assert apply_edits(prompts, _findings(prompts, "prompt"))[1].as_py() == PROMPT.replace("a@b.de", "<EMAIL>").replace(
        "c@d.fr", "<EMAIL>"
    )
