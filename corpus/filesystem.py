"""Files and folders for reading: local paths, ``file://`` URIs, and object stores through fsspec.

A local path is used as it stands; a ``file://`` URI is percent-decoded (RFC 8089). What follows ``s3://``, ``gs://`` or
``hf://`` is the key as it stands, so blanks, ``#``, ``?`` and ``%20`` mean themselves. Credentials come from the
environment as each store's own client reads it; a URI that carries some is refused, because URIs end up in configs,
plans and logs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, cast
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from corpus.errors import UsageError
from corpus.store_errors import CREDENTIALS, describe, is_missing_bucket

KNOWN_SCHEMES = ("file", "s3", "gs", "hf")
MEMORY_SCHEME = "memory"
REMOTE_READ_AHEAD = 8 << 20

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_USER = re.compile(r"(?!arn:)(?:[^/@]*|[^/:@]+:[^@]*)@")
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&?/]*(?:token|secret|key|sig|signature|password|credential|x-amz)[^=&/]*=)[^&]*", re.IGNORECASE
)

Kind = Literal["file", "folder", "broken", "other"]


@dataclass(frozen=True)
class FileInfo:
    """What a file system says about one path.

    Attributes:
        path: absolute local path, or ``scheme://key``; opens with ``open_file``.
        kind: ``broken`` is a link that points to nothing, ``other`` a device, pipe or socket.
        size: bytes of a file.
        modified: modification time in nanoseconds, or the store's ETag; equal as long as the file is unchanged.
        identity: equal for two paths of one physical file or folder.
        link: whether the path itself is a symbolic link.
    """

    path: str
    kind: Kind
    size: int
    modified: str
    identity: str
    link: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


class Files(Protocol):
    """What planning needs to know of a file system."""

    def stat(self, path: str) -> FileInfo | None:
        """Return what is at a path, links followed; None where there is nothing."""

    def list(self, folder: str) -> list[FileInfo]:
        """Return the members of a folder, sorted by path."""


class LocalFiles:
    """The local disk."""

    def stat(self, path: str) -> FileInfo | None:
        """Return what is at a path, links followed; None where there is nothing."""
        try:
            return _local_info(path, os.stat(path), Path(path).is_symlink())
        except PermissionError as error:
            raise UsageError(f"{path}: {error.strerror}; give this user access to the folders on the way") from None
        except (OSError, ValueError):
            return None

    def list(self, folder: str) -> list[FileInfo]:
        """Return the members of a folder, sorted by path."""
        members = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = f"{folder.rstrip('/')}/{entry.name}"
                    try:
                        members.append(_local_info(path, entry.stat(), entry.is_symlink()))
                    except OSError:
                        members.append(FileInfo(path, "broken", 0, "", path, True))
        except OSError as error:
            raise UsageError(f"{folder}: cannot be listed ({error.strerror}); give this user access to it") from None
        return sorted(members, key=lambda member: member.path)


def _local_info(path: str, status: os.stat_result, link: bool) -> FileInfo:
    kind: Kind = "other"
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    return FileInfo(path, kind, status.st_size, str(status.st_mtime_ns), f"{status.st_dev}:{status.st_ino}", link)


class RemoteFiles:
    """An object store behind fsspec."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.store = store_of(scheme)

    def stat(self, path: str) -> FileInfo | None:
        """Return what is at a path; None where there is nothing."""
        try:
            return self._info(self._ask(path, self.store.info))
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[FileInfo]:
        """Return the members of a folder, sorted by path; the marker object of the folder itself is none."""
        try:
            members = [self._info(member) for member in self._ask(folder, partial(self.store.ls, detail=True))]
        except FileNotFoundError:
            return []
        return sorted((one for one in members if one.path != folder.rstrip("/")), key=lambda member: member.path)

    def _ask(self, path: str, question: Callable[[str], Any]) -> Any:
        try:
            return question(key_of(path))
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise UsageError(describe(redact(path), "cannot be listed", error)) from None
            raise
        except Exception as error:  # each store's client has its own exceptions
            raise UsageError(describe(redact(path), "cannot be asked for", error)) from None

    def _info(self, info: dict[str, Any]) -> FileInfo:
        path = f"{self.scheme}://{info['name'].strip('/')}"
        kind: Kind = "folder" if info["type"] == "directory" else "file"
        marks = (info.get(key) for key in ("ETag", "etag", "blob_id", "mtime", "LastModified", "created"))
        modified = next((str(mark) for mark in marks if mark), "")
        return FileInfo(path, kind, info.get("size") or 0, modified, path, False)


