"""The parts of the HTML report that come from the signals: histograms, characters by group, barely kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from markupsafe import Markup

from corpus.folder import Folder
from corpus.stages import Signal
from dedup.duplicates import DuplicateStage
from reports.examples import BarelyKept, Example
from reports.fates import StageInfo
from reports.group_statistics import CharacterCounter, ClusterSizes
from reports.html_views import number, share, shown_groups
from reports.plots import Line, histogram
from reports.signal_histograms import (
    Histogram,
    HistogramCounter,
    Range,
    RangeFinder,
    Threshold,
    ValueCounter,
    choose_borders,
    line_place,
    thresholds_on,
)
from reports.signal_rows import SignalRows, row_count, stream, table_files

MOST_HISTOGRAMS = 90
SHOWN_VALUES = 8

_INPUT_SIGNALS = (
    Signal("characters", "int64", "Code points of the text as it was read."),
    Signal("bytes", "int64", "Bytes of the text, UTF-8."),
)


class _Counter(Protocol):
    @property
    def columns(self) -> Sequence[str]:
        """The columns of the signals table that it needs."""

    def add(self, rows: SignalRows) -> None:
        """Take in some records."""


@dataclass(frozen=True)
class SignalView:
    """A signal: its histogram with the thresholds drawn in, or its most frequent values."""

    stage: str
    name: str
    description: str
    values: int
    plot: Markup | None
    thresholds: list[str]
    facts: str
    frequent: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class SignalFindings:
    """What the signals of a run come to.

    Attributes:
        signals: by stage, in order.
        characters: by group (``source``, ``language``) and name, code points read and kept.
        clusters: by duplicate stage (sizes, clusters, records in them).
        barely_kept: by stage and rule.
        thresholds: by signal.
        left_out: how many signals have no histogram because there are too many.
    """

    signals: dict[str, list[SignalView]]
    characters: dict[str, dict[str, tuple[int, int]]]
    clusters: dict[str, list[tuple[str, int, int]]]
    barely_kept: dict[tuple[str, str], list[Example]]
    thresholds: dict[str, list[Threshold]]
    left_out: int


def signal_findings(
    folder: Folder, outputs: Sequence[str], report: Mapping[str, Any], infos: Sequence[StageInfo]
) -> SignalFindings:
    """Read the signals of a run twice, a bounded part at a time: for the borders of histograms, then to count.

    Args:
        outputs: names of all files of the run.
    """
    files = table_files(outputs, "signals")
    signals = [(info, signal) for info in infos for signal in _signals(info)]
    numeric = [(info, signal) for info, signal in signals if signal.kind in ("int64", "float64")]
    texts = [f"{info.name}.{signal.name}" for info, signal in signals if signal.kind == "string"]
    finder = RangeFinder([f"{info.name}.{signal.name}" for info, signal in numeric], row_count(folder, files))
    _scan(folder, files, [finder])
    ranges = finder.ranges()
    plotted = [(info, signal) for info, signal in numeric if f"{info.name}.{signal.name}" in ranges]
    limits = {
        f"{info.name}.{signal.name}": _thresholds(info, signal.name, ranges)
        for info, signal in plotted[:MOST_HISTOGRAMS]
    }
    whole = {f"{info.name}.{signal.name}": signal.kind == "int64" for info, signal in plotted}
    counter = HistogramCounter(
        {name: choose_borders(ranges[name], found, whole[name]) for name, found in limits.items()}
    )
    values = ValueCounter(texts)
    label = _label_column(infos)
    columns = {"source": "source", **({"language": label} if label else {})}
    shown = {group: shown_groups(report, group) for group in columns}
    characters = {group: CharacterCounter(columns[group], names) for group, names in shown.items()}
    clusters = {info.name: ClusterSizes(info.name) for info in infos if isinstance(info.stage, DuplicateStage)}
    barely = BarelyKept(infos, frozenset(whole))
    _scan(folder, files, [counter, values, *characters.values(), *clusters.values(), barely])
    views: dict[str, list[SignalView]] = {}
    for info, signal in signals:
        name = f"{info.name}.{signal.name}"
        if name in counter.histograms:
            views.setdefault(info.name, []).append(
                _histogram_view(info, signal, counter.histograms[name], ranges[name], limits[name], report)
            )
        elif frequent := values.largest(name, SHOWN_VALUES) if name in texts else []:
            view = SignalView(info.name, signal.name, signal.description, 0, None, [], "", frequent)
            views.setdefault(info.name, []).append(view)
    return SignalFindings(
        signals=views,
        characters={
            group: dict(zip(one.names, zip(one.read.tolist(), one.kept.tolist(), strict=True), strict=True))
            for group, one in characters.items()
        },
        clusters={name: sizes.table() for name, sizes in clusters.items()},
        barely_kept=barely.examples(),
        thresholds=limits,
        left_out=max(0, len(plotted) - MOST_HISTOGRAMS),
    )


def _scan(folder: Folder, files: Sequence[str], counters: Sequence[_Counter]) -> None:
    columns = dict.fromkeys(["kept", "file", "position", *(name for one in counters for name in one.columns)])
    for batch in stream(folder, files, list(columns)):
        rows = SignalRows(batch)
        for one in counters:
            one.add(rows)


def _signals(info: StageInfo) -> Sequence[Signal]:
    """Return the signals of a stage that are worth a picture: not the clusters, which have a table of their own."""
    if info.stage is None:
        return _INPUT_SIGNALS
    hidden = set()
    if isinstance(info.stage, DuplicateStage):
        hidden = {"cluster_id", "cluster_size", "copy_index"}
    hidden |= {signal for column, signal in info.stage.curated_columns().items() if column == "language"}
    return [signal for signal in info.stage.signals() if signal.name not in hidden]


def _label_column(infos: Sequence[StageInfo]) -> str | None:
    for info in reversed(infos):
        label = info.stage.curated_columns().get("language") if info.stage else None
        if label is not None:
            return f"{info.name}.{label}"
    return None


def _thresholds(info: StageInfo, signal: str, ranges: Mapping[str, Range]) -> list[Threshold]:
    """Return the limits on a signal, also one that the corpus decided, where it is the same for all records."""
    found = thresholds_on(info.rules, signal)
    for rule in info.rules:
        limit = ranges.get(f"{info.name}.{rule.limited_by}") if rule.limited_by and rule.signal == signal else None
        if limit is not None and limit.minimum == limit.maximum:
            found.append(Threshold(rule.name, "≥", limit.minimum))
    return found


def _histogram_view(
    info: StageInfo,
    signal: Signal,
    found: Histogram,
    extent: Range,
    limits: Sequence[Threshold],
    report: Mapping[str, Any],
) -> SignalView:
    edges = found.borders.edges
    whole = signal.kind == "int64"
    lines = [(line_place(one, whole), one) for one in limits]
    inside = [Line(place, one.text) for place, one in lines if edges[0] <= place <= edges[-1]]
    texts = []
    for place, one in lines:
        failing = report["overlap"].get(f"{info.name}/{one.rule}", {}).get(f"{info.name}/{one.rule}")
        text = f"{one.rule}: {one.text}"
        if failing is not None and one.language is None:
            text += f", {share(failing, found.values)} fail"
        if not edges[0] <= place <= edges[-1]:
            text += ", beyond the plot"
        texts.append(text)
    label = f"Histogram of {info.name}.{signal.name}"
    plot = histogram(edges, found.read, found.kept, _apart(inside), found.borders.logarithmic, label)
    facts = f"{found.values:,} values from {number(extent.minimum)} to {number(extent.maximum)}"
    return SignalView(info.name, signal.name, signal.description, found.values, plot, texts, facts)


def _apart(lines: Sequence[Line]) -> list[Line]:
    """Return lines of which only the first two have a text, so that texts do not lie upon each other."""
    return [line if place < 2 else Line(line.value, "") for place, line in enumerate(lines)]
