"""What ``c4_quality`` counts and leaves of a text, in plain Python: the reference of its kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from corpus.text import lines, words
from corpus.unicode_tables import LETTER, WHITE_SPACE, members, regular_expression_class
from filters import c4_kernel as kernel
from filters import c4_line_kernel as line_kernel
from filters.c4_counts import bit_members, line_classes
from filters.c4_rules import CITATION_NAMES, JAVASCRIPT, KELVIN_SIGN, LOREM_IPSUM, POLICY, READINGS, LineRules, Reading


def _strip(text: str) -> str:
    return text.strip(members(WHITE_SPACE))


@cache
def _sentence_patterns() -> dict[str, re.Pattern[str]]:
    classes = line_classes(READINGS["thresher-1"])
    ends, closing = bit_members(classes, line_kernel.TERMINAL), bit_members(classes, line_kernel.CLOSING)
    letter, white = regular_expression_class(LETTER), regular_expression_class(WHITE_SPACE)
    return {
        "end": re.compile(f"[{ends}][{ends}{closing}]*"),
        "initial": re.compile(f"(?:^|[{white}.(])[{letter}]\\Z"),
        "full width": re.compile(f"[{bit_members(classes, line_kernel.FULL_WIDTH)}]"),
        "small letter": re.compile(f"[{white}]+[{bit_members(classes, line_kernel.SMALL)}]"),
        "white space": re.compile(f"[{white}]"),
        "solid": re.compile(f"[^{white}]"),
    }


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order, without the white space between them.

    A sentence ends behind a run of marks that end sentences in some script (``corpus.punctuation``), closing
    brackets and quotation marks included, where white space follows, or where the run has a full-width mark (``。``).
    It does not end before a small letter, nor at a period behind a single letter (initials, ``e.g.``). Text behind the
    last end is a sentence as well.
    """
    patterns = _sentence_patterns()
    borders = [0]
    for end in patterns["end"].finditer(text):
        if not patterns["solid"].search(text, end.end()):
            break
        if end.group() == "." and patterns["initial"].search(text[max(0, end.start() - 2) : end.start()]):
            continue
        if patterns["white space"].match(text, end.end()):
            ended = not patterns["small letter"].match(text, end.end())
        else:
            ended = patterns["full width"].search(end.group()) is not None
        if ended:
            borders.append(end.end())
    pieces = (_strip(text[start:end]) for start, end in zip(borders, [*borders[1:], len(text)], strict=True))
    return [piece for piece in pieces if piece]


def lower_case(text: str) -> str:
    """Return a text with its letters from A to Z, and the Kelvin sign, in lower case."""
    return re.sub("[A-Z]+", lambda capitals: capitals.group().lower(), text).replace(chr(KELVIN_SIGN), "k")


@cache
def _line_patterns(reading: Reading) -> dict[str, re.Pattern[str]]:
    classes = line_classes(reading)
    white = regular_expression_class(WHITE_SPACE)
    digits = f"[{bit_members(classes, line_kernel.DIGIT)}]{'+' if reading.tidy_citations else '*'}"
    mark = rf"\[(?:{digits}|{'|'.join(CITATION_NAMES)})\]"
    return {
        "word": re.compile(f"[^{white}]+"),
        "citation": re.compile(f"[{white}]*{mark}" if reading.tidy_citations else mark),
        "end": re.compile(
            f"[{bit_members(classes, line_kernel.END_MARK)}]"
            + (
                f"(?:(?![{bit_members(classes, line_kernel.END_MARK)}])[{bit_members(classes, line_kernel.CLOSING)}])*"
                * reading.closing
            )
            + r"\Z"
        ),
    }


def _has_end_mark(line: str, reading: Reading) -> bool:
    found = _line_patterns(reading)["end"].search(line)
    return found is not None and (reading.ellipsis_ends or not line[: found.start() + 1].endswith("..."))


def _words(line: str, reading: Reading) -> list[str]:
    return words(line) if reading.scripts else _line_patterns(reading)["word"].findall(line)


def _first_failure(line: str, left: str, rules: LineRules) -> int | None:
    """Return the statistic of the rule about shape by which a line is cut, None if it stays."""
    reading = rules.reading
    if any(len(word) > rules.maximum_word_length for word in _words(line, reading)):
        return kernel.LONG_WORD_LINES
    if rules.terminal_punctuation and not _has_end_mark(left, reading):
        return kernel.UNPUNCTUATED_LINES
    if len(_words(line if reading.words_before_citations else left, reading)) < rules.minimum_line_words:
        return kernel.SHORT_LINES
    return None


def _stay(text: str, rules: LineRules, counts: list[int]) -> Iterator[str]:
    """Yield what is left of the lines that stay, and count."""
    reading = rules.reading
    decided = False
    for line in (_strip(line) for line in lines(text)):
        left, marks = _line_patterns(reading)["citation"].subn("", line) if rules.citations else (line, 0)
        left = _strip(left) if reading.tidy_citations else left
        failure = _first_failure(line, left, rules)
        phrases = lower_case(left)
        if failure is None or reading.whole_page:
            if LOREM_IPSUM in phrases and not decided:
                counts[kernel.LOREM_IPSUM_LINES] += 1
                decided = reading.first_found and rules.lorem_ipsum
            if failure is None and rules.javascript and JAVASCRIPT in phrases:
                failure = kernel.JAVASCRIPT_LINES
            if "{" in left and not decided and (failure is None or reading.whole_page):
                counts[kernel.CURLY_BRACKET_LINES] += 1
                decided = reading.first_found and rules.curly_bracket
            if failure is None and rules.policy and any(phrase in phrases for phrase in POLICY):
                failure = kernel.POLICY_LINES
        if line:
            counts[kernel.LINES] += 1
        if failure is None:
            counts[kernel.CITATIONS] += marks
            counts[kernel.SENTENCES] += len(sentences(left))
            yield left
        elif line:
            counts[failure] += 1


def read_text(text: str, rules: LineRules) -> tuple[list[int], str]:
    """Return what the kernel counts in a text, in the order of its rows, and what its spans leave of it."""
    counts = [0] * kernel.COUNTS
    left = "\n".join(_stay(text, rules, counts))
    return counts, _strip(left)
