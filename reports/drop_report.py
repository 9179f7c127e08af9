"""The drop report: what was read, what left at which stage by which rule, what stayed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from corpus.errors import ThresherError
from reports.contamination import print_contamination
from reports.counts import Counts, add, balance, is_balanced
from reports.fates import StageInfo
from reports.mixture import mixture_report, print_mixture
from reports.quarantine import print_quarantine
from reports.scores import print_scores
from reports.text_sizes import STAGE_SIZES, counted_sizes
from reports.visible import terminal_name

MAX_NAMES = 10_000
MAX_RULES = 1_000
OTHER_RULES = "other"
STAGE_COUNTS = (
    "entered",
    "dropped",
    "dead",
    "edited",
    "characters_in",
    "characters_dropped",
    "characters_cut",
    "characters_added",
    "characters_out",
)


def build_report(counts: Counts, infos: Sequence[StageInfo], repeated_ids: int | None) -> dict[str, Any]:
    """Return ``report.json`` from the summed counts of all table shards.

    Args:
        infos: all stages in order, ``input`` first.
        repeated_ids: records whose id an earlier record has; None where the input has no id column.
    """
    stages = []
    duplicates = {}
    for info in infos:
        entry = counts["stages"][info.name]
        found = entry.get("duplicates")
        numbers = {name: entry[name] for name in STAGE_COUNTS}
        numbers |= {name: entry[name] for name in STAGE_SIZES if name in entry}
        stages.append({"name": info.name, **numbers, "rules": _rules(info, entry["rules"])})
        if entry.get("notices"):
            stages[-1]["notices"] = entry["notices"]
        if found is not None:
            duplicates[info.name] = _duplicates(found, entry["in_output"])
    records = {**balance(), **counts.get("records", {})}
    report = {
        "records": records,
        "files_failed": len(counts.get("file_faults", {})),
        "dead_letters": dict(sorted(counts.get("dead_letters", {}).items())),
        "stages": stages,
        **_named(counts, "source"),
        **_named(counts, "language"),
        "mixture": mixture_report(counts.get("mixture", {})),
        "duplicates": duplicates,
        "overlap": {rule: dict(sorted(others.items())) for rule, others in sorted(counts.get("overlap", {}).items())},
    }
    if repeated_ids is not None:
        report["repeated_ids"] = repeated_ids
    return report


def _duplicates(found: Counts, in_output: Counts) -> Counts:
    """Return what the report says of a duplicate stage: after the stage, and of what is left of it in the output."""
    names = ("leaders", "copies_kept", "leader_units", "copy_units_kept")
    output = {name: in_output[name] for name in names}
    return {
        **found,
        "achieved": _achieved(found),
        "leaders_dropped_later": found["clusters"] - in_output["clusters"],
        "in_output": {**output, "achieved": _achieved(output)},
    }


def _achieved(counts: Counts) -> float | None:
    """Return the copies as a share of the leaders, in the unit of the budget; None for copies without any leader."""
    leaders, copies = counts["leader_units"], counts["copy_units_kept"]
    return copies / leaders if leaders else None if copies else 0.0


def _rules(info: StageInfo, counts: Counts) -> Counts:
    """Return the counts of a stage's rules in their order; of those that values name, the largest, then the others."""
    rules: Counts = {}
    for rule in info.rules:
        if rule.named_by is None:
            rules[rule.name] = counts[rule.name]
            continue
        fixed = {other.name for other in info.rules if other.named_by is None}
        found = [entry for entry in counts.items() if entry[0] not in fixed]
        found.sort(key=lambda entry: (-entry[1]["first"], entry[0]))
        rules.update(sorted(found[:MAX_RULES]))
        for _, entry in found[MAX_RULES:]:
            add(rules.setdefault(OTHER_RULES, {}), entry)
    return rules


def _named(counts: Counts, group: str) -> Counts:
    """Return the counts by name, largest first where they are too many to list; the rest is one entry beside them."""
    entries = counts.get(f"by_{group}", {})
    named: Counts = {f"by_{group}": dict(sorted(entries.items()))}
    if len(entries) > MAX_NAMES:
        ordered = sorted(entries.items(), key=lambda entry: (-entry[1]["read"], entry[0]))
        named[f"by_{group}"] = dict(sorted(ordered[:MAX_NAMES]))
        rest = {"names": len(ordered) - MAX_NAMES}
        for _, entry in ordered[MAX_NAMES:]:
            add(rest, entry)
        named[f"other_{group}"] = rest
    if f"no_{group}" in counts:
        named[f"no_{group}"] = counts[f"no_{group}"]
    return named


