"""The user's columns: merging of types, exactness of values, and files that other tools read."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import column_types as limits
from corpus.column_inference import column_types
from corpus.column_types import COLLAPSED_COLUMN, ColumnType, ColumnTypes, Field, in_order
from corpus.columns import output_columns, output_names, output_schema
from corpus.inputs import ColumnKind, InputConfig
from corpus.json_text import dump_json, parse_json
from corpus.planning import plan_input
from corpus.readers import read_item

INT64_MAX = (1 << 63) - 1


def json_batch(records: Sequence[dict[str, Any] | None]) -> pa.RecordBatch:
    texts = [None if record is None else json.dumps(record, ensure_ascii=False) for record in records]
    return pa.RecordBatch.from_pydict({"json": pa.array(texts, pa.string())})


def arrow_batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({f"user/{name}": column for name, column in columns.items()})


def merged(batches: Sequence[pa.RecordBatch]) -> ColumnTypes:
    return reduce(ColumnTypes.merge, (column_types(key, batch) for key, batch in enumerate(batches)), ColumnTypes())


def table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """All batches as one table, which fails where a batch misses the common schema."""
    types = merged(batches)
    schema = pa.schema(output_schema(types))
    parts = [
        pa.RecordBatch.from_arrays([array for _, array in output_columns(batch, types)], schema=schema)
        for batch in batches
    ]
    for part in parts:
        part.validate(full=True)
    return pa.Table.from_batches(parts, schema)


def type_of(*values: Any) -> pa.DataType:
    return table([json_batch([{"x": value}]) for value in values]).schema.field("x").type


DECLARED: dict[str, ColumnKind] = {
    "x": "float64",
    "m": "json",
    "n": "int64",
    "s": "string",
    "b": "bool",
    "gone": "json",
}


def declared_table(folder: Path) -> pa.Table:
    """What becomes of the files in a folder with the columns ``DECLARED``, from the readers on."""
    config = InputConfig(files=[str(folder)], columns=DECLARED)
    batches = [batch.records for item in plan_input(config).items for batch in read_item(item, config, 100, 1 << 20)]
    types = reduce(
        ColumnTypes.merge, (column_types(key, batch, DECLARED) for key, batch in enumerate(batches)), ColumnTypes()
    ).with_declared(DECLARED)
    assert ColumnTypes.from_bytes(types.to_bytes()) == types
    schema = pa.schema(output_schema(types))
    parts = []
    for batch in batches:
        parts.append(pa.RecordBatch.from_arrays([array for _, array in output_columns(batch, types)], schema=schema))
        parts[-1].validate(full=True)
    return pa.Table.from_batches(parts, schema)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{}, {}],
        [{"x": None, "m": None, "n": None, "s": None, "b": None}],
        [{"x": 1, "m": 1, "n": 1}, {"x": 2, "m": 2}],
        [{"m": "[1]"}, {"m": {"a": [1, 2**70]}}, {"m": {}}, {"m": 1.5, "s": "s", "b": True}],
        [{"m": {f"k{index}": index for index in range(20_000)}}],
    ],
)
def test_declared_types_hold_whatever_the_records_have(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps({"text": "t", **row}) + "\n" for row in rows]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    wanted = {
        "x": pa.float64(),
        "m": pa.string(),
        "n": pa.int64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "gone": pa.string(),
    }
    for beside in (False, True):
        if beside:
            pq.write_table(
                pa.table({"text": ["t", "t"], "m": [{"a": 1}, None], "x": pa.array([1, 2], pa.int8())}),
                tmp_path / "b.parquet",
            )
            pq.write_table(pa.table({"text": ["t"], "m": ['{"b": [2]}']}), tmp_path / "c.parquet")
        found = declared_table(tmp_path)
        assert {one.name: one.type for one in found.schema} == wanted
        values = found.to_pylist()
        assert [None if one["m"] is None else json.loads(one["m"]) for one in values[: len(rows)]] == [
            row.get("m") for row in rows
        ]
        for name in ("x", "n", "s", "b"):
            assert [one[name] for one in values[: len(rows)]] == [row.get(name) for row in rows]
        if beside:
            assert [(one["m"], one["x"]) for one in values[len(rows) :]] == [
                ('{"a":1}', 1.0),
                (None, 2.0),
                ('{"b": [2]}', None),
            ]


def test_declared_columns_keep_their_place() -> None:
    batch = json_batch([{"b": 1, "id": 2, "a": None}])
    types = column_types(0, batch, ["a", "b", "c"]).with_declared({"c": "int64", "a": "bool", "b": "float64"})
    assert [(one.name, one.type) for one in output_schema(types)] == [
        ("b", pa.float64()),
        ("id", pa.int64()),
        ("a", pa.bool_()),
        ("c", pa.int64()),
    ]
    assert types.with_declared({}) == types
    with pytest.raises(ValueError, match="give column_types the declared names"):
        ColumnTypes(collapsed=True).with_declared({"a": "bool"})


NAMES = st.sampled_from(["a", "b", "A", "", "a.b", "x" * 70])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
RECORDS = st.none() | st.dictionaries(NAMES, VALUES, max_size=4)

ARRAYS = {
    "null": pa.nulls(2),
    "bool": pa.array([True, None]),
    "int8": pa.array([1, None], pa.int8()),
    "int64": pa.array([INT64_MAX, None]),
    "uint16": pa.array([65535, None], pa.uint16()),
    "uint64": pa.array([7, None], pa.uint64()),
    "uint64 beyond": pa.array([(1 << 64) - 1, None], pa.uint64()),
    "float16": pa.array([0.5, None], pa.float16()),
    "float": pa.array([0.1, None], pa.float32()),
    "double": pa.array([0.1, float("nan")]),
    "string": pa.array(["s", None]),
    "large_string": pa.array(["l", None], pa.large_string()),
    "string_view": pa.array(["v", None], pa.string_view()),
    "dictionary": pa.array(["d", None]).dictionary_encode(),
    "binary": pa.array([b"\xff", None]),
    "large_binary": pa.array([b"\xfe", None], pa.large_binary()),
    "fixed binary": pa.array([b"ab", None], pa.binary(2)),
    "date": pa.array([datetime.date(2024, 2, 29), None]),
    "timestamp": pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3), None], pa.timestamp("ns", "UTC")),
    "decimal": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(9, 2)),
    "list": pa.array([[1, None], None], pa.list_(pa.int32())),
    "large_list": pa.array([["x"], None], pa.large_list(pa.large_string())),
    "list_view": pa.array([[2], None], pa.list_view(pa.int32())),
    "fixed list": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
    "fixed list of 3": pa.array([[1.0, 2.0, 3.0], None], pa.list_(pa.float64(), 3)),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.large_string(), pa.int32())),
    "uuid": pa.array([b"0123456789abcdef", None], pa.uuid()),
    "run-end": pa.RunEndEncodedArray.from_arrays([1, 2], ["r", None]),
    "struct": pa.array([{"b": 1, "a": "x"}, None], pa.struct([("b", pa.int32()), ("a", pa.string())])),
    "other struct": pa.array([{"a": "y", "c": [{"d": None}]}, None]),
}
BATCHES = st.lists(RECORDS, max_size=4).map(json_batch) | st.dictionaries(
    NAMES, st.sampled_from(sorted(ARRAYS)), max_size=3
).map(lambda kinds: arrow_batch(**{name: ARRAYS[kind] for name, kind in kinds.items()}))


@pytest.fixture(params=["default", "tight"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "tight":
        monkeypatch.setattr(limits, "MAX_COLUMN_FIELDS", 3)
        monkeypatch.setattr(limits, "MAX_FIELDS", 9)
        monkeypatch.setattr("corpus.column_inference.MAX_DEPTH", 2)


@pytest.mark.usefixtures("bounds")
def test_merge_is_a_semilattice() -> None:
    @given(BATCHES, BATCHES, BATCHES)
    def law(first: pa.RecordBatch, second: pa.RecordBatch, third: pa.RecordBatch) -> None:
        a, b, c = (column_types(key, batch) for key, batch in enumerate((first, second, third)))
        assert a.merge(b) == b.merge(a)
        assert a.merge(b).merge(c) == a.merge(b.merge(c))
        assert a.merge(a) == a
        assert a.merge(ColumnTypes()) == a
        whole = a.merge(b).merge(c)
        assert whole.merge(b) == whole
        assert ColumnTypes.from_bytes(whole.to_bytes()) == whole
        assert whole.to_bytes() == c.merge(a).merge(b).to_bytes()
        assert output_schema(whole) == output_schema(c.merge(b).merge(a))

    law()


@pytest.mark.usefixtures("bounds")
def test_batch_borders_do_not_change_the_schema() -> None:
    @given(st.lists(RECORDS, max_size=5))
    def law(records: list[dict[str, Any] | None]) -> None:
        assert output_schema(merged([json_batch(records)])) == output_schema(
            merged([json_batch([record]) for record in records])
        )

    law()


def assert_same(value: Any, written: Any, column_type: ColumnType) -> None:
    """The plain-Python reference: what a JSON value must have become."""
    if value is None:
        assert written is None
    elif column_type.is_json_text:
        assert json.dumps(json.loads(written), sort_keys=True) == json.dumps(value, sort_keys=True)
    elif column_type.fields is not None:
        assert list(written) == in_order(column_type.fields)
        for name, place in column_type.fields.items():
            assert_same(value.get(name), written[name], place.type)
    elif column_type.element is not None:
        assert len(value) == len(written)
        for item, written_item in zip(value, written, strict=True):
            assert_same(item, written_item, column_type.element)
    else:
        expected = float(value) if column_type.scalar == "double" else value
        assert type(written) is type(expected)
        assert written == expected


@pytest.mark.usefixtures("bounds")
def test_values_of_json_are_exact() -> None:
    @given(st.lists(st.lists(RECORDS, max_size=3), max_size=3))
    def law(batches: list[list[dict[str, Any] | None]]) -> None:
        types = merged([json_batch(records) for records in batches])
        for records in batches:
            columns = dict(output_columns(json_batch(records), types))
            if types.collapsed:
                assert [text and json.loads(text) for text in columns[COLLAPSED_COLUMN].to_pylist()] == records
                continue
            for name, array in columns.items():
                for record, written in zip(records, array.to_pylist(), strict=True):
                    assert_same((record or {}).get(name), written, types.type_of(name))

    law()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((None, None), pa.string()),
        ((None, 1), pa.int64()),
        ((1, 2.5), pa.float64()),
        ((INT64_MAX,), pa.int64()),
        ((INT64_MAX + 1,), pa.string()),
        ((-(1 << 63) - 1,), pa.string()),
        ((True, 1), pa.string()),
        (("a", 1), pa.string()),
        (([],), pa.list_(pa.string())),
        (([], [1]), pa.list_(pa.int64())),
        (([1], [2.5, None]), pa.list_(pa.float64())),
        (([1], ["a"]), pa.list_(pa.string())),
        (({},), pa.string()),
        (({}, {"a": 1}), pa.struct([("a", pa.int64())])),
        (({"b": 1}, {"a": "x", "b": None}), pa.struct([("b", pa.int64()), ("a", pa.string())])),
        (({"a": {}},), pa.struct([("a", pa.string())])),
        (({"a": 1}, [1]), pa.string()),
    ],
)
def test_types_of_json(values: tuple[Any, ...], expected: pa.DataType) -> None:
    assert type_of(*values) == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["int8", "int8"], pa.int8()),
        (["int8", "uint16"], pa.int64()),
        (["uint64", "uint64 beyond"], pa.uint64()),
        (["uint64", "int8"], pa.int64()),
        (["uint64 beyond", "int8"], pa.string()),
        (["int8", "float"], pa.float64()),
        (["float16", "float16"], pa.float16()),
        (["string", "large_string", "string_view", "dictionary"], pa.string()),
        (["binary", "large_binary"], pa.binary()),
        (["binary", "fixed binary"], pa.string()),
        (["timestamp", "null"], pa.timestamp("ns", "UTC")),
        (["timestamp", "date"], pa.string()),
        (["decimal"], pa.decimal128(9, 2)),
        (["list", "list_view"], pa.list_(pa.int32())),
        (["fixed list", "fixed list"], pa.list_(pa.float32())),
        (["fixed list", "fixed list of 3"], pa.list_(pa.float64())),
        (["map"], pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))),
        (["map", "list"], pa.list_(pa.string())),
        (["uuid"], pa.binary(16)),
        (
            ["struct", "other struct"],
            pa.struct(
                [("b", pa.int32()), ("a", pa.string()), ("c", pa.list_(pa.struct([("d", pa.string())])))],
            ),
        ),
    ],
)
def test_types_of_parquet(kinds: list[str], expected: pa.DataType) -> None:
    batches = [arrow_batch(x=ARRAYS[kind]) for kind in kinds]
    assert table(batches).schema.field("x").type == expected


@pytest.mark.parametrize("kind", sorted(ARRAYS.keys() - {"map", "uuid"}))
def test_values_of_parquet_stay_as_they_are(kind: str) -> None:
    values = ARRAYS[kind].to_pylist()
    batch = arrow_batch(x=pa.concat_arrays([ARRAYS[kind].slice(1), ARRAYS[kind], ARRAYS[kind]]))
    types = merged([batch])
    for start, length in ((0, 5), (0, 0), (1, 1), (2, 2), (3, 1)):
        written = output_columns(batch.slice(start, length), types)[0][1].to_pylist()
        assert str(written) == str([values[1], *values, *values][start : start + length])


def test_maps_and_extension_types_become_what_every_reader_knows() -> None:
    written = table([arrow_batch(x=ARRAYS["map"], y=ARRAYS["uuid"])])
    assert written.to_pydict() == {"x": [[{"key": "k", "value": 1}], None], "y": [b"0123456789abcdef", None]}


def test_any_two_types_can_be_written_together(tmp_path: Path) -> None:
    for left in ARRAYS.values():
        for right in ARRAYS.values():
            batches = [
                arrow_batch(x=left, y=right),
                arrow_batch(x=right).slice(0, 1),
                json_batch([{"y": None, "z": {}}]),
            ]
            written = table(batches)
            assert written.num_rows == 4
            first, second, third, fourth = written.column("x").to_pylist()
            assert (first is None) == (left[0].as_py() is None)
            assert (second is None) == (left[1].as_py() is None)
            assert (third is None) == (right[0].as_py() is None)
            assert fourth is None
            pq.write_table(written, tmp_path / "x.parquet")
            assert pq.read_table(tmp_path / "x.parquet").num_rows == 4


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("double", ["0.1", '"nan"']),
        ("binary", ['"/w=="', None]),
        ("timestamp", ['"2024-02-29 01:02:03.000000000Z"', None]),
        ("decimal", ['"1.10"', None]),
        ("uint64 beyond", ["18446744073709551615", None]),
        ("map", ['[{"key":"k","value":1}]', None]),
        ("fixed list", ["[1.0,2.0]", None]),
        ("other struct", ['{"a":"y","c":[{"d":null}]}', None]),
        ("string", ['"s"', None]),
    ],
)
def test_parquet_as_json_text(kind: str, expected: list[str | None]) -> None:
    written = table([arrow_batch(x=ARRAYS[kind]), arrow_batch(x=ARRAYS["bool"])])
    assert written.column("x").to_pylist()[:2] == expected


def test_parquet_and_json_merge() -> None:
    written = table(
        [
            arrow_batch(n=ARRAYS["int8"], f=ARRAYS["float16"], s=ARRAYS["dictionary"], b=ARRAYS["bool"]),
            json_batch([{"n": INT64_MAX, "f": 0.1, "s": "x", "b": False}]),
        ]
    )
    assert written.to_pydict() == {
        "n": [1, None, INT64_MAX],
        "f": [0.5, None, 0.1],
        "s": ["d", None, "x"],
        "b": [True, None, False],
    }


def test_rows_of_a_slice_come_out_alone() -> None:
    values = [[{"a": 1}, {"a": None}], None, [], [{"a": 3}]]
    batch = arrow_batch(x=pa.array(values), y=pa.array([{"n": value} for value in values]))
    types = merged([batch, arrow_batch(x=pa.array([[{"a": 0.5}]]))])
    columns = dict(output_columns(batch.slice(2, 2), types))
    assert columns["x"].to_pylist() == [[], [{"a": 3.0}]]
    assert columns["y"].to_pylist() == [{"n": []}, {"n": [{"a": 3}]}]


def test_columns_stand_in_the_order_of_first_occurrence() -> None:
    batches = [json_batch([{"z": 1}, {"b": 1, "z": 1, "a": 1}]), json_batch([{"a": 1, "y": 1}])]
    parts = [column_types(key, batch) for key, batch in zip((5, 2), batches, strict=True)]
    assert parts[0].merge(parts[1]).names == parts[1].merge(parts[0]).names == ["a", "y", "z", "b"]


def test_a_column_with_data_as_names_is_json_text() -> None:
    wide = {"x": {f"key{number}": number for number in range(limits.MAX_COLUMN_FIELDS + 1)}, "y": {"a": 1}}
    written = table([json_batch([wide])])
    assert json.loads(written.column("x")[0].as_py()) == wide["x"]
    assert written.schema.field("y").type == pa.struct([("a", pa.int64())])


def test_a_column_that_nests_deep_is_json_text() -> None:
    def nested(levels: int) -> Any:
        return reduce(lambda inner, _: [inner], range(levels), 1)

    assert pa.types.is_list(type_of(nested(limits.MAX_DEPTH)))
    assert type_of(nested(limits.MAX_DEPTH + 1)) == pa.string()
    assert json.loads(table([json_batch([{"x": nested(400)}])]).column("x")[0].as_py()) == nested(400)


def test_records_with_data_as_column_names_become_one_column() -> None:
    records = [{f"key{number}": 1} for number in range(limits.MAX_FIELDS + 1)]
    batches = [json_batch(records), arrow_batch(x=ARRAYS["date"]), json_batch([None])]
    written = table(batches)
    assert written.schema.names == [COLLAPSED_COLUMN]
    assert [text and json.loads(text) for text in written.column(0).to_pylist()] == [
        *records,
        {"x": "2024-02-29"},
        {"x": None},
        None,
    ]


def test_size_of_types_is_bounded() -> None:
    widest = merged(
        [
            json_batch(
                [
                    {
                        f"{column}": {"ключ" * 15 + f"{number}": 1 for number in range(400)}
                        for column in range(part, part + 8)
                    }
                ]
            )
            for part in range(0, 80, 8)
        ]
    )
    assert widest.collapsed
    names = ["ключ" * 15 + str(number) for number in range(limits.MAX_FIELDS // 2)]
    largest = merged([json_batch([dict.fromkeys(names, 1)])])
    assert not largest.collapsed
    assert len(largest.to_bytes()) < 8 << 20
    assert merged([json_batch([{"k" * 2_000_000: 1}])]).collapsed


def test_no_user_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"record_id": ["1"]})
    assert merged([batch]) == ColumnTypes()
    assert output_columns(batch, ColumnTypes()) == []


def test_text_that_is_not_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1"):
        column_types(0, pa.RecordBatch.from_pydict({"json": ["{"]}))


@given(st.lists(VALUES, max_size=4))
def test_json_text_keeps_every_value(values: list[Any]) -> None:
    texts = pa.array([dump_json(value) for value in values], pa.string())
    assert [repr(value) for value in parse_json(texts)] == [repr(value) for value in values]


def test_reserved_names_are_renamed_without_collision() -> None:
    names = ["language", "id", "input_language", "record_id"]
    assert output_names(names, ["record_id", "language", "input_record_id"]) == {
        "language": "input_input_language",
        "id": "id",
        "input_language": "input_language",
        "record_id": "input_input_record_id",
    }


@given(
    st.lists(st.sampled_from(["a", "input_a", "input_input_a", "b"]), unique=True),
    st.sets(st.sampled_from(["a", "input_a", "b"])),
)
def test_output_names_are_distinct(names: list[str], reserved: set[str]) -> None:
    renamed = output_names(names, reserved)
    assert list(renamed) == names
    assert len({*renamed.values(), *reserved}) == len(names) + len(reserved)


def case_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["input", "mixed"])
def test_empty_objects_are_carried(shared: Path, tmp_path: Path, name: str) -> None:
    records = case_records(shared / "cases" / "w01-empty-struct" / f"{name}.jsonl")
    written = table([json_batch([record]) for record in records])
    pq.write_table(written, tmp_path / "x.parquet")
    back = pq.read_table(tmp_path / "x.parquet")
    assert back.num_rows == len(records)
    rows = duckdb.sql(f"select * from '{tmp_path / 'x.parquet'}'")
    assert rows.columns == list(records[0])
    assert len(rows.fetchall()) == len(records)
    if name == "input":
        assert back.to_pylist() == [{**record, "meta": "{}", "deep": {"a": "{}"}} for record in records]
    else:
        last = back.to_pylist()[2]
        assert last["meta"] == {**records[2]["meta"], "k": ["1", '{"z":null}']}
        assert last["deep"] == {"a": {"b": 1}}
        assert last["id"] == "x3"


def test_large_integers_are_exact(shared: Path) -> None:
    folder = shared / "cases" / "r07-big-int-ids"
    ids = [9007199254740993, None, 9007199254740992, 9223372036854775807, 1, 4611686018427387905]
    assert table([json_batch(case_records(folder / "input.jsonl"))]).column("id").to_pylist() == ids
    parquet = pq.read_table(folder / "input.parquet").combine_chunks()
    assert table([arrow_batch(id=parquet.column("id").chunk(0))]).column("id").to_pylist() == ids
    beyond = table([json_batch(case_records(folder / "beyond.jsonl"))]).column("id").to_pylist()
    assert beyond == ["18446744073709551615", "1180591620717411303424", '"00042"']


def test_a_field_is_first_where_it_was_first_seen() -> None:
    types = merged([json_batch([{}, {"x": [{"b": 1}, {"a": 1}]}])])
    assert types.columns["x"].first == (0, 1, 0)
    element = types.type_of("x").element
    assert element is not None
    assert element.fields == {
        "b": Field((0, 1, 0), ColumnType("int64")),
        "a": Field((0, 1, 0), ColumnType("int64")),
    }
    assert output_schema(types)[0].type == pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))
