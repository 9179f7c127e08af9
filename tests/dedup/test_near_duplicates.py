"""The stage near_duplicates: its settings, what it stages of a batch, and what it says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from pydantic import ValidationError

from corpus.batch import JSON_COLUMN, chunk_key, first_row_id
from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.selection_keys import LARGEST, NULL_GROUP, group_number
from dedup.candidates import Candidates
from dedup.near_duplicates import NearDuplicates, NearDuplicatesConfig
from dedup.proposals import ENTRY_BYTES, EXACT
from dedup.signature_tables import key_entries
from dedup.staged import read_nodes, signature_matrix, write_signatures
from filters.language import Language, LanguageConfig
from filters.length import Length, LengthConfig
from tests.dedup.reference import shingles
from tests.dedup.staged_texts import near_duplicates, no_marks, record_batch, stage_candidates


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"catch_probability": 0.0}, "catch_probability"),
        ({"shingle_tokens": 0}, "shingle_tokens"),
        ({"permutations": 0}, "permutations"),
        ({"permutations": 2000}, "permutations"),
        ({"seed": -1}, "seed"),
        ({"max_bucket": 1}, "max_bucket"),
        ({"bands": 113, "rows": 1}, r"bands x rows is 113 x 1 = 113, above permutations \(112\)"),
        ({"bands": 4}, "bands and rows go together"),
        ({"rows": 4}, "bands and rows go together"),
        ({"threshold": 0.1, "permutations": 4}, "catch_probability 0.99 cannot be reached at threshold 0.1"),
        ({"duplication_budget": -0.01}, "duplication_budget"),
        ({"budget_unit": "tokens"}, "tokenizer"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NearDuplicatesConfig.model_validate(settings)


def test_bands_follow_from_threshold_and_catch_probability() -> None:
    stage = near_duplicates()
    details = stage.summary_details()
    assert details["bands"] == {"bands": stage.bands, "rows": 112 // stage.bands - 1} == {"bands": 16, "rows": 6}
    assert details["s_curve"]["0.8"] == pytest.approx(1 - (1 - 0.8**6) ** 16, abs=1e-6)
    assert (details["s_curve"]["0.0"], details["s_curve"]["1.0"]) == (0.0, 1.0)
    given = near_duplicates(bands=7, rows=16)
    assert (given.bands, given.summary_details()["bands"]["rows"]) == (7, 16)
    # Any permutations that the settings allow can be bands.
    assert near_duplicates(permutations=1024, bands=1024, rows=1).bands < EXACT


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"priority": "length.sentences"}, "length.sentences"),
        ({"priority": ["length", "length"], "duplication_budget": 0.0}, None),
        ({"priority": "quality"}, "quality"),
        ({"priority": ["length.words", "later.words"]}, "later.words"),
    ],
)
def test_a_priority_must_be_a_number_of_a_stage_before(settings: dict[str, Any], said: str | None) -> None:
    before = Length(LengthConfig(), "length", "text")
    stage = NearDuplicates(NearDuplicatesConfig(**settings), "near", "text")
    if said is None:
        stage.bind([before])
        return
    with pytest.raises(UsageError, match=rf"stages\.near\.priority: '{said}' .*length\.characters"):
        stage.bind([before])


ROWS: list[dict[str, Any]] = [
    {"text": "one two three four five six", "source": "web", "user/kind": "x"},
    {"text": "!!!", "source": None, "user/kind": None},
    {"text": "Four five six", "source": "books", "user/kind": ""},
    {"text": "left before", "source": "web", "user/kind": "x"},
]
ALIVE = np.array([True, True, True, False])


def staged(**settings: Any) -> pa.RecordBatch:
    """What is staged of the rows."""
    return near_duplicates(**settings).signature_table(record_batch(ROWS), no_marks(len(ROWS)), ALIVE)


def test_what_is_staged_of_a_batch() -> None:
    table = staged(protect=["web", "none"], budget_unit="characters")
    assert table.column("row").to_pylist() == [0, 1, 2]
    assert table.column("has_tokens").to_pylist() == [True, False, True]
    assert table.column("characters").to_pylist() == table.column("units").to_pylist() == [27, 3, 13]
    assert table.column("protected").to_pylist() == [True, False, False]
    assert table.column("group").to_pylist() == [NULL_GROUP] * 3
    digests = [xxhash.xxh3_128_digest(str(row["text"]).encode()) for row in ROWS[:3]]
    assert table.column("content_hash").to_pylist() == digests
    words = table.column("priority_0").to_numpy()
    assert np.argsort(words).tolist() == [0, 2, 1]
    # Three records in a band of content hashes, two of them with tokens, in 16 more.
    parts, counts = key_entries(near_duplicates(), 5, table, 17).counts()
    assert (parts.tolist(), counts.tolist()) == (list(range(17)), [2] * 16 + [3])
    assert signature_matrix(table.column("signature"), 112).shape == (3, 112)
    assert staged().column("units").to_pylist() == [1, 1, 1]


def test_the_order_of_sources_and_groups_by_a_column() -> None:
    table = staged(
        priority=[{"source": ["books", "web"]}, "length"],
        duplication_budget={"by": "kind", "default": 0.1, "values": {}},
    )
    words = table.column("priority_0").to_numpy()
    assert words[2] < words[0] < words[1] == LARGEST
    assert np.argsort(table.column("priority_1").to_numpy()).tolist() == [0, 2, 1]
    assert table.column("group").to_pylist() == [group_number("x"), NULL_GROUP, group_number("")]


def test_scope_source_keeps_sources_apart() -> None:
    rows = [{"text": "the same text of six words", "source": source} for source in ("a", "b", "a", None)]
    stage = near_duplicates(scope="source")
    table = stage.signature_table(record_batch(rows), no_marks(4), np.ones(4, bool))
    hashes = table.column("content_hash").to_pylist()
    assert hashes[0] == hashes[2]
    assert len(set(hashes)) == 3
    entries = key_entries(stage, 0, table, 1)
    keys = [set(entries.keys[entries.rows == row].tolist()) for row in range(4)]
    assert keys[0] == keys[2]
    assert not keys[0] & (keys[1] | keys[3])
    assert not keys[1] & keys[3]


def test_groups_by_a_field_of_json() -> None:
    rows = [{"text": f"text {n}", JSON_COLUMN: line} for n, line in enumerate(['{"a": {"b": 1}}', '{"a": {}}', "{}"])]
    batch = record_batch(rows).append_column(JSON_COLUMN, pa.array([row[JSON_COLUMN] for row in rows]))
    stage = near_duplicates(duplication_budget={"by": "a.b", "default": 0.1})
    values: Any = stage.group_values(batch, no_marks(3), pa.array([2, 0], pa.int32()))
    assert values.to_pylist() == [None, "1"]


def test_a_group_column_that_no_record_has() -> None:
    stage = near_duplicates(duplication_budget={"by": "kinds", "default": 0.1})
    stage.check_groups(np.array([NULL_GROUP, group_number("a")]))
    stage.check_groups(np.array([], np.int64))
    near_duplicates(duplication_budget=0.1).check_groups(np.array([NULL_GROUP]))
    with pytest.raises(UsageError, match=r"near_duplicates\.duplication_budget\.by: kinds is no signal"):
        stage.check_groups(np.array([NULL_GROUP]))


def test_a_group_column_may_be_a_signal_or_the_label() -> None:
    def bound(by: str) -> NearDuplicates:
        config = NearDuplicatesConfig.model_validate({"duplication_budget": {"by": by, "default": 0.5}})
        stage = NearDuplicates(config, "near", "text")
        stage.bind([Language(LanguageConfig(), "language", "text"), Length(LengthConfig(), "length", "text")])
        return stage

    assert bound("language").signal_columns() == ("language.label",)
    assert bound("kind").signal_columns() == ()
    stage = bound("length.words")
    assert stage.signal_columns() == ("length.words",)
    marks = pa.record_batch({"alive": pa.array([True, True]), "length.words": pa.array([3, None], pa.int64())})
    rows = pa.array([0, 1], pa.int32())
    values: Any = stage.group_values(record_batch(ROWS[:2]), marks, rows)
    assert values.to_pylist() == ["3", None]


def test_a_signal_that_is_null_comes_last() -> None:
    stage = NearDuplicates(NearDuplicatesConfig(priority="length.words"), "near", "text")
    stage.bind([Length(LengthConfig(), "length", "text")])
    marks = pa.record_batch({"length.words": pa.array([3, None, 9, 0], pa.int64())})
    (words,) = stage.priority_words(record_batch(ROWS), marks, np.zeros(4, np.int64), pa.array(range(4), pa.int32()))
    assert np.argsort(words).tolist() == [2, 0, 3, 1]


def test_staged_files_give_back_what_was_staged(tmp_path: Path) -> None:
    folder, stage = Folder(str(tmp_path)), near_duplicates(shingle_tokens=2)
    texts = [["a b c", "a b", "c"], ["", "b c d e", "東京都"]]
    for item, of_batch in enumerate(texts):
        records = record_batch([{"text": text} for text in of_batch])
        table = stage.signature_table(records, no_marks(3), np.ones(3, bool))
        write_signatures(folder, stage.name, chunk_key(item, 0), "a.jsonl", table)
        rows = np.array([0, 2]) if item == 0 else np.array([1, 2])
        stage_candidates(folder, stage, chunk_key(item, 0), records, table, rows)
    row_ids = np.array(
        [first_row_id(chunk_key(0, 0)), first_row_id(chunk_key(0, 0)) + 2, first_row_id(chunk_key(1, 0)) + 1]
    )
    row_ids = np.append(row_ids, row_ids[-1] + 1)
    names = read_nodes(folder, stage.name, row_ids, ["record_id", "characters"])
    assert names.to_pydict() == {"record_id": ["0", "2", "1", "2"], "characters": [5, 1, 7, 3]}
    expected = [len(shingles(text, 2)) for text in ("a b c", "c", "b c d e", "東京都")]
    candidates = Candidates(folder, stage.name, row_ids, stage.permutations)
    assert candidates.counts.tolist() == expected == [2, 1, 3, 2]
    staged = read_nodes(folder, stage.name, row_ids, ["signature"])["signature"]
    assert np.array_equal(candidates.signatures, signature_matrix(staged, stage.permutations))
    numbers, offsets, hashes = candidates.sets(np.arange(4))
    assert numbers.tolist() == [0, 1, 2, 3]
    assert np.diff(offsets).tolist() == expected
    first, _, third, _ = (of_text.tolist() for of_text in np.split(hashes, offsets[1:-1]))
    assert (first, third) == (sorted(first), sorted(third))
    # "b c" is in the first and in the third text.
    assert len({*first} & {*third}) == 1


def test_what_a_partition_of_keys_takes_follows_from_the_rows() -> None:
    stage = near_duplicates()
    assert stage.key_bytes(1000) == 1000 * 17 * ENTRY_BYTES
    for rows in (0, 1, 10**6, 10**9):
        assert stage.partitions(rows) >= max(1, stage.key_bytes(rows) / (8 << 20))
        assert stage.cluster_partitions(rows) >= 1
    assert stage.shuffled_bytes(10**6) > stage.key_bytes(10**6)


def test_a_tokenizer_counts_by_its_content(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    settings = {"budget_unit": "tokens", "tokenizer": str(path)}
    stage = near_duplicates(**settings)
    stage.prepare()
    table = stage.signature_table(record_batch(ROWS), no_marks(4), ALIVE)
    # "!!!" is one token of punctuation.
    assert table.column("units").to_pylist() == [6, 1, 3]
    before = stage.fingerprint()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "1.0"}, indent=1))
    assert before["tokenizer"] != near_duplicates(**settings).fingerprint()["tokenizer"]
    assert near_duplicates().fingerprint() == {}
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        NearDuplicates(
            NearDuplicatesConfig(budget_unit="tokens", tokenizer=f"{tmp_path}/./tokenizer.json"), "n", "text"
        ).prepare()


def test_what_the_report_counts() -> None:
    marks = {
        "copy_index": pa.array([0, 1, 2, 0, 0]),
        "cluster_size": pa.array([3, 3, 3, 1, 2]),
    }
    counts = near_duplicates().summary_counts(marks, np.array([False, False, True, False, False]))
    assert counts == {
        "leaders": 3, "clusters": 2, "copies_available": 2, "copies_kept": 1, "leader_units": 3, "copy_units_kept": 1,
        "members": 4, "copies_of_leaders_dropped_later": 0,
    }  # fmt: skip
