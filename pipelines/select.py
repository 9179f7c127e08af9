"""A new run under other settings, from what a finished run has in staging: ``thresher select``.

The new run goes through the same steps as any other, so it gives what a fresh run with its config would. Instead of the
input it reads the records that the other run staged; what stages of the first pass measured there is taken over where
nothing but limits changed, and scores come from the score table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.planning_types import InputPlan
from corpus.stages import EditingStage, RecordStage, Stage
from corpus.staging import staged_chunks
from corpus.version import VERSION
from pipelines.config import config_from_mapping
from pipelines.execution import execute
from pipelines.finished_run import Run, absolute, load_run
from pipelines.job import PLAN_NAME, Source
from pipelines.passes import compile_passes

FIXED = ("input", "batch_rows", "batch_bytes")
"""Sections and settings that decide what is in staging."""


def select(
    root: str,
    output: str,
    sets: Sequence[str] = (),
    beam_arguments: Sequence[str] = (),
    *,
    allow_calls: bool = False,
    console: Console | None = None,
) -> Run:
    """Run the config of a finished run with other settings, from its staging.

    Args:
        root: the finished run.
        output: the new run folder.
        sets: texts of ``--set``.
        beam_arguments: options for the engine and for Beam.
        allow_calls: whether a judge may be asked for scores that the score table has not.
        console: where progress and notices go.

    Raises:
        UsageError: the run has no staging, is of another version, or a setting cannot be changed.
        ThresherError: the new run failed; the same call goes on where it stopped.
    """
    before = load_run(absolute(root))
    folder = Folder(before.root)
    given = before.details.get("given")
    version = before.details.get("versions", {}).get("thresher")
    if given is None or version != VERSION:
        raise UsageError(f"{root}: a run of Thresher {version}, and this is {VERSION}; run its config again")
    if not folder.exists(PLAN_NAME):
        raise UsageError(f"{root}: its staging was removed; run its config again, without --clean")
    if absolute(output) == before.root:
        raise UsageError(f"--output {output}: that is the run itself; give another folder")
    config = config_from_mapping({**given, "output": output}, sets)
    same = config_from_mapping({**given, "output": output})
    for name in FIXED:
        if getattr(config, name) != getattr(same, name):
            raise UsageError(
                f"--set {name}…: what is read, and in which pieces, is settled when a run begins; change it in the "
                "config and run that"
            )
    plan = InputPlan.from_json(folder.read_bytes(PLAN_NAME).decode())
    missing = [item.file for number, item in enumerate(plan.items) if staged_chunks(folder, number) is None]
    if missing:
        raise UsageError(f"{root}: the staging of {missing[0]} is not complete; run its config again")
    reused = reusable(same.build(), config.build())
    source = Source(before.root, reused, allow_calls)
    return execute(config, beam_arguments, console=console, source=source, plan=plan)


@dataclass(frozen=True)
class _Measuring:
    """A record stage of the first pass, as far as what it measures goes."""

    stage: RecordStage
    edits_before: tuple[Any, ...]


def reusable(before: Sequence[Stage], after: Sequence[Stage]) -> tuple[str, ...]:
    """Return the stages whose signals of the first pass hold under other settings, in order.

    That is where the stage sees the same texts, and its settings differ in limits only: numbers that a rule compares
    its signal with. Stages that look at survivors only, or that list what they find, measure anew.
    """
    old = {measuring.stage.name: measuring for measuring in _measuring(before)}
    names: list[str] = []
    for new in _measuring(after):
        known = old.get(new.stage.name)
        if known is None or known.edits_before != new.edits_before or not _same_but_limits(known.stage, new.stage):
            continue
        if new.stage.speed or new.stage.finds or new.stage.may_fail:
            continue
        if all(column.split(".", 1)[0] in names for column in new.stage.signal_columns()):
            names.append(new.stage.name)
    return tuple(names)


def _measuring(stages: Sequence[Stage]) -> list[_Measuring]:
    edits: tuple[Any, ...] = ()
    found = []
    for stage in compile_passes(stages)[0].record_stages:
        found.append(_Measuring(stage, edits))
        if isinstance(stage, EditingStage) and stage.edits():
            edits = (*edits, (type(stage), stage.name, stage.config, stage.text_field))
    return found


def _same_but_limits(before: RecordStage, after: RecordStage) -> bool:
    if type(before) is not type(after) or before.text_field != after.text_field:
        return False
    if before.signals() != after.signals() or before.signal_columns() != after.signal_columns():
        return False
    differing = {
        name for name in type(after).Config.model_fields if getattr(before.config, name) != getattr(after.config, name)
    }
    return all(_is_limit(before, name) and _is_limit(after, name) for name in differing) and (
        before.fingerprint() == after.fingerprint()
    )


def _is_limit(stage: RecordStage, name: str) -> bool:
    """Say whether a setting is what one of the stage's rules compares with, and nothing else, or switches it off."""
    value = getattr(stage.config, name)
    rules = [rule for rule in stage.rules() if rule.name == name and rule.test in ("at_least", "at_most")]
    if value == "off":
        return not rules
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return len(rules) == 1 and rules[0].threshold == value
