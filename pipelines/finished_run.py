"""A finished run: where it lies and what its folder says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corpus.filesystem import locate
from corpus.folder import Folder
from reports.manifest import MANIFEST_NAME, REPORT_NAME, RUN_NAME
from reports.verify import read_json


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        root: path or URI of the run folder.
        report: content of ``report.json``.
        manifest: content of ``manifest.json``.
        details: content of ``run.json``.
    """

    root: str
    report: Mapping[str, Any]
    manifest: Mapping[str, Any]
    details: Mapping[str, Any]


def load_run(root: str) -> Run:
    """Return a finished run from its folder. Raises UsageError where there is none."""
    folder = Folder(root)
    manifest = read_json(folder, MANIFEST_NAME)
    details = read_json(folder, RUN_NAME) if folder.exists(RUN_NAME) else {}
    return Run(root, read_json(folder, REPORT_NAME), manifest, details)


def absolute(root: str) -> str:
    """Return a path or URI that means the same in every process. Raises UsageError for an unknown scheme."""
    return locate(root).rstrip("/") or "/"
