"""What counts as private data, in plain Python: the reference of ``filters.pii_kernel``.

The text is read from left to right. Each ``@``, each colon and each digit that begins a run is looked at; where
something is found, reading goes on behind it, so that spans do not overlap, except that an e-mail address replaces
numbers found in its local part. Characters that count as others (``NORMAL``) are replaced one by one first, so
positions are those of the text.
"""

from __future__ import annotations

import re

from filters.pii_address_reference import EMAIL, Span, address_6, email
from filters.pii_number_reference import iban, numeric

NORMAL = {
    **{0xFEE0 + ord(sign): sign for sign in "()+-./0123456789:@"},
    **{first + digit: str(digit) for first in (0x660, 0x6F0) for digit in range(10)},
    **dict.fromkeys((0xA0, 0x2007, 0x2009, 0x202F, 0x3000), " "),
    **dict.fromkeys((*range(0x2010, 0x2014), 0x2212), "-"),
}
"""Full-width forms, Arabic-Indic and Persian digits, spaces that do not break or are wide, hyphens and short dashes."""


def find_in_text(original: str, public_only: bool) -> list[Span]:
    """Return start, end (in code points) and kind of each span with private data, in order."""
    text = original.translate(NORMAL)
    spans: list[Span] = []
    position = run_end = 0
    while position < len(text):
        sign = text[position]
        found: Span | None = None
        following = position + 1
        if sign == "@":
            found = email(text, position)
        elif sign == ":" and position >= run_end:
            found, run_end = address_6(text, position, public_only)
        elif sign in "0123456789":
            run = re.compile("[0-9]+").match(text, position)
            following = run.end() if run else following
            if re.match("[A-Za-z]", text[position - 1 : position]):
                found = iban(text, position)
            else:
                found, following = numeric(text, position, following, public_only)
        if found is None:
            position = following
            continue
        if found[2] == EMAIL:
            while spans and spans[-1][1] > found[0]:
                spans.pop()
        spans.append(found)
        position = found[1]
    return spans
