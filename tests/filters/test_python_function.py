import json
import math
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import ThresherError, UsageError
from corpus.stages import Judgement, TextBatch, known_stages
from corpus.verdicts import failures
from filters.plain_records import plain_records
from filters.python_function import PythonConfig, PythonFunction
from filters.returned_values import WrongValueError, read_keep, read_score, signals_reader
from filters.user_errors import error_text, one_line, reason_name
from filters.user_function import parse_function_name

Make = Callable[..., PythonFunction]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a stage of a function ``judge`` that is given as source."""
    monkeypatch.chdir(tmp_path)

    def make(source: str, **settings: Any) -> PythonFunction:
        (tmp_path / "rules.py").write_text(source, encoding="utf-8")
        config = PythonConfig.model_validate({"function": "./rules.py:judge", **settings})
        stage = PythonFunction(config, "mine", "text")
        stage.prepare()
        return stage

    return make


def documents(texts: list[str], **columns: list[Any]) -> pa.RecordBatch:
    own = {"record_id": [f"r{row}" for row in range(len(texts))], "source": ["web"] * len(texts), "text": texts}
    arrays = {name: pa.array(values) for name, values in {**own, **columns}.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def judged(stage: PythonFunction, records: pa.RecordBatch, alive: list[bool] | None = None) -> Judgement:
    mask = np.array([True] * records.num_rows if alive is None else alive, np.bool_)
    return stage.judge(TextBatch(records.column("text"), mask, records))


def values(judgement: Judgement) -> dict[str, list[Any]]:
    return {name: array.to_pylist() for name, array in judgement.signals.items()}


def errors(judgement: Judgement) -> list[str | None]:
    assert judgement.errors is not None
    return judgement.errors.to_pylist()


KEEP = """
def judge(record, longest=3):
    if record["text"] == "raise":
        raise ValueError("no\\nsuch text")
    if len(record["text"]) > longest:
        return False, "too long"
    return record["text"] != "bad"
"""


@pytest.mark.parametrize("batch", [False, True])
def test_keep_and_reasons(made: Make, batch: bool) -> None:
    in_batch = """
import pyarrow as pa, pyarrow.compute as pc
def judge(batch, longest=3):
    texts = batch.column("text")
    long = pc.greater(pc.utf8_length(texts), longest)
    reasons = pc.if_else(long, "too long", pa.scalar(None, pa.string()))
    return pc.and_(pc.invert(long), pc.not_equal(texts, "bad")), reasons
"""
    stage = made(in_batch if batch else KEEP, batch=batch)
    judgement = judged(stage, documents(["ok", "bad", "longer", "ok"]))
    assert values(judgement) == {"kept": [1, 0, 0, 1], "reason": [None, None, "too long", None]}
    assert errors(judgement) == [None] * 4
    assert (failures(stage.rules(), judgement.signals) != 0).tolist() == [False, True, True, False]
    assert stage.rules()[0].named_by == "reason"
    with_argument = made(in_batch if batch else KEEP, batch=batch, arguments={"longest": 6})
    assert values(judged(with_argument, documents(["longer"])))["kept"] == [1]


def test_an_exception_is_the_error_of_its_record(made: Make) -> None:
    judgement = judged(made(KEEP), documents(["ok", "raise", "bad"]))
    assert errors(judgement) == [None, "ValueError: no such text (line 4 of rules.py)", None]
    assert values(judgement)["kept"] == [1, None, 0]


def test_what_a_function_may_raise(made: Make) -> None:
    source = """
import sys
class Odd(Exception):
    def __str__(self):
        raise RuntimeError
def judge(record):
    text = record["text"]
    if text == "exit":
        sys.exit("enough")
    if text == "deep":
        return judge(record)
    if text == "odd":
        raise Odd
    if text == "surrogate":
        raise KeyError("\\ud800")
    if text == "long":
        raise KeyError("x" * 100_000)
    return record["nothing"]
