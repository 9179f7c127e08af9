"""Paths and URIs."""

from __future__ import annotations

import sys
from pathlib import Path

import fsspec
import pytest

from corpus.errors import UsageError
from corpus.filesystem import files_at, locate, open_file, open_random, redact


def test_local_paths_stand_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("a/literal%20percent#x?y.jsonl") == f"{tmp_path}/a/literal%20percent#x?y.jsonl"
    assert locate("./a//b/") == f"{tmp_path}/a/b"
    assert locate("s3:x.jsonl") == f"{tmp_path}/s3:x.jsonl"


def test_file_uri_is_percent_decoded(tmp_path: Path) -> None:
    for name in ("space dir", "literal%20percent", "hash#dir", "plus+dir", "quest?dir", "télé"):
        assert locate((tmp_path / name).as_uri()) == str(tmp_path / name)
    assert locate(f"file://localhost{tmp_path}/raw blank") == f"{tmp_path}/raw blank"
    with pytest.raises(UsageError, match="absolute path"):
        locate("file://relative/x.jsonl")


def test_parent_of_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    assert locate(f"{tmp_path}/link/../x.jsonl") == f"{tmp_path}/deep/x.jsonl"


def test_remote_keys_stand_as_they_are() -> None:
    for key in ("a b", "a+b", "a#b", "a?b", "a%20b"):
        assert locate(f"s3://bucket/{key}.jsonl") == f"s3://bucket/{key}.jsonl"
    assert locate("S3://bucket/key") == "s3://bucket/key"
    assert locate("hf://datasets/user/name@main/x.parquet") == "hf://datasets/user/name@main/x.parquet"


def test_unknown_scheme_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"unknown scheme s4://; known are local paths, file://, s3://, gs://, hf://"):
        locate("s4://x/y")


@pytest.mark.parametrize("entry", ["", "s3://", "s3:///"])
def test_entries_without_a_name(entry: str) -> None:
    with pytest.raises(UsageError):
        locate(entry)


@pytest.mark.parametrize(
    "entry",
    [
        "s3://KEY:SECRET@bucket/x",
        "s3://KEY:SEC/RET@bucket/x",
        "S3://SECRET@bucket/x",
        "s4://KEY:SECRET@bucket/x",
        "http://host/x?X-Amz-Signature=SECRET&a=b",
        "http://host/x?a=b&token=SECRET",
    ],
)
def test_secrets_are_refused_and_not_shown(entry: str) -> None:
    with pytest.raises(UsageError) as refusal:
        locate(entry)
    assert "SEC" not in str(refusal.value)
    assert "***" in redact(entry)


def test_redact_leaves_names_alone() -> None:
    for entry in ("a@b.jsonl", "s3://bucket/a@b?c=d.jsonl", "s3://arn:aws:s3:eu:1:accesspoint/x/a@b"):
        assert redact(entry) == entry


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UsageError, match=r"gs://.*thresher\[cloud\]"):
        files_at("gs://bucket/x")


def test_remote_files() -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/bucket-f/dir/a b.jsonl", b"0123456789")
    store.pipe("/bucket-f/dir/sub/c.jsonl", b"x")
    path = "memory://bucket-f/dir/a b.jsonl"
    files = files_at(path)
    info = files.stat(path)
    assert info is not None
    assert (info.path, info.kind, info.size) == (path, "file", 10)
    assert info.modified
    assert [(one.name, one.kind) for one in files.list("memory://bucket-f/dir")] == [
        ("a b.jsonl", "file"),
        ("sub", "folder"),
    ]
    assert files.stat("memory://bucket-f/nothing") is None
    assert files.list("memory://bucket-f/nothing") == []
    with open_file(path, 4) as handle:
        assert handle.read() == b"456789"
    with open_random(path) as handle:
        handle.seek(8)
        assert handle.read() == b"89"


def test_local_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"abc")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("nothing")
    files = files_at(str(tmp_path))
    members = files.list(str(tmp_path))
    assert [(one.name, one.kind, one.link) for one in members] == [
        ("a", "folder", False),
        ("b.txt", "file", False),
        ("c", "broken", True),
    ]
    assert members[1].size == 3
    assert members[1].modified == str((tmp_path / "b.txt").stat().st_mtime_ns)
    assert files.stat(f"{tmp_path}/none") is None
    with pytest.raises(UsageError, match="cannot be listed"):
        files.list(f"{tmp_path}/none")