def check_conservation(
    report: Mapping[str, Any],
    counts: Counts,
    curated: Counts,
    ledger_rows: int,
) -> None:
    """Raise ThresherError unless every record is accounted for, in all and per source.

    Args:
        counts: what the table shards counted; the report lists the largest sources only.
        curated: the mixture of the curated files, ``sources`` and how many records have ``none``.
        ledger_rows: rows that were written to the ledger.
    """
    problems = []
    records = report["records"]
    if not is_balanced(records):
        problems.append(f"in all: {_equation(records)}")
    sources = curated.get("sources", {})
    no_source = curated.get("none", {}).get("sources", 0)
    written = sum(sources.values()) + no_source
    if written != records["kept"]:
        problems.append(f"curated files have {written} rows, {records['kept']} were kept")
    if ledger_rows != records["dropped"]:
        problems.append(f"the ledger has {ledger_rows} rows, {records['dropped']} were dropped")
    entries = [(f"source {name}", entry, sources.get(name, 0)) for name, entry in counts["by_source"].items()]
    entries.append(("records without a source", counts.get("no_source", balance()), no_source))
    for name, entry, found in entries:
        if not is_balanced(entry) or found != entry["kept"]:
            problems.append(f"{name}: {_equation(entry)}, {found} written")
    for stage in report["stages"]:
        left = sum(rule["first"] for rule in stage["rules"].values())
        if left != stage["dropped"]:
            problems.append(f"stage {stage['name']}: {stage['dropped']} dropped, {left} by its rules")
        if stage["characters_in"] != (
            stage["characters_out"] + stage["characters_dropped"] + stage["characters_cut"] - stage["characters_added"]
        ):
            problems.append(f"stage {stage['name']}: its characters do not balance")
    for before, after in itertools.pairwise(report["stages"]):
        passed = (before["entered"] - before["dropped"] - before["dead"], before["characters_out"])
        if passed != (after["entered"], after["characters_in"]):
            problems.append(f"stage {after['name']}: what enters it is not what the stage before it left")
    if problems:
        raise ThresherError("the run does not balance, so it has no manifest:\n  " + "\n  ".join(problems))


