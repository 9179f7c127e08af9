"""The sample corpus: real text on any machine, made from the Python environment that this runs in.

Documents are docstrings (a class with its methods is one page), block comments, READMEs, licence texts, documentation
files, translated messages and the language's help pages; functions with docstrings are prompt/response pairs. Some
documented functions of the standard library are held out as a benchmark suite: copies of them that other packages
carry contaminate the sample, as happens to real benchmarks. The same environment gives the same bytes, wherever it
lies.
"""

from __future__ import annotations

import gc
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpus.errors import UsageError
from corpus.sample_extract import (
    Docstring,
    c_comments,
    cython_docstrings,
    decode_python,
    decode_text,
    docstrings,
    hash_comments,
    help_topics,
    translations,
)
from corpus.sample_extract import clean as clean_text
from corpus.sample_sources import STANDARD_LIBRARY, Source, SourceFile, UnreadableFileError, environment_sources

MINIMUM_CHARACTERS = 100
MINIMUM_COMMENT_CHARACTERS = 200
MINIMUM_SUITE_WORDS = 30
HELD_OUT_ONE_IN = 2

FILE_BYTES = 8 << 20
ROW_GROUP_BYTES = 2 << 20

PYTHON_SUFFIXES = frozenset({".py", ".pyi"})
CYTHON_SUFFIXES = frozenset({".pyx", ".pxd", ".pxi"})
C_SUFFIXES = frozenset({".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh"})
DOCUMENTATION_SUFFIXES = frozenset({".rst", ".md", ".txt"})
LICENSE_FILE = re.compile(r"(?i)(licen[cs]e|copying|notice|copyright)(?!.*\.(json|csv|xml|html|svg|png|pyc|so)$)")
LISTS = re.compile(r"(?i)(CMakeLists|.*requirements.*|entry_points|top_level|SOURCES|requires|dependency_links)\.txt")
HELP_TOPICS = "pydoc_data/topics.py"

PROMPTS = (
    "What does the {kind} `{call}` of the Python package {package} do?",
    "Write the docstring of the Python {kind} `{name}` in `{module}`.",
    "Explain how to use `{call}` from `{module}`.",
    "I have found `{name}` in the {package} source code, in the module `{module}`. What is it for?",
)
SUITE = """\
# Documentation of the standard library that is held out of documents/ and pairs/.
benchmarks:
  - name: stdlib
    license: PSF-2.0
    files: stdlib.jsonl
    id: id
    question: question
    answer: answer
"""
QUESTION = "{documentation}\n\nWhich function of Python's standard library does this describe?"

DOCUMENT_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in ("id", "text", "source", "license", "kind")])


class Document(NamedTuple):
    """A row of ``documents/``."""

    id: str
    text: str
    source: str
    license: str | None
    kind: str


class Pair(NamedTuple):
    """A line of ``pairs/``."""

    id: str
    prompt: str
    response: str
    source: str


class SuiteItem(NamedTuple):
    """A line of ``suite/stdlib.jsonl``."""

    id: str
    question: str
    answer: str


@dataclass(frozen=True)
class SampleCounts:
    """What a sample holds: numbers of records, UTF-8 bytes of the documents' text, and files that could not be used."""

    documents: int
    pairs: int
    suite_items: int
    text_bytes: int
    skipped_files: int


@dataclass
class Sample:
    """The sample while it is collected."""

    documents: list[Document] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    suite: list[SuiteItem] = field(default_factory=list)
    skipped_files: int = 0


@dataclass(frozen=True)
class ModuleDocstrings:
    """The docstrings of one Python file."""

    path: str
    docstrings: list[Docstring]

    @property
    def module(self) -> str:
        """The dotted name of the module, by its path."""
        return PurePosixPath(self.path).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")

    def names(self) -> list[str]:
        """Return a name for each docstring that is unique in the file: ``path:Class.method``, then with ``#2``, …"""
        seen: Counter[str] = Counter()
        names = []
        for docstring in self.docstrings:
            name = f"{self.path}:{docstring.name}" if docstring.name else self.path
            seen[name] += 1
            names.append(f"{name}#{seen[name]}" if seen[name] > 1 else name)
        return names


def is_held_out(record_id: str, docstring: Docstring) -> bool:
    """Return whether a function of the standard library becomes a suite item: public, well documented, one in two."""
    return (
        docstring.kind == "function"
        and not any(part.startswith("_") for part in re.split(r"[/.:]", record_id))
        and len(docstring.text.split()) >= MINIMUM_SUITE_WORDS
        and xxhash.xxh3_64_intdigest(record_id.encode()) % HELD_OUT_ONE_IN == 0
    )


def prompt(record_id: str, docstring: Docstring, module: str, package: str) -> str:
    """Return a request that a function's docstring answers, in one of the fixed forms, chosen by the id's hash."""
    form = PROMPTS[xxhash.xxh3_64_intdigest(record_id.encode(), seed=1) % len(PROMPTS)]
    call = f"{docstring.owner}.{docstring.signature}" if docstring.owner else docstring.signature
    kind = "method" if docstring.owner else "function"
    return form.format(kind=kind, call=call, name=docstring.name, module=module, package=package)


