"""Sources and files that are far off the others are set aside: the stage ``quarantine``.

How many of its records are dead letters, and how many the stages before dropped, is counted for each group; a group
beyond a limit leaves as a whole. Listed before a duplicate stage, a bad shard never provides the copies that stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from corpus.errors import ThresherError
from corpus.stages import (
    CorpusStage,
    Off,
    Rule,
    Signal,
    StageConfig,
    Test,
    TextBatch,
    VerdictPart,
    stage,
    threshold_rules,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from filters.quarantine_groups import Groups, Hashes

Share = Annotated[float, Field(ge=0, le=1)]
Deviation = Annotated[float, Field(gt=0)]

LISTED = 100
"""Groups set aside that the report shows, those with the most records first."""
MOST_GROUPS = 200_000
"""Groups that are judged: 40 bytes each, below the 8 MiB that one key may hold."""

LIMITS: tuple[tuple[str, str, Test], ...] = (
    ("maximum_dead_share", "dead_share", "at_most"),
    ("maximum_drop_share", "drop_share", "at_most"),
    ("maximum_dead_deviation", "dead_deviation", "at_most"),
    ("maximum_drop_deviation", "drop_deviation", "at_most"),
)


class QuarantineConfig(StageConfig):
    """Settings of ``quarantine``."""

    by: Literal["source", "file"] = Field(
        default="source",
        description="What is judged as a whole; a record without a source belongs to its file, and a line that cannot "
        "be decoded counts by file only, since nobody knows its source.",
    )
    minimum_records: int = Field(
        default=100,
        ge=1,
        description="Records read below which a source or file is not judged, and counts for nothing.",
    )
    maximum_dead_share: Share | Off = Field(
        default=0.2, description="Dead letters of the records read beyond which a source or file is set aside."
    )
    maximum_drop_share: Share | Off = Field(
        default="off", description="Records that the stages before dropped, of those not dead, beyond which it is."
    )
    maximum_dead_deviation: Deviation | Off = Field(
        default=3.5,
        description="Spreads by which the share of dead letters may be above the median of all sources or files.",
    )
    maximum_drop_deviation: Deviation | Off = Field(
        default=3.5, description="The same for the share of dropped records."
    )
    smallest_spread: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description="Least spread of shares: with 0.05 a share 3.5 spreads above the median is 17.5 points above it.",
    )
    action: Literal["drop", "flag", "fail"] = Field(
        default="drop", description="Drop all records of a bad source or file, only report it, or end the run."
    )


def _signals() -> tuple[Signal, ...]:
    return (
        Signal("dead_share", "float64", "Dead letters of the records read of its source or file; null if not judged."),
        Signal("drop_share", "float64", "Records dropped before, of those not dead of its source or file."),
        Signal("dead_deviation", "float64", "Spreads by which the share of dead letters is above the median."),
        Signal("drop_deviation", "float64", "Spreads by which the share of dropped records is above the median."),
    )


def _rules(config: QuarantineConfig) -> tuple[Rule, ...]:
    return threshold_rules(config, LIMITS) if config.action == "drop" else ()


@stage("quarantine")
class Quarantine(CorpusStage):
    """Sets aside sources or files whose share of dead letters or of dropped records is far off that of the others.

    Four limits, each can be off: the shares themselves, and their modified z-scores (Iglewicz and Hoaglin 1993: more
    than 3.5 is an outlier), which compare each source or file with the median of all. ``minimum_records`` leaves out
    small ones. With the action ``drop`` all records of a bad one that are left leave by the rule that it breaks;
    ``flag`` only lists it in the report; ``fail`` ends the run and names it. Signals are the shares and scores, so that
    ``whatif`` counts under other limits.
    """

    Config = QuarantineConfig
    summary = "Sets aside sources or files with far more dead letters or dropped records than the others."
    needs_run = "it compares the sources or files of a run; use thresher run"
    config: QuarantineConfig

    def verdict_part(self) -> VerdictPart:
        """Return the stage that judges the records of a batch."""
        return QuarantineVerdict(self.config, self.name, self.text_field)

    def signals(self) -> tuple[Signal, ...]:
        """Return shares and deviations."""
        return _signals()

    def rules(self) -> tuple[Rule, ...]:
        """Return the limits that are on, where they drop records."""
        return _rules(self.config)

    def shuffled_bytes(self, rows: int) -> int:
        """Return the counts of sources where each has a hundred records in every batch."""
        return rows // 2

    def found(self, groups: Groups) -> tuple[bytes, list[dict[str, Any]], int]:
        """Return what the verdict part receives, and the bad groups.

        Args:
            groups: all that have ``minimum_records`` or more.

        Returns:
            The packed shares; of at most ``LISTED`` bad groups, those with the most records first, ``hash``, ``place``
            (key of a batch that has records of it), counts, signals, and ``limits``, those that it breaks; and how many
            bad groups there are.
        """
        import numpy as np
        import pyarrow as pa

        from corpus.packing import pack_arrays
        from corpus.verdicts import rule_fails

        values = _values(groups, self.config.smallest_spread)
        limits = threshold_rules(self.config, LIMITS)
        broken = {rule.name: rule_fails(rule, pa.array(values[rule.signal])) for rule in limits}
        bad = np.any([*broken.values(), np.zeros(len(groups), np.bool_)], axis=0)
        rows = np.flatnonzero(bad)
        rows = rows[np.lexsort((groups.hashes[rows], -groups.read[rows]))]
        listed = [
            {
                "hash": int(groups.hashes[row]),
                "place": int(groups.places[row]),
                "read": int(groups.read[row]),
                "dead": int(groups.dead[row]),
                "dropped": int(groups.dropped[row]),
                **{name: float(column[row]) for name, column in values.items()},
                "limits": [name for name, mask in broken.items() if mask[row]],
            }
            for row in rows[:LISTED].tolist()
        ]
        return pack_arrays([groups.hashes, *values.values()]), listed, len(rows)

    def check_number(self, groups: int) -> None:
        """Raise ThresherError where there are too many groups to be judged."""
        if groups > MOST_GROUPS:
            raise ThresherError(
                f"stages.{self.name}: {groups:,} {self.config.by}s have minimum_records "
                f"({self.config.minimum_records:,}) or more, and at most {MOST_GROUPS:,} can be compared; raise "
                f"stages.{self.name}.minimum_records"
            )


def group_hashes(config: QuarantineConfig, file: str, source: pa.Array) -> Hashes:
    """Return the hash of the source or file of each record, uint64[n]."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from corpus.hashing import value_hashes

    if config.by == "file":
        return np.full(len(source), value_hashes(pa.array([file]))[0], np.uint64)
    return value_hashes(pc.fill_null(source, file))


