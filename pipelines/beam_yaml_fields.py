"""Fields of rows that a stage's settings name: columns of the user's, and signals of the stages before.

What a stage before measured is a field of the rows, ``<stage>_<signal>``. Stages look for the signals of stages before
them in ``Stage.bind``; here they are told of stages that have those which the settings name.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from corpus.config_problems import nearest
from corpus.errors import UsageError
from corpus.stages import Rule, Signal, Stage, StageConfig
from dedup.duplicates import DuplicateStage, SourceOrder
from pipelines.beam_yaml_rows import field_name
from scorers.groups import PER, SOURCE
from scorers.scoring import Scorer

_LABEL = "label"


class EarlierStage(Stage):
    """A stage that stands before, as far as its signals are known."""

    Config = StageConfig
    summary = "A stage before."

    def __init__(self, name: str, signal: Signal) -> None:
        super().__init__(StageConfig(), name, "text")
        self._signal = signal

    def signals(self) -> tuple[Signal, ...]:
        """Return the one signal that is asked for."""
        return (self._signal,)

    def rules(self) -> tuple[Rule, ...]:
        """Return no rule."""
        return ()

    def curated_columns(self) -> Mapping[str, str]:
        """Return the language where the signal is a language stage's label."""
        return {"language": _LABEL} if self._signal.name == _LABEL and self._signal.kind == "string" else {}


def bind_to_fields(stage: Stage, fields: Mapping[str, Any], language_stage: str, source_column: str | None) -> None:
    """Tell a stage which signals of stages before it rows have.

    Args:
        stage: the stage, whose columns of signals are set.
        fields: names and Beam's types of the fields of rows.
        language_stage: name of the language stage before.
        source_column: field of the source, None where there is none.

    Raises:
        UsageError: for a field that is missing or not a number where one is wanted, naming setting and field.
    """
    before: list[Stage] = []
    if stage.uses_languages() or field_name(f"{language_stage}.{_LABEL}") in fields:
        before.append(EarlierStage(language_stage, Signal(_LABEL, "string", "")))
    if isinstance(stage, DuplicateStage):
        _check_sources(stage, _wishes_for_sources(stage), source_column)
        before += _signals_of_priority(stage, fields)
        if stage.config.groups is not None:
            before += _signals_of_groups(stage, "duplication_budget.by", stage.config.groups.by, fields, language_stage)
    if isinstance(stage, Scorer) and stage.config.keep != "off" and stage.config.keep.values:
        _check_sources(stage, {PER: stage.config.keep.per == SOURCE}, source_column)
        before += _signals_of_groups(stage, PER, str(stage.config.keep.per), fields, language_stage)
    stage.bind(before)
    stage.check()


def _signals_of_priority(stage: DuplicateStage, fields: Mapping[str, Any]) -> Iterator[Stage]:
    for key in stage.config.priorities:
        if isinstance(key, SourceOrder) or key == "length":
            continue
        name, _, signal = key.partition(".")
        column = field_name(f"{name}.{signal or 'score'}")
        if column not in fields:
            raise UsageError(f"{stage.name}: priority: {key}: {missing(column, fields)}")
        if not _is_number(fields[column]):
            raise UsageError(
                f"{stage.name}: priority: {key}: the field {column} is {fields[column]}; wanted is a number"
            )
        yield EarlierStage(name, Signal(signal or "score", "float64", ""))


def _signals_of_groups(
    stage: Stage, setting: str, by: str, fields: Mapping[str, Any], language_stage: str
) -> Iterator[Stage]:
    if by == SOURCE:
        return
    name, _, signal = (f"{language_stage}.{_LABEL}" if by == "language" else by).partition(".")
    column = field_name(f"{name}.{signal}") if signal else name
    # As in a run, a signal comes before a column of that name.
    if signal and column in fields:
        yield EarlierStage(name, Signal(signal, "string", ""))
    elif not any(fields_named(by, fields)):
        raise UsageError(f"{stage.name}: {setting}: {by}: {missing(column, fields)}")


def _wishes_for_sources(stage: DuplicateStage) -> dict[str, bool]:
    config = stage.config
    return {
        "scope": config.scope == "source",
        "priority": any(isinstance(key, SourceOrder) for key in config.priorities),
        "protect": bool(config.protect),
        "duplication_budget.by": config.groups is not None and config.groups.by == SOURCE,
    }


def _check_sources(stage: Stage, wishes: Mapping[str, bool], source_column: str | None) -> None:
    for setting, wanted in wishes.items():
        if wanted and source_column is None:
            raise UsageError(f"{stage.name}: {setting} is about sources; give source_column, the field that has them")


def missing(field: str, fields: Mapping[str, Any]) -> str:
    """Return the sentence about a field that rows do not have."""
    near = nearest(field, fields)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(fields)}"
    return f"its input has no field {field}; {hint}"


def fields_named(value: Any, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that texts within a setting name, as ``corpus.user_columns.user_values`` would look them up."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from fields_named(inner, fields)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from fields_named(inner, fields)
    elif isinstance(value, str):
        parts = value.split(".")
        yield from {".".join(parts[:end]) for end in range(1, len(parts) + 1)}.intersection(fields)


def _is_number(kind: Any) -> bool:
    """Say whether a type, or each but None of its alternatives, is that of a number."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return all(_is_number(one) for one in typing.get_args(kind) if one is not type(None))
    return isinstance(kind, type) and issubclass(kind, int | float | np.number) and kind is not bool