def class_page(docstring: Docstring, methods: Iterable[Docstring]) -> str:
    """Return a class's docstring with those of its methods under their signatures."""
    sections = [docstring.text] if docstring.text else []
    sections += [f"{docstring.name}.{method.signature}\n\n{method.text}" for method in methods]
    return "\n\n".join(sections)


def docstring_documents(module: ModuleDocstrings) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each page: a module, a class with its methods, a function outside classes."""
    methods: dict[str, list[Docstring]] = {}
    for docstring in module.docstrings:
        if docstring.kind == "function" and docstring.owner is not None:
            methods.setdefault(docstring.owner, []).append(docstring)
    for name, docstring in zip(module.names(), module.docstrings, strict=True):
        if docstring.kind == "class":
            # A class defined twice (in the branches of an if) has one page, under the first definition.
            yield name, class_page(docstring, methods.pop(docstring.name, ()))
        elif docstring.owner is None:
            yield name, docstring.text


def file_kind(path: str) -> str | None:
    """Return what kind of document a text file is as a whole, by its name; null if it is none."""
    file = PurePosixPath(path)
    in_metadata = any(part.endswith((".dist-info", ".egg-info")) for part in file.parts[:-1])
    if LICENSE_FILE.match(file.name) or (in_metadata and "licenses" in file.parts[:-1]):
        return "license"
    if file.name.upper().split(".")[0] == "README" and file.suffix in {"", *DOCUMENTATION_SUFFIXES}:
        return "readme"
    if file.suffix in DOCUMENTATION_SUFFIXES and LISTS.fullmatch(file.name) is None:
        return "documentation"
    return None


def numbered(path: str, what: str, texts: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of texts that have a line instead of a name; short comments are left out."""
    minimum = MINIMUM_COMMENT_CHARACTERS if what == "comment" else MINIMUM_CHARACTERS
    return ((f"{path}:{what}@{line}", text) for line, text in texts if len(text) >= minimum)


def file_texts(file: SourceFile, modules: list[ModuleDocstrings]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, kind, text) of what a file holds, without its Python docstrings, which go to ``modules``.

    Raises UnreadableFileError.
    """
    suffix = PurePosixPath(file.path).suffix
    if suffix in PYTHON_SUFFIXES:
        source = decode_python(file.read())
        if file.path == HELP_TOPICS:
            yield from ((f"{file.path}:{name}", "documentation", text) for name, text in help_topics(source))
        yield from ((name, "comment", text) for name, text in numbered(file.path, "comment", hash_comments(source)))
        if found := docstrings(source):
            modules.append(ModuleDocstrings(file.path, found))
    elif suffix in CYTHON_SUFFIXES:
        source = decode_text(file.read())
        for kind, texts in (("comment", hash_comments(source)), ("docstring", cython_docstrings(source))):
            yield from ((name, kind, text) for name, text in numbered(file.path, kind, texts))
    elif suffix in C_SUFFIXES:
        source = decode_text(file.read())
        yield from ((name, "comment", text) for name, text in numbered(file.path, "comment", c_comments(source)))
    elif suffix == ".po":
        yield file.path, "translation", clean_text("\n".join(translations(decode_text(file.read()))))
    elif kind_of_file := file_kind(file.path):
        yield file.path, kind_of_file, clean_text(decode_text(file.read()))


def usable_texts(file: SourceFile, modules: list[ModuleDocstrings]) -> list[tuple[str, str, str]] | None:
    """Return what ``file_texts`` yields, or null if the file cannot be used."""
    try:
        return list(file_texts(file, modules))
    except UnreadableFileError:
        return None


def hold_out(sample: Sample, source: Source, modules: list[ModuleDocstrings]) -> list[ModuleDocstrings]:
    """Add the suite's items to the sample, and return the modules without every docstring that has the same text."""
    held_out = set()
    for module in modules:
        for name, docstring in zip(module.names(), module.docstrings, strict=True):
            record_id = f"{source.name}/{name}"
            if docstring.text not in held_out and is_held_out(record_id, docstring):
                held_out.add(docstring.text)
                question = QUESTION.format(documentation=docstring.text)
                sample.suite.append(SuiteItem(record_id, question, f"{module.module}.{docstring.name}"))
    return [
        ModuleDocstrings(module.path, [docstring for docstring in module.docstrings if docstring.text not in held_out])
        for module in modules
    ]


