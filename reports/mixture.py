"""What the records are made of, before and after: by source, language and licence, in records and characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from corpus.batch import JSON_COLUMN, USER_PREFIX
from corpus.column_types import ColumnTypes, arrow_type
from corpus.columns import output_columns
from reports.counts import Counts, add
from reports.text_sizes import UNITS
from reports.visible import terminal_name

LICENCE_COLUMNS = ("license", "licence")
"""Columns of the user's that may hold a licence; the first that is there does."""
SIDES = ("read", "kept")
MAX_NAMES = 1_000
SHOWN = 10
"""Names of a group that are printed."""
NO_NAME = "none"
PLURALS = {"source": "sources", "language": "languages", "licence": "licence"}
"""How the manifest calls the groups."""

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def licence_columns(types: ColumnTypes) -> list[str]:
    """Return the columns of staged records that may hold the licence; none where no column of texts has its name."""
    name = _licence_name(types)
    return [] if name is None else [JSON_COLUMN, USER_PREFIX + name]


def licences(records: pa.RecordBatch, types: ColumnTypes) -> pa.Array | None:
    """Return the licence of each record as the curated files have it; None where there is no such column of texts.

    Args:
        records: with those of ``licence_columns`` that are there.
        types: of the user's columns, merged over the run.
    """
    name = _licence_name(types)
    if name is None:
        return None
    [(_, values)] = output_columns(records, ColumnTypes({name: types.columns[name]}))
    return values


def _licence_name(types: ColumnTypes) -> str | None:
    name = next((name for name in LICENCE_COLUMNS if name in types.columns), None)
    return name if name is not None and arrow_type(types.type_of(name)) == pa.string() else None


def mixture_counts(
    names: Mapping[str, pa.Array | None], kept: Mask, sizes: Mapping[str, tuple[Integers, Integers]]
) -> Counts:
    """Return what the decoded records of a batch add to the mixture.

    Args:
        names: ``source``, ``language`` and ``licence`` of each record; None where there is nothing of the kind.
        kept: which of the records stay.
        sizes: ``characters``, and ``tokens`` or ``words`` where a stage counts them: int64[n] as the records were read,
            and int64[n] behind the last stage, which counts for those that stay.

    Returns:
        group -> name -> ``read``, ``kept``, and each size followed by these; under ``none``, group -> the same of the
        records without a name.
    """
    counts: Counts = {}
    values = {"read": np.ones(len(kept), np.int64), "kept": kept.astype(np.int64)}
    for size, (before, after) in sizes.items():
        values |= {f"{size}_read": before, f"{size}_kept": np.where(kept, after, 0)}
    for group, column in names.items():
        if column is None:
            continue
        table = pa.table({"name": column, **{name: pa.array(column) for name, column in values.items()}})
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

    An entry has ``name`` (None for records without one), the counts of ``mixture_counts``, and of each the share:
    ``share_read`` and ``share_kept`` of the records that were decoded and of those that stay, ``characters_share_read``
    and ``characters_share_kept`` of their characters, and so on. The order goes by the change of the share of records.
    Names beyond ``MAX_NAMES`` are one entry with ``names``.
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
        totals: Counts = {}
        for entry in entries:
            add(totals, _counts(entry))
        for entry in entries:
            entry |= _shares(entry, totals)
        entries.sort(
            key=lambda entry: (-abs(entry["share_kept"] - entry["share_read"]), -entry["read"], entry["name"] or "")
        )
        if len(entries) > MAX_NAMES:
            rest: Counts = {}
            for entry in entries[MAX_NAMES:]:
                add(rest, _counts(entry))
            entries[MAX_NAMES:] = [{"name": None, "names": len(entries) - MAX_NAMES, **rest, **_shares(rest, totals)}]
        sections[group] = entries
    return sections


def _counts(entry: Mapping[str, Any]) -> Counts:
    """Return the counts of an entry, without its name and its shares."""
    return {name: value for name, value in entry.items() if name != "name" and "share_" not in name}


def _shares(entry: Mapping[str, Any], totals: Mapping[str, int]) -> dict[str, float]:
    """Return the share that an entry has of each total."""
    shares = {}
    for name, total in totals.items():
        prefix, _, side = name.rpartition("_")
        share = f"{prefix}_share_{side}" if prefix else f"share_{side}"
        shares[share] = round(entry[name] / total, 6) if total else 0.0
    return shares


def manifest_mixture(counts: Counts, measure: str) -> Counts:
    """Return one count by group and name, in the form of the manifest's ``mixture``.

    Args:
        counts: sums of ``mixture_counts``.
        measure: ``read``, ``characters_read``, ``characters_kept``, …
    """
    found: Counts = {
        plural: {name: entry[measure] for name, entry in counts[group].items()}
        for group, plural in PLURALS.items()
        if counts.get(group)
    }
    without = {PLURALS[group]: entry[measure] for group, entry in counts.get(NO_NAME, {}).items()}
    return {**found, NO_NAME: without} if without else found


def largest_changes(report: Mapping[str, Any], most: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (group, entry): of each group with more than one name those ``most`` whose share changed most."""
    groups = report.get("mixture", {}).items()
    return [(group, entry) for group, names in groups if len(names) > 1 for entry in names[:most]]


def sizes_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the entries are measured in besides records: ``characters``, and what a stage counted."""
    known = {name for entries in report["mixture"].values() for entry in entries for name in entry}
    return ("characters", *(unit for unit in UNITS if f"{unit}_read" in known))


def shares_of(entry: Mapping[str, Any], sizes: Sequence[str]) -> list[tuple[float, float]]:
    """Return the shares that an entry has before and after, of the records and of each size."""
    prefixes = ("", *(f"{size}_" for size in sizes))
    return [(entry[f"{prefix}share_read"], entry[f"{prefix}share_kept"]) for prefix in prefixes]


def entry_name(entry: Mapping[str, Any]) -> str:
    """Return what to call an entry of the section."""
    if "names" in entry:
        return f"({entry['names']:,} others)"
    return "(none)" if entry["name"] is None else str(entry["name"])


def print_mixture(report: Mapping[str, Any], console: Console) -> None:
    """Print of each group the names whose share changed most, with their shares before and after."""
    if not report["records"]["kept"]:
        return
    # Words, which nobody asked for, say what characters say; a terminal has room for one of them.
    sizes = [size for size in sizes_of(report) if size != "words"]
    table = Table(title="Mixture, largest changes first", title_justify="left", title_style="bold")
    for name in ("", "name"):
        table.add_column(name)
    for name in ("records", *sizes):
        table.add_column(f"{name} read", justify="right")
        for side in ("kept", "change"):
            table.add_column(side, justify="right")
    last = ""
    for group, entry in largest_changes(report, SHOWN):
        shares = shares_of(entry, sizes)
        if all(before == after for before, after in shares):
            continue
        if last not in ("", group):
            table.add_section()
        cells = []
        for before, after in shares:
            cells += [f"{100 * before:.1f} %", f"{100 * after:.1f} %", f"{100 * (after - before):+.1f}"]
        table.add_row("" if group == last else group, terminal_name(entry_name(entry)), *cells)
        last = group
    if table.row_count:
        console.print(table)
