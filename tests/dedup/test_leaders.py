"""Leaders: every removal is proven by an edge to a record that stays, the earliest such, and nothing is chained."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.selection_keys import LARGEST, RecordIds, number_words
from dedup.leaders import Clusters, find_clusters, number_copies, record_ranks, walk_reference
from dedup.leaders_kernel import walk

THRESHOLD = 0.8


def simple_clusters(places: list[int], edges: list[tuple[int, int, float]]) -> Clusters:
    """Clusters of records of which no two have the same text."""
    first, second, jaccard = zip(*edges, strict=True) if edges else ((), (), ())
    return find_clusters(
        np.array(places, np.int64),
        np.arange(len(places)),
        np.zeros(len(places), bool),
        np.array(first, np.int64),
        np.array(second, np.int64),
        np.array(jaccard, np.float64),
    )


@pytest.mark.parametrize(
    ("places", "leaders"),
    [([1, 0, 2], [1, 1, 1]), ([0, 1, 2], [0, 0, 2]), ([2, 1, 0], [0, 2, 2]), ([0, 2, 1], [0, 0, 2])],
)
def test_a_chain_is_not_one_cluster(places: list[int], leaders: list[int]) -> None:
    found = simple_clusters(places, [(0, 1, 0.81), (2, 1, 0.83)])
    assert found.leaders.tolist() == leaders


def test_the_earliest_leader_counts_and_not_the_most_similar() -> None:
    found = simple_clusters([2, 1, 0], [(0, 1, 0.99), (0, 2, 0.8), (0, 2, 0.8)])
    assert found.leaders.tolist() == [2, 1, 2]
    assert found.jaccard.tolist() == [0.8, 1.0, 1.0]
    assert found.copy_index.tolist() == [1, 0, 0]
    assert found.sizes.tolist() == [2, 1, 2]


def test_the_case_of_chains(shared: Path) -> None:
    folder = shared / "cases" / "d05-chain"
    records = [json.loads(line) for line in (folder / "input.jsonl").read_text().splitlines()]
    values = json.loads((folder / "values.json").read_text())
    for shuffled in range(3):
        random.Random(shuffled).shuffle(records)
        index = {record["id"]: row for row, record in enumerate(records)}
        hashes = np.array([xxhash.xxh3_128_digest(record["text"].encode()) for record in records], "V16")
        places = record_ranks(
            np.zeros(len(records), bool),
            [],
            np.array([len(record["text"]) for record in records], np.int64),
            hashes,
            RecordIds.from_arrow(pa.array([record["id"] for record in records], pa.string())),
            np.arange(len(records)),
        )
        edges = [
            (index[pair["a"]], index[pair["b"]], pair["jaccard"]) for pair in values if pair["jaccard"] >= THRESHOLD
        ]
        found = simple_clusters(places.tolist(), edges)
        survivor = {record["id"]: records[found.leaders[row]]["id"] for row, record in enumerate(records)}
        assert {name: survivor[name] for name in ("g1a", "g1b", "g1c")} == dict.fromkeys(("g1a", "g1b", "g1c"), "g1b")
        assert (survivor["g2a"], survivor["g2b"], survivor["g2c"]) == ("g2a", "g2a", "g2c")
        kept = {name for name in survivor if name.startswith("g3") and survivor[name] == name}
        assert "g3a" in kept
        assert 5 <= len(kept) <= 6
        similar = {(records[a]["id"], records[b]["id"]) for a, b, _ in edges}
        for name, leader in survivor.items():
            assert name == leader or (name, leader) in similar or (leader, name) in similar
        assert not any(a in kept and b in kept for a, b in similar)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.lists(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda edge: edge[0] != edge[1]),
                max_size=30,
            ),
            st.lists(st.booleans(), min_size=n, max_size=n),
        )
    )
)
def test_the_kernel_equals_its_reference(case: tuple[list[tuple[int, int]], list[bool]]) -> None:
    edges, stays = case
    directed = sorted((max(edge), min(edge)) for edge in edges)
    earlier = np.array([before for _, before in directed], np.int64)
    offsets = np.searchsorted([later for later, _ in directed], np.arange(len(stays) + 1)).astype(np.int64)
    found = walk(offsets, earlier, np.array(stays, bool))
    assert [int(earlier[edge]) if edge >= 0 else -1 for edge in found] == walk_reference(edges, stays)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], list[bool], dict[tuple[int, int], float]]:
    """Texts of records, which records are protected, and the verified edges between texts."""
    texts = draw(st.integers(1, 6))
    nodes = [*range(texts), *draw(st.lists(st.integers(0, texts - 1), max_size=8))]
    protected = draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes)))
    pairs = [(left, right) for left in range(texts) for right in range(left)]
    edges = draw(st.dictionaries(st.sampled_from(pairs), st.sampled_from([0.8, 0.9, 0.95]))) if pairs else {}
    return draw(st.permutations(nodes)), protected, edges


@given(worlds(), st.randoms(use_true_random=False))
def test_clusters_follow_the_definition(
    world: tuple[list[int], list[bool], dict[tuple[int, int], float]], shuffler: random.Random
) -> None:
    nodes, protected, edges = world
    order = sorted(range(len(nodes)), key=lambda row: (not protected[row], shuffler.random()))
    places = np.empty(len(nodes), np.int64)
    places[order] = np.arange(len(nodes))

    def similarity(left: int, right: int) -> float | None:
        if nodes[left] == nodes[right]:
            return 1.0
        return edges.get((max(nodes[left], nodes[right]), min(nodes[left], nodes[right])))

    expected: dict[int, tuple[int, float]] = {}
    for row in order:
        earlier = [other for other in order if other in expected and expected[other][0] == other]
        hits = [(other, value) for other in earlier if (value := similarity(row, other)) is not None]
        expected[row] = (row, 1.0) if protected[row] or not hits else hits[0]

    directed = [pair if shuffler.random() < 0.5 else pair[::-1] for pair in edges]
    found = find_clusters(
        places,
        np.array(nodes, np.int64),
        np.array(protected, bool),
        np.array([pair[0] for pair in directed], np.int64),
        np.array([pair[1] for pair in directed], np.int64),
        np.array([*edges.values()], np.float64),
    )
    assert list(zip(found.leaders.tolist(), found.jaccard.tolist(), strict=True)) == [
        expected[row] for row in range(len(nodes))
    ]
    for row in range(len(nodes)):
        members = [other for other in order if expected[other][0] == expected[row][0]]
        assert found.sizes[row] == len(members)
        assert found.copy_index[row] == members.index(row)
        assert members[0] == expected[row][0]


def test_a_protected_record_stays_beside_its_duplicate() -> None:
    found = find_clusters(
        np.array([0, 1, 2]),
        np.array([0, 1, 1]),
        np.array([True, True, False]),
        np.array([0]),
        np.array([1]),
        np.array([0.85]),
    )
    assert found.leaders.tolist() == [0, 1, 0]
    assert found.jaccard.tolist() == [1.0, 1.0, 0.85]


def test_an_edge_from_a_text_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="one node"):
        simple_clusters([0, 1], [(1, 1, 1.0)])


def test_no_records() -> None:
    assert len(simple_clusters([], []).leaders) == 0
    assert [len(part) for part in number_copies(np.zeros(0, np.int64), np.zeros(0, np.int64))] == [0, 0]


KEYS = st.tuples(
    st.booleans(),
    st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.0])),
    st.sampled_from([0, 1]),
    st.integers(1, 3),
    st.sampled_from([b"a" * 16, b"\xff" * 16]),
    st.sampled_from(["", "x", "xy", "ü"]),
)


@given(st.lists(KEYS, max_size=20))
def test_the_total_order_is_that_of_the_definition(keys: list[tuple[Any, ...]]) -> None:
    protected, scores, sources, characters, hashes, names = zip(*keys, strict=True) if keys else ((),) * 6
    score = np.array([np.nan if value is None else value for value in scores], np.float64)
    places = record_ranks(
        np.array(protected, bool),
        [number_words(score, descending=True), number_words(np.array(sources, np.int64), descending=False)],
        np.array(characters, np.int64),
        np.array(hashes, "V16"),
        RecordIds.from_arrow(pa.array(names, pa.string())),
        np.arange(len(keys)),
    )
    expected = sorted(
        range(len(keys)),
        key=lambda row: (
            not protected[row],
            scores[row] is None,
            -(scores[row] or 0.0),
            sources[row],
            -characters[row],
            hashes[row],
            names[row],
            row,
        ),
    )
    assert np.argsort(places).tolist() == expected
    assert (number_words(score, descending=True) == LARGEST).tolist() == [value is None for value in scores]
