"""What the modules of contamination agree on: lengths, kinds, flags. Imports nothing heavy: stage configs read it."""

from __future__ import annotations

from typing import NamedTuple

NGRAM_TOKENS = 5
"""Tokens of the n-grams by which items are found: of an item with one changed word in 13, or three in 25, at least one
stays whole. AI2's decon takes 5 as well, datatrove 0.10 12, GPT-3 13."""
FEWEST_DISTINCT = 4
"""Distinct tokens without which nothing is looked for, as in decon."""
MOST_SHARING = 8
"""Items that may have one text in common; what more share (an instruction, "What is the sentiment?") tells nothing."""
LONG_WORDS = 25
"""Words from which on an item is long."""

QUESTION, ANSWER, JUNCTION = 0, 1, 2
"""Kinds of entries of the index: the last is a question with what follows it."""
KIND = 3
"""The bits of an entry's flags that hold its kind."""
EXACT = 1 << 2
"""Flag of an entry: found token by token only."""
NEEDS_PART = 1 << 3
"""Flag of an entry: counts only where a part is near."""

PART_ANSWER, PART_CHOICE, PART_CONTEXT = 0, 1, 2
"""Kinds of parts, which are looked for near a question only."""
ANSWER_NEAR, CHOICES_NEAR, CONTEXT_NEAR, TELLING_NEAR = 1, 2, 4, 8
"""Bits of what is near a match; the last says that a part that tells something is among it."""


class ItemLengths(NamedTuple):
    """From how many words on a part of an item is looked for in which way.

    Two code points of a script written without spaces count as a word.

    Attributes:
        question_words: a question from this length on is found without its answer.
        edited_words: a part from this length on is found with words changed.
        answer_words: an answer from this length on is found without its question.
    """

    question_words: int = 8
    edited_words: int = 13
    answer_words: int = 20
