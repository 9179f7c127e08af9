"""Compare two finished runs: did the data drift, or did the config?

What is compared: configs, inputs, columns, counts, the shares that each rule drops, the mixture of the records kept,
every signal's distribution over all records that have it, and which contents both outputs have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.errors import UsageError
from corpus.folder import Folder
from reports.common_contents import common_contents
from reports.curated import NONE
from reports.limits import Limits
from reports.manifest import MANIFEST_NAME, REPORT_NAME
from reports.signal_drift import SHOWN, RunSignals, change_of, compare_mixtures, compare_signals
from reports.verify import read_json

ROWS_AT_ONCE = 1 << 18
TABLES = ("curated/", "signals/")
"""What is read of a run."""
NO_NAME = "(none)"
"""What a mixture calls the records without a language, source or licence."""
STAGES, FINGERPRINTS = "stages", "fingerprints"
"""Sections of a semantic config that say what stages do."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs: its folder, and what its report and manifest say (or will say)."""

    folder: Folder
    report: Mapping[str, Any]
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    mixture: Mapping[str, Mapping[str, int]]

    @staticmethod
    def open(root: str) -> ComparedRun:
        """Return a finished run. Raises UsageError where there is none, or its files are not there."""
        folder = Folder(root)
        manifest = read_json(folder, MANIFEST_NAME)
        try:
            inputs = {entry["file"]: entry["digest"] for entry in manifest["inputs"]}
            listed = [entry["file"] for entry in manifest["outputs"]]
            config, mixture = manifest["config"], manifest["mixture"]
        except KeyError as error:
            path = folder.path(MANIFEST_NAME)
            raise UsageError(f"{path}: no {error} in it; damaged, or of another version of Thresher") from None
        present = {name for table in TABLES for name in folder.names(table)}
        for name in listed:
            if name.startswith(TABLES) and name not in present:
                raise UsageError(f"{folder.path(name)}: the file is missing; see thresher verify {root}")
        return ComparedRun(folder, read_json(folder, REPORT_NAME), config, inputs, mixture)

    def names_of(self, group: str) -> dict[str, int]:
        """Return the kept records by the names of a group of the mixture, and how many have none."""
        names, without = self.mixture.get(group, {}), self.mixture.get(NONE, {}).get(group, 0)
        return {**names, NO_NAME: without} if without else dict(names)

    def names(self, table: str) -> list[str]:
        """Return the files of a table."""
        return [name for name in self.folder.names(table) if name.endswith(".parquet")]

    def schema(self, table: str) -> dict[str, str]:
        """Return the columns of a table and their types, none where it has no file."""
        names = self.names(table)
        if not names:
            return {}
        with self._open(names[0]) as source:
            return {field.name: str(field.type) for field in pq.read_schema(source)}

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a table in pieces."""
        for file in self.names(table):
            with self._open(file) as source:
                yield from pq.ParquetFile(source).iter_batches(ROWS_AT_ONCE, columns=list(columns))

    def signals(self) -> RunSignals:
        """Return the signals of the run."""
        return RunSignals(self.schema("signals"), partial(self.batches, "signals"))

    @contextmanager
    def _open(self, file: str) -> Iterator[Any]:
        try:
            with self.folder.open_arrow(file) as source:
                yield source
        except pa.ArrowException as error:
            path = self.folder.path(file)
            raise UsageError(f"{path}: damaged ({error}); see thresher verify {self.folder.root}") from None


def compare(before: ComparedRun, after: ComparedRun) -> dict[str, Any]:
    """Return how two runs differ; the keys are explained by ``beyond`` and ``print_comparison``."""
    runs = before, after
    columns = before.schema("curated"), after.schema("curated")
    return {
        "before": before.folder.root,
        "after": after.folder.root,
        "config": sorted(_differences({FINGERPRINTS: {}, **before.config}, {FINGERPRINTS: {}, **after.config}, "")),
        "inputs": _inputs(before.inputs, after.inputs),
        "columns": [
            {"column": name, "before": columns[0].get(name), "after": columns[1].get(name)}
            for name in sorted(columns[0].keys() | columns[1].keys())
            if columns[0].get(name) != columns[1].get(name)
        ],
        "records": {"before": before.report["records"], "after": after.report["records"]},
        "kept_share": change_of(*(_share(run.report["records"], "kept", "read") for run in runs)),
        "rules": _rules(before.report, after.report),
        "sources": _sources(before.report, after.report),
        "mixture": {
            group: compare_mixtures(before.names_of(group), after.names_of(group))
            for group in sorted((before.mixture.keys() | after.mixture.keys()) - {NONE})
        },
        "signals": compare_signals(before.signals(), after.signals()),
        "common": common_contents(
            before.batches("curated", ["content_hash"]),
            after.batches("curated", ["content_hash"]),
            max(run.report["records"]["kept"] for run in runs),
        ),
    }


def _share(counts: Mapping[str, int], part: str, whole: str) -> float | None:
    return counts[part] / counts[whole] if counts[whole] else None


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before.keys() | after.keys():
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif path == STAGES:
        old, new = _by_name(before), _by_name(after)
        yield from _differences(old, new, path)
        if [*old] != [*new] and set(old) == set(new):
            yield f"stages: the order was {', '.join(old)}, and is {', '.join(new)}"
    elif before != after and path != "input.files":
        yield f"{path}: {before!r} before, {after!r} after"


def _by_name(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {settings["name"]: settings for stage in stages for settings in stage.values()}


def _inputs(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, int]:
    common = before.keys() & after.keys()
    changed = sum(before[file] != after[file] for file in common)
    added, removed = len(after.keys() - common), len(before.keys() - common)
    return {"same": len(common) - changed, "changed": changed, "added": added, "removed": removed}


def _rules(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each rule the share of the records entering its stage that it drops, the largest change first."""
    shares: list[dict[tuple[str, str], float]] = []
    entered = []
    for report in (before, after):
        entered.append({stage["name"]: stage["entered"] for stage in report["stages"]})
        shares.append(
            {
                (stage["name"], rule): counts["first"] / stage["entered"]
                for stage in report["stages"]
                if stage["entered"]
                for rule, counts in stage["rules"].items()
            }
        )
    rows: list[dict[str, Any]] = []
    for stage, rule in sorted(shares[0].keys() | shares[1].keys()):
        values = [
            share.get((stage, rule), 0.0 if known.get(stage) else None)
            for share, known in zip(shares, entered, strict=True)
        ]
        rows.append({"stage": stage, "rule": rule, **change_of(*values)})
    return sorted(rows, key=lambda row: -abs(float(row["change"] or 0)))


