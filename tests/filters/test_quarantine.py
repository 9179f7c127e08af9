"""Counts of groups add up in any order, and outliers are told by the modified z-score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.batch import chunk_key
from corpus.errors import ThresherError
from corpus.stages import TextBatch
from filters.quarantine import MOST_GROUPS, Quarantine, QuarantineConfig, group_hashes
from filters.quarantine_groups import Groups, count_groups, deviations, merge_groups

batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.lists(st.integers(0, 6), max_size=4)
    ),
    max_size=6,
)


def _counts(batch: tuple[list[tuple[int, bool]], list[int]], key: int) -> Groups:
    rows, dead = batch
    return count_groups(
        key,
        np.array([group for group, _ in rows], np.uint64),
        np.array([alive for _, alive in rows], np.bool_),
        np.array(dead, np.uint64),
    )


@given(batches, st.randoms(use_true_random=False))
def test_counts_add_up_in_any_order(parts: list[Any], choose: Any) -> None:
    counts = [_counts(part, chunk_key(number, 0)) for number, part in enumerate(parts)]
    whole = merge_groups(counts)
    shuffled = choose.sample(counts, len(counts))
    middle = len(shuffled) // 2
    again = merge_groups([merge_groups(shuffled[:middle]), merge_groups(shuffled[middle:])])
    assert whole.pack() == again.pack()
    assert Groups.unpack(whole.pack()).pack() == whole.pack()
    for row, group in enumerate(whole.hashes.tolist()):
        decoded = [alive for rows, _ in parts for name, alive in rows if name == group]
        dead = sum(name == group for _, letters in parts for name in letters)
        assert whole.read[row] == len(decoded) + dead
        assert whole.dead[row] == dead
        assert whole.dropped[row] == decoded.count(False)
        first = next(
            number
            for number, (rows, letters) in enumerate(parts)
            if group in letters or group in [name for name, _ in rows]
        )
        assert whole.places[row] == chunk_key(first, 0)


def test_a_record_that_a_stage_could_not_judge_is_dead_and_not_dropped() -> None:
    alive, unjudged = np.array([True, False, False, False]), np.array([False, False, True, False])
    groups = count_groups(5, np.array([7, 7, 7, 8], np.uint64), alive, np.array([7], np.uint64), unjudged)
    assert [groups.hashes.tolist(), groups.read.tolist(), groups.dead.tolist()] == [[7, 8], [4, 1], [2, 0]]
    assert groups.dropped.tolist() == [1, 1]
    assert groups.drop_shares.tolist() == [0.5, 1.0]


def test_deviations_are_modified_z_scores() -> None:
    # Median 0.12, distances 0.02 0.01 0 0.01 0.68: their median is 0.01.
    shares = np.array([0.10, 0.11, 0.12, 0.13, 0.80])
    assert deviations(shares, 1e-9) == pytest.approx(0.6745 * (shares - 0.12) / 0.01)
    assert deviations(shares, 0.2) == pytest.approx((shares - 0.12) / 0.2)
    assert deviations(np.zeros(3), 0.05).tolist() == [0, 0, 0]
    assert deviations(np.array([0.7]), 0.05).tolist() == [0]
    assert len(deviations(np.zeros(0), 0.05)) == 0


def _groups(*counts: tuple[int, int, int]) -> Groups:
    columns = np.array(counts, np.int64).reshape(-1, 3).T
    return Groups(np.arange(len(counts), dtype=np.uint64), np.zeros(len(counts), np.int64), *columns)


def _stage(**settings: Any) -> Quarantine:
    return Quarantine(QuarantineConfig.model_validate(settings), "quarantine", "text")


def test_each_limit_names_the_groups_beyond_it() -> None:
    groups = _groups((1000, 0, 100), (1000, 10, 99), (1000, 200, 80), (1000, 201, 80), (500, 0, 200), (2000, 0, 1900))
    _, listed, number = _stage(maximum_drop_deviation=20, maximum_dead_deviation="off").found(groups)
    assert [(entry["hash"], entry["limits"]) for entry in listed] == [(3, ["maximum_dead_share"])]
    assert number == 1
    _, listed, _ = _stage(maximum_drop_share=0.4, maximum_dead_share="off").found(groups)
    assert [(entry["hash"], entry["limits"]) for entry in listed] == [
        (5, ["maximum_drop_share", "maximum_drop_deviation"]),
        (2, ["maximum_dead_deviation"]),
        (3, ["maximum_dead_deviation"]),
        (4, ["maximum_drop_deviation"]),
    ]
    off = dict.fromkeys(
        ("maximum_dead_share", "maximum_drop_share", "maximum_dead_deviation", "maximum_drop_deviation"), "off"
    )
    assert _stage(**off).found(groups)[1:] == ([], 0)
    assert _stage().found(_groups())[1:] == ([], 0)


def test_records_get_the_shares_of_their_group() -> None:
    stage = _stage(by="source", minimum_records=1)
    hashes = group_hashes(stage.config, "a.jsonl", pa.array(["web", "books", None]))
    file = group_hashes(QuarantineConfig(by="file"), "a.jsonl", pa.array(["web"]))
    assert hashes[2] == file[0]
    order = np.argsort(hashes)[:2]
    groups = Groups(hashes[order], np.zeros(2, np.int64), *np.array([[10, 10], [1, 2], [3, 4]], np.int64))
    part = stage.verdict_part()
    part.receive(stage.found(groups)[0])
    records = pa.record_batch({"source": pa.array(["web", "books", None])}).replace_schema_metadata({"file": "a.jsonl"})
    texts = pa.array(["", "", ""])
    found = part.judge(TextBatch(texts, np.ones(3, np.bool_), records)).signals
    wanted: list[float | None] = [None, None, None]
    for place, row in enumerate(order.tolist()):
        wanted[row] = [0.1, 0.2][place]
    assert found["dead_share"].to_pylist() == wanted
    part.receive(stage.found(_groups())[0])
    assert part.judge(TextBatch(texts, np.ones(3, np.bool_), records)).signals["drop_share"].null_count == 3


def test_too_many_groups_end_the_run_by_name() -> None:
    _stage().check_number(MOST_GROUPS)
    with pytest.raises(ThresherError, match=r"minimum_records \(100\).*raise stages\.quarantine\.minimum_records"):
        _stage().check_number(MOST_GROUPS + 1)


@pytest.mark.parametrize(
    "settings", [{"by": "licence"}, {"maximum_dead_share": 1.1}, {"smallest_spread": 0}, {"action": "cut"}]
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _stage(**settings)
