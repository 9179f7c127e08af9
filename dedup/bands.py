"""How signatures are cut into bands, and with what probability that proposes a pair.

A pair is proposed when two records agree in all rows of at least one band (locality-sensitive hashing; Leskovec,
Rajaraman, Ullman, "Mining of Massive Datasets", chapter 3). At Jaccard similarity s the probability is
``1 - (1 - s**rows)**bands``, the S-curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import expm1, log1p

CURVE_DECIMALS = 6
_AREA_POINTS = 200


@dataclass(frozen=True)
class Bands:
    """A signature of ``bands * rows`` values, cut into bands of ``rows`` values each."""

    bands: int
    rows: int

    @property
    def permutations(self) -> int:
        """The values of a signature that the bands use, from the first."""
        return self.bands * self.rows

    def probability(self, similarity: float) -> float:
        """Return the probability that a pair of this Jaccard similarity, 0 to 1, is proposed."""
        agreeing = similarity**self.rows
        return 1.0 if agreeing >= 1 else 0.0 - expm1(self.bands * log1p(-agreeing))

    def curve(self, similarities: Iterable[float]) -> list[float]:
        """Return the probability at each similarity, rounded so that it is the same on all machines."""
        return [round(self.probability(similarity), CURVE_DECIMALS) for similarity in similarities]

    def false_candidates(self, threshold: float) -> float:
        """Return the area under the curve below the threshold.

        That is the share of pairs below it that are proposed, if the similarities of all pairs were spread evenly.
        """
        step = threshold / _AREA_POINTS
        return step * sum(self.probability((point + 0.5) * step) for point in range(_AREA_POINTS))


@lru_cache
def choose_bands(threshold: float, permutations: int, catch_probability: float = 0.99) -> Bands:
    """Return the bands that propose the fewest false candidates and still catch a pair at the threshold.

    Among all bands x rows of at most ``permutations`` values that propose a pair exactly at ``threshold`` with at least
    ``catch_probability``, it is the one with the least ``false_candidates``; more bands than needed only add to them.
    At 0.8 and 0.99 with 112 permutations that is 16 x 6 (0.9923 at the threshold); 18 x 6 would use 108 of them, for
    0.9958 there and 5 % more false candidates.

    Raises:
        ValueError: a number outside its range, or no bands reach the probability; the message names the fields.
    """
    check_range("threshold", threshold)
    check_range("catch_probability", catch_probability)
    if permutations < 1:
        raise ValueError(f"permutations is {permutations}: at least 1 is needed")
    similarity, miss_at_most = exact_fraction(threshold), 1 - exact_fraction(catch_probability)
    found: list[Bands] = []
    for rows in range(1, permutations + 1):
        bands = _fewest_bands(1 - similarity**rows, permutations // rows, miss_at_most)
        if bands is None:
            break  # more rows would need as many bands or more, and there is room for fewer
        found.append(Bands(bands, rows))
    if not found:
        if catch_probability == 1:
            raise ValueError("catch_probability 1.0 cannot be reached by any permutations; give less, such as 0.999")
        best = Bands(permutations, 1).probability(threshold)
        raise ValueError(
            f"catch_probability {catch_probability} cannot be reached at threshold {threshold} with permutations "
            f"{permutations}: the most is {best:.4f}; raise permutations or threshold, or lower catch_probability"
        )
    return min(found, key=lambda bands: bands.false_candidates(threshold))


def explicit_bands(bands: int, rows: int, permutations: int) -> Bands:
    """Return the bands that a user asks for.

    Raises:
        ValueError: they have no values, or more than there are permutations; the message names the fields.
    """
    if bands < 1 or rows < 1:
        raise ValueError(f"bands is {bands} and rows is {rows}: each must be at least 1")
    if bands * rows > permutations:
        raise ValueError(
            f"bands x rows is {bands} x {rows} = {bands * rows}, above permutations ({permutations}): "
            f"raise permutations, or lower bands or rows"
        )
    return Bands(bands, rows)


def check_range(name: str, value: float) -> None:
    """Raise ValueError, naming the field, where a value is not in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} is {value}: it must be above 0 and at most 1")


def exact_fraction(value: float) -> Fraction:
    """Return the decimal by which a number was written: 0.8 is 4/5, though no float is."""
    return Fraction(repr(float(value)))


def _fewest_bands(miss: Fraction, most: int, miss_at_most: Fraction) -> int | None:
    """Return how many bands, each missed with a probability, are all missed at most so often; None beyond ``most``."""
    if miss**most > miss_at_most:
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if miss**middle <= miss_at_most:
            high = middle
        else:
            low = middle + 1
    return low
