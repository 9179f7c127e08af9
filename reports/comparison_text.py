"""Print a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

ROWS = 12


def print_comparison(comparison: Mapping[str, Any], sentence: str, beyond: Sequence[str], console: Console) -> None:
    """Print a comparison, the largest changes first, and what is beyond the limits."""
    console.print(f"before: {comparison['before']}\nafter:  {comparison['after']}\n{sentence}", markup=False)
    for line in comparison["config"][:ROWS]:
        console.print(f"  {line}", markup=False)
    inputs = comparison["inputs"]
    console.print("input files: " + ", ".join(f"{count:,} {name}" for name, count in inputs.items()), markup=False)
    records, kept = comparison["records"], comparison["kept_share"]
    console.print(
        f"records: {records['before']['read']:,} read and {records['before']['kept']:,} kept before, "
        f"{records['after']['read']:,} and {records['after']['kept']:,} after ({_share(kept['before'])}, "
        f"{_share(kept['after'])})",
        markup=False,
    )
    common = comparison["common"]
    console.print(
        f"contents that both outputs have: {common['contents']:,} ({_share(common['share_of_before'])} of those "
        f"before, {_share(common['share_of_after'])} of those after)",
        markup=False,
    )
    _changes("Rules: share dropped of those that enter the stage", ("stage", "rule"), comparison["rules"], console)
    _changes("Sources: share kept", ("source",), comparison["sources"], console)
    for group, entry in comparison["mixture"].items():
        title = f"Kept by {group}: total variation {entry['total_variation']:.3f}"
        _changes(title, ("name",), entry["names"], console)
    _signals(comparison["signals"], console)
    for entry in comparison["signals"]:
        if "total_variation" in entry:
            title = f"Signal {entry['signal']}: total variation {entry['total_variation']:.3f}"
            _changes(title, ("name",), entry["names"], console)
    for line in beyond:
        console.print(f"beyond the limits: {line}", markup=False, style="red")
    if not beyond:
        console.print("within the limits")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _changes(title: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    changed = [row for row in rows if row["change"]]
    if not changed:
        return
    table = Table(*names, "before", "after", "change", title=title, title_justify="left")
    for row in changed[:ROWS]:
        change = f"{100 * row['change']:+.1f}"
        table.add_row(*(Text(str(row[name])) for name in names), _share(row["before"]), _share(row["after"]), change)
    console.print(table)
    if len(changed) > ROWS:
        console.print(f"  and {len(changed) - ROWS} more with smaller changes")


def _signals(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        console.print("signals: the runs have none in common")
        return
    told = ("kolmogorov_smirnov", "total_variation")
    moved = [row for row in rows if row["missing_share"]["change"] or any(row.get(name) for name in told)]
    if not moved:
        console.print("signals: every one is distributed as before")
        return
    moved.sort(key=lambda row: (-row.get("stability_index", 0), -row.get("kolmogorov_smirnov", 0), row["signal"]))
    table = Table(
        "signal", "median before", "after", "stability index", "KS", "missing", title="Signals", title_justify="left"
    )
    for row in moved[:ROWS]:
        median = row.get("median", {"before": None, "after": None})
        table.add_row(
            Text(row["signal"]),
            *("–" if median[key] is None else f"{median[key]:.4g}" for key in ("before", "after")),
            *(f"{row[key]:.3f}" if key in row else "–" for key in ("stability_index", "kolmogorov_smirnov")),
            f"{100 * row['missing_share']['change']:+.1f}",
        )
    console.print(table)
    if len(moved) > ROWS:
        console.print(f"  and {len(moved) - ROWS} more that moved less")
