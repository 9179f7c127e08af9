"""The parts of the HTML report by themselves: histograms, choices of records, marked texts, hidden characters."""

from __future__ import annotations

import html
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import given
from hypothesis import strategies as st

from corpus.folder import Folder
from corpus.planning_types import InputPlan
from corpus.stages import Rule
from reports.example_texts import StagedTexts
from reports.highlights import reason_spans
from reports.html_views import limit_text, share, short_count
from reports.plots import Line, curve, histogram
from reports.segments import Excerpt, Segment, differences, excerpt, parts_between, shown, with_spans
from reports.signal_histograms import (
    HistogramCounter,
    RangeFinder,
    Threshold,
    choose_borders,
    line_place,
    thresholds_on,
)
from reports.signal_rows import SignalRows, smallest_per_group
from reports.visible import is_hidden, name_text, visible

FINITE = st.floats(-1e300, 1e300) | st.integers(-1000, 1000).map(float)
ANY = FINITE | st.sampled_from([float("nan"), float("inf"), float("-inf")]) | st.none()


def _rows(values: list[Any], kept: list[bool], kind: Any) -> SignalRows:
    length = len(values)
    columns = {
        "kept": pa.array(kept, pa.bool_()),
        "file": pa.array(["f"] * length, pa.string()),
        "position": pa.array(range(length), pa.int64()),
        "s.x": pa.array(values, kind),
    }
    return SignalRows(pa.RecordBatch.from_pydict(columns))


def _counted(rows: SignalRows, thresholds: list[Threshold], whole: bool) -> Any:
    finder = RangeFinder(["s.x"], len(rows))
    finder.add(rows)
    ranges = finder.ranges()
    if "s.x" not in ranges:
        return None
    counter = HistogramCounter({"s.x": choose_borders(ranges["s.x"], thresholds, whole)})
    counter.add(rows)
    return counter.histograms["s.x"]


@given(st.lists(st.tuples(ANY, st.booleans()), max_size=60), st.none() | FINITE)
def test_every_finite_value_is_counted_once(pairs: list[tuple[float | None, bool]], limit: float | None) -> None:
    values, kept = [value for value, _ in pairs], [keep for _, keep in pairs]
    thresholds = [] if limit is None else [Threshold("r", "≥", limit)]
    found = _counted(_rows(values, kept, pa.float64()), thresholds, whole=False)
    finite = [keep for value, keep in pairs if value is not None and np.isfinite(value)]
    if not finite:
        assert found is None
        return
    assert found.read.sum() == found.values == len(finite)
    assert found.kept.sum() == sum(finite)
    assert (found.kept <= found.read).all()
    assert (np.diff(found.borders.edges) > 0).all()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=80), st.integers(0, 300), st.booleans())
def test_a_threshold_parts_the_bins_of_whole_numbers(values: list[int], limit: int, at_least: bool) -> None:
    threshold = Threshold("r", "≥" if at_least else "≤", float(limit))
    found = _counted(_rows(values, [True] * len(values), pa.int64()), [threshold], whole=True)
    edges, place = found.borders.edges, line_place(threshold, whole=True)
    if found.borders.logarithmic or not edges[0] < place < edges[-1]:
        return
    below = found.read[edges[1:] <= place + 1e-9].sum()
    assert below == sum(value < limit if at_least else value <= limit for value in values)


def test_a_long_tail_is_shown_on_a_logarithmic_axis() -> None:
    values = (10 ** np.random.default_rng(1).normal(3, 0.7, 5000)).tolist()
    found = _counted(_rows(values, [True] * 5000, pa.float64()), [Threshold("r", "≥", 50.0)], whole=False)
    assert found.borders.logarithmic
    assert found.borders.edges[0] <= 50
    assert found.read.max() < 1000


def test_thresholds_of_a_signal_are_those_of_all_rules_and_languages() -> None:
    rules = [
        Rule("minimum_words", "words", "at_least", 50.0, by_language={"ko": 20.0, "zh": None}),
        Rule("maximum_words", "words", "at_most", 1000.0),
        Rule("keep", "label", "one_of", values=("en",)),
    ]
    assert [one.text for one in thresholds_on(rules, "words")] == ["≥ 50", "≥ 20 (ko)", "≤ 1,000"]
    assert thresholds_on(rules, "label") == []
    assert limit_text(rules[0]) == "≥ 50, ko: ≥ 20, zh: off"
    assert limit_text(rules[2]) == "label is one of en"


