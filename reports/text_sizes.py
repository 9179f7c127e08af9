"""Tokens of the records as the stage ``tokens`` counted them; without one, words where a stage counts these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from corpus.stages import Stage
from filters.gopher import GopherQuality
from filters.length import Length
from filters.tokens import Tokens
from reports.counts import Counts
from reports.fates import Fates, StageInfo

COUNTING: tuple[tuple[str, tuple[type[Stage], ...]], ...] = (("tokens", (Tokens,)), ("words", (Length, GopherQuality)))
"""Units, each with the stages that have a signal of that name; tokens are wanted before words."""
UNITS = tuple(unit for unit, _ in COUNTING)
STAGE_SIZES = tuple(f"{unit}_{side}" for unit in UNITS for side in ("in", "out"))
"""What an entry of a stage in the report may have besides characters."""


class TextSizes(NamedTuple):
    """Tokens or words of the records of a batch.

    Attributes:
        unit: ``tokens`` or ``words``.
        place: of the stage that counted them.
        counts: int64[n], 0 where it did not see the record.
    """

    unit: str
    place: int
    counts: npt.NDArray[np.int64]


def text_sizes(fates: Fates, infos: Sequence[StageInfo]) -> TextSizes | None:
    """Return what the last stage counted that counts tokens, else the last that counts words; None without one."""
    for unit, kinds in COUNTING:
        for index in reversed(range(len(infos))):
            if isinstance(infos[index].stage, kinds):
                values = pc.fill_null(fates.signal(infos[index], unit), 0)
                return TextSizes(unit, index, values.to_numpy(zero_copy_only=False))
    return None


def stage_sizes(sizes: TextSizes, index: int, fates: Fates) -> Counts:
    """Return the tokens or words that enter a stage, and those that leave it; nothing before they are counted."""
    if index < sizes.place:
        return {}
    entered = fates.entered(index)
    stayed = entered & (fates.left_at != index)
    return {
        f"{sizes.unit}_in": int(sizes.counts[entered].sum()),
        f"{sizes.unit}_out": int(sizes.counts[stayed].sum()),
    }


class CountedSizes(NamedTuple):
    """Tokens or words of a run.

    Attributes:
        unit: ``tokens`` or ``words``.
        stage: the name of the stage that counted them.
        counted: those of the records that entered it.
        kept: those of them in the records that stay.
        edited_by: stages behind it that changed texts, which are not counted again.
    """

    unit: str
    stage: str
    counted: int
    kept: int
    edited_by: tuple[str, ...]


def counted_sizes(report: Mapping[str, Any]) -> CountedSizes | None:
    """Return what ``report.json`` says of tokens or words; None where no stage counted any."""
    stages = report["stages"]
    for unit in UNITS:
        behind = [stage for stage in stages if f"{unit}_in" in stage]
        if behind:
            edited_by = tuple(stage["name"] for stage in behind if stage["edited"])
            return CountedSizes(unit, behind[0]["name"], behind[0][f"{unit}_in"], behind[-1][f"{unit}_out"], edited_by)
    return None
