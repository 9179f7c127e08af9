"""What the report says of a scorer: distribution, kept against threshold, and what the score goes along with.

All sums are of whole numbers (a score counts in ten-thousandths, which it is rounded to), so they add up in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from corpus.verdicts import reused_column
from reports.counts import Counts
from reports.fates import Fates, StageInfo
from scorers.best import BestStage
from scorers.scoring import DECIMALS, REASON, SCORE, SCORED, Scorer

UNIT = 10**DECIMALS
DIGITS = 2
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
TRUNCATED = "tokens_cut"
"""Signal of scorers that cut long texts."""
SUMS = ("n", "score", "score_squared", "length", "length_squared", "product")
_INT64 = 2.0**62
"""Where ten times a size is still an int64."""

Integers = npt.NDArray[np.int64]


def is_scorer(info: StageInfo) -> bool:
    """Say whether a stage gives scores."""
    return isinstance(info.stage, (Scorer, BestStage))


def in_units(scores: npt.NDArray[np.float64]) -> Integers:
    """Return finite scores in ten-thousandths: int64, or Python integers where these are too small."""
    units = np.round(scores * UNIT)
    if (np.abs(units) < _INT64).all():
        small: Integers = units.astype(np.int64)
        return small
    return np.array([int(unit) for unit in units.tolist()], object)


def bins_of(scores: Integers) -> Integers:
    """Return scores, in ten-thousandths, rounded down to 2 significant digits: at most 180 values per power of ten."""
    sizes = np.abs(scores)
    step = np.ones_like(scores)
    power = 10
    while (above := sizes >= 10 * power).any():
        step[above] = power
        power *= 10
    bins: Integers = scores // step * step
    return bins


def score_counts(
    infos: Sequence[StageInfo], fates: Fates, records: pa.RecordBatch, languages: pa.StringArray
) -> Counts:
    """Return what the scorers found on a batch, as counts that add up over batches."""
    counts: Counts = {"scores": {}, "reused": {}}
    for index, info in enumerate(infos):
        if not is_scorer(info):
            continue
        entered = fates.entered(index)
        scored = entered & (fates.signal(info, SCORED).fill_null(0).to_numpy(zero_copy_only=False) == 1)
        rows = pa.array(np.flatnonzero(scored))
        values = fates.signal(info, SCORE).take(rows).to_numpy()
        scores = in_units(values)
        stayed = ((fates.left_at < 0) | (fates.left_at > index))[scored]
        reasons = fates.signal(info, REASON).filter(pa.array(entered & ~scored))
        bins = bins_of(scores)
        lengths = records.column("characters").take(rows).to_numpy()
        counts["scores"][info.name] = {
            "unscorable": {entry["values"]: entry["counts"] for entry in reasons.value_counts().to_pylist()},
            "bins": _histogram(bins),
            "by_language": _histograms(bins, languages.take(rows)),
            "by_source": _histograms(bins, records.column("source").take(rows)),
            "all": _sums(scores, lengths),
            "stayed": _sums(scores[stayed], lengths[stayed]),
            "truncated": _truncated(info, fates, scored),
        }
        if reused_column(info.name) in fates.columns:
            again = fates.columns[reused_column(info.name)].to_numpy(zero_copy_only=False)
            counts["reused"][info.name] = {"scored": int(scored.sum()), "from_table": int((again & scored).sum())}
    return counts if counts["scores"] else {}


def _histogram(bins: Integers) -> Counts:
    values, counts = np.unique(bins, return_counts=True)
    return {str(value): count for value, count in zip(values.tolist(), counts.tolist(), strict=True)}


def _histograms(bins: Integers, groups: pa.StringArray) -> Counts:
    if groups.null_count == len(groups):
        return {}
    distinct, places = np.unique(bins, return_inverse=True)
    table = pa.table({"bin": places, "group": groups}).filter(pc.is_valid(groups))
    counts: Counts = {}
    for row in table.group_by(["group", "bin"], use_threads=False).aggregate([([], "count_all")]).to_pylist():
        counts.setdefault(row["group"], {})[str(distinct[row["bin"]])] = row["count_all"]
    return counts


def _sums(scores: Integers, lengths: Integers) -> Counts:
    # Squares of a batch may be beyond 64 bits.
    x, y = scores.astype(object), lengths.astype(object)
    sums = (len(scores), x.sum(), (x * x).sum(), y.sum(), (y * y).sum(), (x * y).sum())
    return {name: int(value) for name, value in zip(SUMS, sums, strict=True)}


def _truncated(info: StageInfo, fates: Fates, scored: npt.NDArray[np.bool_]) -> int:
    assert info.stage is not None
    if TRUNCATED not in {signal.name for signal in info.stage.signals()}:
        return 0
    cut = fates.signal(info, TRUNCATED).fill_null(0).to_numpy(zero_copy_only=False)
    return int((scored & (cut > 0)).sum())


def score_report(counts: Counts) -> dict[str, Any]:
    """Return what ``report.json`` says of the scorers, by stage.

    ``curve`` has, for each threshold at which it changes, how many scored records are at or above it; thresholds have 2
    significant digits. ``quantiles`` are rounded down to these. ``correlation_with_length`` is Pearson's, with the code
    points of the record as it was read; ``mean_of_kept`` is that of the records that did not leave by the stage.
    """
    report = {}
    for name, entry in counts.get("scores", {}).items():
        total, stayed = entry["all"], entry["stayed"]
        report[name] = {
            "scored": total["n"],
            "unscorable": dict(sorted(entry["unscorable"].items())),
            "mean": _mean(total),
            "mean_of_kept": _mean(stayed),
            "mean_of_dropped": _mean({key: total[key] - stayed[key] for key in SUMS}),
            "correlation_with_length": _correlation(total),
            "truncated": entry["truncated"],
            "quantiles": quantiles(entry["bins"]),
            "quantiles_by_language": _largest(entry["by_language"]),
            "quantiles_by_source": _largest(entry["by_source"]),
            "curve": _curve(entry["bins"]),
        }
    return report


def _mean(sums: Mapping[str, int]) -> float | None:
    return round(sums["score"] / sums["n"] / UNIT, DECIMALS) if sums["n"] else None


def _correlation(sums: Mapping[str, int]) -> float | None:
    n, x, xx, y, yy, xy = (sums[name] for name in SUMS)
    spread = (n * xx - x * x) * (n * yy - y * y)
    if spread <= 0:
        return None
    # The squares of integers: a float may not hold them.
    together = n * xy - x * y
    return round(copysign(sqrt(together * together / spread), 1 if together > 0 else -1), DECIMALS) + 0.0


def _sorted(bins: Mapping[str, int]) -> list[tuple[int, int]]:
    return sorted((int(value), count) for value, count in bins.items())


def quantiles(bins: Mapping[str, int]) -> dict[str, float]:
    """Return the quantiles of a histogram: the bin of the record of rank ceil(q n)."""
    ordered = _sorted(bins)
    total = sum(count for _, count in ordered)
    found = {}
    for quantile in QUANTILES:
        rank, below = max(1, -(-int(quantile * 100) * total // 100)), 0
        for value, count in ordered:
            below += count
            if below >= rank:
                found[f"{quantile:g}"] = value / UNIT
                break
    return found


def _largest(groups: Mapping[str, Mapping[str, int]], most: int = 50) -> dict[str, Any]:
    """Return the quantiles of the groups with the most scored records."""
    sizes = sorted(groups, key=lambda name: (-sum(groups[name].values()), name))[:most]
    return {name: {"scored": sum(groups[name].values()), **quantiles(groups[name])} for name in sizes}


def _curve(bins: Mapping[str, int]) -> list[dict[str, float]]:
    curve: list[dict[str, float]] = []
    kept = 0
    for value, count in reversed(_sorted(bins)):
        kept += count
        curve.append({"at_least": value / UNIT, "kept": kept})
    return curve[::-1]


def print_scores(scores: Mapping[str, Any], reused: Mapping[str, Any], console: Console) -> None:
    """Print a line or two for each scorer."""
    for name, entry in scores.items():
        if not entry["scored"]:
            console.print(f"{name}: no record was scored", markup=False)
            continue
        spread = ", ".join(f"{float(q):.0%}: {value:g}" for q, value in entry["quantiles"].items())
        console.print(f"{name}: {entry['scored']:,} scored, mean {entry['mean']} ({spread})", markup=False)
        correlation, means = entry["correlation_with_length"], (entry["mean_of_kept"], entry["mean_of_dropped"])
        of_both = "" if None in means else f"mean of those that stay {means[0]}, of those that leave {means[1]}; "
        if correlation is not None:
            console.print(
                f"{name}: {of_both}correlation with length {correlation}",
                markup=False,
            )
        if entry["truncated"]:
            console.print(f"{name}: {entry['truncated']:,} texts were longer than the model reads", markup=False)
        if name in reused:
            counts = reused[name]
            console.print(
                f"{name}: {counts['from_table']:,} of {counts['scored']:,} scores came from the score table",
                markup=False,
            )
