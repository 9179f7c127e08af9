"""Whether a run may be published: the section ``checks`` of a config, asked before the manifest is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.compare import ComparedRun, beyond, compare
from reports.limits import Checks


def broken_checks(checks: Checks, run: ComparedRun) -> list[str]:
    """Return the checks that a run does not meet, one sentence each. Raises UsageError without the earlier run."""
    report = run.report
    records = report["records"]
    found = []
    if records["kept"] < checks.minimum_kept:
        found.append(f"{records['kept']:,} records kept, fewer than minimum_kept ({checks.minimum_kept:,})")
    if checks.maximum_dead_share != "off" and records["read"]:
        share = records["dead"] / records["read"]
        if share > checks.maximum_dead_share:
            found.append(f"dead letters are {_percent(share)}, over maximum_dead_share ({checks.maximum_dead_share:g})")
    stages = {stage["name"]: stage for stage in report["stages"]}
    for name, limit in checks.maximum_drop_share.items():
        entered, dropped = stages[name]["entered"], stages[name]["dropped"]
        if entered and dropped / entered > limit:
            found.append(f"{name} drops {_percent(dropped / entered)}, over maximum_drop_share.{name} ({limit:g})")
    for group in ("language", "source"):
        limits: Mapping[str, float] = getattr(checks, f"minimum_{group}_share")
        found += _shares(group, run.mixture.get(f"{group}s", {}), records["kept"], limits)
    if checks.against is not None:
        earlier = ComparedRun.open(checks.against)
        found += [f"against {checks.against}: {line}" for line in beyond(compare(earlier, run), checks.limits)]
    return found


def _shares(group: str, mixture: Mapping[str, int], kept: int, limits: Mapping[str, Any]) -> list[str]:
    found = []
    for name, limit in limits.items():
        share = mixture.get(name, 0) / kept if kept else 0.0
        if share < limit:
            found.append(
                f"the {group} {name} is {_percent(share)} of what is kept, under "
                f"minimum_{group}_share.{name} ({limit:g})"
            )
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
