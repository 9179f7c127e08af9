"""Phone numbers, payment cards and IBANs in texts, compiled; the rules stand in ``filters.pii_reference``.

All helpers take pointers (see ``corpus.text_kernel``) and read a bounded number of characters. A *group* is a run of
digits; the groups of a number are joined by single separators.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined
from corpus.text import Bytes, Offsets
from filters.pii_text_kernel import NONE, after, before, ends_with_word, is_digit, is_letter, is_word, skip_back

Numbers = npt.NDArray[np.int64]

# Scratch: digits of the number, then for each group its length, the separator before it, and where it stops.
FEWEST_DIGITS, MOST_DIGITS, MOST_GROUPS = 7, 20, 8
DIGITS, LENGTHS, SEPARATORS, STOPS = 0, 24, 34, 44
SCRATCH = 54

SPACE, HYPHEN, DOT, SLASH, OPENING, CLOSING = 0x20, 0x2D, 0x2E, 0x2F, 0x28, 0x29


@inlined
def separator(text: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return the separator at a byte position and where the digit behind it begins; (NONE, NONE) if there is none.

    A separator is a space, ``- . /``, or a parenthesis with or without one of these outside of it.
    """
    code, size = after(text, position, end)
    kind = code
    if code not in (SPACE, HYPHEN, DOT, SLASH, OPENING, CLOSING):
        return NONE, NONE
    position += size
    following, size = after(text, position, end)
    if (code == CLOSING and following in (SPACE, HYPHEN, DOT, SLASH)) or (
        code in (SPACE, HYPHEN) and following == OPENING
    ):
        kind = CLOSING if code == CLOSING else OPENING
        position += size
        following, size = after(text, position, end)
    return (kind, position) if is_digit(following) else (NONE, NONE)


@inlined
def read_groups(text: Bytes, position: int, end: int, row_separator: int, scratch: Numbers) -> int:
    """Write the groups of digits from a byte position on, and return how many there are.

    A ninth group is left out, and one that would bring the digits over MOST_DIGITS, but for the separator before it;
    where no group follows, there stands 0. A second opening parenthesis ends the number.

    Args:
        row_separator: the separator that ends the number, as it stands inside of a longer row of numbers; 0 if none.
    """
    count, digits, kind, opened = 0, 0, 0, False
    while True:
        length = 0
        scratch[SEPARATORS + count], scratch[LENGTHS + count] = kind, 0
        if count == MOST_GROUPS:
            return count
        code, size = after(text, position, end)
        while is_digit(code):
            if digits == MOST_DIGITS:
                return count
            scratch[DIGITS + digits] = code - 48
            digits += 1
            length += 1
            position += size
            code, size = after(text, position, end)
        scratch[LENGTHS + count], scratch[STOPS + count] = length, position
        count += 1
        kind, position = separator(text, position, end)
        if kind in (NONE, row_separator) or (kind == OPENING and opened):
            scratch[SEPARATORS + count] = 0
            return count
        opened = opened or kind == OPENING


@inlined
def count_digits(scratch: Numbers, groups: int) -> int:
    """Return the digits of the first groups."""
    total = 0
    for group in range(groups):
        total += scratch[LENGTHS + group]
    return total


@inlined
def is_open_before(text: Bytes, begin: int, start: int, plain: bool) -> bool:
    """Say whether a number can begin at a byte position; ``plain`` says that it has no separators."""
    code, size = before(text, begin, start)
    if is_word(code) or code in (0x2E, 0x2D, 0x2F, 0x25, 0x24, 0x23, 0x26, 0x40, 0x5C, 0x7E, 0x5E, 0x2B, CLOSING):
        return False
    if code in (0xA3, 0xA5, 0xA7, 0x20AC):
        return False
    if plain and code in (0x2C, 0x3D):
        return code == 0x2C and not is_digit(before(text, begin, start - size)[0])
    return True


