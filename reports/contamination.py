"""What a run found of benchmarks: items, records that hold them, and the ids to leave out of an evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filters.contamination import ContaminationConfig
from reports.counts import Counts
from reports.fates import StageInfo

COUNTING_RULES = ("threshold", "medium_threshold", "short_items")
"""The rules of the stage; a finding under another one is a remark, and the item does not count as found."""
BENCHMARK_COUNTS = ("items", "not_checkable", "found", "records")


def contamination_counts(evidence: pa.Table, infos: Sequence[StageInfo]) -> Counts:
    """Return what the evidence of a batch comes to, as counts that add up over batches.

    Args:
        evidence: of the records of one batch, ``reports.tables.EVIDENCE_SCHEMA``.
        infos: all stages.

    Returns:
        By stage ``items``: how many records hold each item, and ``records``: how many hold items of each benchmark. At
        most as many entries as the suites have items and benchmarks.
    """
    counts: Counts = {}
    for info in infos:
        if _config(info) is None:
            continue
        own = pc.and_(pc.equal(evidence["stage"], info.name), pc.is_in(evidence["rule"], pa.array(COUNTING_RULES)))
        found: set[tuple[int, str]] = set()
        for row in evidence.filter(own).select(["position", "related", "detail"]).to_pylist():
            # A cut that takes out several items lists the others beside the one that it names.
            others = orjson.loads(row["detail"]).get("other_items", ()) if row["detail"] else ()
            found |= {(row["position"], item) for item in (row["related"], *others)}
        counts[info.name] = {
            "items": dict(Counter(item for _, item in found)),
            "records": dict(Counter(name for _, name in {(at, _benchmark(item)) for at, item in found})),
        }
    return {"contamination": counts} if counts else {}


def contamination_report(counts: Counts, infos: Sequence[StageInfo]) -> dict[str, Any]:
    """Return what ``report.json`` says of benchmarks: by stage and benchmark.

    ``found`` of ``items`` occur in ``records`` of the records that entered the stage, ``share`` is found / items, and
    ``ids`` are the ids of the items found, within their benchmark.

    Args:
        counts: the sum of ``contamination_counts`` over all batches.
        infos: all stages; the suites of theirs are read for the number of items.
    """
    report: dict[str, Any] = {}
    for info in infos:
        config = _config(info)
        if config is None:
            continue
        # Most runs have no such stage, and need not load what it needs.
        from filters.contamination_build import UNCHECKABLE
        from filters.contamination_files import prepared_index
        from filters.suites import all_files, find_suites

        files = all_files(find_suites(config.suites, f"{info.name}.suites"))
        index = prepared_index(files, config.lengths)
        items = np.bincount(index.item_benchmark, minlength=len(index.benchmarks)).tolist()
        uncheckable = np.isin(index.item_status, list(UNCHECKABLE))
        not_checkable = np.bincount(index.item_benchmark[uncheckable], minlength=len(items)).tolist()
        sizes = dict(zip(index.benchmarks, zip(items, not_checkable, strict=True), strict=True))
        found = counts.get("contamination", {}).get(info.name, {})
        ids: dict[str, list[str]] = {}
        for item in sorted(found.get("items", {})):
            ids.setdefault(_benchmark(item), []).append(item.partition("/")[2])
        report[info.name] = {
            name: _entry(*sizes.get(name, (0, 0)), ids.get(name, []), found.get("records", {}).get(name, 0))
            for name in (benchmark.config.name for benchmark in files)
        }
    return report


def _entry(items: int, not_checkable: int, ids: list[str], records: int) -> dict[str, Any]:
    return {
        "items": items,
        "not_checkable": not_checkable,
        "found": len(ids),
        "records": records,
        "share": len(ids) / items if items else 0.0,
        "ids": ids,
    }


def print_contamination(report: Mapping[str, Any], console: Console) -> None:
    """Print what ``contamination_report`` returned: a table per stage, the most contaminated benchmarks first."""
    for stage, benchmarks in report.items():
        table = Table(title=f"Benchmarks ({stage})", title_justify="left", title_style="bold")
        table.add_column("benchmark")
        for name in ("items", "checkable", "found", "share", "records"):
            table.add_column(name, justify="right")
        for name, entry in sorted(benchmarks.items(), key=lambda pair: (-pair[1]["share"], pair[0])):
            checkable = entry["items"] - entry["not_checkable"]
            numbers = (f"{number:,}" for number in (entry["items"], checkable, entry["found"]))
            table.add_row(Text(name), *numbers, f"{100 * entry['share']:.2f} %", f"{entry['records']:,}")
        console.print(table)


def _config(info: StageInfo) -> ContaminationConfig | None:
    config = info.stage.config if info.stage else None
    return config if isinstance(config, ContaminationConfig) else None


def _benchmark(item: str) -> str:
    """Return the benchmark of ``<benchmark>/<id>``; names of benchmarks have no slash."""
    return item.partition("/")[0]