def _equation(entry: Mapping[str, int]) -> str:
    return f"read {entry['read']} is not kept {entry['kept']} + dropped {entry['dropped']} + dead {entry['dead']}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def print_report(report: Mapping[str, Any], run: Mapping[str, Any], console: Console) -> None:
    """Print the report as tables; ``run`` is the content of ``run.json``."""
    records = report["records"]
    table = Table(title="Drop report", title_justify="left", title_style="bold")
    table.add_column("stage")
    table.add_column("rule")
    for name in ("records", "of entered", "alone", "characters"):
        table.add_column(name, justify="right")
    table.add_row("read", "", f"{records['read']:,}", "", "", f"{_characters_read(report):,}", style="bold")
    if records["dead"]:
        table.add_row("dead letters", "", f"{records['dead']:,}", _share(records["dead"], records["read"]), "", "")
        for error, count in report["dead_letters"].items():
            table.add_row("", terminal_name(error), f"{count:,}", "", "", "")
    for stage in report["stages"]:
        lost = stage["characters_in"] - stage["characters_out"]
        share = _share(stage["dropped"], stage["entered"])
        table.add_row(terminal_name(stage["name"]), "", f"−{stage['dropped']:,}", share, "", f"−{lost:,}")
        for rule, entry in stage["rules"].items():
            if entry["first"] or entry["alone"]:
                first = _share(entry["first"], stage["entered"])
                table.add_row(
                    "", terminal_name(rule), f"−{entry['first']:,}", first, f"{entry['alone']:,}", "", style="dim"
                )
        if stage["dead"]:
            table.add_row("", "(could not be judged)", f"−{stage['dead']:,}", "", "", "", style="dim")
        if stage["edited"]:
            cut = stage["characters_cut"] - stage["characters_added"]
            share = _share(stage["edited"], stage["entered"])
            table.add_row("", "(edited)", f"{stage['edited']:,}", share, "", f"−{cut:,}", style="dim")
    last = report["stages"][-1]
    kept = last["characters_out"]
    share = _share(records["kept"], records["read"])
    table.add_row("kept", "", f"{records['kept']:,}", share, "", f"{kept:,}", style="bold green")
    console.print(table)
    counted = counted_sizes(report)
    if counted is not None:
        share = _share(counted.kept, counted.counted)
        edits = f", before {', '.join(counted.edited_by)} edited texts" if counted.edited_by else ""
        console.print(
            f"{counted.unit}: {counted.counted:,} counted by {counted.stage}, {counted.kept:,} of them in the records "
            f"kept ({share}){edits}",
            markup=False,
        )
    _print_groups(report, "source", console)
    _print_groups(report, "language", console)
    print_mixture(report, console)
    for name, entry in report["duplicates"].items():
        left = entry["copies_available"] - entry["copies_kept"]
        unit = "" if entry["budget_unit"] == "records" else f" by {entry['budget_unit']}"
        console.print(
            f"{name}: {entry['leaders']:,} distinct, {entry['clusters']:,} of them with copies, {left:,} copies left "
            f"out, {entry['copies_kept']:,} kept ({100 * entry['achieved']:.1f} % of the distinct{unit})",
            markup=False,
        )
        output = entry["in_output"]
        if output["copies_kept"] and output["achieved"] != entry["achieved"]:
            share = "none of the distinct" if output["achieved"] is None else f"{100 * output['achieved']:.1f} %{unit}"
            console.print(f"{name}: {output['copies_kept']:,} copies are in the output ({share})", markup=False)
        if entry.get("pairs", {}).get("not_compared"):
            pairs = entry["pairs"]["not_compared"]
            console.print(f"{name}: {pairs:,} pairs in very large buckets were not compared", markup=False)
        if entry["leaders_dropped_later"]:
            count, copies = entry["leaders_dropped_later"], entry["copies_of_leaders_dropped_later"]
            console.print(
                f"{name}: a later stage dropped {count:,} of those with copies; {copies:,} copies left for these",
                markup=False,
            )
    print_contamination(report.get("contamination", {}), console)
    for name, entry in report.get("boilerplate", {}).items():
        if entry["ngrams"]:
            console.print(
                f"{name}: {entry['ngrams']:,} n-grams of benchmarks are in {entry['sources']} sources or more, or in "
                "the list of boilerplate, and did not count",
                markup=False,
            )
    for name, entry in report.get("quarantine", {}).items():
        print_quarantine(name, entry, console)
    print_scores(report.get("scores", {}), run.get("scores", {}), console)
    if report.get("repeated_ids"):
        console.print(f"{report['repeated_ids']:,} records repeat the id of an earlier one", style="yellow")
    if report["files_failed"]:
        console.print(f"{report['files_failed']:,} files could not be read to their end", style="yellow")
    for warning in run.get("warnings", []):
        console.print(f"warning: {warning}", style="yellow", markup=False)
    if "seconds" in run:
        console.print(f"{run['seconds']:.1f} s, {_where(run)}, {run['megabytes_per_second']:.1f} MB/s of text")


def _where(run: Mapping[str, Any]) -> str:
    if run["workers"]:
        return "1 worker" if run["workers"] == 1 else f"{run['workers']} workers"
    known = run.get("parallelism")
    return f"on {run['engine']}" + (f" with parallelism {known}" if known else "")


def _characters_read(report: Mapping[str, Any]) -> int:
    return int(report["stages"][0]["characters_in"])


def _print_groups(report: Mapping[str, Any], group: str, console: Console, largest: int = 12) -> None:
    entries = dict(report[f"by_{group}"])
    if len(entries) + (f"no_{group}" in report) < 2:
        return
    table = Table(title=f"By {group}", title_justify="left", title_style="bold")
    table.add_column(group)
    for name in ("read", "kept", "dropped", "dead", "kept share"):
        table.add_column(name, justify="right")
    ordered = sorted(entries.items(), key=lambda entry: (-entry[1]["read"], entry[0]))
    rows = ordered[:largest]
    if f"no_{group}" in report:
        rows.append((f"(no {group})", report[f"no_{group}"]))
    if len(ordered) > largest:
        rest: Counts = {}
        for _, entry in ordered[largest:]:
            add(rest, entry)
        rows.append((f"({len(ordered) - largest:,} others)", rest))
    for name, entry in rows:
        numbers = (f"{entry[column]:,}" for column in ("read", "kept", "dropped", "dead"))
        table.add_row(terminal_name(name), *numbers, _share(entry["kept"], entry["read"]))
    console.print(table)
