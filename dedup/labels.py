"""Which component a record belongs to: from the forest that a job carries along, or from the files of the rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from corpus.folder import Folder
from dedup import components
from dedup.staged import components_name, pairs_name

Integers = npt.NDArray[np.int64]

CACHED_PARTS = 16


@dataclass(frozen=True)
class StagedComponents:
    """Components that rounds have found.

    Attributes:
        folder: the run folder.
        stage: name of the stage.
        round: number of the last round.
        partitions: into how many the pairs are cut.
    """

    folder: Folder
    stage: str
    round: int
    partitions: int

    @staticmethod
    def find(folder: Folder, stage: str) -> StagedComponents | None:
        """Return the components of a stage, None where no rounds were needed."""
        if not folder.exists(components_name(stage)):
            return None
        found = json.loads(folder.read_bytes(components_name(stage)))
        return StagedComponents(folder, stage, found["round"], found["partitions"])

    def labels_of(self, row_ids: Integers) -> Integers:
        """Return the label of each row id; one that no pair has is its own component's."""
        labels = np.array(row_ids)
        parts = components.partition_of(row_ids, self.partitions)
        for part in np.unique(parts).tolist():
            chosen = parts == part
            forest = _part(self.folder.root, self.folder.run, pairs_name(self.stage, self.round, part))
            labels[chosen] = components.labels_of(row_ids[chosen], forest)
        return labels


@lru_cache(maxsize=CACHED_PARTS)
def _part(root: str, run: str, name: str) -> bytes:
    folder = Folder(root, run)
    return components.spanning_forest([folder.read_bytes(name)]) if folder.exists(name) else b""
