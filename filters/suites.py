"""Suites of benchmarks: reading suite files, finding and reading the files that they name.

A suite file is YAML. Files of a benchmark are relative to it; those of a hub data set are read from the local copy that
``filters.suite_hub`` makes. What is wrong is told with suite file, line and setting, and for rows with file and row.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from corpus.config_problems import Problems, type_name
from corpus.errors import UsageError
from corpus.yaml_reader import Document, read_yaml_file
from filters.suite_config import Benchmark, BenchmarkConfig, HubConfig, SuiteConfig
from filters.suite_items import BenchmarkItem, read_items


@dataclass(frozen=True)
class Suite:
    """A suite file and what it declares."""

    path: Path
    config: SuiteConfig
    document: Document

    @property
    def benchmarks(self) -> list[Benchmark]:
        """The benchmarks with the lines of their settings, in the order of the file."""
        return [self._benchmark(number, config) for number, config in enumerate(self.config.benchmarks)]

    def _benchmark(self, number: int, config: BenchmarkConfig) -> Benchmark:
        names = ("name", *config.model_fields_set)
        places = {name: str(self.document.place(("benchmarks", number, name))) for name in names}
        return Benchmark(config, self.path, places)


@dataclass(frozen=True)
class BenchmarkFiles:
    """A benchmark with the local files that its entries match.

    Attributes:
        benchmark: the benchmark.
        files: (name, path), sorted by name; names are below the longest common folder.
    """

    benchmark: Benchmark
    files: tuple[tuple[str, Path], ...]

    @property
    def config(self) -> BenchmarkConfig:
        """What is declared."""
        return self.benchmark.config


@contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """Note a UsageError among problems instead of ending, so that all can be told in one go."""
    try:
        yield
    except UsageError as error:
        problems.append(str(error))


def raise_noted(problems: list[str]) -> None:
    """Raise UsageError with a line per problem, if there are any."""
    if problems:
        raise UsageError("\n".join(problems))


def read_suite(path: Path) -> Suite:
    """Read a suite file. Raises UsageError with one line per problem: file, line, setting, what is wanted."""
    document = read_yaml_file(path)
    if not isinstance(document.value, dict):
        found = "is empty" if document.value is None else f"is {type_name(document.value)}"
        raise UsageError(f"{document.place(())}: the suite {found}; it needs the key benchmarks, a list")
    problems = Problems(document)
    try:
        config = SuiteConfig.model_validate(document.value)
    except ValidationError as error:
        problems.add_validation_error(error, SuiteConfig, ())
        problems.raise_if_any()
        raise
    first: dict[str, int] = {}
    for number, benchmark in enumerate(config.benchmarks):
        if first.setdefault(benchmark.name, number) != number:
            place = document.place(("benchmarks", first[benchmark.name], "name"))
            problems.add(
                ("benchmarks", number, "name"),
                f"two benchmarks have the name {benchmark.name}, the other on line {place.line}; give each its own",
            )
    problems.raise_if_any()
    return Suite(path, config, document)


def read_suites(entries: Iterable[str], setting: str) -> list[Suite]:
    """Return the suites that paths and globs name, each once, by path.

    Raises:
        UsageError: an entry matches nothing, or suites cannot be used; what is wrong with any of them is told.
    """
    paths: set[Path] = set()
    for entry in entries:
        found = [entry] if Path(entry).is_file() else sorted(glob.glob(entry, recursive=True))
        files = [Path(path).resolve() for path in found if Path(path).is_file()]
        if not files:
            raise UsageError(f"{setting}: {entry} matches no file; give suite files or globs (suites/*.yaml)")
        paths.update(files)
    suites: list[Suite] = []
    problems: list[str] = []
    for path in sorted(paths):
        with noted(problems):
            suites.append(read_suite(path))
    raise_noted(problems)
    return suites


def find_suites(entries: Iterable[str], setting: str) -> list[Suite]:
    """Return the suites that paths and globs name, as ``read_suites``, to be used together.

    Raises:
        UsageError: also where two suites have a benchmark of one name.
    """
    suites = read_suites(entries, setting)
    owners: dict[str, Benchmark] = {}
    for suite in suites:
        for benchmark in suite.benchmarks:
            owner = owners.setdefault(benchmark.config.name, benchmark)
            if owner.suite != suite.path:
                raise benchmark.problem("name", f"it is declared in {owner.places['name']} too; rename or remove one")
    return suites


def hub_folder(hub: HubConfig) -> Path:
    """Return the folder of the local copy of a hub data set in one revision."""
    return Path(platformdirs.user_cache_dir("thresher")) / "suites" / hub_name(hub)


def hub_name(hub: HubConfig) -> Path:
    """Return the relative path of a hub data set in one revision, in a folder of such copies."""
    return Path(hub.id.replace("/", "--")) / hub.revision


def benchmark_files(benchmark: Benchmark, copies: Path | None = None) -> BenchmarkFiles:
    """Return the local files of a benchmark.

    Args:
        benchmark: the benchmark.
        copies: where its hub data set was copied to; default ``hub_folder``.

    Raises:
        UsageError: an entry matches no file.
    """
    hub = benchmark.config.hub
    folder = benchmark.suite.parent if hub is None else copies or hub_folder(hub)
    paths: set[Path] = set()
    for pattern in benchmark.config.patterns:
        whole = folder / pattern
        if whole.is_file():
            paths.add(whole)
            continue
        found = [Path(path) for path in glob.glob(str(folder / pattern), recursive=True) if Path(path).is_file()]
        if not found:
            remedy = "correct the entry"
            if hub is not None:
                command = f"thresher suites fetch {benchmark.config.name} --suites {benchmark.suite}"
                remedy = f"fetch {hub.id} at {hub.revision}: {command}"
            raise benchmark.problem("files", f"files: {pattern} matches no file in {folder}; {remedy}")
        paths.update(found)
    ordered = sorted(paths)
    parent = ordered[0].parent
    while not all(path.is_relative_to(parent) for path in ordered):
        parent = parent.parent
    names = sorted((path.relative_to(parent).as_posix(), path) for path in ordered)
    return BenchmarkFiles(benchmark, tuple(names))


def all_files(suites: Sequence[Suite]) -> list[BenchmarkFiles]:
    """Return the local files of all benchmarks, by name. Raises UsageError naming all benchmarks that lack some."""
    found: list[BenchmarkFiles] = []
    problems: list[str] = []
    for benchmark in (benchmark for suite in suites for benchmark in suite.benchmarks):
        with noted(problems):
            found.append(benchmark_files(benchmark))
    raise_noted(problems)
    return sorted(found, key=lambda files: files.config.name)


def load_items(benchmarks: Iterable[BenchmarkFiles]) -> list[BenchmarkItem]:
    """Return the items of benchmarks.

    Raises:
        UsageError: with a line for each benchmark that cannot be used: suite, line, benchmark, file and row.
    """
    items: list[BenchmarkItem] = []
    problems: list[str] = []
    for found in benchmarks:
        with noted(problems):
            items.extend(read_items(found.benchmark, found.files))
    raise_noted(problems)
    return items


def content_digest(benchmarks: Sequence[BenchmarkFiles]) -> str:
    """Return the SHA-256 of what benchmarks declare and of the bytes of their files, not of where these lie."""
    digest = hashlib.sha256()
    for found in sorted(benchmarks, key=lambda files: files.config.name):
        meaning = found.config.model_dump_json(exclude={"files", "hub", "license"})
        digest.update(f"{len(meaning)}:{meaning}{len(found.files)};".encode())
        for name, path in found.files:
            digest.update(f"{len(name)}:{name}{file_summary(name, path).sha256}".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class FileSummary:
    """A file of a benchmark: its name, size and SHA-256."""

    name: str
    bytes: int
    sha256: str


def file_summary(name: str, path: Path) -> FileSummary:
    """Return size and hash of a file. Raises UsageError where it cannot be read."""
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}; give this user access to it") from None
    return FileSummary(name, size, digest.hexdigest())
