"""What all scorers share: settings, signals and reasons of a batch, and the table of scores."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.batch import USER_PREFIX
from corpus.errors import ThresherError
from corpus.stages import Signal, TextBatch, known_stages
from scorers.best import BestStage
from scorers.column import Column, ColumnConfig
from scorers.score_table import ScoreTable
from scorers.scoring import Keep, Pairs, Scores

WORDS = Signal("words", "int64", "Words of the text.")


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({}, "none is given"),
        ({"at_least": 1.0, "best": 5}, "at_least and best are given"),
        ({"best": 5, "values": {"a": 3.0}}, "needs keep.per"),
        ({"at_least": 1.0, "values": {"a": 3.0}}, "needs keep.per"),
        ({"best_fraction": 0.5, "per": "kind", "values": {"a": 1.5}}, "keep.values.a is 1.5; a fraction"),
        ({"best": 5, "per": "kind", "values": {"a": 1.5}}, "keep.values.a is 1.5; a number of records is whole"),
        ({"best": 5, "per": "kind", "values": {"a": -1.0}}, "not below 0"),
        ({"best": -1}, "greater than or equal to 0"),
        ({"best_fraction": 1.1}, "less than or equal to 1"),
        ({"best_fraction": math.nan}, "finite number"),
    ],
)
def test_keep_says_what_is_wrong(keep: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Keep.model_validate(keep)


def _column(**settings: Any) -> Any:
    config = ColumnConfig.model_validate({"column": "quality", **settings})
    return Column.variant(config)(config, "column", "text")


def test_settings_decide_which_stage_it_is() -> None:
    assert isinstance(_column(keep={"best": 5}), BestStage)
    assert isinstance(_column(keep={"best_fraction": 0.5}), BestStage)
    assert isinstance(_column(keep={"at_least": 0.5}), Column)
    assert isinstance(_column(), Column)
    assert known_stages()["column"] is Column
    rules = [rule.name for rule in _column(keep={"best": 5}).rules()]
    assert rules == ["unscorable", "keep"]
    assert [rule.name for rule in _column(keep={"at_least": 1.0}, unscorable="keep").rules()] == ["keep"]
    assert _column(keep={"best": 5}).record_part().rules() == ()
    names = [signal.name for signal in _column(keep={"best": 5}).signals()]
    assert names == ["score", "scored", "reason", "cutoff"]


def _judged(values: pa.Array, alive: list[bool] | None = None, **settings: Any) -> dict[str, list[Any]]:
    texts = pa.array(["text"] * len(values))
    ids = pa.array([f"r{row}" for row in range(len(values))])
    records = pa.RecordBatch.from_arrays([texts, ids, values], ["text", "record_id", f"{USER_PREFIX}quality"])
    mask = np.array([True] * len(values) if alive is None else alive)
    judgement = _column(**settings).judge(TextBatch(texts, mask, records))
    return {name: found.to_pylist() for name, found in judgement.signals.items()}


def test_scores_are_rounded_and_never_guessed() -> None:
    found = _judged(pa.array([0.123449, -0.00001, None, math.nan, -math.inf, 2.0, 7.0]), [True] * 6 + [False])
    assert found["score"] == [0.1234, 0.0, None, None, None, 2.0, None]
    assert math.copysign(1, found["score"][1]) == 1
    assert found["scored"] == [1, 1, 0, 0, 0, 1, None]
    assert found["reason"] == [None, None, "null", "not_finite", "not_finite", None, None]
    assert _judged(pa.array(["1.5", None]))["reason"] == ["not_a_number", "null"]
    assert _judged(pa.array([True, False]))["reason"] == ["not_a_number", "not_a_number"]
    assert _judged(pa.array([3, -(2**62)]))["score"] == [3.0, -float(2**62)]


def test_the_policy_to_fail_names_the_record_and_the_reason() -> None:
    values = pa.array([1.0, None, math.nan])
    assert _judged(values, [True, False, False], unscorable="fail")["scored"] == [1, None, None]
    with pytest.raises(ThresherError, match=r"column: the record r2 has no score \(not_finite\), and unscorable is"):
        _judged(values, [True, False, True], unscorable="fail")


class Counting:
    """Scores a text by its length, "" not at all, and counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, pairs: Pairs) -> Scores:
        texts = pairs.responses.to_pylist()
        self.asked += texts
        values = np.array([float(len(text)) if text else np.nan for text in texts])
        lengths = pa.array([len(text.split()) if text else None for text in texts], pa.int64())
        return Scores(values, [None if text else "empty" for text in texts], {"words": lengths})


