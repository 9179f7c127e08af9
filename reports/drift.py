"""How far two distributions are apart: population stability index, Kolmogorov-Smirnov, total variation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BINS = 10
LEAST_SHARE = 1e-4
"""What an empty bin counts as, so that the logarithm exists; the usual choice for scorecards."""


def stability_index(before: Floats, after: Floats) -> float:
    """Return the population stability index of two samples: the sum of (q - p) ln(q / p) over bins.

    Bins are the deciles of the first sample; a value that many records share is a bin of its own. By the usual reading
    (N. Siddiqi, Credit Risk Scorecards, 2006) below 0.1 nothing happened, and from 0.25 on the population shifted.

    Args:
        before, after: finite values, in any order, at least one each.
    """
    edges = np.unique(np.quantile(before, np.arange(1, BINS) / BINS, method="lower"))
    # Twice the number of bins: below, at and between the edges, so that a spike is not shared out.
    shares = [_shares(values, edges) for values in (before, after)]
    first, second = (np.maximum(share, LEAST_SHARE) for share in shares)
    both = (shares[0] > 0) | (shares[1] > 0)
    return float(np.sum(((second - first) * np.log(second / first))[both]))


def _shares(values: Floats, edges: Floats) -> Floats:
    left, right = np.searchsorted(edges, values, "left"), np.searchsorted(edges, values, "right")
    places = left + right
    return np.bincount(places, minlength=2 * len(edges) + 1) / len(values)


def kolmogorov_smirnov(before: Floats, after: Floats) -> float:
    """Return the largest distance of the two samples' distribution functions, 0 to 1."""
    before, after = np.sort(before), np.sort(after)
    values = np.concatenate([before, after])
    first = np.searchsorted(before, values, "right") / len(before)
    second = np.searchsorted(after, values, "right") / len(after)
    return float(np.abs(first - second).max())


def total_variation(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Return half the sum of the differences of the shares, 0 to 1: what part of one mixture is not in the other."""
    totals = sum(before.values()) or 1, sum(after.values()) or 1
    names = before.keys() | after.keys()
    return sum(abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1]) for name in sorted(names)) / 2
