"""Print what a run knows about a record. All that comes from the data is escaped (``reports.explain_terminal``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.explain_diff import DiffRow
from reports.explain_terminal import terminal_text

TEXT_SHOWN = 1_500
CONTEXT = 300
VALUE_SHOWN = 80

_TESTS = {"at_least": "at least", "at_most": "at most", "one_of": "one of", "is_set": "known", "decided": ""}
_STYLES = {"found": "black on yellow", "cut": "red strike", "replaced": "black on cyan", "differs": "bold"}


def print_explanation(found: Mapping[str, Any], console: Console) -> None:
    """Print what ``reports.explain.explain`` found."""
    count = len(found["records"]) + found["more_records"]
    if count > 1:
        console.print(f"{count:,} records have this id")
    for record in found["records"]:
        _print_record(record, console)
    for letter in found["dead_letters"]:
        _line(console, "dead letter", f"{letter['file']} at {letter['position']}: {letter['error']}")
        _line(console, "detail", letter["detail"] or "")
        _line(console, f"{letter['raw_bytes']:,} bytes kept", letter["raw"])


def _print_record(record: Mapping[str, Any], console: Console) -> None:
    console.rule(Text(_name(record["record_id"])), align="left")
    _line(console, "from", f"{record['file']} at {record['position']:,}, source {record['source']}")
    ledger = record["ledger"]
    if ledger is None:
        where = "" if record["left_at"] is None else f": {record['left_at']} could not judge it"
        _line(console, "verdict", record["fate"] + where)
    else:
        _line(console, "verdict", f"dropped by {ledger['stage']}/{ledger['rule']}{_measure(ledger)}")
        if ledger["related_id"] is not None:
            detail = ledger["detail"] or {}
            later = detail.get("later_dropped_by")
            end = f", which {later} dropped later" if later else ""
            place = f"{detail.get('file')} at {detail.get('position')}"
            _line(console, "because of", f"{ledger['related_id']} ({place}){end}")
        elif ledger["detail"]:
            _line(console, "detail", json.dumps(ledger["detail"], ensure_ascii=False))
    _print_stages(record["stages"], console)
    for cluster in record["duplicates"]:
        _print_cluster(cluster, console)
    _print_evidence(record["evidence"], console)
    compared = record.get("comparison", {})
    for part in record["texts"]:
        marked = any(mark for field in part.get("fields", {}).values() for _, mark in field["marks"])
        if marked or part["stage"] != compared.get("stage"):
            _print_text(part, console)
    if "comparison" in record:
        _print_comparison(record["comparison"], console)


def _measure(ledger: Mapping[str, Any]) -> str:
    if ledger["value"] is None:
        return ""
    limit = "" if ledger["threshold"] is None else f", limit {_number(ledger['threshold'])}"
    return f" (value {_number(ledger['value'])}{limit})"


def _print_stages(stages: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(title="Stages", title_justify="left", title_style="bold")
    for name in ("stage", "signal", "value", "rule", "limit", ""):
        table.add_column(name)
    for stage in stages:
        style = {"left": "bold", "not reached": "dim"}.get(stage["state"])
        state = stage["state"] if stage["state"] != "left" else "left here"
        table.add_row(_cell(stage["name"]), "", "", "", "", state, style=style)
        by_signal: dict[str, list[Mapping[str, Any]]] = {}
        for rule in stage["rules"]:
            by_signal.setdefault(rule["signal"], []).append(rule)
        for signal in dict.fromkeys([*stage["signals"], *by_signal]):
            value = stage["signals"].get(signal)
            first, *others = by_signal.get(signal, [None])
            table.add_row("", _cell(signal), _value(value), *_rule_cells(first), style=style)
            for rule in others:
                table.add_row("", "", "", *_rule_cells(rule), style=style)
    console.print(table)


def _rule_cells(rule: Mapping[str, Any] | None) -> tuple[Text, Text, Text]:
    if rule is None:
        return Text(""), Text(""), Text("")
    values = ", ".join(rule.get("values", ()))
    threshold = "" if rule["threshold"] is None else _number(rule["threshold"])
    limit = f"{_TESTS[rule['test']]} {values or threshold}".strip()
    verdict = {True: Text("met"), False: Text("not met", style="red"), None: Text("")}[rule["meets"]]
    return _cell(rule["name"]), _cell(limit), verdict


def _print_cluster(cluster: Mapping[str, Any], console: Console) -> None:
    title = f"{cluster['stage']}: {cluster['role']} in a cluster of {cluster['cluster_size']:,}"
    table = Table(title=Text(terminal_text(title)), title_justify="left", title_style="bold")
    for name in ("record", "place", "role", "similarity"):
        table.add_column(name)
    for member in cluster["members"]:
        similarity = "" if member["jaccard"] is None else f"{member['jaccard']:.4f}"
        place = f"{member['file']} at {member['position']:,}"
        table.add_row(_cell(member["record_id"]), _cell(place), member["role"], similarity)
    console.print(table)
    left_out = cluster["cluster_size"] - 1 - len(cluster["members"])
    if left_out > 0:
        console.print(f"and {left_out:,} more")


def _print_evidence(evidence: Iterable[Mapping[str, Any]], console: Console) -> None:
    for row in evidence:
        value = "" if row["value"] is None else f", value {_number(row['value'])}"
        related = "" if row["related"] is None else f", {row['related']}"
        what = f"{row['stage']}/{row['rule']}: {row['action']} {row['field']} {row['start']:,} to {row['end']:,}"
        _line(console, "evidence", f"{what}{value}{related}")


def _print_text(part: Mapping[str, Any], console: Console) -> None:
    if "missing" in part:
        _line(console, "text", part["missing"])
        return
    for name, field in part["fields"].items():
        _line(console, f"{name} at {part['stage']}", "")
        console.print(_marked(field), soft_wrap=True)


def _marked(field: Mapping[str, Any]) -> Text:
    """Return a text, or of a long one its beginning or what stands around its marks, with the marks."""
    text = Text()
    pieces = field["marks"]
    total = sum(len(piece) for piece, _ in pieces)
    place = next_place = 0
    shown_until = TEXT_SHOWN
    for number, (piece, mark) in enumerate(pieces):
        next_place = place + len(piece)
        near = any(other is not None for _, other in pieces[max(0, number - 1) : number + 2])
        if mark is not None or next_place <= shown_until:
            text.append(_body(piece), _STYLES.get(mark) if mark else None)
        elif near:
            text.append(_body(piece[:CONTEXT]) + (" […] " if len(piece) > 2 * CONTEXT else ""))
            text.append(_body(piece[max(CONTEXT, len(piece) - CONTEXT) :]))
        elif place < shown_until:
            text.append(_body(piece[: shown_until - place]))
        place = next_place
    hidden = field["before"] + field["after"] + max(0, total - len(text))
    if hidden:
        text.append(f" […] {hidden:,} characters more", "dim")
    return text


def _print_comparison(comparison: Mapping[str, Any], console: Console) -> None:
    other = comparison["with"]
    title = f"{comparison['stage']}: similarity {other['jaccard']:.4f} with {other['record_id']}"
    if "missing" in comparison:
        _line(console, title, comparison["missing"])
        return
    for name, field in comparison["fields"].items():
        table = Table(
            title=Text(terminal_text(title)), title_justify="left", title_style="bold", expand=True, show_lines=False
        )
        table.add_column(f"this record, {name}", ratio=1)
        table.add_column(Text(_name(other["record_id"])), ratio=1)
        for row in field["rows"]:
            table.add_row(*_sides(row))
        console.print(table)


def _sides(row: DiffRow) -> tuple[Text, Text]:
    if row.kind == "skipped":
        return Text(f"… {row.count:,} equal lines …", "dim"), Text("")
    return _side(row.left, "red"), _side(row.right, "green")


def _side(segments: Sequence[tuple[str, bool]] | None, color: str) -> Text:
    side = Text()
    for piece, differs in segments or ():
        side.append(terminal_text(piece), f"bold {color}" if differs else None)
    return side


def _line(console: Console, title: str, text: str) -> None:
    console.print(Text.assemble((terminal_text(title), "bold"), ": ", terminal_text(text)), soft_wrap=True)


def _value(value: Any) -> Text:
    if value is None:
        return Text("–", "dim")
    return _cell(_number(value) if isinstance(value, (int, float)) else str(value))


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:.6g}"


def _cell(text: str) -> Text:
    return Text(_name(text))


def _name(text: str) -> str:
    shown = terminal_text(text)
    return shown if len(shown) <= VALUE_SHOWN else shown[: VALUE_SHOWN - 1] + "…"


def _body(text: str) -> str:
    return terminal_text(text, keep="\n\t")
