from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.batch import JSON_COLUMN, DocumentBatch
from corpus.json_text import json_texts
from corpus.stages import TextBatch, known_stages
from corpus.staging import empty_dead
from corpus.verdicts import ALIVE, failures, failures_column, first_rule, mark_record_stage
from filters.license import License, LicenseConfig
from filters.license_expression import judge


def verdicts(values: list[Any], **settings: Any) -> list[str]:
    """Verdicts on licences in JSON records."""
    stage = License(LicenseConfig(**settings), "license", "text")
    stage.prepare()
    records = pa.RecordBatch.from_arrays(
        [json_texts([{} if value == "absent" else {"license": value} for value in values])], names=[JSON_COLUMN]
    )
    texts = pa.array(["text"] * len(values))
    signals = stage.measure(TextBatch(texts, np.ones(len(values), np.bool_), records))
    assert list(signals) == [signal.name for signal in stage.signals()]
    names = [rule.name for rule in stage.rules()]
    return ["kept" if rule < 0 else names[rule] for rule in first_rule(failures(stage.rules(), signals)).tolist()]


def test_allow_list() -> None:
    values = ["MIT", "mit", "GPL-3.0-only", "MIT OR GPL-3.0-only", "MIT AND GPL-3.0-only", "BSD License", "absent"]
    found = verdicts(values, allow=["MIT", "Apache-2.0", "BSD license"])
    assert found == ["kept", "kept", "allow", "kept", "allow", "kept", "missing"]


def test_deny_list() -> None:
    values = ["GPL-3.0-only", "MIT OR GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT", None]
    assert verdicts(values, deny=["gpl-3.0-only"], missing="keep") == ["deny", "kept", "deny", "kept", "kept"]


def test_both_lists() -> None:
    assert verdicts(["MIT AND GPL-2.0-only", "ISC", "MIT"], allow=["MIT"], deny=["GPL-2.0-only"]) == [
        *("deny", "allow", "kept")
    ]


def test_lists_in_the_column_and_other_types() -> None:
    values = [["MIT", "Apache-2.0"], ["MIT", "GPL-2.0 OR ISC"], [], [None, " "], 3, {"a": 1}, "NOASSERTION", "none"]
    found = verdicts(values, allow=["MIT", "Apache-2.0"])
    assert found == ["kept", "allow", *["missing"] * 6]


def test_a_column_of_parquet() -> None:
    stage = License(LicenseConfig(column="meta.license", allow=["MIT"]), "license", "text")
    records = pa.RecordBatch.from_arrays([pa.array([{"license": "MIT"}, None, {"license": "X"}])], names=["user/meta"])
    signals = stage.measure(TextBatch(pa.array(["a", "b", "c"]), np.ones(3, np.bool_), records))
    assert signals["license"].to_pylist() == ["MIT", None, "X"]
    assert signals["allowed"].to_pylist() == [1, None, 0]
    assert signals["denied"].to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("(MIT OR X) AND Apache-2.0", True),
        ("MIT OR X AND Y", True),  # AND binds more closely
        ("(MIT OR X) AND Y", False),
        ("MIT WITH Some-exception", True),
        ("X WITH Good-exception", True),
        ("X WITH Some-exception", False),
        ("((MIT))", True),
        ("mit and (apache-2.0 or x)", True),
        *((text, False) for text in ["MIT OR", "OR MIT", "(MIT", "MIT)", "()", "MIT X", "MIT AND AND MIT", "WITH MIT"]),
        *((text, False) for text in ["MIT WITH", "MIT WITH (X)", ") MIT (", "(MIT) WITH X", "", "NOT MIT"]),
    ],
)
def test_expressions(expression: str, allowed: bool) -> None:
    listed = {"mit", "apache-2.0", "x with good-exception"}
    assert judge(expression, listed, every_choice=False) is allowed


@given(st.lists(st.sampled_from(["(", ")", "AND", "OR", "WITH", "MIT", "X", "\x00", "é"]), max_size=12))
def test_no_text_is_an_error(parts: list[str]) -> None:
    for every_choice in (True, False):
        assert judge(" ".join(parts), {"mit"}, every_choice=every_choice) in (True, False)


def test_deep_nesting_is_no_error() -> None:
    assert judge("(" * 100_000 + "MIT" + ")" * 100_000, {"mit"}, every_choice=False) is True


names = st.sampled_from(["MIT", "X", "Y"])
trees = st.recursive(names, lambda inner: st.tuples(st.sampled_from(["AND", "OR"]), inner, inner), max_leaves=8)


@given(trees)
def test_expressions_have_their_value(tree: Any) -> None:
    def text(node: Any) -> str:
        return node if isinstance(node, str) else f"({text(node[1])} {node[0]} {text(node[2])})"

    def value(node: Any, conjunction: str) -> bool:
        if isinstance(node, str):
            return node == "MIT"
        both = value(node[1], conjunction), value(node[2], conjunction)
        return all(both) if node[0] == conjunction else any(both)

    assert judge(text(tree), {"mit"}, every_choice=False) == value(tree, "AND")
    assert judge(text(tree), {"mit"}, every_choice=True) == value(tree, "OR")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"allow": ["MIT"], "deny": ["mit"]}, "allow and deny both name mit"),
        ({"allow": []}, "at least 1"),
        ({"deny": [" "]}, "deny"),
        ({"missing": "fail"}, "'drop' or 'keep'"),
        ({"allow": "MIT"}, "allow"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LicenseConfig(**settings)
    assert known_stages()["license"] is License


def test_the_records_of_a_batch_reach_the_stage() -> None:
    stage = License(LicenseConfig(allow=["MIT"]), "license", "text")
    arrays = [pa.array(["a", "b", None]), pa.array(["MIT", "X", None])]
    records = pa.RecordBatch.from_arrays(arrays, names=["text", "user/license"])
    marks = pa.RecordBatch.from_arrays([pa.array([True, True, False])], names=[ALIVE])
    batch = DocumentBatch(0, 0, True, "f", records, empty_dead(), marks)
    marked = mark_record_stage(stage, batch).marks
    assert marked.column("license.license").to_pylist() == ["MIT", "X", None]
    assert marked.column(failures_column("license")).to_pylist() == [0, 2, 0]
