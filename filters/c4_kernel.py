"""What the C4 quality rules count and cut in the lines of a batch, compiled.

The reference in plain Python is ``filters.c4_reference``. Lines and words are those of the shared tables; only in lines
beyond ASCII are words and white space looked for anew, as the preset reads them. A line whose citation marks are
removed is judged in a scratch copy; all others are judged where they lie.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, LINE_FEED, pointer
from corpus.text_statistics_kernel import STATISTICS, Table
from corpus.unicode_tables import Classes
from filters.c4_line_kernel import (
    CITATION_MARKS,
    CURLY_BRACKET,
    FIRST_FOUND,
    HAS_CURLY,
    HAS_JAVASCRIPT,
    HAS_LOREM_IPSUM,
    HAS_POLICY,
    JAVASCRIPT,
    LOREM_IPSUM,
    POLICY,
    TERMINAL_PUNCTUATION,
    TIDY,
    WHOLE_PAGE,
    WORDS_FIRST,
    Numbers,
    bytes_of_line,
    copy_without,
    count_words,
    drop_white_space,
    end_of_rest,
    find_citations,
    has_end_mark,
    has_longer_word,
    search_line,
    skip_white_space,
    trim_start,
)

# Rows of the table of counts. A row that counts cut lines, or citation marks, is also the reason of their spans.
LINES, LONG_WORD_LINES, UNPUNCTUATED_LINES, SHORT_LINES, JAVASCRIPT_LINES, POLICY_LINES = 0, 1, 2, 3, 4, 5
CITATIONS, LOREM_IPSUM_LINES, CURLY_BRACKET_LINES, SENTENCES = 6, 7, 8, 9
COUNTS = 10
# Reasons of spans that no rule is about: white space around lines, and line ends that become a line feed.
SPACING, LINE_END = 10, 11

NUMBERS = "Array(int32, 1, 'C', True)"
SCRATCH = "Array(int32, 1, 'C')"

Reasons = npt.NDArray[np.int8]


@inlined
def add_span(
    rows: Numbers,
    starts: Numbers,
    ends: Numbers,
    reasons: Reasons,
    count: int,
    row: int,
    start: int,
    end: int,
    reason: int,
) -> int:
    """Add a span, or let the one before it, if it touches and has the same reason, go on; return how many there are."""
    if start == end:
        return count
    if (
        count
        and rows[count - 1] == row
        and ends[count - 1] == start
        and reasons[count - 1] == reason
        and reason != LINE_END
    ):
        ends[count - 1] = end
        return count
    rows[count], starts[count], ends[count], reasons[count] = row, start, end, reason
    return count + 1


@kernel(
    f"Tuple((int64[:, ::1], int64))({STATISTICS}, {CLASSES}, {BYTES}, {BYTES}, {NUMBERS}, {NUMBERS}, "
    f"Array(int64, 1, 'C', True), {NUMBERS}, int64, int64, int64, Array(uint8, 1, 'C'), Array(int32, 2, 'C'), "
    f"{SCRATCH}, {SCRATCH}, {SCRATCH}, Array(int8, 1, 'C'))"
)
def sweep(
    offsets: Offsets,
    data: Bytes,
    characters: npt.NDArray[np.int64],
    word_firsts: npt.NDArray[np.int64],
    word_starts: Table,
    word_ends: Table,
    word_characters: Table,
    word_classes: Classes,
    line_firsts: npt.NDArray[np.int64],
    line_starts: Table,
    line_ends: Table,
    line_words: Table,
    classes: Classes,
    kinds_of_bytes: Bytes,
    phrase_characters: Bytes,
    phrase_offsets: Numbers,
    phrase_anchors: Numbers,
    phrase_meanings: npt.NDArray[np.int64],
    phrase_groups: Numbers,
    options: int,
    maximum_word_length: int,
    minimum_line_words: int,
    line_copy: Bytes,
    citation_places: npt.NDArray[np.int32],
    span_rows: Numbers,
    span_starts: Numbers,
    span_ends: Numbers,
    span_reasons: Reasons,
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the counts of each text, and how many spans were found.

    Args:
        offsets to line_words: ``corpus.text_statistics.TextStatistics``.
        classes: class bits of the code points, with those of this module.
        kinds_of_bytes, phrase_characters, phrase_offsets, phrase_anchors, phrase_meanings, phrase_groups: see
            ``filters.c4_counts.PhraseTables``.
        options: bits of the rules that are on and of the reading.
        maximum_word_length, minimum_line_words: limits of lines.
        line_copy, citation_places: scratch of m + 1 bytes and 2 x (m // 2 + 1) numbers, m bytes the longest text.
        span_rows, span_starts, span_ends, span_reasons: take the spans, in order: row, positions in ``data``, and
            reason; room for as many as the texts have bytes.

    Returns:
        int64[COUNTS, n], one contiguous row per statistic; the number of spans.
    """
    counts = np.zeros((COUNTS, len(characters)), np.int64)
    table, kinds, phrase_text = pointer(classes), pointer(kinds_of_bytes), pointer(phrase_characters)
    phrases, anchors, meanings = pointer(phrase_offsets), pointer(phrase_anchors), pointer(phrase_meanings)
    groups, last_group = pointer(phrase_groups), len(phrase_groups) - 2
    text, copied = pointer(data), pointer(line_copy)
    mark_starts, mark_ends = pointer(citation_places[0]), pointer(citation_places[1])
    at_row, at_start, at_end, why = (
        pointer(span_rows),
        pointer(span_starts),
        pointer(span_ends),
        pointer(span_reasons),
    )
    first_bytes, last_bytes, words_before = pointer(line_starts), pointer(line_ends), pointer(line_words)
    first_of_word, end_of_word = pointer(word_starts), pointer(word_ends)
    spans = 0
    for row in range(len(characters)):
        first_line, last_line = line_firsts[row], line_firsts[row + 1]
        if first_line == last_line:
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        solid = begin
        first_span = spans
        decided = False
        for number in range(first_line, last_line):
            line, stop = int(first_bytes[number]), int(last_bytes[number])
            position = int(first_bytes[number + 1]) if number + 1 < last_line else end
            word = words_before[number]
            words = words_before[number + 1] - word
            wide, bracket = bytes_of_line(text, line, stop, len(data))
            if wide:
                start = skip_white_space(text, line, stop, table)
                finish = drop_white_space(text, start, stop, table)
                words = count_words(text, start, finish, table)
            elif words > 0:
                start, finish = int(first_of_word[word]), int(end_of_word[word + words - 1])
            else:
                start = finish = stop
            # What is judged: the line as it lies, or its copy without citation marks.
            content, readable, first, last, marks = text, len(data), start, finish, 0
            if options & CITATION_MARKS and bracket:
                marks = find_citations(
                    text, start, finish, table, phrase_text, phrases, options & TIDY != 0, mark_starts, mark_ends
                )
                if marks:
                    content, readable, first = copied, len(line_copy), 0
                    last = copy_without(text, start, finish, mark_starts, mark_ends, marks, copied)
                    if not options & WORDS_FIRST:
                        words = count_words(copied, 0, last, table)
            reason = 0
            if finish - start > maximum_word_length and has_longer_word(
                text, start, finish, table, maximum_word_length
            ):
                reason = LONG_WORD_LINES
            elif options & TERMINAL_PUNCTUATION and not has_end_mark(content, first, last, table, options):
                reason = UNPUNCTUATED_LINES
            elif words < minimum_line_words:
                reason = SHORT_LINES
            sentences = 0
            if reason == 0 or options & WHOLE_PAGE:
                first = skip_white_space(content, first, last, table)
                last = drop_white_space(content, first, last, table)
                if first < last:
                    has, sentences = search_line(
                        content,
                        first,
                        last,
                        readable,
                        table,
                        kinds,
                        phrase_text,
                        phrases,
                        anchors,
                        meanings,
                        groups,
                        last_group,
                    )
                    if has & HAS_LOREM_IPSUM and not decided:
                        counts[LOREM_IPSUM_LINES, row] += 1
                        decided = options & FIRST_FOUND != 0 and options & LOREM_IPSUM != 0
                    if reason == 0 and options & JAVASCRIPT and has & HAS_JAVASCRIPT:
                        reason = JAVASCRIPT_LINES
                    if has & HAS_CURLY and not decided and (reason == 0 or options & WHOLE_PAGE):
                        counts[CURLY_BRACKET_LINES, row] += 1
                        decided = options & FIRST_FOUND != 0 and options & CURLY_BRACKET != 0
                    if reason == 0 and options & POLICY and has & HAS_POLICY:
                        reason = POLICY_LINES
            if start < finish:
                counts[LINES, row] += 1
                counts[reason, row] += reason != 0
            goes_on = spans > first_span and at_end[spans - 1] == line
            if reason:
                if start == finish:
                    # A blank line is a part of what is cut before it.
                    reason = why[spans - 1] if goes_on and why[spans - 1] != LINE_END else SPACING
                spans = add_span(at_row, at_start, at_end, why, spans, row, line, position, reason)
                continue
            counts[SENTENCES, row] += sentences
            counts[CITATIONS, row] += marks
            rest = finish if start < finish else -1
            if marks > 0:
                rest = end_of_rest(text, start, finish, table, mark_starts, mark_ends, marks)
            if solid == begin:
                # What is left of a text does not begin with white space.
                if rest < 0:
                    reason = why[spans - 1] if goes_on and why[spans - 1] != LINE_END else SPACING
                    spans = add_span(at_row, at_start, at_end, why, spans, row, line, position, reason)
                    continue
                trim_start(text, start, finish, table, mark_starts, mark_ends, marks)
            spans = add_span(at_row, at_start, at_end, why, spans, row, line, start, SPACING)
            for mark in range(marks):
                spans = add_span(
                    at_row, at_start, at_end, why, spans, row, mark_starts[mark], mark_ends[mark], CITATIONS
                )
            if position == stop or text[position - 1] == LINE_FEED:
                behind = position - (position > stop)
                spans = add_span(at_row, at_start, at_end, why, spans, row, finish, behind, SPACING)
            else:
                spans = add_span(at_row, at_start, at_end, why, spans, row, finish, position, LINE_END)
            if rest >= 0:
                solid = rest
        # What is left of a text does not end with white space: the last spans take all from its last character on.
        span = spans
        while span > first_span and at_start[span - 1] >= solid:
            span -= 1
        after = spans
        spans = add_span(at_row, at_start, at_end, why, span, row, solid, end, SPACING) if span == after else span
        start = solid
        while span < after:
            stop = int(at_start[span + 1]) if span + 1 < after else end
            reason = int(why[span]) if why[span] != LINE_END else SPACING
            spans = add_span(at_row, at_start, at_end, why, spans, row, start, stop, reason)
            start = stop
            span += 1
    return counts, spans
