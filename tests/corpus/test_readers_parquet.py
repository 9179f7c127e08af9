"""Parquet."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import planning
from corpus.batch import EMPTY_TEXT, OVER_SIZE, DocumentBatch
from corpus.hashing import content_hash, content_hashes, row_digests, value_hashes
from corpus.inputs import InputConfig
from corpus.planning import Item, plan_input
from corpus.readers import read_item
from corpus.readers.columns import value_sizes
from corpus.readers.parquet import rows_at_a_time

ROWS, BYTES = 8192, 16 << 20


def config(**settings: Any) -> InputConfig:
    return InputConfig.model_validate({"files": ["x"], **settings})


def read(path: Path | str, rows: int = ROWS, size: int = BYTES, **settings: Any) -> list[DocumentBatch]:
    found = plan_input(config(**{**settings, "files": [str(path)]}))
    batches = [batch for item in found.items for batch in read_item(item, config(**settings), rows, size)]
    for batch in batches:
        batch.records.validate(full=True)
    return batches


def records(batches: list[DocumentBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.records.to_pylist()]


def dead(batches: list[DocumentBatch]) -> list[tuple[int | None, str]]:
    return [(row["position"], row["error"]) for batch in batches for row in batch.dead.to_pylist()]


def write(folder: Path, table: pa.Table, name: str = "x.parquet", **options: Any) -> Path:
    path = folder / name
    pq.write_table(table, path, **options)
    return path


def test_what_a_record_has(tmp_path: Path) -> None:
    table = pa.table(
        {"n": pa.array([3, None], pa.int32()), "text": ["zwei Wörter", " "], "id": [7, None], "s": ["a", None]}
    )
    path = write(tmp_path, table)
    rows = records(read(path, id_column="id", source_column="s"))
    assert rows[0].pop("row_digest") != rows[1].pop("row_digest")
    assert rows[0] == {
        "record_id": "7",
        "generated_id": False,
        "source": "a",
        "position": 0,
        "content_hash": content_hash(["zwei Wörter".encode()]),
        "characters": 11,
        "bytes": 12,
        "input_failures": 0,
        "text": "zwei Wörter",
        "user/n": 3,
        "user/id": 7,
        "user/s": "a",
    }
    assert (rows[1]["record_id"], rows[1]["generated_id"]) == ("x.parquet#1", True)
    assert (rows[1]["source"], rows[1]["input_failures"]) == (None, EMPTY_TEXT)
    (batch,) = read(path, columns=["n"])
    assert batch.records.schema.names[-2:] == ["text", "user/n"]
    assert batch.records.schema.field("user/n").type == pa.int32()
    assert batch.records.column("source").to_pylist() == ["x.parquet"] * 2
    assert batch.marks.column("alive").to_pylist() == [True, False]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(),
        pa.large_binary(),
    ],
)
def test_types_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    values = pa.array(["alpha", None, "über 水", "alpha"])
    (batch,) = read(write(tmp_path, pa.table({"text": values.cast(kind), "other": values.cast(kind)})))
    assert batch.records.column("text").to_pylist() == ["alpha", "über 水", "alpha"]
    assert batch.records.schema.field("text").type == pa.string()
    assert batch.records.column("position").to_pylist() == [0, 2, 3]
    assert dead([batch]) == [(1, "null_text")]
    assert not pa.types.is_dictionary(batch.records.schema.field("user/other").type)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"text": pa.array([b"a", b"\xff\xfe", b"b"]), "n": [1, 2, 3]}))
    (batch,) = read(path)
    assert [(row["text"], row["user/n"]) for row in records([batch])] == [("a", 1), ("b", 3)]
    assert batch.dead.select(["position", "error", "raw"]).to_pylist() == [
        {"position": 1, "error": "invalid_utf8", "raw": b"\xff\xfe"}
    ]
    broken = pa.array([b"a", b"\xff\xfe", b"b"]).view(pa.string())
    nested = pa.StructArray.from_arrays([broken], names=["s"])
    for column in (broken, nested, pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), broken)):
        batches = read(write(tmp_path, pa.table({"text": ["x", "y", "z"], "c": column})))
        assert [row["position"] for row in records(batches)] == [0, 2]
        assert dead(batches) == [(1, "invalid_utf8")]
    assert dead(read(write(tmp_path, pa.table({"text": ["x", "y", "z"], "c": broken})), id_column="c")) == [
        (1, "invalid_utf8")
    ]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pa.array([9007199254740993, None, 2**63 - 1]), ["9007199254740993", "x.parquet#1", "9223372036854775807"]),
        (pa.array([2**64 - 1, 1, None], pa.uint64()), ["18446744073709551615", "1", "x.parquet#2"]),
        (pa.array([Decimal(2**70), Decimal(1), None], pa.decimal128(38, 0)), [str(2**70), "1", "x.parquet#2"]),
        (pa.array(["007", "a/b", None]).dictionary_encode(), ["007", "a/b", "x.parquet#2"]),
        (pa.array([b"\x00\xff", b"\x01\x02", None], pa.binary(2)), ["00ff", "0102", "x.parquet#2"]),
        (pa.nulls(3), ["x.parquet#0", "x.parquet#1", "x.parquet#2"]),
    ],
)
def test_ids(tmp_path: Path, ids: pa.Array, expected: list[str]) -> None:
    rows = records(read(write(tmp_path, pa.table({"text": ["x"] * 3, "id": ids})), id_column="id"))
    assert [row["record_id"] for row in rows] == expected
    assert [row["generated_id"] for row in rows] == [one.startswith("x.parquet") for one in expected]


NESTED = pa.table(
    {
        "text": ["a", "b", "c"],
        "struct": pa.array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "fixed": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "when": pa.array([1, None, 2**40 + 1], pa.timestamp("ns")),
        "decimal": pa.array([Decimal("1.5"), None, Decimal("2.5")], pa.decimal128(10, 2)),
        "flag": [True, None, False],
        "none": pa.nulls(3),
        "dotted.name": ["p", "q", None],
        "dotted": pa.array([{"name": "not this"}] * 3),
    }
)


def test_columns_of_all_types_come_as_they_are(tmp_path: Path) -> None:
    whole = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2))  # pyarrow reads no nulls in these
    table = NESTED.set_column(NESTED.schema.get_field_index("fixed"), "fixed", whole)
    path = write(tmp_path, table)
    (batch,) = read(path)
    for name in table.schema.names[1:]:
        assert batch.records.column(f"user/{name}").equals(table.column(name).combine_chunks()), name
    assert len(set(batch.records.column("row_digest").to_pylist())) == 3
    (one,) = read(path, columns=["dotted.name"])
    assert one.records.schema.names[-2:] == ["text", "user/dotted.name"]


def test_digests_and_sizes_do_not_depend_on_slices() -> None:
    for name in NESTED.schema.names:
        column = NESTED.column(name).combine_chunks()
        for start in range(3):
            for end in range(start, 4):
                part = column.slice(start, end - start)
                assert value_hashes(part).tolist() == value_hashes(column).tolist()[start:end], name
                assert value_sizes(part).tolist() == value_sizes(column).tolist()[start:end], name
                assert value_hashes(pa.concat_arrays([part])).tolist() == value_hashes(part).tolist()
    assert value_sizes(NESTED.column("struct").combine_chunks()).tolist() == [9, 0, 0]
    assert value_sizes(NESTED.column("fixed").combine_chunks()).tolist() == [8, 0, 8]
    assert value_sizes(NESTED.column("map").combine_chunks()).tolist() == [9, 0, 0]


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=3), min_size=2, max_size=6))
def test_lists_have_one_hash_per_value(lists: list[list[int | None]]) -> None:
    hashes = value_hashes(pa.array(lists, pa.list_(pa.int64()))).tolist()
    for left, one in zip(lists, hashes, strict=True):
        for right, other in zip(lists, hashes, strict=True):
            assert (one == other) == (left == right)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_values_that_repeat_have_the_hashes_that_they_have_alone(kind: pa.DataType) -> None:
    values = [["a", None, "", "a longer one", "é"][number * number % 5] for number in range(1200)]
    column = pa.array([value if value is None else value.encode() for value in values], pa.binary()).cast(kind)
    alone = {value: value_hashes(column[place : place + 1])[0] for place, value in enumerate(values[:10])}
    assert len(set(alone.values())) == len(alone)
    assert value_hashes(column).tolist() == [alone[value] for value in values]
    assert value_hashes(column[7:]).tolist() == [alone[value] for value in values[7:]]


def test_row_digest_covers_everything() -> None:
    def digest(position: int = 1, text: str = "x", **columns: Any) -> int:
        arrays = {name: pa.array([value]) for name, value in columns.items()}
        return int(row_digests(np.array([position]), content_hashes([pa.array([text])]), arrays)[0])

    base = digest(a="1", b="2")
    assert base == digest(b="2", a="1")
    others = [
        digest(2, a="1", b="2"),
        digest(1, "y", a="1", b="2"),
        digest(a="2", b="1"),
        digest(a="1"),
        digest(a="1", b=None),
    ]
    assert len({base, *others}) == 6


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5))
def test_content_hashes_equal_the_hash_of_each_record(pairs: list[tuple[str, str]]) -> None:
    fields = [pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)]
    assert content_hashes(fields).to_pylist() == [content_hash([a.encode(), b.encode()]) for a, b in pairs]
    assert content_hashes(fields[:1]).to_pylist() == [content_hash([a.encode()]) for a, _ in pairs]


def test_pairs_and_chats(tmp_path: Path) -> None:
    pairs = write(tmp_path, pa.table({"q": ["a", "", None], "r": ["b", " ", "c"], "n": [1, 2, 3]}))
    batches = read(pairs, prompt_column="q", response_column="r")
    assert [(row["prompt"], row["response"], row["input_failures"]) for row in records(batches)] == [
        ("a", "b", 0),
        ("", " ", EMPTY_TEXT),
    ]
    assert records(batches)[0]["content_hash"] == content_hash([b"a", b"b"])
    assert dead(batches) == [(2, "null_text")]
    chat = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    chats = [chat, chat[:1], None, [{"role": None, "content": "x"}]]
    for column in (pa.array(chats), pa.array([None if one is None else json.dumps(one) for one in chats])):
        batches = read(write(tmp_path, pa.table({"m": column})), messages_column="m")
        (row,) = records(batches)
        assert (row["prompt"], row["response"], row["user/m"]) == ("u", "a", column[0].as_py())
        assert dead(batches) == [(1, "no_assistant_turn"), (2, "null_text"), (3, "wrong_type")]


def test_chats_with_fields_of_other_types(tmp_path: Path) -> None:
    """Only role and content become Python values: pyarrow has none for times in nanoseconds without pandas."""
    time = pa.timestamp("ns")
    kind = pa.struct([("role", pa.string()), ("at", time), ("content", pa.large_string()), ("more", pa.list_(time))])
    turns = [{"role": "user", "at": 1, "content": "u"}, {"role": "assistant", "at": 3, "content": "a", "more": [5]}]
    chats = [turns[1:], None, turns, [None], turns[:1], [], [*turns, {"role": "tool"}], [{"content": "x"}]]
    for wanted in (pa.list_(kind), pa.large_list(kind)):
        path = write(tmp_path, pa.table({"m": pa.array(chats, wanted)}), row_group_size=3)
        batches = read(path, messages_column="m")
        assert [(row["position"], row["prompt"], row["response"]) for row in _texts(batches)] == [
            (0, "", "a"),
            (2, "u", "a"),
            (6, "u", "a"),
        ]
        assert dead(batches) == [
            (1, "null_text"),
            (3, "wrong_type"),
            (4, "no_assistant_turn"),
            (5, "no_assistant_turn"),
            (7, "wrong_type"),
        ]
        (column,) = {batch.records.column("user/m").type for batch in batches}
        assert column.value_type == kind


def _texts(batches: list[DocumentBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.records.select(["position", "prompt", "response"]).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (pa.list_(pa.struct([("text", pa.string())])), [{"text": "x"}], "a list"),
        (pa.struct([("at", pa.timestamp("ns"))]), {"at": 1}, "an object"),
        (pa.int32(), 1, "a number"),
        (pa.bool_(), True, "a boolean"),
    ],
)
def test_chats_whose_content_is_no_text(tmp_path: Path, kind: pa.DataType, value: Any, found: str) -> None:
    message = pa.struct([("role", pa.string()), ("content", kind)])
    chats = [[{"role": "assistant", "content": value}], [{"role": "user"}]]
    (batch,) = read(write(tmp_path, pa.table({"m": pa.array(chats, pa.list_(message))})), messages_column="m")
    letters = batch.dead.to_pylist()
    assert [row["error"] for row in letters] == ["wrong_type", "no_assistant_turn"]
    assert letters[0]["detail"] == f"m[0].content is {found}; wanted is a string"


def test_chats_that_are_not_utf8(tmp_path: Path) -> None:
    contents = pa.array([b"\xff", b"a", b"a", b"a"]).view(pa.string())
    ats = pa.array([1, 3, 5, 7], pa.timestamp("ns"))
    names = pa.array([b"x", b"x", b"\xfe", b"x"]).view(pa.string())
    turns = pa.StructArray.from_arrays(
        [pa.array(["assistant"] * 4), contents, ats, names], names=["role", "content", "at", "name"]
    )
    chats = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), turns)
    batches = read(write(tmp_path, pa.table({"m": chats})), messages_column="m")
    assert [row["response"] for row in _texts(batches)] == ["a", "a"]
    assert dead(batches) == [(0, "invalid_utf8"), (2, "invalid_utf8")]


def test_long_ids_and_sources(tmp_path: Path) -> None:
    fits = "ü" * 2048
    ids = [fits, fits + "x", "b", None]
    sources = [fits, "a", fits + "x", fits + "x"]
    texts = ["t", "t", "t", None]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"text": texts, "id": pa.array(ids, kind), "s": pa.array(sources, kind)})
        batches = read(write(tmp_path, table), id_column="id", source_column="s")
        assert [(row["record_id"], row["source"]) for row in records(batches)] == [(fits, fits)]
        letters = [(row["source"], row["error"]) for row in batches[0].dead.to_pylist()]
        assert letters == [("a", "id_too_long"), (None, "source_too_long"), (None, "null_text")]


def test_batches_count_what_every_row_takes(tmp_path: Path) -> None:
    rows = 60_000
    columns = {f"n{index}": pa.nulls(rows, pa.int64()) for index in range(20)}
    columns["l"] = pa.nulls(rows, pa.list_(pa.struct([("a", pa.string())])))
    columns["v"] = pa.nulls(rows, pa.struct([("a", pa.string()), ("b", pa.decimal128(20))]))
    path = write(tmp_path, pa.table({"text": [""] * rows, "id": [f"{index:080d}" for index in range(rows)], **columns}))
    batches = read(path, 65_536, 1 << 20, id_column="id", source_column="id")
    for batch in batches:
        assert batch.records.nbytes + batch.dead.nbytes + batch.marks.nbytes <= 1 << 20
    assert sum(len(batch.records) for batch in batches) == rows
    assert len(batches) < 80


def test_a_null_in_a_list_of_fixed_size(tmp_path: Path) -> None:
    pairs = pa.list_(pa.int64(), 2)
    table = pa.table(
        {
            "text": ["a", "b", "c", "d"],
            "whole": pa.array([[1, 2]] * 4, pairs),
            "v": pa.array([{"p": [1, 2]}, {"p": [1, 2]}, {"p": [1, 2]}, None], pa.struct([("p", pairs)])),
        }
    )
    path = write(tmp_path, table, row_group_size=2)
    batches = read(path)
    assert [row["text"] for row in records(batches)] == ["a", "b"]
    (letter,) = batches[0].dead.to_pylist()
    assert (letter["position"], letter["error"]) == (None, "unreadable_column")
    assert "rows 2 to 3" in letter["detail"]
    assert "column v has a null in a list of fixed size" in letter["detail"]
    assert "input.columns" in letter["detail"]
    assert "fetch" not in letter["detail"]
    assert [row["user/whole"] for row in records(read(path, columns=["whole"]))] == [[1, 2]] * 4


def test_json_columns(tmp_path: Path) -> None:
    time = pa.timestamp("ns")
    broken = pa.StructArray.from_arrays([pa.array([b"x", b"\xff", b"y", b"z"]).view(pa.string())], names=["s"])
    table = pa.table(
        {
            "text": ["a", "b", "c", "d"],
            "t": pa.array(['{"a": 1}', "null", "hello", None]),
            "j": pa.array(["[1]", '"s"', "2", None], pa.json_()),
            "o": pa.array(
                [{"at": 1, "f": float("nan")}, None, None, {"f": 1.5}], pa.struct([("at", time), ("f", pa.float64())])
            ),
            "b": broken,
        }
    )
    wanted = {"t": "json", "j": "json", "o": "json", "b": "json"}
    batches = read(write(tmp_path, table), columns=wanted)
    assert [[row[f"user/{name}"] for name in wanted] for row in records(batches)] == [
        ['{"a": 1}', "[1]", '{"at":"1970-01-01 00:00:00.000000001","f":"nan"}', '{"s":"x"}'],
        [None, None, '{"at":null,"f":1.5}', '{"s":"z"}'],
    ]
    assert dead(batches) == [(1, "invalid_utf8"), (2, "misfit_column")]


def test_types_of_columns(tmp_path: Path) -> None:
    table = pa.table(
        {"text": ["x", "y"], "i": pa.array([1, 2**63], pa.uint64()), "f": [1, None], "s": ["a", "b"], "j": [[1], None]}
    )
    types = {"i": "int64", "f": "float64", "s": "string", "j": "json"}
    batches = read(write(tmp_path, table), columns=types)
    (row,) = records(batches)
    assert [row[f"user/{name}"] for name in types] == [1, 1.0, "a", "[1]"]
    assert dead(batches) == [(1, "misfit_column")]
    assert dead(read(write(tmp_path, table), columns={"s": "int64"})) == [(0, "misfit_column"), (1, "misfit_column")]


def test_too_large(tmp_path: Path) -> None:
    table = pa.table(
        {"text": ["x" * 100, "x" * 101, "x", "x"], "more": ["", "", "y" * 200, None], "l": [[1], [1], None, None]}
    )
    rows = records(read(write(tmp_path, table), max_record_bytes=100))
    assert [(row["input_failures"], row["bytes"], row["text"] is None, row["user/more"]) for row in rows] == [
        (OVER_SIZE, 108, True, None),
        (OVER_SIZE, 101, True, None),
        (OVER_SIZE, 201, True, None),
        (0, 1, False, None),
    ]
    assert rows[1]["content_hash"] == content_hash([b"x" * 101])


def test_files_with_different_schemas(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"text": ["a"], "n": [1]}), "a.parquet")
    write(tmp_path, pa.table({"n": ["one"], "text": pa.array(["b"], pa.large_string())}), "b.parquet")
    write(tmp_path, pa.table({"n": [1]}), "c.parquet")
    batches = read(tmp_path, id_column="n")
    assert [(row["record_id"], row["text"], row["user/n"]) for row in records(batches)] == [
        ("1", "a", 1),
        ("one", "b", "one"),
    ]
    assert dead(batches) == [(None, "wrong_columns")]


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=12)), max_size=30)


@settings(max_examples=40, deadline=None)
@given(texts=TEXTS, group=st.integers(1, 8), rows=st.integers(1, 9), size=st.integers(1, 900), item=st.integers(1, 400))
def test_row_groups_items_and_batches_do_not_change_what_is_read(
    texts: list[str | None], group: int, rows: int, size: int, item: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"text": pa.array(texts, pa.string()), "n": pa.array(range(len(texts)), pa.int64())})
        path = write(Path(folder), table, row_group_size=group)
        found = plan_input(config(files=[str(path)]))
        (expected,) = read_item(found.items[0], config(), ROWS, BYTES)
        assert expected.records.column("text").to_pylist() == [text for text in texts if text is not None]
        assert expected.records.column("user/n").to_pylist() == [
            at for at, text in enumerate(texts) if text is not None
        ]
        groups = pq.ParquetFile(path).num_row_groups
        old, planning.ITEM_BYTES = planning.ITEM_BYTES, item
        try:
            items = plan_input(config(files=[str(path)])).items
        finally:
            planning.ITEM_BYTES = old
        assert items[-1].end == groups
        batches: list[DocumentBatch] = []
        for one in items:
            part = list(read_item(one, config(), rows, size))
            assert [batch.chunk for batch in part] == list(range(len(part)))
            assert [batch.last for batch in part] == [False] * (len(part) - 1) + [True]
            for batch in part:
                texts_bytes = sum(len(text.encode()) for text in batch.records.column("text").to_pylist())
                count = len(batch.records) + len(batch.dead)
                assert count <= rows
                assert count <= 1 or texts_bytes + 108 * len(batch.records) <= size
            batches += part
        assert pa.Table.from_batches([one.records for one in batches]).equals(pa.Table.from_batches([expected.records]))
        assert pa.Table.from_batches([one.dead for one in batches]).equals(pa.Table.from_batches([expected.dead]))


def test_limit_and_sample(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"text": [f"t{index}" for index in range(2000)]}), row_group_size=300)
    rows = [row["text"] for row in records(read(path, sample=0.25, rows=100))]
    assert 400 < len(rows) < 600
    assert rows == [row["text"] for row in records(read(path, sample=0.25))]
    item = replace(plan_input(config(files=[str(path)])).items[0], limit=450)
    found = [row["text"] for batch in read_item(item, config(), ROWS, BYTES) for row in batch.records.to_pylist()]
    assert found == [f"t{index}" for index in range(450)]


def test_truncation_never_raises(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"text": ["a", "b"]}))
    data = path.read_bytes()
    write(tmp_path, pa.table({"text": ["good"]}), "good.parquet")
    for size in range(len(data)):
        path.write_bytes(data[:size])
        batches = read(tmp_path)
        assert [row["text"] for row in records(batches)] == ["good"]
        assert dead(batches) in ([(None, "file_truncated")], [(None, "file_corrupt")])


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    texts = [f"{index} {'x' * 50}" for index in range(400)]
    path = write(
        tmp_path, pa.table({"text": texts}), row_group_size=100, use_dictionary=False, write_page_checksum=True
    )
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0xFF
    path.write_bytes(data)
    batches = read(path)
    assert [row["text"] for row in records(batches)] == texts[:200] + texts[300:]
    (letter,) = batches[0].dead.to_pylist()
    assert (letter["position"], letter["error"]) == (None, "file_corrupt")
    assert "row group 2" in letter["detail"]
    assert "rows 200 to 299" in letter["detail"]


def test_a_dictionary_does_not_explode(tmp_path: Path) -> None:
    """Ten thousand rows that share one value of 2 MB are 20 GB of text in a small file."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["x" * 2_000_000]))
    path = write(tmp_path, pa.table({"text": values}), store_schema=False)
    assert path.stat().st_size < 1_000_000
    parquet = pq.ParquetFile(path)
    with pa.OSFile(str(path)) as handle:
        assert rows_at_a_time(parquet.metadata.row_group(0), ["text"], handle) <= 134
    item = replace(plan_input(config(files=[str(path)])).items[0], limit=300)
    before = psutil.Process().memory_info().rss
    peak = pa.total_allocated_bytes()
    count = 0
    for batch in read_item(item, config(), ROWS, BYTES):
        peak = max(peak, pa.total_allocated_bytes())
        count += len(batch.records)
        assert len(batch.records) <= 8
    assert count == 300
    assert psutil.Process().memory_info().rss - before < 1 << 30
    assert peak < 900 << 20


