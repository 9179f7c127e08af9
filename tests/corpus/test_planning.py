"""Which files an input has, and the items in which they are read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from random import Random

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pydantic import ValidationError

from corpus import filesystem, planning
from corpus.errors import ThresherError, UsageError
from corpus.inputs import InputConfig
from corpus.planning import InputPlan, plan_input
from corpus.planning_files import display_names
from corpus.readers import read_item


def plan(*files: str | Path, **settings: object) -> InputPlan:
    return plan_input(InputConfig.model_validate({"files": [str(file) for file in files], **settings}))


def names(*files: str | Path) -> list[str]:
    return [file.file for file in plan(*files).files]


def texts(found: InputPlan, **settings: object) -> list[str]:
    config = InputConfig.model_validate({"files": ["x"], **settings})
    return [
        text
        for item in found.items
        for batch in read_item(item, config, 100, 1 << 20)
        for text in batch.records.column("text").to_pylist()
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for index, name in enumerate(
        ["[v1] raw data/part 0.jsonl", "[v1] raw data/part#1?x=1.jsonl", "[v1] raw data/_part2.jsonl",
         "[v1] raw data/.part3.jsonl", "100%/télé.jsonl", "100%/a*b.jsonl", "plain/s3:x.jsonl"]
    ):  # fmt: skip
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"text":"f{index}"}}\n')
    return tmp_path / "data"


def test_literal_paths_win_over_patterns(tree: Path) -> None:
    everything = sorted(path for path in tree.rglob("*.jsonl"))
    assert len(everything) == 7
    for path in everything:
        assert names(path) == [path.name]
        assert names(path.as_uri()) == [path.name]
    assert texts(plan(tree / "100%/a*b.jsonl")) == ["f5"]


def test_patterns_match_as_in_a_shell(tree: Path) -> None:
    assert sorted(texts(plan(tree / "[[]v1] raw data/*.jsonl"))) == ["f0", "f1", "f2"]
    assert sorted(texts(plan(tree / "*/*.jsonl"))) == ["f0", "f1", "f2", "f4", "f5", "f6"]
    assert sorted(texts(plan(tree / "**/*.jsonl"))) == ["f0", "f1", "f2", "f4", "f5", "f6"]
    assert sorted(texts(plan(tree / "**"))) == ["f0", "f1", "f2", "f4", "f5", "f6"]
    assert texts(plan(tree / "**/.*.jsonl")) == ["f3"]
    assert sorted(texts(plan(tree / "1*"))) == ["f4", "f5"]
    with pytest.raises(UsageError, match=r"matches no file; a literal bracket is written \[\[\]"):
        plan(tree / "[v1] raw data/*.jsonl")


def test_a_folder_stands_for_all_files_below(tree: Path) -> None:
    (tree / "README").write_text("no input")
    (tree / "gone.jsonl").symlink_to("nowhere")
    (tree / "itself").symlink_to(tree)
    os.mkfifo(tree / "pipe.jsonl")
    found = plan(tree)
    assert [file.file for file in found.files] == sorted(
        path.relative_to(tree).as_posix() for path in tree.rglob("*.jsonl") if path.is_file()
    )
    assert found.left_out == (
        "README: unknown suffix",
        "gone.jsonl: a link that points to nothing",
        "pipe.jsonl: neither a file nor a folder",
    )
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        plan(tree / "pipe.jsonl")


def test_equal_physical_files_are_read_once(tmp_path: Path) -> None:
    for year in ("2021", "2022"):
        (tmp_path / year).mkdir()
        (tmp_path / year / "part.jsonl").write_text(f'{{"text":"{year}"}}\n')
    wanted = ["2021/part.jsonl", "2022/part.jsonl"]
    assert names(tmp_path / "*/part.jsonl", tmp_path / "2021/part.jsonl") == wanted
    (tmp_path / "1.jsonl").symlink_to("2021/part.jsonl")
    (tmp_path / "a").symlink_to("2022")
    assert names(tmp_path) == wanted
    assert names(tmp_path / "1.jsonl", tmp_path) == wanted
    assert names(tmp_path / "1.jsonl") == ["1.jsonl"]
    os.link(tmp_path / "2022/part.jsonl", tmp_path / "2021/other.jsonl")
    assert names(tmp_path) == ["other.jsonl", "part.jsonl"]  # the common folder is 2021 now


def test_order_of_the_entries_does_not_matter(tree: Path) -> None:
    entries = [tree / "plain", tree / "100%", tree / "[v1] raw data"]
    assert plan(*entries) == plan(*entries[::-1])


def test_relative_paths_start_at_the_current_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert texts(plan("plain/s3:x.jsonl")) == ["f6"]
    assert sorted(texts(plan("100%/*"))) == ["f4", "f5"]


@pytest.mark.parametrize("entry", ["no_such_*.jsonl", "missing.jsonl", "nothing/", "plain/*.parquet", "other/**"])
def test_each_entry_must_match(tree: Path, entry: str) -> None:
    (tree / "nothing").mkdir()
    (tree / "nothing" / "README").write_text("no input")
    with pytest.raises(UsageError) as error:
        plan(tree / "plain/s3:x.jsonl", f"{tree}/{entry}")
    assert f"{tree}/{entry}" in str(error.value)


def test_unknown_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(UsageError, match=r"x\.csv: unknown suffix; known are \.parquet, \.jsonl, \.ndjson and \.txt"):
        plan(tmp_path / "x.csv")
    for name, expected in {
        "a.JSONL": ("jsonl", None),
        "a.ndjson.gz": ("jsonl", "gz"),
        "a.txt.zst": ("text", "zst"),
        "a.Parquet": ("parquet", None),
        "a.parquet.gz": None,
        "a.gz": None,
    }.items():
        assert planning.format_of(name) == expected


def test_stores_and_local_files_together(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for name in ("a b.jsonl", "a?b.jsonl", "sub/c.jsonl", ".hidden.jsonl"):
        store.pipe(f"/bucket-p/{name}", b'{"text":"remote"}\n')
    assert names("memory://bucket-p/*.jsonl") == ["a b.jsonl", "a?b.jsonl"]
    assert names("memory://bucket-p/a?b.jsonl") == ["a?b.jsonl"]
    assert names("MEMORY://bucket-p") == [".hidden.jsonl", "a b.jsonl", "a?b.jsonl", "sub/c.jsonl"]
    assert texts(plan("memory://bucket-p/**/*.jsonl")) == ["remote"] * 3
    (tmp_path / "x.jsonl").write_text('{"text":"local"}\n')
    assert names(tmp_path / "x.jsonl", "memory://bucket-p/sub/") == ["memory://bucket-p/sub/c.jsonl", "x.jsonl"]
    with pytest.raises(UsageError, match="no such file"):
        plan("memory://bucket-p/none.jsonl")


def test_file_names_that_are_not_unicode(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    with open(path, "wb") as handle:
        handle.write(b'{"text":"x"}\n')
    found = plan(tmp_path)
    assert [file.file for file in found.files] == ["\\xff.jsonl"]
    assert texts(InputPlan.from_json(found.to_json())) == ["x"]


def test_json_round_trip(tree: Path) -> None:
    (tree / "bad.parquet").write_bytes(b"nothing")
    found = plan(tree)
    assert InputPlan.from_json(found.to_json()) == found
    assert [file.likely_rows for file in found.files if file.file == "bad.parquet"] == [0]


@pytest.mark.parametrize("rows", [0, 1, 2, 300, 20_000])
def test_likely_rows(tmp_path: Path, rows: int) -> None:
    random = Random(rows)
    data = b"".join(b'{"text":"%x"}\n' % random.getrandbits(random.randint(10, 900)) for _ in range(rows))
    half = len(data) // 2
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    (tmp_path / "d.jsonl.zst").write_bytes(zstandard.compress(data))
    (tmp_path / "e.jsonl.zst").write_bytes(zstandard.compress(data[:half]) + zstandard.compress(data[half:]))
    (tmp_path / "f.txt").write_bytes(data)
    pq.write_table(pa.table({"text": pa.array(["x"] * rows, pa.string())}), tmp_path / "g.parquet")
    found = {file.file: file.likely_rows for file in plan(tmp_path).files}
    assert found.pop("f.txt") == 1
    assert found.pop("g.parquet") == rows
    for name, count in found.items():
        # A few hundred lines fit into the 64 KiB that are looked at.
        assert count == max(1, rows) if rows < 1000 else 0.8 * rows < count < 1.25 * rows, name


def test_likely_rows_of_odd_files(tmp_path: Path) -> None:
    one = b'{"text":"' + b"x" * 300_000 + b'"}'
    members = b"".join(gzip.compress(b'{"text":"record %d"}\n' % index) for index in range(5000))
    files = {
        "a.jsonl": (one, 1, 1),
        "b.jsonl": (b'{"text":"a"}\n{"text":"b"}', 2, 2),
        "c.jsonl.gz": (members, 4800, 5200),
        "d.jsonl.gz": (b"no gzip", 1, 1),
        "e.jsonl.gz": (gzip.compress(b"{}\n" * 7)[:-9], 1, 7),
        "f.jsonl.zst": (b"no zstd", 1, 1),
        "g.jsonl.zst": (zstandard.compress(b"\n" * (1 << 28)), 1 << 27, 1 << 29),
    }
    for name, (data, _, _) in files.items():
        (tmp_path / name).write_bytes(data)
    found = {file.file: file.likely_rows for file in plan(tmp_path).files}
    for name, (_, least, most) in files.items():
        assert least <= found[name] <= most, name


class _FaultyStore:
    """A store whose files raise an error when they are opened."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.store = fsspec.filesystem("memory")

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def open(self, *_: object, **__: object) -> object:
        raise self.error


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_what_may_pass_is_no_fault_of_a_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("memory").pipe(f"/bucket-t/{name}", b"{}")
    for error in (OSError(5, "x"), ConnectionResetError(104, "x"), TimeoutError("x"), MemoryError("x")):
        monkeypatch.setattr(filesystem, "store_of", lambda _, error=error: _FaultyStore(error))
        with pytest.raises(ThresherError, match=rf"{name}: cannot be read at the moment \(.+\); run the same command"):
            plan(f"memory://bucket-t/{name}")
    for error in (FileNotFoundError(2, "x"), PermissionError(13, "x")):
        monkeypatch.setattr(filesystem, "store_of", lambda _, error=error: _FaultyStore(error))
        (item,) = plan(f"memory://bucket-t/{name}").items
        assert (item.format, item.error) == ("fault", "file_unreadable")