def test_a_plot_is_inline_svg_in_the_colours_of_the_page() -> None:
    edges: npt.NDArray[np.float64] = np.linspace(0, 1, 11)
    counts: npt.NDArray[np.int64] = np.arange(10)
    plots = [histogram(edges, counts, counts // 2, [Line(0.35, "≤ 0.35")], False, 'of "x" <y>') for _ in range(2)]
    assert plots[0] == plots[1]
    assert plots[0].startswith("<svg role=")
    assert "&lt;y&gt;" in plots[0]
    assert ">≤ 0.35</text>" in plots[0]
    assert set(re.findall(r"var\((--\w+)\)", plots[0])) == {"--ink", "--faint", "--kept", "--left", "--limit"}
    assert not re.search(r"#0[1-5]0|<style|<metadata|href=.[^#]|xmlns|id=\"(figure|axes)", plots[0])
    assert len(plots[0]) < 8_000


def _texts(plot: str) -> dict[str, tuple[float, float]]:
    """Return the places of the texts of a plot, by text."""
    found = re.findall(r'x="([-\d.]+)" y="([-\d.]+)">([^<]*)</text>', plot)
    return {text: (float(x), float(y)) for x, y, text in found}


def _area(plot: str, colour: str) -> list[tuple[float, float]]:
    """Return the corners of what is filled with a colour."""
    (path,) = re.findall(rf'<path d="([^"]*)" style="fill: var\(--{colour}\)', plot)
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path)]


def test_bars_lines_and_numbers_stand_where_their_values_are() -> None:
    edges: npt.NDArray[np.float64] = np.linspace(0, 10, 11)
    counts: npt.NDArray[np.int64] = np.array([40, 0, 10, 20, 30, 40, 30, 20, 10, 6])
    plot = histogram(edges, counts, counts // 2, [Line(2, "≥ 2"), Line(8, "≤ 8")], False, "of x")
    texts = _texts(plot)
    assert list(texts) == ["0", "15", "30", "2", "4", "6", "8", "10", "≥ 2", "≤ 8"]
    read, kept = _area(plot, "left"), _area(plot, "kept")
    # An upright at each border, up to the count; the numbers below and beside stand for the same places.
    base = read[0][1]
    assert [x for x, _ in read[1:-1:2]] == pytest.approx([x for x, _ in kept[1:-1:2]])
    assert texts["4"][0] == pytest.approx(read[1 + 2 * 4][0], abs=0.1)
    assert [base - y for _, y in kept[2:-1:2]] == pytest.approx([(base - y) / 2 for _, y in read[2:-1:2]], abs=0.2)
    assert texts["15"][1] - texts["30"][1] == pytest.approx((base - read[2][1]) * 15 / 40, abs=0.2)
    assert re.search(rf'd="M {texts["2"][0]:g} {base:g} L {texts["2"][0]:g} [^"]*" style="[^"]*--limit', plot)
    assert texts["≥ 2"][0] > texts["2"][0]
    assert texts["≤ 8"][0] < texts["8"][0]


def test_axes_are_logarithmic_where_that_is_asked_for_or_one_bin_dwarfs_all() -> None:
    edges: npt.NDArray[np.float64] = np.geomspace(1, 1000, 31)
    counts: npt.NDArray[np.int64] = np.full(30, 10)
    counts[0] = 100_000
    counts[5] = 0
    plot = histogram(edges, counts, counts, [], True, "of x")
    texts = _texts(plot)
    assert {"1", "10", "100", "1k"} <= texts.keys()
    steps = np.diff([texts[text][0] for text in ("1", "10", "100", "1k")])
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    read = _area(plot, "left")
    assert read[2 + 2 * 5][1] == read[0][1]
    assert "10k" in texts
    assert all(0 <= y <= 111.6 for _, y in read)


def test_a_curve_has_percents_beside_it_and_a_name_below() -> None:
    x: npt.NDArray[np.float64] = np.linspace(0, 1, 101)
    texts = _texts(curve(x, x**2, [Line(0.8, "threshold 0.8")], "similarity", "S"))
    assert [text for text in texts if text.endswith("%")] == ["0 %", "30 %", "60 %", "90 %"]
    assert texts["similarity"][1] > texts["0.2"][1]
    assert texts["threshold 0.8"][0] < texts["0.8"][0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 9)), max_size=60),
    st.integers(1, 4),
)
def test_the_first_of_each_group(rows: list[tuple[int, int, int]], count: int) -> None:
    groups, first, second = (np.array([row[place] for row in rows], np.int64) for place in range(3))
    expected = []
    for group in sorted(set(groups.tolist())):
        of_group = [number for number, row in enumerate(rows) if row[0] == group]
        expected.extend(sorted(of_group, key=lambda number: (rows[number][1], rows[number][2], number))[:count])
    assert smallest_per_group(groups, [first, second], count).tolist() == expected


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_visible_text_hides_nothing_and_is_no_markup(text: str) -> None:
    shown_text = visible(text)
    assert not [character for character in str(shown_text) if is_hidden(character)]
    plain = re.sub(
        r'<span class="hidden-character">U\+([0-9A-F]+)</span>', lambda found: chr(int(found[1], 16)), shown_text
    )
    assert "<" not in plain
    assert html.unescape(plain.replace("&#34;", '"').replace("&#39;", "'")) == html.unescape(
        html.escape(text.replace("\r\n", "\n"))
    )


