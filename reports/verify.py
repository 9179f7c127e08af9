"""Check a finished run against its manifest, from its files alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.canonical import canonical_hash, config_hash
from corpus.errors import UsageError
from corpus.folder import Folder
from reports.drop_report import OTHER_RULES
from reports.manifest import MANIFEST_NAME, REPORT_NAME, UNLISTED, to_json
from reports.tables import STAGE_ERROR
from reports.verify_curated import check_curated
from reports.verify_records import RecordCheck

_BLOCK = 1 << 22


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """Return a JSON file of a run folder. Raises UsageError where it is missing or damaged."""
    try:
        value = json.loads(folder.read_bytes(name))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{folder.root}: no {name}; is it the folder of a finished run?") from None
    except ValueError as error:
        raise UsageError(f"{folder.path(name)}: damaged ({error}); run again with --overwrite") from None
    if not isinstance(value, dict):
        raise UsageError(f"{folder.path(name)}: damaged (no JSON object); run again with --overwrite")
    return value


def verify(root: str) -> list[str]:
    """Return what does not hold in a finished run: one sentence per finding, none where all is well.

    Checks, from the files of the run alone:

    - the manifest is as it was written, and agrees with itself;
    - every file that it lists has its size, SHA-256 and rows, and no other file lies among them;
    - read = kept + dropped + dead per source, counted anew from curated, signals, ledger and dead letters;
    - every record is in exactly one of curated, ledger and dead letters, and once;
    - every ``related_id`` was kept by the stage that names it;
    - the curated records are in the order of the input, every text has its content hash, and schema, mixture and
      ``content_digest`` are those of the manifest.

    It reads neither the input nor ``staging/``, ``run.json`` and ``report.html``, which no manifest lists. The later
    checks take place only where every file is as it was written.
    """
    folder = Folder(root)
    manifest = read_json(folder, MANIFEST_NAME)
    if not _is_as_written(folder, manifest):
        return [f"{MANIFEST_NAME} is not as it was written (manifest_hash)"]
    findings = [*_check_manifest(manifest), *_check_files(folder, manifest)]
    if findings:
        return findings
    report = read_json(folder, REPORT_NAME)
    stages = [entry["name"] for entry in report["stages"]]
    files = [entry["file"] for entry in manifest["inputs"]]
    parts = [PurePosixPath(entry["file"]).name for entry in manifest["outputs"] if entry["file"].startswith("signals/")]
    return [
        *_check_conservation(folder, manifest, report),
        *RecordCheck(folder, stages, files, parts).findings(),
        *check_curated(folder, manifest),
    ]


def _is_as_written(folder: Folder, manifest: dict[str, Any]) -> bool:
    rest = {name: value for name, value in manifest.items() if name != "manifest_hash"}
    told = manifest.get("manifest_hash")
    return told == canonical_hash(rest) and folder.read_bytes(MANIFEST_NAME) == to_json(manifest)


def _check_manifest(manifest: dict[str, Any]) -> Iterator[str]:
    records = manifest["records"]
    if config_hash(manifest["config"]) != manifest["config_hash"]:
        yield "config_hash is not the hash of the config in the manifest"
    rows = sum(entry["rows"] for entry in manifest["inputs"])
    if rows != records["read"]:
        yield f"the inputs have {rows} rows, the manifest says that {records['read']} were read"
    for group in ("sources", "languages"):
        if group in manifest["mixture"]:
            found = sum(manifest["mixture"][group].values()) + manifest["mixture"].get("none", {}).get(group, 0)
            if found != records["kept"]:
                yield f"the mixture of {group} has {found} records, {records['kept']} were kept"


def _check_files(folder: Folder, manifest: dict[str, Any]) -> Iterator[str]:
    listed = {entry["file"]: entry for entry in manifest["outputs"]}
    present = folder.names()
    # Not asked for by name: a manifest of somebody else could name files outside the folder.
    found = set(present)
    for name, entry in listed.items():
        if name not in found:
            yield f"{name} is missing"
            continue
        digest, size = hashlib.sha256(), 0
        with folder.open_arrow(name) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
        if size != entry["bytes"]:
            yield f"{name} has {size} bytes, the manifest says {entry['bytes']}"
        elif digest.hexdigest() != entry["sha256"]:
            yield f"{name} has other bytes than the manifest says (SHA-256)"
        elif name.endswith(".parquet"):
            with folder.open_arrow(name) as file:
                rows = pq.ParquetFile(file).metadata.num_rows
            if rows != entry["rows"]:
                yield f"{name} has {rows} rows, the manifest says {entry['rows']}"
    for name in present:
        if name not in listed and name not in UNLISTED and not name.startswith("staging/"):
            yield f"{name} is not in the manifest"


def _tables(folder: Folder, manifest: dict[str, Any], below: str, columns: list[str]) -> Iterator[pa.Table]:
    for entry in manifest["outputs"]:
        if entry["file"].startswith(f"{below}/"):
            with folder.open_arrow(entry["file"]) as file:
                for batch in pq.ParquetFile(file).iter_batches(columns=columns):
                    yield pa.Table.from_batches([batch])


def _count(counter: Counter[Any], values: pa.ChunkedArray) -> None:
    for entry in values.value_counts().to_pylist():
        counter[entry["values"]] += entry["counts"]


def _check_conservation(folder: Folder, manifest: dict[str, Any], report: dict[str, Any]) -> Iterator[str]:
    decoded: Counter[Any] = Counter()
    kept: Counter[Any] = Counter()
    dropped: Counter[Any] = Counter()
    dead: Counter[Any] = Counter()
    unjudged: Counter[Any] = Counter()
    rules: Counter[Any] = Counter()
    for table in _tables(folder, manifest, "signals", ["source", "kept"]):
        _count(decoded, table["source"])
        _count(kept, table.filter(table["kept"])["source"])
    for table in _tables(folder, manifest, "ledger", ["source", "stage", "rule"]):
        _count(dropped, table["source"])
        for row in table.group_by(["stage", "rule"]).aggregate([([], "count_all")]).to_pylist():
            rules[row["stage"], row["rule"]] += row["count_all"]
    for table in _tables(folder, manifest, "dead_letters", ["source", "position", "error"]):
        table = table.filter(table["position"].is_valid())
        _count(dead, table["source"])
        _count(unjudged, table.filter(pc.equal(table["error"], STAGE_ERROR))["source"])
    curated = sum(entry["rows"] for entry in manifest["outputs"] if entry["file"].startswith("curated/"))
    for source, entry in [*report["by_source"].items(), (None, report.get("no_source"))]:
        read = decoded[source] + dead[source] - unjudged[source]
        found_here = (read, kept[source], dropped[source], dead[source])
        told_here = tuple(entry[name] for name in ("read", "kept", "dropped", "dead")) if entry else (0, 0, 0, 0)
        if found_here != told_here:
            name = "records without a source" if source is None else f"source {source}"
            yield f"{name}: read, kept, dropped and dead are {found_here} in the files, {told_here} in the report"
    for source in decoded | dead:
        if decoded[source] != kept[source] + dropped[source] + unjudged[source]:
            name = "records without a source" if source is None else f"source {source}"
            yield (
                f"{name}: {decoded[source]} decoded, {kept[source]} kept, {dropped[source]} in the ledger, "
                f"{unjudged[source]} dead by a stage"
            )
    found = {
        "read": decoded.total() + dead.total() - unjudged.total(),
        "kept": curated,
        "dropped": dropped.total(),
        "dead": dead.total(),
    }
    for name, value in found.items():
        for told, records in (("report", report["records"]), ("manifest", manifest["records"])):
            if records[name] != value:
                yield f"{name}: the files have {value}, the {told} says {records[name]}"
    if found["read"] != found["kept"] + found["dropped"] + found["dead"]:
        yield "read {read} is not kept {kept} + dropped {dropped} + dead {dead}".format(**found)
    for stage in report["stages"]:
        told_rules = Counter({rule: entry["first"] for rule, entry in stage["rules"].items()})
        found_rules: Counter[str] = Counter()
        for (name, rule), count in rules.items():
            if name == stage["name"]:
                found_rules[rule if rule in told_rules else OTHER_RULES] += count
        for rule in told_rules | found_rules:
            if found_rules[rule] != told_rules[rule]:
                yield (f"{stage['name']}/{rule}: {found_rules[rule]} in the ledger, {told_rules[rule]} in the report")
