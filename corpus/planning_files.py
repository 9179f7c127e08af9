"""Find the files that the entries of ``input.files`` name.

An entry that exists is taken literally; a folder stands for all files below it that have a known suffix; anything else
is a pattern, in which ``*``, ``?`` and ``[...]`` match within one part of the path, dot files only by a leading dot,
and ``**`` matches any number of folders. A folder that a pattern matches stands for its files like one named literally.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from corpus.errors import UsageError
from corpus.filesystem import FileInfo, Files, files_at, locate, redact, scheme_of
from corpus.planning_types import Compression, Format

_FORMATS: dict[str, Format] = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text"}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".zst": "zst"}
KNOWN_SUFFIXES = ".parquet, .jsonl, .ndjson and .txt, the last three also with .gz or .zst after them"
_MAGIC = re.compile(r"[*?\[]")


@dataclass
class Search:
    """What a search has found so far: files by identity, and paths left out with the reason."""

    found: list[FileInfo] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def format_of(name: str) -> tuple[Format, Compression | None] | None:
    """Return format and compression that a file name's suffix says, in any case of letters; None if it is unknown."""
    stem, suffix = os.path.splitext(name.lower())
    compression = _COMPRESSIONS.get(suffix)
    if compression is not None:
        suffix = os.path.splitext(stem)[1]
    kind = _FORMATS.get(suffix)
    if kind is None or (kind == "parquet" and compression is not None):
        return None
    return kind, compression


def find_files(entries: list[str]) -> tuple[list[FileInfo], dict[str, str]]:
    """Return the files that entries name, each physical file once, and what was left out: reason by path.

    Among paths of one physical file the one with the fewest links on its way wins, then the first in sorted order.
    Raises UsageError where an entry matches nothing that can be read.
    """
    search = Search()
    for entry in entries:
        _find_entry(entry, search)
    chosen: dict[str, FileInfo] = {}
    for info in search.found:
        other = chosen.get(info.identity)
        if other is None or _rank(info.path) < _rank(other.path):
            chosen[info.identity] = info
    paths = {info.path for info in chosen.values()}
    left_out = {path: reason for path, reason in sorted(search.left_out.items()) if path not in paths}
    return sorted(chosen.values(), key=lambda info: info.path), left_out


def display_names(paths: list[str]) -> list[str]:
    """Return the name of each path that users see: the part below the longest common folder of them all.

    Files of several stores, which have no common folder, are named by their URI beside local ones.
    """
    schemes = {scheme_of(path) for path in paths}
    if len(schemes) > 1:
        local = [path for path in paths if scheme_of(path) == "file"]
        names = dict(zip(local, display_names(local), strict=True)) if local else {}
        return [names.get(path, path) for path in paths]
    parts = [path.split("://", 1)[-1].split("/") for path in paths]
    # What the first and the last of the sorted folders have in common, all have.
    folders = sorted(part[:-1] for part in parts) or [[]]
    pairs = zip(folders[0], folders[-1], strict=False)
    common = next((at for at, (one, other) in enumerate(pairs) if one != other), min(map(len, folders)))
    names_in_order = ["/".join(part[common:]) for part in parts]
    return [name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for name in names_in_order]


def _find_entry(entry: str, search: Search) -> None:
    location = locate(entry)
    files = files_at(location)
    info = files.stat(location.rstrip("/") or "/")
    before, left_before = len(search.found), len(search.left_out)
    if info is not None and info.kind == "file":
        if format_of(info.name) is None:
            raise UsageError(f"{redact(entry)}: unknown suffix; known are {KNOWN_SUFFIXES}: rename or convert the file")
        search.found.append(info)
        return
    if info is not None and info.kind == "other":
        raise UsageError(f"{redact(entry)}: is neither a file nor a folder; write its content to a file")
    if info is not None:
        _take_folder(files, info, search)
    elif _MAGIC.search(location):
        for match in _glob(files, location):
            if match.kind != "folder":
                _take(match, search)
            elif "**" not in location.split("/"):  # what lies below is matched already
                _take_folder(files, match, search)
    else:
        raise UsageError(f"input.files: {redact(entry)}: no such file or folder{_where(location)}")
    if len(search.found) == before:
        seen = len(search.left_out) - left_before
        what = f"matches {seen} files, none with a known suffix ({KNOWN_SUFFIXES})" if seen else "matches no file"
        hint = "; a literal bracket is written [[]" if "[" in location and info is None else ""
        raise UsageError(f"input.files: {redact(entry)}: {what}{hint}; correct the entry or take it out")


