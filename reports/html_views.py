"""What the HTML report shows of ``report.json``: numbers turned into texts, and lengths of bars into shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.stages import Rule
from reports.counts import Counts, add
from reports.fates import StageInfo
from reports.signal_histograms import Threshold
from reports.text_sizes import UNITS

SHOWN_GROUPS = {"source": 20, "language": 12}
OVERLAP_RULES = 15


def share(part: float, whole: float) -> str:
    """Return a share as text, such as ``12.3 %``; a dash of nothing."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return "> 99.9 %" if 99.95 <= percent < 100 else f"{percent:.1f} %"


def short_count(value: float) -> str:
    """Return a large number in three digits, such as ``93.9 M``."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / min(size, 1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}"


def number(value: float | None) -> str:
    """Return a measured value or a threshold."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.6g}"


def limit_text(rule: Rule) -> str:
    """Return what a rule wants, such as ``score ≥ 0.65``; empty where it is no comparison."""
    sign = {"at_least": "≥", "at_most": "≤"}.get(rule.test)
    if rule.test == "one_of":
        values = ", ".join(rule.values[:6]) + (", …" if len(rule.values) > 6 else "")
        return f"{rule.signal} is one of {values}"
    if rule.test == "is_set":
        return f"{rule.signal} is known"
    if rule.test == "decided":
        return f"copies at Jaccard {number(rule.threshold)}" if rule.signal == "jaccard" else ""
    signal = "" if rule.name.endswith(rule.signal) else f"{rule.signal} "
    limits = [f"{signal}{sign} {number(rule.threshold)}"] if rule.threshold is not None else []
    limits.extend(
        f"{language}: off" if value is None else f"{language}: {sign} {number(value)}"
        for language, value in sorted(rule.by_language.items())
    )
    return ", ".join(limits)


def limit_of(info: StageInfo, rule: Rule, thresholds: Mapping[str, Sequence[Threshold]]) -> str:
    """Return what a rule wants, also where the corpus decided it; ``thresholds`` has the limits by signal."""
    if rule.limited_by is None:
        return limit_text(rule)
    limits = thresholds.get(f"{info.name}.{rule.signal}", ())
    return ", ".join(f"{rule.signal} {one.text}" for one in limits if one.rule == rule.name)


@dataclass(frozen=True)
class RuleView:
    """A rule in the funnel: records that left by it first, and those that fail no other rule."""

    name: str
    limit: str
    first: int
    alone: int
    share: str
    width: float


@dataclass(frozen=True)
class StageView:
    """A stage in the funnel; widths are percent of the records read."""

    name: str
    summary: str
    entered: int
    left: int
    dead: int
    edited: int
    passed: int
    share: str
    characters: str
    size: str
    characters_edited: str
    width: float
    width_left: float
    rules: list[RuleView] = field(default_factory=list)


def funnel(
    report: Mapping[str, Any], infos: Sequence[StageInfo], thresholds: Mapping[str, Sequence[Threshold]]
) -> list[StageView]:
    """Return the stages from the input to the last one; ``thresholds`` has the limits by signal."""
    read = max(1, report["records"]["read"])
    views = []
    for entry, info in zip(report["stages"], infos, strict=True):
        known = {rule.name: rule for rule in info.rules}
        most = max((rule["first"] for rule in entry["rules"].values()), default=0)
        rules = [
            RuleView(
                name,
                limit_of(info, known[name], thresholds) if name in known else "",
                counts["first"],
                counts["alone"],
                share(counts["first"], entry["entered"]),
                100 * counts["first"] / max(1, most),
            )
            for name, counts in entry["rules"].items()
        ]
        left = entry["dropped"] + entry["dead"]
        passed = entry["entered"] - left
        views.append(
            StageView(
                name=entry["name"],
                summary=info.stage.summary if info.stage else "Decoding: empty and oversized texts leave.",
                entered=entry["entered"],
                left=left,
                dead=entry["dead"],
                edited=entry["edited"],
                passed=passed,
                share=share(left, entry["entered"]),
                characters=short_count(entry["characters_out"]),
                size=next((short_count(entry[f"{unit}_out"]) for unit in UNITS if f"{unit}_out" in entry), ""),
                characters_edited=short_count(entry["characters_cut"] - entry["characters_added"]),
                width=100 * passed / read,
                width_left=100 * left / read,
                rules=rules,
            )
        )
    return views


