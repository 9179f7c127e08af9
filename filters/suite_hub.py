"""Local copies of the hub data sets that suites name: ``thresher suites fetch``."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus.errors import UsageError
from filters.suite_config import Benchmark, HubConfig
from filters.suites import hub_folder, hub_name

INSTALL_HUB = "install it with: pip install 'thresher[cloud]' (or huggingface_hub alone)"
METADATA = ".cache"
"""Folder in which the hub's client notes what it has copied."""
LISTED = 10
"""Files of a data set that an error names."""


@dataclass(frozen=True)
class HubCopy:
    """A copy of a hub data set: its commit, and the folder in which its files lie."""

    hub: HubConfig
    commit: str
    folder: Path


def by_data_set(benchmarks: Sequence[Benchmark]) -> dict[HubConfig, list[Benchmark]]:
    """Return the benchmarks of each hub data set in one revision; those without one are left out."""
    groups: dict[HubConfig, list[Benchmark]] = {}
    for benchmark in benchmarks:
        if benchmark.config.hub is not None:
            groups.setdefault(benchmark.config.hub, []).append(benchmark)
    return groups


def fetch(hub: HubConfig, benchmarks: Sequence[Benchmark], into: Path | None = None) -> HubCopy:
    """Copy a hub data set to this machine, those files only that benchmarks name.

    What an earlier copy has and the revision has no more is removed.

    Args:
        hub: the data set.
        benchmarks: its benchmarks, at least one.
        into: folder for copies; default the folder of the user's cache in which stages look for them.

    Raises:
        UsageError: huggingface_hub is not installed, the data set cannot be had, or it lacks the files.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise benchmarks[0].problem("hub", f"hub data sets need the package huggingface_hub; {INSTALL_HUB}") from None
    folder = hub_folder(hub) if into is None else into / hub_name(hub)
    patterns = [pattern for benchmark in benchmarks for pattern in benchmark.config.patterns]
    try:
        info = huggingface_hub.HfApi().dataset_info(hub.id, revision=hub.revision)
        names = {sibling.rfilename for sibling in info.siblings or ()}
        _check_names(hub, benchmarks, names)
        huggingface_hub.snapshot_download(
            hub.id, repo_type="dataset", revision=info.sha, allow_patterns=patterns, local_dir=folder
        )
    except UsageError:
        raise
    except Exception as error:  # the client has errors of its own, and those of its transport
        raise benchmarks[0].problem("hub", f"cannot fetch {hub.id} at {hub.revision}: {_reason(error)}") from None
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] != METADATA and name.as_posix() not in names:
            path.unlink()
    return HubCopy(hub, str(info.sha), folder)


def _check_names(hub: HubConfig, benchmarks: Sequence[Benchmark], names: set[str]) -> None:
    """Raise UsageError for an entry of ``files`` that no file of the data set matches."""
    for benchmark in benchmarks:
        for pattern in benchmark.config.patterns:
            if not fnmatch.filter(names, pattern):
                there = ", ".join(sorted(names)[:LISTED]) or "none"
                raise benchmark.problem(
                    "files",
                    f"files: {pattern} matches no file of {hub.id} at {hub.revision}; correct the entry; there are: "
                    f"{there}",
                )


def _reason(error: Exception) -> str:
    """Return in a line why a data set cannot be had, and what to do about it."""
    from huggingface_hub import errors

    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set; unset it, or name local files instead of hub"
    if isinstance(error, errors.GatedRepoError):
        return f"the data set asks for an account; get access on its page and log in (hf auth login): {text}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"there is no such revision; correct it: {text}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no such data set, or it asks for an account; correct the id, or log in: {text}"
    if isinstance(error, errors.HfHubHTTPError):
        return f"the hub refuses; try again later: {text}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; make room or rights"
    return f"the hub cannot be reached; check the network (HF_ENDPOINT), or name local files instead of hub: {text}"
