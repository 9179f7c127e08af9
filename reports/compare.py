"""Compare two finished runs: did the data drift, or did the config?

What is compared: configs, inputs, columns, counts, the shares that each rule drops, the mixture of the records kept,
every signal's distribution over all records that have it, and which contents both outputs have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.selection_keys import hash_words
from corpus.text import text_buffers
from reports.curated import NONE
from reports.distribution import Distribution
from reports.drift import kolmogorov_smirnov, stability_index, total_variation
from reports.limits import Limits
from reports.manifest import MANIFEST_NAME, REPORT_NAME
from reports.verify import read_json

SHOWN = 50
ROWS_AT_ONCE = 1 << 18
CONTENTS_AT_ONCE = 1 << 25
"""Contents of a run that are compared in one pass over both: 8 bytes each."""
TABLES = ("curated/", "signals/")
"""What is read of a run."""
COUNTED = ("record_id", "source", "file", "position", "kept")
"""Columns of the signals table that are no signals."""
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

    def column(self, table: str, name: str) -> Iterator[pa.Array]:
        """Yield a column of a table in pieces."""
        for file in self.names(table):
            with self._open(file) as source:
                for batch in pq.ParquetFile(source).iter_batches(ROWS_AT_ONCE, columns=[name]):
                    yield batch.column(0)

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
        "kept_share": _change(*(_share(run.report["records"], "kept", "read") for run in (before, after))),
        "rules": _rules(before.report, after.report),
        "sources": _sources(before.report, after.report),
        "mixture": {
            group: _mixture(before.names_of(group), after.names_of(group))
            for group in sorted((before.mixture.keys() | after.mixture.keys()) - {NONE})
        },
        "signals": list(_signals(before, after)),
        "common": _common(before, after),
    }


def _share(counts: Mapping[str, int], part: str, whole: str) -> float | None:
    return counts[part] / counts[whole] if counts[whole] else None


def _change(before: float | None, after: float | None) -> dict[str, float | None]:
    change = None if before is None or after is None else after - before
    return {"before": before, "after": after, "change": change}


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
        rows.append({"stage": stage, "rule": rule, **_change(*values)})
    return sorted(rows, key=lambda row: -abs(float(row["change"] or 0)))


def _sources(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the share of each source's records that is kept, the largest change first."""
    groups = before["by_source"], after["by_source"]
    rows: list[dict[str, Any]] = [
        {"source": name, **_change(*(_share(group[name], "kept", "read") for group in groups))}
        for name in sorted(groups[0].keys() & groups[1].keys())
    ]
    return sorted(rows, key=lambda row: -abs(float(row["change"] or 0)))[:SHOWN]


def _mixture(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    totals = sum(before.values()) or 1, sum(after.values()) or 1
    rows: list[dict[str, Any]] = [
        {"name": name, **_change(before.get(name, 0) / totals[0], after.get(name, 0) / totals[1])}
        for name in sorted(before.keys() | after.keys())
    ]
    rows.sort(key=lambda row: -abs(row["change"]))
    return {"total_variation": total_variation(before, after), "names": rows[:SHOWN]}


def _signals(before: ComparedRun, after: ComparedRun) -> Iterator[dict[str, Any]]:
    kinds = before.schema("signals"), after.schema("signals")
    for name in kinds[0]:
        if name in COUNTED or name not in kinds[1] or not {kinds[0][name], kinds[1][name]} <= {"int64", "double"}:
            continue
        values, missing = zip(*(distribution(run.column("signals", name)) for run in (before, after)), strict=True)
        entry: dict[str, Any] = {"signal": name, "missing_share": _change(*missing)}
        if all(len(one) for one in values):
            entry |= {
                "median": _change(*(one.median for one in values)),
                "mean": _change(*(one.mean for one in values)),
                "stability_index": stability_index(*values),
                "kolmogorov_smirnov": kolmogorov_smirnov(*values),
            }
        yield entry


def distribution(column: Iterable[pa.Array]) -> tuple[Distribution, float]:
    """Return the finite values of a numeric column that comes in pieces, and the share of rows without one."""
    found, rows = Distribution.of(np.zeros(0)), 0
    for piece in column:
        values = pc.cast(piece.drop_null(), pa.float64()).to_numpy()
        found = found.plus(Distribution.of(values[np.isfinite(values)]))
        rows += len(piece)
    return found, 1 - len(found) / rows if rows else 0.0


def _common(before: ComparedRun, after: ComparedRun) -> dict[str, Any]:
    """Return how many distinct contents both outputs have, told by the first 64 bits of their hashes."""
    most = max(run.report["records"]["kept"] for run in (before, after))
    parts = -(-most // CONTENTS_AT_ONCE)
    both, sizes = 0, [0, 0]
    for part in range(parts):
        first, second = (_contents(run, part, parts) for run in (before, after))
        both += len(np.intersect1d(first, second, assume_unique=True))
        sizes = [sizes[0] + len(first), sizes[1] + len(second)]
    shares = [both / size if size else None for size in sizes]
    return {"contents": both, "share_of_before": shares[0], "share_of_after": shares[1]}


def _contents(run: ComparedRun, part: int, parts: int) -> npt.NDArray[np.uint64]:
    """Return the distinct contents of a run whose hashes leave the remainder ``part``, uint64[n] ascending."""
    pieces = [np.zeros(0, np.uint64)]
    for column in run.column("curated", "content_hash"):
        hashes = leading_bits(column)
        pieces.append(np.unique(hashes[hashes % np.uint64(parts) == part]))
    return np.unique(np.concatenate(pieces))


def leading_bits(hashes: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the first 64 bits of hashes in lower-case hex of 32 digits each, uint64[n]."""
    offsets, data = text_buffers(hashes)
    digits = data[offsets[0] : offsets[-1]].tobytes().decode("ascii")
    return hash_words(np.frombuffer(bytes.fromhex(digits), "V16"))[:, 0]


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
    limit = 0.25 if limits.stability_index == "off" else limits.stability_index
    # A stage whose settings changed may measure something else; all others measure the same of other data.
    places = [line.partition(":")[0].split(".") for line in comparison["config"]]
    changed = {place[1] for place in places if place[0] in (STAGES, FINGERPRINTS) and len(place) > 1}
    drifting = [
        entry["signal"]
        for entry in comparison["signals"]
        if entry.get("stability_index", 0) > limit and entry["signal"].split(".", 1)[0] not in changed
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
