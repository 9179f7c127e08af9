"""Exact duplicates: keys, clusters and verdicts together equal a plain grouping, in whatever parts."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id, split_row_id
from corpus.errors import UsageError
from corpus.stages import CorpusVerdict
from dedup.cluster_resolution import Group, node_columns, pack_nodes, resolve_clusters
from dedup.exact_duplicates import ExactDuplicates, ExactDuplicatesConfig
from dedup.proposals import ENTRY_BYTES, propose
from dedup.signature_tables import key_entries
from pipelines.config import config_from_mapping
from tests.dedup.reference import OVER_BUDGET, OVER_MAX_COPIES, Budget, Record, find_fates
from tests.dedup.staged_texts import no_edges, no_marks, no_nodes, record_batch

BATCHES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "dd", "!"]),
            st.sampled_from(["1", "2", "10", "ü", ""]),
            st.sampled_from(["web", "books", None]),
            st.booleans(),
        ),
        max_size=8,
    ),
    max_size=5,
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"priority": {"source": ["books"]}},
    {"protect": ["books"], "max_copies": 1},
    {"priority": ["length", {"source": ["web", "books"]}], "max_copies": 0},
]


def exact_duplicates(**settings: Any) -> ExactDuplicates:
    """Return the stage over documents."""
    stage = ExactDuplicates(ExactDuplicatesConfig(**settings), "exact_duplicates", "text")
    stage.bind([])
    return stage


def verdicts_of(
    stage: ExactDuplicates, batches: list[pa.RecordBatch], alive: list[list[bool]], parts: int, shuffler: random.Random
) -> list[CorpusVerdict]:
    """What the steps between keys and verdicts make of batches."""
    packed: dict[int, list[bytes]] = defaultdict(list)
    tables = {}
    for item, (records, lives) in enumerate(zip(batches, alive, strict=True)):
        key = chunk_key(item, 0)
        table = stage.signature_table(records, no_marks(len(lives)), np.array(lives, bool))
        tables[key] = table
        for part, data in key_entries(stage, key, table, parts).packed():
            packed[part].append(data)
    members = []
    for values in packed.values():
        shuffler.shuffle(values)
        found = propose(values, stage.max_bucket, lambda row_ids: row_ids)
        assert (found.cliques, found.candidates, found.not_compared) == ([], [], 0)
        members += sorted(set(found.stars.reshape(-1).tolist()))
    nodes = []
    columns = node_columns(len(stage.config.priorities))
    for row_id in members:
        key, row = split_row_id(row_id)
        place = tables[key].column("row").to_pylist().index(row)
        nodes.append(pack_nodes(np.array([row_id]), pa.table(tables[key]).select(columns).slice(place, 1)))
    shuffler.shuffle(nodes)
    max_copies = None if stage.config.max_copies == "off" else stage.config.max_copies
    group = Group.of(nodes)
    resolved = resolve_clusters(group, len(stage.config.priorities), max_copies, False, no_nodes, no_edges)
    verdicts: dict[int, list[bytes]] = defaultdict(list)
    for key, data in resolved.verdicts:
        verdicts[key].append(data)
    keys = [chunk_key(item, 0) for item in range(len(batches))]
    return [
        stage.apply(
            key, records, np.array(lives, bool), no_marks(records.num_rows), verdicts[key], lambda item: f"{item}.jsonl"
        )
        for key, records, lives in zip(keys, batches, alive, strict=True)
    ]


@given(BATCHES, st.sampled_from(SETTINGS), st.integers(1, 4), st.randoms(use_true_random=False))
def test_equals_a_plain_grouping(
    batches: list[list[tuple[str, str, str | None, bool]]],
    settings: dict[str, Any],
    parts: int,
    shuffler: random.Random,
) -> None:
    stage = exact_duplicates(**settings)
    tables = [
        record_batch([{"text": text, "record_id": name, "source": source} for text, name, source, _ in rows])
        for rows in batches
    ]
    alive = [[row[3] for row in rows] for rows in batches]
    found = verdicts_of(stage, tables, alive, parts, shuffler)
    places: dict[str | None, int] = {}
    for key in stage.config.priorities:
        if not isinstance(key, str):
            places = {name: -place for place, name in enumerate(key.source)}
    records, rows = [], []
    for item, batch in enumerate(batches):
        for row, (text, name, source, lives) in enumerate(batch):
            if lives:
                digest = tables[item].column("content_hash")[row].as_py().hex()
                protected = source in stage.config.protect
                priority = (places.get(source),) if places else ()
                records.append(Record(name, f"{item}.jsonl", row, text, digest, priority, protected=protected))
                rows.append((item, row))
            else:
                assert found[item].signals["cluster_size"][row].as_py() is None
                assert found[item].failures[row] == 0
    max_copies = None if stage.config.max_copies == "off" else stage.config.max_copies
    for (item, row), fate in zip(rows, find_fates(records, None, budget=Budget(max_copies=max_copies)), strict=True):
        verdict = found[item]
        assert verdict.signals["cluster_size"][row].as_py() == fate.size
        assert verdict.signals["copy_index"][row].as_py() == fate.copy_index
        assert verdict.signals["jaccard"][row].as_py() == (1.0 if fate.copy_index else None)
        assert verdict.failures[row] == {None: 0, OVER_BUDGET: 1, OVER_MAX_COPIES: 2}[fate.rule]
        if fate.rule:
            leader_item, leader_row = rows[fate.leader]
            assert verdict.related[row].as_py() == first_row_id(chunk_key(leader_item, 0)) + leader_row
            assert verdict.related_id[row].as_py() == records[fate.leader].record_id


def test_within_each_source_only() -> None:
    batch = record_batch([{"text": "same", "source": source} for source in ("a", "b", None, "a", None)])
    (verdict,) = verdicts_of(exact_duplicates(scope="source"), [batch], [[True] * 5], 3, random.Random(0))
    assert verdict.failures.tolist() == [0, 0, 0, 1, 1]
    assert verdict.related_id.to_pylist() == [None, None, None, "0", "2"]


def test_texts_that_differ_in_case_or_blanks_are_not_exact_duplicates() -> None:
    batch = record_batch([{"text": text} for text in ("a b", "A b", "a  b", "a b ", "\u00e9", "e\u0301")])
    (verdict,) = verdicts_of(exact_duplicates(), [batch], [[True] * 6], 1, random.Random(0))
    assert verdict.failures.tolist() == [0] * 6


def test_rules_and_what_is_planned() -> None:
    stage = exact_duplicates()
    assert [(rule.name, rule.threshold) for rule in stage.rules()] == [("duplication_budget", 1.0)]
    limited = exact_duplicates(max_copies=3, duplication_budget=0.5)
    assert [(rule.name, rule.threshold) for rule in limited.rules()] == [
        ("duplication_budget", 1.0),
        ("max_copies", 3.0),
    ]
    assert stage.partitions(0) == 1
    assert stage.partitions(10_000_000) * (8 << 20) > 10_000_000 * ENTRY_BYTES
    assert stage.key_bytes(1000) == 1000 * ENTRY_BYTES
    assert stage.bands == 0


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({}, False),
        ({"duplication_budget": 0.1}, True),
        ({"duplication_budget": 0.1, "max_copies": 0}, False),
        ({"duplication_budget": {"by": "kind", "default": 0}}, False),
        ({"duplication_budget": {"by": "kind", "default": 0, "values": {"x": 0.1}}}, True),
    ],
)
def test_whether_any_copy_may_stay(settings: dict[str, Any], keeps: bool) -> None:
    assert ExactDuplicatesConfig(**settings).keeps_copies is keeps


@pytest.mark.parametrize(
    ("budget", "warned"),
    [(0, ""), (0.49, ""), (0.5, "0.5"), (2.5, "2.5"), ({"by": "kind", "default": 0, "values": {"x": 0.75}}, "0.75")],
)
def test_much_duplication_is_warned_of(budget: Any, warned: str) -> None:
    found = exact_duplicates(duplication_budget=budget).warnings({"source": ["wiki"], "language": []})
    assert len(found) == bool(warned)
    assert all(f"duplication_budget is {warned}:" in warning for warning in found)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"protect": ["wiki", "Wiki"]}, "protect names Wiki, a source that no record has; there are forum, web, wiki"),
        ({"protect": ["wiki"], "priority": [{"source": ["web", "forum"]}, "length"]}, ""),
        ({"priority": [{"source": ["wikk"]}]}, "priority names wikk, a source that no record has"),
        (
            {"duplication_budget": {"by": "source", "default": 0, "values": {"web": 0.1, "wikki": 0.2}}},
            "duplication_budget.values names wikki, a source that no record has",
        ),
        (
            {"duplication_budget": {"by": "language", "default": 0, "values": {"xx": 0.2}}},
            "duplication_budget.values names xx, a language that no record has; there are en",
        ),
    ],
)
def test_names_that_no_record_has_are_warned_of(settings: dict[str, Any], warned: str) -> None:
    found = {"source": {"wiki": 1, "web": 2, "forum": 3}, "language": {"en": 6}}
    *_, stage = config_from_mapping(
        {"input": {"files": ["x"]}, "stages": ["language", {"exact_duplicates": settings}]}
    ).build()
    assert isinstance(stage, ExactDuplicates)
    warnings = stage.warnings(found)
    assert len(warnings) == bool(warned)
    assert all(warned in warning for warning in warnings)


def test_a_tokenizer_that_is_missing_is_named() -> None:
    stage = exact_duplicates(duplication_budget=0.1, budget_unit="tokens", tokenizer="absent.json")
    with pytest.raises(
        UsageError, match=r"absent\.json: cannot read stages\.exact_duplicates\.tokenizer: No such file"
    ):
        stage.fingerprint()
