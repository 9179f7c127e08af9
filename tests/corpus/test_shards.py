"""Planned shards: consecutive batches, each exactly once, the same whatever order the references come in."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from corpus.shards import CURATED, TABLES, Shard, plan_shards
from corpus.staging import ChunkReference

REFERENCES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 1000))).map(
    lambda rows: [
        ChunkReference(key, key % 3 == 0, kept + 2, dead, kept, kept * size)
        for key, (kept, dead, size) in enumerate(rows)
    ]
)


@given(REFERENCES, st.integers(1, 5000), st.randoms(use_true_random=False))
def test_plan(references: list[ChunkReference], target: int, shuffler: random.Random) -> None:
    shards = plan_shards(references, target)
    shuffled = list(references)
    shuffler.shuffle(shuffled)
    assert plan_shards(shuffled, target) == shards
    for kind, wanted in ((CURATED, [entry for entry in references if entry.kept_rows]), (TABLES, references)):
        mine = [shard for shard in shards if shard.kind == kind]
        assert [shard.index for shard in mine] == list(range(len(mine)))
        assert {shard.count for shard in mine} == {len(mine)}
        assert [chunk for shard in mine for chunk in shard.chunks] == [(e.key, e.last, e.dead) for e in wanted]
    sizes = {reference.key: reference.kept_bytes for reference in references}
    for shard in shards:
        if shard.kind == CURATED and len(shard.chunks) > 1:
            assert sum(sizes[key] for key, _, _ in shard.chunks) <= target


def test_packed_shards_and_references_come_back() -> None:
    reference = ChunkReference(7 << 20, True, 8192, 3, 100, 1 << 40)
    assert ChunkReference.from_bytes(reference.to_bytes()) == reference
    for shard in (Shard(CURATED, 0, 1, ()), Shard(TABLES, 3, 9, ((1, True, 2), (5, False, 0)))):
        assert Shard.from_bytes(shard.to_bytes()) == shard


def test_names_sort_as_numbers() -> None:
    assert Shard(CURATED, 3, 17, ()).file_name == "part-00003-of-00017.parquet"
