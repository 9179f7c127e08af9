"""One sweep over texts for private data, compiled; the rules stand in ``filters.pii_reference``.

Only ``@``, colons and the first digit of a run lead to a closer look, which reads a bounded number of characters: so
the time is linear in the bytes, whatever the text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, OFFSETS, ROWS, pointer
from corpus.unicode_tables import Classes
from filters.pii_address_kernel import find_address_4, find_address_6, find_email
from filters.pii_number_kernel import (
    CLOSING,
    DOT,
    FEWEST_DIGITS,
    HYPHEN,
    OPENING,
    SEPARATORS,
    SLASH,
    SPACE,
    STOPS,
    card_groups,
    count_digits,
    find_iban,
    is_announced,
    is_literal,
    is_open_after,
    is_open_before,
    phone_groups,
    read_groups,
)
from filters.pii_text_kernel import NONE, after, before, is_digit, is_letter, is_word

Numbers = npt.NDArray[np.int64]
Spans = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]

EMAIL, IP_ADDRESS, PHONE_NUMBER, PAYMENT_CARD, IBAN = 0, 1, 2, 3, 4
SHORTEST = 6
"""Fewest bytes of a span: ``a@b.co``."""

NUMBERS = "Array(int64, 1, 'C', True)"
TABLE = "Array(int64, 2, 'C', True)"


@inlined
def find_number(
    text: Bytes,
    begin: int,
    end: int,
    position: int,
    count: int,
    codes: Numbers,
    card_lengths: Numbers,
    word_offsets: Offsets,
    words: Bytes,
    word_count: int,
    filler_offsets: Offsets,
    fillers: Bytes,
    filler_count: int,
    scratch: Numbers,
) -> tuple[int, int, int]:
    """Return kind, start and stop of the card or phone number whose first digit stands at a byte position, or NONE.

    Args:
        count: what ``read_groups`` gave for the position.
    """
    code, size = before(text, begin, position)
    outer, start = position, position
    opened = code == OPENING
    if opened:
        outer -= size
        code, size = before(text, begin, outer)
    plus = code == 0x2B
    if plus:
        outer -= size
        start = outer
        code, size = before(text, begin, outer)
        if code == OPENING and not opened:
            opened = True
            outer -= size
    if opened and count > 1 and scratch[SEPARATORS + 1] == CLOSING:
        start = outer
    code, size = before(text, begin, start)
    inside = code == SPACE and is_digit(before(text, begin, start - size)[0])
    kind, groups = NONE, 0
    if not plus:
        groups = card_groups(scratch, count, card_lengths)
        if groups > 0 and (start != position or not is_open_before(text, begin, start, groups == 1)):
            groups = 0
        if groups == 1 and is_literal(text, begin, start, scratch[STOPS], end):
            groups = 0
        if groups > 0:
            kind = PAYMENT_CARD
    if groups == 0:
        announced = False
        if not (inside or plus or is_word(code)):
            announced = is_announced(
                text, begin, start, word_offsets, words, word_count, filler_offsets, fillers, filler_count
            )
        groups = phone_groups(scratch, count, plus, announced, codes)
        if groups > 0 and not announced and not is_open_before(text, begin, start, groups == 1 and not plus):
            groups = 0
        if groups > 0:
            kind = PHONE_NUMBER
    if groups == 0:
        return NONE, NONE, NONE
    if inside:
        for group in range(1, groups):
            if scratch[SEPARATORS + group] == SPACE:
                return NONE, NONE, NONE
    stop = scratch[STOPS + groups - 1]
    if not is_open_after(text, stop, end, groups == 1 and not plus):
        return NONE, NONE, NONE
    return kind, start, stop


@kernel(
    f"Tuple((int32[::1], int32[::1], int32[::1], int8[::1]))({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, {BYTES}, "
    f"{NUMBERS}, {NUMBERS}, {NUMBERS}, {TABLE}, {TABLE}, {OFFSETS}, {BYTES}, {OFFSETS}, {BYTES}, {OFFSETS}, {BYTES}, "
    "boolean, int64[::1])"
)
def find_spans(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
    triggers: Bytes,
    codes: Numbers,
    card_lengths: Numbers,
    iban_lengths: Numbers,
    networks_4: Numbers,
    networks_6: Numbers,
    phone_offsets: Offsets,
    phone_words: Bytes,
    filler_offsets: Offsets,
    filler_words: Bytes,
    version_offsets: Offsets,
    version_words: Bytes,
    public_only: bool,
    scratch: Numbers,
) -> Spans:
    """Return row, start, stop and kind of the spans with private data, in order, without overlaps.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``; starts and stops count bytes of a text.
        rows: bool[n], the texts to look at.
        classes: see ``corpus.unicode_tables.code_point_classes``.
        triggers: uint8[256], whether a byte can begin an @, a colon or a digit.
        codes, card_lengths, iban_lengths, networks_4, networks_6: see ``filters.pii_tables``.
        phone_offsets, phone_words, filler_offsets, filler_words, version_offsets, version_words: lists of words.
        public_only: whether IP addresses that are not public stay.
        scratch: int64[SCRATCH].
    """
    most = (offsets[len(rows)] - offsets[0]) // SHORTEST + 1
    span_rows, starts, stops = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    kinds = np.empty(most, np.int8)
    text, class_table, trigger = pointer(data), pointer(classes), pointer(triggers)
    code_table, card_table, iban_table = pointer(codes), pointer(card_lengths), pointer(iban_lengths)
    table_4, table_6, scratch_memory = pointer(networks_4), pointer(networks_6), pointer(scratch)
    count_4, count_6 = networks_4.shape[1], networks_6.shape[1]
    count = 0
    for row in range(len(rows)):
        begin, end = int(offsets[row]), int(offsets[row + 1])
        position = begin if rows[row] else end
        run_stop = begin
        first = count
        while position < end:
            if not trigger[text[position]]:
                position += 1
                continue
            code, size = after(text, position, end)
            kind, start, stop = NONE, NONE, NONE
            following = position + size
            if code == 0x40:
                start, stop = find_email(text, begin, end, position, size, class_table)
                kind = EMAIL if start != NONE else NONE
            elif code == 0x3A:
                if position >= run_stop:
                    start, stop, run_stop = find_address_6(
                        text,
                        begin,
                        end,
                        position,
                        size,
                        table_4,
                        count_4,
                        table_6,
                        count_6,
                        public_only,
                        scratch_memory,
                    )
                    kind = IP_ADDRESS if start != NONE else NONE
            elif is_digit(code):
                outer, width = before(text, begin, position)
                # In a longer row of numbers only what is joined closer than the row can be a number by itself.
                inside = is_digit(before(text, begin, position - width)[0])
                if is_letter(outer):
                    start, stop = find_iban(text, begin, end, position, iban_table)
                    kind = IBAN if start != NONE else NONE
                elif outer != 0x5F and not (inside and outer in (DOT, SLASH, CLOSING)):
                    groups = read_groups(
                        text, position, end, outer if inside and outer in (SPACE, HYPHEN) else 0, scratch_memory
                    )
                    following = scratch[STOPS] if groups > 0 else following
                    if groups > 3 and scratch[SEPARATORS + 1] == DOT:
                        found, stop = find_address_4(
                            text,
                            begin,
                            end,
                            position,
                            table_4,
                            count_4,
                            pointer(version_offsets),
                            pointer(version_words),
                            len(version_offsets) - 1,
                            public_only,
                        )
                        if found:
                            kind, start = IP_ADDRESS, position
                        elif stop != NONE:
                            following, groups = stop, 0
                    if kind == NONE and groups > 0 and count_digits(scratch_memory, groups) >= FEWEST_DIGITS:
                        kind, start, stop = find_number(
                            text,
                            begin,
                            end,
                            position,
                            groups,
                            code_table,
                            card_table,
                            pointer(phone_offsets),
                            pointer(phone_words),
                            len(phone_offsets) - 1,
                            pointer(filler_offsets),
                            pointer(filler_words),
                            len(filler_offsets) - 1,
                            scratch_memory,
                        )
                while kind == NONE and is_digit(after(text, following, end)[0]):
                    following += after(text, following, end)[1]
            if kind == NONE:
                position = following
                continue
            if kind == EMAIL:  # its local part may look like a number
                while count > first and stops[count - 1] > start - begin:
                    count -= 1
            span_rows[count], kinds[count] = row, kind
            starts[count], stops[count] = start - begin, stop - begin
            count += 1
            position = stop
    return span_rows[:count].copy(), starts[:count].copy(), stops[:count].copy(), kinds[:count].copy()
