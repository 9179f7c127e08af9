"""Counts of a stage in the form of its plain-Python reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt


def by_text(counts: Mapping[str, npt.NDArray[np.int64]]) -> list[dict[str, int]]:
    """Return the counts of each text by name."""
    columns = [values.tolist() for values in counts.values()]
    return [dict(zip(counts, row, strict=True)) for row in zip(*columns, strict=True)]
