"""Batches of records in memory, and their staged signatures and shingles, for the tests of single steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from corpus.batch import first_row_id
from corpus.folder import Folder
from dedup.candidates import write_candidates
from dedup.near_duplicates import NearDuplicates, NearDuplicatesConfig
from dedup.proposals import Integers
from dedup.staged import signature_matrix, write_signatures
from dedup.verification import Verifier


def record_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return records of documents; each row has ``text``, and may have ``record_id``, ``source`` and user columns."""
    texts = [row["text"] for row in rows]
    columns = {
        "record_id": pa.array([row.get("record_id", str(place)) for place, row in enumerate(rows)], pa.string()),
        "source": pa.array([row.get("source") for row in rows], pa.string()),
        "position": pa.array(range(len(rows)), pa.int64()),
        "content_hash": pa.array([xxhash.xxh3_128_digest(text.encode()) for text in texts], pa.binary(16)),
        "characters": pa.array([len(text) for text in texts], pa.int64()),
        "text": pa.array(texts, pa.string()),
    }
    names = sorted({name for row in rows for name in row if name.startswith("user/")})
    columns |= {name: pa.array([row.get(name) for row in rows]) for name in names}
    return pa.RecordBatch.from_pydict(columns)


def no_marks(count: int) -> pa.RecordBatch:
    """Return the marks of rows that no stage has seen."""
    return pa.RecordBatch.from_arrays([pa.array(np.ones(count, bool))], names=["alive"])


def no_nodes(row_ids: Integers) -> pa.Table:
    """Stand for the staged nodes of a group that refers to none."""
    raise AssertionError(row_ids)


def no_edges(home: int) -> Integers:
    """Stand for the staged edges of a group that refers to none."""
    raise AssertionError(home)


def near_duplicates(**settings: Any) -> NearDuplicates:
    """Return the stage over documents."""
    stage = NearDuplicates(NearDuplicatesConfig(**settings), "near_duplicates", "text")
    stage.bind([])
    return stage


def stage_candidates(
    run: Folder,
    stage: NearDuplicates,
    key: int,
    records: pa.RecordBatch,
    table: pa.RecordBatch,
    rows: Integers | None = None,
) -> None:
    """Stage some rows of a batch, default all, as candidates, given its signature table."""
    chosen = np.arange(records.num_rows) if rows is None else rows
    signatures = signature_matrix(table.column("signature"), stage.permutations)[chosen]
    sets = stage.shingle_sets(records.column("text").take(pa.array(chosen)), np.ones(len(chosen), np.bool_))
    write_candidates(run, stage.name, key, chosen, signatures, *sets)


def staged_verifier(
    folder: Path, texts: Sequence[str], stage: NearDuplicates, key: int = 0
) -> tuple[Verifier, Integers]:
    """Stage signatures and shingles of texts as one batch; return a verifier over them and their row ids."""
    run = Folder(str(folder))
    records = record_batch([{"text": text} for text in texts])
    table = stage.signature_table(records, no_marks(len(texts)), np.ones(len(texts), bool))
    write_signatures(run, stage.name, key, "a.parquet", table)
    stage_candidates(run, stage, key, records, table)
    verifier = Verifier(
        run,
        stage.name,
        stage.similarity_threshold(),
        stage.permutations,
        stage.bands,
        stage.rows,
        len(stage.config.priorities),
    )
    return verifier, np.arange(len(texts)) + first_row_id(key)
