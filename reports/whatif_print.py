"""Print what other thresholds would do: a table of stages and rules, or the curve of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

BAR = 30
LARGEST_NAME = 60

Number = int | Mapping[str, int] | None


def print_whatif(result: Mapping[str, Any], console: Console) -> None:
    """Print counts now and then; ``result`` is what ``thresher whatif --json`` prints."""
    now, then = result["now"], result["then"]
    table = Table(title="What if", title_justify="left", title_style="bold")
    table.add_column("stage")
    table.add_column("rule")
    for name in ("now", "then", "difference"):
        table.add_column(name, justify="right")
    table.add_row("read", "", *_row(now["records"]["read"], then["records"]["read"]), style="bold")
    for before, after in zip(now["stages"], then["stages"], strict=True):
        table.add_row(before["name"], "", *_row(before["dropped"], after["dropped"], sign="−"))
        for rule in dict.fromkeys([*before["rules"], *after["rules"]]):
            old, new = before["rules"].get(rule, 0), after["rules"].get(rule, 0)
            if old != 0 or new != 0:
                table.add_row("", rule, *_row(old, new, sign="−"), style="dim")
        if before["dead"] != 0 or after["dead"] != 0:
            table.add_row("", "(could not be judged)", *_row(before["dead"], after["dead"], sign="−"), style="dim")
    unread = now["records"]["dead"] - sum(stage["dead"] for stage in now["stages"])
    if unread != 0:
        table.add_row("dead letters", "", *_row(unread, unread, sign="−"))
    table.add_row("kept", "", *_row(now["records"]["kept"], then["records"]["kept"]), style="bold green")
    table.add_row("characters kept", "", *_row(now["characters"], then["characters"]), style="bold")
    if "mean" in now:
        means = ["needs select" if side["mean"] is None else f"{side['mean']:.4g}" for side in (now, then)]
        table.add_row(f"mean {result['objective']}", "", *means, "")
    console.print(table)
    for alone in result.get("alone", ()):
        kept = _shown(alone["records"]["kept"])
        console.print(f"{alone['set']} alone: {kept} kept", markup=False, soft_wrap=True)
    for stage in then["stages"]:
        for reason in stage.get("needs_select", ()):
            console.print(
                f"{stage['name']}: {reason}; exact numbers need thresher select", markup=False, soft_wrap=True
            )


def print_sweep(result: Mapping[str, Any], console: Console) -> None:
    """Print the curve of a sweep; ``result`` is what ``thresher whatif --sweep --json`` prints."""
    points = result["points"]
    has_mean = result["objective"] is not None
    table = Table(title=f"What if {result['setting']} were", title_justify="left", title_style="bold")
    for name in ("value", "kept", "characters"):
        table.add_column(name, justify="right")
    if has_mean:
        table.add_column(f"mean {result['objective']}", justify="right")
        table.add_column("Pareto")
    table.add_column("share of records kept")
    for point in points:
        kept = point["records"]["kept"]
        cells = [str(point["value"]), _shown(kept), _shown(point["characters"])]
        if has_mean:
            cells.append("needs select" if point["mean"] is None else f"{point['mean']:.4g}")
            cells.append("*" if point["pareto"] else "")
        table.add_row(*cells, _bar(kept, point["records"]["read"]))
    console.print(table)
    for reason in result["needs_select"]:
        _explain(reason, result, console)


def pareto(points: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return for each point whether no other one has more characters and a higher mean: at least as much, one more.

    Points of which either is not known exactly are none, and rule out none.
    """
    known = [
        (point["characters"], point["mean"]) if isinstance(point["characters"], int) and point["mean"] is not None
        else None
        for point in points
    ]  # fmt: skip

    def beaten(own: tuple[int, float]) -> bool:
        return any(other is not None and other != own and other[0] >= own[0] and other[1] >= own[1] for other in known)

    return [own is not None and not beaten(own) for own in known]


def _row(now: Number, then: Number, sign: str = "") -> tuple[str, str, str]:
    """Return the cells of two numbers and their difference; with a sign they are what is taken away."""
    difference = ""
    if isinstance(now, int) and isinstance(then, int) and then != now:
        difference = f"{now - then if sign else then - now:+,}".replace("-", "−")
    return _shown(now, sign), _shown(then, sign), difference


def _shown(number: Number, sign: str = "") -> str:
    if number is None:
        return "needs select"
    if isinstance(number, int):
        return f"{sign}{number:,}" if number else "0"
    low, high = (_shown(number[end], sign) for end in ("at_least", "at_most"))
    return f"{low} to {high}"


def _bar(kept: Number, read: int) -> str:
    if not read or kept is None:
        return ""
    low, high = (kept, kept) if isinstance(kept, int) else (kept["at_least"], kept["at_most"])
    full, possible = round(BAR * low / read), round(BAR * high / read)
    return "█" * full + "░" * (possible - full)


def _explain(reason: str, result: Mapping[str, Any], console: Console) -> None:
    remedy = "thresher select" if result["staged"] else "a new run, since staging was removed"
    console.print(f"{reason}; exact numbers need {remedy}", markup=False, soft_wrap=True)
