"""Phone numbers, payment cards and IBANs in plain Python, on normal text: a part of ``filters.pii_reference``."""

from __future__ import annotations

import re
from collections.abc import Callable

from filters import pii_tables as tables
from filters.pii_address_reference import WORD, Span, address_4, before_skipped, word_before

PHONE_NUMBER, PAYMENT_CARD, IBAN = 2, 3, 4
DIGITS = re.compile("[0-9]+")
# A parenthesis is a separator together with a sign outside of it.
SEPARATOR = re.compile(r"(?:[ -]?(?P<opening>\()|(?P<closing>\))[ \-./]?|(?P<plain>[ \-./]))(?=[0-9])")

Groups = list[tuple[str, str, int]]
"""Of each group of digits the separator before it ("" for the first), the digits, and where they end."""


def numeric(text: str, position: int, run_end: int, public_only: bool) -> tuple[Span | None, int]:
    """Return what begins with a run of digits, and where to read on: an IPv4 address, a card or a phone number.

    Inside of a longer row of numbers only what is joined closer than the row can be a number by itself: behind digits
    and a dot, slash or parenthesis nothing, behind digits and a space or hyphen what has no such separator.
    """
    head = text[max(0, position - 2) : position]
    if re.search(r"_\Z|[0-9][./)]\Z", head):
        return None, run_end
    groups, rest = read_groups(text, position, head[1] if re.fullmatch("[0-9][ -]", head) else "")
    if len(groups) > 3 and groups[1][0] == ".":
        address = address_4(text, position, public_only)
        if address is not None:
            return address
    return number(text, position, groups, rest), run_end


def read_groups(text: str, position: int, row_separator: str) -> tuple[Groups, str]:
    """Return at most 8 groups with at most 20 digits that are joined by separators, and the separator before the next.

    A second opening parenthesis ends the number, and so does the separator of a longer row of numbers.
    """
    groups: Groups = []
    separator = ""
    while True:
        digits = DIGITS.match(text, position)
        assert digits is not None
        if len(groups) == 8 or sum(len(group) for _, group, _ in groups) + len(digits[0]) > 20:
            return groups, separator
        groups.append((separator, digits[0], digits.end()))
        match = SEPARATOR.match(text, digits.end())
        if match is None:
            return groups, ""
        separator = match["opening"] or match["closing"] or match["plain"]
        if separator == row_separator or (separator == "(" and any(group[0] == "(" for group in groups)):
            return groups, ""
        position = match.end()


def number(text: str, position: int, groups: Groups, rest: str) -> Span | None:
    """Return the card or phone number whose digits begin at a position.

    A card needs an open beginning, with no + or parenthesis; in one piece it must not stand in parentheses or brackets
    or be multiplied, as numbers of programs. A phone number needs that, or a word such as "phone" before it.
    """
    if sum(len(digits) for _, digits, _ in groups) < 7:
        return None
    prefix = re.search(r"(?:\(\+|\+\(|\(|\+)\Z", text[max(0, position - 2) : position])
    signs = prefix[0] if prefix else ""
    plus = "+" in signs
    start = position
    if "(" in signs and len(groups) > 1 and groups[1][0] == ")":
        start = position - len(signs)
    elif plus:
        start = position - len(signs) + signs.index("+")
    inside = re.search("[0-9] \\Z", text[max(0, start - 2) : start]) is not None
    kind, count = PAYMENT_CARD, 0
    if not plus:
        count = card_groups(groups, rest)
        if start != position or not is_open_before(text, start, count == 1):
            count = 0
        if count == 1 and (text[:start].endswith(("(", "[")) or re.match(r"[)\]*]", text[groups[0][2] :][:1])):
            count = 0
    if not count:
        joined = re.search(f"[{WORD}]\\Z", text[max(0, start - 1) : start])
        announced = not (inside or plus or joined) and is_announced(text, start)
        kind, count = PHONE_NUMBER, phone_groups(groups, rest, plus, announced)
        if not announced and not is_open_before(text, start, count == 1 and not plus):
            count = 0
    if not count or (inside and any(separator == " " for separator, _, _ in groups[1:count])):
        return None
    end = groups[count - 1][2]
    return (start, end, kind) if is_open_after(text, end, count == 1 and not plus) else None


