"""What changed between two texts, as spans: found by lines, then by words, in about linear time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from corpus.readers.records import WHITE_SPACE

# Units that may stay: what stands between line breaks, and, within what changed of these, between white space.
_UNITS = (re.compile("[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+"), re.compile(f"[^{WHITE_SPACE}]+"))

Change = tuple[int, int, str]


def changes(before: str, after: str) -> list[Change]:
    """Return spans of a text, in code points, with what replaces them, that turn it into another.

    They are in order and do not overlap. Lines of ``after`` that stand in ``before``, in the same order, are left
    alone, whatever white space is around them, and so are words of the other lines; where units moved, spans are larger
    than they need to be.
    """
    return list(_changes(before, 0, len(before), after, _UNITS))


def _contents(text: str, unit: re.Pattern[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, content) of each unit that is not blank, without white space around it."""
    for found in unit.finditer(text):
        content = found[0].strip(WHITE_SPACE)
        if content:
            start = found.start() + len(found[0]) - len(found[0].lstrip(WHITE_SPACE))
            yield start, start + len(content), content


def _changes(
    before: str, start: int, end: int, replacement: str, units: tuple[re.Pattern[str], ...]
) -> Iterator[Change]:
    """Yield the spans that turn ``before[start:end]`` into a replacement."""
    old = before[start:end]
    if old == replacement:
        return
    if not old or not replacement or not units:
        yield _shortest(old, start, replacement)
        return
    lines = list(_contents(old, units[0]))
    places: dict[str, list[int]] = defaultdict(list)
    for number, (_, _, content) in enumerate(lines):
        places[content].append(number)
    following = 0  # the first unit of `old` that is not behind us
    done_old = done_new = 0
    for first, last, content in _contents(replacement, units[0]):
        numbers = places.get(content, [])
        place = bisect_left(numbers, following)
        if place < len(numbers):
            old_first, old_last, _ = lines[numbers[place]]
            yield from _changes(before, start + done_old, start + old_first, replacement[done_new:first], units[1:])
            done_old, done_new, following = old_last, last, numbers[place] + 1
    yield from _changes(before, start + done_old, end, replacement[done_new:], units[1:])


def _shortest(old: str, start: int, replacement: str) -> Change:
    """Return the shortest span that turns a text, which begins at ``start``, into another one."""
    shorter = min(len(old), len(replacement))
    same = 0
    while same < shorter and old[same] == replacement[same]:
        same += 1
    tail = 0
    while tail < shorter - same and old[-1 - tail] == replacement[-1 - tail]:
        tail += 1
    return start + same, start + len(old) - tail, replacement[same : len(replacement) - tail]
