"""Groups of records for limits of their own: by the source, a signal of a stage before, or a column of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from corpus.stages import Stage

if TYPE_CHECKING:
    import pyarrow as pa

LANGUAGE, SOURCE = "language", "source"
PER = "keep.per"
"""The setting that names the groups."""


def group_signal(per: str | None, before: Sequence[Stage]) -> str | None:
    """Return the column of the marks that has the groups; None where a column of the records has them.

    Args:
        per: what the groups are by; ``language`` is the label of the last language stage.
        before: the stages before.
    """
    found = None
    for stage in before:
        if per == LANGUAGE and LANGUAGE in stage.curated_columns():
            found = f"{stage.name}.{stage.curated_columns()[LANGUAGE]}"
        elif per in {f"{stage.name}.{signal.name}" for signal in stage.signals()}:
            found = per
    return found


def group_column(per: str | None, signal: str | None) -> dict[str, str]:
    """Return the column of the user's that has the groups, by the setting that names it; empty where none has."""
    return {} if per in (None, SOURCE) or signal is not None else {PER: str(per)}


def group_values(per: str, signal: str | None, records: pa.RecordBatch, marks: pa.RecordBatch | None) -> pa.StringArray:
    """Return the group of each record of a batch as text; null is a group of its own.

    Args:
        per: what the groups are by.
        signal: what ``group_signal`` found.
        records, marks: of the batch; marks are needed for a signal.
    """
    import pyarrow as pa

    from corpus.user_columns import user_values

    if signal is not None:
        assert marks is not None
        return marks.column(signal).cast(pa.string())
    if per == SOURCE:
        return records.column(SOURCE)
    values: list[Any] = user_values(records, per)
    return pa.array([None if value is None else str(value) for value in values], pa.string())