def is_open_before(text: str, start: int, plain: bool) -> bool:
    """Say whether a number can begin at a position; one in one piece also not behind = or a decimal comma."""
    head = text[max(0, start - 2) : start]
    if re.search(rf"[{WORD}.\-/%$#&@\\~^+)\u00a3\u00a5\u00a7\u20ac]\Z", head):
        return False
    return not (plain and re.search(r"=\Z|[0-9],\Z", head))


def is_open_after(text: str, end: int, plain: bool) -> bool:
    """Say whether a number can end at a position: nothing is joined to it, but a comma to one that has separators."""
    if plain and re.match(",[0-9]", text[end : end + 2]):
        return False
    return not re.match(rf"[{WORD}%=$@\u00a3\u00a5\u00b0\u20ac]|[-/][{WORD}]|[.:][0-9]", text[end : end + 2])


def is_announced(text: str, start: int) -> bool:
    """Say whether a word for a phone stands before a position, with at most one filler word between."""
    place = before_skipped(text, start)
    if word_before(text, place, tables.PHONE_WORDS) is not None:
        return True
    filler = word_before(text, place, tables.PHONE_FILLERS)
    if filler is None:
        return False
    return word_before(text, before_skipped(text, filler), tables.PHONE_WORDS) is not None


def form(groups: Groups) -> str:
    """Return groups as their lengths with the separators between, such as ``3-3-4``."""
    return "".join(f"{separator}{len(digits)}" for separator, digits, _ in groups)


