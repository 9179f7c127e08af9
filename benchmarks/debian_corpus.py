"""A corpus of real text: the documentation packages of Debian 12, in an environment of its own.

    python benchmarks/debian_corpus.py LIST OUT [--shards 8] [--cache FOLDER]

Debian's documentation packages hold gigabytes of prose in some fifty languages, with real near-duplicates (dialects,
versions and half-finished translations of one manual), exact duplicates, boilerplate, code and tables. The packages of
a list (``debian_sample.txt``: 21 MB of text; ``debian_bench.txt``: 1.1 GB) are loaded by ``apt-get download`` and read
through ``dpkg-deb``; nothing is installed. A record is an HTML, man, Mallard or plain-text page of 200 characters and
more:

    id        package and path; unique
    text      the whole page, navigation and other boilerplate included
    url       package URL (purl) of the file: package, version and path
    source    package
    language  BCP 47 tag stated by the file's folder or the package's name, else null; like such claims on the web,
              wrong for some pages (English that nobody translated yet)
    licence   short name from the package's machine-readable copyright file, else null

The same packages give the same bytes; newer ones shift the counts a little, so keep the cache for the same corpus.
``manifest.json`` in OUT has versions, counts and hashes. Needs apt-get with up-to-date lists, dpkg-deb, pyarrow, and
resiliparse for HTML. Nothing of Thresher is imported here.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from debian_pages import is_page, page_text  # type: ignore[import-not-found, unused-ignore]

SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "text", "url", "source", "language", "licence")])
# Shorter pages are redirects, frames and stubs.
LEAST_CHARACTERS = 200
GROUP_ROWS = 1000
DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "thresher-corpus")
TOTALS = ("documents", "text_bytes", "short_pages")

Record = dict[str, str | None]


class CorpusError(Exception):
    """A failure that the user can mend; the message says what is wrong with what."""


class Package(NamedTuple):
    """A binary package in the cache."""

    name: str
    version: str
    architecture: str
    file: Path


def read_list(path: Path) -> list[str]:
    """Return the package names in a list file, sorted; ``#`` starts a comment."""
    lines = (line.partition("#")[0] for line in path.read_text("utf-8").splitlines())
    return sorted({name for line in lines for name in line.split()})


