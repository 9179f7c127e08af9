"""Records on their way through the stages under some settings, where it may not be known of each whether it is left.

Of the records before a stage, some are *sure* to be there, and others *may* be; of the latter the least and the largest
number that is there are known. A stage drops a record, keeps it, or nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.stages import Stage
from reports.whatif_tables import DEAD

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
States = npt.NDArray[np.uint8]

GONE, MAYBE, SURE = 0, 1, 2
STAYS, UNKNOWN = -1, -2
_CODES = DEAD + 3

Bounds = tuple[int, int]


def shown(bounds: Bounds) -> int | dict[str, int]:
    """Return bounds for JSON: a number where they are the same, else ``{at_least, at_most}``."""
    low, high = bounds
    return low if low == high else {"at_least": low, "at_most": high}


@dataclass
class StageCounts:
    """What a stage does to the records that enter it.

    Attributes:
        table: int64[3, codes], records by state and outcome; outcomes from ``UNKNOWN`` up.
        characters: code points of the records that are sure to stay, and of those that may.
        lengths_unknown: whether the stage may edit texts in a way that is not known.
        reasons: why outcomes are not known.
        details: what the report says of the stage as a whole, where it is known.
    """

    table: Integers = field(default_factory=lambda: np.zeros((3, _CODES), np.int64))
    characters: tuple[int, int] = (0, 0)
    lengths_unknown: bool = False
    reasons: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def count(self, states: States, codes: Codes) -> None:
        """Add records that reach the stage."""
        numbers = states.astype(np.int64) * _CODES + (codes.astype(np.int64) - UNKNOWN)
        self.table += np.bincount(numbers, minlength=3 * _CODES).reshape(3, _CODES)

    def add_characters(self, states: States, lengths: Integers) -> None:
        """Add the lengths of records behind the stage."""
        sure, maybe = (int(lengths[states == state].sum()) for state in (SURE, MAYBE))
        self.characters = self.characters[0] + sure, self.characters[1] + maybe

    def because(self, reason: str) -> None:
        """Note why outcomes are not known."""
        if reason not in self.reasons:
            self.reasons.append(reason)


def after(states: States, codes: Codes) -> States:
    """Return the states of records behind a stage."""
    left = np.where(codes == STAYS, states, GONE).astype(np.uint8)
    left[(codes == UNKNOWN) & (states != GONE)] = MAYBE
    return left


@dataclass
class Flow:
    """All records under some settings.

    Attributes:
        states: uint8[n], ``GONE``, ``MAYBE`` or ``SURE``.
        maybe: bounds of how many of those that may be there are.
        characters_known: whether the lengths of all records are.
        stages: what was found out of each stage so far.
    """

    states: States
    maybe: Bounds = (0, 0)
    characters_known: bool = True
    stages: list[dict[str, Any]] = field(default_factory=list)

    def copy(self) -> Flow:
        """Return a flow that goes on by itself from here."""
        return Flow(self.states.copy(), self.maybe, self.characters_known, list(self.stages))

    def begin_as(self, other: Flow) -> None:
        """Take over what another flow knows of the stages so far."""
        self.maybe, self.characters_known, self.stages = other.maybe, other.characters_known, list(other.stages)

    def close(
        self,
        stage: Stage,
        counts: StageCounts,
        staying: Bounds | None = None,
        rule: int | None = None,
        least_kept: int = 0,
    ) -> None:
        """Go on behind a stage, given the counts of all records; the states are those behind it already.

        Args:
            staying: bounds of how many of the unknown ones, which were sure to enter, stay.
            rule: by which rule the others of these leave, where that is known.
            least_kept: how many records stay in any case, if any enters.
        """
        table, (low, high) = counts.table, self.maybe
        sure, maybe = int(table[SURE].sum()), int(table[MAYBE].sum())
        unknown, unknown_maybe = int(table[SURE, 0]), int(table[MAYBE, 0])
        passing = (int(table[SURE, 1]), int(table[MAYBE, 1]))
        failing, failing_maybe = sure - unknown - passing[0], maybe - unknown_maybe - passing[1]
        stays_low, stays_high = (0, unknown) if staying is None else staying
        entered = (sure + low, sure + high)

        def leaving(code: int) -> Bounds:
            number, number_maybe = int(table[SURE, code - UNKNOWN]), int(table[MAYBE, code - UNKNOWN])
            least, most = max(0, low - (maybe - number_maybe)), min(high, number_maybe)
            if rule == code:
                return number + least + unknown - stays_high, number + most + unknown - stays_low
            if rule is None and (code != DEAD or getattr(stage, "may_fail", False)):
                most = min(high, number_maybe + unknown_maybe) + unknown - stays_low
            return number + least, number + most

        dead = leaving(DEAD)
        left_low = failing + max(0, low - (maybe - failing_maybe)) + unknown - stays_high
        left_high = failing + min(high, failing_maybe + unknown_maybe) + unknown - stays_low
        kept_least = min(least_kept, entered[0])
        left_high = min(left_high, entered[1] - kept_least)
        dropped = (max(0, left_low - dead[1]), left_high - dead[0])
        rules = [leaving(number) for number in range(len(stage.rules()))]
        behind = (
            max(0, low - failing_maybe - unknown_maybe) + stays_low,
            min(high, maybe - failing_maybe) + stays_high,
        )
        self.maybe = (max(behind[0], kept_least - passing[0]), behind[1])
        entry: dict[str, Any] = {
            "name": stage.name,
            "entered": shown(entered),
            "dropped": shown(dropped),
            "dead": shown(dead),
            "rules": _by_name(stage, [(low, min(high, dropped[1])) for low, high in rules]),
            "characters_out": None,
        }
        self.characters_known &= not counts.lengths_unknown
        if self.characters_known:
            entry["characters_out"] = self.characters(*counts.characters)
        if counts.reasons:
            entry["needs_select"] = counts.reasons
        if counts.details:
            entry["duplicates"] = counts.details
        self.stages.append(entry)

    def characters(self, sure: int, maybe: int) -> int | dict[str, int]:
        """Return bounds of the code points of the records that are there, given those of sure and possible ones."""
        return shown((sure, sure + (maybe if self.maybe[1] else 0)))

    def kept(self) -> Bounds:
        """Return bounds of how many records are there."""
        sure = int((self.states == SURE).sum())
        return sure + self.maybe[0], sure + self.maybe[1]


def _by_name(stage: Stage, bounds: Sequence[Bounds]) -> dict[str, Any]:
    return {rule.name: shown(bound) for rule, bound in zip(stage.rules(), bounds, strict=True)}
