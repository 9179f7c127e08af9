"""JSONL and text files, plain and compressed."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import filesystem
from corpus.batch import EMPTY_TEXT, OVER_SIZE, DocumentBatch
from corpus.errors import ThresherError
from corpus.hashing import content_hash
from corpus.inputs import InputConfig
from corpus.planning import Item, plan_input
from corpus.readers import read_item
from corpus.readers.lines import MAX_LINE_BYTES

ROWS, BYTES = 8192, 16 << 20


def config(**settings: Any) -> InputConfig:
    return InputConfig.model_validate({"files": ["x"], **settings})


def read(path: Path, rows: int = ROWS, size: int = BYTES, **settings: Any) -> list[DocumentBatch]:
    found = plan_input(config(**{**settings, "files": [str(path)]}))
    batches = [batch for item in found.items for batch in read_item(item, config(**settings), rows, size)]
    for batch in batches:
        batch.records.validate(full=True)
        alive = [not failures for failures in batch.records.column("input_failures").to_pylist()]
        assert batch.marks.column("alive").to_pylist() == alive
    return batches


def records(batches: list[DocumentBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.records.to_pylist()]


def dead(batches: list[DocumentBatch]) -> list[tuple[int | None, str]]:
    return [(row["position"], row["error"]) for batch in batches for row in batch.dead.to_pylist()]


def write(folder: Path, data: bytes, name: str = "x.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_what_a_record_has(tmp_path: Path) -> None:
    text = "zwei Wörter"
    line = json.dumps({"a": 1, "text": text, "id": 7, "b": {"c": None}}).encode()
    path = write(tmp_path, b"\n" + line + b"\r\n")
    (row,) = records(read(path, id_column="id", source_column="a"))
    assert row.pop("row_digest") == records(read(path, id_column="id"))[0]["row_digest"]
    assert row == {
        "record_id": "7",
        "generated_id": False,
        "source": "1",
        "position": 1,
        "content_hash": content_hash([text.encode()]),
        "characters": 11,
        "bytes": 12,
        "input_failures": 0,
        "text": text,
        "json": '{"a":1,"id":7,"b":{"c":null}}',
    }
    (other,) = records(read(path, columns=["b"]))
    assert (other["record_id"], other["generated_id"]) == ("x.jsonl#1", True)
    assert (other["source"], other["json"]) == ("x.jsonl", '{"b":{"c":null}}')


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"text":"x"', "malformed_json"),
        (b'{"text":"x"} more', "malformed_json"),
        (b'{"text":"x","n":NaN}', "malformed_json"),
        (b'{"text":"x","n":-Infinity}', "malformed_json"),
        (b'{"text":"x","n":1e400}', "malformed_json"),
        (b'{"text":"x","n":' + b"9" * 5000 + b"}", "malformed_json"),
        (b'{"text":"x","n":' + b"[" * 3000 + b"]" * 3000 + b"}", "malformed_json"),
        (b"[" * 100000, "malformed_json"),
        (b'{"text":"a\tb"}', "malformed_json"),
        (b"\x00", "malformed_json"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'"text"', "not_an_object"),
        (b"{}", "missing_text"),
        (b'{"Text":"x"}', "missing_text"),
        (b'{"text":null}', "null_text"),
        (b'{"text":1}', "wrong_type"),
        (b'{"text":true}', "wrong_type"),
        (b'{"text":["x"]}', "wrong_type"),
        (b'{"text":{}}', "wrong_type"),
        (b'{"text":"\xff\xfe"}', "invalid_utf8"),
        (b'{"text":"\xed\xa0\x80"}', "invalid_utf8"),
        (b'{"text":"x","\xff":1}', "invalid_utf8"),
        (b'{"text":"\\ud800"}', "invalid_unicode"),
        (b'{"text":"x","id":["\\udc00\\ud800"]}', "invalid_unicode"),
        (b'{"text":"x","\\ud800":1}', "invalid_unicode"),
    ],
)
def test_lines_that_are_no_records(tmp_path: Path, line: bytes, error: str) -> None:
    good = b'{"text":"good"}'
    batches = read(write(tmp_path, good + b"\n" + line + b"\n" + good + b"\n"))
    assert [row["text"] for row in records(batches)] == ["good", "good"]
    (letter,) = batches[0].dead.to_pylist()
    assert (letter["position"], letter["error"], letter["raw"]) == (16, error, line[: 64 << 10])
    assert (letter["file"], letter["source"]) == ("x.jsonl", "x.jsonl")
    assert len(letter["detail"]) > 20


def test_source_of_a_dead_letter(tmp_path: Path) -> None:
    (batch,) = read(write(tmp_path, b'{"source":"web","text":1}\n{"source":"web","text":"x"\n'), source_column="source")
    assert batch.dead.column("source").to_pylist() == ["web", "x.jsonl"]


@pytest.mark.parametrize(
    "number",
    [
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1" * 50,
    ],
)
def test_integers_stay_exact(tmp_path: Path, number: str) -> None:
    path = write(tmp_path, f'{{"id":{number},"text":"a 1e20","n":[{number}],"s":"ü2e5"}}\n'.encode())
    (row,) = records(read(path, id_column="id"))
    assert row["record_id"] == number
    assert row["json"] == f'{{"id":{number},"n":[{number}],"s":"ü2e5"}}'
    assert row["text"] == "a 1e20"


def test_ids(tmp_path: Path) -> None:
    ids = ['"00042"', '"a/b c"', "null", "1.5", "true", '["x",1]', '""']
    path = write(tmp_path, "".join(f'{{"id":{one},"text":"x"}}\n' for one in ids).encode())
    assert [row["record_id"] for row in records(read(path, id_column="id"))] == [
        "00042",
        "a/b c",
        "x.jsonl#52",
        "1.5",
        "true",
        '["x",1]',
        "",
    ]


def test_marks_and_blank_lines(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"text":"a"}\r\n\r\n \t\n{"text":"b\\u0000c"}\n{"text":"a","text":"last"}'
    assert [(row["position"], row["text"]) for row in records(read(write(tmp_path, data)))] == [
        (0, "a"),
        (22, "b\0c"),
        (42, "last"),
    ]
    assert records(read(write(tmp_path, b"\xef\xbb\xbf"))) == []


def test_empty_text(tmp_path: Path) -> None:
    blank = ["", " ", "\t\r\n", "\u3000\u2029\x85"]
    filled = ["\0", "\u200b", " x "]
    data = "".join(json.dumps({"text": text}) + "\n" for text in blank + filled).encode()
    failures = [row["input_failures"] for row in records(read(write(tmp_path, data)))]
    assert failures == [EMPTY_TEXT] * len(blank) + [0] * len(filled)


def test_pairs(tmp_path: Path) -> None:
    rows = [{"q": "a", "a": "b", "n": 1}, {"q": "", "a": "b"}, {"q": "a", "a": " "}, {"q": None, "a": "b"}, {"q": "a"}]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    batches = read(path, prompt_column="q", response_column="a")
    found = records(batches)
    assert [(row["prompt"], row["response"], row["input_failures"]) for row in found] == [
        ("a", "b", 0),
        ("", "b", 0),
        ("a", " ", EMPTY_TEXT),
    ]
    assert found[0]["json"] == '{"n":1}'
    assert found[0]["content_hash"] == content_hash([b"a", b"b"]) != content_hash([b"", b"ab"])
    assert (found[0]["characters"], found[0]["bytes"]) == (2, 2)
    assert [error for _, error in dead(batches)] == ["null_text", "missing_text"]


def test_chats(tmp_path: Path) -> None:
    def turn(role: str, content: Any) -> dict[str, Any]:
        return {"role": role, "content": content}

    chats: list[Any] = [
        [turn("system", "s"), turn("user", "u1"), turn("assistant", "a1"), turn("user", "u2"), turn("assistant", "a2")],
        [turn("user", "u"), turn("assistant", "a"), turn("user", "later")],
        [turn("assistant", "alone")],
        [turn("user", "u")],
        [],
        [turn("user", "u"), turn("assistant", None)],
        [turn("user", ["u"]), turn("assistant", "a")],
        ["u"],
        "text",
        None,
    ]
    path = write(tmp_path, "".join(json.dumps({"m": chat}) + "\n" for chat in chats).encode())
    batches = read(path, messages_column="m")
    assert [(row["prompt"], row["response"]) for row in records(batches)] == [
        ("s\n\nu1\n\na1\n\nu2", "a2"),
        ("u", "a"),
        ("", "alone"),
    ]
    assert json.loads(records(batches)[1]["json"]) == {"m": chats[1]}
    assert [error for _, error in dead(batches)] == [
        "no_assistant_turn",
        "no_assistant_turn",
        "null_text",
        "wrong_type",
        "wrong_type",
        "wrong_type",
        "null_text",
    ]


def test_types_of_columns(tmp_path: Path) -> None:
    types = {"s": "string", "i": "int64", "f": "float64", "b": "bool", "j": "json"}
    good = [{"s": "x", "i": 1, "f": 1, "b": True, "j": [1]}, {"s": None, "i": None, "f": 1.5}, {}]
    bad = [{"s": 1}, {"i": 1.5}, {"i": True}, {"i": 2**63}, {"i": 2**70}, {"f": "1"}, {"b": 0}]
    path = write(tmp_path, "".join(json.dumps({"text": "x", "other": 1, **row}) + "\n" for row in good + bad).encode())
    batches = read(path, columns=types)
    assert [json.loads(row["json"]) for row in records(batches)] == good
    assert [error for _, error in dead(batches)] == ["misfit_column"] * len(bad)


def test_too_large(tmp_path: Path) -> None:
    rows = [{"text": "x" * 100}, {"text": "x" * 101}, {"text": "x", "more": "y" * 200}, {"text": "x"}]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    found = records(read(path, max_record_bytes=102))
    assert [(row["input_failures"], row["bytes"], row["text"] is None, row["json"] is None) for row in found] == [
        (0, 100, False, False),
        (OVER_SIZE, 103, True, True),
        (OVER_SIZE, 1 + 211, True, True),
        (0, 1, False, False),
    ]
    assert found[1]["content_hash"] == content_hash([b"x" * 101])
    (long,) = records(read(write(tmp_path, b'{"text":"' + b"x" * 103 + b'"}'), max_record_bytes=102))
    assert (long["input_failures"], long["bytes"], long["characters"]) == (OVER_SIZE, 103, 103)


def test_a_record_of_50_megabytes(tmp_path: Path) -> None:
    size = 50_000_000
    data = b'{"text":"a"}\n{"text":"' + b"x" * size + b'"}\n{"text":"b"}\n'
    for path in (write(tmp_path, data), write(tmp_path, gzip.compress(data, 1), "x.jsonl.gz")):
        found = records(read(path))
        assert [(row["text"], row["bytes"], row["input_failures"]) for row in found] == [
            ("a", 1, 0),
            (None, size, OVER_SIZE),
            ("b", 1, 0),
        ]


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    """A decompression bomb: one line of a gigabyte."""
    zeros = 1 << 24
    members = gzip.compress(b"\0" * zeros, 1) * 59 + gzip.compress(b'\n{"text":"b"}\n')
    path = write(tmp_path, gzip.compress(b'{"text":"a"}\n') + members, "x.jsonl.gz")
    tracemalloc.start()
    batches = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row["text"] for row in records(batches)] == ["a", "b"]
    assert dead(batches) == [(13, "line_too_long")]
    assert peak < 200 << 20
    assert 59 * zeros > MAX_LINE_BYTES


def test_zstandard_bomb(tmp_path: Path) -> None:
    data = zstandard.compress(b"\0" * (1 << 28)) + zstandard.compress(b'\n{"text":"b"}\n')
    assert len(data) < 1 << 16
    tracemalloc.start()
    batches = read(write(tmp_path, data, "x.jsonl.zst"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row["text"] for row in records(batches)] == ["b"]
    assert dead(batches) == [(0, "line_too_long")]
    assert peak < 200 << 20


LINES = st.lists(
    st.one_of(
        st.builds(lambda text: json.dumps({"text": text}).encode(), st.text(max_size=30)),
        st.sampled_from([b"", b" ", b"\r", b"[]", b"{", b'{"text":null}', b"\xff", b'{"text":"a"}\r']),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    lines=LINES,
    ends=st.booleans(),
    mark=st.booleans(),
    cuts=st.data(),
    rows=st.integers(1, 6),
    size=st.integers(1, 900),
)
def test_items_and_batches_do_not_change_what_is_read(
    lines: list[bytes], ends: bool, mark: bool, cuts: st.DataObject, rows: int, size: int
) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + b"\n".join(lines) + (b"\n" if ends else b"")
    borders = sorted(cuts.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), data)
        whole = Item(0, "x.jsonl", str(path), "jsonl", None, 0, len(data), 0, None, None, None, None)
        (expected,) = read_item(whole, config(), ROWS, BYTES)
        assert len(expected.records) + len(expected.dead) == sum(
            line.strip(b" \r\t") != b"" for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        )
        found: list[DocumentBatch] = []
        for start, end in zip([0, *borders], [*borders, len(data)], strict=True):
            batches = list(read_item(replace(whole, start=start, end=end), config(), rows, size))
            check_batches(batches, rows, size)
            found += batches
        packed = write(Path(folder), gzip.compress(data), "x.jsonl.gz")
        gz = replace(whole, path=str(packed), compression="gz")
        for parts in (found, list(read_item(gz, config(), rows, size))):
            assert pa.Table.from_batches([one.records for one in parts]).equals(
                pa.Table.from_batches([expected.records])
            )
            assert pa.Table.from_batches([one.dead for one in parts]).equals(pa.Table.from_batches([expected.dead]))


def check_batches(batches: list[DocumentBatch], rows: int, size: int) -> None:
    assert [batch.chunk for batch in batches] == list(range(len(batches)))
    assert [batch.last for batch in batches] == [False] * (len(batches) - 1) + [True]
    for batch in batches:
        count = len(batch.records) + len(batch.dead)
        assert count <= rows
        assert count <= 1 or used(batch) <= size
        assert count or batch.last


def used(batch: DocumentBatch) -> int:
    rows = 100 * (len(batch.records) + len(batch.dead))
    names = [*batch.records.column("record_id").to_pylist(), *batch.records.column("source").to_pylist()]
    texts = [*batch.records.column("text").to_pylist(), *batch.records.column("json").to_pylist()]
    return (
        rows
        + sum(len(text.encode()) for text in texts + names)
        + sum(len(raw or b"") for raw in batch.dead.column("raw").to_pylist())
    )


def test_sample(tmp_path: Path) -> None:
    path = write(tmp_path, b"".join(b'{"text":"%d"}\nbroken\n' % index for index in range(2000)))
    everything = read(path)
    some = read(path, sample=0.3)
    texts = [row["text"] for row in records(some)]
    assert 500 < len(texts) < 700
    assert 500 < len(dead(some)) < 700
    assert set(texts) < {row["text"] for row in records(everything)}
    assert texts == [row["text"] for row in records(read(path, sample=0.3, rows=7))]
    assert texts != [row["text"] for row in records(read(path, sample=0.3, sample_seed=1))]
    larger = {row["text"] for row in records(read(path, sample=0.5))}
    assert set(texts) < larger
    assert records(read(path, sample=1.0)) == records(everything)


def pack_gz(parts: list[bytes]) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in parts)


def pack_zst(parts: list[bytes]) -> bytes:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    return b"\x50\x2a\x4d\x18\x04\0\0\0skip".join(packer.compress(part) for part in parts)


PACKERS = [("x.jsonl.gz", pack_gz), ("x.jsonl.zst", pack_zst)]
PARTS = [b'{"text":"one"}\n{"te', b"", b'xt":"two"}\n', b'{"text":"three"}\n']


@pytest.mark.parametrize(("name", "pack"), PACKERS)
def test_several_members_are_one_stream(tmp_path: Path, name: str, pack: Any) -> None:
    batches = read(write(tmp_path, pack(PARTS), name))
    assert [row["text"] for row in records(batches)] == ["one", "two", "three"]
    assert [row["position"] for row in records(batches)] == [0, 15, 30]
    assert dead(batches) == []
    assert dead(read(write(tmp_path, pack(PARTS) + b"\0" * 520, name))) == []
    garbage = read(write(tmp_path, pack(PARTS) + b"\0\0garbage", name))
    assert [row["text"] for row in records(garbage)] == ["one", "two", "three"]
    assert dead(garbage) == [(None, "file_corrupt")]
    assert dead(read(write(tmp_path, PARTS[3], name))) == [(None, "file_corrupt")]


@pytest.mark.parametrize(("name", "pack"), PACKERS)
def test_truncation_at_every_byte(tmp_path: Path, name: str, pack: Any) -> None:
    data = pack(PARTS)
    whole = [len(pack(PARTS[:count])) for count in range(1, len(PARTS))]
    last = 0
    for size in range(len(data)):
        batches = read(write(tmp_path, data[:size], name))
        texts = [row["text"] for row in records(batches)]
        assert texts == ["one", "two", "three"][: len(texts)]
        assert len(texts) >= last
        last = len(texts)
        if dead(batches) != [(None, "file_truncated")]:
            assert any(one <= size <= one + 12 for one in whole)
            assert dead(batches) in ([], [(15, "malformed_json")])
    assert last == 3


@pytest.mark.parametrize(("name", "pack"), PACKERS)
def test_damage_at_every_byte(tmp_path: Path, name: str, pack: Any) -> None:
    lines = [b'{"text":"%d"}\n' % index for index in range(3)]
    data = pack(lines)
    for index in range(len(data)):
        broken = bytearray(data)
        broken[index] ^= 0x55
        for row in records(read(write(tmp_path, bytes(broken), name))):
            assert row["position"] is not None


@pytest.mark.parametrize(("name", "pack"), PACKERS)
def test_a_wrong_checksum_keeps_the_records(tmp_path: Path, name: str, pack: Any) -> None:
    data = bytearray(pack([b'{"text":"one"}\n{"text":"two"}\n']))
    data[-8 if name.endswith("gz") else -1] ^= 1
    batches = read(write(tmp_path, bytes(data), name))
    assert [row["text"] for row in records(batches)] == ["one", "two"]
    (letter,) = batches[0].dead.to_pylist()
    assert (letter["position"], letter["error"]) == (None, "file_corrupt")
    assert "checksum" in letter["detail"]


def test_damage_inside_keeps_what_came_before(tmp_path: Path) -> None:
    lines = [b'{"text":"%d"}\n' % (index * 7919) for index in range(5000)]
    for name, pack in PACKERS:
        data = bytearray(pack([b"".join(lines)]))
        middle = len(data) // 2
        data[middle : middle + 40] = b"\xff" * 40
        batches = read(write(tmp_path, bytes(data), name))
        found = records(batches)
        assert len(found) > 1000 or name.endswith("zst")
        assert dead(batches)[-1] == (None, "file_corrupt")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    item = Item(3, "x.jsonl", str(tmp_path / "gone.jsonl"), "jsonl", None, 0, 10, 0, None, None, None, None)
    wanted = r"x.jsonl: cannot be read at the moment \(No such file or directory\); run the same command again"
    for kind in ("jsonl", "text", "parquet"):
        with pytest.raises(ThresherError, match=f"^{wanted}$"):
            list(read_item(replace(item, format=kind), config(), 10, 100))


class _Handle(io.BytesIO):
    """A file whose methods can be replaced."""


class _StoreThatBreaks:
    """A store whose files raise an error at a given read or seek."""

    def __init__(self, calls: Iterator[int], good_calls: int, error: Exception) -> None:
        self.calls = calls
        self.good_calls = good_calls
        self.error = error

    def open(self, *arguments: Any, **settings: Any) -> Any:
        handle: Any = _Handle(fsspec.filesystem("memory").cat(arguments[0]))
        read = handle.read

        def read_or_break(size: int = -1) -> bytes:
            if next(self.calls) >= self.good_calls:
                raise self.error
            return read(min(size, 50) if arguments[0].endswith("jsonl") else size)

        handle.read = read_or_break
        return handle


class StoreError(Exception):
    """The error of a store's client, which has classes of its own."""


