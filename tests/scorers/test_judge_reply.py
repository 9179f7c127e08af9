"""Scores are read as they are meant, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scorers.judge_reply import read_score

SCALE = (0.0, 5.0)
SCORES = st.integers(0, 50).map(lambda tenths: tenths / 10)


def read(
    reply: str | None, dimension: str = "accuracy", scale: tuple[float, float] = SCALE, cut: bool = False
) -> object:
    """Return the score, or the reason why there is none."""
    value, reason = read_score(reply, scale, dimension, cut)
    assert (value is None) != (reason is None)
    return reason if value is None else value


def test_the_replies_of_the_case(shared: Path) -> None:
    folder = shared / "cases" / "s05-numbers-in-judge-replies"
    answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    found = {name: read(reply) for name, reply in answers.items()}
    assert found == {
        "j01": 4.5, "j02": 3.0, "j03": 4.0, "j04": 4.0, "j05": 2.5, "j06": 4.0, "j07": 2.0, "j08": 4.5, "j09": 0.8,
        "j10": "out_of_range", "j11": 4.0, "j12": 3.5, "j13": "out_of_range", "j14": "unparsable", "j15": 4.0,
        "j16": 4.0, "j17": 4.0, "j18": 1.0, "j19": 5.0, "j20": "out_of_range", "j21": 4.0, "j22": 4.0, "j23": 4.0,
        "j24": "out_of_range", "j25": 5.0, "j26": 0.0,
    }  # fmt: skip
    # Another dimension was asked for: one of the two numbers would be a guess.
    assert read(answers["j17"], "clarity") == "ambiguous"
    assert read(answers["j17"], "helpfulness") == 2.0


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("4\n\nThere are 2 mistakes.", 4.0),
        ("4\n5", "ambiguous"),
        ("Score (0-5): 4", 4.0),
        ("Score (out of 5): 4", 4.0),
        ("Maximum score: 5. Score: 3", 3.0),
        ("The overall score for accuracy is 4.", 4.0),
        ("5/5 for style; accuracy: 2/5", 2.0),
        ("Score: **4.5**/5", 4.5),
        ("Score: 4/5 (80%)", 4.0),
        ("The final answer: \\boxed{4}", 4.0),
        ("While not perfect, I'd give it a 4.", 4.0),
        ("2 points were deducted. Score: 3", 3.0),
        ("Score:\n4", 4.0),
        ("Rating: 4,5 / 5", 4.5),
        ("５点満点で４.５点", 4.5),
        ("評価：4.5/5", 4.5),
        ("이 답변의 점수는 4점입니다.", 4.0),
        ("5점 만점에 4.5점을 드립니다.", 4.5),
        ("满分5分，得分4分", 4.0),
        ("Оценка: 4", 4.0),
        ("النتيجة: ٤", 4.0),
        ("[4]", 4.0),
        ("Score: 4 or 5", "ambiguous"),
        ("3-4", "ambiguous"),
        ("Score: 5 - 1", "ambiguous"),
        ("Score: 4 and a half", "ambiguous"),
        ("Score: 4½", "ambiguous"),
        ("I cannot give a score of 5.", "ambiguous"),
        ("I don't think it deserves a 5", "ambiguous"),
        ("Score: less than 3", "unparsable"),
        ("There are 3 mistakes.", "unparsable"),
        ("1점 감점했습니다", "unparsable"),
        ("GPT4 says hello", "unparsable"),
        ("1st place", "unparsable"),
        ("Note: 3 mistakes", "unparsable"),
        ("1. Fine\n2. Good", "ambiguous"),
        ("8/10", "other_scale"),
        ("Score: 80%", "other_scale"),
        ("10점 만점에 4점", "ambiguous"),
        ("Score: 1,000", "out_of_range"),
        ("Score: 6", "out_of_range"),
        ("-1", "out_of_range"),
        ("−1", "out_of_range"),
        ("1e400", "out_of_range"),
        ("", "no_answer"),
        (None, "no_answer"),
        ("<think>I would say 3", "no_answer"),
        ('{"score": 4.5, "expl', 4.5),
        ('{"score": 4', "cut_off"),
        ('```json\n{"score": 4', "cut_off"),
        ('{"Score": "4/5"}', 4.0),
        ('{"accuracy": 2, "score": 4}', 2.0),
        ('{"score": 4, "x": {"score": 1}}', 4.0),
        ('{"score": 4} {"score": 3}', "ambiguous"),
        ('{"score": true}', "unparsable"),
        ('{"score": null}', "unparsable"),
        ('{"score": NaN}', "unparsable"),
        ('{"score": 1e999}', "out_of_range"),
        (f'{{"score": {10**400}}}', "out_of_range"),
        ('{"stars": 4}', "unparsable"),
        ("The answer is right. " * 1000 + "Score: 4", "cut_off"),
    ],
)
def test_replies(reply: str | None, wanted: object) -> None:
    assert read(reply) == wanted


def test_a_reply_that_was_cut_off_has_no_number_at_its_end() -> None:
    assert read("4", cut=True) == "cut_off"
    assert read("", cut=True) == "cut_off"
    assert read("I like it, but", cut=True) == "cut_off"
    assert read("Score: 4\nIt is", cut=True) == 4.0


def test_the_scale_decides_what_its_numbers_are() -> None:
    assert read("On a scale of 1 to 10, I rate this 8.", scale=(1, 10)) == 8.0
    assert read("On a scale of 1 to 10, I rate this 8.") == "out_of_range"
    assert read("7/10", scale=(1, 10)) == 7.0
    assert read("Score: 85.5", scale=(0, 100)) == 85.5
    assert read("Score: -0.5", scale=(-1, 1)) == -0.5


FRAMES = [
    "{}", "{}.", "Score: {}", "**Score:** {}", "{}/5", "{} out of 5", "I rate this {}.", "점수: {}", "得分：{}分",
    '{{"score": {}}}', 'Sure!\n```json\n{{"score": "{}", "explanation": "3 slips"}}\n```',
    "Accuracy: {}\nHelpfulness: 1", "On a scale from 0 to 5, I give it a {}.",
    "Score: {}\nIt has 17 lines, of which 3 are wrong.",
]  # fmt: skip


@given(SCORES, st.sampled_from(FRAMES))
def test_what_is_said_in_a_usual_way_is_read(score: float, frame: str) -> None:
    for written in {f"{score}", f"{score:g}"}:
        assert read(frame.format(written)) == score


WORDS = [
    "score",
    "accuracy",
    ":",
    "is",
    "not",
    "/",
    "5",
    "4",
    "4.5",
    "-",
    "out of",
    "to",
    "점",
    "%",
    "{",
    "}",
    '"',
    "\n",
]


@given(
    st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join), st.lists(st.sampled_from(WORDS)).map("".join))
)
@example('{"score": ' * 50_000)
@example("9" * 5000)
def test_any_reply_has_a_score_within_the_scale_or_a_reason(reply: str) -> None:
    found = read(reply)
    assert isinstance(found, str) or 0 <= found <= 5


@given(st.text(alphabet="abcdefg .,!?\n"), st.integers(0, 5))
def test_a_number_that_nobody_calls_the_score_is_none(text: str, number: int) -> None:
    assert read(f"There are {number} mistakes in it. {text}") in ("unparsable", "ambiguous")