def test_what_hides_is_shown_by_its_number_and_what_writing_needs_is_not() -> None:
    assert visible("a\u202eb\x00\u200b\U000e0041\U000e0100") == "".join(
        part if len(part) == 1 else f'<span class="hidden-character">{part}</span>'
        for part in ("a", "U+202E", "b", "U+0000", "U+200B", "U+E0041", "U+E0100")
    )
    kept = "مى\u200cخواهم 👩\u200d💻 \tété\n한글"
    assert visible(kept) == kept
    assert not is_hidden("\ufe0f")
    assert is_hidden("\ufeff")
    assert unicodedata2.category("\ufe0f") == "Mn"


def test_names_are_short_whatever_is_in_them() -> None:
    assert name_text("a" * 50 + "\n" + "b" * 50) == "a" * 40 + "…" + "b" * 39
    assert name_text("line\nbreak") == "line⏎break"
    assert len(name_text("\u202e" * 1000)) < 1000


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 10))


@given(
    st.text("abc ", min_size=1, max_size=30),
    st.lists(st.tuples(SPANS, st.sampled_from(["cut", "redact", "flag"])), max_size=6),
)
def test_edits_one_after_the_other_give_the_text_that_the_next_stage_sees(text: str, edits: list[Any]) -> None:
    segments, plain = [Segment.of(text)], text
    for (start, length), action in edits:
        start, end = min(start, len(plain)), min(start + length, len(plain))
        before, inside, after = parts_between(segments, (start, end))
        if action == "cut":
            inside = [Segment(one.text, "cut", 0) for one in inside]
            plain = plain[:start] + plain[end:]
        elif action == "redact":
            inside = [Segment.of("<X>", "replaced")]
            plain = plain[:start] + "<X>" + plain[end:]
        else:
            inside = [Segment(one.text, one.mark or "found", one.length) for one in inside]
        segments = [*before, *inside, *after]
        assert "".join(one.text for one in segments if one.length) == plain
        assert sum(one.length for one in segments) == len(plain)


@given(st.text("ab", max_size=20), st.lists(st.integers(0, 25), max_size=5).map(sorted))
def test_parts_of_a_text_are_cut_at_their_places(text: str, places: list[int]) -> None:
    segments = [Segment.of(text[:5]), Segment("hidden", "cut", 0), Segment("█", "found", 4), Segment.of(text[5:])]
    total = sum(one.length for one in segments)
    parts = parts_between(segments, places)
    assert len(parts) == len(places) + 1
    assert "".join(one.text for part in parts for one in part) == "".join(one.text for one in segments)
    lengths = [sum(one.length for one in part) for part in parts]
    ends = [0, *(min(place, total) for place in places), total]
    assert lengths == [end - start for start, end in pairwise(ends)]
    if places:
        # One after the other they are the same parts.
        left, right = parts_between(segments, places[:1])
        assert parts[0] == left
        assert parts[1:] == parts_between(right, [place - places[0] for place in places[1:]])


def test_a_text_with_very_many_places_is_cut_in_one_go() -> None:
    count = 100_000
    parts = parts_between([Segment.of("line\n" * count)], range(5, 5 * count, 5))
    assert len(parts) == count
    assert all(part == [Segment.of("line\n")] for part in parts)


