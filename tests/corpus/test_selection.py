"""Exact selection: whatever the partitions and the sample, what is kept is the longest prefix within the limit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import selection
from corpus.errors import ThresherError
from corpus.selection_entries import AFTER, AT, BEFORE, Boundaries, Entries, locate
from corpus.selection_keys import (
    RecordIds,
    group_number,
    group_numbers,
    hash_words,
    key_words,
    number_words,
    ranks,
    total_order,
)
from corpus.selection_limits import exact_decimal, floor_share

Record = tuple[int, tuple[int, int], int, int, str]  # group, words, weight, row id, record_id

IDS = st.sampled_from(["", "a", "b", "ab", "a\0", "ü", "z" * 300, "z" * 300 + "y", "z" * 256])


def lists_of_records(groups: list[int], words: list[int]) -> st.SearchStrategy[list[Record]]:
    rows = st.tuples(
        st.sampled_from(groups),
        st.tuples(st.sampled_from(words[:3]), st.sampled_from(words)),
        st.integers(1, 4),
        IDS,
    )
    return st.lists(rows, max_size=60).map(
        lambda found: [(group, key, weight, row, name) for row, (group, key, weight, name) in enumerate(found)]
    )


# Many groups and keys, or one group in which most records are tied.
RECORDS = lists_of_records([-(2**63), -7, 0, 3, 2**63 - 1], [0, 2**64 - 1, 1, 2, 2**63]) | lists_of_records([3], [0, 1])


def record_ids(names: Sequence[str]) -> RecordIds:
    return RecordIds.from_arrow(pa.array(names, pa.string()))


def entries(records: Sequence[Record]) -> Entries:
    groups, words, weights, row_ids, names = zip(*records, strict=True) if records else ((),) * 5
    return Entries(
        np.array(groups, np.int64),
        np.array(words, np.uint64).reshape(-1, 2),
        np.array(weights, np.int64),
        np.array(row_ids, np.int64),
        record_ids(names),
    )


def is_beyond(entries: Entries, entry: int, boundaries: Boundaries, boundary: int) -> bool:
    """Say whether a boundary lies before an entry."""
    key = (int(entries.groups[entry]), entries.words[entry].tolist())
    limit = (int(boundaries.groups[boundary]), boundaries.words[boundary].tolist())
    if key != limit or boundaries.ties[boundary] != AT:
        return key > limit or (key == limit and bool(boundaries.ties[boundary] == BEFORE))
    rest = (entries.ids.value(entry), int(entries.row_ids[entry]))
    return rest > (boundaries.ids.value(boundary), int(boundaries.row_ids[boundary]))


def run(
    partitions: Sequence[bytes], limits: dict[int, int], width: int, rounds: int, shuffler: random.Random
) -> list[Any]:
    """Drive the steps as the graph does, with merges in any order; return the masks of the partitions."""

    def shuffled(parts: list[bytes]) -> list[bytes]:
        shuffler.shuffle(parts)
        return parts

    def merged(parts: list[bytes]) -> bytes:
        parts, some = shuffled(parts), shuffler.randint(0, len(parts))
        return selection.merge_totals([selection.merge_totals(parts[:some]), *parts[some:]])

    all_totals = merged([selection.totals(part) for part in partitions])
    search = selection.start(all_totals, np.array([*limits], np.int64), np.array([*limits.values()], np.int64), width)
    for _ in range(rounds):
        samples = selection.merge_samples(shuffled([selection.sample(part, search) for part in partitions]), width)
        splitters = selection.split(search, samples)
        boundaries = Boundaries.unpack(splitters)
        assert boundaries.order().tolist() == list(range(len(boundaries)))
        counts = merged([selection.count(part, splitters) for part in partitions])
        search = selection.narrow(search, splitters, counts)
    shards: dict[int, list[bytes]] = {}
    for part in partitions:
        for shard, packed in selection.gather(part, search):
            shards.setdefault(shard, []).append(packed)
    resolved = [selection.resolve(shuffled(packed), search) for packed in shards.values()]
    chosen = selection.finish(search, shuffled(resolved))
    return [selection.select(part, chosen) for part in partitions]


def reference(records: Sequence[Record], limits: dict[int, int]) -> set[int]:
    """Row ids of the longest prefix of each group within its limit."""
    kept = set()
    for group in {record[0] for record in records}:
        room = limits.get(group, 0)
        for _, _, weight, row_id, _ in sorted(
            (record for record in records if record[0] == group), key=lambda item: (item[1], item[4].encode(), item[3])
        ):
            room -= weight
            if room < 0:
                break
            kept.add(row_id)
    return kept


def kept_rows(parts: Sequence[Sequence[Record]], masks: Sequence[Any]) -> set[int]:
    return {
        record[3]
        for part, mask in zip(parts, masks, strict=True)
        for record, kept in zip(part, mask, strict=True)
        if kept
    }


@given(
    RECORDS,
    st.dictionaries(st.sampled_from([-(2**63), -7, 0, 3, 5]), st.integers(0, 60)),
    st.integers(1, 5),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_equals_the_longest_prefix(
    records: list[Record], limits: dict[int, int], partitions: int, rounds: int, shuffler: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "WHOLE", 3)
        patch.setattr(selection, "SAMPLES", 3)
        patch.setattr(selection, "SAMPLES_PER_GROUP", 1)
        parts: list[list[Record]] = [[] for _ in range(partitions)]
        for record in records:
            parts[shuffler.randrange(partitions)].append(record)
        masks = run([entries(part).pack() for part in parts], limits, 2, rounds, shuffler)
    assert kept_rows(parts, masks) == reference(records, limits)


def test_rounds_narrow_until_shards_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "WHOLE", 400)
    monkeypatch.setattr(selection, "SAMPLES", 400)
    shuffler = random.Random(1)
    records = [
        (row % 3, (7, shuffler.randrange(2**64)), shuffler.randint(1, 9), row, f"{row:05}") for row in range(30_000)
    ]
    limits = {0: 20_000, 1: 0, 2: 10**9}
    parts = [records[first::7] for first in range(7)]
    packed = [entries(part).pack() for part in parts]
    assert selection.rounds_needed(30_000) == 2
    masks = run(packed, limits, 2, 2, shuffler)
    assert kept_rows(parts, masks) == reference(records, limits)
    search = selection.start(
        selection.merge_totals(map(selection.totals, packed)), np.arange(3), np.array([20_000, 0, 10**9]), 2
    )
    left = [int(selection.Search.unpack(search).counts.sum())]
    for _ in range(2):
        samples = selection.merge_samples([selection.sample(part, search) for part in packed], 2)
        splitters = selection.split(search, samples)
        assert len(Boundaries.unpack(splitters)) < 600
        search = selection.narrow(
            search, splitters, selection.merge_totals([selection.count(part, splitters) for part in packed])
        )
        left.append(int(selection.Search.unpack(search).counts.sum()))
    assert left[0] == 10_000
    assert left[1] < 10_000 * 20 // 400
    assert left[2] <= left[1]
    assert sum(len(Entries.unpack(part)) for each in packed for _, part in selection.gather(each, search)) == left[2]


def test_many_records_with_one_key_are_split_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "WHOLE", 50)
    monkeypatch.setattr(selection, "SAMPLES", 50)
    records = [(0, (1, 2), 1, row, f"https://example.org/{row * 7919 % 5000}") for row in range(5000)]
    parts = [records[:2000], records[2000:]]
    masks = run([entries(part).pack() for part in parts], {0: 1234}, 2, 2, random.Random(2))
    assert kept_rows(parts, masks) == reference(records, {0: 1234})


@pytest.mark.parametrize("groups", [1, 3])
def test_few_samples_among_many_tied_records(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "WHOLE", 3)
    monkeypatch.setattr(selection, "SAMPLES", 4)
    monkeypatch.setattr(selection, "SAMPLES_PER_GROUP", 3)
    for seed in range(60):
        shuffler = random.Random(seed)
        records = [
            (shuffler.randrange(groups), (0, shuffler.randrange(3) // 2), 1, seed * 1000 + row, shuffler.choice("abc"))
            for row in range(60)
        ]
        limits = {group: shuffler.randrange(70 // groups) for group in range(groups)}
        parts = [records[:30], records[30:]]
        masks = run([entries(part).pack() for part in parts], limits, 2, 2, shuffler)
        assert kept_rows(parts, masks) == reference(records, limits)


def test_a_larger_limit_keeps_a_superset() -> None:
    records = [(0, (row % 5, 0), 1 + row % 3, row, str(row % 4)) for row in range(40)]
    kept = [
        kept_rows([records], run([entries(records).pack()], {0: limit}, 2, 1, random.Random(3))) for limit in range(90)
    ]
    assert all(smaller <= larger for smaller, larger in zip(kept, kept[1:], strict=False))
    assert not kept[0]
    assert len(kept[-1]) == 40


def test_nothing_to_choose_from() -> None:
    assert [mask.tolist() for mask in run([entries([]).pack()] * 2, {0: 5}, 2, 2, random.Random(4))] == [[], []]
    chosen = selection.finish(
        selection.start(selection.merge_totals([]), np.zeros(0, np.int64), np.zeros(0, np.int64), 2), []
    )
    assert not selection.select(entries([(0, (1, 1), 1, 0, "a")]).pack(), chosen).any()


def test_a_weight_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        entries([(0, (1, 1), 0, 0, "a")]).pack()


def test_too_many_groups_are_a_named_failure() -> None:
    groups = np.arange(600_000)
    totals = selection.pack_totals(groups, np.full(600_000, 2), np.full(600_000, 2))
    with pytest.raises(ThresherError, match="fewer distinct values"):
        selection.start(totals, groups, np.ones(600_000, np.int64), 4)
    # Groups without a limit cost nothing.
    assert not len(selection.Search.unpack(selection.start(totals, groups[:0], groups[:0], 4)).groups)


def test_a_missing_cut_is_noticed() -> None:
    packed = entries([(0, (1, row), 1, row, "a") for row in range(4)]).pack()
    search = selection.start(selection.totals(packed), np.array([0]), np.array([2]), 2)
    with pytest.raises(RuntimeError, match="1 groups are to be cut, and 0 cuts were found"):
        selection.finish(search, [])


@given(RECORDS, RECORDS, st.randoms(use_true_random=False))
def test_records_are_located_among_boundaries(
    records: list[Record], limits: list[Record], shuffler: random.Random
) -> None:
    found, some = entries(records), entries(limits)
    boundaries = Boundaries.concatenate(
        [
            Boundaries.after(
                some, np.arange(len(some)), np.array([row % 2 == 0 for row in range(len(some))], bool), 256
            ),
            Boundaries.at_ends(some.groups, 2, shuffler.choice([BEFORE, AFTER])),
        ]
    )
    boundaries = boundaries.take(boundaries.order())
    expected = [
        sum(is_beyond(found, entry, boundaries, place) for place in range(len(boundaries)))
        for entry in range(len(found))
    ]
    assert locate(found, boundaries).tolist() == expected
    beyond = [
        [is_beyond(found, entry, boundaries, place) for place in range(len(boundaries))] for entry in range(len(found))
    ]
    assert all(row == sorted(row, reverse=True) for row in beyond), "boundaries are in ascending order"


@given(RECORDS)
def test_packed_entries_come_back(records: list[Record]) -> None:
    found = entries(records)
    again = Entries.unpack(found.pack())
    assert again.words.tolist() == found.words.tolist()
    assert [again.ids.value(row) for row in range(len(again))] == [record[4].encode() for record in records]
    for name in ("groups", "weights", "row_ids"):
        assert getattr(again, name).tolist() == getattr(found, name).tolist()
    limits = Boundaries.after(found, np.arange(len(found)), np.ones(len(found), bool), 5)
    assert Boundaries.unpack(limits.pack()).ties.tolist() == [AT] * len(found)
    assert [limits.ids.value(row) for row in range(len(limits))] == [record[4].encode()[:5] for record in records]


@given(RECORDS)
def test_total_order_is_that_of_tuples(records: list[Record]) -> None:
    found = entries(records)
    expected = sorted(range(len(records)), key=lambda row: (records[row][1], records[row][4].encode(), records[row][3]))
    order = total_order(found.words, found.ids, found.row_ids)
    assert order.tolist() == expected
    assert order[ranks(order)].tolist() == list(range(len(records)))


@given(st.lists(st.one_of(st.floats(), st.none())), st.booleans())
def test_words_sort_like_floats_and_nulls_come_last(values: list[float | None], descending: bool) -> None:
    numbers = np.array([0.0 if value is None else value for value in values], np.float64)
    words = number_words(numbers, descending=descending, valid=np.array([value is not None for value in values], bool))
    known = [value is not None and value == value for value in values]
    keys = [
        (not valid, (-value if descending else value) if valid else 0)
        for value, valid in zip(values, known, strict=True)
    ]  # type: ignore[operator]
    for row, key in enumerate(keys):
        for other, other_key in enumerate(keys):
            assert (words[row] < words[other]) == (key < other_key)


@given(st.lists(st.one_of(st.integers(-(2**63) + 1, 2**63 - 2), st.none())), st.booleans())
def test_words_sort_like_integers_and_nulls_come_last(values: list[int | None], descending: bool) -> None:
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    words = number_words(numbers, descending=descending, valid=np.array([value is not None for value in values], bool))
    keys = [(value is None, 0 if value is None else -value if descending else value) for value in values]
    for row, key in enumerate(keys):
        for other, other_key in enumerate(keys):
            assert (words[row] < words[other]) == (key < other_key)


def test_the_last_integer_still_comes_before_null() -> None:
    last = np.array([2**63 - 1, 0], np.int64)
    words = number_words(last, descending=False, valid=np.array([True, False]))
    assert words[0] < words[1]


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1))
def test_hash_words_sort_like_hex_digits(hashes: list[bytes]) -> None:
    words = key_words([hash_words(np.array(hashes, "V16"))])
    rows = range(len(hashes))
    assert sorted(rows, key=lambda row: tuple(words[row].tolist())) == sorted(rows, key=lambda row: hashes[row].hex())


def test_groups_have_numbers_and_null_is_a_group() -> None:
    values = ["ko", None, "", "en", "ko"]
    numbers = group_numbers(pa.array(values, pa.string())).tolist()
    assert numbers == [group_number(value) for value in values]
    assert len(set(numbers)) == 4
    assert len(group_numbers(pa.array([], pa.string()))) == 0


@pytest.mark.parametrize(
    ("written", "total", "expected"),
    [
        (0.29, 100, 29),
        (0.1, 10, 1),
        (0.7, 10, 7),
        (0.07, 100, 7),
        (1e-5, 10**5, 1),
        (1, 7, 7),
        (0, 7, 0),
        (0.3, 12, 3),
        ("0.29", 10**18, 29 * 10**16),
        (Decimal("2.5"), 3, 7),
    ],
)
def test_shares_are_exact_decimals(written: Any, total: int, expected: int) -> None:
    assert floor_share(exact_decimal(written), total) == expected


@pytest.mark.parametrize(
    "written", [-0.1, float("nan"), float("inf"), "1e999999999", "many", True, None, Decimal("-1")]
)
def test_a_share_that_is_none_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match=r"such as 0\.25"):
        exact_decimal(written)