def test_large_jsonl_is_cut_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ITEM_BYTES", 1000)
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"text":"record {index}"}}\n' for index in range(500)))
    found = plan(path)
    size = path.stat().st_size
    assert len(found.items) == round(size / 1000)
    assert [item.start for item in found.items[1:]] == [item.end for item in found.items[:-1]]
    assert (found.items[0].start, found.items[-1].end) == (0, size)
    assert [item.index for item in found.items] == list(range(len(found.items)))
    assert texts(found) == [f"record {index}" for index in range(500)]


def test_row_groups_share_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": [f"record {index}" for index in range(100)]}), path, row_group_size=10)
    assert len(plan(path).items) == 1
    size = pq.ParquetFile(path).metadata.row_group(1).total_byte_size
    monkeypatch.setattr(planning, "ITEM_BYTES", 3 * size + 10)
    found = plan(path)
    assert [(item.start, item.end, item.first_row, item.rows) for item in found.items] == [
        (0, 3, 0, 30),
        (3, 6, 30, 30),
        (6, 9, 60, 30),
        (9, 10, 90, 10),
    ]
    assert texts(found) == [f"record {index}" for index in range(100)]


@pytest.mark.parametrize("limit", range(33))
def test_limit_reads_the_first_records(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ITEM_BYTES", 40)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_text("\n" + "".join(f'{{"text":"b{index}"}}\n\n' for index in range(10)))
    (tmp_path / "c.jsonl.gz").write_bytes(
        gzip.compress(b"".join(b'{"text":"c%d"}\n' % index for index in range(10)))[:-3]
    )
    pq.write_table(pa.table({"text": [f"d{index}" for index in range(10)]}), tmp_path / "d.parquet", row_group_size=3)
    everything = ["a", *(f"{letter}{index}" for letter in "bcd" for index in range(10))]
    found = plan(tmp_path, limit=limit)
    assert texts(found) == everything[:limit]
    assert len(found.files) == 4
    assert len(found.items) >= 1


def test_faulty_files_are_items_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"text":"x"}\n')
    (tmp_path / "a.parquet").write_bytes(b"")
    (tmp_path / "b.parquet").write_bytes(b"<!DOCTYPE html>")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and no end")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 footer\xff\xff\xff\x7fPAR1")
    (tmp_path / "e.jsonl").write_bytes(gzip.compress(b"{}"))
    pq.write_table(pa.table({"Text": ["x"]}), tmp_path / "f.parquet")
    found = plan(tmp_path)
    errors = [(item.file, item.error) for item in found.items if item.format == "fault"]
    assert errors == [
        ("a.parquet", "file_truncated"),
        ("b.parquet", "file_corrupt"),
        ("c.parquet", "file_truncated"),
        ("d.parquet", "file_corrupt"),
        ("e.jsonl", "file_corrupt"),
        ("f.parquet", "wrong_columns"),
    ]
    config = InputConfig(files=["x"])
    for item in found.items:
        (batch,) = read_item(item, config, 10, 100)
        assert batch.last
        if item.format == "fault":
            assert [(row["position"], row["error"]) for row in batch.dead.to_pylist()] == [(None, item.error)]
            assert len(batch.records) == 0


