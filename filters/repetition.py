"""The repetition rules of the Gopher paper: the stage ``gopher_repetition``.

Source: Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", arXiv 2112.11446,
appendix A.1, table A1. Reference implementation: ``GopherRepetitionFilter`` of datatrove 0.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from corpus.stages import Off, TextBatch, TextField, stage
from filters.counting import BY_LANGUAGE, CountingConfig, CountingStage, Limits, Measure, Preset, Share

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def _top(size: int) -> Measure:
    name = f"top_{size}_gram_characters"
    description = f"Characters of the most frequent run of {size} words, as a share of the text."
    return Measure(name, name, "characters", description)


def _duplicate(size: int) -> Measure:
    name = f"duplicate_{size}_gram_characters"
    description = f"Characters of runs of {size} words that occurred before, as a share of the text."
    return Measure(name, name, "characters", description)


class GopherRepetitionLimits(Limits):
    """The limit of each rule of ``gopher_repetition``, or "off". The defaults are those of the paper."""

    maximum_duplicate_paragraphs: Share | Off = Field(default=0.3, description="Largest share of repeated paragraphs.")
    maximum_duplicate_paragraph_characters: Share | Off = Field(
        default=0.2, description="Largest share of characters in repeated paragraphs."
    )
    maximum_duplicate_lines: Share | Off = Field(default=0.3, description="Largest share of repeated lines.")
    maximum_duplicate_line_characters: Share | Off = Field(
        default=0.2, description="Largest share of characters in repeated lines."
    )
    maximum_top_2_gram_characters: Share | Off = Field(
        default=0.2, description="Largest share of characters in the most frequent run of 2 words."
    )
    maximum_top_3_gram_characters: Share | Off = Field(default=0.18, description="The same for 3 words.")
    maximum_top_4_gram_characters: Share | Off = Field(default=0.16, description="The same for 4 words.")
    maximum_duplicate_5_gram_characters: Share | Off = Field(
        default=0.15, description="Largest share of characters in repeated runs of 5 words."
    )
    maximum_duplicate_6_gram_characters: Share | Off = Field(default=0.14, description="The same for 6 words.")
    maximum_duplicate_7_gram_characters: Share | Off = Field(default=0.13, description="The same for 7 words.")
    maximum_duplicate_8_gram_characters: Share | Off = Field(default=0.12, description="The same for 8 words.")
    maximum_duplicate_9_gram_characters: Share | Off = Field(default=0.11, description="The same for 9 words.")
    maximum_duplicate_10_gram_characters: Share | Off = Field(default=0.1, description="The same for 10 words.")


class GopherRepetitionConfig(GopherRepetitionLimits, CountingConfig):
    """Settings of ``gopher_repetition``: each rule's limit, or "off". The defaults are those of the paper."""

    preset: Preset = Field(
        default="thresher-1",
        description="How repetition is counted: by words, each once (thresher-1), or exactly as datatrove 0.10 does.",
    )
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    by_language: dict[str, GopherRepetitionLimits] = Field(default={}, description=BY_LANGUAGE)


@stage("gopher_repetition")
class GopherRepetition(CountingStage):
    """Drops texts that repeat themselves, by thirteen shares.

    Words are those of ``corpus.text.words``. A line, paragraph or run of words is a duplicate where it occurs for the
    second or a later time. A value at a limit stays. Shares are exact quotients of two counts, as float64; where there
    is nothing to divide by (no words), they are null, and null meets every rule.

    The preset ``thresher-1`` counts in words and leaves white space out on both sides of each quotient:

    - A line is its words; lines without words do not count. Line ends are those of ``corpus.text.lines``.
    - A paragraph is the words of neighbouring lines; a line without words, or more, stands between two paragraphs.
    - Shares of characters are those of words among the characters of all words. A word in several duplicate runs
      counts once ("taking care not to count characters that occur in overlapping n-grams more than once", the paper).
    - The most frequent run must occur twice to count; of equally frequent ones it is the longest, then the first.

    The preset ``datatrove-0.10`` gives verdict and first failing rule of datatrove's filter on the same words. It has
    the same limits and differs in these ways, each of which is a fault or an accident of that filter:

    - Lines and paragraphs are split at line feeds only: ``\\r\\n\\r\\n`` separates no paragraphs, a line of blanks is a
      line, and line feeds at both ends of a text make two equal, empty lines. Trailing blanks make lines differ.
    - Characters of words are divided by those of the whole text, white space included: shares are too small.
    - The most frequent run counts as often as it occurs, overlaps twice (the share can pass 1), with blanks between
      its words; if all runs are different it is the first run of the text, so short texts fail.
    - Longer runs are looked for from place to place. After a duplicate the scan jumps over its words, so that a longer
      repetition is found or missed by its place in the text. Runs are compared without the blanks between words
      (``a bc`` equals ``ab c``).

    On a sample of 113,008 records (``thresher sample``, counted by ``python -m benchmarks.presets``) datatrove-0.10
    drops 21,674. thresher-1 keeps 14,000 of them, drops 2,981 others, and has another reason for 2,258. Of these
    records, the most frequent run alone changes 15,129, characters of words only 6,883, longer runs 1,171, lines and
    paragraphs 85; 1,253 need several.

    What remains different from datatrove itself, in both presets: datatrove splits words by a tokenizer per language,
    a limit of 0 switches a rule off there (here "off" does), and empty text, which it drops as ``empty``, has left
    before any stage here.
    """

    Config = GopherRepetitionConfig
    summary = "Repetition rules of the Gopher paper: repeated lines, paragraphs and runs of words."
    config: GopherRepetitionConfig
    MEASURES = (
        Measure(
            "duplicate_paragraphs",
            "duplicate_paragraphs",
            "paragraphs",
            "Share of paragraphs that occurred before in the text.",
        ),
        Measure(
            "duplicate_paragraph_characters",
            "duplicate_paragraph_characters",
            "characters",
            "Characters of these paragraphs, as a share of the text.",
        ),
        Measure("duplicate_lines", "duplicate_lines", "lines", "Share of lines that occurred before in the text."),
        Measure(
            "duplicate_line_characters",
            "duplicate_line_characters",
            "characters",
            "Characters of these lines, as a share of the text.",
        ),
        *map(_top, (2, 3, 4)),
        *map(_duplicate, (5, 6, 7, 8, 9, 10)),
    )
    # In the order in which datatrove asks.
    RULES = tuple((f"maximum_{measure.signal}", measure.signal, "at_most") for measure in MEASURES)

    def prepare(self) -> None:
        """Load the kernels."""
        import filters.repetition_counts  # noqa: F401
        from corpus.text_statistics import statistics_classes

        statistics_classes()

    def count(self, batch: TextBatch) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return what the rules count in each text."""
        from corpus.text_statistics import text_statistics
        from filters.repetition_counts import count_repetitions

        return count_repetitions(text_statistics(batch), self.config.preset)
