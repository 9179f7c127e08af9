"""Verification: signatures rule out what is hopeless, exact Jaccard proves the rest, each pair once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup import verification
from dedup.proposals import ORDERED, PAIRS, Integers, pack_cliques, pairs_among
from dedup.verification import ANCHORS, ENOUGH, WINDOW, Edges, least_agreements, pack_edges, unpack_edges
from dedup.verification_kernel import CLIQUE, COMPARED, FOUND, likely_pairs, next_pairs
from tests.dedup.reference import shingles
from tests.dedup.staged_texts import near_duplicates, staged_verifier

ROWS, PERMUTATIONS = 9, 4
SIGNATURES = st.lists(
    st.lists(st.integers(0, 2), min_size=PERMUTATIONS, max_size=PERMUTATIONS), min_size=ROWS, max_size=ROWS
)
# Of each of three bands: the bucket of each row, or none.
BUCKETS = st.lists(st.lists(st.integers(-1, 2), min_size=ROWS, max_size=ROWS), min_size=3, max_size=3)


def agreements(left: Sequence[int], right: Sequence[int]) -> int:
    """In how many permutations two signatures agree."""
    return sum(a == b for a, b in zip(left, right, strict=True))


@given(SIGNATURES, BUCKETS, st.integers(0, PERMUTATIONS), st.integers(1, 5))
def test_each_pair_that_shares_a_clique_is_looked_at_once(
    signatures: list[list[int]], buckets: list[list[int]], least: int, room: int
) -> None:
    cliques: list[tuple[int, list[int]]] = []
    clique_of = np.full((ROWS, 3), -1, np.int32)
    for band, of_rows in enumerate(buckets):
        for number in (0, 1, 2):
            members = [row for row in range(ROWS) if of_rows[row] == number]
            if len(members) > 1:
                clique_of[members, band] = len(cliques)
                cliques.append((band, members))
    offsets = np.cumsum([0, *(len(members) for _, members in cliques)])
    flat = np.array([row for _, members in cliques for row in members], np.int32)
    bands = np.array([band for band, _ in cliques], np.uint16)
    state, pairs = np.zeros(5, np.int64), np.empty((room, 2), np.int32)
    found: list[tuple[int, int]] = []
    while state[CLIQUE] < len(cliques):
        likely_pairs(offsets, flat, bands, clique_of, np.array(signatures, np.uint32), least, pairs, state)
        found += [(int(left), int(right)) for left, right in pairs[: state[FOUND]]]
    shared = {pair for _, members in cliques for pair in combinations(members, 2)}
    assert state[COMPARED] == len(shared)
    assert sorted(found) == sorted(
        (left, right) for left, right in shared if agreements(signatures[left], signatures[right]) >= least
    )


@given(
    SIGNATURES,
    st.permutations(range(ROWS)),
    st.lists(st.integers(0, ROWS), min_size=ROWS, max_size=ROWS),
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
    st.integers(0, ROWS),
    st.integers(0, PERMUTATIONS),
)
def test_the_next_earlier_member_follows_the_definition(
    signatures: list[list[int]], order: list[int], starts: list[int], done: list[bool], last: int, least: int
) -> None:
    begin = [min(start, member, last) for member, start in enumerate(starts)]
    places, pairs = np.array(begin), np.empty((ROWS, 2), np.int32)
    ends, minima = np.full(ROWS, last), np.array(signatures, np.uint32)
    count = next_pairs(np.array(order), ends, minima, least, places, np.array(done, np.uint8), pairs)
    expected, moved = [], list(begin)
    for member in range(ROWS):
        if done[member]:
            continue
        end = min(member, last)
        likely = [
            place
            for place in range(begin[member], end)
            if agreements(signatures[order[member]], signatures[order[place]]) >= least
        ]
        if likely:
            expected.append((member, likely[0]))
        # No further than to the last one: a member that is like no other must not go through all of them.
        moved[member] = likely[0] + 1 if likely else end
    assert [tuple(pair) for pair in pairs[:count].tolist()] == expected
    assert places.tolist() == moved


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("permutations", [16, 112, 1024])
def test_a_pair_at_the_threshold_is_hardly_ever_ruled_out(threshold: float, permutations: int) -> None:
    least = least_agreements(threshold, permutations)
    assert 0 <= least <= permutations
    missed = sum(
        comb(permutations, agree) * threshold**agree * (1 - threshold) ** (permutations - agree)
        for agree in range(least)
    )
    assert missed < 2e-4
    if permutations >= 112:
        # And it does rule out: pairs of a similarity far below the threshold.
        assert least > permutations * threshold / 3


def words(generator: random.Random, count: int) -> list[str]:
    """Random words."""
    return [f"w{generator.randrange(5000)}" for _ in range(count)]


def family(generator: random.Random, members: int, length: int = 120) -> list[str]:
    """Texts that differ in up to four words each."""
    base = words(generator, length)
    texts = []
    for _ in range(members):
        text = list(base)
        for place in generator.sample(range(length), generator.randrange(5)):
            text[place] = words(generator, 1)[0]
        texts.append(" ".join(text))
    return texts


def truth(texts: Sequence[str], threshold: float, pairs: set[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Pairs at the threshold, with the sizes of intersection and union."""
    sets = [shingles(text, 5) for text in texts]
    found = []
    for left, right in sorted(pairs):
        common, union = len(sets[left] & sets[right]), len(sets[left] | sets[right])
        if common * 100 >= union * round(100 * threshold):
            found.append((left, right, common, union))
    return found


