"""The README of a curated data set: a dataset card that tells where the records come from and what was done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reports.mixture import SHOWN, entry_name, largest_changes, shares_of, sizes_of
from reports.text_sizes import counted_sizes
from reports.visible import printable

SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)
"""The hub's ``size_categories`` by the number that they stay below."""
LARGEST_SIZE = "n>1T"
HUB_LICENCES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc0-1.0
    cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
    cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 gpl-3.0
    isc lgpl lgpl-2.1 lgpl-3.0 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 osl-3.0 pddl postgresql unlicense
    wtfpl zlib
    """.split()
)
"""Identifiers of licences that the hub knows; any other is ``other``."""
MOST_LISTED = 100


def size_category(records: int) -> str:
    """Return the hub's category for so many records."""
    return next((name for limit, name in SIZES if records < limit), LARGEST_SIZE)


def hub_licence(name: str) -> str:
    """Return the hub's identifier of a licence that goes by its SPDX name, ``other`` where the hub has none."""
    lowered = re.sub(r"-(only|or-later)$", "", name.strip().lower())
    return lowered if lowered in HUB_LICENCES else "other"


def _kept_names(report: Mapping[str, Any], group: str) -> list[str]:
    """Return the names of a group that kept records have, those with the most records first."""
    entries = [entry for entry in report["mixture"].get(group, ()) if entry["name"] is not None and entry["kept"]]
    return [entry["name"] for entry in sorted(entries, key=lambda entry: (-entry["kept"], entry["name"]))]


def _header(report: Mapping[str, Any]) -> Iterator[str]:
    # The hub takes ISO 639-1 and 639-3 codes, which are the labels of the language stage's model but for a few; other
    # models put a script behind them (eng_Latn).
    labels = (re.fullmatch("([a-z]{2,3})(_[A-Z][a-z]{3})?", name) for name in _kept_names(report, "language"))
    languages = list(dict.fromkeys(label[1] for label in labels if label))
    licences = list(dict.fromkeys(map(hub_licence, _kept_names(report, "licence"))))
    for name, values in (("language", languages), ("license", licences)):
        if values:
            yield f"{name}:"
            # In quotes: no and on are false and true in YAML 1.1.
            yield from (f"- {json.dumps(value)}" for value in values[:MOST_LISTED])
    yield "size_categories:"
    yield f"- {size_category(report['records']['kept'])}"
    yield "task_categories:"
    yield "- text-generation"
    yield "tags:"
    yield "- thresher"
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files: curated/*.parquet"


def dataset_card(report: Mapping[str, Any], config_hash: str) -> str:
    """Return the card as Markdown with the YAML header that the Hugging Face hub reads.

    Args:
        report: content of ``report.json``.
        config_hash: of the semantic config.
    """
    records = report["records"]
    lines = [
        "---",
        *_header(report),
        "---",
        "",
        "# Curated records",
        "",
        f"{records['kept']:,} of {records['read']:,} records, curated by Thresher with the config in `config.yaml`",
        f"(hash `{config_hash[:16]}`). They have {_sizes(report)}.",
        "",
        "| stage | rule | records that left |",
        "|---|---|---|",
    ]
    for stage in report["stages"]:
        lines.extend(
            f"| {stage['name']} | {_cell(rule)} | {entry['first']:,} |"
            for rule, entry in stage["rules"].items()
            if entry["first"]
        )
    lines.append(f"| (not decoded) | dead letters | {records['dead']:,} |")
    lines.extend(_mixture(report))
    lines.extend(
        [
            "",
            f"Stages: {', '.join(stage['name'] for stage in report['stages'][1:]) or 'none'}.",
            "",
            "`curated/` has the records, `ledger/` the reason for each record that left, `signals/` every measured",
            "value, `dead_letters/` what could not be read. `thresher verify` checks them against `manifest.json`.",
            "",
        ]
    )
    return "\n".join(lines)


def _sizes(report: Mapping[str, Any]) -> str:
    """Return the size of the records kept, in tokens or words as well where these were counted in the texts kept."""
    text = f"{report['stages'][-1]['characters_out']:,} characters"
    counted = counted_sizes(report)
    if counted is None or counted.edited_by:
        return text
    return f"{text}, {counted.kept:,} {counted.unit} as counted by `{counted.stage}`"


def _mixture(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table with the shares before and after, those that changed most."""
    changes = largest_changes(report, SHOWN)
    if not changes:
        return
    sizes = sizes_of(report)
    columns = ["group", "name", *(f"{size} {side}" for size in ("records", *sizes) for side in ("read", "kept"))]
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for group, entry in changes:
        shares = (f"{100 * share:.1f} %" for pair in shares_of(entry, sizes) for share in pair)
        yield f"| {group} | {_cell(entry_name(entry))} | {' | '.join(shares)} |"


def _cell(name: str) -> str:
    """Return a name from the data for a cell of a table: on one line, as code, in which nothing is marked up."""
    return f"`{printable(name).replace('`', chr(0x27)).replace('|', chr(0x2223))}`"