def _sources(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the share of each source's records that is kept, the largest change first."""
    groups = before["by_source"], after["by_source"]
    rows: list[dict[str, Any]] = [
        {"source": name, **change_of(*(_share(group[name], "kept", "read") for group in groups))}
        for name in sorted(groups[0].keys() & groups[1].keys())
    ]
    return sorted(rows, key=lambda row: -abs(float(row["change"] or 0)))[:SHOWN]


def beyond(comparison: Mapping[str, Any], limits: Limits) -> list[str]:
    """Return what is beyond the limits, one sentence each."""
    found = []
    if limits.columns:
        found += [
            f"column {row['column']}: {row['before'] or 'missing'} before, {row['after'] or 'missing'} after"
            for row in comparison["columns"]
        ]
    found += _over("records kept", comparison["kept_share"], limits.kept_share, "kept_share")
    for row in comparison["rules"]:
        found += _over(f"{row['stage']}, {row['rule']}", row, limits.drop_share, "drop_share")
    for group, entry in comparison["mixture"].items():
        if limits.mixture != "off" and entry["total_variation"] > limits.mixture:
            found.append(
                f"{group}: a total variation of {entry['total_variation']:.3f}, over mixture ({limits.mixture:g})"
            )
    for entry in comparison["signals"]:
        found += _over(f"{entry['signal']} is missing", entry["missing_share"], limits.missing_share, "missing_share")
        for name in ("stability_index", "kolmogorov_smirnov"):
            limit = getattr(limits, name)
            if limit != "off" and entry.get(name, 0) > limit:
                found.append(f"{entry['signal']}: {name} {entry[name]:.3f}, over {limit:g}")
        if limits.mixture != "off" and entry.get("total_variation", 0) > limits.mixture:
            variation = entry["total_variation"]
            found.append(f"{entry['signal']}: a total variation of {variation:.3f}, over mixture ({limits.mixture:g})")
    return found


def _over(what: str, change: Mapping[str, float | None], limit: float | str, name: str) -> list[str]:
    if limit == "off" or change["change"] is None or abs(change["change"]) <= float(limit):
        return []
    return [
        f"{what}: {100 * (change['before'] or 0):.1f} % before, {100 * (change['after'] or 0):.1f} % after, over "
        f"{name} ({limit:g})"
    ]


def cause(comparison: Mapping[str, Any], limits: Limits) -> str:
    """Return in a sentence whether the data drifted, the config, both or neither."""
    largest = {
        "stability_index": 0.25 if limits.stability_index == "off" else limits.stability_index,
        "total_variation": 0.1 if limits.mixture == "off" else limits.mixture,
    }
    # A stage whose settings changed may measure something else; all others measure the same of other data.
    places = [line.partition(":")[0].split(".") for line in comparison["config"]]
    changed = {place[1] for place in places if place[0] in (STAGES, FINGERPRINTS) and len(place) > 1}
    drifting = [
        entry["signal"]
        for entry in comparison["signals"]
        if any(entry.get(name, 0) > limit for name, limit in largest.items())
        and entry["signal"].split(".", 1)[0] not in changed
    ]
    inputs = comparison["inputs"]
    same_input = not (inputs["changed"] or inputs["added"] or inputs["removed"])
    config = (
        f"the config differs in {len(comparison['config'])} settings"
        if comparison["config"]
        else "the config is the same"
    )
    data = "the input is the same" if same_input else "the input differs"
    if drifting:
        return f"{config}; {data}, and {len(drifting)} signals of unchanged stages shifted, first {drifting[0]}"
    return f"{config}; {data}, and no signal of an unchanged stage shifted"
