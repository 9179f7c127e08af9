"""Buckets of too many members: what stays is what the definition says, whichever rows the copies of a text stand in."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id
from corpus.folder import Folder
from dedup import nodes, proposals, verification
from dedup.cluster_resolution import EDGES, Group, node_columns, pack_nodes, resolve_clusters
from dedup.near_duplicates import NearDuplicates
from dedup.nodes import best_copies, earliest
from dedup.proposals import propose
from dedup.signature_tables import key_entries
from dedup.staged import read_nodes, write_signatures
from dedup.verification import Verifier, pack_edges
from tests.dedup.reference import Record, find_fates
from tests.dedup.staged_texts import near_duplicates, no_edges, no_marks, no_nodes, record_batch, stage_candidates

Row = dict[str, Any]

WORDS = " ".join(f"w{place}" for place in range(80))
# Words behind the common ones, and the source: any two texts are similar, and equal ones may differ in their source.
PAGES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["a", "b", "c", None])), min_size=8, max_size=40)


def page(number: int) -> str:
    """A page of the template; no two are equally long."""
    return f"{WORDS} {'x' * (number + 1)}"


def leaders_of(stage: NearDuplicates, batches: Sequence[Sequence[Row]], folder: Path) -> dict[str, str]:
    """Return the leader of each record, by their ids: what the steps between batches and verdicts do, in one place."""
    run = Folder(str(folder))
    entries: list[bytes] = []
    ids: dict[int, str] = {}
    for item, rows in enumerate(batches):
        key, records = chunk_key(item, 0), record_batch(rows)
        table = stage.signature_table(records, no_marks(len(rows)), np.ones(len(rows), bool))
        write_signatures(run, stage.name, key, f"{item}.parquet", table)
        stage_candidates(run, stage, key, records, table)
        entries.append(key_entries(stage, key, table, 1).packed_of(0))
        ids |= {first_row_id(key) + row: record["record_id"] for row, record in enumerate(rows)}
    priorities = len(stage.config.priorities)
    first = partial(earliest, run, stage.name, priorities, verification.ANCHORS)
    best = partial(best_copies, run, stage.name, priorities)
    found = propose(entries, stage.max_bucket, first, best)
    homes: dict[int, list[bytes]] = defaultdict(list)
    for home, data in found.cliques:
        homes[home].append(data)
    threshold = stage.similarity_threshold()
    verifier = Verifier(run, stage.name, threshold, stage.permutations, stage.bands, stage.rows, priorities)
    tables = [verifier.verify(packed).table() for packed in homes.values()]
    row_ids = np.array(sorted(ids))
    staged = read_nodes(run, stage.name, row_ids, node_columns(priorities))
    values = [pack_nodes(row_ids, staged), *(EDGES + pack_edges(table) for table in tables)]
    resolved = resolve_clusters(Group.of(values), priorities, None, False, no_nodes, no_edges)
    leaders = {name: name for name in ids.values()}
    by_key: dict[int, list[bytes]] = defaultdict(list)
    for key, data in resolved.verdicts:
        by_key[key].append(data)
    for item, rows in enumerate(batches):
        key, records = chunk_key(item, 0), record_batch(rows)
        alive = np.ones(len(rows), bool)
        verdict = stage.apply(key, records, alive, no_marks(len(rows)), by_key[key], lambda item: f"{item}.parquet")
        assert verdict.related is not None
        for row, related in enumerate(verdict.related.to_pylist()):
            if related is not None:
                leaders[rows[row]["record_id"]] = ids[related]
    return leaders


def by_reference(rows: Sequence[Row], places: dict[str | None, int], protect: Sequence[str]) -> dict[str, str]:
    """Return the leader of each record by the definition."""
    records = [
        Record(
            row["record_id"],
            "a.parquet",
            place,
            row["text"],
            record_batch([row]).column("content_hash")[0].as_py().hex(),
            priority=(places.get(row["source"]),),
            protected=row["source"] in protect,
        )
        for place, row in enumerate(rows)
    ]
    fates = find_fates(records, 0.8)
    return {row["record_id"]: rows[fate.leader]["record_id"] for row, fate in zip(rows, fates, strict=True)}


@settings(max_examples=40, deadline=None)
@given(PAGES, st.integers(2, 6), st.sampled_from([4, 1 << 16]), st.booleans(), st.randoms(use_true_random=False))
def test_copies_of_a_text_rank_by_the_best_of_them(
    pages: list[tuple[int, str | None]], max_bucket: int, slice_size: int, protects: bool, shuffler: random.Random
) -> None:
    rows = [
        {"text": page(number), "source": source, "record_id": f"r{place:02d}"}
        for place, (number, source) in enumerate(pages)
    ]
    protect = ["c"] if protects else []
    stage = near_duplicates(max_bucket=max_bucket, priority={"source": ["b", "a"]}, protect=protect)
    expected = by_reference(rows, {"b": 0, "a": -1}, protect)
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    batches = [shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]]
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(verification, "ANCHORS", 2),
        mock.patch.object(verification, "WINDOW", 2),
        mock.patch.object(proposals, "SLICE", slice_size),
        mock.patch.object(nodes, "BLOCK", 5),
    ):
        found = leaders_of(stage, batches, Path(folder))
    assert found == expected
