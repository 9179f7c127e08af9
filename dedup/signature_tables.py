"""What a duplicate stage makes of a batch: signatures, what order and budget need of each record, and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.hashing import content_hashes, value_hashes
from corpus.selection import pack_totals
from corpus.selection_keys import NULL_GROUP, group_numbers
from corpus.tokenizers import count_tokens, load_tokenizer
from corpus.verdicts import entering_texts
from dedup.budget import units
from dedup.duplicates import TOKEN_SETTING
from dedup.nodes import hashes_of
from dedup.proposals import Entries
from dedup.staged import signature_matrix, signature_schema

if TYPE_CHECKING:
    from dedup.duplicates import DuplicateStage

Integers = npt.NDArray[np.int64]


def signature_table(
    stage: DuplicateStage, records: pa.RecordBatch, marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]
) -> pa.RecordBatch:
    """Return the signatures and nodes of a batch; see ``DuplicateStage.signature_table``."""
    rows = pa.array(np.flatnonzero(alive), pa.int32())
    chosen = records if len(rows) == records.num_rows else records.take(rows)
    texts = entering_texts(chosen, stage.text_field)
    whole = stage.text_field in ("text", "both")
    hashes = chosen.column("content_hash") if whole else content_hashes([texts])
    characters = chosen.column("characters") if whole else pc.utf8_length(texts).cast(pa.int64())
    signatures, has_tokens = stage.sketch(texts)
    is_scoped = stage.config.scope == "source"
    salt = value_hashes(chosen.column("source")) if is_scoped else np.zeros(0, np.uint64)
    if is_scoped:
        # Records of another source have other hashes, so that they never meet.
        halves = np.frombuffer(hashes.buffers()[1], np.uint64, 2 * len(rows), 16 * hashes.offset).reshape(-1, 2)
        salted = np.ascontiguousarray(halves ^ salt[:, None])
        hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(rows), [None, pa.py_buffer(salted)])
    groups = stage.group_values(records, marks, rows)
    priorities = stage.priority_words(records, marks, characters.to_numpy(), rows)
    sources = pc.is_in(chosen.column("source"), value_set=pa.array(stage.config.protect, pa.string()))
    columns = {
        "row": rows,
        "has_tokens": pa.array(has_tokens),
        "content_hash": hashes,
        "characters": characters,
        "units": pa.array(_units(stage, texts, characters.to_numpy())),
        "protected": sources,
        "group": pa.array(np.full(len(rows), NULL_GROUP) if groups is None else group_numbers(groups)),
        "position": chosen.column("position"),
        "record_id": chosen.column("record_id"),
        **{f"priority_{index}": pa.array(words) for index, words in enumerate(priorities)},
    }
    if stage.permutations:
        data = pa.py_buffer(np.ascontiguousarray(signatures))
        kind = pa.binary(4 * stage.permutations)
        columns["signature"] = pa.FixedSizeBinaryArray.from_buffers(kind, len(rows), [None, data])
    if is_scoped:
        columns["scope"] = pa.array(salt)
    schema = signature_schema(stage.permutations, len(priorities), is_scoped)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def key_columns(stage: DuplicateStage) -> list[str]:
    """Return the columns of signatures and nodes that ``key_entries`` takes."""
    names = ["row", "has_tokens", "content_hash"]
    names += ["scope"] if stage.config.scope == "source" else []
    return [*names, "signature"] if stage.permutations else names


def key_entries(stage: DuplicateStage, key: int, table: pa.RecordBatch, parts: int) -> Entries:
    """Return the entries of the records of a batch in so many partitions, given its ``key_columns``."""
    signatures = np.zeros((table.num_rows, 0), np.uint32)
    if stage.permutations:
        signatures = signature_matrix(table.column("signature"), stage.permutations)
    bands = stage.band_keys(signatures)
    if stage.config.scope == "source":
        bands = bands ^ table.column("scope").to_numpy()[:, None]
    return Entries.of(
        key,
        table.column("row").to_numpy().astype(np.int64),
        bands,
        table.column("has_tokens").to_numpy(zero_copy_only=False),
        hashes_of(table.column("content_hash")),
        parts,
    )


def _units(stage: DuplicateStage, texts: pa.StringArray, characters: Integers) -> Integers:
    tokens = None
    if stage.config.budget_unit == "tokens":
        tokens = count_tokens(load_tokenizer(str(stage.config.tokenizer), TOKEN_SETTING), texts)
    return units(stage.config.budget_unit, characters, tokens)


def group_totals(table: pa.RecordBatch) -> bytes:
    """Return the packed totals per group of all records of a batch."""
    groups, weights = table.column("group").to_numpy(), table.column("units").to_numpy()
    return pack_totals(groups, np.ones(len(groups), np.int64), weights)
