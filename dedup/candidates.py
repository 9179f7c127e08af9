"""Signatures and shingles of candidates in staging: one file per batch, read row by row where pairs are compared.

``staging/near-STAGE/shingles/KEY.bin`` has of each candidate of a batch its row, its MinHash signature and the sorted
set of its shingle hashes: int64 number of candidates n and of permutations p, int32[n] rows, int64[n + 1] offsets of
the sets, uint32[n, p] signatures, uint64 hashes, each part filled up to 8 bytes. Nothing is compressed (hashes do not
compress), so that local readers map a file into memory and touch the rows that they need only.

Reads of an object store, for H homes whose members lie in b(h) batches each: a home opens each of its batches once, by
one read of the first ``HEAD_BYTES``, which are all of a small file and have the index of any other; at most one more
read follows per batch for signatures, and one for each run of sets that are needed (runs end at a gap of
``GAP_BYTES``). So there are at most (2 + runs) x the sum of b(h), which grows with the members of cliques and not with
H x batches; and as long as the heads of all B batches fit into the ``HEADS_BYTES`` that a process keeps, W workers open
files B x W times in all. An ordered clique whose sets take more than ``HELD_BYTES`` reads them in each of its rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.folder import Folder
from corpus.staging import stem
from dedup.byte_cache import ByteCache
from dedup.staged import by_batch

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Signatures = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

# The index of a file of the most rows that a batch can have takes less.
HEAD_BYTES = 1 << 20
HEADS_BYTES = 64 << 20
GAP_BYTES = 256 << 10
HELD_BYTES = 128 << 20

_HEADS = ByteCache(HEADS_BYTES)


def candidates_name(stage: str, key: int) -> str:
    """Return the name of the file with the candidates of a batch."""
    return f"staging/near-{stage}/shingles/{stem(key)}.bin"


def write_candidates(
    folder: Folder, stage: str, key: int, rows: Integers, signatures: Signatures, offsets: Integers, hashes: Hashes
) -> None:
    """Store the candidates of a batch.

    Args:
        rows: int64[n], ascending.
        signatures: uint32[n, p].
        offsets, hashes: the set of candidate i is ``hashes[offsets[i]:offsets[i + 1]]``, ascending.
    """
    with folder.writing(candidates_name(stage, key)) as file:
        file.write(np.array(signatures.shape, np.int64).tobytes())
        for values in (rows.astype(np.int32), offsets.astype(np.int64), signatures, hashes):
            file.write(np.ascontiguousarray(values).data)
            file.write(bytes(-values.nbytes % 8))


@dataclass(frozen=True)
class _File:
    """An open file.

    Attributes:
        folder, name: where it is.
        head: its first bytes, or all.
        rows: int32[n], ascending.
        offsets: int64[n + 1], of the sets in the hashes.
        permutations: values of a signature.
        signatures_at, hashes_at: where these parts start.
    """

    folder: Folder
    name: str
    head: Bytes
    rows: npt.NDArray[np.int32]
    offsets: Integers
    permutations: int
    signatures_at: int
    hashes_at: int

    def read(self, start: int, end: int) -> Bytes:
        """Return some bytes."""
        if end <= len(self.head):
            return self.head[start:end]
        return np.frombuffer(self.folder.read_range(self.name, start, end), np.uint8)

    def signatures(self, found: Integers) -> Signatures:
        """Return the signatures of candidates, by their ascending numbers in the file."""
        width = 4 * self.permutations
        first, last = int(found[0]), int(found[-1]) + 1
        data = self.read(self.signatures_at + first * width, self.signatures_at + last * width)
        return data.view(np.uint32).reshape(-1, self.permutations)[found - first]

    def copy_sets(self, found: Integers, target: Hashes, places: Integers) -> None:
        """Copy the sets of candidates, by their ascending numbers in the file, to their places in an array."""
        starts = self.hashes_at + 8 * self.offsets[found]
        ends = self.hashes_at + 8 * self.offsets[found + 1]
        runs = np.flatnonzero(np.append(True, starts[1:] - ends[:-1] > GAP_BYTES))
        for first, behind in zip(runs.tolist(), [*runs[1:].tolist(), len(found)], strict=True):
            origin = int(starts[first])
            values = self.read(origin, int(ends[behind - 1])).view(np.uint64)
            of_run = range(first, behind)
            begins = ((starts[first:behind] - origin) // 8).tolist()
            sizes = ((ends[first:behind] - starts[first:behind]) // 8).tolist()
            for number, begin, size in zip(of_run, begins, sizes, strict=True):
                place = int(places[number])
                target[place : place + size] = values[begin : begin + size]


def _open(folder: Folder, name: str) -> _File:
    if folder.is_local:
        with pa.memory_map(folder.path(name)) as source:
            head = np.frombuffer(source.read_buffer(), np.uint8)
    else:
        data = _HEADS.get((folder.root, folder.run, name), lambda: folder.read_range(name, 0, HEAD_BYTES))
        head = np.frombuffer(data, np.uint8)
    count, permutations = head[:16].view(np.int64).tolist()
    offsets_at = 16 + 4 * count + (4 * count) % 8
    signatures_at = offsets_at + 8 * (count + 1)
    size = 4 * count * permutations
    return _File(
        folder,
        name,
        head,
        head[16 : 16 + 4 * count].view(np.int32),
        head[offsets_at:signatures_at].view(np.int64),
        permutations,
        signatures_at,
        signatures_at + size + size % 8,
    )


class Candidates:
    """The candidates that a home compares; each file is opened once.

    Attributes:
        counts: int64[n], the number of shingles of each record.
        signatures: uint32[n, permutations].
    """

    def __init__(self, folder: Folder, stage: str, row_ids: Integers, permutations: int) -> None:
        """Open the files of n records, given ascending row ids."""
        self.counts = np.zeros(len(row_ids), np.int64)
        self.signatures = np.zeros((len(row_ids), permutations), np.uint32)
        self._files: list[tuple[_File, int, Integers]] = []
        for key, places, rows in by_batch(row_ids):
            file = _open(folder, candidates_name(stage, key))
            found = np.searchsorted(file.rows, rows)
            self.counts[places] = file.offsets[found + 1] - file.offsets[found]
            self.signatures[places] = file.signatures(found)
            self._files.append((file, int(places[0]), found))
        self._held: tuple[Integers, Integers, Hashes] = (
            np.zeros(0, np.int64),
            np.zeros(1, np.int64),
            np.zeros(0, np.uint64),
        )

    def hold_all(self) -> None:
        """Read all sets at once, where they take no more than ``HELD_BYTES``, since they are needed again and again."""
        if 8 * int(self.counts.sum()) <= HELD_BYTES:
            self.sets(np.arange(len(self.counts)))

    def sets(self, places: Integers) -> tuple[Integers, Integers, Hashes]:
        """Return (numbers, offsets, hashes) of the shingle sets of some records.

        Args:
            places: ascending places among the n records.

        Returns:
            The set of record ``places[i]`` is ``hashes[offsets[numbers[i]]:offsets[numbers[i] + 1]]``.
        """
        held, offsets, hashes = self._held
        if len(held):
            numbers = np.minimum(np.searchsorted(held, places), len(held) - 1)
            if (held[numbers] == places).all():
                return numbers, offsets, hashes
        offsets = np.append(0, np.cumsum(self.counts[places]))
        hashes = np.empty(offsets[-1], np.uint64)
        for file, first, found in self._files:
            low, high = np.searchsorted(places, (first, first + len(found)))
            if low < high:
                file.copy_sets(found[places[low:high] - first], hashes, offsets[low:high])
        self._held = places, offsets, hashes
        return np.arange(len(places)), offsets, hashes