def edges_of(edges: Edges, first: int) -> list[tuple[int, ...]]:
    """Edges as rows, without repeats."""
    table = edges.table()
    table[:, :2] -= first
    return sorted({tuple(row) for row in table.tolist()})


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_edges_are_the_pairs_at_the_threshold(
    threshold: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(1)
    texts = [text for _ in range(8) for text in family(generator, 12)]
    verifier, row_ids = staged_verifier(tmp_path, texts, near_duplicates(threshold=threshold), key=5)
    families = row_ids.reshape(8, 12)
    cliques = [(PAIRS, 0, families[0]), (PAIRS, 0, families[1:3].reshape(-1)), (PAIRS, 1, families[:2].reshape(-1))]
    cliques += [(PAIRS, 2, members) for members in families]
    pairs = {pair for _, _, members in cliques for pair in combinations((members - row_ids[0]).tolist(), 2)}
    expected = truth(texts, threshold, pairs)
    assert len(expected) > 100
    packed = [pack_cliques(cliques[3:]), pack_cliques(cliques[:3])]
    found = verifier.verify(packed)
    assert edges_of(found, int(row_ids[0])) == expected
    assert len(found.table()) == len(expected)
    assert found.proposed == len(pairs)
    assert len(expected) <= found.verified <= found.proposed
    assert found.not_compared == 0

    monkeypatch.setattr(verification, "ROOM", 7)
    monkeypatch.setattr(verification, "SHINGLE_BYTES", 2000)
    again = verifier.verify(packed[::-1])
    assert np.array_equal(again.table(), found.table())
    assert (again.proposed, again.verified) == (found.proposed, found.verified)


def test_nothing_to_verify(tmp_path: Path) -> None:
    verifier, row_ids = staged_verifier(tmp_path, ["a b", "c d"], near_duplicates())
    assert verifier.verify([]).table().shape == (0, 4)
    unlike = verifier.verify([pack_cliques([(PAIRS, 0, row_ids)])])
    assert unlike.table().shape == (0, 4)
    assert unlike.proposed == 1


def templates(count: int) -> list[str]:
    """Pages of one template: their similarity is 55/65 or more."""
    return [" ".join([*(f"w{place}" for place in range(60)), f"number{page}"]) for page in range(count)]


def unlike(count: int) -> list[str]:
    """Texts that have nothing in common."""
    return [" ".join(f"t{number}x{place}" for place in range(12)) for number in range(count)]


def ordered(folder: Path, texts: Sequence[str], bands: int = 1) -> tuple[Edges, Integers]:
    """Verify texts as cliques of too many members, one in each of some bands."""
    verifier, row_ids = staged_verifier(folder, texts, near_duplicates())
    return verifier.verify([pack_cliques([(ORDERED, band, np.tile(row_ids, 2)) for band in range(bands)])]), row_ids


@pytest.mark.parametrize("make", [templates, unlike])
def test_large_cliques_take_time_linear_in_their_members(make: Callable[[int], list[str]], tmp_path: Path) -> None:
    looked_at = []
    for count in (400, 800):
        found, _ = ordered(tmp_path / str(count), make(count), bands=3)
        assert found.proposed + found.not_compared == 3 * pairs_among(count)
        assert found.proposed <= 3 * count * (ANCHORS + WINDOW)
        assert found.verified <= 3 * count * ENOUGH
        looked_at.append(found.proposed)
    assert looked_at[1] <= 2.2 * looked_at[0]


def test_members_of_a_large_clique_find_the_first_ones_that_they_are_similar_to(tmp_path: Path) -> None:
    texts = templates(300)
    found, row_ids = ordered(tmp_path, texts)
    table = edges_of(found, int(row_ids[0]))
    pairs = {(left, right) for left, right, *_ in table}
    assert table == truth(texts, 0.8, pairs)
    partners = {right: 0 for _, right in pairs} | {left: 0 for left, _ in pairs}
    for left, right in pairs:
        partners[left] += 1
        partners[right] += 1
    assert len(partners) == 300
    # All but two compare with the first two.
    assert len(pairs) == 2 * 298 + 1
    assert sorted(partners.values())[-2:] == [299, 299]


def test_families_within_a_large_clique_are_found_behind_the_anchors(tmp_path: Path) -> None:
    generator = random.Random(3)
    texts = [text for _ in range(60) for text in family(generator, 6)]
    found, row_ids = ordered(tmp_path, texts, bands=16)
    pairs = {(left, right) for left, right, *_ in edges_of(found, int(row_ids[0]))}
    everything = {pair for start in range(0, 360, 6) for pair in combinations(range(start, start + 6), 2)}
    expected = {(left, right) for left, right, *_ in truth(texts, 0.8, everything)}
    assert pairs <= expected
    similar_to_any = {member for pair in expected for member in pair}
    found_any = {member for pair in pairs for member in pair}
    assert len(found_any) >= 0.99 * len(similar_to_any) > 190


@pytest.mark.parametrize("count", [2, ANCHORS, ANCHORS + 1, 40])
def test_a_small_ordered_clique_is_compared_without_counting_twice(count: int, tmp_path: Path) -> None:
    found, _ = ordered(tmp_path, unlike(count))
    assert found.proposed + found.not_compared == pairs_among(count)
    assert found.not_compared >= 0
    assert found.proposed >= pairs_among(min(count, ANCHORS))


def test_edges_survive_packing() -> None:
    table = np.array([[1, 2, 80, 100], [2, 1 << 50, 5, 5]])
    assert unpack_edges([pack_edges(table[:1]), pack_edges(table[1:])]).tolist() == table.tolist()
    assert unpack_edges([]).shape == (0, 4)
