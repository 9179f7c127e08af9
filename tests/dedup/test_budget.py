"""The duplication budget equals its definition: the longest prefix within the floor of the exact product."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus import selection
from corpus.selection_entries import Entries
from corpus.selection_keys import RecordIds, group_number, group_numbers, number_words
from dedup.budget import BudgetGroups, Unit, copy_entries, key_width, leader_totals, limits, units
from dedup.leaders import find_clusters, record_ranks

BUDGETS = [0, 0.01, 0.25, 0.29, 0.5, 1, 2.5]
GROUPS = BudgetGroups(by="language", default=0, values={"ko": 0.5, "en": 0.29})

# One record: cluster, group, characters, tokens, priority, content hash, record_id, protected.
Record = tuple[int, str | None, int, int, float | None, bytes, str, bool]
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(["ko", "en", "", None]),
        st.integers(1, 9),
        st.integers(0, 4),
        st.sampled_from([None, 0.5, 1.5]),
        st.sampled_from([bytes([value] * 16) for value in (0, 1, 255)]),
        st.sampled_from(["a", "b", "ab"]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=60,
)


def clusters_of(records: list[Record]) -> tuple[Any, Any]:
    """Clusters in which the records of one number are all duplicates of each other, and the words of the priority."""
    priority = number_words(
        np.array([np.nan if record[4] is None else record[4] for record in records], np.float64), descending=True
    )
    protected = np.array([record[7] for record in records], bool)
    places = record_ranks(
        protected,
        [priority],
        np.array([record[2] for record in records], np.int64),
        np.array([record[5] for record in records], "V16"),
        RecordIds.from_arrow(pa.array([record[6] for record in records], pa.string())),
        np.arange(len(records)),
    )
    rows = range(len(records))
    pairs = [(left, right) for left in rows for right in range(left) if records[left][0] == records[right][0]]
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return find_clusters(places, np.arange(len(records)), protected, first, second, np.full(len(pairs), 0.9)), priority


def kept(
    records: list[Record], budget: float, groups: BudgetGroups | None, unit: Unit, max_copies: int | None, parts: int
) -> set[int]:
    """Rows that stay, by the packed arrays and the steps of the selection."""
    found, priority = clusters_of(records)
    characters = np.array([record[2] for record in records], np.int64)
    weights = units(unit, characters, np.array([record[3] for record in records], np.int64))
    numbers = np.zeros(len(records), np.int64)
    if groups is not None:
        numbers = group_numbers(pa.array([record[1] for record in records], pa.string()))
    entries = copy_entries(
        found,
        numbers,
        weights,
        [priority],
        np.array([record[5] for record in records], "V16"),
        RecordIds.from_arrow(pa.array([record[6] for record in records], pa.string())),
        np.arange(len(records)),
        max_copies,
    )
    partitions = [entries.take(np.arange(first, len(entries), parts)).pack() for first in range(parts)]
    search = selection.start(
        selection.merge_totals(map(selection.totals, partitions)),
        *limits(budget, groups, leader_totals(numbers, weights, found.copy_index > 0)),
        key_width(1),
    )
    samples = selection.merge_samples([selection.sample(part, search) for part in partitions], key_width(1))
    splitters = selection.split(search, samples)
    counts = selection.merge_totals([selection.count(part, splitters) for part in partitions])
    search = selection.narrow(search, splitters, counts)
    shards: dict[int, list[bytes]] = {}
    for part in partitions:
        for shard, packed in selection.gather(part, search):
            shards.setdefault(shard, []).append(packed)
    chosen = selection.finish(search, [selection.resolve(packed, search) for packed in shards.values()])
    rows = {
        int(row) for part in partitions for row in Entries.unpack(part).row_ids[selection.select(part, chosen)].tolist()
    }
    return rows | set(np.flatnonzero(found.copy_index == 0).tolist())


def reference(
    records: list[Record], budget: float, groups: BudgetGroups | None, unit: Unit, max_copies: int | None
) -> set[int]:
    """Rows that stay, by the definition."""
    weigh = {"records": lambda row: 1, "characters": lambda row: row[2], "tokens": lambda row: max(row[3], 1)}[unit]
    leaders, copies = [], []
    for cluster in {record[0] for record in records}:
        rows = [row for row, record in enumerate(records) if record[0] == cluster]
        rows.sort(key=lambda row: (not (r := records[row])[7], r[4] is None, -(r[4] or 0), -r[2], r[5], r[6], row))
        stay = [row for row in rows if records[row][7]] or rows[:1]
        leaders += stay
        copies += [(copy, row, stay[0]) for copy, row in enumerate((row for row in rows if row not in stay), 1)]
    group = lambda row: records[row][1] if groups else None  # noqa: E731
    result = set(leaders)
    for name in {group(row) for row in range(len(records))}:
        share = budget if groups is None else groups.values.get(name, groups.default)  # type: ignore[arg-type]
        room = int(Decimal(str(share)) * sum(weigh(records[row]) for row in leaders if group(row) == name))
        prefix = [(copy, row) for copy, row, leader in copies if group(leader) == name and copy <= (max_copies or copy)]
        for _, row in sorted(
            prefix, key=lambda c: (c[0], (r := records[c[1]])[4] is None, -(r[4] or 0), *r[5:7], c[1])
        ):
            room -= weigh(records[row])
            if room < 0:
                break
            result.add(row)
    return result


@settings(max_examples=150)
@given(
    RECORDS,
    st.sampled_from(BUDGETS),
    st.sampled_from([None, GROUPS]),
    st.sampled_from(["records", "characters", "tokens"]),
    st.sampled_from([None, 1, 2]),
    st.integers(1, 4),
)
def test_equals_the_definition(
    records: list[Record],
    budget: float,
    groups: BudgetGroups | None,
    unit: Unit,
    max_copies: int | None,
    parts: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "WHOLE", 2)
        patch.setattr(selection, "SAMPLES", 2)
        patch.setattr(selection, "SAMPLES_PER_GROUP", 1)
        assert kept(records, budget, groups, unit, max_copies, parts) == reference(
            records, budget, groups, unit, max_copies
        )


def some_records(count: int) -> list[Record]:
    generator = random.Random(5)
    return [
        (
            int(generator.paretovariate(0.5)) % 120,
            generator.choice(["ko", "en", None]),
            generator.randint(1, 500),
            generator.randint(0, 90),
            None,
            generator.randbytes(16),
            str(row),
            False,
        )
        for row in range(count)
    ]


@pytest.mark.parametrize("unit", ["records", "characters", "tokens"])
def test_a_larger_budget_keeps_a_superset(unit: Unit) -> None:
    records = some_records(400)
    sets = [kept(records, budget, None, unit, None, 3) for budget in BUDGETS]
    assert all(smaller <= larger for smaller, larger in zip(sets, sets[1:], strict=False))
    assert len({len(each) for each in sets}) > 4
    leaders = len({record[0] for record in records})
    assert len(sets[0]) == leaders
    if unit == "records":
        assert [len(each) for each in sets[:-1]] == [
            leaders + min(len(records) - leaders, int(Decimal(str(budget)) * leaders)) for budget in BUDGETS[:-1]
        ]


def test_a_budget_of_one_with_ten_leaders_keeps_ten_copies() -> None:
    # Case d07: seven clusters and three singletons.
    sizes = [1001, 50, 51, 52, 101, 257, 200, 1, 1, 1]
    records = [
        (cluster, None, 10, 1, None, random.Random(f"{cluster} {row}").randbytes(16), f"{cluster}-{row}", False)
        for cluster, size in enumerate(sizes)
        for row in range(min(size, 60))
    ]
    rows = kept(records, 1, None, "records", None, 2)
    assert len(rows) == 20
    # First copies of all seven clusters, then three second ones.
    per_cluster = sorted(sum(records[row][0] == cluster for row in rows) for cluster in range(10))
    assert per_cluster == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]


def test_groups_have_their_own_limits_and_null_is_a_group() -> None:
    totals = selection.pack_totals(
        np.array([group_number(name) for name in ("ko", "en", None, "de")]),
        np.full(4, 1),
        np.array([101, 100, 7, 9]),
    )
    groups = BudgetGroups(by="language", default=0.25, values={"ko": 0.5, "en": 0.29})
    numbers, allowed = limits(0.0, groups, totals)
    found = dict(zip(numbers.tolist(), allowed.tolist(), strict=True))
    assert [found[group_number(name)] for name in ("ko", "en", None, "de")] == [50, 29, 1, 2]


def test_a_limit_beyond_64_bits_is_no_limit() -> None:
    totals = selection.pack_totals(np.array([0]), np.array([1]), np.array([2**62]))
    assert limits(1e9, None, totals)[1].tolist() == [2**63 - 1]


def test_tokens_need_counts() -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        units("tokens", np.array([1]))


@pytest.mark.parametrize(
    ("field", "value"), [("default", -0.1), ("values", {"ko": -1}), ("by", ""), ("values", {"ko": float("inf")})]
)
def test_groups_that_cannot_be_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        BudgetGroups.model_validate({"by": "language", field: value})
