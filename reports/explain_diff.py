"""Two texts side by side, line by line, with the words that differ marked.

Comparing takes time with the square of the length, so long texts are cut; what repeats a lot in a long text does not
anchor the comparison (``difflib``'s ``autojunk``), which bounds it for hostile ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal

MOST_CHARACTERS = 20_000
CONTEXT_LINES = 2
_WORDS = re.compile(r"[^ \t]+|[ \t]+")

Segment = tuple[str, bool]
"""A piece of a line, and whether the other side has it not."""


@dataclass(frozen=True)
class DiffRow:
    """A line of each side; None where a side has none.

    ``kind`` is ``skipped`` for equal lines that are left out, whose number is then in ``count``.
    """

    kind: Literal["equal", "changed", "skipped"]
    left: tuple[Segment, ...] | None = None
    right: tuple[Segment, ...] | None = None
    count: int = 0


def side_by_side(left: str, right: str) -> list[DiffRow]:
    """Return the rows of two texts; of each the first ``MOST_CHARACTERS`` are compared."""
    lines, other_lines = (text[:MOST_CHARACTERS].split("\n") for text in (left, right))
    rows: list[DiffRow] = []
    for kind, start, end, other_start, other_end in SequenceMatcher(None, lines, other_lines).get_opcodes():
        if kind == "equal":
            rows.extend(_equal(lines[start:end]))
        else:
            pairs = zip_longest(lines[start:end], other_lines[other_start:other_end])
            rows.extend(DiffRow("changed", *_marked(one, other)) for one, other in pairs)
    return rows


def _equal(lines: list[str]) -> list[DiffRow]:
    rows = [DiffRow("equal", ((line, False),), ((line, False),)) for line in lines]
    if len(rows) <= 2 * CONTEXT_LINES + 1:
        return rows
    left_out = len(rows) - 2 * CONTEXT_LINES
    return [*rows[:CONTEXT_LINES], DiffRow("skipped", count=left_out), *rows[-CONTEXT_LINES:]]


def _marked(left: str | None, right: str | None) -> tuple[tuple[Segment, ...] | None, tuple[Segment, ...] | None]:
    if left is None or right is None:
        return (None if left is None else ((left, True),)), (None if right is None else ((right, True),))
    words: list[str] = _WORDS.findall(left)
    other_words: list[str] = _WORDS.findall(right)
    sides: tuple[list[Segment], list[Segment]] = ([], [])
    for kind, start, end, other_start, other_end in SequenceMatcher(None, words, other_words).get_opcodes():
        for side, chosen in zip(sides, (words[start:end], other_words[other_start:other_end]), strict=True):
            if chosen:
                side.append(("".join(chosen), kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])
