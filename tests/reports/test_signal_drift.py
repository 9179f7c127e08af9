"""Signals and contents of two runs that come in pieces, against what the whole columns give."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus.errors import ThresherError, UsageError
from reports import common_contents, signal_drift
from reports.distribution import Distribution
from reports.drift import kolmogorov_smirnov, stability_index
from reports.signal_drift import NameCounts, RunSignals, compare_signals

ROWS = 400


def _table(seed: int) -> pa.Table:
    numbers = np.random.default_rng(seed)
    words = numbers.poisson(40 + 5 * seed, ROWS)
    scores = np.where(numbers.random(ROWS) < 0.1, np.nan, numbers.normal(seed, 1, ROWS))
    return pa.table(
        {
            "record_id": [f"{place}" for place in range(ROWS)],
            "kept": [True] * ROWS,
            "rules.words": pa.array(words, pa.int64(), mask=numbers.random(ROWS) < 0.2),
            "model.score": scores,
            "rules.both": words.astype(np.float64) if seed else words,
            "rules.none": pa.nulls(ROWS, pa.float64()),
            "language.label": np.array(["en", "ko", "de"])[numbers.integers(0, 2 + seed, ROWS)],
            "duplicates.cluster_id": [f"{seed}-{place}" for place in range(ROWS)],
            f"only.{seed}": np.zeros(ROWS),
        }
    )


def _signals(table: pa.Table, rows_at_once: int) -> RunSignals:
    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(list(columns)).to_batches(rows_at_once)

    return RunSignals({field.name: str(field.type) for field in table.schema}, batches)


def _finite(table: pa.Table, name: str) -> Any:
    values = table[name].drop_null().to_numpy().astype(np.float64)
    return values[np.isfinite(values)]


def test_pieces_in_any_order_give_what_the_whole_columns_do(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = _table(0), _table(1)
    found = compare_signals(_signals(before, ROWS), _signals(after, ROWS))
    names = ["rules.words", "model.score", "rules.both", "rules.none", "language.label", "duplicates.cluster_id"]
    assert [entry["signal"] for entry in found] == names
    for entry in found[:3]:
        first, second = (_finite(table, entry["signal"]) for table in (before, after))
        both = np.concatenate([first, second])
        shares = [(sample[:, None] <= both).mean(axis=0) for sample in (first, second)]
        assert entry["kolmogorov_smirnov"] == pytest.approx(np.abs(shares[0] - shares[1]).max())
        assert entry["stability_index"] == stability_index(Distribution.of(first), Distribution.of(second)) > 0
        assert entry["median"]["before"] == pytest.approx(np.median(first))
        assert entry["mean"]["after"] == pytest.approx(second.mean())
        assert entry["missing_share"]["after"] == pytest.approx(1 - len(second) / ROWS)
        assert entry["precision"] == 0
    # Nothing but who has it is told of a signal without values, and of ids.
    assert [set(entry) for entry in (found[3], found[5])] == [{"signal", "missing_share"}] * 2
    labels = [table["language.label"].to_pylist() for table in (before, after)]
    german = labels[1].count("de") / ROWS
    assert found[4]["total_variation"] == pytest.approx(
        german + max(0, _gain(labels, "en")) + max(0, _gain(labels, "ko"))
    )
    assert found[4]["names"][0]["name"] == "de"
    assert found[4]["names"][0]["after"] == pytest.approx(german)

    monkeypatch.setattr(signal_drift, "VALUES_AT_ONCE", 30)
    monkeypatch.setattr(signal_drift, "COLUMNS_AT_ONCE", 2)
    order = random.Random(3).sample(range(ROWS), ROWS)
    again = compare_signals(_signals(before.take(order), 7), _signals(after.take(order), 64))
    assert again == found


def _gain(labels: Sequence[Sequence[str]], name: str) -> float:
    return (labels[1].count(name) - labels[0].count(name)) / ROWS


def test_values_beyond_the_bound_say_how_exact_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.distribution.MOST_VALUES", 64)
    before, after = _table(0), _table(1)
    entry = compare_signals(_signals(before, 50), _signals(after, 50))[1]
    first, second = (_finite(table, "model.score") for table in (before, after))
    assert 0 < entry["precision"] < 1
    assert math.log2(entry["precision"]).is_integer()
    assert abs(entry["median"]["before"] - np.median(first)) <= entry["precision"] * abs(np.median(first)) + 0.05
    exact = kolmogorov_smirnov(Distribution(*_exact(first)), Distribution(*_exact(second)))
    assert entry["kolmogorov_smirnov"] == pytest.approx(exact, abs=0.1)
    assert entry["kolmogorov_smirnov"] <= exact


def _exact(values: Any) -> tuple[Any, Any]:
    keys, counts = np.unique(
        np.where(values < 0, values.view(np.int64) ^ ((1 << 63) - 1), values.view(np.int64)), return_counts=True
    )
    return keys, counts


@given(st.lists(st.sampled_from("abcdefg") | st.none(), max_size=40), st.integers(1, 9))
def test_names_are_counted_up_to_a_bound_in_any_order(values: list[str | None], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal_drift, "MOST_NAMES", 4)
        patch.setattr(signal_drift, "LEAST_RECORDS", 2)
        results = []
        for order in (values, values[::-1]):
            counts = NameCounts()
            for start in range(0, len(order), at_once):
                counts.add(pa.array(order[start : start + at_once], pa.string()))
            results.append(counts.names())
            assert counts.missing_share() == pytest.approx(values.count(None) / len(values) if values else 0)
    known = [value for value in values if value is not None]
    expected = {name: known.count(name) for name in known}
    if len(expected) > 4 or 2 * len(expected) > len(known):
        expected = None  # type: ignore[assignment]
    assert results == [expected, expected]


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(st.lists(st.integers(0, 30), max_size=60), st.lists(st.integers(15, 45), max_size=60), st.integers(1, 20))
def test_contents_in_parts_are_those_of_both(before: list[int], after: list[int], at_once: int) -> None:
    # Spread over all leading bits; the second half of a hash is not looked at.
    def hashes(numbers: list[int]) -> list[str]:
        return [f"{number * 0x058D_3A71_9C0F_55B3 % 2**64:016x}{place:016x}" for place, number in enumerate(numbers)]

    def batches(numbers: list[int]) -> Iterator[pa.RecordBatch]:
        yield from pa.table({"content_hash": pa.array(hashes(numbers), pa.string())}).to_batches(at_once)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_contents, "CONTENTS_AT_ONCE", 9)
        found = common_contents.common_contents(batches(before), batches(after), max(len(before), len(after)))
    common = len({*before} & {*after})
    assert found == {
        "contents": common,
        "share_of_before": common / len({*before}) if before else None,
        "share_of_after": common / len({*after}) if after else None,
    }


def test_a_full_disk_and_a_damaged_hash() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("wb", 0) as file, pytest.raises(ThresherError, match=r"/dev: .*TMPDIR"):
        common_contents._append(file, np.arange(4, dtype=np.uint64))
    for damaged in ("0" * 31, "0" * 33, "x" * 32):
        with pytest.raises(UsageError, match="content_hash: not 32 hexadecimal digits"):
            common_contents.leading_bits(pa.array([damaged]))