@dataclass(frozen=True)
class GroupView:
    """A source or a language; widths are percent of the largest one shown."""

    name: str | None
    note: str
    read: int
    kept: int
    dropped: int
    dead: int
    share: str
    width_kept: float
    width_left: float
    characters: str = ""
    characters_kept: str = ""


def shown_groups(report: Mapping[str, Any], group: str) -> list[str]:
    """Return the names that are shown: the sources that lost most records, or the languages with most records."""
    by = "dropped" if group == "source" else "read"
    ordered = sorted(report[f"by_{group}"].items(), key=lambda entry: (-entry[1][by], -entry[1]["read"], entry[0]))
    return [name for name, _ in ordered[: SHOWN_GROUPS[group]]]


def groups(
    report: Mapping[str, Any], group: str, names: Sequence[str], characters: Mapping[str, tuple[int, int]]
) -> list[GroupView]:
    """Return groups by name, then all others together, then the records without one.

    Args:
        names: those that are shown by name.
        characters: for each name the code points read and kept.
    """
    entries = report[f"by_{group}"]
    rows: list[tuple[str | None, str, Mapping[str, int]]] = [(name, "", entries[name]) for name in names]
    rest: Counts = {}
    for name, entry in entries.items():
        if name not in names:
            add(rest, entry)
    others = len(entries) - len(names)
    if f"other_{group}" in report:
        add(rest, {key: value for key, value in report[f"other_{group}"].items() if key != "names"})
        others += report[f"other_{group}"]["names"]
    if rest:
        rows.append((None, f"{others:,} others", rest))
    if f"no_{group}" in report:
        rows.append((None, f"no {group}", report[f"no_{group}"]))
    largest = max((entry["read"] for name, _, entry in rows if name is not None), default=1)
    return [_group(name, note, entry, largest, characters) for name, note, entry in rows]


def _group(
    name: str | None,
    note: str,
    entry: Mapping[str, int],
    largest: int,
    characters: Mapping[str, tuple[int, int]],
) -> GroupView:
    read, kept = characters.get(name, (None, None)) if name is not None else (None, None)
    scale = 100 / max(largest, entry["read"], 1)
    return GroupView(
        name=name,
        note=note,
        **{key: entry[key] for key in ("read", "kept", "dropped", "dead")},
        share=share(entry["kept"], entry["read"]),
        width_kept=scale * entry["kept"],
        width_left=scale * (entry["read"] - entry["kept"]),
        characters="" if read is None else short_count(read),
        characters_kept="" if kept is None else short_count(kept),
    )


@dataclass(frozen=True)
class OverlapView:
    """Rules that fail together: for each rule its failing records, and the share of these that each other one has."""

    rules: list[str]
    failing: list[int]
    shares: list[list[float | None]]
    left_out: int


def overlap(report: Mapping[str, Any], infos: Sequence[StageInfo]) -> OverlapView | None:
    """Return how the rules of record stages overlap, those that most records fail; None where there are fewer than two.

    A share is None where the two rules judge in different passes, and so not the same records.
    """
    table = report["overlap"]
    rules = [f"{info.name}/{rule.name}" for info in infos for rule in info.rules]
    passes = {f"{info.name}/{rule.name}": info.pass_number for info in infos for rule in info.rules}
    failing = {rule: table[rule][rule] for rule in rules if rule in table}
    largest = sorted(failing, key=lambda rule: (-failing[rule], rule))[:OVERLAP_RULES]
    chosen = [rule for rule in rules if rule in largest]
    if len(chosen) < 2:
        return None
    shares = [
        [table[rule].get(other, 0) / failing[rule] if passes[rule] == passes[other] else None for other in chosen]
        for rule in chosen
    ]
    return OverlapView(chosen, [failing[rule] for rule in chosen], shares, len(failing) - len(chosen))


def benchmarks(report: Mapping[str, Any]) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """Return by stage the benchmarks, the most contaminated first."""
    return {
        stage: sorted(found.items(), key=lambda entry: (-entry[1]["share"], entry[0]))
        for stage, found in report.get("contamination", {}).items()
    }
