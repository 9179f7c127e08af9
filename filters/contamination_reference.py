"""What the contamination kernels find, in plain Python: the definition that tests compare them with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from filters.contamination_alignment_kernel import INSERTED, SCORED_SHARE, SKIPPED, WHOLE_SHARE
from filters.contamination_index import ContaminationIndex
from filters.contamination_kernel import LEAST_SLACK, LONGEST_ALIGNED, MOST_HITS, SLACK_SHARE
from filters.contamination_parts_kernel import FIRST_TOKENS, RUN_TOKENS, WHOLE_TOKENS
from filters.contamination_settings import (
    ANSWER_NEAR,
    CHOICES_NEAR,
    CONTEXT_NEAR,
    EXACT,
    NGRAM_TOKENS,
    PART_ANSWER,
    PART_CHOICE,
    TELLING_NEAR,
)
from filters.contamination_tokens import token_hash, tokens


class Match(NamedTuple):
    """An entry in a text: its first token there, the token behind its last, and which of its own tokens are found."""

    entry: int
    first: int
    stop: int
    matched: tuple[int, ...]


class Hit(NamedTuple):
    """A token of the text where a token of an entry stands, at the beginning of an n-gram of both."""

    place: int
    token: int


class _Cell(NamedTuple):
    """The best alignment that ends at a token of the text and one of the entry."""

    value: int = 0
    weight: int = 0
    begin: int = 0
    matched: tuple[int, ...] = ()


def text_hashes(text: str) -> list[int]:
    """Return the hashes of the tokens of a text."""
    return [token_hash(token) for token in tokens(text)]


def ngrams_of(index: ContaminationIndex) -> dict[tuple[int, ...], list[int]]:
    """Return the numbers of the postings of each n-gram of an index."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number, start in enumerate(index.postings.tolist()):
        found.setdefault(tuple(index.tokens[start : start + NGRAM_TOKENS].tolist()), []).append(number)
    return found


def find_in_text(
    text: str, index: ContaminationIndex, ngrams: Mapping[tuple[int, ...], Sequence[int]]
) -> tuple[list[int], list[Match]]:
    """Return the n-grams of the index in a text, in order, by their first postings, and the matches by entry."""
    hashes = text_hashes(text)
    found: list[int] = []
    matches: list[Match] = []
    hits: dict[int, list[Hit]] = {}
    starts = index.entry_starts.tolist()
    for place in range(len(hashes) - NGRAM_TOKENS + 1):
        postings = ngrams.get(tuple(hashes[place : place + NGRAM_TOKENS]), ())
        found += postings[:1]
        for posting in postings:
            token = int(index.postings[posting])
            entry = bisect_right(starts, token) - 1
            hits.setdefault(entry, []).append(Hit(place, token - starts[entry]))
        if sum(map(len, hits.values())) >= MOST_HITS:
            matches += _matches_of_all(hashes, index, hits)
            hits = {}
    return found, [*matches, *_matches_of_all(hashes, index, hits)]


def _matches_of_all(hashes: list[int], index: ContaminationIndex, hits: Mapping[int, list[Hit]]) -> list[Match]:
    return [match for entry in sorted(hits) for match in _matches(hashes, index, entry, hits[entry])]


def _matches(hashes: list[int], index: ContaminationIndex, entry: int, hits: list[Hit]) -> list[Match]:
    start, stop = int(index.entry_starts[entry]), int(index.entry_starts[entry + 1])
    own = index.tokens[start:stop].tolist()
    weights = index.weights[start:stop].tolist()
    length = len(own)
    slack = LEAST_SLACK + length // SLACK_SHARE
    clusters = [[hits[0]]]
    for before, hit in zip(hits, hits[1:], strict=False):
        if hit.place - before.place > length + slack:
            clusters.append([])
        clusters[-1].append(hit)
    matches = []
    for cluster in clusters:
        if index.entry_flags[entry] & EXACT:
            places = [hit.place - hit.token for hit in cluster]
            matches += [
                Match(entry, place, place + length, tuple(range(length)))
                for place in places
                if place >= 0 and hashes[place : place + length] == own
            ]
            continue
        covered = sorted({token for hit in cluster for token in range(hit.token, hit.token + NGRAM_TOKENS)})
        if sum(weights[token] for token in covered) * SCORED_SHARE < sum(weights):
            continue
        if length > LONGEST_ALIGNED:
            matches.append(Match(entry, cluster[0].place, cluster[-1].place + NGRAM_TOKENS, tuple(covered)))
            continue
        low = max(0, cluster[0].place - cluster[0].token - slack)
        high = min(len(hashes), cluster[-1].place - cluster[-1].token + length + slack)
        matches += [Match(entry, *span) for span in aligned(hashes, low, high, own, weights)]
    return matches


