"""A run that does not balance has no manifest."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from corpus.errors import ThresherError
from corpus.inputs import InputConfig
from reports.counts import add, balance, is_balanced, total_of
from reports.drop_report import MAX_NAMES, build_report, check_conservation
from reports.fates import stage_infos

COUNTS: dict[str, Any] = {
    "records": balance(10, 6, 3, 1),
    "file_faults": {},
    "dead_letters": {"malformed_json": 1},
    "by_source": {"a": balance(7, 4, 2, 1), "b": balance(3, 2, 1, 0)},
    "by_language": {},
    "stages": {
        "input": {
            "entered": 9,
            "dropped": 3,
            "dead": 0,
            "edited": 2,
            "characters_in": 90,
            "characters_dropped": 28,
            "characters_cut": 5,
            "characters_added": 3,
            "characters_out": 60,
            "rules": {"empty_text": {"first": 3, "alone": 3}, "max_record_bytes": {"first": 0, "alone": 0}},
        }
    },
}
INFOS = stage_infos([], InputConfig(files=["x"]))


def _report(counts: dict[str, Any]) -> dict[str, Any]:
    return build_report(counts, INFOS, None)


def test_a_balanced_run_passes() -> None:
    check_conservation(_report(COUNTS), COUNTS, {"sources": {"a": 4, "b": 2}}, 3)


@pytest.mark.parametrize(
    ("change", "curated", "ledger", "message"),
    [
        (("records", "read", 11), {"a": 4, "b": 2}, 3, "in all: read 11"),
        (("records", "kept", 5), {"a": 4, "b": 2}, 3, "in all: read 10"),
        ((), {"a": 4, "b": 1}, 3, "curated files have 5 rows"),
        ((), {"a": 3, "b": 3}, 3, "source a"),
        (("no_source", balance(1, 1, 0, 0)), {"a": 4, "b": 2}, 3, "records without a source"),
        ((), {"a": 4, "b": 2}, 2, "the ledger has 2 rows"),
        (("by_source", "b", balance(4, 2, 1, 0)), {"a": 4, "b": 2}, 3, "source b: read 4"),
        (("stages", "input", "rules", "empty_text", "first", 2), {"a": 4, "b": 2}, 3, "stage input: 3 dropped, 2 by"),
        (("stages", "input", "characters_cut", 4), {"a": 4, "b": 2}, 3, "stage input: its characters do not balance"),
    ],
)
def test_every_imbalance_is_named(change: tuple[Any, ...], curated: dict[str, int], ledger: int, message: str) -> None:
    counts = copy.deepcopy(COUNTS)
    if change:
        *path, name, value = change
        inner = counts
        for key in path:
            inner = inner[key]
        inner[name] = value
    with pytest.raises(ThresherError, match="does not balance") as found:
        check_conservation(_report(counts), counts, {"sources": curated}, ledger)
    assert message in str(found.value)


def test_counts_add_up_in_any_order() -> None:
    parts = [{"a": 1, "b": {"x": 2}}, {"b": {"x": 3, "y": 4}}, {"a": 5, "c": {}}]
    assert total_of(parts) == total_of(reversed(parts)) == {"a": 6, "b": {"x": 5, "y": 4}, "c": {}}
    total = {"a": 1}
    add(total, {"a": 2})
    assert total == {"a": 3}
    assert is_balanced(balance(3, 1, 1, 1))
    assert not is_balanced(balance(3, 1, 1, 0))


def test_many_sources_are_listed_by_size_and_none_is_lost() -> None:
    counts = copy.deepcopy(COUNTS)
    sources = {f"s{number:06d}": balance(1 + number % 3, 1 + number % 3) for number in range(MAX_NAMES + 500)}
    counts["by_source"] = sources
    report = _report(counts)
    assert len(report["by_source"]) == MAX_NAMES
    assert min(entry["read"] for entry in report["by_source"].values()) >= 1
    listed = sum(entry["read"] for entry in report["by_source"].values())
    assert listed + report["other_source"]["read"] == sum(entry["read"] for entry in sources.values())
    assert report["other_source"]["names"] == 500