"""
    found = errors(judged(made(source), documents(["exit", "deep", "odd", "surrogate", "long", "other"])))
    assert [str(error).partition(" (line ")[0][:50] for error in found] == [
        "SystemExit: enough",
        "RecursionError: maximum recursion depth exceeded",
        "Odd: (its message raises RuntimeError)",
        "KeyError: '\\ud800'",
        "KeyError: '" + "x" * 39,
        "KeyError: 'nothing'",
    ]
    assert all(str(error).endswith(" of rules.py)") and len(str(error)) < 450 for error in found)


def test_records_that_are_not_alive_are_not_shown(made: Make) -> None:
    for batch in (False, True):
        source = "def judge(record):\n    assert len(record) == 1\n    return [True]" if batch else KEEP
        stage = made(source, batch=batch)
        judgement = judged(stage, documents(["raise", "ok", "raise"]), [False, True, False])
        assert values(judgement)["kept"] == [None, 1, None]
        assert errors(judgement) == [None] * 3
        none = judged(made("def judge(record):\n    raise ValueError", batch=batch), documents(["a"]), [False])
        assert (values(none), errors(none)) == ({"kept": [None], "reason": [None]}, [None])


def test_score(made: Make) -> None:
    source = (
        "def judge(record):\n    return {'none': None, 'nan': float('nan')}.get(record['text'], len(record['text']))"
    )
    stage = made(source, returns="score", minimum=2.0, maximum=3)
    judgement = judged(stage, documents(["a", "bb", "ccc", "dddd", "none", "nan"]))
    assert values(judgement)["score"] == [1.0, 2.0, 3.0, 4.0, None, None]
    assert errors(judgement)[4] is None
    assert "nan (float), which float64 does not hold; wanted a finite number" in str(errors(judgement)[5])
    assert failures(stage.rules(), judgement.signals).tolist() == [1, 0, 0, 2, 0, 0]
    in_batch = made(
        "def judge(batch):\n    return [len(text) if text != 'nan' else float('inf') for text in "
        "batch.column('text').to_pylist()]",
        returns="score",
        batch=True,
    )
    judgement = judged(in_batch, documents(["a", "nan", "ccc"]))
    assert errors(judgement) == [None, "returned inf; wanted a finite number or null", None]
    assert in_batch.rules() == ()


def test_signals(made: Make) -> None:
    declared = {"words": {"kind": "int64", "minimum": 2}, "share": {"maximum": 0.5}, "title": {"kind": "string"}}
    source = """
def judge(record):
    words = record["text"].split()
    return {"words": len(words), "share": 1 / len(words), "title": words[0]} if words else {}
"""
    stage = made(source, returns="signals", signals=declared)
    judgement = judged(stage, documents(["one", "two words", ""]))
    assert values(judgement) == {"words": [1, 2, None], "share": [1.0, 0.5, None], "title": ["one", "two", None]}
    assert [rule.name for rule in stage.rules()] == ["signals.words.minimum", "signals.share.maximum"]
    assert failures(stage.rules(), judgement.signals).tolist() == [3, 0, 0]
    in_batch = """
import numpy as np
def judge(batch):
    words = [len(text.split()) for text in batch.column("text").to_pylist()]
    return {"words": np.array(words, np.int32), "title": [None] * len(batch)}
