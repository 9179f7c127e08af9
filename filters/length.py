"""Limits on the length of a text: the stage ``length``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from corpus.stages import Off, TextBatch, TextField, stage
from filters.counting import BY_LANGUAGE, Count, CountingConfig, CountingStage, Limits, Measure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class LengthLimits(Limits):
    """The limits of ``length``, all off unless given."""

    minimum_characters: Count | Off = Field(default="off", description="Fewest characters (code points).")
    maximum_characters: Count | Off = Field(default="off", description="Most characters (code points).")
    minimum_words: Count | Off = Field(default="off", description="Fewest words.")
    maximum_words: Count | Off = Field(default="off", description="Most words.")
    minimum_lines: Count | Off = Field(default="off", description="Fewest lines, blank ones included.")
    maximum_lines: Count | Off = Field(default="off", description="Most lines, blank ones included.")


class LengthConfig(LengthLimits, CountingConfig):
    """Settings of ``length``: limits on three counts, all off unless given."""

    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    by_language: dict[str, LengthLimits] = Field(default={}, description=BY_LANGUAGE)


@stage("length")
class Length(CountingStage):
    """Keeps texts within limits on characters, words and lines.

    Characters are code points; words and lines are those of ``corpus.text``: words of punctuation count, and so do
    blank lines. A value at a limit stays.
    """

    Config = LengthConfig
    summary = "Fewest and most characters, words and lines."
    config: LengthConfig
    MEASURES = (
        Measure("characters", "characters", "", "Code points."),
        Measure("words", "words", "", "Words, those of punctuation included."),
        Measure("lines", "lines", "", "Lines, blank ones included."),
    )
    RULES = (
        ("minimum_characters", "characters", "at_least"),
        ("maximum_characters", "characters", "at_most"),
        ("minimum_words", "words", "at_least"),
        ("maximum_words", "words", "at_most"),
        ("minimum_lines", "lines", "at_least"),
        ("maximum_lines", "lines", "at_most"),
    )

    def prepare(self) -> None:
        """Load the kernel."""
        from corpus.text_statistics import statistics_classes

        statistics_classes()

    def count(self, batch: TextBatch) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return the three counts of each text."""
        from corpus.text_statistics import text_statistics

        found = text_statistics(batch)
        return {"characters": found.characters, "words": found.words(), "lines": found.lines()}
