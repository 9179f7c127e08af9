"""Suites of benchmarks: finding and reading the files, and what ``thresher suites list | check | fetch`` tell.

A suite file is YAML. Files of a benchmark are relative to it; those of a hub data set are read from the local copy that
``fetch_suite`` makes.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from corpus.errors import UsageError
from filters.suite_config import BenchmarkConfig, HubConfig, SuiteConfig
from filters.suite_items import BenchmarkItem, read_items

INSTALL_HUB = "install it with: pip install huggingface_hub"


@dataclass(frozen=True)
class Suite:
    """A suite file and what it declares."""

    path: Path
    config: SuiteConfig


@dataclass(frozen=True)
class BenchmarkFiles:
    """A benchmark with the local files that its entries match.

    Attributes:
        suite: the suite file.
        config: the benchmark.
        files: (name, path), sorted by name; names are below the longest common folder.
    """

    suite: Path
    config: BenchmarkConfig
    files: tuple[tuple[str, Path], ...]


@dataclass(frozen=True)
class FileSummary:
    """A file of a benchmark: its name, size and SHA-256."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class BenchmarkSummary:
    """What ``thresher suites`` tells of a benchmark.

    Attributes:
        name, suite: of the benchmark.
        origin: ``local``, or id and revision of the hub data set.
        files: its local files; empty where none are there.
        missing: why there are none, else None.
        items: the number of items; None where they were not read.
        long, short: items that are found also with words changed, and exactly.
        uncheckable: (id, reason) of those that cannot be checked.
        with_answer, with_choices, with_context: items that have these.
    """

    name: str
    suite: str
    origin: str
    files: tuple[FileSummary, ...]
    missing: str | None = None
    items: int | None = None
    long: int = 0
    short: int = 0
    uncheckable: tuple[tuple[str, str], ...] = ()
    with_answer: int = 0
    with_choices: int = 0
    with_context: int = 0