"""
    stage = made(in_batch, returns="signals", signals=declared, batch=True)
    judgement = judged(stage, documents(["one", "two words", ""]))
    assert values(judgement) == {"words": [1, 2, 0], "share": [None] * 3, "title": [None] * 3}


@pytest.mark.parametrize(
    ("settings", "value", "error"),
    [
        ({}, "'yes'", "returned 'yes' (str); wanted True, False, or (False, 'reason')"),
        ({}, "None", "returned None; wanted True, False"),
        ({}, "1", "returned 1 (int); wanted True"),
        ({}, "(False, 3)", "returned (False, 3) (tuple); wanted True"),
        ({}, "(False, 'a', 'b')", "wanted True, False"),
        ({"returns": "score"}, "True", "returned True (bool); wanted a number or None"),
        ({"returns": "score"}, "10 ** 400", "which float64 does not hold"),
        ({"returns": "signals"}, "[1]", "returned [1] (list); wanted a dict of the signals n, t"),
        ({"returns": "signals"}, "{'m': 1}", "returned a signal 'm' (str) that the config does not declare"),
        ({"returns": "signals"}, "{'n': 1.5}", "returned n: 1.5 (float); wanted a whole number or None"),
        ({"returns": "signals"}, "{'n': 2 ** 63}", "which int64 does not hold"),
        ({"returns": "signals"}, "{'t': b'x'}", "returned t: b'x' (bytes); wanted text or None"),
        ({"returns": "signals"}, "{'t': '\\ud800'}", "half a surrogate pair is no text"),
        ({"batch": True}, "True", "returned True (bool); wanted an array of 2 booleans"),
        ({"batch": True}, "'ab'", "returned 'ab' (str); wanted an array of 2 booleans"),
        ({"batch": True}, "[True]", "returned an array of 1 for 2 records"),
        ({"batch": True}, "[1, 0]", "returned an array of int64; wanted an array of 2 booleans"),
        ({"batch": True}, "[True, 'x']", "wanted an array of 2 booleans"),
        ({"batch": True}, "[True, None]", None),
        ({"batch": True}, "([True, False], ['a'])", "returned reasons: an array of 1 for 2 records"),
        ({"batch": True}, "(True, False)", "returned True (bool); wanted an array of 2 booleans"),
        ({"batch": True, "returns": "score"}, "['1', '2']", "returned an array of string; wanted an array of 2 num"),
        ({"batch": True, "returns": "signals"}, "[1, 2]", "wanted a dict of the signals"),
        ({"batch": True, "returns": "signals"}, "{'n': [1.0, 2.0]}", "returned n: an array of double; wanted an array"),
    ],
)
def test_wrong_values_are_errors(made: Make, settings: dict[str, Any], value: str, error: str | None) -> None:
    if settings.get("returns") == "signals":
        settings = settings | {"signals": {"n": {"kind": "int64"}, "t": {"kind": "string"}}}
    judgement = judged(made(f"def judge(records):\n    return {value}", **settings), documents(["a", "b"]))
    found = errors(judgement)
    if error is None:
        assert found == [None, "returned None; wanted True or False"]
        assert values(judgement)["kept"] == [1, None]
    else:
        assert [error in str(one) for one in found] == [True, True], found
        assert {entry for array in values(judgement).values() for entry in array} == {None}


def test_an_exception_in_a_batch_is_that_of_all_its_records(made: Make) -> None:
    judgement = judged(made("def judge(batch):\n    return batch.column('nothing')", batch=True), documents(["a", "b"]))
    assert [str(error).startswith("KeyError: ") for error in errors(judgement)] == [True, True]


def test_what_the_function_sees(made: Make) -> None:
    arrow = documents(["t", "u"], **{"user/url": ["x", None], "user/text": ["hidden", ""], "user/n": [[1], []]})
    assert plain_records(arrow) == [
        {"url": "x", "text": "t", "n": [1], "record_id": "r0", "source": "web"},
        {"url": None, "text": "u", "n": [], "record_id": "r1", "source": "web"},
    ]
    objects = documents(["t", "u"], json=[json.dumps({"url": "x", "big": 2**70}), None])
    assert plain_records(objects)[0]["big"] == 2**70
    assert plain_records(objects)[1] == {"record_id": "r1", "source": "web", "text": "u"}
    source = "def judge(batch):\n    return [False] * len(batch), [','.join(batch.schema.names)] * len(batch)"
    reasons = values(judged(made(source, batch=True), arrow))["reason"]
    assert reasons[0] == "record_id,source,text,url,n"
    assert values(judged(made(source, batch=True), objects))["reason"][0] == "record_id,source,text,json"
    pair = pa.RecordBatch.from_pydict({"record_id": ["a"], "source": ["s"], "prompt": ["p"], "response": ["r"]})
    assert plain_records(pair) == [{"record_id": "a", "source": "s", "prompt": "p", "response": "r"}]


def test_a_column_that_python_cannot_hold_is_one_error(made: Make) -> None:
    far = pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))
    records = documents(["t"], **{"user/when": far})
    with pytest.raises(ThresherError, match=r"column when of type timestamp\[s\].*input\.columns"):
        judged(made("def judge(record):\n    return True"), records)


def test_changing_a_record_changes_nothing(made: Make) -> None:
    records = documents(["a"], **{"user/tags": [["x"]]})
    before = records.to_pydict()
    judged(made("def judge(record):\n    record['text'] = ''\n    record['tags'].clear()\n    return True"), records)
    assert records.to_pydict() == before


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("rules.judge", r"wanted package\.module:name, or path/of/file\.py:name; did you mean rules:judge\?"),
        ("judge", r"wanted package\.module:name, or"),
        ("rules.py", "rules.py names no function"),
        ("rules.py:", "'' is no name of a function"),
        ("rules.py:judge()", r"'judge\(\)' is no name of a function"),
        (":judge", "'' is no name of a module"),
        ("./rules:judge", r"\./rules is no Python file \(\.py\)"),
        ("a-b:judge", "'a-b' is no name of a module"),
        ("nowhere.py:judge", "there is no file .*nowhere.py; paths start at the current folder"),
        ("rules:judge", r"no module rules was found.*for the file .*rules\.py write rules\.py:name"),
        ("no_such_package.part:judge", "no module no_such_package was found in the packages of .* install its package"),
        ("json.nothing:judge", r"no module json\.nothing was found"),
        ("json.decoder.deep:judge", "json.decoder is a module, not a package"),
        ("json:lods", "has no lods; did you mean loads"),
        ("json.decoder:JSONDecoder", "line .* is a class; wanted a function"),
        ("rules.py:jugde", r"rules\.py has no jugde; did you mean judge\?"),
        ("rules.py:later", "later in .*, line 4, is async; wanted a plain function"),
        ("broken.py:judge", r"broken\.py, line 2: "),
        ("binary.py:judge", r"binary\.py"),
    ],
)
def test_functions_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(
        "raise SystemExit('run')\ndef judge(record):\n    pass\nasync def later(r): ...\n"
    )
    (tmp_path / "broken.py").write_text("x = 1\ndef judge(record:\n")
    (tmp_path / "binary.py").write_bytes(b"\0\xff\0")
    with pytest.raises(ValidationError, match=message) as caught:
        PythonConfig(function=function)
    assert [error["loc"] for error in caught.value.errors()] == [("function",)]


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (
            "import no_such_thing\ndef judge(record): ...",
            {},
            "rules.py cannot be imported: ModuleNotFoundError: No module",
        ),
        ("raise SystemExit('stop')\ndef judge(record): ...", {}, "cannot be imported: SystemExit: stop"),
        ("judge = 3", {}, "judge in .*rules.py is int; wanted a plain function"),
        ("from json import JSONDecoder as judge", {}, "is a class"),
        ("def judge(): ...", {}, r"cannot be called as \(record\): too many positional arguments"),
        ("def judge(a, b): ...", {"batch": True}, r"cannot be called as \(batch\): missing a required argument: 'b'"),
        ("def judge(a): ...", {"arguments": {"c": 1}}, r"as \(record, c=…\): got an unexpected keyword argument 'c'"),
        ("from json import *", {}, "has no judge"),
    ],
)
def test_functions_that_cannot_be_loaded(made: Make, source: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^mine\.function: .*{message}"):
        made(source, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimum": 1}, "minimum and maximum limit a score, and returns is keep"),
        ({"returns": "score", "minimum": 2, "maximum": 1}, r"minimum \(2\.0\) is above maximum \(1\.0\)"),
        ({"signals": {"a": {}}}, "signals is given, and returns is keep"),
        ({"returns": "signals"}, "needs them declared"),
        ({"returns": "signals", "signals": {"a": {"minimum": 2, "maximum": 1}}}, "no record can pass"),
        ({"returns": "signals", "signals": {"a": {"kind": "string", "minimum": 2}}}, "kind string has no minimum"),
        ({"returns": "signals", "signals": {"A b": {}}}, "should match pattern"),
        ({"returns": "signals", "signals": {f"a{number}": {} for number in range(32)}}, "at most 31"),
        ({"returns": "score", "minimum": math.nan}, "finite"),
        ({"arguments": {"a": object()}}, "JSON"),
        ({"batch": 1}, "valid boolean"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PythonConfig.model_validate({"function": "json:loads", **settings})


def test_modules_are_found_without_running_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "thresher_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not run')")
    (package / "rules.py").write_text("if True:\n    from os.path import exists as judge\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = PythonConfig(function="thresher_test_package.rules:judge")
    assert not any(name.startswith("thresher_test_package") for name in sys.modules)
    stage = PythonFunction(config, "mine", "text")
    assert re.fullmatch(r"thresher_test_package\.rules:judge sha256=[0-9a-f]{64}", stage.fingerprint()["function"])
    with pytest.raises(UsageError, match="cannot be imported: RuntimeError: must not run"):
        stage.prepare()


def test_the_fingerprint_follows_the_source_and_not_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for folder, source in (("a", "def judge(r): ..."), ("b", "def judge(r): ..."), ("c", "def judge(r): return 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rules.py").write_text(source)
        monkeypatch.chdir(tmp_path)
        stage = PythonFunction(PythonConfig(function=f"{folder}/rules.py:judge"), "mine", "text")
        found.append(stage.fingerprint()["function"])
    assert found[0] == found[1] != found[2]
    assert found[0].startswith("rules.py:judge sha256=")
    (tmp_path / "c/rules.py").unlink()
    with pytest.raises(UsageError, match=r"mine\.function: there is no file .*c/rules\.py"):
        stage.fingerprint()
    with pytest.raises(UsageError, match=r"mine\.function: there is no file .*c/rules\.py"):
        stage.prepare()


def test_a_function_in_a_store() -> None:
    with fsspec.open("memory://functions/rules.py", "w") as file:
        file.write("def judge(record):\n    return record['text'] == 'a'\n")
    stage = PythonFunction(PythonConfig(function="memory://functions/rules.py:judge"), "mine", "text")
    stage.prepare()
    assert values(judged(stage, documents(["a", "b"])))["kept"] == [1, 0]
    assert stage.fingerprint()["function"].startswith("rules.py:judge sha256=")
    missing = PythonFunction(PythonConfig(function="memory://functions/none.py:judge"), "mine", "text")
    with pytest.raises(UsageError, match=r"^mine\.function: cannot read memory://functions/none\.py: "):
        missing.prepare()


def test_a_function_in_c_and_a_dataclass_module(made: Make) -> None:
    source = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
    stage = made(source + "def judge(record):\n    return A(1).x == 1")
    assert values(judged(stage, documents(["a"])))["kept"] == [1]
    in_c = PythonFunction(PythonConfig(function="operator:truth"), "mine", "text")
    in_c.prepare()
    assert values(judged(in_c, documents(["a"])))["kept"] == [1]
    assert in_c.fingerprint()["function"].startswith("operator:truth sha256=")


def test_names(tmp_path: Path) -> None:
    for text, remote in (("s3://bucket/a b/rules.py:judge", True), ("/abs/rules.py:judge", False)):
        function = parse_function_name(text)
        assert (function.module, function.name) == (text.rpartition(":")[0], "judge")
        assert (function.is_remote, function.is_file) == (remote, True)
    assert reason_name(" too\n\tlong \x00 ") == "too long"
    assert (reason_name(None), reason_name("\n"), reason_name(3)) == (None, None, "3")
    assert len(str(reason_name("x" * 1000))) == 100
    assert error_text(ValueError("a\ud800")) == "ValueError: a?"


@given(st.text(), st.integers(1, 50))
def test_one_line_is_short_valid_text_without_controls(text: str, longest: int) -> None:
    line = one_line(text + "\ud800\n", longest)
    assert len(line) <= longest
    assert not re.search(r"[\x00-\x1f\x7f]", line.encode().decode())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(ANYTHING | st.dictionaries(st.sampled_from(["score", "words", "title"]), ANYTHING))
def test_whatever_a_function_returns_is_signals_or_a_wrong_value(value: Any) -> None:
    config = PythonConfig.model_validate(
        {
            "function": "json:loads",
            "returns": "signals",
            "signals": {"score": {}, "words": {"kind": "int64"}, "title": {"kind": "string"}},
        }
    )
    declared = PythonFunction(config, "mine", "text").signals()
    kinds = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
    readers: list[tuple[Callable[[Any], tuple[Any, ...]], list[Any]]] = [
        (read_keep, [pa.int64(), pa.string()]),
        (read_score, [pa.float64()]),
        (signals_reader(declared), [kinds[signal.kind] for signal in declared]),
    ]
    for read, types in readers:
        with suppress(WrongValueError):
            entries = read(value)
            arrays = [pa.array([entry], kind) for entry, kind in zip(entries, types, strict=True)]
            assert [array.to_pylist() for array in arrays] == [[entry] for entry in entries]


def test_the_stage_is_known_and_says_that_it_is_slow() -> None:
    assert known_stages()["python"] is PythonFunction
    assert PythonFunction.speed == "per record, in Python"