@inlined
def is_open_after(text: Bytes, stop: int, end: int, plain: bool) -> bool:
    """Say whether a number can stop at a byte position; ``plain`` says that it has no separators."""
    code, size = after(text, stop, end)
    if is_word(code) or code in (0x25, 0x3D, 0x24, 0x40, 0xA3, 0xA5, 0xB0, 0x20AC):
        return False
    following, _ = after(text, stop + size, end)
    if code in (HYPHEN, SLASH):
        return not is_word(following)
    return not (is_digit(following) and (code in (DOT, 0x3A) or (plain and code == 0x2C)))


@inlined
def is_literal(text: Bytes, begin: int, start: int, stop: int, end: int) -> bool:
    """Say whether digits in one piece stand like a number of a program: in parentheses or brackets, multiplied."""
    return before(text, begin, start)[0] in (OPENING, 0x5B) or after(text, stop, end)[0] in (CLOSING, 0x5D, 0x2A)


@inlined
def _uniform(scratch: Numbers, groups: int) -> int:
    """Return the one separator between the first groups, 0 where there is only one group, NONE where they differ."""
    kind = 0
    for group in range(1, groups):
        if kind not in (0, scratch[SEPARATORS + group]):
            return NONE
        kind = scratch[SEPARATORS + group]
    return kind


