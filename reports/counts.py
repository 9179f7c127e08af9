"""Counts that add up: nested mappings of names to integers, summed in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Counts = dict[str, Any]

READ, KEPT, DROPPED, DEAD = "read", "kept", "dropped", "dead"


def add(total: Counts, counts: Mapping[str, Any]) -> None:
    """Add counts to a total, name by name; numbers must be whole, so that no order of adding matters."""
    for name, value in counts.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def total_of(parts: Iterable[Mapping[str, Any]]) -> Counts:
    """Return the sum of counts."""
    total: Counts = {}
    for part in parts:
        add(total, part)
    return total


def balance(read: int = 0, kept: int = 0, dropped: int = 0, dead: int = 0) -> dict[str, int]:
    """Return the four counts that must balance."""
    return {READ: read, KEPT: kept, DROPPED: dropped, DEAD: dead}


def is_balanced(counts: Mapping[str, int]) -> bool:
    """Say whether read = kept + dropped + dead."""
    return counts.get(READ, 0) == counts.get(KEPT, 0) + counts.get(DROPPED, 0) + counts.get(DEAD, 0)
