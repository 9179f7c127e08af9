"""The corpus of documentation packages: text of pages, and a corpus from a package made here."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.debian_pages import is_page, page_text
from benchmarks.peers import ROOT

MAN = r""".\" a comment
.TH GREP 1
.SH NAME
grep \- print lines
.de XX
never shown
..
.SH "SEE ALSO"
.if n .never
Uses \fBsed\fR(1) and
.BR awk (1).
.PP
.nf
one
  two
.fi
"""
MALLARD = '<page xmlns="http://projectmallard.org/1.0/"><title>Open  a\nfile</title><p>Press <key>O</key>.</p></page>'


def test_a_man_page_is_its_prose() -> None:
    text = page_text("usr/share/man/man1/grep.1.gz", gzip.compress(MAN.encode()))
    assert text == "GREP 1\n\nNAME\n\ngrep - print lines\n\nSEE ALSO\n\nUses sed(1) and awk(1).\n\none\n  two"


def test_a_mallard_page_is_its_blocks() -> None:
    assert page_text("usr/share/help/de/app/open.page", MALLARD.encode()) == "Open a file\n\nPress O."


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("usr/share/doc/x/copyright", True),
        ("usr/share/doc/x/NEWS.Debian.gz", True),
        ("usr/share/doc/x/html/a.xhtml", True),
        ("usr/share/doc/x/a.rst.gz", True),
        ("usr/share/doc/x/a.png", False),
        ("usr/bin/x", False),
    ],
)
def test_pages_are_known_by_their_path(path: str, known: bool) -> None:
    assert is_page(path) == known


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one package, made here."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    tree = tmp_path / "tree"
    contents = {
        "DEBIAN/control": "Package: tale-de\nVersion: 1.2+x\nArchitecture: all\nMaintainer: A\nDescription: t\n",
        "usr/share/doc/tale-de/copyright": "Format: DEP-5\n\nFiles: *\nCopyright: A\nLicense: Expat\n" + " more" * 40,
        "usr/share/doc/tale-de/z.txt": "Es war einmal.\r\n" * 30,
        "usr/share/doc/tale-de/en/a.txt": "Once upon a time. " * 30,
        "usr/share/doc/tale-de/short.txt": "Ende.",
    }
    for name, text in contents.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    folder = tmp_path / "cache"
    folder.mkdir()
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(folder / "tale-de_1.2+x_all.deb")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def build(names: str, cache: Path, out: Path) -> subprocess.CompletedProcess[str]:
    listed = cache.with_name("list.txt")
    listed.write_text(names, encoding="utf-8")
    script = [sys.executable, "benchmarks/debian_corpus.py", str(listed), str(out), "--shards=2", f"--cache={cache}"]
    return subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_corpus_has_the_pages_of_its_packages(cache: Path, tmp_path: Path) -> None:
    done = build("tale-de  # one tale\n", cache, tmp_path / "corpus")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["documents"], manifest["short_pages"]) == (3, 1)
    tables = map(pq.read_table, (tmp_path / "corpus").glob("*.parquet"))
    records = sorted(pa.concat_tables(tables).to_pylist(), key=lambda record: record["id"])
    base = "tale-de/usr/share/doc/tale-de"
    assert [record["id"] for record in records] == [f"{base}/copyright", f"{base}/en/a.txt", f"{base}/z.txt"]
    assert [record["language"] for record in records] == ["de", "en", "de"]
    assert {record["licence"] for record in records} == {"Expat"}
    assert records[2]["url"] == "pkg:deb/debian/tale-de@1.2%2Bx?arch=all#usr/share/doc/tale-de/z.txt"
    assert records[2]["text"] == "\n".join(["Es war einmal."] * 30)
    assert build("tale-de", cache, tmp_path / "again").returncode == 0
    for file in (tmp_path / "corpus").glob("*.parquet"):
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_what_cannot_be_built_is_told(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    assert "is in use; remove it or choose another folder" in build("tale-de", cache, tmp_path / "used").stderr
    shutil.copy(cache / "tale-de_1.2+x_all.deb", cache / "tale-de_1.3_all.deb")
    done = build("tale-de", cache, tmp_path / "corpus")
    assert done.returncode == 1
    assert "package tale-de: several versions of tale-de in the cache" in done.stderr
    assert not (tmp_path / "corpus").exists()