@pytest.mark.parametrize(
    "error",
    [OSError(5, "x"), ConnectionResetError(104, "x"), ConnectionError("x"), TimeoutError("x"), MemoryError("x"),
     StoreError("x"), PermissionError("x")],
)  # fmt: skip
@pytest.mark.parametrize(("kind", "compression"), [("jsonl", None), ("jsonl", "gz"), ("text", None), ("parquet", None)])
def test_what_may_pass_is_no_dead_letter(
    error: Exception, kind: Any, compression: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"".join(b'{"text":"record %d"}\n' % index for index in range(20))
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), table, row_group_size=1, compression="none")
    data = table.getvalue().to_pybytes() if kind == "parquet" else gzip.compress(lines) if compression else lines
    path = f"memory://bucket-b/x.{kind}"
    fsspec.filesystem("memory").pipe(f"/bucket-b/x.{kind}", data)
    item = Item(0, "x", path, kind, compression, 0, 3 if kind == "parquet" else len(data), 0, None, None, None, None)
    calls = iter(range(1 << 30))
    unbroken = _StoreThatBreaks(calls, 1 << 30, error)
    monkeypatch.setattr(filesystem, "store_of", lambda _: unbroken)
    batches = list(read_item(item, config(), 1, BYTES))
    assert not dead(batches)
    assert len(records(batches)) == {"jsonl": 20, "text": 1, "parquet": 3}[kind]
    needed = next(calls)
    assert needed > 1
    for good_calls in range(needed):
        breaking = _StoreThatBreaks(iter(range(1 << 30)), good_calls, error)
        monkeypatch.setattr(filesystem, "store_of", lambda _, store=breaking: store)
        with pytest.raises(
            ThresherError, match=r"^x: cannot be read at the moment \(.+\); run the same command again$"
        ):
            list(read_item(item, config(), 1, BYTES))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
