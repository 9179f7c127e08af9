"""The tables and scratch memory of the kernel of ``c4_quality``."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.findings import byte_spans
from corpus.punctuation import TERMINAL_PUNCTUATION
from corpus.stages import TextBatch
from corpus.text_statistics import text_statistics
from corpus.unicode_tables import (
    SEPARATOR,
    UNSPACED,
    ZERO_WIDTH_SPACE,
    Classes,
    category_bits,
    code_point_classes,
    code_points,
)
from filters import c4_kernel as kernel
from filters import c4_line_kernel as line_kernel
from filters.c4_rules import (
    CITATION_NAMES,
    FULL_WIDTH_ENDS,
    JAVASCRIPT,
    LOREM_IPSUM,
    POLICY,
    QUOTATION_MARKS,
    LineRules,
    Reading,
)

CATEGORY_BITS = {"Ll": line_kernel.SMALL, "Nd": line_kernel.DIGIT, "Pe": line_kernel.CLOSING, "Pf": line_kernel.CLOSING}

# Rule of a finding, by the reason that the kernel gives.
RULE_OF_REASON = {
    kernel.LONG_WORD_LINES: "maximum_word_length",
    kernel.UNPUNCTUATED_LINES: "terminal_punctuation",
    kernel.SHORT_LINES: "minimum_line_words",
    kernel.JAVASCRIPT_LINES: "javascript",
    kernel.POLICY_LINES: "policy",
    kernel.CITATIONS: "citations",
    kernel.SPACING: "white_space",
    kernel.LINE_END: "line_ends",
}

# What finding a phrase means.
PHRASES = {
    JAVASCRIPT: line_kernel.HAS_JAVASCRIPT,
    LOREM_IPSUM: line_kernel.HAS_LOREM_IPSUM,
    **dict.fromkeys(POLICY, line_kernel.HAS_POLICY),
}


@cache
def _own_classes() -> Classes:
    """Return class bits of all code points with those that do not depend on a preset; read-only."""
    classes: Classes = code_point_classes().copy()
    classes |= category_bits(CATEGORY_BITS)
    classes[code_points("22 27")] |= line_kernel.CLOSING
    classes[code_points(TERMINAL_PUNCTUATION)] |= line_kernel.TERMINAL
    classes[code_points(FULL_WIDTH_ENDS)] |= line_kernel.FULL_WIDTH
    classes.setflags(write=False)
    return classes


@cache
def line_classes(reading: Reading) -> Classes:
    """Return the class bits of all code points as a preset reads them; read-only."""
    classes: Classes = _own_classes().copy()
    if reading.end_marks is None:
        classes[classes & line_kernel.TERMINAL != 0] |= line_kernel.END_MARK
        classes[code_points(QUOTATION_MARKS)] |= line_kernel.END_MARK
    else:
        classes[code_points(reading.end_marks)] |= line_kernel.END_MARK
    if not reading.scripts:
        # Without these bits, the words of the kernel are what str.split gives.
        classes &= np.uint16(0xFFFF ^ UNSPACED)
        classes[ZERO_WIDTH_SPACE] &= np.uint16(0xFFFF ^ SEPARATOR)
    classes.setflags(write=False)
    return classes


def bit_members(classes: Classes, bit: int) -> str:
    """Return the inside of a character class of ``re`` that holds the code points with a class bit."""
    return "".join(f"\\U{code_point:08x}" for code_point in np.flatnonzero(classes & bit).tolist())


class PhraseTables(NamedTuple):
    """The phrases as the kernel takes them.

    Attributes:
        kinds: uint8[256], what a byte may start; ``filters.c4_line_kernel.PLAIN`` and the constants behind it.
        characters: UTF-8 bytes of the citation names, then of the phrases, grouped by the pair of letters searched for.
        offsets: int32[phrases + 1], where each begins.
        anchors: int32[phrases], where in a phrase that pair stands; 0 for citation names.
        meanings: int64[phrases], the bit that finding it sets; 0 for citation names.
        groups: int32[groups + 1], the first phrase of each pair.
    """

    kinds: npt.NDArray[np.uint8]
    characters: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    anchors: npt.NDArray[np.int32]
    meanings: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]


@cache
def phrase_tables() -> PhraseTables:
    """Return the tables of the phrases."""
    pairs = line_kernel.PAIRS
    # A phrase with the letter that Unicode spells in two ways is found at it: its pair is the last.
    pair_of = {phrase: next(pair for pair in reversed(pairs) if pair in phrase) for phrase in PHRASES}
    ordered = sorted(PHRASES, key=lambda phrase: pairs.index(pair_of[phrase]))
    kinds = np.zeros(256, np.uint8)
    kinds[0xC0:] = line_kernel.WIDE
    kinds[np.flatnonzero(_own_classes()[:0x80] & line_kernel.TERMINAL)] = line_kernel.ENDS_SENTENCE
    kinds[ord("{")] = line_kernel.CURLY
    for group, pair in enumerate(pairs):
        kinds[[ord(pair[0]), ord(pair[0].upper())]] = line_kernel.FIRST_PAIR + group
    named = [0] * len(CITATION_NAMES)
    texts = [*(f"{name}]" for name in CITATION_NAMES), *ordered]
    firsts = np.searchsorted([pairs.index(pair_of[phrase]) for phrase in ordered], np.arange(len(pairs) + 1))
    return PhraseTables(
        kinds,
        np.frombuffer("".join(texts).encode(), np.uint8),
        np.cumsum([0, *map(len, texts)], dtype=np.int32),
        np.array([*named, *(phrase.index(pair_of[phrase]) for phrase in ordered)], np.int32),
        np.array([*named, *(PHRASES[phrase] for phrase in ordered)], np.int64),
        (firsts + len(named)).astype(np.int32),
    )


def kernel_options(rules: LineRules) -> int:
    """Return settings and reading as bits for the kernel."""
    reading = rules.reading
    chosen = (
        (line_kernel.TERMINAL_PUNCTUATION, rules.terminal_punctuation),
        (line_kernel.JAVASCRIPT, rules.javascript),
        (line_kernel.POLICY, rules.policy),
        (line_kernel.CITATION_MARKS, rules.citations),
        (line_kernel.LOREM_IPSUM, rules.lorem_ipsum),
        (line_kernel.CURLY_BRACKET, rules.curly_bracket),
        (line_kernel.CLOSING_FOLLOWS, reading.closing),
        (line_kernel.ELLIPSIS_ENDS, reading.ellipsis_ends),
        (line_kernel.WORDS_FIRST, reading.words_before_citations),
        (line_kernel.TIDY, reading.tidy_citations),
        (line_kernel.WHOLE_PAGE, reading.whole_page),
        (line_kernel.FIRST_FOUND, reading.first_found),
    )
    return sum(bit for bit, is_on in chosen if is_on)


def read_batch(
    batch: TextBatch, rules: LineRules, action: Literal["cut", "flag"]
) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
    """Return what the kernel counts in n texts, int64[COUNTS, n], and its findings.

    Args:
        action: ``cut`` gives all spans that make the text what is left of it; ``flag`` those of lines and citation
            marks that a rule is about.
    """
    statistics = text_statistics(batch)
    offsets = statistics.offsets
    longest = int(np.diff(offsets).max(initial=0))
    # A span holds at least one byte; memory that is not written to is not taken.
    most = int(offsets[-1]) - int(offsets[0]) + 1
    tables = phrase_tables()
    span_rows, span_starts, span_ends = (np.empty(most, np.int32) for _ in range(3))
    span_reasons = np.empty(most, np.int8)
    counts, found = kernel.sweep(
        *statistics,
        line_classes(rules.reading),
        *tables,
        kernel_options(rules),
        rules.maximum_word_length,
        rules.minimum_line_words,
        np.empty(longest + 1, np.uint8),
        np.empty((2, longest // 2 + 1), np.int32),
        span_rows,
        span_starts,
        span_ends,
        span_reasons,
    )
    rows, starts, ends = (span[:found].copy() for span in (span_rows, span_starts, span_ends))
    reasons = span_reasons[:found].copy()
    if action == "flag":
        named = reasons < kernel.SPACING
        rows, starts, ends, reasons = rows[named], starts[named], ends[named], reasons[named]
    names = [RULE_OF_REASON.get(reason, "") for reason in range(max(RULE_OF_REASON) + 1)]
    begins = offsets[rows]
    findings = byte_spans(
        batch.texts, rows, starts - begins, ends - begins, pa.array(names).take(pa.array(reasons)), action
    )
    return counts, _with_line_feeds(findings, reasons == kernel.LINE_END)


def _with_line_feeds(findings: pa.RecordBatch, places: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return findings of which some put a line feed in the place of their span."""
    if not places.any():
        return findings
    columns = dict(zip(findings.schema.names, findings.columns, strict=True))
    for name, value in (("action", "redact"), ("replacement", "\n")):
        columns[name] = pc.if_else(pa.array(places), value, columns[name])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=findings.schema)
