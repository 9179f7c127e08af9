"""The YAML reader: YAML 1.2 scalars, lines of values, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.errors import UsageError
from corpus.yaml_reader import MAX_BYTES, Place, format_path, read_yaml, read_yaml_file, resolve_plain
from pipelines.yaml_writer import dump_yaml

KEY = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        ["no", "1e-5", "0x10", "~", "", "010", "1:30", "<<", "true", "a: b", "- x", "#", "\u2028", "\x85"]
    )
)
PLAIN = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3))


def problem(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_yaml(text, "c.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("nil", "nil"),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("off", "off"),
        ("y", "y"),
        ("010", 10),
        ("-7", -7),
        ("+7", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0x10", "-0x10"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0b11", "0b11"),
        ("1e-5", 1e-5),
        ("8e-1", 0.8),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e6", 1e6),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("١", "١"),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(written: str, value: object) -> None:
    for found in (resolve_plain(written), read_yaml(f"a: {written}\n", "c.yaml").value["a"]):
        assert found == value
        assert type(found) is type(value)


def test_nan_is_a_number() -> None:
    value = resolve_plain(".NaN")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("!!float 8", 8.0),
        ('!!int "8"', 8),
        ("!!str 8", "8"),
        ("! 8", "8"),
        ("!!bool 'true'", True),
        ("!!bool 'false'", False),
        ("!!null ''", None),
        ("!!seq [1]", [1]),
        ("!!map {b: 1}", {"b": 1}),
        ('"8"', "8"),
        ("'~'", "~"),
        ("|\n  8\n", "8\n"),
    ],
)
def test_tags_and_quotes_decide_the_type(written: str, value: object) -> None:
    found = read_yaml(f"a: {written}", "c.yaml").value["a"]
    assert found == value
    assert type(found) is type(value)


def test_every_value_has_the_line_of_its_key_and_its_text_as_written() -> None:
    text = (
        "# comment\r\na:\r\n  b: 0x10  # sixteen\r\n  c:\r\n    - 'é'\r\n    - |\r\n      two\r\nd: {e: 1e3, f: }\r\n"
    )
    document = read_yaml(text, "c.yaml")
    assert document.value == {"a": {"b": 16, "c": ["é", "two\n"]}, "d": {"e": 1000.0, "f": None}}
    lines = {format_path(path): place.line for path, place in document.places.items()}
    assert lines == {"": 2, "a": 2, "a.b": 3, "a.c": 4, "a.c[0]": 5, "a.c[1]": 6, "d": 8, "d.e": 8, "d.f": 8}
    assert document.written["a", "b"] == "0x10"
    assert document.written["a", "c", 0] == "'é'"
    assert document.written["d", "e"] == "1e3"
    assert document.written["d", "f"] == ""
    assert document.place(("a", "x", "y")) == Place("c.yaml", 2)


def test_aliases_and_merge_keys() -> None:
    text = "base: &base {x: 1, y: 2}\nlist: *base\none: {<<: *base, y: 3}\ntwo:\n  y: 4\n  <<: [{y: 5, z: 6}, *base]\n"
    document = read_yaml(text, "c.yaml")
    assert document.value["list"] == {"x": 1, "y": 2}
    assert document.value["one"] == {"x": 1, "y": 3}
    assert document.value["two"] == {"x": 1, "y": 4, "z": 6}
    assert document.place(("one", "x")).line == 1
    assert document.place(("two", "y")).line == 5
    assert read_yaml('"<<": {a: 1}', "c.yaml").value == {"<<": {"a": 1}}


def test_an_anchor_of_the_same_name_replaces_the_earlier_one() -> None:
    assert read_yaml("a: &x 1\nb: &x 2\nc: *x\n", "c.yaml").value["c"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "c.yaml:3: a: the key 'a' stands twice, on lines 1 and 3"),
        ("l:\n- {k: 1,\n   'k': 1}", "c.yaml:3: l[0].k: the key 'k' stands twice, on lines 2 and 3"),
        ("a: 1\n---\nb: 2\n", "c.yaml:2: a second YAML document starts here"),
        ("a: 1\n---\n", "c.yaml:2: a second YAML document starts here"),
        ("%YAML 1.1\n---\na: yes\n", "c.yaml:2: the file asks for another version of YAML than 1.2"),
        ("a:\n  - !!python/object/apply:os.system [x]", "c.yaml:2: the tag !!python/object/apply:os.system"),
        ("a: !secret x", "c.yaml:1: the tag !secret"),
        ("a: !!set {x}", "c.yaml:1: the tag !!set"),
        ("a: !!timestamp 2020-01-01", "c.yaml:1: the tag !!timestamp"),
        ("a: !!int 8.5", "c.yaml:1: !!int 8.5: not a value of the tag !!int"),
        ("a: !!bool yes", "c.yaml:1: !!bool yes: not a value of the tag !!bool"),
        ("a: !!str [x]", "c.yaml:1: the tag !!str"),
        ("a:\n\t- b", "c.yaml:2: not valid YAML: found character '\\t' that cannot start any token; indent"),
        ("a: [1\nb: 2", "c.yaml:2: not valid YAML"),
        ("a: @x", "c.yaml:1: not valid YAML: found character '@'"),
        ("a: {b: ${HOME}}", "flow mapping): a: {b: ${HOME}}; variables are not filled in"),
        ("a: 1\nb: \x01", "c.yaml:2: not valid YAML: the character U+0001 is not allowed"),
        ('a: "\\ud800"', "c.yaml:1: \"\\ud800\" holds half a surrogate pair"),
        ("a: *x", "c.yaml:1: the alias *x has no anchor &x before it"),
        ("a: &x [1, *x]", "c.yaml:1: the alias *x stands inside the value that it repeats"),
        ("a: &x {<<: *x}", "c.yaml:1: the alias *x stands inside the value that it repeats"),
        ("<<: 5", "c.yaml:1: << takes a mapping or a list of mappings"),
        ("1: x", "c.yaml:1: the key 1 is no text; put it in quotes"),
        ("? [a]\n: x", "c.yaml:1: the key (list or mapping) is no text"),
        ("s: {a: 0,8, b: 1}", "c.yaml:1: s.a: found 0,8; wanted a number without commas"),
        ("a: 9223372036854775808", "c.yaml:1: 9223372036854775808: an integer beyond 64 bits"),
        ("a: " + "9" * 6000, "9…: an integer beyond 64 bits"),
        ("[" * 100_000, "c.yaml:1: nested more than 64 levels deep"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_line(text: str, message: str) -> None:
    assert message in problem(text)


def test_all_problems_that_do_not_hinder_reading_are_told_together() -> None:
    found = problem("a: !x 1\nb: 1\nb: 2\n3: 4\n").splitlines()
    assert [line.split(":")[1] for line in found] == ["3", "4", "1"]


@pytest.mark.parametrize(
    "lines",
    [
        ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))],
        ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12))],
        ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 5000))],
    ],
)
def test_aliases_are_bounded(lines: list[str]) -> None:
    assert "aliases give more than 100000 values or 64 levels" in problem("\n".join(lines))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xe9\n", "c.yaml:2: not UTF-8 (byte 0xe9); save it as UTF-8"),
        ("a: 1\n".encode("utf-16"), "c.yaml:1: not UTF-8 (byte 0xff)"),
        (b"x" * (MAX_BYTES + 1), "more than a YAML file may have"),
        (None, "c.yaml: cannot be read: No such file or directory"),
    ],
)
def test_files_that_are_no_yaml_files(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "c.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_yaml_file(path)
    assert message in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_yaml_file(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("a: 1\n".encode("utf-8-sig"))
    assert read_yaml_file(path).value == {"a": 1}


def test_an_empty_text_is_an_empty_document() -> None:
    assert read_yaml("# only a comment\n", "c.yaml").value is None


@given(st.dictionaries(KEY, PLAIN, max_size=4))
def test_what_is_written_reads_back_as_it_was(value: dict[str, object]) -> None:
    found = read_yaml(dump_yaml(value), "c.yaml").value
    assert found == value
    assert repr(found) == repr(value)


def test_written_yaml_is_block_style_and_the_same_for_readers_of_yaml_1_1() -> None:
    value = {"a": [], "keep": ["en", "no"], "nested": [{"x": 1e-05, "y": {}}, [1, "1_000"]], "t": "1e-5"}
    assert dump_yaml(value) == (
        'a: []\nkeep:\n  - en\n  - "no"\nnested:\n  - x: 1.0e-05\n    "y": {}\n  - - 1\n    - "1_000"\nt: "1e-5"\n'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_yaml({"a": math.inf})


@given(st.text(alphabet="ab:-[]{}&*!<>'\"|?#\n\t 0.1e", max_size=40))
def test_any_text_gives_a_value_or_one_clear_error(text: str) -> None:
    message = ""
    try:
        read_yaml(text, "c.yaml")
    except UsageError as error:
        message = str(error)
    assert all(line.startswith("c.yaml:") for line in message.splitlines())