def test_short_memory_is_no_dead_letter(tmp_path: Path) -> None:
    """A frame with a window of 128 MiB, read by a process that may take little more than it has."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = write(tmp_path, packed.compress(b'{"text":"x"}\n' * 20_000) + packed.flush(), "x.jsonl.zst")
    assert len(records(read(path))) == 20_000
    script = """
import resource, sys
from corpus.inputs import InputConfig
from corpus.planning_types import Item
from corpus.readers import read_item
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (100 << 20),) * 2)
item = Item(0, "x", sys.argv[1], "jsonl", "zst", 0, 0, 0, None, None, None, None)
list(read_item(item, InputConfig(files=["x"]), 100, 1 << 20))
"""
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    last = run.stderr.splitlines()[-1]
    assert last.startswith("corpus.errors.ThresherError: x: cannot be read at the moment (")
    assert "not enough memory" in last


def deeper(levels: int, work: Callable[[], Any]) -> Any:
    """Call something from further down the stack."""
    return work() if not levels else deeper(levels - 1, work)


NESTED = {
    "written": b"[" * 253 + b"]" * 253,
    "not written": b"[" * 254 + b"]" * 254,
    "not read": b"[" * 1024 + b"]" * 1024,
    "objects": b'{"a":' * 254 + b"1" + b"}" * 254,
    "exact": b"[" * 253 + b"1" * 30 + b"]" * 253,
    "exact and too deep": b"[" * 254 + b"1" * 30 + b"]" * 254,
    "half a pair": b"[" * 253 + b'"\\ud800"' + b"]" * 253,
    "half a pair and too deep": b"[" * 500 + b'"\\ud800"' + b"]" * 500,
    "broken": b"[" * 253 + b"]" * 252,
    "a text": b'"' + b"[{" * 1000 + b'\\"[\\\\"',
    "given up for another": b"[" * 400 + b"]" * 400 + b',"n":1',
    "given up for an exact one": b"[" * 400 + b"]" * 400 + b',"n":' + b"1" * 30,
}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *((name, None) for name in ("written", "exact", "a text", "given up for another")),
        *((name, "nested too deeply") for name in ("not written", "not read", "objects", "exact and too deep",
                                                   "half a pair and too deep", "given up for an exact one")),
        ("half a pair", "half a surrogate pair"),
        ("broken", "is not JSON"),
    ],
)  # fmt: skip
def test_nesting_is_bounded_wherever_it_is_read(tmp_path: Path, name: str, error: str | None) -> None:
    path = write(tmp_path, b'{"text":"x","n":' + NESTED[name] + b',"m":1}\n')
    found = []
    for levels in (0, 300, 600, 750):
        (batch,) = deeper(levels, lambda: read(path))
        found.append((batch.records.to_pylist(), batch.dead.to_pylist()))
    assert all(one == found[0] for one in found)
    rows, letters = found[0]
    assert len(rows) == (error is None)
    for letter in letters:
        assert error is not None
        assert error in letter["detail"]
        assert letter["error"] == ("invalid_unicode" if "surrogate" in error else "malformed_json")


def test_nested_ids(tmp_path: Path) -> None:
    line = b'{"text":"x","id":' + NESTED["written"] + b"}\n"
    path = write(tmp_path, line + b'{"text":"x","id":' + NESTED["exact"] + b"}\n")
    for levels in (0, 750):
        ids = [row["record_id"] for row in records(deeper(levels, lambda: read(path, id_column="id")))]
        assert ids == [NESTED["written"].decode(), NESTED["exact"].decode()]


@pytest.mark.parametrize("unit", ["x", "ü", "水", "😀"])
def test_long_ids_and_sources(tmp_path: Path, unit: str) -> None:
    fits = unit * (4096 // len(unit.encode()))
    fits += "x" * (4096 - len(fits.encode()))
    rows = [{"id": fits, "s": fits}, {"id": fits + "x", "s": "a"}, {"id": "b", "s": fits + "x"}, {"s": [fits]}]
    rows += [{"s": fits + "x", "text": None}]
    path = write(tmp_path, "".join(json.dumps({"text": "t", **row}) + "\n" for row in rows).encode())
    batches = read(path, id_column="id", source_column="s")
    assert [(row["record_id"], row["source"]) for row in records(batches)] == [(fits, fits)]
    letters = [(row["source"], row["error"]) for row in batches[0].dead.to_pylist()]
    assert letters == [("a", "id_too_long"), (None, "source_too_long"), (None, "source_too_long"), (None, "null_text")]
    assert "id is longer than 4096 bytes; shorten it" in batches[0].dead.column("detail")[0].as_py()
    assert len(records(read(path, columns=[]))) == 4


def test_batches_count_what_every_row_takes(tmp_path: Path) -> None:
    """Records without text to speak of, and dead letters without bytes to speak of."""
    data = b"".join(b'{"text":"","id":"%d%s"}\n1\n' % (index, b"x" * 50) for index in range(30_000))
    batches = read(write(tmp_path, data), 65_536, 1 << 20, id_column="id", source_column="id")
    for batch in batches:
        assert batch.records.nbytes + batch.dead.nbytes + batch.marks.nbytes <= 1 << 20
    assert sum(len(batch.records) + len(batch.dead) for batch in batches) == 60_000
    assert len(batches) < 60


def test_text_files(tmp_path: Path) -> None:
    data = "\ufeffeine Zeile\r\nund noch eine\n".encode()
    for name, content in (
        ("a.txt", data),
        ("b.txt.gz", gzip.compress(data[:10]) + gzip.compress(data[10:])),
        ("c.txt.zst", zstandard.compress(data)),
    ):
        (row,) = records(read(write(tmp_path, content, name)))
        assert row["text"] == "eine Zeile\r\nund noch eine\n"
        assert (row["record_id"], row["position"], row["characters"]) == (f"{name}#0", 0, 26)
        assert "json" not in row
    (row,) = records(read(write(tmp_path, b"", "d.txt")))
    assert (row["text"], row["input_failures"]) == ("", EMPTY_TEXT)
    assert dead(read(write(tmp_path, b"a\xff", "e.txt"))) == [(0, "invalid_utf8")]
    assert dead(read(write(tmp_path, gzip.compress(b"a" * 99)[:-4], "f.txt.gz"))) == [(None, "file_truncated")]
    long = read(write(tmp_path, gzip.compress(b" " * (MAX_LINE_BYTES + 1), 1), "g.txt.gz"))
    assert dead(long) == [(0, "line_too_long")]


def test_cases(shared: Path) -> None:
    cases = shared / "cases"
    marked, plain = (
        records(read(cases / "r01-bom-first-line" / f"{name}.jsonl", id_column="id")) for name in ("input", "plain")
    )
    assert [row["record_id"] for row in marked] == ["a1", "a2", "a3"]
    for key in ("text", "json", "content_hash"):
        assert [row[key] for row in marked] == [row[key] for row in plain]
    (row,) = records(read(cases / "r01-bom-first-line/input.txt"))
    assert row["text"] == "Only line of a text file.\n"

    batches = read(cases / "r05-not-an-object/input.jsonl", id_column="id")
    assert [row["record_id"] for row in records(batches) if not row["input_failures"]] == ["k01", "k11", "12", "k13"]
    assert [row["position"] for row in records(batches) if row["input_failures"] == EMPTY_TEXT] == [223]
    assert dead(batches) == [
        *((position, "not_an_object") for position in (31, 41, 56, 59)),
        (64, "null_text"),
        (89, "missing_text"),
        *((position, "wrong_type") for position in (102, 125, 161, 198)),
        *((position, "malformed_json") for position in (246, 276, 420)),
    ]

    ids = [row["record_id"] for row in records(read(cases / "r07-big-int-ids/input.jsonl", id_column="id"))]
    big = ["9007199254740993", None, "9007199254740992", "9223372036854775807", "1", "4611686018427387905"]
    assert [one if wanted else None for one, wanted in zip(ids, big, strict=True)] == big
    ids = [row["record_id"] for row in records(read(cases / "r07-big-int-ids/beyond.jsonl", id_column="id"))]
    assert ids == ["18446744073709551615", "1180591620717411303424", "00042"]

    members = cases / "r09-gz-members"
    expected = {
        "members": (["g0", "g1", "g2", "g3", "g4"], []),
        "garbage": (["g0", "g1", "g2", "g3", "g4"], [(None, "file_corrupt")]),
        "truncated": (["g9", "g10", "g5", "g6", "g7"], [(None, "file_truncated")]),
        "badcrc": (["g11", "g12"], [(None, "file_corrupt")]),
        "plain": ([], [(None, "file_corrupt")]),
    }
    for name, (wanted, errors) in expected.items():
        batches = read(members / f"{name}.jsonl.gz", id_column="id")
        assert ([row["record_id"] for row in records(batches)], dead(batches)) == (wanted, errors)

    batches = read(cases / "r13-lone-surrogate/input.jsonl", id_column="id")
    assert [row["record_id"] for row in records(batches)] == ["u3", "u5", "u6", "u8", "u9"]
    assert records(batches)[1]["characters"] == 15
    assert [error for _, error in dead(batches)] == ["invalid_unicode"] * 4


@pytest.mark.parametrize(("rows", "size"), [(ROWS, BYTES), (1, 1)])
def test_huge_lines(tmp_path: Path, rows: int, size: int) -> None:
    big = "".join(f"w{index % 99991:05d} " for index in range(3_500_000))[:24_000_000]
    lines = [{"id": "h1", "text": "short before"}, {"id": "h2", "text": big}, {"id": "h3", "text": "水" * 4_000_000}]
    lines.append({"id": "h4", "text": "short after"})
    path = write(tmp_path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines).encode())
    assert len(plan_input(config(files=[str(path)])).items) > 0
    found = records(read(path, rows, size, id_column="id"))
    assert [(row["record_id"], row["characters"], row["bytes"], row["input_failures"]) for row in found] == [
        ("h1", 12, 12, 0),
        ("h2", 24_000_000, 24_000_000, OVER_SIZE),
        ("h3", 4_000_000, 12_000_000, 0),
        ("h4", 11, 11, 0),
    ]
    whole = Item(0, "x.jsonl", str(path), "jsonl", None, 0, 0, 0, None, None, None, None)
    borders = [0, 10, 1000, 9_000_000, 20_000_000, 30_000_000, path.stat().st_size]
    seen = [
        row["position"]
        for start, end in pairwise(borders)
        for batch in read_item(replace(whole, start=start, end=end), config(), rows, size)
        for row in batch.records.to_pylist()
    ]
    assert seen == [row["position"] for row in found]