def read_suite(path: Path) -> Suite:
    """Read a suite file. Raises UsageError naming file and field."""
    try:
        value = YAML(typ="safe", pure=True).load(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}; give a suite file") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        config = SuiteConfig.model_validate(value)
    except ValidationError as error:
        raise UsageError("\n".join(f"{path}: {_problem(value, problem)}" for problem in error.errors())) from None
    names = [benchmark.name for benchmark in config.benchmarks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two benchmarks have the name {name}; give each its own")
    return Suite(path, config)


def _problem(value: Any, problem: Any) -> str:
    place = ""
    for part in problem["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    text = f"{place.lstrip('.') or 'the file'}: {problem['msg']}"
    if problem["type"] == "extra_forbidden":
        known: type[BaseModel] = BenchmarkConfig if len(problem["loc"]) > 1 else SuiteConfig
        known = HubConfig if "hub" in problem["loc"][:-1] else known
        text += f"; the keys are {', '.join(known.model_fields)}"
    if isinstance(value, dict) and len(problem["loc"]) > 1 and isinstance(problem["loc"][1], int):
        benchmark = value["benchmarks"][problem["loc"][1]]
        if isinstance(benchmark, dict) and isinstance(benchmark.get("name"), str):
            text += f" (benchmark {benchmark['name']})"
    return text


def find_suites(entries: Iterable[str], setting: str) -> list[Suite]:
    """Return the suites that paths and globs name, each once, by path.

    Raises:
        UsageError: an entry matches nothing, a suite cannot be used, or two suites have a benchmark of one name.
    """
    paths: set[Path] = set()
    for entry in entries:
        found = [entry] if Path(entry).is_file() else sorted(glob.glob(entry, recursive=True))
        files = [Path(path).resolve() for path in found if Path(path).is_file()]
        if not files:
            raise UsageError(f"{setting}: {entry} matches no file; give suite files or globs (suites/*.yaml)")
        paths.update(files)
    suites = [read_suite(path) for path in sorted(paths)]
    owners: dict[str, Path] = {}
    for suite in suites:
        for benchmark in suite.config.benchmarks:
            if benchmark.name in owners:
                raise UsageError(
                    f"{suite.path}: the benchmark {benchmark.name} is declared in {owners[benchmark.name]} too; rename "
                    "or remove one"
                )
            owners[benchmark.name] = suite.path
    return suites


def hub_folder(hub: HubConfig) -> Path:
    """Return the folder of the local copy of a hub data set in one revision."""
    return Path(platformdirs.user_cache_dir("thresher")) / "suites" / hub.id.replace("/", "--") / hub.revision


def benchmark_files(suite: Suite, benchmark: BenchmarkConfig) -> BenchmarkFiles:
    """Return the local files of a benchmark. Raises UsageError where an entry matches none."""
    folder = suite.path.parent if benchmark.hub is None else hub_folder(benchmark.hub)
    where = f"{suite.path}: benchmark {benchmark.name}"
    paths: set[Path] = set()
    for pattern in benchmark.patterns:
        whole = folder / pattern
        if whole.is_file():
            paths.add(whole)
            continue
        found = [Path(path) for path in glob.glob(str(folder / pattern), recursive=True) if Path(path).is_file()]
        if not found:
            remedy = (
                "correct the entry"
                if benchmark.hub is None
                else f"fetch {benchmark.hub.id} at {benchmark.hub.revision}: thresher suites fetch {suite.path}"
            )
            raise UsageError(f"{where}: files: {pattern} matches no file in {folder}; {remedy}")
        paths.update(found)
    ordered = sorted(paths)
    parent = ordered[0].parent
    while not all(path.is_relative_to(parent) for path in ordered):
        parent = parent.parent
    names = sorted((path.relative_to(parent).as_posix(), path) for path in ordered)
    return BenchmarkFiles(suite.path, benchmark, tuple(names))


def all_files(suites: Sequence[Suite]) -> list[BenchmarkFiles]:
    """Return the local files of all benchmarks, by name. Raises UsageError where some are missing."""
    found = [benchmark_files(suite, benchmark) for suite in suites for benchmark in suite.config.benchmarks]
    return sorted(found, key=lambda benchmark: benchmark.config.name)


def load_items(benchmarks: Iterable[BenchmarkFiles]) -> list[BenchmarkItem]:
    """Return the items of benchmarks. Raises UsageError naming suite, benchmark, file and row."""
    items: list[BenchmarkItem] = []
    for benchmark in benchmarks:
        items.extend(read_items(str(benchmark.suite), benchmark.config, benchmark.files))
    return items


def content_digest(benchmarks: Sequence[BenchmarkFiles]) -> str:
    """Return the SHA-256 of what benchmarks declare and of the bytes of their files, not of where these lie."""
    digest = hashlib.sha256()
    for benchmark in sorted(benchmarks, key=lambda benchmark: benchmark.config.name):
        meaning = benchmark.config.model_dump_json(exclude={"files", "hub"})
        digest.update(f"{len(meaning)}:{meaning}{len(benchmark.files)};".encode())
        for name, path in benchmark.files:
            digest.update(f"{len(name)}:{name}{_summary(name, path).sha256}".encode())
    return digest.hexdigest()


def _summary(name: str, path: Path) -> FileSummary:
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    return FileSummary(name, size, digest.hexdigest())


def list_suites(suites: Sequence[Suite]) -> list[BenchmarkSummary]:
    """Return the benchmarks of suites with their local files, by name; reads no items."""
    summaries = []
    for suite in suites:
        for benchmark in suite.config.benchmarks:
            hub = benchmark.hub
            origin = "local" if hub is None else f"{hub.id}@{hub.revision}"
            try:
                files = tuple(_summary(name, path) for name, path in benchmark_files(suite, benchmark).files)
                missing = None
            except UsageError as error:
                files, missing = (), str(error)
            summaries.append(BenchmarkSummary(benchmark.name, str(suite.path), origin, files, missing))
    return sorted(summaries, key=lambda summary: summary.name)


def fetch_suite(suite: Suite) -> dict[str, str]:
    """Copy the hub data sets of a suite to this machine, those files only that benchmarks name.

    Returns:
        The commit of each data set that was copied, by ``id@revision``.

    Raises:
        UsageError: huggingface_hub is not installed, or a data set cannot be had.
    """
    wanted: dict[HubConfig, list[str]] = {}
    for benchmark in suite.config.benchmarks:
        if benchmark.hub is not None:
            wanted.setdefault(benchmark.hub, []).extend(benchmark.patterns)
    if not wanted:
        return {}
    try:
        import huggingface_hub
    except ImportError:
        raise UsageError(f"{suite.path}: hub data sets need the package huggingface_hub; {INSTALL_HUB}") from None
    commits = {}
    for hub, patterns in wanted.items():
        try:
            info = huggingface_hub.HfApi().dataset_info(hub.id, revision=hub.revision)
            huggingface_hub.snapshot_download(
                hub.id, repo_type="dataset", revision=info.sha, allow_patterns=patterns, local_dir=hub_folder(hub)
            )
        except Exception as error:  # the client has errors of its own, and those of its transport
            raise UsageError(
                f"{suite.path}: cannot fetch {hub.id} at {hub.revision}: {error}; check id, revision and network, or "
                "name local files"
            ) from None
        commits[f"{hub.id}@{hub.revision}"] = str(info.sha)
    return commits