@inlined
def _luhn(digits: Numbers, count: int) -> bool:
    """Say whether the last of ``count`` digits is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    total = 0
    for place in range(count):
        digit = digits[count - 1 - place]
        if place % 2 == 1:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0


@inlined
def card_groups(scratch: Numbers, count: int, lengths: Numbers) -> int:
    """Return how many of the groups are a card number, 0 if none are.

    Cards of more than 16 digits in one piece are those of UnionPay, which are written so.

    Args:
        lengths: see ``filters.pii_tables.card_lengths``.
    """
    first, second = scratch[LENGTHS], scratch[LENGTHS + 1]
    third, fourth = scratch[LENGTHS + 2], scratch[LENGTHS + 3]
    for groups in (5, 4, 3, 1):
        if groups > count:
            continue
        if groups > 1 and (first != 4 or _uniform(scratch, groups) not in (SPACE, HYPHEN)):
            continue
        if groups == 1:
            digits = first
            if digits > 16 and not (scratch[DIGITS] == 6 and scratch[DIGITS + 1] == 2):
                continue
        elif groups == 3:
            digits = 10 + third if second == 6 and third in (4, 5) else 0
        else:
            digits = 16 if second == 4 and third == 4 and fourth == 4 else 0
            if groups == 5 and digits > 0:
                digits = 19 if scratch[LENGTHS + 4] == 3 else 0
        if digits < 14 or digits > 19:
            continue
        if scratch[SEPARATORS + groups] > 0 and (
            scratch[SEPARATORS + groups] not in (SPACE, OPENING)
            or (groups > 1 and scratch[SEPARATORS + 1] == SPACE and scratch[LENGTHS + groups] == 4)
        ):
            continue
        index = scratch[0] * 1000 + scratch[1] * 100 + scratch[2] * 10 + scratch[3]
        if lengths[index] >> digits & 1 and _luhn(scratch, digits):
            return groups
    return 0


@inlined
def _is_international(scratch: Numbers, groups: int, skipped: int, codes: Numbers) -> bool:
    """Say whether groups are a calling code and a number of a length that it allows.

    Args:
        skipped: digits before the calling code, 0 or the two of the prefix 00.
        codes: see ``filters.pii_tables.calling_codes``.
    """
    total, single, optional_zero = 0, 0, NONE
    for group in range(groups):
        length = scratch[LENGTHS + group]
        if group > 0 and length == 1:
            single += 1
            if (
                scratch[DIGITS + total] == 0
                and scratch[SEPARATORS + group] == OPENING
                and group + 1 < groups
                and scratch[SEPARATORS + group + 1] == CLOSING
            ):
                optional_zero = total
        total += length
    if single > 2 or total <= skipped + 3:
        return False
    code, width = 0, 0
    while width < 3:
        code = code * 10 + scratch[DIGITS + skipped + width]
        width += 1
        if code > 0 and codes[code] != 0 and scratch[DIGITS + skipped] > 0:
            break
    allowed = codes[code]
    if allowed == 0 or scratch[DIGITS + skipped] == 0:
        return False
    holder = scratch[LENGTHS] - skipped if scratch[LENGTHS] > skipped else scratch[LENGTHS + 1]
    if holder < width:
        return False
    number = skipped + width
    national = total - number
    if optional_zero == number:
        national -= 1
        number += 1
    if national > 15 or not allowed >> national & 1:
        return False
    if scratch[DIGITS + number] == 0 and not allowed & 1:
        return False
    return code != 1 or (scratch[DIGITS + number] > 1 and scratch[DIGITS + number + 3] > 1)


@inlined
def _is_north_american(scratch: Numbers, groups: int) -> bool:
    """Say whether groups are an area code, an exchange and a line, joined by more than spaces (NANP)."""
    head = groups - 3
    if head not in (0, 1) or (head == 1 and not (scratch[LENGTHS] == 1 and scratch[DIGITS] == 1)):
        return False
    if scratch[LENGTHS + head] != 3 or scratch[LENGTHS + head + 1] != 3 or scratch[LENGTHS + head + 2] != 4:
        return False
    area, exchange = DIGITS + head, DIGITS + head + 3
    if scratch[area] < 2 or scratch[exchange] < 2 or (scratch[area + 1] == 1 and scratch[area + 2] == 1):
        return False
    inner, outer = scratch[SEPARATORS + head + 1], scratch[SEPARATORS + head + 2]
    if inner == CLOSING:
        return outer in (HYPHEN, DOT, SPACE)
    return inner in (HYPHEN, DOT) and outer == inner


@inlined
def _is_trunk(scratch: Numbers, groups: int, total: int) -> bool:
    """Say whether groups begin with the trunk prefix 0 and look like a number of nine to twelve digits."""
    first, last = scratch[LENGTHS], scratch[LENGTHS + groups - 1]
    if scratch[DIGITS] != 0 or scratch[DIGITS + 1] == 0 or first < 2 or not 9 <= total <= 12:
        return False
    if groups > 5 or (groups == 5 and total == 12):
        return False
    if groups == 2:
        return first <= 5 and last >= 5 and scratch[SEPARATORS + 1] not in (DOT, OPENING)
    ascending, position = True, 0
    for group in range(groups):
        length = scratch[LENGTHS + group]
        if length < 2 or length > 6 or (group > 0 and scratch[SEPARATORS + group] == OPENING):
            return False
        if length != 2 or (
            group > 0
            and scratch[DIGITS + position] * 10 + scratch[DIGITS + position + 1]
            <= scratch[DIGITS + position - 2] * 10 + scratch[DIGITS + position - 1]
        ):
            ascending = False
        position += length
    if ascending:
        return False  # a count or a draw, 03 12 25 34 41
    century = scratch[DIGITS + 4] * 10 + scratch[DIGITS + 5]
    return not (first == 2 and scratch[LENGTHS + 1] == 2 and scratch[LENGTHS + 2] == 4 and century in (19, 20))


@inlined
def _is_national(scratch: Numbers, groups: int, total: int) -> bool:
    """Say whether two or more groups have the form of a number as it is written inside a country."""
    if groups < 2:
        return False
    if _is_north_american(scratch, groups) or _is_trunk(scratch, groups, total):
        return True
    first, second, kind = scratch[LENGTHS], scratch[LENGTHS + 1], scratch[SEPARATORS + 1]
    if groups == 3 and scratch[LENGTHS + 2] == 4:
        if first == 2 and second in (4, 5) and kind == CLOSING:  # Brazil
            return scratch[DIGITS] > 0 and scratch[SEPARATORS + 2] in (HYPHEN, SPACE)
        if first == 3 and second == 4 and scratch[DIGITS] == 1 and scratch[DIGITS + 1] > 2:  # China, mobile
            return _uniform(scratch, groups) in (HYPHEN, SPACE)
    return (  # Russia
        groups == 5
        and first == 1
        and scratch[DIGITS] == 8
        and second == 3
        and scratch[DIGITS + 1] in (3, 4, 8, 9)
        and scratch[LENGTHS + 2] == 3
        and scratch[LENGTHS + 3] == 2
        and scratch[LENGTHS + 4] == 2
    )


@inlined
def _is_announced(scratch: Numbers, groups: int, total: int) -> bool:
    """Say whether groups behind a word such as ``phone`` are a number: no date, seven digits or more."""
    if not FEWEST_DIGITS <= total <= 15:
        return False
    if groups == 3 and total == 8:
        first, last = scratch[LENGTHS], scratch[LENGTHS + 2]
        if (first == 4 and last == 2) or (first == 2 and last == 4):
            return False
    paired = True
    for group in range(1, groups):
        paired = paired and scratch[LENGTHS + group] > 1
    return paired


@inlined
def phone_groups(scratch: Numbers, count: int, plus: bool, announced: bool, codes: Numbers) -> int:
    """Return how many of the groups are a phone number, the most that can be; 0 if none are."""
    for dropped in range(count):
        groups = count - dropped
        spaced, total = False, count_digits(scratch, groups)
        for group in range(1, groups):
            spaced = spaced or scratch[SEPARATORS + group] == SPACE
        if total < FEWEST_DIGITS:
            return 0
        rest = scratch[SEPARATORS + groups]
        if rest > 0 and (rest not in (SPACE, OPENING) or (spaced and not plus and not announced)):
            continue
        if plus:
            found = _is_international(scratch, groups, 0, codes)
        else:
            found = _is_national(scratch, groups, total) or (announced and _is_announced(scratch, groups, total))
            if not found and groups > 2 and scratch[DIGITS] == 0 and scratch[DIGITS + 1] == 0 and scratch[LENGTHS] > 1:
                found = _is_international(scratch, groups, 2, codes)
        if found:
            return groups
    return 0


@inlined
def is_announced(
    text: Bytes,
    begin: int,
    start: int,
    word_offsets: Offsets,
    words: Bytes,
    word_count: int,
    filler_offsets: Offsets,
    fillers: Bytes,
    filler_count: int,
) -> bool:
    """Say whether a word for a phone stands before a byte position, with at most one filler word between."""
    place = skip_back(text, begin, start)
    if ends_with_word(text, begin, place, word_offsets, words, word_count) != NONE:
        return True
    place = ends_with_word(text, begin, place, filler_offsets, fillers, filler_count)
    if place == NONE:
        return False
    return ends_with_word(text, begin, skip_back(text, begin, place), word_offsets, words, word_count) != NONE


@inlined
def find_iban(text: Bytes, begin: int, end: int, position: int, lengths: Numbers) -> tuple[int, int]:
    """Return start and stop of the IBAN whose check digits begin at a byte position; (NONE, NONE) if there is none.

    Args:
        lengths: see ``filters.pii_tables.iban_lengths``.
    """
    second, _ = before(text, begin, position)
    first, _ = before(text, begin, position - 1)
    if not (is_letter(first) and is_letter(second) and first & 32 == second & 32):
        return NONE, NONE
    start = position - 2
    if is_word(before(text, begin, start)[0]):
        return NONE, NONE
    small = first & 32
    first, second = (first | 32) - 97, (second | 32) - 97
    length = lengths[first * 26 + second]
    remainder, check, kind, joined = 0, 0, 0, 0
    for place in range(2, length):
        code, size = after(text, position, end)
        if place % 4 == 0 and not is_word(code):
            if code not in (SPACE, HYPHEN) or kind not in (0, code):
                return NONE, NONE
            kind = code
            joined += 1
            position += size
            code, size = after(text, position, end)
        if is_digit(code):
            value, shift = code - 48, 10
        elif is_letter(code) and code & 32 == small:
            value, shift = (code | 32) - 87, 100
        else:
            return NONE, NONE
        if place < 4:
            if shift > 10:
                return NONE, NONE
            check = check * 10 + value
        else:
            remainder = (remainder * shift + value) % 97
        position += size
    if length == 0 or joined not in (0, (length - 1) // 4):
        return NONE, NONE
    remainder = (remainder * 1_000_000 + (first + 10) * 10_000 + (second + 10) * 100 + check) % 97
    code, size = after(text, position, end)
    if remainder != 1 or is_word(code) or (code == HYPHEN and is_word(after(text, position + size, end)[0])):
        return NONE, NONE
    return start, position