def test_columns_that_no_file_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"], "id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    assert len(plan(tmp_path, id_column="id").items) == 2
    with pytest.raises(UsageError, match=r"input\.id_column: no file has a column idd"):
        plan(tmp_path, id_column="idd")
    with pytest.raises(UsageError, match=r"input\.columns: no file has a column urk"):
        plan(tmp_path, columns=["urk"])
    with pytest.raises(UsageError, match="there is no column body; its columns are: text, id"):
        plan(tmp_path, text_column="body")
    with pytest.raises(ValidationError, match=r"'string', 'int64', 'float64', 'bool' or 'json'"):
        plan(tmp_path, columns={"id": "int"})


def test_text_files_are_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"a\.txt: a text file is one document"):
        plan(tmp_path, prompt_column="p", response_column="r")


def test_cases(shared: Path) -> None:
    cases = shared / "cases"
    for entry in ("no_such_*.jsonl", "folder_without_data/", "missing.jsonl"):
        with pytest.raises(UsageError) as error:
            plan(cases / "r17-glob-nothing" / "input.jsonl", f"{cases}/r17-glob-nothing/{entry}")
        assert entry in str(error.value)
    empty = plan(cases / "r17-glob-nothing/empty.jsonl")
    assert (texts(empty), empty.files[0].error) == ([], None)
    for entry in ("r18-key-value-path/data", "r18-key-value-path/data/**/*.parquet"):
        assert names(cases / entry) == ["source=0042/lang=no/part.parquet", "source=9319/lang=no/part.parquet"]
    with pytest.raises(UsageError, match=r"d_no_columns\.parquet: there is no column text"):
        plan(cases / "r11-parquet-zero-groups/d_no_columns.parquet")
    assert len(plan(cases / "r11-parquet-zero-groups/c_many_groups.parquet").items) == 1
    for name in ("int", "list", "capital", "twice"):
        with pytest.raises(UsageError, match=rf"{name}\.parquet: .*[Tt]ext.*wanted|{name}\.parquet: .*columns are"):
            plan(cases / f"r20-text-column-types/{name}.parquet")
    years = ["2021/part.jsonl", "2022/part.jsonl", "2023/part.jsonl"]
    data = cases / "w03-same-file-names/data"
    assert names(data / "*/part.jsonl", data / "2021/part.jsonl") == names(*(data / year for year in years)) == years


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/d/2021/part.jsonl", "/d/x.jsonl"], ["2021/part.jsonl", "x.jsonl"]),
        (["/d/x.jsonl", "/d/e/f/x.jsonl", "/d/e/x.jsonl"], ["x.jsonl", "e/f/x.jsonl", "e/x.jsonl"]),
        (["/d/e/x.jsonl"], ["x.jsonl"]),
        (["/a/x.jsonl", "/b/x.jsonl"], ["a/x.jsonl", "b/x.jsonl"]),
        ([], []),
    ],
)
def test_display_names_start_below_the_longest_common_folder(paths: list[str], names: list[str]) -> None:
    assert display_names(paths) == names
