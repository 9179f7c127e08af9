"""A run folder, local or on an object store: whole files appear under their names, or nothing does.

Local files are written under a temporary name, flushed to disk and renamed. Object stores have no rename, but an
upload appears only when it is complete: there a file is made on the local disk and uploaded under its own name.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from corpus.errors import ThresherError
from corpus.filesystem import key_of, scheme_of, store_of
from corpus.store_errors import describe, store_errors

TEMPORARY = ".tmp-"


class Folder:
    """Files below one root; names are relative, with forward slashes.

    Args:
        root: a local path, or a URI that fsspec knows (s3://, gs://, memory://).
        run: names one run, so that nobody takes files of an earlier run, kept in memory, for those of this one.
    """

    def __init__(self, root: str, run: str = "") -> None:
        self.root = root.rstrip("/") or "/"
        self.run = run
        self.is_local = scheme_of(root) == "file"
        self._file_system: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "run": self.run, "is_local": self.is_local, "_file_system": None}

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
    def writing(self, name: str, *, durable: bool = True) -> Iterator[IO[bytes]]:
        """Give a binary file that appears under its name when the block ends without an error.

        Args:
            durable: whether a local file is to outlive a crash of the machine from then on.
        """
        if not self.is_local:
            # Not every store's client leaves the old object alone when a write is given up half way.
            with tempfile.NamedTemporaryFile(prefix="thresher-") as file:
                yield cast("IO[bytes]", file)
                file.flush()
                self._upload(file.name, name)
            return
        target = Path(self.path(name))
        # Threads and containers that share a folder may write the same file at the same time.
        temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}-{target.name}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException as error:
            # Where that fails too, the half file goes when the run is resumed.
            with suppress(OSError):
                temporary.unlink()
            if not isinstance(error, OSError):
                raise
            raise ThresherError(
                f"{target}: cannot be written ({error.strerror or error}); make room or rights"
            ) from error

    def _upload(self, local: str, name: str) -> None:
        path = self.path(name)
        try:
            with store_errors(path, "cannot be written"):
                self._remote().put_file(local, self._key(name))
        except FileNotFoundError as error:
            raise ThresherError(describe(path, "cannot be written", error)) from error

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a whole file."""
        with self.writing(name) as file:
            file.write(data)

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""
        if self.is_local:
            return Path(self.path(name)).read_bytes()
        with store_errors(self.path(name), "cannot be read"):
            return cast(bytes, self._remote().cat_file(self._key(name)))

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from ``start`` to ``end``, or to its end. Raises FileNotFoundError."""
        if self.is_local:
            with Path(self.path(name)).open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        with store_errors(self.path(name), "cannot be read"):
            return cast(bytes, self._remote().cat_file(self._key(name), start=start, end=end))

    def open_arrow(self, name: str) -> pa.NativeFile:
        """Open a file for Arrow readers; local files are memory-mapped."""
        if self.is_local:
            return pa.memory_map(self.path(name))
        return pa.BufferReader(self.read_bytes(name))

    def exists(self, name: str = "") -> bool:
        """Say whether a file or folder is there."""
        if self.is_local:
            return Path(self.path(name)).exists()
        with store_errors(self.path(name), "cannot be asked for"):
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
        with store_errors(self.path(below), "cannot be listed"):
            paths = [str(path).lstrip("/") for path in self._remote().find(self._key(below))]
        return sorted(path.removeprefix(prefix) for path in paths)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.is_local:
            Path(self.path(name)).unlink(missing_ok=True)
        elif self.exists(name):
            with store_errors(self.path(name), "cannot be removed"):
                self._remote().rm_file(self._key(name))

    def remove_empty_folders(self, below: str) -> None:
        """Remove the local folders below a name, itself included, that hold no file; object stores have none."""
        if self.is_local:
            for parent, _, _ in sorted(os.walk(self.path(below)), reverse=True):
                with suppress(OSError):
                    Path(parent).rmdir()
