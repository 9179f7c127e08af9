"""The quality rules of the Gopher paper: the stage ``gopher_quality``.

Source: Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", arXiv 2112.11446,
appendix A.1. Reference implementation: ``GopherQualityFilter`` of datatrove 0.10.

There is no stage for perplexity, which some recipes ask next: no well-kept package carries a KenLM model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from corpus.errors import UsageError
from corpus.stages import Off, TextBatch, TextField, stage
from filters.counting import (
    BY_LANGUAGE,
    Amount,
    Count,
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
    import pyarrow as pa

    from filters.gopher_counts import StopWords

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQualityLimits(Limits):
    """The limit of each rule of ``gopher_quality``, or "off". The defaults are those of the paper, for English."""

    minimum_words: Count | Off = Field(default=50, description="Fewest words; those of punctuation only do not count.")
    maximum_words: Count | Off = Field(default=100_000, description="Most words.")
    minimum_mean_word_length: Amount | Off = Field(default=3.0, description="Shortest mean word, in code points.")
    maximum_mean_word_length: Amount | Off = Field(default=10.0, description="Longest mean word, in code points.")
    maximum_hash_ratio: Amount | Off = Field(default=0.1, description="Most hash signs per word.")
    maximum_ellipsis_ratio: Amount | Off = Field(default=0.1, description="Most ellipses per word.")
    maximum_bullet_lines: Share | Off = Field(default=0.9, description="Largest share of lines that begin with • or -.")
    maximum_ellipsis_lines: Share | Off = Field(default=0.3, description="Largest share of lines that end in ellipses.")
    minimum_alphabetic_words: Share | Off = Field(default=0.8, description="Least share of words that have a letter.")
    minimum_stop_words: Count | Off = Field(default=2, description="Fewest different stop words.")
    stop_words: list[str] = Field(
        default=list(STOP_WORDS), description="Stop words, compared as written; each must be one word."
    )

    def contradiction(self) -> str | None:
        """Return why no text can pass; also where more stop words are wanted than are listed."""
        known = len(set(self.stop_words))
        if self.minimum_stop_words != "off" and self.minimum_stop_words > known:
            return (
                f"minimum_stop_words ({self.minimum_stop_words}) is above the number of stop_words ({known}): no text "
                'can pass; list more or set minimum_stop_words to "off"'
            )
        return super().contradiction()


class GopherQualityConfig(GopherQualityLimits, CountingConfig):
    """Settings of ``gopher_quality``: each rule's limit, or "off". The defaults are those of the paper."""

    preset: Preset = Field(
        default="thresher-1",
        description="Whose definition of punctuation: all of Unicode's (thresher-1), or that of datatrove 0.10.",
    )
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    by_language: dict[str, GopherQualityLimits] = Field(default={}, description=BY_LANGUAGE)