def _open(folder: Path) -> ScoreTable:
    return ScoreTable.open(str(folder), {"model": "length"}, (WORDS,))


@given(st.lists(st.lists(st.sampled_from(["", "a", "b c", "d e f", "longer text", "x" * 40]), max_size=8), max_size=6))
def test_each_text_is_scored_once_and_found_again(tmp_path_factory: Any, batches: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("scores")
    table, scorer = _open(folder), Counting()
    known: set[str] = set()
    for batch in batches:
        scores, reused = table.scores(Pairs(None, pa.array(batch, pa.string())), scorer)
        assert reused.tolist() == [text in known for text in batch]
        known.update(batch)
        assert [None if np.isnan(value) else value for value in scores.values] == [len(text) or None for text in batch]
        assert scores.reasons == [None if text else "empty" for text in batch]
        assert scores.more["words"].to_pylist() == [len(text.split()) or None for text in batch]
    assert sorted(scorer.asked) == sorted(known)
    again = _open(folder)
    assert len(again) == len(table) == len(known)
    ordered = sorted(known)
    scores, reused = again.scores(Pairs(None, pa.array(ordered, pa.string())), Counting())
    assert reused.all()
    assert np.nan_to_num(scores.values).tolist() == [len(text) for text in ordered]


def test_many_batches_from_many_threads(tmp_path: Path) -> None:
    """What a thread found is there for all, however many runs of sorted rows there are."""
    table = _open(tmp_path)
    choose = random.Random(1)
    batches = [[f"text {choose.randrange(600)}" for _ in range(choose.randrange(1, 60))] for _ in range(80)]

    def score(batch: list[str]) -> bool:
        scores, _ = table.scores(Pairs(None, pa.array(batch)), Counting())
        return scores.values.tolist() == [float(len(text)) for text in batch]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(score, batches))
    texts = sorted({text for batch in batches for text in batch})
    scorer = Counting()
    for found in (table, _open(tmp_path)):
        scores, reused = found.scores(Pairs(None, pa.array(texts)), scorer)
        assert reused.all()
        assert scores.values.tolist() == [float(len(text)) for text in texts]
    assert scorer.asked == []


def test_prompt_and_response_are_kept_apart(tmp_path: Path) -> None:
    table, scorer = _open(tmp_path), Counting()
    for prompts, responses in ((["ab"], ["c"]), (["a"], ["bc"]), ([""], ["abc"]), ([None], ["abc"])):
        table.scores(Pairs(pa.array(prompts, pa.string()), pa.array(responses)), scorer)
    assert scorer.asked == ["c", "bc", "abc"]
    assert len(ScoreTable.open(str(tmp_path), {"model": "other"}, (WORDS,))) == 0


def test_what_does_not_last_is_not_kept(tmp_path: Path) -> None:
    def failing(pairs: Pairs) -> Scores:
        lasting = np.array([text != "lost" for text in pairs.responses.to_pylist()])
        values = np.where(lasting, 1.5, np.nan)
        reasons = [None if last else "server_error" for last in lasting]
        return Scores(values, reasons, {"words": pa.nulls(len(pairs), pa.int64())}, lasting)

    table = _open(tmp_path)
    scores, reused = table.scores(Pairs(None, pa.array(["kept", "lost", "kept"])), failing)
    assert scores.reasons == [None, "server_error", None]
    assert not reused.any()
    assert len(table) == len(_open(tmp_path)) == 1


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    table = _open(tmp_path)
    table.scores(Pairs(None, pa.array(["a"])), Counting())
    (file,) = Path(table.folder.root).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ThresherError, match=r"\.parquet: no file of a score table .*; remove it"):
        _open(tmp_path)