def _values(groups: Groups, smallest_spread: float) -> dict[str, npt.NDArray[np.float64]]:
    from filters.quarantine_groups import deviations

    dead, drop = groups.dead_shares, groups.drop_shares
    return {
        "dead_share": dead,
        "drop_share": drop,
        "dead_deviation": deviations(dead, smallest_spread),
        "drop_deviation": deviations(drop, smallest_spread),
    }


class QuarantineVerdict(VerdictPart):
    """The part that gives the records of a batch the shares of their group."""

    Config = QuarantineConfig
    summary = Quarantine.summary
    config: QuarantineConfig

    def signals(self) -> tuple[Signal, ...]:
        """Return shares and deviations."""
        return _signals()

    def rules(self) -> tuple[Rule, ...]:
        """Return the limits that are on, where they drop records."""
        return _rules(self.config)

    def receive(self, found: bytes) -> None:
        """Take the shares of all groups that are judged."""
        import numpy as np

        from corpus.packing import unpack_arrays

        hashes, *values = unpack_arrays(found, (np.uint64, *[np.float64] * len(_signals())))
        self._hashes, self._shares = hashes, values

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the values of each record's group, null where it is not judged."""
        import numpy as np
        import pyarrow as pa

        assert batch.records is not None
        file = batch.records.schema.metadata[b"file"].decode()
        own = group_hashes(self.config, file, batch.records.column("source"))
        if not len(self._hashes):
            return {signal.name: pa.nulls(len(own), pa.float64()) for signal in _signals()}
        rows = np.minimum(np.searchsorted(self._hashes, own), len(self._hashes) - 1)
        unknown = self._hashes[rows] != own
        return {
            signal.name: pa.array(values[rows], mask=unknown)
            for signal, values in zip(_signals(), self._shares, strict=True)
        }


def group_names(config: QuarantineConfig, file: str, source: pa.Array) -> Iterator[tuple[int, str]]:
    """Yield (hash, name) of the groups of some records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array([file]) if config.by == "file" else pc.unique(pc.fill_null(source, file))
    yield from zip(group_hashes(config, file, names).tolist(), names.to_pylist(), strict=True)
