"""The sample corpus: what it takes from an environment, that it takes everything, and that its bytes repeat."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import sysconfig
import warnings
from email.message import Message
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import sample
from corpus.errors import UsageError
from corpus.sample_extract import (
    c_comments,
    clean,
    cython_docstrings,
    docstrings,
    hash_comments,
    help_topics,
    translations,
)
from corpus.sample_sources import (
    MAXIMUM_FILE_BYTES,
    UnreadableFileError,
    installed_sources,
    license_name,
    standard_library_source,
)

PROSE = "This sentence is here to make a text that is long enough to be taken as a document of the sample. "
SHARED = f'"""Shared. {PROSE}"""\n'
ALPHA = f'''"""Alpha. {PROSE}"""

# A comment that goes over several lines, as comments at the top of files do, and that has
# enough characters in it to be a document of its own. It says nothing in particular, but
# it says so at some length, which is all that matters for this test. And one more sentence.


def work(a, /, b=1, *rest, key: int = 2, **others):
    """Work. {PROSE}"""


class Worker:
    """A worker. {PROSE}"""

    def start(self):
        """Start. {PROSE}"""

    def stop(self):
        """Stop it."""
'''
HELD = "".join(
    f'def function_{number}(path):\n    """Function {number} of a library. {PROSE * 2}"""\n\n\n' for number in range(8)
)
COPY_OF_HELD = HELD.replace("function_", "_copied_")


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def install(
    site: Path,
    name: str,
    files: dict[str, str | bytes],
    metadata: str | bytes | None = None,
    record: list[str] | None = None,
) -> None:
    """Write a distribution; ``record`` adds to its list of files."""
    info = f"{name}-1.0.dist-info"
    default = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n\nRead me. {PROSE}\n"
    for path, content in files.items():
        write(site / path, content)
    write(site / info / "METADATA", default if metadata is None else metadata)
    write(site / info / "RECORD", "".join(f"{path},,\n" for path in (*files, *(record or ()), f"{info}/RECORD")))


def collect(site: Path, library: Path) -> sample.Sample:
    return sample.collect([*installed_sources([str(site)]), standard_library_source(library)])


def by_id(found: sample.Sample) -> dict[str, sample.Document]:
    documents = {document.id: document for document in found.documents}
    assert len(documents) == len(found.documents)
    return documents


def test_documents_of_a_package(tmp_path: Path) -> None:
    install(
        tmp_path,
        "alpha",
        {
            "alpha/__init__.py": ALPHA,
            "alpha/guide.rst": f"Guide\n=====\n\n{PROSE}\r\n",
            "alpha/README.md": PROSE * 2,
            "alpha/short.txt": "too short",
            "alpha/license_list.json": json.dumps([PROSE, PROSE]),
            "alpha/api.h": f"/**\n * Header. {PROSE}\n * {PROSE}\n * {PROSE}\n */\nint f(void);\n",
            "alpha/fast.pyx": f'def quick(int a):\n    """Quick. {PROSE}"""\n',
            "alpha/tests/test_alpha.py": SHARED,
            "alpha-1.0.dist-info/licenses/LICENSE": f"Permission. {PROSE}",
            "alpha-1.0.dist-info/entry_points.txt": PROSE,
        },
    )
    found = collect(tmp_path, tmp_path / "nowhere")
    documents = by_id(found)
    assert {id_: document.kind for id_, document in documents.items()} == {
        "alpha/METADATA": "readme",
        "alpha/alpha-1.0.dist-info/licenses/LICENSE": "license",
        "alpha/alpha/README.md": "readme",
        "alpha/alpha/__init__.py": "docstring",
        "alpha/alpha/__init__.py:Worker": "docstring",
        "alpha/alpha/__init__.py:comment@3": "comment",
        "alpha/alpha/__init__.py:work": "docstring",
        "alpha/alpha/api.h:comment@1": "comment",
        "alpha/alpha/fast.pyx:docstring@2": "docstring",
        "alpha/alpha/guide.rst": "documentation",
    }
    assert {(document.source, document.license) for document in documents.values()} == {("alpha", "MIT")}
    assert documents["alpha/alpha/guide.rst"].text == f"Guide\n=====\n\n{PROSE.rstrip()}"
    assert documents["alpha/alpha/__init__.py:Worker"].text == (
        f"A worker. {PROSE}\n\nWorker.start(self)\n\nStart. {PROSE}\n\nWorker.stop(self)\n\nStop it.".replace(
            ". \n", ".\n"
        )
    )
    assert documents["alpha/METADATA"].text == f"Read me. {PROSE}".rstrip()
    assert [pair.id for pair in found.pairs] == ["alpha/alpha/__init__.py:work", "alpha/alpha/__init__.py:Worker.start"]
    assert found.pairs[0].response == f"Work. {PROSE}".rstrip()
    assert all(re.search(r"\bwork\b|Worker\.start", pair.prompt) for pair in found.pairs)
    assert found.skipped_files == 0


def test_any_file_is_survived_and_counted(tmp_path: Path) -> None:
    docstring = f'"""Fine. {PROSE}"""\n'.encode()
    bad: dict[str, str | bytes] = {
        "alpha/syntax.py": docstring + b"def (:\n",
        "alpha/python2.py": docstring + b'print "hello"\n',
        "alpha/nul.py": docstring + b"\0\n",
        "alpha/latin.py": docstring + b"# caf\xe9\n",
        "alpha/cookie.py": b"# -*- coding: no-such-codec -*-\n" + docstring,
        "alpha/nested.py": docstring + b"(" * 50_000 + b")" * 50_000,
        "alpha/recursion.py": docstring + b"x = " + b"-" * 100_000 + b"1\n",
        "alpha/latin.txt": b"caf\xe9 " + PROSE.encode(),
        "alpha/nul.md": b"\0" + PROSE.encode(),
        "alpha/huge.txt": PROSE.encode() * (MAXIMUM_FILE_BYTES // len(PROSE) + 1),
    }
    good: dict[str, str | bytes] = {
        "alpha/bom.py": b"\xef\xbb\xbf" + docstring,
        "alpha/declared.py": b"# -*- coding: latin-1 -*-\n" + docstring.replace(b"Fine", b"Caf\xe9"),
        "alpha/surrogate.py": docstring.replace(b"Fine", b"\\ud800"),
        "alpha/escape.py": docstring.replace(b"Fine", b"\\d"),
        "alpha/empty.py": b"",
        "alpha/crlf.py": docstring.replace(b". ", b".\r\n"),
    }
    absent = ["alpha/missing.py", "alpha/link.py", "alpha/loop.txt"]
    install(
        tmp_path,
        "alpha",
        {**bad, **good},
        record=[*absent, "alpha/pipe.txt", "alpha/folder.txt", "../../bin/alpha.txt", "/etc/alpha.txt", "alpha/x.pyc"],
    )
    (tmp_path / "alpha/link.py").symlink_to("nowhere.py")
    (tmp_path / "alpha/loop.txt").symlink_to("loop.txt")
    (tmp_path / "alpha/folder.txt").mkdir()
    os.mkfifo(tmp_path / "alpha/pipe.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = collect(tmp_path, tmp_path / "nowhere")
    texts = {id_.removeprefix("alpha/alpha/"): document.text for id_, document in by_id(found).items()}
    prose = PROSE.rstrip()
    assert texts == {
        "alpha/METADATA": f"Read me. {prose}",
        "bom.py": f"Fine. {prose}",
        "declared.py": f"Café. {prose}",
        "surrogate.py": f"?. {prose}",
        "escape.py": f"\\d. {prose}",
        "crlf.py": f"Fine.\n{prose}",
    }
    # From Python 3.12 on, the list of a distribution's files leaves out those that are not there.
    unusable = len(bad) + len(["pipe", "folder"])
    assert found.skipped_files == unusable + (len(absent) if sys.version_info < (3, 12) else 0)


def test_any_distribution_is_survived(tmp_path: Path) -> None:
    install(tmp_path, "alpha", {"shared.py": SHARED})
    install(tmp_path, "Beta_X", {"shared.py": SHARED, "beta.py": SHARED})
    install(tmp_path, "thresher", {"own.py": SHARED})
    install(tmp_path, "python", {"python.py": SHARED})
    install(tmp_path, "undecodable", {"undecodable.py": SHARED}, metadata=b"Name: undecodable\n\xff\n\n")
    install(tmp_path, "nameless", {"nameless.py": SHARED}, metadata="Version: 1.0\n")
    install(tmp_path, "editable", {"__editable__.editable.pth": "/somewhere/else\n"})
    install(tmp_path, "unlisted", {"unlisted/deep/inside.py": SHARED, "other.py": SHARED})
    (tmp_path / "unlisted-1.0.dist-info/RECORD").unlink()
    install(tmp_path, "tops", {"one.py": SHARED, "two/__init__.py": SHARED, "two/test/no.py": SHARED})
    (tmp_path / "tops-1.0.dist-info/RECORD").unlink()
    write(tmp_path / "tops-1.0.dist-info/top_level.txt", "one\ntwo\n../..\n")
    install(tmp_path, "garbled", {"garbled.py": SHARED})
    write(tmp_path / "garbled-1.0.dist-info/RECORD", 'garbled.py,not-a-hash,not-a-size\n"')
    second = tmp_path / "second"
    install(second, "alpha", {"hidden.py": SHARED})
    sources = installed_sources([str(tmp_path), str(second), str(tmp_path / "missing")])
    assert [source.name for source in sources] == ["alpha", "Beta_X", "editable", "garbled", "tops", "unlisted"]
    ids = set(by_id(sample.collect(sources)))
    assert {id_ for id_ in ids if not id_.endswith("/METADATA")} == {
        "alpha/shared.py",
        "Beta_X/beta.py",
        "garbled/garbled.py",
        "tops/one.py",
        "tops/two/__init__.py",
        "unlisted/unlisted/deep/inside.py",
    }


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "MIT")], "MIT OR Apache-2.0"),
        ([("License", "BSD"), ("Classifier", "License :: OSI Approved :: MIT License")], "BSD"),
        ([("License", "MIT License\n\n        Copyright (c) 2020")], "MIT License"),
        ([("License", "UNKNOWN"), ("Classifier", "License :: OSI Approved :: MIT License")], "MIT License"),
        (
            [
                ("Classifier", "License :: OSI Approved :: BSD License"),
                ("Classifier", "License :: OSI Approved :: Apache Software License"),
                ("Classifier", "Programming Language :: Python"),
            ],
            "BSD License AND Apache Software License",
        ),
        ([("Classifier", "License :: OSI Approved")], None),
        ([], None),
    ],
)
def test_license(headers: list[tuple[str, str]], wanted: str | None) -> None:
    metadata = Message()
    for name, value in headers:
        metadata[name] = value
    assert license_name(metadata) == wanted


def test_held_out_functions_are_in_no_document_of_the_standard_library(tmp_path: Path) -> None:
    site, library = tmp_path / "site", tmp_path / "python3"
    install(site, "backport", {"backport.py": COPY_OF_HELD})
    write(library / "tools.py", HELD)
    write(library / "again.py", f"class Again:\n    def method(self):\n{COPY_OF_HELD}".replace("\ndef", "\n    def"))
    found = collect(site, library)
    answers = {item.answer for item in found.suite}
    assert 0 < len(answers) < 8
    assert all(re.fullmatch(r"tools\.function_\d", answer) for answer in answers)
    held_out = {f"Function {answer[-1]} of a library." for answer in answers}
    for records in (found.documents, found.pairs):
        texts = [(record.source, getattr(record, "text", "") or getattr(record, "response", "")) for record in records]
        for start in held_out:
            assert not [text for source, text in texts if source == "python" and start in text]
            assert [text for source, text in texts if source == "backport" and start in text]
        assert [text for source, text in texts if source == "python"]


def test_same_bytes_wherever_the_environment_lies(tmp_path: Path) -> None:
    contents = []
    for number, place in enumerate(("a", "some/other/place")):
        site, library = tmp_path / place / "site-packages", tmp_path / place / "python3"
        names = ["alpha", "beta", "gamma"][:: -1 if number else 1]
        for name in names:
            install(site, name, {f"{name}/__init__.py": ALPHA, f"{name}/z.py": SHARED, f"{name}/a.py": SHARED})
        for name in ("tools.py", "more.py")[:: -1 if number else 1]:
            write(library / name, HELD)
        if number:
            write(site / "alpha/__pycache__/a.cpython-311.pyc", b"compiled")
            write(library / "__pycache__/tools.cpython-311.pyc", b"compiled")
        folder = tmp_path / place / "sample"
        sample.prepare_folder(folder)
        sample.write_sample(folder, collect(site, library))
        contents.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert sorted(map(str, contents[0])) == [
        "documents/part-00000.parquet",
        "pairs/pairs-00000.jsonl",
        "suite/stdlib.jsonl",
        "suite/stdlib.yaml",
    ]
    assert contents[0] == contents[1]
    assert all(contents[0].values())


def test_files_are_split_and_an_earlier_sample_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "alpha", {"alpha.py": ALPHA, "held.py": HELD})
    found = collect(tmp_path / "site", tmp_path / "nowhere")
    folder = tmp_path / "sample"
    write(folder / "documents/part-00099.parquet", b"earlier")
    write(folder / "documents/mine.txt", b"mine")
    monkeypatch.setattr(sample, "FILE_BYTES", 1000)
    monkeypatch.setattr(sample, "ROW_GROUP_BYTES", 400)
    sample.prepare_folder(folder)
    sample.write_sample(folder, found)
    files = sorted((folder / "documents").iterdir())
    assert [path.name for path in files] == ["mine.txt", *(f"part-{n:05d}.parquet" for n in range(len(files) - 1))]
    assert len(files) > 3
    assert pq.ParquetFile(files[1]).metadata.num_row_groups > 1
    assert pq.ParquetFile(files[1]).metadata.row_group(0).column(1).compression == "ZSTD"
    rows = [row for path in files[1:] for row in pq.read_table(path).to_pylist()]
    assert rows == [document._asdict() for document in found.documents]
    assert set(pq.read_schema(files[1]).types) == {sample.DOCUMENT_SCHEMA.field("text").type}
    lines = [line for path in sorted(folder.glob("pairs/*.jsonl")) for line in path.read_text("utf-8").split("\n")[:-1]]
    assert [json.loads(line) for line in lines] == [pair._asdict() for pair in found.pairs]
    assert len(list(folder.glob("pairs/*.jsonl"))) > 1


def test_an_environment_without_anything_gives_empty_files(tmp_path: Path) -> None:
    sample.prepare_folder(tmp_path)
    sample.write_sample(tmp_path, collect(tmp_path / "no", tmp_path / "nothing"))
    table = pq.read_table(tmp_path / "documents/part-00000.parquet")
    assert table.schema.equals(sample.DOCUMENT_SCHEMA)
    assert table.num_rows == 0
    assert (tmp_path / "pairs/pairs-00000.jsonl").read_bytes() == (tmp_path / "suite/stdlib.jsonl").read_bytes() == b""


@pytest.mark.parametrize("taken", ["sample", "sample/documents", "sample/suite"])
def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path: Path, taken: str) -> None:
    write(tmp_path / taken, b"a file")
    seen: list[str] = []
    with pytest.raises(UsageError, match=r"cannot write the sample to .*sample.*name a folder"):
        sample.build_sample(tmp_path / "sample", seen.append)
    assert seen == []


@pytest.mark.parametrize("name", ["textwrap", "shutil", "statistics", "argparse", "fractions"])
def test_docstrings_are_those_of_the_interpreter(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    compared = 0
    found = docstrings(Path(module.__file__).read_text("utf-8"))
    names = [docstring.name for docstring in found]
    for docstring in found:
        value: object = module
        for part in filter(None, docstring.name.split(".")):
            value = inspect.getattr_static(value, part, None)
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if value is None or value.__doc__ is None or names.count(docstring.name) > 1:
            continue  # defined in a branch that this platform does not take, or a class without a docstring
        compared += 1
        assert docstring.text == clean(inspect.cleandoc(value.__doc__))
        if inspect.isfunction(value) and not hasattr(value, "__wrapped__"):
            assert re.findall(r"\w+", docstring.signature)[1:] == list(inspect.signature(value).parameters)
    assert compared >= 5


def test_definitions_in_branches_and_repeated_names_have_their_own_ids() -> None:
    source = f'''
try:
    import fast
except ImportError:
    def f():
        """First. {PROSE}"""
else:
    def f():
        """Second. {PROSE}"""
if True:
    class C:
        class Inner:
            """Inner. {PROSE}"""
            async def g(self, *, a):
                """Third."""
'''
    module = sample.ModuleDocstrings("pkg/mod.py", docstrings(source))
    assert module.module == "pkg.mod"
    assert module.names() == [
        "pkg/mod.py:f",
        "pkg/mod.py:f#2",
        "pkg/mod.py:C",
        "pkg/mod.py:C.Inner",
        "pkg/mod.py:C.Inner.g",
    ]
    assert module.docstrings[-1].signature == "g(self, *, a)"
    pages = dict(sample.docstring_documents(module))
    assert pages["pkg/mod.py:C"] == ""
    assert pages["pkg/mod.py:C.Inner"].endswith("C.Inner.g(self, *, a)\n\nThird.")


def test_long_chains_of_branches_are_no_recursion() -> None:
    chain = "if 1:\n    pass\n" + "elif 1:\n    pass\n" * 1500
    source = f'{chain}else:\n    def f():\n        """Here."""\n'
    assert [docstring.text for docstring in docstrings(source)] == ["Here."]


def test_comments_lose_their_marks() -> None:
    assert hash_comments("x = 1\n# one\n#\n#  two\ny = 2\n  # short\n  # run\n") == [(2, "one\n\n two")]
    assert hash_comments("#: a\n#: b\n## c") == [(1, "a\nb\nc")]
    assert c_comments("int a;\n/** One\n * two\n *\n * - three */\n") == [(2, "One\ntwo\n\n- three")]
    assert c_comments("/// One\n/// two\n/// three\nint a; // no\n") == [(1, "One\ntwo\nthree")]


def test_other_texts_in_files() -> None:
    assert cython_docstrings('cdef f():\n    """\n    One.\n\n      two\n    """\n') == [(2, "One.\n\n  two")]
    assert help_topics("# made\ntopics = {'if': 'The if statement', 'n': 1, **x}\n") == [("if", "The if statement")]
    with pytest.raises(UnreadableFileError, match="SyntaxError"):
        help_topics("topics = {")
    catalogue = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n\nmsgid "a"\nmsgstr "eine "\n"Übersetzung\\n"\n\nmsgid "b"\n'
    assert translations(catalogue + 'msgstr[0] "%d \\"Tag\\""\nmsgstr[1] "te"\n') == ["eine Übersetzung\n", '%d "Tag"']


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_split_by_bytes_covers_everything_in_full_runs(sizes: list[int], limit: int) -> None:
    runs = list(sample.split_by_bytes(sizes, limit))
    assert [index for start, stop in runs for index in range(start, stop)] == list(range(len(sizes)))
    assert len(runs) >= 1
    for start, stop in runs[:-1]:
        assert sum(sizes[start:stop]) >= limit
    for start, stop in runs:
        assert sum(sizes[start : stop - 1]) < limit


@pytest.fixture(scope="module")
def library() -> sample.Sample:
    return sample.collect([standard_library_source(Path(sysconfig.get_path("stdlib")))])


def test_the_standard_library_gives_real_text_and_a_suite(library: sample.Sample) -> None:
    documents = by_id(library)
    assert sum(len(document.text) for document in documents.values()) > 1_000_000
    assert {"docstring", "comment", "documentation"} <= {document.kind for document in documents.values()}
    assert documents["python/pydoc_data/topics.py:if"].text.startswith('The "if" statement')
    assert {document.license for document in documents.values()} == {"PSF-2.0"}
    assert len(library.pairs) > 1000
    assert len({pair.id for pair in library.pairs}) == len(library.pairs)
    for form in sample.PROMPTS:
        start = form.split("{")[0]
        assert sum(pair.prompt.startswith(start) for pair in library.pairs) > len(library.pairs) / 8
    assert len(library.suite) > 200
    assert len({item.id for item in library.suite}) == len(library.suite)
    responses = {pair.response for pair in library.pairs}
    texts = {document.text for document in library.documents}
    for item in library.suite:
        documentation = item.question.rpartition("\n\n")[0]
        assert documentation not in responses
        assert documentation not in texts


def test_nothing_tells_where_the_environment_lies(library: sample.Sample) -> None:
    # A system's Python lies in /usr, which texts may well speak of.
    prefixes = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)} - {"/usr", "/usr/local"}
    for record in (*library.documents, *library.pairs, *library.suite):
        assert not [value for value in record if value and any(prefix in value for prefix in prefixes)]


@pytest.mark.parametrize("name", ["sample", "pairs"])
def test_config_is_valid(name: str) -> None:
    from pipelines.config import load_config

    load_config(Path(__file__).parents[2] / "configs" / f"{name}.yaml")
