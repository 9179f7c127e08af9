"""What the presets of ``c4_quality`` read in a text: marks, phrases, and the points at which published versions differ.

Limits are settings of the stage. A ``Reading`` holds what a limit cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from filters.c4 import C4QualityConfig

Preset = Literal["thresher-1", "paper", "tfds", "datatrove-0.10"]

CITATION_NAMES = ("edit", "citation needed")
JAVASCRIPT = "javascript"
LOREM_IPSUM = "lorem ipsum"
# The strings that section 2.2 of the paper lists, in its order.
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")

KELVIN_SIGN = 0x212A
"""The only code point besides A to Z whose lower case is a letter from a to z by itself."""

QUOTATION_MARKS = "22 27 BB 2019 201D 203A 300D 300F"
FULL_WIDTH_ENDS = "3002 FF01 FF0E FF1F FF61"
"""Marks behind which no space is written where a sentence ends."""


@dataclass(frozen=True)
class Reading:
    """How a published version reads a text.

    Attributes:
        end_marks: code points in hexadecimal with which a line may end; None: those that end sentences in any script,
            and ``QUOTATION_MARKS``.
        closing: whether closing brackets and quotation marks may stand behind the end mark.
        ellipsis_ends: whether a line that ends with ``...`` is a finished one.
        scripts: whether words are those of ``corpus.text.words``, or what stands between white space.
        words_before_citations: whether words are counted before citation marks are removed.
        tidy_citations: whether the white space before a citation mark, and at the ends of its line, goes with it, and
            empty brackets are none.
        whole_page: whether lines that are cut are searched, too, for what drops a text.
        first_found: whether only what comes first in the text, ``lorem ipsum`` or a curly bracket, is counted.
    """

    end_marks: str | None = None
    closing: bool = False
    ellipsis_ends: bool = False
    scripts: bool = False
    words_before_citations: bool = False
    tidy_citations: bool = False
    whole_page: bool = False
    first_found: bool = False


READINGS: Mapping[Preset, Reading] = {
    "thresher-1": Reading(closing=True, scripts=True, tidy_citations=True),
    "paper": Reading(end_marks="21-22 2E 3F 201D", ellipsis_ends=True, tidy_citations=True, whole_page=True),
    "tfds": Reading(end_marks="21-22 2E 3F", first_found=True),
    "datatrove-0.10": Reading(end_marks="21-22 27 2E 3F", words_before_citations=True, first_found=True),
}

LIMITS: Mapping[Preset, Mapping[str, int | str]] = {
    "thresher-1": {"maximum_word_length": 1000, "minimum_line_words": 3, "minimum_sentences": 5},
    "paper": {"maximum_word_length": "off", "minimum_line_words": 5, "minimum_sentences": 3},
    "tfds": {"maximum_word_length": 1000, "minimum_line_words": 5, "minimum_sentences": 3},
    "datatrove-0.10": {"maximum_word_length": 1000, "minimum_line_words": 3, "minimum_sentences": 5},
}
"""Settings that a preset fills in where they are not given."""


@dataclass(frozen=True)
class LineRules:
    """The settings of the stage as the kernel and its reference take them; a limit that is off never applies."""

    reading: Reading
    maximum_word_length: int
    minimum_line_words: int
    terminal_punctuation: bool
    javascript: bool
    policy: bool
    citations: bool
    lorem_ipsum: bool
    curly_bracket: bool


def line_rules(config: C4QualityConfig) -> LineRules:
    """Return the settings of a config that decide about lines."""
    longest, fewest = config.maximum_word_length, config.minimum_line_words
    return LineRules(
        READINGS[config.preset],
        (1 << 31) - 1 if longest == "off" else longest,
        0 if fewest == "off" else fewest,
        config.terminal_punctuation == "on",
        config.javascript == "on",
        config.policy == "on",
        config.citations == "on",
        config.lorem_ipsum == "on",
        config.curly_bracket == "on",
    )
