"""The command ``thresher whatif``: counts under other thresholds, from what a run has stored."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from corpus.errors import UsageError
from pipelines.terminal import AddCommand, console_for, write_json

if TYPE_CHECKING:
    from reports.whatif import StoredRun, Variant

MOST_POINTS = 1000
SWEEP_FORM = "write --sweep STAGE.KEY=FROM:TO:STEP, such as length.minimum_words=10:100:10"


def add(command: AddCommand) -> None:
    """Add the command."""
    parser = command("whatif", _whatif, "Show what other thresholds would keep, from stored signals.")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="STAGE.KEY=VALUE", help="a setting")
    parser.add_argument("--sweep", metavar="STAGE.KEY=FROM:TO:STEP", help="a setting with many values, both ends in")
    parser.add_argument("--objective", metavar="STAGE.SIGNAL", help="a signal whose mean over the kept records counts")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _whatif(arguments: argparse.Namespace) -> None:
    from reports.whatif_print import print_sweep, print_whatif

    if not arguments.sets and arguments.sweep is None:
        raise UsageError("whatif: nothing to ask; give --set STAGE.KEY=VALUE or --sweep STAGE.KEY=FROM:TO:STEP")
    if arguments.sweep is None:
        result = whatif(arguments.run, arguments.sets, arguments.objective)
        printing = print_whatif
    else:
        result = sweep(arguments.run, arguments.sweep, arguments.sets, arguments.objective)
        printing = print_sweep
    if arguments.json:
        write_json(result)
    else:
        printing(result, console_for())


def whatif(root: str, sets: Sequence[str], objective: str | None = None) -> dict[str, Any]:
    """Return counts of a finished run as they are and as they would be.

    Args:
        root: path or URI of the run folder.
        sets: texts of ``--set``.
        objective: a signal, ``stage.signal``, whose mean over the kept records is wanted.

    Returns:
        ``now`` and ``then`` as ``reports.whatif.follow`` gives them; ``alone``: for each of several ``sets`` what it
        would do by itself, but for those that are no config by themselves.

    Raises:
        UsageError: the run or a setting cannot be used.
    """
    from reports.whatif import follow

    run, semantic = _stored(root)
    variants = [_variant(semantic, sets)]
    singles = sets if len(sets) > 1 else []
    found = ((one, _variant_by_itself(semantic, one)) for one in singles)
    by_themselves = {one: variant for one, variant in found if variant is not None}
    now, then, *others = follow(run, [*variants, *by_themselves.values()], objective)
    alone = [{"set": one, **other} for one, other in zip(by_themselves, others, strict=True)]
    result: dict[str, Any] = {"run": root, "sets": list(sets), "objective": objective, "staged": run.is_staged}
    result |= {"now": now, "then": then}
    return result | ({"alone": alone} if alone else {})


def sweep(root: str, text: str, sets: Sequence[str] = (), objective: str | None = None) -> dict[str, Any]:
    """Return what a finished run would keep with each of many values of a setting.

    Args:
        root: path or URI of the run folder.
        text: ``stage.key=from:to:step``, both ends included.
        sets: other settings, the same for all values.
        objective: a signal, ``stage.signal``, whose mean over the kept records is wanted.

    Raises:
        UsageError: the run, the sweep or a setting cannot be used.
    """
    from reports.whatif import follow
    from reports.whatif_print import pareto

    setting, values = _values(text)
    run, semantic = _stored(root)
    variants = [_variant(semantic, [*sets, f"{setting}={value}"]) for value in values]
    now, *results = follow(run, variants, objective)
    points = [
        {"value": float(value) if "." in value else int(value), **_summary(result)}
        for value, result in zip(values, results, strict=True)
    ]
    if objective is not None:
        for point, best in zip(points, pareto(points), strict=True):
            point["pareto"] = best
    reasons = {
        f"{stage['name']}: {reason}": None
        for result in results
        for stage in result["stages"]
        for reason in stage.get("needs_select", ())
    }
    return {
        "run": root,
        "sets": list(sets),
        "setting": setting,
        "objective": objective,
        "staged": run.is_staged,
        "now": _summary(now),
        "points": points,
        "needs_select": list(reasons),
    }


def _summary(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("records", "characters", "mean") if name in result}


def _values(text: str) -> tuple[str, list[str]]:
    """Return the setting and the values of a sweep."""
    setting, equals, given = text.partition("=")
    try:
        first, last, step = map(Decimal, given.split(":"))
        count = int((last - first) / step) + 1
    except (InvalidOperation, ValueError, ArithmeticError):
        raise UsageError(f"--sweep {text}: {SWEEP_FORM}") from None
    if not equals or not setting.strip() or not 1 <= count <= MOST_POINTS or (last - first) * step < 0:
        raise UsageError(f"--sweep {text}: {SWEEP_FORM}, of 1 to {MOST_POINTS} values")
    numbers = [first + step * place for place in range(count)]
    whole = all(number == number.to_integral_value() for number in numbers)
    return setting.strip(), [
        f"{int(number) if whole else number:f}" if not whole else str(int(number)) for number in numbers
    ]


def _stored(root: str) -> tuple[StoredRun, Mapping[str, Any]]:
    from corpus.folder import Folder
    from pipelines.finished_run import absolute
    from pipelines.passes import compile_passes
    from pipelines.stored_config import stored_config
    from reports.fates import stage_infos
    from reports.whatif import StoredRun, Variant
    from reports.whatif_tables import open_manifest

    path = absolute(root)
    semantic = open_manifest(Folder(path))["config"]
    config = stored_config(semantic)
    stages = config.build(check=False)
    passes = [(current.number, current.stages) for current in compile_passes(stages)]
    return StoredRun(path, stage_infos(passes, config.input), Variant.of(stages)), semantic


def _variant(semantic: Mapping[str, Any], sets: Sequence[str]) -> Variant:
    from pipelines.stored_config import stored_config
    from reports.whatif import Variant

    return Variant.of(stored_config(semantic, sets).build(check=False))


def _variant_by_itself(semantic: Mapping[str, Any], one: str) -> Variant | None:
    """Return a variant with one setting, None where that is no config, such as a minimum above the maximum."""
    try:
        return _variant(semantic, [one])
    except UsageError:
        return None
