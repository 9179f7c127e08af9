"""Clusters of a group of components: leaders, copies and verdicts equal the definition in whatever order parts come."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id, split_row_id
from corpus.selection import unpack_totals
from corpus.selection_entries import Entries
from corpus.selection_keys import NULL_GROUP, group_number, number_words
from corpus.stages import CorpusVerdict
from dedup import cluster_resolution
from dedup.cluster_resolution import (
    EDGES,
    Group,
    Integers,
    Resolved,
    members_by_batch,
    node_columns,
    pack_home,
    pack_members,
    pack_nodes,
    pack_rows,
    resolve_clusters,
    unpack_members,
)
from dedup.cluster_verdicts import apply_verdicts, hashed_places, pack_selected
from dedup.verification import pack_edges
from tests.dedup.reference import OVER_BUDGET, OVER_MAX_COPIES, Budget, Record, resolve

HOMES = 3
# A record: number of its text, priority, group, units, record_id, whether it is protected, and in which batch it is.
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from([None, 0.5, 2.0]),
        st.sampled_from([None, "x", ""]),
        st.integers(1, 9),
        st.sampled_from(["a", "b", "ü", ""]),
        st.sampled_from([False, False, False, True]),
        st.integers(0, 2),
    ),
    max_size=14,
)
EDGE_LISTS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(8, 10)).filter(lambda edge: edge[0] != edge[1]),
    max_size=16,
)
Rows = list[tuple[int, float | None, str | None, int, str, bool, int]]


def text_of(number: int) -> str:
    """The text of a number; some are equally long."""
    return "abcdefgh"[number] * (3 + number // 2)


class World:
    """Records in batches of a file each, with what the steps get of them, and what the reference does."""

    def __init__(self, rows: Rows, edges: list[tuple[int, int, int]]) -> None:
        rows = sorted(rows, key=lambda row: row[-1])
        self.keys = [chunk_key(batch, 0) for *_, batch in rows]
        seen = [0, 0, 0]
        self.row_ids, self.records = [], []
        for text, priority, group, units, record_id, protected, batch in rows:
            self.row_ids.append(first_row_id(chunk_key(batch, 0)) + seen[batch])
            digest = xxhash.xxh3_128_hexdigest(text_of(text).encode())
            self.records.append(
                Record(
                    record_id, f"{batch}.jsonl", 100 + seen[batch], text_of(text), digest, (priority,), None, group,
                    units, protected,
                )
            )  # fmt: skip
            seen[batch] += 1
        self.sizes = seen
        texts = [row[0] for row in rows]
        self.similar: dict[tuple[int, int], Fraction] = {}
        self.edges: list[tuple[int, int, int, int]] = []
        known: dict[frozenset[int], int] = {}
        for left, right, common in edges:
            common = known.setdefault(frozenset({left, right}), common)
            if left in texts and right in texts:
                ends = sorted(self.row_ids[texts.index(text)] for text in (left, right))
                self.edges.append((ends[0], ends[1], common, 10))
        for first, left in enumerate(texts):
            for second, right in enumerate(texts[:first]):
                shared = 10 if left == right else known.get(frozenset({left, right}))
                if shared:
                    self.similar[first, second] = Fraction(shared, 10)

    def node_table(self) -> pa.Table:
        """All records as nodes."""
        columns = {
            "protected": pa.array([record.protected for record in self.records], pa.bool_()),
            "characters": pa.array([len(record.text) for record in self.records], pa.int64()),
            "content_hash": pa.array([bytes.fromhex(record.content_hash) for record in self.records], pa.binary(16)),
            "record_id": pa.array([record.record_id for record in self.records], pa.string()),
            "units": pa.array([record.units for record in self.records], pa.int64()),
            "group": pa.array(
                [NULL_GROUP if record.group is None else group_number(record.group) for record in self.records],
                pa.int64(),
            ),
            "position": pa.array([record.position for record in self.records], pa.int64()),
            "priority_0": pa.array(
                number_words(
                    np.array(
                        [np.nan if (key := record.priority[0]) is None else key for record in self.records], float
                    ),
                    descending=True,
                )
            ),
        }
        assert list(columns) == node_columns(1)
        return pa.table(columns)

    def parts(self, shuffler: random.Random) -> list[bytes]:
        """Nodes and edges in some parts, in any order, some nodes named twice."""
        table, row_ids = self.node_table(), np.array(self.row_ids, np.int64)
        cut = shuffler.randint(0, len(row_ids))
        parts = [
            pack_nodes(row_ids[chosen], table.take(pa.array(chosen)))
            for chosen in (np.arange(cut), np.arange(max(cut - 2, 0), len(row_ids)))
            if len(chosen)
        ]
        parts += [EDGES + pack_edges(np.array([edge], np.int64)) for edge in self.edges]
        shuffler.shuffle(parts)
        return parts

    def references(self, shuffler: random.Random) -> list[bytes]:
        """References to the same nodes and edges, in any order, some of them twice."""
        rows = [split_row_id(row_id) for row_id in self.row_ids]
        parts = [
            pack_rows(key, np.array([row for of_key, row in rows if of_key == key], np.int32))
            for key in {key for key, _ in rows}
        ]
        parts += [pack_home(home) for home in range(HOMES)]
        parts += shuffler.sample(parts, len(parts) // 2)
        shuffler.shuffle(parts)
        return parts

    def read_staged(self, row_ids: Integers) -> pa.Table:
        """The nodes of some records."""
        assert (np.diff(row_ids) > 0).all()
        places = {row_id: place for place, row_id in enumerate(self.row_ids)}
        return self.node_table().take(pa.array([places[row_id] for row_id in row_ids.tolist()]))

    def edges_of(self, home: int) -> Integers:
        """The edges of a home, among those of other groups."""
        others = [(first_row_id(chunk_key(7, 0)) + number, first_row_id(chunk_key(8, 0)), 9, 10) for number in range(3)]
        return np.array(sorted([*self.edges[home::HOMES], *others]), np.int64).reshape(-1, 4)

    def resolve(
        self, shuffler: random.Random, max_copies: int | None, keeps_copies: bool, refers: bool = False
    ) -> Resolved:
        """Resolve the group of all records."""
        group = Group.of(self.references(shuffler) if refers else self.parts(shuffler))
        return resolve_clusters(group, 1, max_copies, keeps_copies, self.read_staged, self.edges_of)

    def apply(
        self, verdicts: list[tuple[int, bytes]], dead: set[int], has_max_copies: bool
    ) -> dict[int, tuple[CorpusVerdict, int]]:
        """Apply verdicts to all batches; returns for each row id the verdict of its batch and its row."""
        found = {}
        for batch, size in enumerate(self.sizes):
            key = chunk_key(batch, 0)
            rows = [first_row_id(key) + row for row in range(size)]
            records = pa.record_batch({"position": pa.array([100 + row for row in range(size)], pa.int64())})
            verdict = apply_verdicts(
                key,
                records,
                np.array([row not in dead for row in rows], bool),
                [data for of_key, data in verdicts if of_key == key],
                lambda item: f"{item}.jsonl",
                has_max_copies,
            )
            found.update({row_id: (verdict, row) for row, row_id in enumerate(rows)})
        return found


@settings(max_examples=150)
@given(
    RECORDS,
    EDGE_LISTS,
    st.sampled_from([None, 0, 1, 2]),
    st.integers(0, 9),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_clusters_equal_the_definition(
    rows: Rows,
    edges: list[tuple[int, int, int]],
    max_copies: int | None,
    pending: int,
    refers: bool,
    shuffler: random.Random,
) -> None:
    world = World(rows, edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_resolution, "PENDING_EDGES", pending)
        resolved = world.resolve(shuffler, max_copies, keeps_copies=False, refers=refers)
    assert resolved.copies == []
    assert resolved.edges == len(set(world.edges))
    verdicts = list(resolved.verdicts)
    shuffler.shuffle(verdicts)
    applied = world.apply(verdicts, set(), max_copies is not None)
    fates = resolve(world.records, world.similar, Budget(max_copies=max_copies))
    copy_units: dict[int, int] = {}
    for place, (record, fate) in enumerate(zip(world.records, fates, strict=True)):
        verdict, row = applied[world.row_ids[place]]
        leader = world.records[fate.leader]
        assert {name: verdict.signals[name][row].as_py() for name in verdict.signals} == {
            "cluster_id": xxhash.xxh3_128_hexdigest(f"{leader.file}#{leader.position}".encode()),
            "cluster_size": fate.size,
            "copy_index": fate.copy_index,
            "jaccard": float(fate.jaccard) if fate.copy_index else None,
        }
        rule = {0: None, 1: OVER_BUDGET, 2: OVER_MAX_COPIES}[int(verdict.failures[row])]
        assert rule == fate.rule
        related = (verdict.related[row].as_py(), verdict.related_id[row].as_py(), verdict.related_position[row].as_py())
        if rule:
            assert related == (world.row_ids[fate.leader], leader.record_id, leader.position)
        else:
            assert related == (None, None, None)
        if fate.copy_index:
            group = NULL_GROUP if record.group is None else group_number(record.group)
            copy_units[group] = copy_units.get(group, 0) + record.units
    groups, counts, weights = unpack_totals(resolved.copy_totals)
    assert dict(zip(groups.tolist(), weights.tolist(), strict=True)) == copy_units
    assert counts.sum() == sum(fate.copy_index > 0 for fate in fates)


@given(RECORDS, EDGE_LISTS, st.sampled_from([None, 1]), st.randoms(use_true_random=False))
def test_copies_stay_where_the_selection_has_them(
    rows: Rows, edges: list[tuple[int, int, int]], max_copies: int | None, shuffler: random.Random
) -> None:
    world = World(rows, edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_resolution, "COPIES_PER_ELEMENT", shuffler.randint(1, 9))
        resolved = world.resolve(shuffler, max_copies, keeps_copies=True)
    fates = resolve(world.records, world.similar, Budget(max_copies=max_copies))
    eligible = {
        row_id
        for row_id, fate in zip(world.row_ids, fates, strict=True)
        if 0 < fate.copy_index <= (max_copies or fate.copy_index)
    }
    chosen_ids = [row_id for packed in resolved.copies for row_id in Entries.unpack(packed).row_ids.tolist()]
    assert sorted(chosen_ids) == sorted(eligible)
    selected = {row_id for row_id in eligible if shuffler.random() < 0.5}
    verdicts = list(resolved.verdicts)
    for batch in range(3):
        key = chunk_key(batch, 0)
        chosen = sorted(row_id for row_id in selected if row_id in range(first_row_id(key), first_row_id(key + 1)))
        verdicts.append((key, pack_selected(key, np.array(chosen, np.int64))))
    shuffler.shuffle(verdicts)
    applied = world.apply(verdicts, set(), max_copies is not None)
    stays = {row_id for row_id, (verdict, row) in applied.items() if verdict.failures[row] == 0}
    leaders = {row_id for row_id, fate in zip(world.row_ids, fates, strict=True) if fate.copy_index == 0}
    assert stays == leaders | selected


def test_a_chain_and_the_first_of_equals() -> None:
    # b is like a and c; these are not like each other. The longest comes first: h, then f.
    rows: Rows = [
        (1, None, None, 1, "b", False, 0),
        (0, None, None, 1, "a", False, 0),
        (7, None, None, 1, "c", False, 1),
    ]
    world = World(rows, [(0, 1, 9), (1, 7, 8)])
    resolved = world.resolve(random.Random(0), None, keeps_copies=False)
    applied = world.apply(resolved.verdicts, set(), has_max_copies=False)
    ids = {record.record_id: row_id for record, row_id in zip(world.records, world.row_ids, strict=True)}
    verdict, row = applied[ids["b"]]
    assert verdict.related_id[row].as_py() == "c"
    assert verdict.signals["jaccard"][row].as_py() == 0.8
    verdict, row = applied[ids["a"]]
    assert (verdict.failures[row], verdict.signals["cluster_size"][row].as_py()) == (0, 1)


def test_rows_that_did_not_enter_have_no_cluster() -> None:
    world = World([(0, None, None, 1, "a", False, 0), (1, None, None, 1, "b", False, 0)], [])
    applied = world.apply([], {world.row_ids[0]}, has_max_copies=False)
    verdict, row = applied[world.row_ids[0]]
    assert [verdict.signals[name][row].as_py() for name in verdict.signals] == [None] * 4
    assert verdict.failures.tolist() == [0, 0]
    verdict, row = applied[world.row_ids[1]]
    assert verdict.signals["cluster_size"][row].as_py() == 1


def test_nothing_resolves_to_nothing() -> None:
    resolved = World([], []).resolve(random.Random(0), None, keeps_copies=True)
    assert (resolved.verdicts, resolved.copies, resolved.edges) == ([], [], 0)
    assert len(unpack_totals(resolved.copy_totals)[0]) == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 4))
def test_a_member_of_a_star_is_labelled_by_the_star(pairs: list[tuple[int, int]], parts: int) -> None:
    packed = [
        pack_members(np.array([row for row, _ in part], np.int32), np.array([label for _, label in part], np.int64))
        for first in range(parts)
        if (part := pairs[first::parts])
    ]
    rows, labels = unpack_members(packed)
    smallest = {row: min(label for other, label in pairs if other == row) for row, _ in pairs}
    assert dict(zip(rows.tolist(), labels.tolist(), strict=True)) == smallest
    assert rows.tolist() == sorted(smallest)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), unique=True, max_size=8))
def test_members_go_to_their_batches(places: list[tuple[int, int]]) -> None:
    row_ids = np.array([first_row_id(chunk_key(batch, 0)) + row for batch, row in places], np.int64)
    found = {key: unpack_members([packed]) for key, packed in members_by_batch(row_ids, row_ids + 7)}
    assert found.keys() == {chunk_key(batch, 0) for batch, _ in places}
    members = [
        (first_row_id(key) + row, label)
        for key, (rows, labels) in found.items()
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True)
    ]
    assert sorted(members) == sorted((row_id, row_id + 7) for row_id in row_ids.tolist())


def test_the_id_of_a_cluster_is_the_place_of_its_leader() -> None:
    files = pa.array(["a/b.parquet", "ü.jsonl"])
    assert hashed_places(files, np.array([17, 0])).to_pylist() == [
        xxhash.xxh3_128_hexdigest(place.encode()) for place in ("a/b.parquet#17", "ü.jsonl#0")
    ]
