"""What other settings mean for a stage: other limits over what it has measured, or other measurements.

A changed setting is a *limit* where the rules show nothing else: a number, "off" or a list of names that is, before and
after, the threshold of the rule of its name. Settings of duplicates and scorers that decide between measured values are
known by name. Whatever is not known to be a limit counts as changing what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.stages import EditingStage, RecordStage, Rule, Stage
from dedup.duplicates import DuplicateStage
from scorers.scoring import GROUP, ScoreConfig

DUPLICATE_LIMITS = frozenset({"duplication_budget", "max_copies", "priority", "max_forest_edges"})
SWITCHES = {"missing": ("drop", "keep"), "unscorable": ("drop", "keep")}
"""Settings that switch a rule on what is measured in any case."""

Path = tuple[str, ...]
_ABSENT = object()


@dataclass(frozen=True)
class Change:
    """How the settings of a stage differ.

    Attributes:
        settings: dotted names of all that differ.
        measuring: those of them that may change what the stage measures.
    """

    settings: tuple[str, ...] = ()
    measuring: tuple[str, ...] = ()


def changed(before: Stage, after: Stage) -> Change:
    """Return how the settings of a stage differ; its name is the same."""
    old, new = _leaves(before), _leaves(after)
    paths = [path for path in dict.fromkeys([*old, *new]) if old.get(path, _ABSENT) != new.get(path, _ABSENT)]
    measuring = [path for path in paths if not _is_limit(before, after, path, old.get(path), new.get(path))]
    return Change(tuple(map(".".join, paths)), tuple(map(".".join, measuring)))


def unknown_measurements(before: Sequence[Stage], after: Sequence[Stage]) -> list[str]:
    """Return for each stage why its signals under the new settings are not known, empty where they are.

    A stage measures anew where its own settings ask for it, where it reads a signal of a stage that does, and where an
    editing stage before it, which does, may give it other texts.
    """
    reasons: list[str] = []
    unknown: list[str] = []
    texts = ""
    for old, new in zip(before, after, strict=True):
        measuring = changed(old, new).measuring
        read = [name for name in new.signal_columns() if name.split(".")[0] in unknown]
        if measuring:
            reason = f"{', '.join(measuring)} changes what it measures"
        elif texts:
            reason = f"its texts depend on the new settings of {texts}"
        elif read:
            reason = f"it reads {read[0]}, which has to be measured anew"
        else:
            reason = ""
        reasons.append(reason)
        if reason:
            unknown.append(new.name)
            if not texts and any(isinstance(stage, EditingStage) and stage.edits() for stage in (old, new)):
                texts = new.name
    return reasons


def _leaves(stage: Stage) -> dict[Path, Any]:
    values = stage.config.model_dump(mode="json", warnings=False)
    skipped = {"name", *stage.config.NOT_SEMANTIC}
    return dict(_flat({name: value for name, value in values.items() if name not in skipped}, ()))


def _flat(values: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, (*path, name))
        elif not isinstance(value, Mapping):
            yield (*path, name), value


def _is_limit(before: Stage, after: Stage, path: Path, old: Any, new: Any) -> bool:
    """Say whether a setting, None where it is not given, is only a limit on what the stage measures."""
    if isinstance(before, DuplicateStage):
        return path[0] in DUPLICATE_LIMITS
    if isinstance(before.config, ScoreConfig) and path[0] == "keep":
        # The best are found in the groups themselves; a limit per group looks them up among the signals.
        groups = {signal for signal in after.signals() if signal.name == GROUP and isinstance(after, RecordStage)}
        return groups <= set(before.signals())
    if len(path) == 1 and path[0] in SWITCHES:
        return {old, new} <= set(SWITCHES[path[0]])
    of_language = path[0] == "by_language" and len(path) == 3
    name = path[2] if of_language else ".".join(path)
    sides = [
        (next((rule for rule in stage.rules() if rule.name == name), None), value)
        for stage, value in ((before, old), (after, new))
    ]
    if all(rule is None for rule, _ in sides):
        return False
    if of_language:
        return all(_is_threshold_of_language(rule, path[1], value) for rule, value in sides)
    return all(_is_threshold(rule, value) for rule, value in sides)


def _is_threshold(rule: Rule | None, value: Any) -> bool:
    if value is None or value == "off":
        return rule is None or (rule.threshold is None and bool(rule.by_language))
    if rule is None or isinstance(value, bool):
        return False
    if isinstance(value, list):
        return rule.test == "one_of" and list(rule.values) == value
    return isinstance(value, (int, float)) and rule.threshold == value


def _is_threshold_of_language(rule: Rule | None, label: str, value: Any) -> bool:
    if value is None:
        return rule is None or label not in rule.by_language
    if value == "off":
        return rule is None or (label in rule.by_language and rule.by_language[label] is None)
    return rule is not None and not isinstance(value, (bool, list, str)) and rule.by_language.get(label) == value
