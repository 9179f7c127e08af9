"""Where in a text the reason for a rule can be seen, for stages that store values and no spans.

The spans help a reader to see why a value is high; the value itself comes from the stage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import unicodedata2

from corpus.stages import Rule, Stage

Spans = Iterator[tuple[int, int]]

SEARCHED_CHARACTERS = 20_000
MOST_SPANS = 200
LONG_WORD = 20

_WORD = re.compile(r"\S+")
_PATTERNS = {
    "hash_ratio": r"#",
    "ellipsis_ratio": r"…|\.\.\.",
    "ellipsis_lines": r"(?m)(…|\.\.\.)\s*$",
    "bullet_lines": r"(?m)^\s*[•-]",
    "mean_word_length": rf"\S{{{LONG_WORD},}}",
    "curly_bracket_lines": r"[{}]",
    "lorem_ipsum_lines": r"(?i)lorem ipsum",
    "javascript_lines": r"(?i)javascript",
    "newline_ratio": r"\n",
}
_REPEATED_LINES = ("duplicate_lines", "duplicate_line_characters")
_REPEATED_PARAGRAPHS = ("duplicate_paragraphs", "duplicate_paragraph_characters")


def reason_spans(stage: Stage | None, rule: Rule, text: str) -> list[tuple[int, int]]:
    """Return spans of a text, code points, that a rule's signal counts; none where that is not a matter of places."""
    text = text[:SEARCHED_CHARACTERS]
    spans: list[tuple[int, int]] = []
    for span in _find(stage, rule)(text):
        if len(spans) == MOST_SPANS:
            break
        spans.append(span)
    return spans


def _find(stage: Stage | None, rule: Rule) -> Callable[[str], Spans]:
    if rule.signal in _PATTERNS:
        pattern = re.compile(_PATTERNS[rule.signal])
        return lambda text: (found.span() for found in pattern.finditer(text))
    if rule.signal in _REPEATED_LINES:
        return lambda text: _repeated(re.finditer(r"[^\n]*\S[^\n]*", text))
    if rule.signal in _REPEATED_PARAGRAPHS:
        return lambda text: _repeated(re.finditer(r"\S(?:[^\n]|\n(?!\n))*", text))
    if rule.signal == "alphabetic_words":
        return _words_without_letter
    if rule.signal == "stop_words":
        words = frozenset(getattr(stage.config, "stop_words", ())) if stage else frozenset()
        return lambda text: (found.span() for found in _WORD.finditer(text) if found[0] in words)
    if frequent := re.fullmatch(r"top_(\d+)_gram_characters", rule.signal):
        return lambda text: _most_frequent(text, int(frequent[1]))
    if repeated := re.fullmatch(r"duplicate_(\d+)_gram_characters", rule.signal):
        return lambda text: _repeated_grams(text, int(repeated[1]))
    return lambda text: iter(())


def _repeated(pieces: Iterator[re.Match[str]]) -> Spans:
    seen: set[str] = set()
    for piece in pieces:
        if piece[0].strip() in seen:
            yield piece.span()
        seen.add(piece[0].strip())


def _words_without_letter(text: str) -> Spans:
    for found in _WORD.finditer(text):
        if not any(unicodedata2.category(character).startswith("L") for character in found[0]):
            yield found.span()


def _grams(text: str, size: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    words = list(_WORD.finditer(text))
    for first in range(len(words) - size + 1):
        run = words[first : first + size]
        yield tuple(word[0] for word in run), run[0].start(), run[-1].end()


def _most_frequent(text: str, size: int) -> Spans:
    grams = list(_grams(text, size))
    counts = Counter(gram for gram, _, _ in grams)
    if not counts:
        return
    most = max(counts, key=lambda gram: (counts[gram], len("".join(gram)), gram))
    place = 0
    for gram, start, end in grams:
        if gram == most and start >= place:
            yield start, end
            place = end


def _repeated_grams(text: str, size: int) -> Spans:
    seen: set[tuple[str, ...]] = set()
    place = 0
    for gram, start, end in _grams(text, size):
        if gram not in seen:
            seen.add(gram)
        elif start >= place:
            yield start, end
            place = end
