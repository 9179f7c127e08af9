"""The quality rules of the FineWeb data set: the stage ``fineweb_quality``.

Source: Penedo et al., "The FineWeb Datasets: Decanting the Web for the Finest Text Data at Scale", arXiv 2406.17557,
section 3.5. Reference implementation: ``FineWebQualityFilter`` of datatrove 0.10, with which the data set was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from corpus.stages import Off, TextBatch, TextField, stage
from filters.counting import (
    BY_LANGUAGE,
    Amount,
    CountingConfig,
    CountingStage,
    Limits,
    Measure,
    Preset,
    Share,
    language_numbers,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class FineWebQualityLimits(Limits):
    """The limit of each rule of ``fineweb_quality``, or "off". The defaults are those of datatrove."""

    minimum_punctuated_lines: Share | Off = Field(
        default=0.12, description="Least share of lines that end with punctuation."
    )
    maximum_short_lines: Share | Off = Field(default=0.67, description="Largest share of short lines.")
    short_line_length: int = Field(default=30, ge=0, description="Characters up to which a line is short.")
    maximum_duplicate_line_characters: Share | Off = Field(
        default=0.01, description="Largest share of characters in repeated lines."
    )
    maximum_newline_ratio: Amount | Off = Field(default=0.3, description="Most line ends per word.")


class FineWebQualityConfig(FineWebQualityLimits, CountingConfig):
    """Settings of ``fineweb_quality``: each rule's limit, or "off". The defaults are those of datatrove."""

    preset: Preset = Field(
        default="thresher-1",
        description="What a line is: any line without the white space around it (thresher-1), or what datatrove 0.10 "
        "finds between line feeds.",
    )
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    by_language: dict[str, FineWebQualityLimits] = Field(default={}, description=BY_LANGUAGE)


@stage("fineweb_quality")
class FineWebQuality(CountingStage):
    """Drops lists, menus and texts whose lines were cut, by four ratios.

    Blank lines do not count. A line ends with punctuation if its last code point ends sentences in some script
    (``.``, ``?``, ``!``, ``。`` and 155 others; no quotation marks, brackets or ellipses). A line is a duplicate where
    it occurs for the second or a later time. Words are those of ``corpus.text.words``. A value at a limit stays. A
    ratio whose denominator is zero (no lines, no words) is null, and null meets every rule.

    The limits are those of the code that made the data set.

    The preset ``datatrove-0.10`` gives verdict and first failing rule of datatrove's filter on the same words. The
    preset ``thresher-1`` has the same limits and differs in what a line is:

    - Line ends. thresher-1: those of ``corpus.text.lines``, ``\\r\\n`` being one; they are also what is counted per
      word. datatrove-0.10: line feeds only.
    - White space around a line. thresher-1: left out. datatrove-0.10: a part of the line, so that no line of a text
      with ``\\r\\n`` ends with punctuation, and equal lines with other indentation differ.
    - Characters in repeated lines are a share of those of all lines (thresher-1), or of the whole text without line
      feeds (datatrove-0.10).

    On a sample of 113,008 records (``thresher sample``, counted by ``python -m benchmarks.presets``), of which
    datatrove-0.10 drops 32,570, thresher-1 drops 345 more, keeps 145 of them, and has another reason for 145. White
    space around lines alone changes 587 of these; line ends or characters alone change none, and 48 need several.

    What remains different from datatrove itself, in both presets: its tokenizer of words per language, and text of
    white space only, which it drops as ``empty`` and which has left before any stage here. A text without words but
    not blank (zero-width spaces) raises ZeroDivisionError there. Its options ``line_punct_exclude_zero`` and
    ``stop_chars`` do not exist here.
    """

    Config = FineWebQualityConfig
    summary = "Quality rules of FineWeb: punctuation at line ends, short lines, repeated lines, line ends per word."
    config: FineWebQualityConfig
    MEASURES = (
        Measure("punctuated_lines", "punctuated_lines", "lines", "Share of lines that end with punctuation."),
        Measure("short_lines", "short_lines", "lines", "Share of lines of at most short_line_length characters."),
        Measure(
            "duplicate_line_characters",
            "duplicate_line_characters",
            "characters",
            "Share of characters in lines that occurred before.",
        ),
        Measure("newline_ratio", "newlines", "words", "Line ends per word."),
    )
    # In the order in which datatrove asks.
    RULES = (
        ("minimum_punctuated_lines", "punctuated_lines", "at_least"),
        ("maximum_short_lines", "short_lines", "at_most"),
        ("maximum_duplicate_line_characters", "duplicate_line_characters", "at_most"),
        ("maximum_newline_ratio", "newline_ratio", "at_most"),
    )

    def prepare(self) -> None:
        """Build the tables and load the kernels."""
        from corpus.text_statistics import statistics_classes
        from filters.fineweb_counts import line_classes

        statistics_classes()
        line_classes()

    def count(self, batch: TextBatch) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return what the rules count in each text."""
        import numpy as np

        from corpus.text_statistics import text_statistics
        from filters.fineweb_counts import count_lines

        labels = self.labels("short_line_length")
        settings = (self.config, *(self.config.by_language[label] for label in labels))
        lengths = [limits.short_line_length for limits in settings]
        short = np.array(lengths, np.int64)[language_numbers(batch, labels)]
        return count_lines(text_statistics(batch), self.config.preset, short)