def aligned(
    text: Sequence[int], low: int, high: int, own: Sequence[int], weights: Sequence[int]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (first, stop, tokens of the entry that match) of the stretches of a text where an entry is found."""
    spans = []
    best: tuple[int, int, _Cell] | None = None
    done = 0
    for place, cells in zip(range(low, high), _ending_cells(text, low, high, own, weights), strict=True):
        ending = _highest([cell for cell in cells if cell.begin >= done])
        if ending is None:
            continue
        if best is not None and ending.begin >= best[1]:
            spans.append(best)
            done, best = best[1], None
        if best is None or ending.value > best[2].value:
            best = (ending.begin, place + 1, ending)
    spans += [] if best is None else [best]
    total = sum(weights)
    whole = [span for span in spans if span[2].weight * WHOLE_SHARE >= total]
    if not whole:
        heaviest = max(spans, key=lambda span: span[2].weight, default=None)
        whole = [span for span in (heaviest,) if span is not None and span[2].weight * SCORED_SHARE >= total]
    found = []
    for first, stop, _ in whole:
        # Before the stretch is cut out, alignments that begin before it may hide a better one.
        last = _highest(_ending_cells(text, first, stop, own, weights)[-1])
        found.append((first, stop, () if last is None else last.matched))
    return found


def _highest(cells: Sequence[_Cell]) -> _Cell | None:
    """Return the cell with the highest value, of equal ones the first; None if there is none."""
    return max(cells, key=lambda cell: cell.value, default=None)


def _ending_cells(
    text: Sequence[int], low: int, high: int, own: Sequence[int], weights: Sequence[int]
) -> list[list[_Cell]]:
    """Return for each token of a stretch the alignments that end with it as a match, by the token of the entry."""
    above = [_Cell()] * (len(own) + 1)
    rows = []
    for place in range(low, high):
        row = [_Cell()]
        ending = []
        for column in range(1, len(own) + 1):
            skip_text = above[column]._replace(value=above[column].value - INSERTED)
            skip_entry = row[-1]._replace(value=row[-1].value - SKIPPED)
            cell = skip_entry if skip_entry.value > skip_text.value else skip_text
            if text[place] == own[column - 1]:
                before, weight = above[column - 1], weights[column - 1]
                if before.value + weight >= cell.value:
                    if before.value == 0:
                        before = _Cell(begin=place)
                    matched = (*before.matched, column - 1)
                    cell = _Cell(before.value + weight, before.weight + weight, before.begin, matched)
                    ending.append(cell)
            row.append(cell if cell.value > 0 else _Cell())
        above = row
        rows.append(ending)
    return rows


def parts_near_in_text(text: str, first: int, stop: int, item: int, index: ContaminationIndex, distance: int) -> int:
    """Return the bits of the parts of an item that stand near tokens ``first`` to ``stop`` of a text."""
    hashes = text_hashes(text)
    bits = choices = near_choices = telling_choices = 0
    for part in range(int(index.item_parts[item]), int(index.item_parts[item + 1])):
        kind, telling = int(index.part_kinds[part]), bool(index.part_telling[part])
        choices += kind == PART_CHOICE
        own = index.tokens[int(index.part_starts[part]) : int(index.part_starts[part + 1])].tolist()[:FIRST_TOKENS]
        reach = distance + len(own)
        sides = (hashes[max(0, first - reach) : first], hashes[stop : stop + reach])
        if not own or not _stands(own, sides):
            continue
        if kind == PART_CHOICE:
            near_choices += 1
            telling_choices += telling
        else:
            bits |= (ANSWER_NEAR if kind == PART_ANSWER else CONTEXT_NEAR) | (TELLING_NEAR if telling else 0)
    if near_choices > 1 and 2 * near_choices >= choices:
        bits |= CHOICES_NEAR | (TELLING_NEAR if telling_choices > 1 else 0)
    return bits


def _stands(own: list[int], sides: Sequence[list[int]]) -> bool:
    def inside(run: list[int]) -> bool:
        return any(side[place : place + len(run)] == run for side in sides for place in range(len(side) - len(run) + 1))

    if len(own) <= WHOLE_TOKENS:
        return inside(own)
    runs = [own[place : place + RUN_TOKENS] for place in range(len(own) - RUN_TOKENS + 1)]
    return 2 * sum(map(inside, runs)) >= len(runs)
