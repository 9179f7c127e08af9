"""The README of a curated data set: a dataset card that tells where the records come from and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dataset_card(report: Mapping[str, Any], manifest_config: Mapping[str, Any], config_hash: str) -> str:
    """Return the card as Markdown with the YAML header that the Hugging Face hub reads."""
    records = report["records"]
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files: curated/*.parquet",
        "---",
        "",
        "# Curated records",
        "",
        f"{records['kept']:,} of {records['read']:,} records, curated by Thresher with the config in `config.yaml`",
        f"(hash `{config_hash[:16]}`).",
        "",
        "| stage | rule | records that left |",
        "|---|---|---|",
    ]
    for stage in report["stages"]:
        lines.extend(
            f"| {stage['name']} | {rule} | {entry['first']:,} |"
            for rule, entry in stage["rules"].items()
            if entry["first"]
        )
    lines.append(f"| (not decoded) | dead letters | {records['dead']:,} |")
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
