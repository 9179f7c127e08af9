"""Answers that a judge gave scores, to train reward models on and to measure them with.

The layout that is read is that of the evaluation folder of QLoRA (Dettmers et al., 2023, arXiv 2305.14314, MIT): the
answers of some systems to the 80 Vicuna questions, and GPT-4's scores from 1 to 10 of each beside GPT-3.5's answer,
shown in both orders.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.errors import UsageError

QUESTIONS, GENERATIONS, RATINGS = "vicuna_questions.jsonl", "generations", "ratings-gpt4-relative-gpt-3.5"
REFERENCE = "answer_gpt35"
REFERENCE_IN_NAMES = "gpt-3.5"
RATINGS_ENDING = "-gpt4-reviewer"

# Scores on the judge's scale for answers that are bad by construction.
SHUFFLED, OTHER_QUESTION, EMPTY, CUT, GIBBERISH, REPEATED = 1.5, 2.0, 1.0, 2.5, 1.0, 1.0
CUT_WORDS = 4


@dataclass(frozen=True)
class ScoredAnswer:
    """An answer to a question.

    Attributes:
        question_id: the question, which all its answers share.
        system: what gave the answer.
        question, answer: the texts.
        score: on the judge's scale, the mean over its ratings.
        made_bad: whether the answer is bad by construction.
    """

    question_id: int
    system: str
    question: str
    answer: str
    score: float
    made_bad: bool = False


def read_scored_answers(folder: Path) -> list[ScoredAnswer]:
    """Return all answers that have a text and a rating, in the order of question and system.

    In a rating, which of the two scores is whose follows from the answers' ids: names of files tell another order than
    the ratings inside most of them have. Ratings with a score that is not above 0 are no ratings.

    Raises UsageError where the folder has another layout.
    """
    questions = {row["question_id"]: row["text"] for _, row in _rows(folder / QUESTIONS, "text")}
    answers: dict[tuple[int, str], str] = {}
    reference_ids: set[str] = set()
    for name, row in _rows(folder / GENERATIONS / "*.jsonl", "text"):
        # Where there is a generation, the text is that of the question.
        answers[row["question_id"], _system(name)] = row.get("generation", row["text"])
        if name == REFERENCE:
            reference_ids.add(row["answer_id"])
    if not reference_ids:
        raise UsageError(f"{folder / GENERATIONS}: {REFERENCE}.jsonl is missing, whose ids tell the scores apart")
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for name, row in _rows(folder / RATINGS / "*.jsonl", "answer1_id", "answer2_id", "score"):
        first, second = name.removesuffix(RATINGS_ENDING).split("-vs-")
        system = _system(second if first == REFERENCE_IN_NAMES else first)
        if min(row["score"]) <= 0:
            continue
        place = 0 if row["answer1_id"] in reference_ids else 1
        scores[row["question_id"], REFERENCE_IN_NAMES].append(row["score"][place])
        scores[row["question_id"], system].append(row["score"][1 - place])
    return [
        ScoredAnswer(number, system, questions[number], text, float(np.mean(scores[number, system])))
        for (number, system), text in sorted(answers.items())
        if (number, system) in scores
    ]


def _system(name: str) -> str:
    short = name.removeprefix("answer_").partition("-vicuna-generations")[0]
    return REFERENCE_IN_NAMES if name == REFERENCE else short


def _rows(pattern: Path, *fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the name of the file, without suffix, and each row; all rows have the fields and question_id."""
    files = sorted(pattern.parent.glob(pattern.name))
    if not files:
        raise UsageError(f"{pattern}: no such file; give a folder with {QUESTIONS}, {GENERATIONS}/ and {RATINGS}/")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
            if line:
                yield file.stem, _row(line, f"{file}:{number}", ("question_id", *fields))


def _row(line: str, place: str, fields: Sequence[str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place}: no JSON ({error.msg}); repair or remove the line") from error
    if not isinstance(row, dict) or not row.keys() >= set(fields):
        raise UsageError(f"{place}: no object with the fields {', '.join(fields)}; repair or remove the line")
    return row


def made_bad(answers: Sequence[ScoredAnswer]) -> list[ScoredAnswer]:
    """Return nine answers to each question that are bad by construction, with scores on the same scale.

    Two are good answers with the words shuffled, three answer other questions; one is empty, one cut after four words,
    one of random letters, and one repeats a word. All texts come from the given answers, so those of a fold stay in it.
    """
    by_question: dict[int, list[ScoredAnswer]] = defaultdict(list)
    for answer in answers:
        if len(answer.answer.split()) > CUT_WORDS:
            by_question[answer.question_id].append(answer)
    bad = []
    for number, own in by_question.items():
        chance = random.Random(number)
        good = sorted(own, key=lambda answer: -answer.score)[: len(own) // 2]
        others = [answer for other, found in by_question.items() if other != number for answer in found]
        texts = [("shuffled", _shuffled(chance.choice(good).answer, chance), SHUFFLED) for _ in range(2)]
        texts += [("other_question", answer.answer, OTHER_QUESTION) for answer in chance.sample(others, 3)]
        texts += [
            ("empty", "", EMPTY),
            ("cut", " ".join(chance.choice(good).answer.split()[:CUT_WORDS]), CUT),
            ("gibberish", _gibberish(chance), GIBBERISH),
            (
                "repeated",
                " ".join([chance.choice(chance.choice(good).answer.split())] * chance.randint(5, 60)),
                REPEATED,
            ),
        ]
        bad += [
            ScoredAnswer(number, f"{kind}:{place}", own[0].question, text, score, made_bad=True)
            for place, (kind, text, score) in enumerate(texts)
        ]
    return bad


def _shuffled(text: str, chance: random.Random) -> str:
    words = text.split()
    chance.shuffle(words)
    return " ".join(words)


def _gibberish(chance: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(chance.randint(8, 80)))


def pair_accuracy(
    answers: Sequence[ScoredAnswer], predicted: npt.NDArray[np.floating[Any]], least: float = 1.0
) -> tuple[float, int]:
    """Return the share of pairs that predicted scores put in the judge's order, and how many pairs there are.

    Args:
        answers: n answers.
        predicted: float[n]; equal ones count as half right.
        least: pairs are answers to one question whose scores differ by at least this.
    """
    by_question: Mapping[int, list[int]] = defaultdict(list)
    for place, answer in enumerate(answers):
        by_question[answer.question_id].append(place)
    right, pairs = 0.0, 0
    for places in by_question.values():
        scores = np.array([answers[place].score for place in places])
        better, worse = np.nonzero(scores[:, None] - scores[None, :] >= least)
        difference = predicted[places][better] - predicted[places][worse]
        right += float(np.count_nonzero(difference > 0)) + 0.5 * float(np.count_nonzero(difference == 0))
        pairs += len(better)
    return right / pairs, pairs