def redact(entry: str) -> str:
    """Return a path or URI without the secrets that it carries, for messages."""
    match = _URI.fullmatch(entry)
    if not match:
        return entry
    rest = _USER.sub("***@", match[2], count=1) if _USER.match(match[2]) else match[2]
    return f"{match[1]}://" + _SECRET_PARAMETER.sub(r"\1***", rest)


def locate(entry: str) -> str:
    """Return the absolute path or the URI that an entry of ``input.files`` stands for, patterns untouched.

    Raises UsageError for a scheme that is unknown, a URI with credentials, or a ``file://`` URI that is not absolute.
    """
    match = _URI.fullmatch(entry)
    if not match:
        if not entry:
            raise UsageError("input.files: an entry is empty; give a file, a folder or a pattern")
        return _absolute(str(Path(entry).expanduser()) if entry.startswith("~/") else entry)
    scheme, rest = match[1].lower(), match[2]
    if scheme not in (*KNOWN_SCHEMES, MEMORY_SCHEME):
        known = ", ".join(f"{name}://" for name in KNOWN_SCHEMES)
        raise UsageError(f"{redact(entry)}: unknown scheme {match[1]}://; known are local paths, {known}")
    if scheme == "file":
        host, _, path = rest.partition("/")
        if host.lower() not in ("", "localhost"):
            raise UsageError(f"{redact(entry)}: a file:// URI holds an absolute path, file:///folder/file")
        return _absolute("/" + unquote(path, errors="surrogateescape"))
    if _USER.match(rest):
        raise UsageError(
            f"{redact(entry)}: credentials in a URI end up in configs and logs; take them out and give them through "
            f"the environment ({CREDENTIALS.get(scheme, 'the client of the store')})"
        )
    if not rest.strip("/"):
        raise UsageError(f"{entry}: name a bucket or repository after {scheme}://")
    return f"{scheme}://{rest.lstrip('/')}"


def _absolute(path: str) -> str:
    """Return a local path as an absolute one; ``..`` after a link leads to the parent of the link's target."""
    absolute = Path.cwd() / path
    parts = absolute.parts
    if ".." in parts:
        end = len(parts) - parts[::-1].index("..")
        absolute = Path(os.path.realpath(Path(*parts[:end])), *parts[end:])
    return absolute.as_posix()


def scheme_of(path: str) -> str:
    """Return the scheme of a path that ``locate`` gave; ``file`` for a local one."""
    match = _URI.fullmatch(path)
    return match[1] if match else "file"


def files_at(path: str) -> Files:
    """Return the file system of a path. Raises UsageError where the package for its scheme is missing."""
    scheme = scheme_of(path)
    return LocalFiles() if scheme == "file" else RemoteFiles(scheme)


@cache
def store_of(scheme: str) -> Any:
    """Return fsspec's file system for a scheme. Raises UsageError where its package is missing.

    It keeps no listings: other processes add files all the time.
    """
    try:
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        raise UsageError(
            f"{scheme}:// needs a package that is not installed ({error}); "
            "install it with: pip install 'thresher[cloud]'"
        ) from None


def key_of(path: str) -> str:
    """Return what follows ``scheme://``, as it stands."""
    return path.split("://", 1)[1]


def open_file(path: str, start: int = 0) -> BinaryIO:
    """Open a file for reading forward from a byte offset. Raises OSError or what the store's client raises."""
    if scheme_of(path) == "file":
        handle: BinaryIO = Path(path).open("rb", buffering=0)  # noqa: SIM115  # the caller closes it
    else:
        store = store_of(scheme_of(path))
        handle = cast(BinaryIO, store.open(key_of(path), "rb", block_size=REMOTE_READ_AHEAD, cache_type="readahead"))
    if start:
        handle.seek(start)
    return handle


def open_random(path: str) -> pa.NativeFile:
    """Open a file for reads at any offset, as pyarrow wants it. Raises OSError or what the store's client raises."""
    if scheme_of(path) == "file":
        return pa.OSFile(path, "r")
    return pa.PythonFile(store_of(scheme_of(path)).open(key_of(path), "rb", cache_type="none"), mode="r")
