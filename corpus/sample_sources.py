"""Where the sample's text comes from: the installed distributions and the standard library, with their files.

Nothing here depends on where the environment lies: sources come in the order of their names, files in the order of
their paths below the distribution's folder, and a file that two distributions list belongs to the first of them.
"""

from __future__ import annotations

import csv
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path, PurePosixPath

OWN_NAME = "thresher"
STANDARD_LIBRARY = "python"
STANDARD_LIBRARY_LICENSE = "PSF-2.0"

MAXIMUM_FILE_BYTES = 2 << 20
MAXIMUM_LICENSE_NAME = 100

# Test folders hold little prose, and much that is broken on purpose; the others are no part of what they lie in.
SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"})
UNKNOWN_LICENSES = frozenset({"", "unknown", "none", "n/a"})


class UnreadableFileError(Exception):
    """A file that cannot be used: missing, no plain file, over the size limit, or not to be decoded."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source; ``path`` is below the folder of the source, with slashes."""

    path: str
    location: Path

    @classmethod
    def at(cls, path: str, location: Path) -> SourceFile:
        """Return the file at a location; bytes of its path that are no UTF-8 become question marks."""
        return cls(path.encode("utf-8", "replace").decode("utf-8"), location)

    def read(self) -> bytes:
        """Return the content. Raises UnreadableFileError."""
        try:
            status = self.location.stat()
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFileError(f"{self.path} is not a plain file")
            if status.st_size > MAXIMUM_FILE_BYTES:
                raise UnreadableFileError(f"{self.path} has more than {MAXIMUM_FILE_BYTES} bytes")
            return self.location.read_bytes()
        except (OSError, ValueError) as error:
            raise UnreadableFileError(f"{self.path}: {error}") from error


@dataclass(frozen=True)
class Source:
    """A distribution or the standard library.

    Attributes:
        name: name of the distribution as its metadata has it; ``python`` for the standard library.
        license: licence by its metadata, null if unknown.
        readme: long description of the metadata, possibly empty.
        files: its files in the order of their paths.
    """

    name: str
    license: str | None
    readme: str
    files: tuple[SourceFile, ...]


def canonical_name(name: str) -> str:
    """Return a distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license_name(metadata: PackageMetadata) -> str | None:
    """Return the licence that a distribution declares: License-Expression, else License, else its classifiers."""
    for field in ("License-Expression", "License"):
        for value in metadata.get_all(field) or []:
            # The field License may hold the whole text; its first line is the title then.
            first_line = value.strip().split("\n", 1)[0].strip()[:MAXIMUM_LICENSE_NAME]
            if first_line.lower() not in UNKNOWN_LICENSES:
                return str(first_line)
    classifiers = [value.split("::") for value in metadata.get_all("Classifier") or []]
    names = [parts[-1].strip() for parts in classifiers if len(parts) > 1 and parts[0].strip() == "License"]
    names = [name for name in names if name != "OSI Approved"]
    return " AND ".join(names) or None


def files_below(folder: Path, top: str) -> Iterator[str]:
    """Yield the paths, below ``folder``, of the files in its sub-folder ``top`` (or ``top`` itself if it is a file)."""
    start = folder / top
    if start.is_file():
        yield top
        return
    for parent, folders, names in os.walk(start):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in names:
            yield (Path(parent) / name).relative_to(folder).as_posix()


def listed_files(distribution: Distribution) -> list[str]:
    """Return the paths that a distribution lists as its files; without a usable list, those of its top-level names."""
    try:
        listed = distribution.files
        if listed:
            return [PurePosixPath(path).as_posix() for path in listed]
    except (OSError, ValueError, TypeError, csv.Error):
        pass
    try:
        names = (distribution.read_text("top_level.txt") or "").split()
    except (OSError, ValueError):
        names = []
    folder = Path(str(distribution.locate_file("")))
    tops = names or [canonical_name(distribution.metadata["Name"]).replace("-", "_")]
    # A name with a slash or dots would lead out of the folder.
    tops = [top for top in tops if re.fullmatch(r"\w+", top)]
    return [path for top in tops for name in (top, f"{top}.py") for path in files_below(folder, name)]


def is_inside(path: str) -> bool:
    """Return whether a listed path lies in the folder of its distribution and not in a skipped one."""
    parts = PurePosixPath(path).parts
    return not path.startswith("/") and ".." not in parts and SKIPPED_FOLDERS.isdisjoint(parts[:-1])


def distribution_source(distribution: Distribution, taken: set[Path]) -> Source | None:
    """Return the source that a distribution is, without files in ``taken``, which grows; null if it has no name."""
    try:
        metadata = distribution.metadata
        name = (metadata.get_all("Name") or [""])[0].strip()
        readme = "\n".join(metadata.get_all("Description") or [])
        license_ = license_name(metadata)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None  # metadata that cannot be read: importlib documents no error for it, and its versions differ
    if not name or canonical_name(name) in (OWN_NAME, STANDARD_LIBRARY):
        return None
    files = []
    for path in sorted(set(filter(is_inside, listed_files(distribution)))):
        location = Path(str(distribution.locate_file(path)))
        if location not in taken:
            taken.add(location)
            files.append(SourceFile.at(path, location))
    return Source(name, license_, readme, tuple(files))


def declared_name(distribution: Distribution) -> str:
    """Return the canonical name of a distribution; empty if its metadata cannot be read."""
    try:
        return canonical_name((distribution.metadata.get_all("Name") or [""])[0].strip())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""


def installed_sources(search_path: Sequence[str]) -> list[Source]:
    """Return the distributions on a search path by name, the first of each name."""
    first: dict[str, Distribution] = {}
    for distribution in distributions(path=list(search_path)):
        first.setdefault(declared_name(distribution), distribution)
    taken: set[Path] = set()
    found: Iterable[Source | None] = (distribution_source(first[name], taken) for name in sorted(first))
    return [source for source in found if source is not None]


def standard_library_source(folder: Path) -> Source:
    """Return the standard library in ``folder`` as a source; without files where there is no such folder."""
    paths = sorted(files_below(folder, ""))
    return Source(STANDARD_LIBRARY, STANDARD_LIBRARY_LICENSE, "", tuple(SourceFile.at(p, folder / p) for p in paths))


def environment_sources() -> list[Source]:
    """Return all sources of the environment that this runs in, in the order of their names."""
    sources = [*installed_sources(sys.path), standard_library_source(Path(sysconfig.get_path("stdlib")))]
    return sorted(sources, key=lambda source: canonical_name(source.name))
