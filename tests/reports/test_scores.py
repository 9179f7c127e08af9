"""What the report says of scores, against plain Python."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.stages import known_stages
from corpus.verdicts import failures_column, reused_column, signal_column
from reports.counts import total_of
from reports.fates import Fates, StageInfo
from reports.scores import bins_of, in_units, score_counts, score_report
from scorers.column import ColumnConfig

SCORES = st.integers(-(10**6), 10**6).map(lambda units: units / 10**4) | st.floats(-1e300, 1e300).map(
    lambda score: round(score, 4) + 0.0
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "score": st.none() | SCORES,
            "length": st.integers(1, 10**6),
            "source": st.sampled_from(["a", "b", None]),
            "language": st.sampled_from(["en", None]),
            "left": st.sampled_from(["before", "here", "behind", "never"]),
            "again": st.booleans(),
        }
    ),
    max_size=40,
)


def _counts(records: list[dict[str, Any]]) -> Any:
    """Return the counts of one batch, as the tables of a run give them."""
    stage = known_stages()["column"](ColumnConfig(column="quality"), "column", "text")
    infos = [StageInfo("input", 0, (), None), StageInfo("column", 1, stage.rules(), stage)]
    scores = [record["score"] for record in records]
    places = {"before": 0, "here": 1, "behind": 2, "never": -1}
    columns = {
        signal_column("column", "score"): pa.array(scores, pa.float64()),
        signal_column("column", "scored"): pa.array([int(score is not None) for score in scores], pa.int64()),
        signal_column("column", "reason"): pa.array(
            [None if score is not None else "null" for score in scores], pa.string()
        ),
        reused_column("column"): pa.array([record["again"] for record in records], pa.bool_()),
        failures_column("column"): pa.array([0] * len(records), pa.int64()),
    }
    left = np.array([places[record["left"]] for record in records], np.int64)
    fates = Fates(columns, (), left, np.zeros(len(records), np.bool_))
    batch = pa.RecordBatch.from_pydict(
        {
            "characters": pa.array([record["length"] for record in records], pa.int64()),
            "source": pa.array([record["source"] for record in records], pa.string()),
        }
    )
    return score_counts(infos, fates, batch, pa.array([record["language"] for record in records], pa.string()))


def _floor(score: float) -> float:
    """Return a score rounded down to 2 significant digits, in decimals."""
    exact = Decimal(round(Decimal(float(np.round(score * 10**4)))))
    digits = max(len(str(abs(int(exact)))) - 2, 0)
    return int((exact / 10**digits).to_integral_value(ROUND_FLOOR)) * 10**digits / 10**4


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


@given(SCORES)
def test_bins_have_two_significant_digits(score: float) -> None:
    (found,) = bins_of(in_units(np.array([score]))).tolist()
    assert found / 10**4 == _floor(score)


@given(RECORDS, st.integers(0, 40))
def test_the_report_is_that_of_the_records(records: list[dict[str, Any]], border: int) -> None:
    counts = total_of([_counts(records[:border]), _counts(records[border:])])
    found = score_report(counts)["column"]
    entered = [record for record in records if record["left"] != "before"]
    scored = [record for record in entered if record["score"] is not None]
    floors = sorted(_floor(record["score"]) for record in scored)
    assert found["scored"] == len(scored)
    assert sum(found["unscorable"].values()) == len(entered) - len(scored)
    assert found["curve"] == [
        {"at_least": limit, "kept": sum(floor >= limit for floor in floors)} for limit in sorted(set(floors))
    ]
    assert found["quantiles"] == {
        f"{percent / 100:g}": floors[max(1, math.ceil(percent * len(floors) / 100)) - 1]
        for percent in (5, 25, 50, 75, 95)
        if floors
    }
    for name, group in (("by_language", "language"), ("by_source", "source")):
        sizes = {key: sum(record[group] == key for record in scored) for key in ("a", "b", "en")}
        listed = {key: entry["scored"] for key, entry in found[f"quantiles_{name}"].items()}
        assert listed == {key: size for key, size in sizes.items() if size}
    stayed = [record["score"] for record in scored if record["left"] != "here"]
    dropped = [record["score"] for record in scored if record["left"] == "here"]
    for key, values in (("mean", stayed + dropped), ("mean_of_kept", stayed), ("mean_of_dropped", dropped)):
        expected = _mean(values)
        assert found[key] == (None if expected is None else pytest.approx(expected, rel=1e-9, abs=2e-4))
    table = counts["reused"]["column"]
    assert table == {"scored": len(scored), "from_table": sum(record["again"] for record in scored)}


@given(st.lists(st.tuples(st.integers(-500, 500), st.integers(1, 500)), min_size=2, max_size=30))
def test_correlation_is_pearsons(pairs: list[tuple[int, int]]) -> None:
    records = [
        {"score": score / 4, "length": length, "source": None, "language": None, "left": "never", "again": False}
        for score, length in pairs
    ]
    found = score_report(_counts(records))["column"]["correlation_with_length"]
    scores, lengths = np.array(pairs, np.float64).T
    if scores.std() == 0 or lengths.std() == 0:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(scores, lengths)[0, 1], abs=1e-4)


def test_huge_scores_are_counted_as_they_are() -> None:
    """Times in nanoseconds, say: in ten-thousandths they are beyond 64 bits."""
    records = [
        {"score": 1.7e18 + 1e15 * number, "length": number + 1, "source": "a", "language": "en", "left": "never"}
        | {"again": False}
        for number in range(100)
    ]
    found = score_report(_counts(records))["column"]
    assert found["mean"] == pytest.approx(1.7e18 + 49.5e15)
    assert found["quantiles"] == {"0.05": 1.7e18, "0.25": 1.7e18, "0.5": 1.7e18, "0.75": 1.7e18, "0.95": 1.7e18}
    assert found["correlation_with_length"] == 1
    extreme = [{**record, "score": (-1) ** number * 1e300} for number, record in enumerate(records)]
    assert abs(score_report(_counts(extreme))["column"]["correlation_with_length"]) < 0.2
