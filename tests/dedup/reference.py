"""What a duplicate stage must find, in plain Python: every pair is compared, nothing is hashed, packed or distributed.

It follows the definitions and shares no code with the stage: tokens by the names of characters, shingles as tuples of
words, fractions for the similarity, a walk over all earlier leaders, and the budget as the longest prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import combinations

import unicodedata2

UNSPACED_NAMES = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER")

OVER_BUDGET, OVER_MAX_COPIES = "duplication_budget", "max_copies"


@dataclass(frozen=True)
class Record:
    """A record that enters the stage.

    Attributes:
        record_id, file, position: as in the tables of a run; files sort as text.
        text: the text that is compared.
        content_hash: lower-case hex digest of it, or of the fields it is made of; tells copies and breaks ties.
        priority: one number per priority key, the larger first; None comes last.
        world: records of different worlds are never compared (scope: source).
        group: group of the budget.
        units: what the budget counts.
        protected: the record always stays.
    """

    record_id: str
    file: str
    position: int
    text: str
    content_hash: str
    priority: tuple[float | None, ...] = ()
    world: str | None = None
    group: str | None = None
    units: int = 1
    protected: bool = False


@dataclass(frozen=True)
class Budget:
    """Exact decimals as text: of all groups that are not named, and of named ones."""

    default: str = "0"
    values: Mapping[str, str] | None = None
    max_copies: int | None = None

    def share(self, group: str | None) -> Decimal:
        """Return the share of a group."""
        return Decimal((self.values or {}).get(group, self.default) if group is not None else self.default)


@dataclass(frozen=True)
class Fate:
    """What became of a record: ``leader`` is the place of its leader in the list, its own for a leader."""

    leader: int
    jaccard: Fraction
    copy_index: int
    size: int
    rule: str | None


@cache
def tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a text."""
    spaced = []
    for character in unicodedata2.normalize("NFC", text).casefold():
        if unicodedata2.category(character)[0] in "PS" or character.isspace():
            spaced.append(" ")
        elif unicodedata2.name(character, "").startswith(UNSPACED_NAMES):
            spaced.append(f" {character} ")
        else:
            spaced.append(character)
    return tuple("".join(spaced).split())


@cache
def shingles(text: str, length: int) -> frozenset[tuple[str, ...]]:
    """Return the set of the runs of ``length`` tokens of a text, or of the one run of all where it has fewer."""
    words = tokens(text)
    runs = [words[start : start + length] for start in range(len(words) - length + 1)] or [words]
    return frozenset(run for run in runs if run)


def jaccard(first: Record, second: Record, length: int) -> Fraction:
    """Return the similarity of two records: 1 for one text, 0 where one has no tokens."""
    if first.content_hash == second.content_hash:
        return Fraction(1)
    left, right = shingles(first.text, length), shingles(second.text, length)
    union = len(left | right)
    return Fraction(len(left & right), union) if union else Fraction(0)


def similar_pairs(records: Sequence[Record], threshold: float | None, length: int) -> Iterator[tuple[int, int]]:
    """Yield all pairs (larger place, smaller place) at the threshold; for None only those of one text."""
    worlds: dict[str | None, list[int]] = {}
    for place, record in enumerate(records):
        worlds.setdefault(record.world, []).append(place)
    for places in worlds.values():
        for second, first in combinations(places, 2):
            left, right = records[first], records[second]
            if left.content_hash == right.content_hash or (
                threshold is not None and jaccard(left, right, length) >= Fraction(str(threshold))
            ):
                yield first, second


def _keys(record: Record) -> tuple[tuple[bool, float], ...]:
    return tuple((value is None, -(value or 0)) for value in record.priority)


def _last(record: Record) -> tuple[bytes, bytes, str, int]:
    return bytes.fromhex(record.content_hash), record.record_id.encode(), record.file, record.position


def find_fates(
    records: Sequence[Record], threshold: float | None, length: int = 5, budget: Budget | None = None
) -> list[Fate]:
    """Return what becomes of each record; ``threshold`` is None for exact duplicates."""
    pairs = similar_pairs(records, threshold, length)
    similar = {(first, second): jaccard(records[first], records[second], length) for first, second in pairs}
    return resolve(records, similar, budget or Budget())


def resolve(records: Sequence[Record], similar: Mapping[tuple[int, int], Fraction], budget: Budget) -> list[Fate]:
    """Return what becomes of each record, given the similarity of all pairs (larger place, smaller place)."""
    order = sorted(
        range(len(records)),
        key=lambda n: (not (r := records[n]).protected, _keys(r), -len(r.text), _last(r)),
    )
    clusters: dict[int, list[int]] = {}
    for place in order:
        earlier = [leader for leader in clusters if (max(leader, place), min(leader, place)) in similar]
        if earlier and not records[place].protected:
            clusters[earlier[0]].append(place)
        else:
            clusters[place] = []
    stays = _within_budget(records, clusters, budget)
    fates: dict[int, Fate] = {}
    for leader, copies in clusters.items():
        for index, place in enumerate([leader, *copies]):
            beyond = budget.max_copies is not None and index > budget.max_copies
            rule = None if place in stays else OVER_MAX_COPIES if beyond else OVER_BUDGET
            similarity = Fraction(1) if index == 0 else similar[max(leader, place), min(leader, place)]
            fates[place] = Fate(leader, similarity, index, len(copies) + 1, rule)
    return [fates[place] for place in range(len(records))]


def _within_budget(records: Sequence[Record], clusters: Mapping[int, Sequence[int]], budget: Budget) -> set[int]:
    """Return the leaders, and the longest prefix of the copies within the budget of each group."""
    stays = set(clusters)
    for group in {records[leader].group for leader in clusters}:
        leaders = [leader for leader in clusters if records[leader].group == group]
        room = int(budget.share(group) * sum(records[leader].units for leader in leaders))
        copies = [copy for leader in leaders for copy in enumerate(clusters[leader], 1)]
        copies.sort(key=lambda copy: (copy[0], _keys(records[copy[1]]), _last(records[copy[1]])))
        for index, place in copies:
            if budget.max_copies is not None and index > budget.max_copies:
                break
            room -= records[place].units
            if room < 0:
                break
            stays.add(place)
    return stays
