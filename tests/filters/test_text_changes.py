import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.findings import SPAN_SCHEMA, apply_edits
from filters.text_changes import changes

LINES = st.lists(st.sampled_from(["a", "b", " a ", "ab", "世界.", "", "\t", "e\u0301", "👩‍👩‍👧", "a[1]"]), max_size=12)
TEXTS = st.one_of(
    LINES.map("\n".join), LINES.map("\r\n".join), LINES.map(" ".join), st.text(st.characters(exclude_categories=["Cs"]))
)


def applied(before: str, after: str) -> str:
    """Return a text with the spans cut or replaced as stages do it."""
    spans = [
        {"row": 0, "start": start, "end": end, "rule": "r", "action": "redact", "replacement": replacement}
        for start, end, replacement in changes(before, after)
    ]
    edited = apply_edits(pa.array([before], pa.string()), pa.RecordBatch.from_pylist(spans, schema=SPAN_SCHEMA))
    return str(edited[0].as_py())


@given(TEXTS, TEXTS)
def test_changes_turn_one_text_into_the_other(before: str, after: str) -> None:
    assert applied(before, after) == after
    assert (changes(before, after) == []) == (before == after)
    for start, end, replacement in changes(before, after):
        old = before[start:end]
        assert old != replacement
        assert not (old and replacement and (old[0] == replacement[0] or old[-1] == replacement[-1]))


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=20))
def test_lines_that_stay_are_left_alone(lines: list[tuple[int, bool]]) -> None:
    before = "\n".join(f"line {number}" for number, _ in lines)
    after = "\n".join(f"line {number}" for number, stays in lines if stays)
    spans = changes(before, after)
    assert applied(before, after) == after
    assert all(not replacement for _, _, replacement in spans)
    assert sum(end - start for start, end, _ in spans) == len(before) - len(after)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("one.\n  two. \nthree.", "one.\ntwo.\nthree.", [(5, 7, ""), (11, 12, "")]),
        ("A fact.[12]\nB.", "A fact.\nB.", [(7, 11, "")]),
        ("x\r\ny", "x\ny", [(1, 2, "")]),
        ("A long fact.[1] And more.\nB", "A long fact. And more.", [(12, 15, ""), (25, 27, "")]),
        ("abc", "aXc", [(1, 2, "X")]),
        ("世界", "世界!", [(2, 2, "!")]),
        ("", "new", [(0, 0, "new")]),
        ("old\n", "", [(0, 4, "")]),
    ],
)
def test_spans_are_small(before: str, after: str, expected: list[tuple[int, int, str]]) -> None:
    assert changes(before, after) == expected


def test_long_texts_take_linear_time() -> None:
    before = "same\n" * 200_000
    after = "same\n" * 100_000
    assert len(changes(before, after)) == 1
    assert applied("x" * 2_000_000, "y" + "x" * 1_999_999) == "y" + "x" * 1_999_999
