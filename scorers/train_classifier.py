"""Train a fastText classifier from labelled records: ``python -m scorers.train_classifier MODEL FILES``.

The model is one for the stage ``classifier``, and sees texts in training as that stage shows them to it: as they are,
with newlines as spaces; words and pairs of words count. Some records are held out by a hash of their text, or of their
group where records of one group are alike (answers to one question); on them is measured how well each label is told
from the others.

One thread trains, so that the same records in the same order give the same model. fastText: Joulin et al., Bag of
Tricks for Efficient Text Classification, 2017.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpus.errors import ThresherError, UsageError
from corpus.fasttext import FastTextModel
from corpus.fasttext_model import LABEL_PREFIX

QUANTISED = ".ftz"
QUANTISED_FEATURES = 20_000
"""Words and n-grams that a quantised model keeps, those with the largest vectors."""
LEAST_EXAMPLES = 10


@dataclass(frozen=True)
class Example:
    """A labelled text; ``group`` is what it shares with others that are held out or trained on together with it."""

    text: str
    label: str
    group: str


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        epochs, learning_rate: of the training.
        dimensions: of a vector.
        buckets: vectors that n-grams share.
        held_out: share of the groups that is not trained on.
    """

    epochs: int = 25
    learning_rate: float = 0.5
    dimensions: int = 50
    buckets: int = 200_000
    held_out: float = 0.2


@dataclass(frozen=True)
class Training:
    """What came out.

    Attributes:
        trained, held_out: examples of each label.
        areas: for each label the area under the ROC curve on the examples held out: how probable it is that a text of
            the label scores higher than another one; labels without examples on both sides are left out.
    """

    trained: Mapping[str, int]
    held_out: Mapping[str, int]
    areas: Mapping[str, float]


def read_examples(
    files: Sequence[Path], text_column: str, label_column: str, group_column: str | None = None
) -> list[Example]:
    """Return the labelled texts in Parquet and JSONL files (.jsonl, .jsonl.gz), in their order.

    Records whose label is null or whose text is blank are left out.

    Raises:
        UsageError: a file cannot be read or lacks a column, or a text is none.
    """
    examples = []
    columns = [text_column, label_column, *([group_column] if group_column is not None else [])]
    for file in files:
        for place, row in _rows(file, columns):
            text, label = row[text_column], row[label_column]
            if label is None or text is None:
                continue
            if not isinstance(text, str):
                raise UsageError(f"{place}: {text_column} is {type(text).__name__}; wanted is a text")
            name = str(label)
            if not name or any(character.isspace() for character in name):
                raise UsageError(f"{place}: {label_column} is {name!r}; a label has no white space")
            if text.strip():
                examples.append(Example(text, name, text if group_column is None else str(row[group_column])))
    return examples