def _run(*command: str, folder: Path | None = None) -> bytes:
    """Return what a command prints. Raises CorpusError with its complaint."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    except FileNotFoundError:
        raise CorpusError(f"{command[0]} is not installed") from None
    if done.returncode:
        raise CorpusError(" ".join(done.stderr.decode("utf-8", "replace").split()))
    return done.stdout


def fetch(name: str, cache: Path) -> Package:
    """Return a package from the cache, loaded first where the cache has no version of it. Raises CorpusError."""
    files = sorted(cache.glob(f"{name}_*.deb"))
    if len(files) > 1:
        raise CorpusError(f"several versions of {name} in the cache: {', '.join(file.name for file in files)}")
    if not files:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _run("apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", name, folder=Path(folder))
            files = [file.rename(cache / file.name) for file in Path(folder).glob("*.deb")]
    shown = _run("dpkg-deb", "--show", "--showformat=${Version} ${Architecture}", str(files[0]))
    version, architecture = shown.decode().split()
    return Package(name, version, architecture, files[0])


def pages(package: Package) -> Iterator[tuple[str, str]]:
    """Yield path and text of each page of a package; links are left out."""
    content = io.BytesIO(_run("dpkg-deb", "--fsys-tarfile", str(package.file)))
    with tarfile.open(fileobj=content, encoding="utf-8", errors="backslashreplace") as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            if member.isreg() and is_page(path) and (file := archive.extractfile(member)):
                yield path, page_text(path, file.read())


_LOCALE = r"([a-z]{2})(?:[-_@]([A-Za-z]{2}|latin|valencia))?"
_LANGUAGE_FOLDER = re.compile(rf"usr/share/(?:help|libreoffice/help|man|doc/[^/]+(?:/html)?)/{_LOCALE}/")
_LANGUAGE_SUFFIX = re.compile(rf".+?-{_LOCALE}(?:-dev)?$")


def stated_language(package: str, path: str) -> str | None:
    """Return the language of the file's folder, else of the package's name, as a BCP 47 tag."""
    match = _LANGUAGE_FOLDER.match(path) or _LANGUAGE_SUFFIX.match(package)
    if match is None:
        return None
    language, subtag = match.groups()
    if subtag is None:
        return str(language)
    return f"{language}-{subtag.upper() if len(subtag) == 2 else subtag.replace('latin', 'Latn')}"


def stated_licence(copyright_file: str) -> str | None:
    """Return the short licence name that a machine-readable (DEP-5) file gives for ``Files: *``."""
    for stanza in re.split(r"\n\s*\n", copyright_file):
        fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE))
        if "*" in fields.get("Files", "").split():
            return fields.get("License", "").partition("\n")[0].strip() or None
    return None


def package_url(package: Package, path: str) -> str:
    """Return the package URL (purl) of a file."""
    release = f"{package.name}@{quote(package.version)}?arch={package.architecture}"
    return f"pkg:deb/debian/{release}#{quote(path)}"


def read_package(package: Package) -> tuple[list[Record], dict[str, Any]]:
    """Return the records of a package in the order of their paths, and its manifest entry."""
    texts: dict[str, str] = {}
    short_pages = 0
    licence = None
    for path, text in pages(package):
        if path == f"usr/share/doc/{package.name}/copyright":
            licence = stated_licence(text)
        if len(text) < LEAST_CHARACTERS:
            short_pages += 1
        else:
            texts[path] = text
    records: list[Record] = [
        {
            "id": f"{package.name}/{path}",
            "text": text,
            "url": package_url(package, path),
            "source": package.name,
            "language": stated_language(package.name, path),
            "licence": licence,
        }
        for path, text in sorted(texts.items())
    ]
    entry = {
        "name": package.name,
        "version": package.version,
        "architecture": package.architecture,
        "sha256": _sha256(package.file),
        "licence": licence,
        "documents": len(records),
        "text_bytes": sum(len(text.encode()) for text in texts.values()),
        "short_pages": short_pages,
    }
    return records, entry


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Shard:
    """One Parquet file of the corpus."""

    def __init__(self, path: Path) -> None:
        """Open it."""
        self._path = path
        self._pending: list[Record] = []
        self._documents = 0
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")

    def add(self, record: Record) -> None:
        """Add a record; it is in the file when ``close`` has returned."""
        self._pending.append(record)
        if len(self._pending) == GROUP_ROWS:
            self._flush()

    def close(self) -> dict[str, Any]:
        """Finish the file and return its manifest entry."""
        self._flush()
        self._writer.close()
        return {"file": self._path.name, "documents": self._documents, "sha256": _sha256(self._path)}

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_pylist(self._pending, SCHEMA))
            self._documents += len(self._pending)
            self._pending = []


def build(names: list[str], out: Path, shards: int, cache: Path) -> dict[str, Any]:
    """Build the corpus of some packages in a folder, which appears when it is complete; returns its manifest.

    Records are dealt out to the shards in turn. Raises CorpusError where the folder is in use, or a package cannot be
    had.
    """
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out} is in use; remove it or choose another folder")
    cache.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    files = [Shard(partial / f"part-{index:05}-of-{shards:05}.parquet") for index in range(shards)]
    turn = itertools.cycle(files)
    entries = []
    for number, name in enumerate(names, 1):
        try:
            records, entry = read_package(fetch(name, cache))
        except CorpusError as error:
            raise CorpusError(f"package {name}: {error}") from None
        for record in records:
            next(turn).add(record)
        entries.append(entry)
        print(f"[{number}/{len(names)}] {name} {entry['version']}: {entry['documents']:,} documents", flush=True)
    manifest = {
        **{total: sum(entry[total] for entry in entries) for total in TOTALS},
        "pyarrow": metadata.version("pyarrow"),
        "shards": [file.close() for file in files],
        "packages": entries,
    }
    (partial / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    partial.replace(out)
    return manifest


def main() -> int:
    """Build a corpus; 1 where that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="file with names of packages")
    parser.add_argument("out", type=Path, help="a new or empty folder")
    parser.add_argument("--shards", type=int, default=8, help="number of files (default 8)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of packages; those in it are used")
    arguments = parser.parse_args()
    if arguments.shards < 1:
        parser.error("--shards must be at least 1")
    try:
        manifest = build(read_list(arguments.list), arguments.out, arguments.shards, arguments.cache)
    except (CorpusError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{manifest['documents']:,} documents, {manifest['text_bytes'] / 1e6:,.1f} MB of text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