@stage("gopher_quality")
class GopherQuality(CountingStage):
    """Keeps texts that look like prose by ten simple counts.

    Words are those of ``corpus.text.words``; lines are those of ``corpus.text.lines``. A word of punctuation only is
    no word in ``words`` and ``mean_word_length``, yet is one in the ratios (per word) and in ``alphabetic_words``, as
    in datatrove. Stop words are compared as written, capitals and adjacent punctuation included. A line begins with a
    bullet if ``•`` or ``-`` is its first code point that is no white space; it ends with an ellipsis if ``…`` or
    ``...`` comes last. A value at a limit stays. Ratios are exact quotients of two counts, as float64.

    A value whose denominator is zero (no words, no lines) is null, and null meets every rule: a text without words
    leaves by ``minimum_words`` or ``minimum_stop_words``, and stays if both are off.

    The limits are made for words between spaces. In scripts written without spaces each letter is a word, so the mean
    word has about one character and leaves by ``minimum_mean_word_length``; ``unspaced_words`` tells how much of a text
    that concerns. Limits and stop words for such languages are set in ``by_language``.

    The preset ``datatrove-0.10`` gives verdict and first failing rule of datatrove's ``GopherQualityFilter`` on the
    same words. The preset ``thresher-1`` has the same limits and differs in one definition:

    - Punctuation. thresher-1: Unicode categories P and S, control and format characters. datatrove-0.10: a set of 281
      code points without most symbols (``€``, ``→``, ``©``, emoji), many marks of punctuation (``•``, ``‘``, ``·``)
      and format characters, but with the full-width digit ``１``.

    On a sample of 113,008 records (``thresher sample``, counted by ``python -m benchmarks.presets``), of which
    datatrove-0.10 drops 61,719, that changes the verdict of 19, which only thresher-1 drops, and the reason of 8.

    What remains different from datatrove itself, in both presets:

    - Words. datatrove splits by a tokenizer per language, which takes punctuation off words.
    - Unicode. Letters are those of the pinned Unicode version, for datatrove those of the interpreter.
    - Limits of zero. In datatrove a limit of 0 switches its rule off; here 0 is a limit, and "off" is off.
    - Hash signs and ellipses have one limit in datatrove, and two here.
    - A text without words raises ZeroDivisionError in datatrove where its minimum of words is off.
    """

    Config = GopherQualityConfig
    summary = "Quality rules of the Gopher paper: word counts and lengths, symbols, bullets, ellipses, stop words."
    config: GopherQualityConfig
    MEASURES = (
        Measure("words", "words", "", "Words, without those of punctuation only."),
        Measure("mean_word_length", "word_characters", "words", "Mean length of these words in code points."),
        Measure("hash_ratio", "hashes", "tokens", "Hash signs per word, those of punctuation included."),
        Measure(
            "ellipsis_ratio", "ellipses", "tokens", "Ellipses (… and ...) per word, those of punctuation included."
        ),
        Measure("bullet_lines", "bullet_lines", "lines", "Share of lines that begin with • or -."),
        Measure("ellipsis_lines", "ellipsis_lines", "lines", "Share of lines that end with an ellipsis."),
        Measure(
            "alphabetic_words",
            "alphabetic_tokens",
            "tokens",
            "Share of words, those of punctuation included, that have a letter.",
        ),
        Measure("stop_words", "stop_words", "", "Different stop words in the text."),
        Measure(
            "unspaced_words",
            "unspaced_tokens",
            "tokens",
            "Share of words that are a letter of a script without spaces (Han, Kana, Thai, Lao, Khmer, Burmese).",
        ),
    )
    # In the order in which datatrove asks.
    RULES = (
        ("minimum_words", "words", "at_least"),
        ("maximum_words", "words", "at_most"),
        ("minimum_mean_word_length", "mean_word_length", "at_least"),
        ("maximum_mean_word_length", "mean_word_length", "at_most"),
        ("maximum_hash_ratio", "hash_ratio", "at_most"),
        ("maximum_ellipsis_ratio", "ellipsis_ratio", "at_most"),
        ("maximum_bullet_lines", "bullet_lines", "at_most"),
        ("maximum_ellipsis_lines", "ellipsis_lines", "at_most"),
        ("minimum_alphabetic_words", "alphabetic_words", "at_least"),
        ("minimum_stop_words", "stop_words", "at_least"),
    )
    _stop_words: StopWords | None = None

    def prepare(self) -> None:
        """Load the kernel and the stop words. Raises UsageError for a stop word that no text can have."""
        from corpus.text import words
        from filters.gopher_counts import stop_word_table

        lists = {"stop_words": self.config.stop_words}
        for label in self.labels("stop_words"):
            lists[f"by_language.{label}.stop_words"] = self.config.by_language[label].stop_words
        for setting, listed in lists.items():
            for word in listed:
                if words(word) != [word]:
                    raise UsageError(
                        f"{self.name}.{setting}: {word!r} is not one word, so no text can have it; a stop word is "
                        "without spaces, and in scripts written without spaces it is a single letter"
                    )
        self._stop_words = stop_word_table(list(lists.values()))

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return also how many texts are for the most part in scripts without spaces."""
        import pyarrow.compute as pc

        unspaced = pc.sum(pc.greater(signals["unspaced_words"], 0.5)).as_py() or 0
        return {**super().notice_counts(signals), "unspaced_texts": unspaced}

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Say where the limits are not made for the texts."""
        notices = super().notices(counts)
        if counts["unspaced_texts"]:
            notices.append(
                f"in {counts['unspaced_texts']:,} of {counts['entered']:,} texts more than half of the words are "
                "single letters of scripts without spaces (Han, Kana, Thai, Lao, Khmer, Burmese), and the limits are "
                "made for words between spaces: see to it that by_language has those of these languages"
            )
        return notices

    def count(self, batch: TextBatch) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return what the rules count in each text."""
        from corpus.text_statistics import text_statistics
        from filters.gopher_counts import count_words_and_lines

        if self._stop_words is None:
            raise RuntimeError("call prepare() before measure()")
        chosen = language_numbers(batch, self.labels("stop_words"))
        return count_words_and_lines(text_statistics(batch), self.config.preset, self._stop_words, chosen)