def _where(location: str) -> str:
    return f" (relative paths start at {Path.cwd()})" if scheme_of(location) == "file" else ""


def _take(info: FileInfo, search: Search) -> None:
    if info.kind == "broken":
        search.left_out[info.path] = "a link that points to nothing"
    elif info.kind == "other":
        search.left_out[info.path] = "neither a file nor a folder"
    elif format_of(info.name) is None:
        search.left_out[info.path] = "unknown suffix"
    else:
        search.found.append(info)


def _take_folder(files: Files, folder: FileInfo, search: Search) -> None:
    for below in _folders_below(files, folder, hidden=True):
        for member in files.list(below.path):
            if member.kind != "folder":
                _take(member, search)


def _folders_below(files: Files, folder: FileInfo, hidden: bool) -> Iterator[FileInfo]:
    """Yield a folder and all folders below it, each physical one once; links are followed after real folders."""
    seen: set[str] = set()
    real, linked = [folder], list[FileInfo]()
    while real or linked:
        current = real.pop() if real else linked.pop(0)
        if current.identity in seen:
            continue
        seen.add(current.identity)
        yield current
        for member in files.list(current.path):
            if member.kind == "folder" and (hidden or not member.name.startswith(".")):
                (linked if member.link else real).append(member)


def _glob(files: Files, location: str) -> Iterator[FileInfo]:
    scheme, _, key = location.rpartition("://")
    parts = key.strip("/").split("/")
    if scheme and _MAGIC.search(parts[0]):
        raise UsageError(f"{location}: a pattern cannot stand for the bucket; name the bucket")
    base = f"{scheme}://{parts.pop(0)}" if scheme else "/"
    root = FileInfo(base, "folder", 0, "", base, False)
    yield from _match(files, root, parts)


def _match(files: Files, folder: FileInfo, parts: list[str]) -> Iterator[FileInfo]:
    first, rest = parts[0], parts[1:]
    if first == "**":
        for below in _folders_below(files, folder, hidden=False):
            yield from _match_names(files, below, "*", []) if not rest else _match(files, below, rest)
    elif _MAGIC.search(first):
        yield from _match_names(files, folder, first, rest, folders=True)
    else:
        info = files.stat(f"{folder.path.rstrip('/')}/{first}")
        if info is not None and not rest:
            yield info
        elif info is not None and info.kind == "folder":
            yield from _match(files, info, rest)


def _match_names(
    files: Files, folder: FileInfo, pattern: str, rest: list[str], folders: bool = False
) -> Iterator[FileInfo]:
    matches = re.compile(fnmatch.translate(pattern)).match
    for member in files.list(folder.path):
        if not matches(member.name) or (member.name.startswith(".") and not pattern.startswith(".")):
            continue
        if member.kind != "folder":
            if not rest:
                yield member
        elif rest:
            yield from _match(files, member, rest)
        elif folders:
            yield member


def _rank(path: str) -> tuple[int, str]:
    return (_links(path) if scheme_of(path) == "file" else 0), path


def _links(path: str) -> int:
    """Return the number of symbolic links among a local path and the folders above it."""
    parent = os.path.dirname(path)
    return 0 if parent == path else _links(parent) + os.path.islink(path)
