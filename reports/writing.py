"""Write one planned shard: a curated file, or ledger, signals and dead letters of some batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from corpus.batch import DEAD_SCHEMA, split_chunk_key, split_row_id
from corpus.column_types import ColumnTypes
from corpus.edited import text_fields
from corpus.edited_chats import with_chat_hashes, with_edited_messages
from corpus.findings import concat_findings, edits_of, findings_of_rows
from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.parquet_output import OutputFile, ParquetOutput
from corpus.shards import CURATED, Shard
from corpus.stages import RecordStage
from corpus.staging import empty_dead, read_current, read_dead, read_findings, read_records, records_name
from reports.batch_counts import chunk_counts
from reports.contamination import contamination_counts
from reports.counts import Counts, add
from reports.curated import CuratedLayout, CuratedStatistics, curated_table
from reports.fates import StageInfo, read_fates
from reports.mixture import licence_columns, licences
from reports.tables import (
    CLUSTERS_SCHEMA,
    EVIDENCE_SCHEMA,
    LEDGER_SCHEMA,
    RECORD_COLUMNS,
    clusters_table,
    copies_of_leaders_dropped_later,
    dead_table,
    evidence_table,
    ledger_table,
    signals_schema,
    signals_table,
    unjudged_table,
)

LEADER_CACHE = 1024


def write_shard(
    folder: Folder,
    shard: Shard,
    config: InputConfig,
    infos: Sequence[StageInfo],
    types: ColumnTypes,
    item_files: Sequence[str],
) -> None:
    """Write the files of a shard, then the file that says so; a shard that is written already is left alone.

    Args:
        item_files: display path of the file of each item.
    """
    if folder.exists(shard.done_name):
        return
    layout = CuratedLayout.of(config, types, infos)
    if shard.kind == CURATED:
        files, statistics = _write_curated(folder, shard, infos, layout)
    else:
        files, statistics = _write_tables(folder, shard, infos, item_files, layout.types)
    done = {"files": [asdict(file) for file in files], **statistics}
    folder.write_bytes(shard.done_name, json.dumps(done, sort_keys=True).encode())


def _write_curated(
    folder: Folder,
    shard: Shard,
    infos: Sequence[StageInfo],
    layout: CuratedLayout,
) -> tuple[list[OutputFile], Counts]:
    schema = layout.schema(infos)
    statistics = CuratedStatistics()

    texts = [layout.names[name] for name in layout.text_columns]
    with ParquetOutput(folder, f"curated/{shard.file_name}", schema, plain=[*texts, "record_id"]) as output:
        for key, last, _ in shard.chunks:
            records = read_records(folder, key, last)
            fates = read_fates(folder, key, records, infos)
            rows = np.flatnonzero(fates.kept)
            current = read_current(folder, _last_pass(infos), key, records, rows)
            messages = layout.config.messages_column
            if messages is not None:
                edits = edits_of(findings_of_rows(_findings(folder, key, infos), rows, records.num_rows))
                current = with_chat_hashes(with_edited_messages(current, messages, edits), messages, edits)
            output.write(curated_table(current, rows, fates, layout, schema, statistics))
    renamed = {name: new for name, new in layout.names.items() if name != new}
    return _described([output]), {"digest": statistics.digest, "mixture": statistics.counts, "renamed": renamed}


def _write_tables(
    folder: Folder,
    shard: Shard,
    infos: Sequence[StageInfo],
    item_files: Sequence[str],
    types: ColumnTypes,
) -> tuple[list[OutputFile], Counts]:
    language = next(
        (info.name for info in reversed(infos) if info.stage and "language" in info.stage.curated_columns()), None
    )
    counts: Counts = {}
    name = shard.file_name
    leaders = _Leaders(folder, infos, item_files)
    with (
        ParquetOutput(folder, f"ledger/{name}", LEDGER_SCHEMA) as ledger,
        ParquetOutput(folder, f"signals/{name}", signals_schema(infos)) as signals,
        ParquetOutput(folder, f"evidence/{name}", EVIDENCE_SCHEMA) as evidence,
        ParquetOutput(folder, f"clusters/{name}", CLUSTERS_SCHEMA) as clusters,
        ParquetOutput(folder, f"dead_letters/{name}", DEAD_SCHEMA, plain=["raw"]) as dead_letters,
    ):
        for key, last, dead_rows in shard.chunks:
            records = read_records(folder, key, last, RECORD_COLUMNS, licence_columns(types))
            file = records.schema.metadata[b"file"].decode()
            dead = read_dead(folder, key) if dead_rows else empty_dead()
            fates = read_fates(folder, key, records, infos)
            left = ledger_table(file, records, fates, infos, leaders)
            ledger.write(left)
            add(counts, copies_of_leaders_dropped_later(left))
            signals.write(signals_table(file, records, fates, infos))
            found = evidence_table(file, records, fates, infos, _findings(folder, key, infos))
            evidence.write(found)
            add(counts, contamination_counts(found, infos))
            clusters.write(clusters_table(file, records, fates, infos))
            dead_letters.write(dead_table(dead))
            if fates.dead.any():
                # What an earlier stage took out of a text must not come back here.
                whole = read_current(folder, _last_pass(infos), key, read_records(folder, key, last))
                texts = [whole.column(field) for field in text_fields(whole)]
                dead_letters.write(unjudged_table(file, records, fates, infos, texts))
            licence = licences(records, types)
            add(counts, chunk_counts(file, records, dead, fates, infos, language, licence))
    return _described([ledger, signals, evidence, clusters, dead_letters]), {"counts": counts}


def _last_pass(infos: Sequence[StageInfo]) -> int:
    return max(info.pass_number for info in infos)


def _findings(folder: Folder, key: int, infos: Sequence[StageInfo]) -> pa.RecordBatch:
    numbers = sorted({info.pass_number for info in infos if isinstance(info.stage, RecordStage) and info.stage.finds})
    return concat_findings([read_findings(folder, number, key) for number in numbers])


def _described(outputs: Sequence[ParquetOutput]) -> list[OutputFile]:
    return [output.file for output in outputs if output.file is not None]


class _Leaders:
    """Looks up, for row ids of leaders, their file and the later stage that dropped them."""

    def __init__(self, folder: Folder, infos: Sequence[StageInfo], item_files: Sequence[str]) -> None:
        self._item_files = item_files
        corpus_stages = [index for index, info in enumerate(infos) if info.stage and info.stage.kind == "corpus"]
        # Nothing can happen to a leader when its stage is the last one, so no fates have to be read.
        self._settled = not corpus_stages or corpus_stages[0] == len(infos) - 1
        self._infos = infos

        @lru_cache(maxsize=LEADER_CACHE)
        def left_at(key: int) -> Any:
            last = folder.exists(records_name(key, last=True))
            records = read_records(folder, key, last, ["input_failures"])
            return read_fates(folder, key, records, infos).left_at

        self._left_at = left_at

    def __call__(self, row_ids: Sequence[int]) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        for row_id in row_ids:
            key, row = split_row_id(row_id)
            stage = -1 if self._settled else int(self._left_at(key)[row])
            found.append((self._item_files[split_chunk_key(key)[0]], None if stage < 0 else self._infos[stage].name))
        return found
