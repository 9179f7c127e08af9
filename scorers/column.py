"""A numeric column of the user's as a score: the stage ``column``."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from pydantic import Field

from corpus.stages import TextBatch, stage
from scorers.scoring import REASON, ScoreConfig, Scorer, Scores

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

NULL = "null"
"""Reason of a record without a value."""


class ColumnConfig(ScoreConfig):
    """Settings of ``column``: which column, and which records stay."""

    column: str = Field(
        min_length=1, description="Column with numbers, such as quality; with dots: a field, such as scores.quality."
    )


@stage("column")
class Column(Scorer):
    """Takes the number that a column of the input has as the record's score.

    Numbers are integers and floats, of JSON too; true and false are none, nor is text. A record whose value is null
    or missing (``null``), no number (``not_a_number``) or not finite (``not_finite``) has no score. Scores are
    rounded to 4 decimals, as those of models are.
    """

    Config = ColumnConfig
    summary = "A numeric column of the input as a score: keep those above a limit, or the best."
    config: ColumnConfig

    def user_columns(self) -> Mapping[str, str]:
        """Return the column, and that of the groups."""
        return {"column": self.config.column, **super().user_columns()}

    def find(self, batch: TextBatch, rows: npt.NDArray[np.int64]) -> tuple[Scores, None]:
        """Return the numbers of chosen rows."""
        import numpy as np

        from corpus.user_columns import user_values

        values = user_values(batch.records, self.config.column)
        reasons = [_problem(values[row]) for row in rows.tolist()]
        numbers = [np.nan if reason else float(values[row]) for row, reason in zip(rows.tolist(), reasons, strict=True)]
        return Scores(np.array(numbers, np.float64), reasons), None

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return how many records have no value in the column, and how many are in the groups with limits."""
        import pyarrow.compute as pc

        return {**super().notice_counts(signals), NULL: pc.sum(pc.equal(signals[REASON], NULL)).as_py() or 0}

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Return that no record has a value, where that is so, and groups that no record is in."""
        notices = super().notices(counts)
        if not counts["entered"] or counts[NULL] < counts["entered"]:
            return notices
        return [*notices, f"no record has a value in {self.config.column}, the column that column names"]


def _problem(value: Any) -> str | None:
    """Return why a value is no score, None for a number."""
    if value is None:
        return NULL
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return "not_a_number"
    return None if isfinite(value) else "not_finite"
