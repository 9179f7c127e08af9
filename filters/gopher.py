"""The quality rules of the Gopher paper: the stage ``gopher_quality``.

Source: Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", arXiv 2112.11446,
appendix A.1. Reference implementation: ``GopherQualityFilter`` of datatrove 0.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from corpus.errors import UsageError
from corpus.stages import (
    Off,
    RecordStage,
    Rule,
    Signal,
    StageConfig,
    Test,
    TextBatch,
    TextField,
    stage,
    threshold_rules,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from filters.gopher_counts import KernelTables

Preset = Literal["thresher-1", "datatrove-0.10"]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")

# Config field, signal, test: in the order in which datatrove asks.
RULES: tuple[tuple[str, str, Test], ...] = (
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


class GopherQualityConfig(StageConfig):
    """Settings of ``gopher_quality``: each rule's limit, or "off". The defaults are those of the paper."""

    preset: Preset = Field(
        default="thresher-1",
        description="Whose definition of punctuation: all of Unicode's (thresher-1), or that of datatrove 0.10.",
    )
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
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

    @model_validator(mode="after")
    def _limits_leave_room(self) -> GopherQualityConfig:
        for measure in ("words", "mean_word_length"):
            low, high = getattr(self, f"minimum_{measure}"), getattr(self, f"maximum_{measure}")
            if "off" not in (low, high) and low > high:
                raise ValueError(f"minimum_{measure} ({low}) is above maximum_{measure} ({high}): no text can pass")
        known = len(set(self.stop_words))
        if self.minimum_stop_words != "off" and self.minimum_stop_words > known:
            raise ValueError(
                f"minimum_stop_words ({self.minimum_stop_words}) is above the number of stop_words ({known}): no text "
                'can pass; list more or set minimum_stop_words to "off"'
            )
        return self


@stage("gopher_quality")
class GopherQuality(RecordStage):
    """Keeps texts that look like prose by ten simple counts.

    Words are those of ``corpus.text.words``; lines are those of ``corpus.text.lines``. A word of punctuation only is
    no word in ``words`` and ``mean_word_length``, yet is one in the ratios (per word) and in ``alphabetic_words``, as
    in datatrove. Stop words are compared as written, capitals and adjacent punctuation included. A line begins with a
    bullet if ``•`` or ``-`` is its first code point that is no white space; it ends with an ellipsis if ``…`` or
    ``...`` comes last. A value at a limit stays. Ratios are exact quotients of two counts, as float64.

    A value whose denominator is zero (no words, no lines) is null, and null meets every rule: a text without words
    leaves by ``minimum_words`` or ``minimum_stop_words``, and stays if both are off.

    The preset ``datatrove-0.10`` gives verdict and first failing rule of datatrove's ``GopherQualityFilter`` on the
    same words. The preset ``thresher-1`` has the same limits and differs in one definition:

    - Punctuation. thresher-1: Unicode categories P and S, control and format characters. datatrove-0.10: a set of 281
      code points without most symbols (``€``, ``→``, ``©``, emoji), many marks of punctuation (``•``, ``‘``, ``·``)
      and format characters, but with the full-width digit ``１``.

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
    _tables: KernelTables | None = None

    def signals(self) -> tuple[Signal, ...]:
        """Return the eight measured values."""
        return (
            Signal("words", "int64", "Words, without those of punctuation only."),
            Signal("mean_word_length", "float64", "Mean length of these words in code points."),
            Signal("hash_ratio", "float64", "Hash signs per word, those of punctuation included."),
            Signal("ellipsis_ratio", "float64", "Ellipses (… and ...) per word, those of punctuation included."),
            Signal("bullet_lines", "float64", "Share of lines that begin with • or -."),
            Signal("ellipsis_lines", "float64", "Share of lines that end with an ellipsis."),
            Signal("alphabetic_words", "float64", "Share of words, those of punctuation included, that have a letter."),
            Signal("stop_words", "int64", "Different stop words in the text."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are on, in datatrove's order."""
        return threshold_rules(self.config, RULES)

    def prepare(self) -> None:
        """Build the tables and load the kernel. Raises UsageError for a stop word that no text can have."""
        from corpus.text import words
        from filters.gopher_counts import kernel_tables

        for word in self.config.stop_words:
            if words(word) != [word]:
                raise UsageError(
                    f"{self.name}.stop_words: {word!r} is not one word, so no text can have it; a stop word is without "
                    "spaces, and in scripts written without spaces it is a single letter"
                )
        self._tables = kernel_tables(self.config.preset, self.config.stop_words)

    def count(self, batch: TextBatch) -> npt.NDArray[np.int64]:
        """Return what the kernel counts: int64[statistics, n], rows as numbered in ``filters.gopher_kernel``."""
        from corpus.text import text_buffers
        from filters.gopher_kernel import sweep

        if self._tables is None:
            raise RuntimeError("call prepare() before measure()")
        tables = self._tables
        return sweep(
            *text_buffers(batch.texts),
            batch.alive,
            tables.classes,
            tables.buckets,
            tables.stop_offsets,
            tables.stop_bytes,
        )

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the eight signals of each text."""
        import pyarrow as pa

        from filters import gopher_kernel as statistic
        from filters.gopher_counts import quotient

        counts = self.count(batch)
        tokens, words, lines = counts[statistic.TOKENS], counts[statistic.WORDS], counts[statistic.LINES]
        return {
            "words": pa.array(words),
            "mean_word_length": quotient(counts[statistic.WORD_CHARACTERS], words),
            "hash_ratio": quotient(counts[statistic.HASHES], tokens),
            "ellipsis_ratio": quotient(counts[statistic.ELLIPSES], tokens),
            "bullet_lines": quotient(counts[statistic.BULLET_LINES], lines),
            "ellipsis_lines": quotient(counts[statistic.ELLIPSIS_LINES], lines),
            "alphabetic_words": quotient(counts[statistic.ALPHABETIC_TOKENS], tokens),
            "stop_words": pa.array(counts[statistic.STOP_WORDS]),
        }