def test_what_is_found_may_lie_across_what_is_edited(tmp_path: Path) -> None:
    found: dict[str, Any] = {"stage": "x", "field": "text", "replacement": None}
    spans = [
        {**found, "start": 0, "end": 15, "action": "flag"},
        {**found, "start": 5, "end": 10, "action": "cut"},
        {**found, "start": 12, "end": 14, "action": "redact", "replacement": "XY!"},
    ]
    texts = StagedTexts(Folder(str(tmp_path)), InputPlan((), (), ()), [], ["text"])
    shown_here = texts._changed([Segment.of("0123456789abcdefghij")], spans, 0)
    assert [(one.text, one.mark) for one in shown_here] == [
        *(("01234", "found"), ("56789", "cut"), ("ab", "found"), ("XY!", "replaced"), ("e", "found"), ("fghij", None)),
    ]
    seen_behind = texts._changed([Segment.of("0123456789abcdefghij")], spans, -1)
    assert "".join(one.text for one in seen_behind) == "01234abXY!efghij"
    assert sum(one.length for one in seen_behind) == sum(one.length for one in shown_here) == 16


def test_an_excerpt_lies_around_the_first_mark() -> None:
    whole = with_spans(Excerpt([Segment.of("x" * 5000)], before=7), [(4000, 4010)])
    assert whole.is_marked
    text = shown(whole)
    assert '<mark class="found">xxxxxxxxxx</mark>' in text
    assert f"{7 + 4000 - 220:,} characters before" in text
    assert "characters more" in text
    assert len(text) < 900
    assert excerpt([Segment.of("short")], 100) == Excerpt([Segment.of("short")])


def test_differences_are_words_and_not_white_space() -> None:
    left, right = differences(
        Excerpt([Segment.of("one two  three four")]), Excerpt([Segment.of("one two\nthree five four")])
    )
    assert shown(left) == "one two  three four"
    assert shown(right) == 'one two\nthree <mark class="differs">five</mark> four'


@given(st.text("ab \n", max_size=80), st.text("ab \n", max_size=80))
def test_differences_keep_both_texts(one: str, other: str) -> None:
    sides = differences(Excerpt([Segment.of(one)]), Excerpt([Segment.of(other)]))
    assert [side.text for side in sides] == [one, other]
    assert one.split() != other.split() or not any(side.is_marked for side in sides)


@pytest.mark.parametrize(
    ("signal", "text", "found"),
    [
        ("hash_ratio", "a # b #", ["#", "#"]),
        ("ellipsis_lines", "and so on...\nnot ... here", ["..."]),
        ("bullet_lines", "- one\n• two\nthree - four", ["-", "•"]),
        ("alphabetic_words", "one 2 3! été", ["2", "3!"]),
        ("duplicate_lines", "same\nother\n same \nsame", [" same ", "same"]),
        ("duplicate_paragraphs", "a\nb\n\nc\n\na\nb", ["a\nb"]),
        ("top_2_gram_characters", "a b x a b y a b", ["a b", "a b", "a b"]),
        ("duplicate_5_gram_characters", "a b c d e. a b c d e.", ["a b c d e."]),
        ("words", "too short", []),
    ],
)
def test_reasons_that_have_a_place_are_found(signal: str, text: str, found: list[str]) -> None:
    spans = reason_spans(None, Rule("r", signal, "at_most", 0.1), text)
    assert [text[start:end] for start, end in spans] == found


def test_reasons_are_bounded_in_long_texts() -> None:
    text = "".join(random.Random(1).choices("# \n-.", k=300_000))
    for signal in ("hash_ratio", "duplicate_lines", "duplicate_paragraphs", "top_4_gram_characters", "ellipsis_ratio"):
        assert len(reason_spans(None, Rule("r", signal, "at_most", 0.1), text)) <= 200


def test_numbers_are_short_and_never_round_to_what_they_are_not() -> None:
    assert [short_count(value) for value in (0, 9_999, 12_345, 93_902_859, 1.5e9)] == [
        "0",
        "9,999",
        "12.3 k",
        "93.9 M",
        "1.5 G",
    ]
    assert [share(*pair) for pair in ((1, 10_000), (9_999, 10_000), (0, 5), (5, 5), (1, 3), (0, 0))] == [
        "< 0.1 %",
        "> 99.9 %",
        "0.0 %",
        "100.0 %",
        "33.3 %",
        "–",
    ]


def test_the_templates_are_package_data() -> None:
    setup = (Path(__file__).parents[2] / "setup.py").read_text()
    assert '"reports": ["templates/*"]' in setup
