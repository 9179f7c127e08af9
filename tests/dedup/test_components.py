"""Components: the packed forest, in any order and grouping, and rounds over partitions give the plain labels."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup import components

NODES = st.one_of(st.integers(-4, 12), st.sampled_from([-(2**63), 2**63 - 1, 10**15]))
EDGES = st.lists(st.tuples(NODES, NODES), max_size=40)


def packed(edges: Sequence[tuple[int, int]]) -> bytes:
    return np.array(edges, np.int64).reshape(-1, 2).tobytes()


def forest_of(edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    return sorted([node, label] for node, label in components.labels_reference(edges).items() if node != label)


def grouped(messages: Iterable[tuple[int, bytes]]) -> dict[int, list[bytes]]:
    groups: dict[int, list[bytes]] = {}
    for key, value in messages:
        groups.setdefault(key, []).append(value)
    return groups


def rounds(parts: Sequence[bytes], partitions: int) -> tuple[bytes, int, int]:
    """Drive rounds as the driver does; return the forest, the number of rounds, and the most messages to a partition.

    The last round only finds that nothing changes.
    """
    pairs = grouped(message for part in parts for message in components.spread([part], partitions))
    count, largest = 0, 0
    while True:
        count += 1
        asked = grouped(message for key, values in pairs.items() for message in components.ask(key, values, partitions))
        told = grouped(
            message for key, values in asked.items() for message in components.answer(pairs.get(key, []), values)
        )
        largest = max([largest, *(len(b"".join(values)) // 16 for values in [*pairs.values(), *asked.values()])])
        followed = {key: components.follow(values, told[key]) for key, values in pairs.items()}
        if not sum(changes for _, changes in followed.values()):
            forest = b"".join(components.spanning_forest(values) for values in pairs.values())
            return forest, count, largest
        pairs = grouped(message for each, _ in followed.values() for message in components.spread([each], partitions))


@given(EDGES, st.randoms(use_true_random=False))
def test_the_forest_is_that_of_the_plain_labels_in_any_grouping(
    edges: list[tuple[int, int]], shuffler: random.Random
) -> None:
    expected = forest_of(edges)
    assert components.unpack_pairs([components.spanning_forest([packed(edges)])]).tolist() == expected
    accumulators = [components.create() for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "PENDING_PAIRS", 2)
        for edge in shuffler.sample(edges, len(edges)):
            chosen = shuffler.randrange(3)
            accumulators[chosen] = components.add(accumulators[chosen], packed([edge]))
        for accumulator in accumulators:
            assert len(accumulator) <= components.accumulator_bytes(2 * len(edges))
        merged = components.merge([components.merge(accumulators[:2]), accumulators[2]])
    assert components.unpack_pairs([components.extract(merged)]).tolist() == expected


@given(EDGES, st.integers(1, 4), st.integers(1, 4))
def test_rounds_give_the_same_forest(edges: list[tuple[int, int]], parts: int, partitions: int) -> None:
    forest, _, _ = rounds([packed(edges[first::parts]) for first in range(parts)], partitions)
    assert sorted(components.unpack_pairs([forest]).tolist()) == forest_of(edges)


@pytest.mark.parametrize("order", ["ascending", "shuffled", "alternating"])
def test_rounds_on_long_chains_are_logarithmic(order: str) -> None:
    taken = []
    for nodes in (1000, 32_000):
        chain = list(range(nodes))
        if order == "shuffled":
            random.Random(nodes).shuffle(chain)
        elif order == "alternating":
            chain = [node // 2 if node % 2 else nodes - 1 - node // 2 for node in range(nodes)]
        edges = np.column_stack([chain[:-1], chain[1:]]).astype(np.int64)
        parts = [edges[first::16].tobytes() for first in range(16)]
        forest, count, _ = rounds(parts, 16)
        assert components.unpack_pairs([components.spanning_forest([forest])]).tolist() == [
            [node, 0] for node in range(1, nodes)
        ]
        taken.append(count)
        # A round at least halves the way to the smallest node; the last one only looks.
        assert count <= np.log2(nodes) + 2
    # 32 times the nodes: five more halvings.
    assert taken[1] - taken[0] <= 5


def test_the_centre_of_a_star_is_no_hot_key() -> None:
    for centre in (0, 50_000):
        leaves = np.setdiff1d(np.arange(50_001), [centre])
        edges = np.column_stack([np.full(len(leaves), centre), leaves])
        forest, count, largest = rounds([edges[first::16].tobytes() for first in range(16)], 16)
        assert len(forest) == 16 * 50_000
        assert count <= 4
        assert largest < 2 * 50_000 // 16


def test_an_accumulator_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "PENDING_PAIRS", 100)
    generator = np.random.default_rng(1)
    accumulator = components.create()
    for _ in range(200):
        accumulator = components.add(accumulator, generator.integers(0, 500, 200).tobytes())
        assert len(accumulator) <= components.accumulator_bytes(500)


def test_an_answer_is_the_smallest_neighbour_or_the_node_itself() -> None:
    questions = [packed([(7, 0), (8, 0)]), packed([(7, 3)])]
    answers = dict(components.answer([packed([(7, 6), (7, 2)]), packed([(7, 4), (9, 1)])], questions))
    assert {part: components.unpack_pairs([reply]).tolist() for part, reply in answers.items()} == {
        0: [[7, 2], [8, 8]],
        3: [[7, 2]],
    }


def test_labels_of_rows_with_and_without_edges() -> None:
    forest = components.spanning_forest([packed([(5, 9), (9, 3), (20, 30)])])
    rows = np.array([9, 4, 3, 30, 5, 20, 99], np.int64)
    assert components.labels_of(rows, forest).tolist() == [3, 4, 3, 20, 3, 20, 99]
    assert components.labels_of(rows, b"").tolist() == rows.tolist()
    assert components.extract(components.create()) == b""
