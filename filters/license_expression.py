"""SPDX licence expressions against a list of names."""

from __future__ import annotations

import re
from collections.abc import Collection

_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")
_OPERATORS = ("and", "or", "with")
_PRECEDENCE = {"or": 1, "and": 2}


def lower(text: str) -> str:
    """Return a text with the capitals A to Z in lower case, as SPDX compares names."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def judge(text: str, listed: Collection[str], *, every_choice: bool) -> bool:
    """Say whether a licence is on a list.

    Args:
        text: an SPDX expression; any other text counts as one name.
        listed: names in lower case.
        every_choice: False for an allow list: of ``A OR B`` one must be listed, of ``A AND B`` both. True for a deny
            list: of ``A OR B`` both must be listed, of ``A AND B`` one.
    """
    tokens = _TOKEN.findall(lower(text))
    if lower(text) in listed:
        return True
    values: list[bool] = []
    operators: list[str] = []

    def apply() -> None:
        second, first = values.pop(), values.pop()
        both = (operators.pop() == "and") != every_choice
        values.append((first and second) if both else (first or second))

    wants_name = True
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if wants_name == (token in (")", *_OPERATORS)):
            return False
        if token == "(":
            operators.append(token)
        elif token == ")":
            while operators and operators[-1] != "(":
                apply()
            if not operators:
                return False
            operators.pop()
        elif token in _PRECEDENCE:
            while operators and _PRECEDENCE.get(operators[-1], 0) >= _PRECEDENCE[token]:
                apply()
            operators.append(token)
            wants_name = True
        elif token == "with" or not wants_name:
            return False
        else:
            is_listed = token in listed
            if tokens[position : position + 1] == ["with"]:
                exception = tokens[position + 1 : position + 2]
                if not exception or exception[0] in ("(", ")", *_OPERATORS):
                    return False
                is_listed = is_listed or f"{token} with {exception[0]}" in listed
                position += 2
            values.append(is_listed)
            wants_name = False
    if wants_name or "(" in operators:
        return False
    while operators:
        apply()
    return values[0]