def _rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield how messages call each record of a file, and its columns."""
    try:
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            missing = [name for name in columns if name not in table.column_names]
            if missing:
                raise UsageError(f"{file}: has no column {missing[0]}; it has {', '.join(table.column_names)}")
            for number, row in enumerate(table.select(list(columns)).to_pylist()):
                yield f"{file}, row {number}", row
            return
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{file}:{number}", _fields(f"{file}:{number}", line, columns)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise UsageError(f"{file}: cannot be read ({error}); give Parquet files or JSON lines") from error


def _fields(place: str, line: bytes, columns: Sequence[str]) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{place}: no JSON ({error}); repair or remove the line") from error
    missing = [name for name in columns if not isinstance(record, dict) or name not in record]
    if missing:
        raise UsageError(f"{place}: has no field {missing[0]}; give its name by the option, or remove the line")
    return {name: record[name] for name in columns}


def is_held_out(group: str, share: float) -> bool:
    """Say whether a group is among those that are not trained on."""
    return xxhash.xxh3_64_intdigest(group.encode("utf-8", "surrogatepass")) < share * 2**64


def train(examples: Sequence[Example], model: Path, recipe: Recipe) -> Training:
    """Train a model, write it to a file (.bin, or .ftz for a small one), and measure it.

    Raises:
        UsageError: there are too few examples, or the file has another ending.
        ThresherError: the training came to no numbers.
    """
    if model.suffix not in (".bin", QUANTISED):
        raise UsageError(f"{model}: a model of fastText has the ending .bin, or {QUANTISED} where it is to be small")
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in examples:
        parts[is_held_out(example.group, recipe.held_out)].append(example)
    trained, held_out = parts
    counts = Counter(example.label for example in trained)
    if len(counts) < 2 or len(trained) < LEAST_EXAMPLES:
        raise UsageError(
            f"{len(trained)} examples to train on with the labels {', '.join(sorted(counts)) or 'none'}; wanted are "
            f"{LEAST_EXAMPLES} of at least two labels"
        )
    with tempfile.TemporaryDirectory(prefix="thresher-") as folder:
        lines = Path(folder) / "examples.txt"
        lines.write_text("".join(map(_line, trained)), encoding="utf-8", errors="replace")
        model.parent.mkdir(parents=True, exist_ok=True)
        # A single thread of fastText fills a tenth of its first matrix and takes the rest as the memory comes: fresh
        # from the system in a new process, all zeros, and what others left there in an old one.
        try:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                process.submit(_fit, str(lines), str(model), recipe).result()
        except RuntimeError as error:
            raise ThresherError(f"the training failed ({error}); take a smaller learning rate") from error
    return Training(counts, Counter(example.label for example in held_out), areas(model, held_out))


def _fit(lines: str, model: str, recipe: Recipe) -> None:
    """Train a model on a file of fastText's form, and write it."""
    made = fasttext.train_supervised(
        lines,
        epoch=recipe.epochs,
        lr=recipe.learning_rate,
        dim=recipe.dimensions,
        bucket=recipe.buckets,
        wordNgrams=2,
        thread=1,
        seed=0,
        verbose=0,
    )
    if model.endswith(QUANTISED):
        made.quantize(lines, cutoff=QUANTISED_FEATURES, qnorm=True)
    made.save_model(model)


def _line(example: Example) -> str:
    # A word of a text that looks like a label would be one.
    text = " ".join(example.text.split("\n")).replace("\r", " ").replace(LABEL_PREFIX, "__label ")
    return f"{LABEL_PREFIX}{example.label} {text}\n"


def areas(model: Path, examples: Sequence[Example]) -> dict[str, float]:
    """Return for each label of a model the area under its ROC curve on examples, where these have it and others."""
    loaded = FastTextModel.load(str(model))
    texts = pa.array([example.text for example in examples], pa.string())
    found = {}
    for number, label in enumerate(loaded.labels):
        positive = np.array([example.label == label for example in examples], np.bool_)
        if positive.any() and not positive.all():
            scores = loaded.label_scores(texts, np.ones(len(examples), np.bool_), number)
            found[label] = area_under_curve(scores.fill_null(0.0).to_numpy(zero_copy_only=False), positive)
    return found


def area_under_curve(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """Return the share of pairs (positive, negative) in which the positive one scores higher; ties count half."""
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    of_positives = np.bincount(places[positive], minlength=len(values))
    of_negatives = counts - of_positives
    below = np.cumsum(of_negatives) - of_negatives
    wins = of_positives @ (below + of_negatives / 2)
    return float(wins / (of_positives.sum() * of_negatives.sum()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scorers.train_classifier", description="Train a fastText classifier from labelled records."
    )
    parser.add_argument("model", type=Path, help="file that is written, .bin or .ftz (small)")
    parser.add_argument("files", type=Path, nargs="+", help="Parquet or JSONL files")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--group-column", help="records with the same value are trained on or held out together")
    defaults = Recipe()
    parser.add_argument("--epochs", type=int, default=defaults.epochs)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--dimensions", type=int, default=defaults.dimensions)
    parser.add_argument("--buckets", type=int, default=defaults.buckets)
    parser.add_argument("--held-out", type=float, default=defaults.held_out, help="share of the groups (default 0.2)")
    given = parser.parse_args(arguments)
    recipe = Recipe(given.epochs, given.learning_rate, given.dimensions, given.buckets, given.held_out)
    try:
        examples = read_examples(given.files, given.text_column, given.label_column, given.group_column)
        found = train(examples, given.model, recipe)
    except ThresherError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for label, count in sorted(found.trained.items()):
        area = f"AUC {found.areas[label]:.4f}" if label in found.areas else "not measured"
        sys.stdout.write(f"{label}: {count} trained on, {found.held_out.get(label, 0)} held out, {area}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
