"""Scores of labels from the mean of each text's rows, by the loss that a fastText model was trained with; compiled.

These are ``Loss::predict`` of fastText 0.9 for the best label, or for a chosen one, and no threshold. fastText adds
1e-5 to each probability before it takes the logarithm; its scores keep that, and so do these.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SIGMOID_STEPS, SIGMOID_LIMIT = 512, 8

_OFFSET = 1e-5


@inlined
def _dot(vector: Floats, matrix: Floats, row: int) -> np.float32:
    total = np.float32(0)
    for dimension in range(matrix.shape[1]):
        total += vector[dimension] * matrix[row, dimension]
    return total  # type: ignore[no-any-return]


@inlined
def _sigmoid(activation: float, sigmoids: Floats) -> np.float32:
    if activation > SIGMOID_LIMIT:
        return np.float32(1)  # type: ignore[no-any-return]
    if activation < -SIGMOID_LIMIT:
        return np.float32(0)  # type: ignore[no-any-return]
    return sigmoids[np.int64((activation + SIGMOID_LIMIT) * SIGMOID_STEPS / SIGMOID_LIMIT / 2)]  # type: ignore[no-any-return]


@inlined
def _exponentials(mean: Floats, output: Floats, exponentials: Floats) -> np.float32:
    """Write exp(activation - largest activation) of each label; returns their sum, in the order of the labels."""
    largest = np.float32(-np.inf)
    for label in range(len(output)):
        exponentials[label] = _dot(mean, output, label)
        largest = max(largest, exponentials[label])
    total = np.float32(0)
    for label in range(len(output)):
        exponentials[label] = np.float32(math.exp(exponentials[label] - largest))
        total += exponentials[label]
    return total  # type: ignore[no-any-return]


_TEXTS = "void(Array(float32, 2, 'C', True), Array(boolean, 1, 'C', True), Array(float32, 2, 'C', True), "


@kernel(_TEXTS + "Array(int32, 2, 'C', True), Array(int32, 1, 'C', True), int32[::1], float64[::1])")
def best_by_tree(
    means: Floats,
    known: Flags,
    output: Floats,
    children: Integers,
    places: Integers,
    best_labels: Integers,
    best_scores: Doubles,
) -> None:
    """Find the best label of each text by hierarchical softmax.

    A label's score is the product over its path of (probability of the turn + 1e-5): what fastText's sum of logarithms
    comes to. The more probable side is searched first, and a side that cannot beat the best leaf is left out. Of equal
    scores the one further right in the tree wins, as in fastText.

    Args:
        means: float32 [n, dimension].
        known: bool [n].
        output: float32 [labels, dimension]; row i belongs to inner node labels + i.
        children: int32 [labels - 1, 2], left and right child of the inner nodes.
        places: int32 [labels], from left to right in the tree.
        best_labels, best_scores: int32 [n] and float64 [n], written where ``known``; label -1 if no score is 1e-5.
    """
    labels = len(places)
    nodes = np.empty(2 * labels, np.int32)
    scores = np.empty(2 * labels, np.float64)
    for text in range(len(means)):
        if not known[text]:
            continue
        best, best_score = -1, 0.0
        nodes[0], scores[0] = 2 * labels - 2, 1.0
        depth = 1
        while depth > 0:
            depth -= 1
            node, score = nodes[depth], scores[depth]
            if score < best_score or score < _OFFSET:
                continue
            if node < labels:
                if score > best_score or places[node] > places[best]:
                    best, best_score = node, score
                continue
            activation = _dot(means[text], output, node - labels)
            right = np.float64(np.float32(1.0 / (1.0 + np.float64(np.float32(math.exp(-activation))))))
            likely = 1 if right >= 0.5 else 0
            on_left, on_right = score * (1.0 - right + _OFFSET), score * (right + _OFFSET)
            nodes[depth] = children[node - labels, 1 - likely]
            nodes[depth + 1] = children[node - labels, likely]
            scores[depth] = on_left if likely else on_right
            scores[depth + 1] = on_right if likely else on_left
            depth += 2
        best_labels[text], best_scores[text] = best, best_score


@kernel(_TEXTS + "int32[::1], float64[::1])")
def best_by_softmax(means: Floats, known: Flags, output: Floats, best_labels: Integers, best_scores: Doubles) -> None:
    """Find the best label of each text by softmax; arguments as for ``best_by_tree``.

    The score is the probability + 1e-5. fastText compares logarithms in float32 and takes the last of equal ones.
    """
    labels = len(output)
    exponentials = np.empty(labels, np.float32)
    for text in range(len(means)):
        if not known[text]:
            continue
        total = _exponentials(means[text], output, exponentials)
        best, best_logarithm = -1, np.float32(-np.inf)
        for label in range(labels):
            if exponentials[label] > 0.99:  # the best is exp(0) = 1
                logarithm = np.float32(math.log(np.float64(exponentials[label] / total) + _OFFSET))
                if logarithm >= best_logarithm:
                    best, best_logarithm = label, logarithm
        best_labels[text], best_scores[text] = best, math.exp(np.float64(best_logarithm))


@kernel(_TEXTS + "Array(float32, 1, 'C', True), int32[::1], float64[::1])")
def best_by_sigmoid(
    means: Floats, known: Flags, output: Floats, sigmoids: Floats, best_labels: Integers, best_scores: Doubles
) -> None:
    """Find the best label of each text where each label has a probability of its own (losses ns and ova).

    fastText reads the logistic function from a table without interpolation; so the score has its steps. The last of
    equal labels wins. Arguments as for ``best_by_tree``, with that table as ``sigmoids``.
    """
    for text in range(len(means)):
        if not known[text]:
            continue
        best, best_score = -1, np.float32(-1)
        for label in range(len(output)):
            score = _sigmoid(np.float64(_dot(means[text], output, label)), sigmoids)
            if score >= best_score:
                best, best_score = label, score
        best_labels[text], best_scores[text] = best, np.float64(best_score) + _OFFSET


@kernel(_TEXTS + "Array(int32, 1, 'C', True), Array(boolean, 1, 'C', True), float64[::1])")
def score_by_tree(
    means: Floats, known: Flags, output: Floats, nodes: Integers, turns_right: Flags, scores: Doubles
) -> None:
    """Find the score of one label in each text by hierarchical softmax: the product over its path (``best_by_tree``).

    Args:
        means, known, output: as for ``best_by_tree``.
        nodes: int32 [path], the inner nodes from the root to the label, as rows of ``output``.
        turns_right: bool [path], whether the path goes to the right there.
        scores: float64 [n], written where ``known``.
    """
    for text in range(len(means)):
        if not known[text]:
            continue
        score = 1.0
        for step in range(len(nodes)):
            activation = _dot(means[text], output, nodes[step])
            right = np.float64(np.float32(1.0 / (1.0 + np.float64(np.float32(math.exp(-activation))))))
            score *= (right if turns_right[step] else 1.0 - right) + _OFFSET
        scores[text] = score


@kernel(_TEXTS + "int64, float64[::1])")
def score_by_softmax(means: Floats, known: Flags, output: Floats, label: int, scores: Doubles) -> None:
    """Find the score of one label in each text by softmax (``best_by_softmax``); arguments as for ``score_by_tree``."""
    exponentials = np.empty(len(output), np.float32)
    for text in range(len(means)):
        if not known[text]:
            continue
        total = _exponentials(means[text], output, exponentials)
        logarithm = np.float32(math.log(np.float64(exponentials[label] / total) + _OFFSET))
        scores[text] = math.exp(np.float64(logarithm))


@kernel(_TEXTS + "Array(float32, 1, 'C', True), int64, float64[::1])")
def score_by_sigmoid(
    means: Floats, known: Flags, output: Floats, sigmoids: Floats, label: int, scores: Doubles
) -> None:
    """Find the score of one label in each text where each has a probability of its own (``best_by_sigmoid``)."""
    for text in range(len(means)):
        if known[text]:
            scores[text] = np.float64(_sigmoid(np.float64(_dot(means[text], output, label)), sigmoids)) + _OFFSET
