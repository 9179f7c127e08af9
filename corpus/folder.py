"""A run folder, local or on an object store: whole files appear under their names, or nothing does.

Local files are written under a temporary name, flushed to disk and renamed. Object stores have no rename, but an
upload appears only when it is complete: there a file is made on the local disk and uploaded under its own name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from corpus.errors import ThresherError
from corpus.filesystem import key_of, scheme_of, store_of

TEMPORARY = ".tmp-"


class Folder:
    """Files below one root; names are relative, with forward slashes.

    Args:
        root: a local path, or a URI that fsspec knows (s3://, gs://, memory://).
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        self.is_local = scheme_of(root) == "file"
        self._file_system: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "is_local": self.is_local, "_file_system": None}

    def path(self, name: str) -> str:
        """Return the full path or URI of a name."""
        return f"{self.root}/{name}" if name else self.root

    def _key(self, name: str) -> str:
        return key_of(self.path(name))

    def _remote(self) -> Any:
        if self._file_system is None:
            self._file_system = store_of(scheme_of(self.root))
        return self._file_system

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Give a binary file that appears under its name when the block ends without an error."""
        if not self.is_local:
            # Not every store's client leaves the old object alone when a write is given up half way.
            with tempfile.NamedTemporaryFile(prefix="thresher-") as file:
                yield cast("IO[bytes]", file)
                file.flush()
                self._remote().put_file(file.name, self._key(name))
            return
        target = Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{TEMPORARY}{os.getpid()}-{target.name}")
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ThresherError(
                f"{target}: cannot be written ({error.strerror or error}); make room or rights"
            ) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a whole file."""
        with self.writing(name) as file:
            file.write(data)

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""
        if self.is_local:
            return Path(self.path(name)).read_bytes()
        return cast(bytes, self._remote().cat_file(self._key(name)))

    def open_arrow(self, name: str) -> pa.NativeFile:
        """Open a file for Arrow readers; local files are memory-mapped."""
        if self.is_local:
            return pa.memory_map(self.path(name))
        return pa.BufferReader(self.read_bytes(name))

    def exists(self, name: str = "") -> bool:
        """Say whether a file or folder is there."""
        if self.is_local:
            return Path(self.path(name)).exists()
        return bool(self._remote().exists(self._key(name)))

    def names(self, below: str = "") -> list[str]:
        """Return the names of all files below a folder, sorted; empty where the folder is not there."""
        if self.is_local:
            start = Path(self.path(below))
            root = Path(self.root)
            found = [
                (Path(parent) / file).relative_to(root).as_posix()
                for parent, _, files in os.walk(start)
                for file in files
            ]
            return sorted(found)
        prefix = key_of(self.root).strip("/") + "/"
        paths = (str(path).lstrip("/") for path in self._remote().find(self._key(below)))
        return sorted(path.removeprefix(prefix) for path in paths)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.is_local:
            Path(self.path(name)).unlink(missing_ok=True)
        elif self.exists(name):
            self._remote().rm_file(self._key(name))

    def remove_tree(self, name: str) -> None:
        """Remove a folder below the root and all that is in it."""
        if not name:
            raise ValueError("the run folder itself is never removed")
        if self.is_local:
            shutil.rmtree(self.path(name), ignore_errors=True)
        elif self.exists(name):
            self._remote().rm(self._key(name), recursive=True)

    def remove_empty_folders(self) -> None:
        """Remove local folders without files; object stores have none."""
        if self.is_local:
            for parent, _, _ in sorted(os.walk(self.root), reverse=True):
                if parent != self.root and not os.listdir(parent):
                    Path(parent).rmdir()
