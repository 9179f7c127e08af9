import pyarrow as pa
import pytest

from corpus.batch import JSON_COLUMN
from corpus.user_columns import user_values


def test_values_of_json_records() -> None:
    texts = pa.array(['{"a": 1, "b": {"c": "x", "d.e": 2}, "b.f": 3}', "{}", None, '{"a": null, "b": [1]}'])
    records = pa.RecordBatch.from_arrays([texts], names=[JSON_COLUMN])
    assert user_values(records, "a") == [1, None, None, None]
    assert user_values(records, "b.c") == ["x", None, None, None]
    assert user_values(records, "b.d.e") == [2, None, None, None]
    assert user_values(records, "b.f") == [3, None, None, None]
    assert user_values(records, "z") == [None] * 4


def test_values_of_columns() -> None:
    arrays = [pa.array([1, None]), pa.array([{"c": "x"}, None]), pa.array(["y", "z"]).dictionary_encode()]
    records = pa.RecordBatch.from_arrays(arrays, names=["user/a", "user/b", "user/d.e"])
    assert user_values(records, "a") == [1, None]
    assert user_values(records, "b.c") == ["x", None]
    assert user_values(records, "d.e") == ["y", "z"]
    assert user_values(records, "c") == [None, None]
    assert user_values(records, "a.b") == [None, None]


def test_a_batch_without_records_is_an_error() -> None:
    with pytest.raises(ValueError, match="no records"):
        user_values(None, "a")
