"""Buckets: every pair of texts that share a band key is in a clique, copies fold, and nothing depends on order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id
from corpus.batch_layout import ROW_BITS
from dedup import proposals
from dedup.proposals import (
    ENTRY_BYTES,
    EXACT,
    LARGE,
    ORDERED,
    PAIRS,
    Entries,
    Integers,
    Proposals,
    pack_cliques,
    pairs_among,
    propose,
    unpack_ordered,
    unpack_pairs,
)

# A row: number of its text, whether that has tokens follows from it, and its keys in two bands.
Row = tuple[int, int, int]
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)), max_size=10), max_size=4
)
Clique = tuple[int, int, tuple[int, ...]]


def entries_of(batches: list[list[Row]], parts: int) -> dict[int, list[bytes]]:
    """Packed entries by partition. Rows of one text have the keys of its first row; text 0 has no tokens."""
    keys: dict[int, tuple[int, int]] = {}
    packed: dict[int, list[bytes]] = defaultdict(list)
    for item, rows in enumerate(batches):
        bands = np.array([keys.setdefault(text, (first, second)) for text, first, second in rows], np.uint64)
        entries = Entries.of(
            chunk_key(item, 0),
            np.arange(len(rows)),
            bands.reshape(-1, 2),
            np.array([text > 0 for text, *_ in rows], bool),
            np.array([xxhash.xxh3_128_digest(bytes([text])) for text, *_ in rows], "V16"),
            parts,
        )
        for part, data in entries.packed():
            packed[part].append(data)
    return packed


def first_two(row_ids: Integers) -> Integers:
    """The first two of many, as if the total order were that of row ids."""
    assert len(row_ids) > 10
    assert (np.diff(row_ids) > 0).all()
    return row_ids[:2]


def cliques_of(found: Iterable[Proposals]) -> Counter[Clique]:
    """All cliques as (kind, band, members)."""
    return Counter(
        clique for proposals_ in found for _, data in proposals_.cliques for clique in unpack_cliques([data])
    )


def unpack_cliques(packed: list[bytes]) -> list[Clique]:
    """Cliques as (kind, band, members); behind the members of ordered ones are their best copies, here the same."""
    bands, sizes, row_ids = unpack_pairs(packed)
    parts = np.split(row_ids, np.cumsum(sizes)[:-1]) if len(sizes) else []
    cliques = [(PAIRS, int(band), tuple(part.tolist())) for band, part in zip(bands, parts, strict=True)]
    for band, listed in unpack_ordered(packed):
        members, best = listed.reshape(2, -1).tolist()
        assert members == best
        cliques.append((ORDERED, band, tuple(members)))
    return cliques


def stars_of(found: Iterable[Proposals]) -> list[tuple[int, ...]]:
    """All stars, sorted."""
    return sorted(tuple(star) for proposals_ in found for star in proposals_.stars.tolist())


def candidates_of(found: Iterable[Proposals]) -> set[int]:
    """Row ids of all candidates."""
    return {
        first_row_id(key) + row
        for proposals_ in found
        for key, data in proposals_.candidates
        for row in np.frombuffer(data, np.int32).tolist()
    }


@given(BATCHES, st.integers(1, 5), st.sampled_from([2, 3, 1000]), st.randoms(use_true_random=False))
def test_equals_a_plain_grouping(
    batches: list[list[Row]], parts: int, max_bucket: int, shuffler: random.Random
) -> None:
    packed = entries_of(batches, parts)
    found = []
    for values in packed.values():
        shuffler.shuffle(values)
        found.append(propose(values, max_bucket, first_two))

    rows: dict[int, list[int]] = defaultdict(list)
    keys: dict[int, tuple[int, int]] = {}
    for item, batch in enumerate(batches):
        for row, (text, *bands) in enumerate(batch):
            rows[text].append(first_row_id(chunk_key(item, 0)) + row)
            keys.setdefault(text, (bands[0], bands[1]))
    assert stars_of(found) == sorted((same[0], other) for same in rows.values() for other in same[1:])
    expected: Counter[Clique] = Counter()
    for band in (0, 1):
        buckets: dict[int, list[int]] = defaultdict(list)
        for text, same in rows.items():
            if text:
                buckets[keys[text][band]].append(same[0])
        for members in buckets.values():
            if len(members) > 1:
                expected[PAIRS if len(members) <= max_bucket else ORDERED, band, tuple(sorted(members))] += 1
    assert cliques_of(found) == expected
    assert candidates_of(found) == {member for _, _, members in expected for member in members}
    assert not sum(proposals_.not_compared for proposals_ in found)


@given(BATCHES, st.randoms(use_true_random=False))
def test_a_home_is_the_batch_of_a_member_and_does_not_depend_on_partitions(
    batches: list[list[Row]], shuffler: random.Random
) -> None:
    homes: list[dict[Clique, int]] = []
    for parts in (1, 4):
        packed = entries_of(batches, parts)
        found: dict[Clique, int] = {}
        for values in packed.values():
            shuffler.shuffle(values)
            for home, data in propose(values, 1000, first_two).cliques:
                for clique in unpack_cliques([data]):
                    found[clique] = home
                    assert home in {member >> ROW_BITS << ROW_BITS for member in clique[2]}
        homes.append(found)
    assert homes[0] == homes[1]


def bucket(count: int, bands: int, key: int = 7) -> bytes:
    """A batch whose rows all have one key in every band and a text each."""
    entries = Entries.of(
        key,
        np.arange(count),
        np.tile(np.arange(bands, dtype=np.uint64), (count, 1)),
        np.ones(count, bool),
        np.array([xxhash.xxh3_128_digest(b"%d" % row) for row in range(count)], "V16"),
        1,
    )
    return entries.packed_of(0)


def test_a_clique_of_near_identical_records_meets_in_one_home_of_its_own() -> None:
    count = LARGE + 1
    found = propose([bucket(count, 6)], 4000, first_two)
    ((home, data),) = found.cliques
    assert first_row_id(7) < home < first_row_id(7) + count
    assert [band for _, band, _ in unpack_cliques([data])] == list(range(6))
    small = propose([bucket(LARGE, 6)], 4000, first_two)
    assert [home for home, _ in small.cliques] == [first_row_id(7)]


def test_a_bucket_that_is_too_large_is_cut_otherwise_in_each_band(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "SLICE", 10)
    count = 95
    found = propose([bucket(count, 12)], 20, first_two)
    by_band: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for kind, band, members in cliques_of([found]):
        assert kind == ORDERED
        by_band[band].append(members)
    anchors = {first_row_id(7), first_row_id(7) + 1}
    together: Counter[tuple[int, int]] = Counter()
    for slices in by_band.values():
        assert 5 <= len(slices) <= 10
        assert all(anchors < set(members) for members in slices)
        others = [member for members in slices for member in members if member not in anchors]
        assert sorted(others) == list(range(first_row_id(7) + 2, first_row_id(7) + count))
        for members in slices:
            together.update(combinations(sorted(set(members) - anchors), 2))
    # A pair that parts in one band meets in another: in about one of ten.
    assert len(together) > 0.6 * pairs_among(count - 2)
    assert max(together.values()) < 8
    assert found.not_compared == 12 * pairs_among(count - 2) - sum(together.values())


def test_bands_beyond_255_are_no_content_hashes() -> None:
    found = propose([bucket(3, 300)], 1000, first_two)
    assert cliques_of([found]) == {(PAIRS, band, tuple(first_row_id(7) + np.arange(3))): 1 for band in range(300)}
    assert not len(found.stars)
    assert EXACT > 1024


def test_an_entry_takes_what_partitions_are_planned_by() -> None:
    data = bucket(1000, 16)
    assert len(data) <= 1000 * 17 * ENTRY_BYTES + 100


def test_cliques_come_back_in_one_order() -> None:
    ordered = np.array([1, 2, 3, 1, 2, 3])
    cliques = [(PAIRS, 2, np.array([5, 9])), (ORDERED, 300, ordered), (PAIRS, 0, np.array([8, 9]))]
    whole = unpack_cliques([pack_cliques(cliques)])
    parts = unpack_cliques([pack_cliques(cliques[2:]), pack_cliques(cliques[1:2]), pack_cliques(cliques[:1])])
    for found in (whole, parts):
        assert found == [(PAIRS, 0, (8, 9)), (PAIRS, 2, (5, 9)), (ORDERED, 300, (1, 2, 3))]
    assert unpack_cliques([]) == []


def test_nothing_proposes_nothing() -> None:
    found = propose([], 4000, first_two)
    assert (found.cliques, found.candidates, len(found.stars), found.not_compared) == ([], [], 0, 0)
