"""Close the books of a run: gather what the shards counted, check that it balances, write report and manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.batch import split_row_id
from corpus.errors import ThresherError
from corpus.folder import Folder
from corpus.parquet_output import OutputFile
from corpus.shards import CURATED, TABLES
from corpus.staging import read_records, records_name
from reports.contamination import contamination_report
from reports.counts import Counts, total_of
from reports.dataset_card import dataset_card
from reports.drop_report import build_report, check_conservation
from reports.fates import StageInfo
from reports.manifest import (
    CARD_NAME,
    CONFIG_NAME,
    MANIFEST_NAME,
    REPORT_NAME,
    RUN_NAME,
    build_manifest,
    input_entries,
    to_json,
    write_listed,
)
from reports.mixture import manifest_mixture
from reports.scores import score_report
from reports.tables import STAGE_ERROR


@dataclass(frozen=True)
class Books:
    """The balanced accounts of a run, before they are written.

    Attributes:
        report: content of ``report.json``.
        shuffled_bytes: what each corpus stage shuffled.
        repeated_example: a record id that stands more than once, or None.
        renamed: the user's columns that have another name in the output.
    """

    folder: Folder
    files: tuple[str, ...]
    counts: Counts
    mixture: Counts
    content_digest: int
    outputs: tuple[OutputFile, ...]
    report: dict[str, Any]
    shuffled_bytes: Mapping[str, int]
    repeated_example: str | None
    renamed: Mapping[str, str]

    @property
    def reused_scores(self) -> Mapping[str, Mapping[str, int]]:
        """Of each scorer, how many scores there are, and how many of them the score table had."""
        return self.counts.get("reused", {})  # type: ignore[no-any-return]

    @property
    def columns_nobody_has(self) -> list[str]:
        """Settings of the input that name a column which no record has: id_column, source_column."""
        unjudged = self.report["dead_letters"].get(STAGE_ERROR, 0)
        decoded = self.report["records"]["read"] - (self.report["records"]["dead"] - unjudged)
        without = {
            "id_column": self.counts.get("generated_ids", 0),
            "source_column": self.counts.get("no_source", {}).get("read", 0),
        }
        return [name for name, count in without.items() if decoded and count >= decoded]

    @property
    def text_bytes(self) -> int:
        """Bytes of text and carried columns that were read."""
        return int(self.counts.get("bytes", 0))

    def write(
        self,
        version: str,
        semantic: Mapping[str, Any],
        config_hash: str,
        config_yaml: bytes,
        details: Mapping[str, Any],
    ) -> None:
        """Write config, report, dataset card, run details and, last, the manifest."""
        folder = self.folder
        outputs = list(self.outputs)
        outputs.append(write_listed(folder, CONFIG_NAME, config_yaml))
        outputs.append(write_listed(folder, REPORT_NAME, to_json(self.report)))
        card = dataset_card(self.report, config_hash)
        outputs.append(write_listed(folder, CARD_NAME, card.encode()))
        failed = self.counts.get("file_faults", {})
        counted = self.counts.get("mixture", {})
        manifest = build_manifest(
            version,
            semantic,
            config_hash,
            input_entries(self.files, failed, self.counts.get("files", {})),
            self.report["records"],
            {
                "mixture_read": manifest_mixture(counted, "read"),
                "mixture": self.mixture,
                "mixture_characters_read": manifest_mixture(counted, "characters_read"),
                "mixture_characters": manifest_mixture(counted, "characters_kept"),
            },
            self.content_digest,
            outputs,
        )
        folder.write_bytes(RUN_NAME, to_json(details))
        folder.write_bytes(MANIFEST_NAME, to_json(manifest))


SHUFFLED = "shuffled_bytes"
MEMBERS_FOUND = "members"


def summary_name(stage: str) -> str:
    """Return the name of the file with what a stage says of itself as a whole, beyond sums over batches."""
    return f"staging/summaries/{stage}.json"


def _shard_statistics(folder: Folder, kind: str) -> list[dict[str, Any]]:
    names = [name for name in folder.names("staging/done") if name.startswith(f"staging/done/{kind}-")]
    counts = {name.rsplit("-", 1)[1] for name in names}
    if len(counts) != 1 or len(names) != int(next(iter(counts)).removesuffix(".json")):
        raise ThresherError(
            f"{folder.root}: {len(names)} {kind} outputs are written, not all; run the same command again"
        )
    return [json.loads(folder.read_bytes(name)) for name in names]


def close_books(folder: Folder, files: Sequence[str], infos: Sequence[StageInfo], has_ids: bool) -> Books:
    """Return the accounts of a run whose shards are all written. Raises ThresherError unless they balance."""
    curated = _shard_statistics(folder, CURATED)
    tables = _shard_statistics(folder, TABLES)
    counts = total_of(part["counts"] for part in tables)
    mixture = total_of(part["mixture"] for part in curated)
    outputs = tuple(OutputFile(**entry) for part in (*curated, *tables) for entry in part["files"])
    repeated = [json.loads(folder.read_bytes(name)) for name in folder.names("staging/repeated-ids")]
    shuffled = {}
    for info in infos:
        if folder.exists(summary_name(info.name)):
            summary = json.loads(folder.read_bytes(summary_name(info.name)))
            shuffled[info.name] = summary.pop(SHUFFLED)
            if MEMBERS_FOUND not in summary:
                counts["stages"][info.name]["summary"] = summary
                continue
            told, found = summary.pop(MEMBERS_FOUND), counts["stages"][info.name]["duplicates"].pop(MEMBERS_FOUND)
            if told != found:
                raise ThresherError(
                    f"{info.name}: the verdicts of {told:,} records in clusters were sent and {found:,} arrived; run "
                    "the same command again"
                )
            counts["stages"][info.name]["duplicates"] |= summary
    report = build_report(counts, infos, sum(entry["records"] for entry in repeated) if has_ids else None)
    report["contamination"] = contamination_report(counts, infos)
    for info in infos:
        for section, told in counts["stages"].get(info.name, {}).get("summary", {}).items():
            report.setdefault(section, {})[info.name] = told
    if counts.get("scores"):
        report["scores"] = score_report(counts)
    ledger_rows = sum(entry.rows for entry in outputs if entry.name.startswith("ledger/"))
    check_conservation(report, counts, mixture, ledger_rows)
    return Books(
        folder=folder,
        files=tuple(files),
        counts=counts,
        mixture=mixture,
        content_digest=sum(part["digest"] for part in curated) % (1 << 64),
        outputs=outputs,
        report=report,
        shuffled_bytes=shuffled,
        repeated_example=_record_id(folder, min(entry["example"] for entry in repeated)) if repeated else None,
        renamed={name: new for part in curated for name, new in part["renamed"].items()},
    )


def _record_id(folder: Folder, row_id: int) -> str:
    key, row = split_row_id(row_id)
    records = read_records(folder, key, folder.exists(records_name(key, last=True)), ["record_id"])
    return str(records.column("record_id")[row].as_py())
