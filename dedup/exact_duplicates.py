"""The stage ``exact_duplicates``: one record stays of all that have the same text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.stages import stage
from dedup.duplicates import DuplicateConfig, DuplicateStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class ExactDuplicatesConfig(DuplicateConfig):
    """Settings of ``exact_duplicates``."""


@stage("exact_duplicates")
class ExactDuplicates(DuplicateStage):
    """Keeps, of the records whose field has the same content hash, the first one of the total order.

    The order is the priority, then (record_id, file, position): equal texts are equally long. A record that leaves has
    the value 1.0, its similarity with the kept record. Budget, priority and protected sources are those of
    ``near_duplicates``.
    """

    Config = ExactDuplicatesConfig
    summary = "Keeps one record of each text (content hash); names the kept record for each that leaves."

    def similarity_threshold(self) -> float:
        """Return 1: only equal texts are duplicates."""
        return 1.0

    def sketch(self, texts: pa.StringArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Return signatures of no permutations: no text takes part in more than its content hash."""
        import numpy as np

        return np.zeros((len(texts), 0), np.uint32), np.zeros(len(texts), np.bool_)

    def band_keys(self, signatures: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
        """Return no keys."""
        import numpy as np

        return np.zeros((len(signatures), 0), np.uint64)

    def shingle_sets(
        self, texts: pa.StringArray, rows: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return empty sets: no pair is compared."""
        import numpy as np

        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint64)
