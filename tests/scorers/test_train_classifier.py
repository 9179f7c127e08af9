"""Training fastText classifiers."""

from __future__ import annotations

import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.errors import ThresherError, UsageError
from scorers.train_classifier import Example, Recipe, area_under_curve, areas, is_held_out, main, read_examples, train

RECIPE = Recipe(epochs=5, dimensions=50)


def examples(count: int = 200) -> list[Example]:
    source = random.Random(5)
    words = {"good": ["clear", "because", "therefore", "example"], "bad": ["click", "here", "cookies", "subscribe"]}
    made = []
    for number in range(count):
        label = source.choice(["good", "bad"])
        text = " ".join(source.choice([*words[label], "the", "of", "is"]) for _ in range(12))
        made.append(Example(f"{text}\n{number}", label, str(number)))
    return made


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_area_is_the_share_of_pairs_in_order(scored: list[tuple[int, bool]]) -> None:
    scores = np.array([float(score) for score, _ in scored])
    positive = np.array([good for _, good in scored])
    if positive.all() or not positive.any():
        return
    pairs = [(one > other) + (one == other) / 2 for one in scores[positive] for other in scores[~positive]]
    assert area_under_curve(scores, positive) == pytest.approx(float(np.mean(pairs)))


def test_same_records_give_the_same_model(tmp_path: Path) -> None:
    one, other = tmp_path / "one.bin", tmp_path / "deep" / "other.bin"
    found = train(examples(), one, RECIPE)
    assert train(examples(), other, RECIPE) == found
    assert one.read_bytes() == other.read_bytes()
    assert set(found.areas) == {"good", "bad"}
    assert min(found.areas.values()) > 0.99
    assert sum(found.trained.values()) + sum(found.held_out.values()) == 200
    assert sum(found.held_out.values()) == sum(is_held_out(str(number), 0.2) for number in range(200))


def test_small_model(tmp_path: Path) -> None:
    large, small = tmp_path / "model.bin", tmp_path / "model.ftz"
    train(examples(), large, RECIPE)
    found = train(examples(), small, RECIPE)
    assert small.stat().st_size < large.stat().st_size / 10
    assert min(found.areas.values()) > 0.99


def test_labels_inside_texts_are_words(tmp_path: Path) -> None:
    hostile = [Example(f"__label__other {example.text}", example.label, example.group) for example in examples()]
    found = train(hostile, tmp_path / "model.bin", RECIPE)
    assert set(found.trained) == set(found.areas) == {"good", "bad"}


def records() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"t": one.text, "l": one.label, "g": one.group} for one in examples(60)]
    return [*made, {"t": None, "l": "good", "g": 1}, {"t": "text", "l": None, "g": 1}, {"t": " \n", "l": "bad", "g": 2}]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in records())
    table = pa.Table.from_pylist([record | {"g": str(record["g"])} for record in records()])
    pq.write_table(table, tmp_path / "b.parquet")
    columns = ["--text-column", "t", "--label-column", "l"]
    files = [str(tmp_path / "a.jsonl.gz"), str(tmp_path / "b.parquet")]
    recipe = ["--group-column", "g", "--epochs", "5", "--buckets", "2000", "--held-out", "0.5"]
    assert main([str(tmp_path / "model.ftz"), *files, *columns, *recipe]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["bad", "good"]
    assert all("AUC" in line for line in lines)
    counted = [int(line.split()[1]) + int(line.split()[4]) for line in lines]
    assert sum(counted) == 120
    assert main([str(tmp_path / "model.zip"), *files, *columns]) == 2
    assert "has the ending .bin" in capsys.readouterr().err
    assert main([str(tmp_path / "model.bin"), *files]) == 2
    assert "has no field text" in capsys.readouterr().err


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for content, message in (
        ('{"text": "a", "label": "b"}\n{"text": ', r"a\.jsonl:2: no JSON"),
        ("[]\n", r"a\.jsonl:1: has no field text"),
        ('{"text": "a"}\n', "has no field label"),
        ('{"text": 1, "label": "b"}\n', "text is int"),
        ('{"text": "a", "label": "very good"}\n', "a label has no white space"),
    ):
        file.write_text(content)
        with pytest.raises(UsageError, match=message):
            read_examples([file], "text", "label")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="has no column text; it has a"):
        read_examples([tmp_path / "a.parquet"], "text", "label")
    (tmp_path / "b.parquet").write_text("no")
    for name in ("b.parquet", "absent.jsonl"):
        with pytest.raises(UsageError, match=f"{name}: cannot be read"):
            read_examples([tmp_path / name], "text", "label")
    with pytest.raises(ThresherError, match="smaller learning rate"):
        train(examples(), tmp_path / "model.bin", Recipe(learning_rate=1e30))
    with pytest.raises(UsageError, match="wanted are 10 of at least two labels"):
        train([Example("a", "b", "c")] * 20, tmp_path / "model.bin", RECIPE)


def test_quality_of_answers(shared: Path, tmp_path: Path) -> None:
    """Good answers against bad ones by GPT-4's scores, on questions that were not trained on."""
    from scorers.scored_answers import read_scored_answers

    answers = read_scored_answers(shared / "data" / "quality" / "vicuna_gpt4_scores")
    parts: tuple[list[Example], list[Example]] = ([], [])
    for answer in answers:
        if answer.score >= 7.5 or answer.score <= 4:
            label = "good" if answer.score >= 7.5 else "bad"
            group = str(answer.question_id)
            parts[answer.question_id % 5 == 0].append(Example(answer.answer, label, group))
    trained, unseen = parts
    assert (len(trained), len(unseen)) == (1210, 306)
    model = tmp_path / "quality.bin"
    begin = time.process_time()
    train(trained, model, Recipe(held_out=0.0))
    assert time.process_time() - begin < 30
    by_length = area_under_curve(
        np.array([float(len(one.text)) for one in unseen]), np.array([one.label == "good" for one in unseen])
    )
    assert by_length < 0.8
    assert areas(model, unseen)["good"] > 0.975
