"""Plan the output files: consecutive batches per file, so that order and file list depend on nothing but the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from corpus.batch import split_chunk_key
from corpus.errors import ThresherError
from corpus.inputs import InputConfig
from corpus.packing import pack_arrays, unpack_arrays
from corpus.planning_types import InputPlan
from corpus.staging import ChunkReference

CURATED, TABLES = "curated", "tables"
TABLE_ROWS = 1 << 18


@dataclass(frozen=True)
class Shard:
    """One planned output: a curated file, or one file each of ledger, signals and dead letters.

    Attributes:
        kind: ``CURATED`` or ``TABLES``.
        index, count: number of the file, from 0, and how many there are of its kind.
        chunks: (batch key, last, dead letters) of the batches that go into it, ascending.
    """

    kind: str
    index: int
    count: int
    chunks: tuple[tuple[int, bool, int], ...]

    @property
    def file_name(self) -> str:
        """The name that the shard's files have in their folders."""
        return f"part-{self.index:05d}-of-{self.count:05d}.parquet"

    @property
    def done_name(self) -> str:
        """The name of the file that says that the shard is written, with its statistics."""
        return f"staging/done/{self.kind}-{self.index:05d}-of-{self.count:05d}.json"

    def to_bytes(self) -> bytes:
        """Return the shard packed."""
        head = np.array([self.kind == CURATED, self.index, self.count], np.int64)
        return pack_arrays([head, np.array(self.chunks, np.int64).reshape(-1)])

    @staticmethod
    def from_bytes(data: bytes) -> Shard:
        """Return the shard that ``to_bytes`` packed."""
        head, chunks = unpack_arrays(data, (np.int64, np.int64))
        curated, index, count = head.tolist()
        parts = tuple((key, bool(last), dead) for key, last, dead in chunks.reshape(-1, 3).tolist())
        return Shard(CURATED if curated else TABLES, index, count, parts)


def check_complete(references: Sequence[ChunkReference], plan: InputPlan, config: InputConfig) -> None:
    """Raise ThresherError unless every batch of every planned item is there once, with the rows that were planned.

    Counts that are all taken from the same batches would balance without the one that an engine lost or gave twice.
    """
    chunks: dict[int, list[ChunkReference]] = {}
    for reference in references:
        chunks.setdefault(split_chunk_key(reference.key)[0], []).append(reference)
    for item in plan.items:
        found = sorted(chunks.pop(item.index, []), key=lambda reference: reference.key)
        numbers = [split_chunk_key(reference.key)[1] for reference in found]
        lasts = [reference.last for reference in found]
        if numbers != list(range(len(found))) or lasts != [False] * (len(found) - 1) + [True]:
            raise ThresherError(f"item {item.index} ({item.file}): its batches {numbers} are not all there, once each")
        rows = sum(reference.rows + reference.dead for reference in found)
        exact = item.rows is not None and item.limit is None and config.sample is None
        if exact and rows < (item.rows or 0) and not any(reference.dead for reference in found):
            raise ThresherError(f"item {item.index} ({item.file}): {rows} of {item.rows} planned rows were read")
    if chunks:
        raise ThresherError(f"batches of items that were not planned: {sorted(chunks)[:10]}")


def plan_shards(references: Iterable[ChunkReference], target_file_bytes: int) -> list[Shard]:
    """Return all output shards, for the references of all batches after the last pass, in any order.

    A curated file takes batches until the kept bytes of their columns pass ``target_file_bytes``; batches without a
    kept record are left out. There is always one shard of each kind.
    """
    ordered = sorted(references, key=lambda reference: reference.key)
    kept = [reference for reference in ordered if reference.kept_rows]
    curated = _cut(kept, [reference.kept_bytes for reference in kept], target_file_bytes)
    tables = _cut(ordered, [reference.rows + reference.dead for reference in ordered], TABLE_ROWS)
    shards = []
    for kind, groups in ((CURATED, curated), (TABLES, tables)):
        for index, group in enumerate(groups):
            chunks = tuple((reference.key, reference.last, reference.dead) for reference in group)
            shards.append(Shard(kind, index, len(groups), chunks))
    return shards


def _cut(references: Sequence[ChunkReference], weights: Sequence[int], target: int) -> list[list[ChunkReference]]:
    groups: list[list[ChunkReference]] = [[]]
    total = 0
    for reference, weight in zip(references, weights, strict=True):
        if groups[-1] and total + weight > target:
            groups.append([])
            total = 0
        groups[-1].append(reference)
        total += weight
    return groups
