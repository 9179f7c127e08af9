"""The manifest, written last: what went in, what was asked, what came out; the same for the same input and config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from corpus.canonical import canonical_hash
from corpus.folder import Folder
from corpus.parquet_output import OutputFile

MANIFEST_NAME, REPORT_NAME, CONFIG_NAME, CARD_NAME = "manifest.json", "report.json", "config.yaml", "README.md"
RUN_NAME = "run.json"
FORMAT_VERSION = 1
UNLISTED = (MANIFEST_NAME, RUN_NAME, "report.html")
MAX_MIXTURE = 10_000
OTHERS = "(others)"
MIXTURES = ("mixture_read", "mixture", "mixture_characters_read", "mixture_characters")
"""Counts by group and name: the records read and kept, and the characters of these."""


def to_json(value: Any) -> bytes:
    """Return JSON for people and programs: two blanks of indent, keys in their order, non-ASCII as it is."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_listed(folder: Folder, name: str, data: bytes) -> OutputFile:
    """Write a small file and return its entry for the manifest."""
    folder.write_bytes(name, data)
    return OutputFile(name, 0, len(data), hashlib.sha256(data).hexdigest())


def input_entries(files: Sequence[str], failed: Mapping[str, int], counts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one entry per input file, in the order of the plan."""
    entries = []
    for file in files:
        found = counts.get(file, {"rows": 0, "digest": 0})
        digest = found["digest"] % (1 << 64)
        entries.append({"file": file, "rows": found["rows"], "digest": f"{digest:016x}", "failed": file in failed})
    return entries


def mixture(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return a count by language, source and licence; the largest names where they are many."""
    limited = {}
    for group, names in sorted(counts.items()):
        ordered = sorted(names.items(), key=lambda entry: (-entry[1], entry[0]))
        limited[group] = dict(sorted(ordered[:MAX_MIXTURE]))
        if len(ordered) > MAX_MIXTURE:
            limited[group][OTHERS] = sum(count for _, count in ordered[MAX_MIXTURE:])
    return limited


def build_manifest(
    version: str,
    semantic_config: Mapping[str, Any],
    config_hash: str,
    inputs: Sequence[Mapping[str, Any]],
    records: Mapping[str, int],
    mixtures: Mapping[str, Mapping[str, Mapping[str, int]]],
    content_digest: int,
    outputs: Sequence[OutputFile],
) -> dict[str, Any]:
    """Return the manifest; nothing in it depends on time, place, runner or number of workers.

    ``mixtures`` has what ``MIXTURES`` lists. ``manifest_hash`` is the hash of all the rest, so that a change of the
    manifest itself is found as well.
    """
    manifest = {
        "thresher_version": version,
        "format_version": FORMAT_VERSION,
        "config_hash": config_hash,
        "config": semantic_config,
        "inputs": list(inputs),
        "records": dict(records),
        **{name: mixture(mixtures[name]) for name in MIXTURES},
        "content_digest": f"{content_digest:016x}",
        "outputs": [
            {"file": entry.name, "rows": entry.rows, "bytes": entry.bytes, "sha256": entry.sha256}
            for entry in sorted(outputs, key=lambda entry: entry.name)
        ],
    }
    return {**manifest, "manifest_hash": canonical_hash(manifest)}
