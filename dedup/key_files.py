"""Keys in files, for a local run: an engine on one machine would hold all of them in memory, several times over.

``staging/near-STAGE/keys/KEY.bin`` has the packed entries of a batch, one partition after the other, behind an index:
the partitions and where each ends. Whoever takes a partition reads its part of each batch. The files are made again
whenever their step runs again, so that they need not outlive a crash of the machine, and go once all were read.
"""

from __future__ import annotations

import os
from itertools import accumulate

import numpy as np

from corpus.folder import Folder
from corpus.staging import stem
from dedup.proposals import Entries, Integers

_NUMBER = np.dtype(np.int64)


def _folder_name(stage: str) -> str:
    return f"staging/near-{stage}/keys"


def write_keys(folder: Folder, stage: str, entries: Entries) -> list[int]:
    """Write the entries of a batch; return the partitions that have some."""
    packed = dict(entries.packed())
    ends = list(accumulate(map(len, packed.values())))
    with folder.writing(f"{_folder_name(stage)}/{stem(entries.key)}.bin", durable=False) as file:
        file.write(np.array([len(packed), *packed, *ends], _NUMBER).tobytes())
        file.writelines(packed.values())
    return list(packed)


def remove_keys(folder: Folder, stage: str) -> None:
    """Remove the files of all batches, and what a killed run left of one."""
    for name in folder.names(_folder_name(stage)):
        folder.remove(name)
    folder.remove_empty_folders(_folder_name(stage))


class KeyFiles:
    """The files of a stage; indices that were read are kept, 16 bytes per batch and partition that has entries."""

    def __init__(self, folder: Folder, stage: str) -> None:
        self._folder, self._stage = folder, stage
        self._indices: dict[int, tuple[Integers, Integers]] = {}

    def packed_of(self, key: int, part: int) -> bytes:
        """Return the packed entries of a batch in a partition in which it has some."""
        file = os.open(self._folder.path(f"{_folder_name(self._stage)}/{stem(key)}.bin"), os.O_RDONLY)
        try:
            if key not in self._indices:
                self._indices[key] = _index(file)
            parts, ends = self._indices[key]
            place = int(np.searchsorted(parts, part))
            start, end = ends[place : place + 2].tolist()
            return os.pread(file, end - start, start)
        finally:
            os.close(file)


def _index(file: int) -> tuple[Integers, Integers]:
    """Return the partitions, int64[n], and where each begins in the file, int64[n + 1], the last where all end."""
    count = int(np.frombuffer(os.pread(file, _NUMBER.itemsize, 0), _NUMBER)[0])
    size = (1 + 2 * count) * _NUMBER.itemsize
    numbers = np.frombuffer(os.pread(file, size, 0), _NUMBER)
    return numbers[1 : count + 1], np.append(0, numbers[count + 1 :]) + size
