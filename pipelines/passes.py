"""Compile an ordered list of stages into passes over the batches.

Neighbouring record stages fuse into one pass; a corpus stage ends a pass, and its verdicts open the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpus.stages import CorpusStage, RecordStage, Stage, VerdictPart


@dataclass(frozen=True)
class Pass:
    """One pass over all batches.

    Attributes:
        number: from 1; the first pass reads the input, the others read staging.
        verdicts_of: the corpus stage whose verdicts open the pass; None in the first.
        record_stages: what the pass computes, in order.
        feeds: the corpus stage that gets packed keys of the records alive at the end; None in the last.
        verdict_part: the part of ``verdicts_of`` that judges the batches; None where the stage itself does.
        record_part: the part of ``feeds`` that measures records behind all other stages; None without one.
    """

    number: int
    verdicts_of: CorpusStage | None
    record_stages: tuple[RecordStage, ...]
    feeds: CorpusStage | None
    verdict_part: VerdictPart | None = None
    record_part: RecordStage | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages whose columns are in the marks of the pass, in order; without the record part."""
        opening = self.verdict_part or self.verdicts_of
        return (*((opening,) if opening else ()), *self.record_stages)

    @property
    def measuring(self) -> tuple[RecordStage, ...]:
        """The stages that look at records, in order."""
        return (*self.record_stages, *((self.record_part,) if self.record_part else ()))

    @property
    def signal_columns(self) -> tuple[str, ...]:
        """The columns of the marks, of stages before them, that stages of the pass read."""
        stages = (*self.measuring, *((self.feeds,) if self.feeds else ()))
        return tuple(name for stage in stages for name in stage.signal_columns())


def compile_passes(stages: Sequence[Stage]) -> tuple[Pass, ...]:
    """Return the passes for an ordered list of stages; there is always at least one."""
    passes: list[Pass] = []
    opening: CorpusStage | None = None
    fused: list[RecordStage] = []

    def close(feeds: CorpusStage | None) -> None:
        verdict_part = opening.verdict_part() if opening else None
        record_part = feeds.record_part() if feeds else None
        passes.append(Pass(len(passes) + 1, opening, tuple(fused), feeds, verdict_part, record_part))

    for stage in stages:
        if isinstance(stage, CorpusStage):
            close(stage)
            opening, fused = stage, []
        elif isinstance(stage, RecordStage):
            fused.append(stage)
        else:
            raise TypeError(f"{stage.name} is neither a record stage nor a corpus stage")
    close(None)
    return tuple(passes)
