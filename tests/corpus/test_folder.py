"""Files of a run folder are whole or not there, on disks and on object stores."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpus.errors import ThresherError
from corpus.folder import Folder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def test_files_are_written_listed_and_removed(folder: Folder) -> None:
    folder.write_bytes("a/b.bin", b"one")
    folder.write_bytes("a/c/d.bin", b"two")
    assert folder.names() == ["a/b.bin", "a/c/d.bin"]
    assert folder.names("a/c") == ["a/c/d.bin"]
    assert folder.names("nothing") == []
    assert folder.read_bytes("a/c/d.bin") == b"two"
    with folder.open_arrow("a/b.bin") as file:
        assert file.read() == b"one"
    folder.remove("a/b.bin")
    folder.remove("a/b.bin")
    folder.remove("a/c/d.bin")
    folder.remove_empty_folders("a")
    assert folder.names() == []
    assert not folder.is_local or not folder.exists("a")
    assert not folder.exists("a/b.bin")


def test_a_failed_write_leaves_the_old_file(folder: Folder) -> None:
    folder.write_bytes("x.bin", b"whole")

    def write_half() -> None:
        with folder.writing("x.bin") as file:
            file.write(b"hal")
            raise RuntimeError("the power went away")

    with pytest.raises(RuntimeError, match="power"):
        write_half()
    assert folder.names() == ["x.bin"]
    assert folder.read_bytes("x.bin") == b"whole"


def test_a_folder_that_is_lost_while_a_file_is_written_is_one_error(tmp_path: Path) -> None:
    """The half file cannot be removed either, which must not hide why."""
    folder = Folder(str(tmp_path))

    def write() -> None:
        with folder.writing("a/x.bin") as file:
            file.write(b"half")
            (tmp_path / "a").rename(tmp_path / "b")
            (tmp_path / "a").write_bytes(b"")

    for _ in range(2):
        with pytest.raises(ThresherError, match=r"a/x\.bin: cannot be written \(.+\); make room or rights"):
            write()


def test_a_missing_file_is_file_not_found(folder: Folder) -> None:
    with pytest.raises(FileNotFoundError):
        folder.read_bytes("no.bin")


def test_threads_may_write_the_same_file(folder: Folder) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: folder.write_bytes("same.bin", b"same" * 1000), range(100)))
    assert folder.names() == ["same.bin"]
    assert folder.read_bytes("same.bin") == b"same" * 1000