def luhn(digits: str) -> bool:
    """Say whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def card_groups(groups: Groups, rest: str) -> int:
    """Return how many of the groups are a card number, 0 if none are.

    Its groups are those of the card, all joined by spaces or all by hyphens, or it is in one piece, which then has at
    most 16 digits, 19 for UnionPay. A space may part it
    from more numbers, but not from a further group of four if its own are parted by spaces.
    """
    for count in (5, 4, 3, 1):
        if len(groups) < count:
            continue
        shape = form(groups[:count])
        if not re.fullmatch("1[4-9]|4 4 4 4(?: 3)?|4-4-4-4(?:-3)?|4 6 [45]|4-6-[45]", shape):
            continue
        separator, digits, _ = [*groups, (rest, "", 0)][count]
        if separator not in ("", " ", "(") or (" " in shape and len(digits) == 4):
            continue
        number = "".join(digits for _, digits, _ in groups[:count])
        lengths = [
            length
            for first, last, length in tables.CARD_PREFIXES
            if int(first) <= int(number[: len(first)]) <= int(last)
        ]
        if shape in ("17", "18", "19") and number[:2] != "62":
            continue
        if any(len(number) in each for each in lengths) and luhn(number):
            return count
    return 0


def phone_groups(groups: Groups, rest: str, plus: bool, announced: bool) -> int:
    """Return how many of the groups are a phone number, the most that can be; 0 if none are.

    Groups behind it may only be parted from it by a space, which then must not stand within it, unless + or a word says
    that it is a phone number.
    """
    for count in range(len(groups), 0, -1):
        taken = groups[:count]
        digits = "".join(part for _, part, _ in taken)
        if len(digits) < 7:
            return 0
        separator = [*groups, (rest, "", 0)][count][0]
        spaced = any(part[0] == " " for part in taken)
        if separator not in ("", " ", "(") or (separator and spaced and not plus and not announced):
            continue
        forms: list[Callable[[Groups, str], bool]] = [is_international]
        if not plus:
            forms = [is_north_american, is_trunk, is_other_national, is_prefixed]
            forms += [is_after_word] if announced else []
        if any(each(taken, digits) for each in forms):
            return count
    return 0


def is_international(groups: Groups, digits: str) -> bool:
    """Say whether groups are a calling code and a number whose length it allows, with at most two single digits.

    A number begins with 0 in a few countries only, or with the 0 of ``+44 (0)20``, which does not count. The first
    group holds the whole calling code. In North America area code and exchange begin with 2 to 9.
    """
    if sum(len(part) == 1 for _, part, _ in groups[1:]) > 2 or len(digits) <= 3:
        return False
    for (fewest, most), codes in tables.NATIONAL_LENGTHS.items():
        for code in codes.split(" "):
            if not digits.startswith(code) or len(groups[0][1]) < len(code):
                continue
            national = digits[len(code) :]
            if re.match(r"\(1\)", form(groups[1:])) and groups[0][1] == code and national[0] == "0":
                national = national[1:]
            if not fewest <= len(national) <= most:
                return False
            if national[0] == "0" and code not in tables.ZERO_KEPT.split(" "):
                return False
            return code != "1" or re.match("[2-9]..[2-9]", national) is not None
    return False


def is_prefixed(groups: Groups, digits: str) -> bool:
    """Say whether three or more groups are the prefix 00 and an international number."""
    if len(groups) < 3 or not groups[0][1].startswith("00"):
        return False
    rest = groups[1:] if groups[0][1] == "00" else [("", groups[0][1][2:], groups[0][2]), *groups[1:]]
    singles = sum(len(part) == 1 for _, part, _ in groups[1:])
    return singles <= 2 and len(digits) > 5 and is_international([("", *rest[0][1:]), *rest[1:]], digits[2:])


def is_north_american(groups: Groups, digits: str) -> bool:
    """Say whether groups are area code, exchange and line, perhaps behind a 1, joined by more than spaces (NANP)."""
    if not re.fullmatch(r"(?:1[ \-./()])?3(?:([-.])3\1|\)3[-. ])4", form(groups)):
        return False
    return re.fullmatch(r"1?(?!.11)[2-9]..[2-9].{6}", digits) is not None


def is_trunk(groups: Groups, digits: str) -> bool:
    """Say whether groups begin with the trunk prefix 0, as in most of the world, and have nine to twelve digits.

    Two groups: an area code of two to five digits and five or more, so that the post code 02139-4307 is none. Three to
    five, with twelve digits at most four: two to six each; no date, and no pairs in ascending order, which are a count
    or a draw.
    """
    if not re.fullmatch("0[1-9][0-9]{7,10}", digits) or len(groups[0][1]) < 2:
        return False
    if len(groups) == 5 and len(digits) == 12:
        return False
    if len(groups) == 2:
        return re.fullmatch(r"[2-5][ \-/)]([5-9]|1[0-9])", form(groups)) is not None
    if not re.fullmatch(r"[2-6](?:[ \-./)][2-6]){2,4}", form(groups)):
        return False
    pairs = [int(part) for _, part, _ in groups]
    ascending = all(low < high for low, high in zip(pairs, pairs[1:], strict=False))
    if len(digits) == 2 * len(groups) and ascending and all(len(part) == 2 for _, part, _ in groups):
        return False
    return not (re.match("2.2.4", form(groups)) and digits[4:6] in ("19", "20"))


def is_other_national(groups: Groups, digits: str) -> bool:
    """Say whether groups are a number of Brazil, a mobile number of China, or one of Russia with the prefix 8."""
    shape = form(groups)
    return (
        (re.fullmatch(r"2\)[45][ -]4", shape) is not None and digits[0] != "0")
        or (shape in ("3 4 4", "3-4-4") and re.match("1[3-9]", digits) is not None)
        or (re.fullmatch("1.3.3.2.2", shape) is not None and re.match("8[3489]", digits) is not None)
    )


def is_after_word(groups: Groups, digits: str) -> bool:
    """Say whether groups behind a word such as ``phone`` are a number: seven to fifteen digits, and no date."""
    if not 7 <= len(digits) <= 15 or re.fullmatch("4.2.2|2.2.4", form(groups)):
        return False
    return all(len(part) > 1 for _, part, _ in groups[1:])


def iban(text: str, position: int) -> Span | None:
    """Return the IBAN whose check digits begin at a position: in one piece, or in groups of four joined by one sign."""
    country = text[max(0, position - 2) : position]
    if not re.fullmatch("[A-Z]{2}|[a-z]{2}", country) or re.search(f"[{WORD}]\\Z", text[: position - 2][-1:]):
        return None
    lengths = (size for size, codes in tables.IBAN_LENGTHS.items() if country.upper() in codes.split(" "))
    length = next(lengths, 0)
    character = "[0-9A-Z]" if country.isupper() else "[0-9a-z]"
    for joint in ("", " ", "-"):
        groups = [4] * (length // 4) + [length % 4] * (length % 4 > 0)
        pattern = joint.join(f"{character}{{{size}}}" for size in groups) + f"(?![{WORD}]|-[{WORD}])"
        match = re.compile(pattern).match(text, position - 2) if length else None
        if match is not None:
            number = re.sub("[ -]", "", match[0]).upper()
            digits = "".join(str(int(sign, 36)) for sign in number[4:] + number[:4])
            if re.fullmatch("[0-9]{2}", number[2:4]) and int(digits) % 97 == 1:
                return position - 2, match.end(), IBAN
    return None