def test_zero_rows(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"text": pa.array([], pa.string()), "n": pa.array([], pa.int64())}))
    (batch,) = read(path)
    assert (len(batch.records), len(batch.dead), batch.last) == (0, 0, True)
    assert batch.records.schema.names[-2:] == ["text", "user/n"]


def test_from_a_store(tmp_path: Path) -> None:
    path = write(
        tmp_path, pa.table({"text": [f"t{index}" for index in range(100)], "n": range(100)}), row_group_size=30
    )
    fsspec.filesystem("memory").pipe("/bucket-r/a b.parquet", path.read_bytes())
    batches = read("memory://bucket-r/*.parquet")
    assert [row["text"] for row in records(batches)] == [f"t{index}" for index in range(100)]
    assert {batch.file for batch in batches} == {"a b.parquet"}


def test_a_file_changed_after_planning(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"text": ["x"]}))
    item: Item = plan_input(config(files=[str(path)])).items[0]
    write(tmp_path, pa.table({"other": ["x"]}))
    (batch,) = read_item(item, config(), ROWS, BYTES)
    assert dead([batch]) == [(None, "wrong_columns")]


def test_cases(shared: Path) -> None:
    cases = shared / "cases"
    rows = records(read(cases / "r11-parquet-zero-groups/[abc]*.parquet", id_column="id"))
    assert [row["record_id"] for row in rows] == ["p1", *(f"q{index}" for index in range(500))]
    rows = records(read(cases / "r07-big-int-ids/input.parquet", id_column="id"))
    assert [row["record_id"] for row in rows][:3] == ["9007199254740993", "input.parquet#1", "9007199254740992"]
    batches = read(cases / "r12-broken-parquet", id_column="id")
    wanted = [*(f"y{index}" for index in [*range(10), *range(20, 40)]), "ok0", "ok1", "ok2"]
    assert [row["record_id"] for row in records(batches)] == wanted
    assert [(row["file"], row["error"]) for batch in batches for row in batch.dead.to_pylist()] == [
        ("damaged_group.parquet", "file_corrupt"),
        ("html.parquet", "file_corrupt"),
        ("truncated.parquet", "file_truncated"),
        ("zero.parquet", "file_truncated"),
    ]
    rows = records(read(cases / "r18-key-value-path/data", source_column="source"))
    assert sorted(row["source"] for row in rows) == ["src-a", "src-b", "src-c"]
    batches = read(cases / "r20-text-column-types")
    texts = ["alpha text", "alpha text", "über 水"]
    by_file = {batch.file: batch.records.column("text").to_pylist() for batch in batches if len(batch.records)}
    assert by_file == {
        "binary_bad.parquet": ["fine"],
        **{f"{name}.parquet": texts for name in ("binary", "dictionary", "large_string", "string", "string_view")},
    }
    errors = sorted(error for _, error in dead(batches))
    assert errors == ["invalid_utf8", *["null_text"] * 5, *["wrong_columns"] * 4]
