"""Limits and measurements, bounds of what is not known, and the curve of a sweep."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.stages import EditingStage, RecordStage, Rule, Signal, StageConfig, TextBatch, known_stages
from filters.gopher import GopherQuality, GopherQualityConfig
from reports.whatif_changes import changed, unknown_measurements
from reports.whatif_flow import GONE, MAYBE, STAYS, SURE, UNKNOWN, Flow, StageCounts, after
from reports.whatif_print import pareto

TEXTS = [
    "The river and the bridge have been there for as long as people remember. It was built with stone!",
    "short",
    "a b c d e f g " * 20 + "lorem ipsum { x }",
    "Write to anna@example.org or call +1 202-555-0143.\nAnd again: anna@example.org...\n\n- one\n- two\n• three",
    "Der Fluss und die alte Brücke sind schon so lange da, wie die Menschen sich erinnern.\n" * 4,
    "我们 在 河边 走。 javascript must be on [1] [edit]\nprivacy policy\nterms of use " + "x" * 1200,
    "# # # … … ...",
]
VALUES: list[Any] = [0, 1, 2, 5, 60, 0.0, 0.3, 0.5, 1.0, "off", "on", "drop", "keep", "flag", "redact", "cut", ["de"]]
STAGES: dict[str, dict[str, Any]] = {
    "length": {},
    "gopher_quality": {},
    "gopher_repetition": {},
    "fineweb_quality": {},
    "c4_quality": {},
    "pii": {},
    "language": {},
    "license": {},
}


def build(kind: str, settings: dict[str, Any]) -> RecordStage:
    stage_class: Any = known_stages()[kind]
    stage = stage_class(stage_class.Config.model_validate(settings), kind, "text")
    assert isinstance(stage, RecordStage)
    return stage


def measured(stage: RecordStage) -> tuple[dict[str, list[Any]], list[Any]]:
    """Return the signals of the texts, and what would be cut out of them."""
    licenses = ["MIT", None, "GPL-3.0 OR MIT", "none", "BSD", "MIT", "Apache-2.0"]
    records = pa.RecordBatch.from_pydict({"text": TEXTS, "user/license": licenses})
    stage.prepare()
    judged = stage.judge(TextBatch(pa.array(TEXTS), np.ones(len(TEXTS), np.bool_), records))
    cut = []
    if isinstance(stage, EditingStage) and stage.edits() and judged.findings is not None:
        cut = [row for row in judged.findings.to_pylist() if row["action"] in ("cut", "redact")]
    return {name: values.to_pylist() for name, values in judged.signals.items()}, cut


def other_settings(kind: str) -> Iterator[dict[str, Any]]:
    config = known_stages()[kind].Config
    for name in config.model_fields:
        for value in VALUES:
            try:
                config.model_validate({name: value})
            except ValidationError:
                continue
            if name != "name":
                yield {name: value}


@pytest.mark.parametrize("kind", STAGES)
def test_what_counts_as_a_limit_changes_no_measurement(kind: str) -> None:
    before = build(kind, STAGES[kind])
    found = measured(before)
    limits = 0
    for settings in other_settings(kind):
        stage = build(kind, settings)
        change = changed(before, stage)
        if change.settings and not change.measuring:
            limits += 1
            assert measured(stage) == found, settings
    assert limits >= {"pii": 0, "license": 1, "c4_quality": 3, "language": 4}.get(kind, 10)


def test_limits_by_language_are_limits() -> None:
    def stage(**settings: Any) -> GopherQuality:
        return GopherQuality(GopherQualityConfig.model_validate(settings), "quality", "text")

    def measuring(before: dict[str, Any], settings: dict[str, Any]) -> tuple[str, ...]:
        return changed(stage(**before), stage(**settings)).measuring

    german = {"by_language": {"de": {"minimum_words": 40}}}
    assert measuring({}, german) == measuring(german, {}) == ()
    assert measuring(german, {"by_language": {"de": {"minimum_words": "off"}}}) == ()
    assert measuring(german, {"by_language": {"de": {"stop_words": ["der", "die"]}}}) == ("by_language.de.stop_words",)
    assert measuring({}, {"stop_words": ["the", "of"], "minimum_words": 3}) == ("stop_words",)


def test_texts_and_signals_behind_a_stage_that_measures_anew_are_unknown() -> None:
    def stages(**of_c4: Any) -> list[RecordStage]:
        return [build("length", {}), build("c4_quality", of_c4), build("gopher_quality", {})]

    cutting = unknown_measurements(stages(), stages(minimum_line_words=7))
    assert [bool(reason) for reason in cutting] == [False, True, True]
    assert unknown_measurements(stages(), stages(minimum_sentences=2)) == ["", "", ""]
    flagging = unknown_measurements(stages(action="flag"), stages(action="flag", minimum_line_words=7))
    assert [bool(reason) for reason in flagging] == [False, True, False]


class Ruled(RecordStage):
    """Two rules and no measurement: what the records do is given."""

    Config = StageConfig
    summary = "For tests."

    def signals(self) -> tuple[Signal, ...]:
        return (Signal("value", "float64", "A value."),)

    def rules(self) -> tuple[Rule, ...]:
        return Rule("first", "value", "at_least", 1.0), Rule("second", "value", "at_most", 9.0)

    def measure(self, batch: TextBatch) -> dict[str, Any]:
        return {"value": pa.nulls(len(batch), pa.float64())}


def contains(told: Any, number: int) -> bool:
    return bool(told == number) if isinstance(told, int) else bool(told["at_least"] <= number <= told["at_most"])


@given(
    outcomes=st.integers(1, 12).flatmap(
        lambda records: st.lists(
            st.lists(st.sampled_from([STAYS, STAYS, UNKNOWN, 0, 1]), min_size=records, max_size=records),
            min_size=1,
            max_size=4,
        )
    ),
    seed=st.integers(0, 1 << 30),
)
def test_bounds_contain_whatever_the_unknown_records_do(outcomes: list[list[int]], seed: int) -> None:
    choose = random.Random(seed)
    count = len(outcomes[0])
    lengths = np.array([choose.randrange(100) for _ in range(count)])
    flow = Flow(np.full(count, SURE, np.uint8))
    here = np.ones(count, np.bool_)
    stage = Ruled(StageConfig(), "ruled", "text")
    for number, outcome in enumerate(outcomes):
        codes = np.array(outcome, np.int8)
        truth = np.array([choose.choice([STAYS, 0, 1]) if code == UNKNOWN else code for code in outcome])
        counts = StageCounts()
        counts.count(flow.states, codes)
        # At some stages it is known how many of the unknown ones stay, and by which rule the others leave.
        unknown = (codes == UNKNOWN) & (flow.states == SURE)
        staying = rule = None
        if choose.random() < 0.5 and number == 0:
            truth[unknown & (truth != STAYS)] = 1
            exact = int((unknown & (truth == STAYS)).sum())
            staying, rule = (exact, exact), 1
        flow.states = after(flow.states, codes)
        counts.add_characters(flow.states, lengths)
        flow.close(stage, counts, staying, rule)
        entry = flow.stages[-1]
        assert contains(entry["entered"], int(here.sum()))
        assert contains(entry["dropped"], int((here & (truth != STAYS)).sum()))
        for place, name in enumerate(("first", "second")):
            assert contains(entry["rules"][name], int((here & (truth == place)).sum()))
        here &= truth == STAYS
        low, high = flow.kept()
        assert low <= here.sum() <= high
        assert contains(entry["characters_out"], int(lengths[here].sum()))
    assert not (here & (flow.states == GONE)).any()
    assert (here | (flow.states != SURE)).all()
    if not any(UNKNOWN in outcome for outcome in outcomes):
        assert not (flow.states == MAYBE).any()
        assert low == high


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5) | st.none()), max_size=12))
def test_pareto_points_are_those_that_none_beats(pairs: list[tuple[int, int | None]]) -> None:
    points = [{"characters": characters, "mean": mean} for characters, mean in pairs]
    found = pareto(points)
    for place, (characters, mean) in enumerate(pairs):
        beaten = any(
            other_mean is not None and mean is not None and other >= characters and other_mean >= mean
            and (other, other_mean) != (characters, mean)
            for other, other_mean in pairs
        )  # fmt: skip
        assert found[place] == (mean is not None and not beaten)


def test_points_with_bounds_are_no_pareto_points() -> None:
    points: list[dict[str, Any]] = [
        {"characters": {"at_least": 1, "at_most": 9}, "mean": 1.0},
        {"characters": 4, "mean": 0.5},
    ]
    assert pareto(points) == [False, True]
    assert pareto([]) == []
