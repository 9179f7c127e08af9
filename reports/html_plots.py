"""The parts of the HTML report that ``report.json`` has curves for: duplicates and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from reports.fates import StageInfo
from reports.html_views import number, share
from reports.plots import Line, curve
from reports.signal_histograms import Threshold

SCORE_GROUPS = 10


@dataclass(frozen=True)
class ScoreView:
    """The scores of a stage.

    Attributes:
        limit: what the stage keeps; empty where it keeps all.
        facts: (what, value) in order.
        plot: the share of the scored records that reaches each score; None where there is one score only.
        names: of the quantiles.
        quantiles: (name of the group, its scores, its quantiles): all, then the largest groups of each kind.
    """

    name: str
    limit: str
    facts: list[tuple[str, str]]
    plot: Markup | None
    names: list[str]
    quantiles: list[tuple[str, list[tuple[str, int, list[str]]]]]


def score_views(report: Mapping[str, Any], thresholds: Mapping[str, Sequence[Threshold]]) -> list[ScoreView]:
    """Return the scorers in the order of the stages; ``thresholds`` has the limits by signal."""
    views = []
    scores = report.get("scores", {})
    for name, entry in ((stage["name"], scores.get(stage["name"])) for stage in report["stages"]):
        if entry is None:
            continue
        limits = thresholds.get(f"{name}.score", [])
        facts = [("scored", f"{entry['scored']:,}")]
        facts.extend((f"no score: {reason}", f"{count:,}") for reason, count in entry["unscorable"].items())
        for key, text in (
            ("mean", "mean"),
            ("mean_of_kept", "mean of those that go on"),
            ("mean_of_dropped", "mean of those that leave"),
            ("correlation_with_length", "correlation with length"),
        ):
            if entry[key] is not None:
                facts.append((text, f"{entry[key]:.3f}"))
        if entry["truncated"]:
            facts.append(("longer than the model reads", share(entry["truncated"], entry["scored"])))
        names = list(entry["quantiles"])
        groups = [("", {"all": {"scored": entry["scored"], **entry["quantiles"]}})]
        groups.extend((group, entry[f"quantiles_by_{group}"]) for group in ("language", "source"))
        quantiles = [
            (group, [(one, found["scored"], _texts(found, names)) for one, found in list(rows.items())[:SCORE_GROUPS]])
            for group, rows in groups
            if rows and entry["scored"]
        ]
        limit = ", ".join(one.text for one in limits)
        titles = [f"{100 * float(one):.0f} %" for one in names]
        views.append(ScoreView(name, limit, facts, _score_curve(name, entry, limits), titles, quantiles))
    return views


def _texts(found: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [f"{found[name]:.4g}" for name in names]


def _score_curve(name: str, entry: Mapping[str, Any], limits: Sequence[Threshold]) -> Markup | None:
    points = entry["curve"]
    if len(points) < 2:
        return None
    x = np.array([point["at_least"] for point in points], np.float64)
    y = np.array([point["kept"] for point in points], np.float64) / entry["scored"]
    lines = [Line(one.value, one.text) for one in limits if x[0] <= one.value <= x[-1]]
    return curve(x, y, lines, "score", f"Scores of {name}")


@dataclass(frozen=True)
class DuplicateView:
    """A duplicate stage: what it found, its clusters by size and the probability that it proposes a pair.

    Attributes:
        facts: (what, value) in order.
        sizes: (sizes, clusters, records in them, percent of the longest bar).
        plot: the probability that a pair is proposed against its similarity; None without bands.
    """

    name: str
    facts: list[tuple[str, str]]
    sizes: list[tuple[str, int, int, float]]
    plot: Markup | None


def duplicate_views(
    report: Mapping[str, Any], infos: Sequence[StageInfo], sizes: Mapping[str, Sequence[tuple[str, int, int]]]
) -> list[DuplicateView]:
    """Return the duplicate stages in order; ``sizes`` has the clusters of each by size."""
    thresholds = {
        info.name: rule.threshold for info in infos for rule in info.rules if rule.signal == "jaccard" and info.stage
    }
    views = []
    for name, entry in report["duplicates"].items():
        table = sizes.get(name, [])
        most = max((records for _, _, records in table), default=1)
        lines = [(text, clusters, records, 100 * records / most) for text, clusters, records in table]
        views.append(DuplicateView(name, _duplicate_facts(entry), lines, _s_curve(name, entry, thresholds.get(name))))
    return views


def _duplicate_facts(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    unit = "" if entry["budget_unit"] == "records" else f" ({entry['budget_unit']})"
    achieved = entry["achieved"]
    facts = [
        ("distinct records", f"{entry['leaders']:,}"),
        ("of them with copies", f"{entry['clusters']:,}"),
        ("copies found", f"{entry['copies_available']:,}"),
        ("copies kept", f"{entry['copies_kept']:,}"),
        (f"budget{unit}", f"{entry['limit']:,}"),
        (f"duplication achieved{unit}", "–" if achieved is None else f"{100 * achieved:.2f} % of the distinct"),
    ]
    output = entry["in_output"]["achieved"]
    if output != achieved and output is not None:
        facts.append((f"duplication in the output{unit}", f"{100 * output:.2f} % of the distinct"))
    for key, text in (
        ("proposed", "pairs proposed"),
        ("verified", "pairs compared exactly"),
        ("at_threshold", "pairs at or above the threshold"),
        ("not_compared", "pairs not compared (very large buckets)"),
    ):
        if "pairs" in entry:
            facts.append((text, f"{entry['pairs'][key]:,}"))
    if "bands" in entry:
        facts.append(("bands × rows", f"{entry['bands']['bands']} × {entry['bands']['rows']}"))
    if entry["leaders_dropped_later"]:
        facts.append(("of those with copies, dropped later", f"{entry['leaders_dropped_later']:,}"))
    return facts


def _s_curve(name: str, entry: Mapping[str, Any], threshold: float | None) -> Markup | None:
    if "s_curve" not in entry:
        return None
    points = sorted((float(similarity), probability) for similarity, probability in entry["s_curve"].items())
    x, y = np.array(points, np.float64).T
    lines = [Line(threshold, f"threshold {number(threshold)}")] if threshold is not None else []
    return curve(x, y, lines, "Jaccard similarity of a pair", f"S-curve of {name}")
