"""What the records are made of, before and after: by source, language and licence, in records and characters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.user_columns import user_values
from reports.counts import Counts, add
from reports.visible import terminal_name

LICENCE_COLUMNS = ("license", "licence")
"""Columns of the user's that may hold a licence; the first that is there does."""
SIDES = ("read", "kept")
MAX_NAMES = 1_000
SHOWN = 12
NO_NAME = "none"
PLURALS = {"source": "sources", "language": "languages", "licence": "licence"}
"""How the manifest calls the groups."""

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def licences(records: pa.RecordBatch) -> pa.Array | None:
    """Return the licence of each record, null for what is no text; None where there is no column of that name."""
    names = records.schema.names
    for column in LICENCE_COLUMNS:
        if JSON_COLUMN in names:
            if not pc.any(pc.match_substring(records.column(JSON_COLUMN), f'"{column}"')).as_py():
                continue
            values = user_values(records, column)
            return pa.array([value if isinstance(value, str) else None for value in values], pa.string())
        if USER_PREFIX + column in names:
            values = records.column(USER_PREFIX + column)
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                return values.cast(pa.string())
            return pa.nulls(records.num_rows, pa.string())
    return None


def mixture_counts(
    records: pa.RecordBatch, labels: pa.Array | None, kept: Mask, sizes: Mapping[str, tuple[Integers, Integers]]
) -> Counts:
    """Return what the decoded records of a batch add to the mixture.

    Args:
        records: the batch's records.
        labels: their languages; None without a language stage.
        kept: which of them stay.
        sizes: ``characters``, and ``tokens`` where they are counted: int64[n] as the records were read, and int64[n]
            behind the last stage, which counts for those that stay.

    Returns:
        group -> name -> ``read``, ``kept``, and each size followed by these; under ``none``, group -> the same of the
        records without a name.
    """
    counts: Counts = {}
    columns = {"source": records.column("source"), "language": labels, "licence": licences(records)}
    values = {"read": np.ones(len(kept), np.int64), "kept": kept.astype(np.int64)}
    for size, (before, after) in sizes.items():
        values |= {f"{size}_read": before, f"{size}_kept": np.where(kept, after, 0)}
    for group, names in columns.items():
        if names is None:
            continue
        table = pa.table({"name": names, **{name: pa.array(column) for name, column in values.items()}})
        sums = table.group_by("name", use_threads=False).aggregate([(name, "sum") for name in values])
        for row in sums.to_pylist():
            entry = {name: row[f"{name}_sum"] for name in values}
            if row["name"] is None:
                add(counts, {NO_NAME: {group: entry}})
            else:
                add(counts, {group: {row["name"]: entry}})
    return counts


def mixture_report(counts: Counts) -> dict[str, list[dict[str, Any]]]:
    """Return the section ``mixture`` of the report: by group its names, those whose share changed most first.

    An entry has ``name`` (None for records without one), the counts of ``mixture_counts``, and ``share_read`` and
    ``share_kept``: its shares of the records that were decoded and of those that stay. Names beyond ``MAX_NAMES`` are
    one entry with ``names``.
    """
    sections = {}
    for group in PLURALS:
        named = counts.get(group, {})
        entries: list[dict[str, Any]] = [{"name": name, **entry} for name, entry in named.items()]
        without = counts.get(NO_NAME, {}).get(group)
        if without:
            entries.append({"name": None, **without})
        if not named:
            continue
        totals = {side: sum(entry[side] for entry in entries) for side in SIDES}
        for entry in entries:
            entry |= _shares(entry, totals)
        entries.sort(
            key=lambda entry: (-abs(entry["share_kept"] - entry["share_read"]), -entry["read"], entry["name"] or "")
        )
        if len(entries) > MAX_NAMES:
            rest: Counts = {}
            for entry in entries[MAX_NAMES:]:
                add(rest, {name: count for name, count in entry.items() if name != "name" and name[:6] != "share_"})
            entries[MAX_NAMES:] = [{"name": None, "names": len(entries) - MAX_NAMES, **rest, **_shares(rest, totals)}]
        sections[group] = entries
    return sections


def _shares(entry: Mapping[str, Any], totals: Mapping[str, int]) -> dict[str, float]:
    return {f"share_{side}": round(entry[side] / totals[side], 6) if totals[side] else 0.0 for side in SIDES}


def mixture_read(counts: Counts) -> Counts:
    """Return the decoded records by group and name, as the manifest's ``mixture`` has those that stay."""
    found: Counts = {
        plural: {name: entry["read"] for name, entry in counts[group].items()}
        for group, plural in PLURALS.items()
        if counts.get(group)
    }
    without = {PLURALS[group]: entry["read"] for group, entry in counts.get(NO_NAME, {}).items()}
    return {**found, NO_NAME: without} if without else found


def largest_changes(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (group, entry) of all groups with more than one name, those whose share changed most first."""
    entries = [
        (group, entry) for group, names in report.get("mixture", {}).items() if len(names) > 1 for entry in names
    ]
    entries.sort(key=lambda pair: -abs(pair[1]["share_kept"] - pair[1]["share_read"]))
    yield from entries


def entry_name(entry: Mapping[str, Any]) -> str:
    """Return what to call an entry of the section."""
    if "names" in entry:
        return f"({entry['names']:,} others)"
    return "(none)" if entry["name"] is None else str(entry["name"])


def print_mixture(report: Mapping[str, Any], console: Console) -> None:
    """Print the names whose share changed most."""
    changes = [pair for pair in largest_changes(report) if pair[1]["share_kept"] != pair[1]["share_read"]][:SHOWN]
    if not changes or not report["records"]["kept"]:
        return
    table = Table(title="Mixture, largest changes first", title_justify="left", title_style="bold")
    for name in ("", "name"):
        table.add_column(name)
    for name in ("of the read", "of the kept", "change", "characters read", "kept"):
        table.add_column(name, justify="right")
    for group, entry in changes:
        before, after = 100 * entry["share_read"], 100 * entry["share_kept"]
        table.add_row(
            group,
            terminal_name(entry_name(entry)),
            f"{before:.1f} %",
            f"{after:.1f} %",
            f"{after - before:+.1f}",
            f"{entry['characters_read']:,}",
            f"{entry['characters_kept']:,}",
        )
    console.print(table)