def add_source(sample: Sample, source: Source) -> None:
    """Add the documents, pairs and suite items of one source, in the order of its files."""
    texts: list[tuple[str, str, str]] = [("METADATA", "readme", clean_text(source.readme))]
    modules: list[ModuleDocstrings] = []
    for file in source.files:
        found = usable_texts(file, modules)
        sample.skipped_files += found is None
        texts += found or ()
    if source.name == STANDARD_LIBRARY:
        modules = hold_out(sample, source, modules)
    for module in modules:
        texts.extend((name, "docstring", text) for name, text in docstring_documents(module))
        for name, docstring in zip(module.names(), module.docstrings, strict=True):
            if docstring.kind == "function" and len(docstring.text) >= MINIMUM_CHARACTERS:
                record_id = f"{source.name}/{name}"
                request = prompt(record_id, docstring, module.module, source.name)
                sample.pairs.append(Pair(record_id, request, docstring.text, source.name))
    texts.sort(key=lambda text: text[0].split(":", 1)[0])
    sample.documents.extend(
        Document(f"{source.name}/{name}", text, source.name, source.license, kind)
        for name, kind, text in texts
        if len(text) >= MINIMUM_CHARACTERS
    )


def collect(sources: Iterable[Source], progress: Callable[[str], None] | None = None) -> Sample:
    """Return what the sources hold. ``progress`` is called with the name of each source before it is read."""
    sample = Sample()
    collecting = gc.isenabled()
    # Syntax trees have no cycles; looking for some in them takes half of the time.
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other people's files say when they are parsed is no news here
            for source in sources:
                if progress is not None:
                    progress(source.name)
                add_source(sample, source)
    finally:
        if collecting:
            gc.enable()
    return sample


def split_by_bytes(sizes: Iterable[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive runs that reach ``limit`` with their last member; (0, 0) for no members."""
    start = stop = total = 0
    for size in sizes:
        stop += 1
        total += size
        if total >= limit:
            yield start, stop
            start, total = stop, 0
    if start < stop or stop == 0:
        yield start, stop


def write_documents(folder: Path, documents: list[Document]) -> list[Path]:
    """Write documents to Parquet files of about ``FILE_BYTES`` of text and return their paths, still ``.partial``."""
    sizes = [len(document.text.encode()) for document in documents]
    paths = []
    for number, (start, stop) in enumerate(split_by_bytes(sizes, FILE_BYTES)):
        path = folder / f"part-{number:05d}.parquet.partial"
        with pq.ParquetWriter(path, DOCUMENT_SCHEMA, compression="zstd") as writer:
            for first, last in split_by_bytes(sizes[start:stop], ROW_GROUP_BYTES):
                rows = [document._asdict() for document in documents[start + first : start + last]]
                writer.write_table(pa.Table.from_pylist(rows, DOCUMENT_SCHEMA))
        paths.append(path)
    return paths


def write_lines(path: Path, rows: Iterable[Pair | SuiteItem]) -> Path:
    """Write one JSON object per line and return the path."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows)
    return path


def write_pairs(folder: Path, pairs: list[Pair]) -> list[Path]:
    """Write pairs to JSONL files of about ``FILE_BYTES`` of text and return their paths, still ``.partial``."""
    sizes = [len(pair.prompt.encode()) + len(pair.response.encode()) for pair in pairs]
    runs = enumerate(split_by_bytes(sizes, FILE_BYTES))
    return [
        write_lines(folder / f"pairs-{number:05d}.jsonl.partial", pairs[start:stop]) for number, (start, stop) in runs
    ]


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn what goes wrong when files are written into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write the sample to {folder}: {error}; name a folder that can be written") from error


def prepare_folder(folder: Path) -> None:
    """Make the folders of a sample, and see that they can be written, before any work. Raises UsageError."""
    with writing_to(folder):
        for name in ("documents", "pairs", "suite"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            probe = folder / name / "probe.partial"
            probe.touch()
            probe.unlink()


def write_sample(folder: Path, sample: Sample) -> None:
    """Write a sample to a prepared folder; an earlier sample is replaced, other files stay. Raises UsageError."""
    with writing_to(folder):
        written = write_documents(folder / "documents", sample.documents)
        written += write_pairs(folder / "pairs", sample.pairs)
        written.append(write_lines(folder / "suite" / "stdlib.jsonl.partial", sample.suite))
        written.append(folder / "suite" / "stdlib.yaml.partial")
        written[-1].write_text(SUITE, encoding="utf-8")
        new = {path.replace(path.with_suffix("")) for path in written}
        for old in {*folder.glob("documents/part-*.parquet"), *folder.glob("pairs/pairs-*.jsonl")} - new:
            old.unlink()


def build_sample(folder: Path, progress: Callable[[str], None] | None = None) -> SampleCounts:
    """Write the sample of this environment to ``folder`` and return what it holds.

    The folder gets ``documents/part-*.parquet``, ``pairs/pairs-*.jsonl``, ``suite/stdlib.jsonl`` and the suite file
    ``suite/stdlib.yaml`` over it. ``progress`` is called with the name of each package. Raises UsageError where the
    folder cannot be written.
    """
    prepare_folder(folder)
    sample = collect(environment_sources(), progress)
    write_sample(folder, sample)
    return SampleCounts(
        documents=len(sample.documents),
        pairs=len(sample.pairs),
        suite_items=len(sample.suite),
        text_bytes=sum(len(document.text.encode()) for document in sample.documents),
        skipped_files=sample.skipped_files,
    )
