"""How far two distributions are apart: population stability index, Kolmogorov-Smirnov, total variation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from corpus.selection_keys import Words
from reports.distribution import Distribution

Floats = npt.NDArray[np.float64]

BINS = 10
LEAST_SHARE = 1e-4
"""What an empty bin counts as, so that the logarithm exists; the usual choice for scorecards."""


def stability_index(before: Distribution, after: Distribution) -> float:
    """Return the population stability index of two samples: the sum of (q - p) ln(q / p) over bins.

    Bins are the deciles of the first sample; a value that many records share is a bin of its own. By the usual reading
    (N. Siddiqi, Credit Risk Scorecards, 2006) below 0.1 nothing happened, and from 0.25 on the population shifted.

    Args:
        before, after: of finite values, at least one each.
    """
    before, after = _alike(before, after)
    last = len(before) - 1
    edges = np.unique([before.at_rank(last * decile // BINS) for decile in range(1, BINS)])
    # Twice the number of bins: below, at and between the edges, so that a spike is not shared out.
    shares = [_shares(sample, edges) for sample in (before, after)]
    first, second = (np.maximum(share, LEAST_SHARE) for share in shares)
    both = (shares[0] > 0) | (shares[1] > 0)
    return float(np.sum(((second - first) * np.log(second / first))[both]))


def _alike(before: Distribution, after: Distribution) -> tuple[Distribution, Distribution]:
    bits = max(before.bits, after.bits)
    return before.without(bits), after.without(bits)


def _shares(sample: Distribution, edges: Floats) -> Floats:
    places = np.searchsorted(edges, sample.values, "left") + np.searchsorted(edges, sample.values, "right")
    counts = np.zeros(2 * len(edges) + 1, np.int64)
    np.add.at(counts, places, sample.counts)
    return np.asarray(counts / len(sample), np.float64)


def kolmogorov_smirnov(before: Distribution, after: Distribution) -> float:
    """Return the largest distance of the two samples' distribution functions, 0 to 1.

    Where values stand for cells of neighbours, distances inside a cell do not count.
    """
    before, after = _alike(before, after)
    keys = np.concatenate([before.keys, after.keys])
    first, second = (_share_up_to(sample, keys) for sample in (before, after))
    return float(np.abs(first - second).max())


def _share_up_to(sample: Distribution, keys: Words) -> Floats:
    sums = np.concatenate([[0], np.cumsum(sample.counts)])
    return np.asarray(sums[np.searchsorted(sample.keys, keys, "right")] / len(sample), np.float64)


def total_variation(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Return half the sum of the differences of the shares, 0 to 1: what part of one mixture is not in the other."""
    totals = sum(before.values()) or 1, sum(after.values()) or 1
    names = before.keys() | after.keys()
    return sum(abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1]) for name in sorted(names)) / 2
