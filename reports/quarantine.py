"""What the terminal says of sources and files that ``quarantine`` set aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from reports.visible import terminal_name

SHOWN = 10


def print_quarantine(stage: str, entry: Mapping[str, Any], console: Console) -> None:
    """Print the bad groups of a stage, those with the most records first.

    Args:
        entry: of the section ``quarantine`` of ``report.json``.
    """
    kind = entry["by"]
    console.print(
        f"{stage}: {entry['set_aside']:,} of {entry['judged']:,} {kind}s are far off the others", markup=False
    )
    if not entry["groups"]:
        return
    table = Table(title=f"{stage}: {kind}s", title_justify="left", title_style="bold")
    table.add_column(kind)
    for name in ("read", "dead", "dropped before"):
        table.add_column(name, justify="right")
    table.add_column("beyond")
    for group in entry["groups"][:SHOWN]:
        decoded = group["read"] - group["dead"]
        table.add_row(
            terminal_name(group["name"]),
            f"{group['read']:,}",
            f"{group['dead']:,} ({100 * group['dead_share']:.1f} %)",
            f"{group['dropped']:,} of {decoded:,} ({100 * group['drop_share']:.1f} %)",
            ", ".join(group["limits"]),
        )
    console.print(table)
