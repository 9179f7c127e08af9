"""Text from strangers, shown in HTML: escaped, with the characters that do not show made visible.

Control characters, bidirectional overrides, zero-width characters and tag characters can hide text or turn its order
around (Trojan Source, arXiv 2111.00169). Each is shown by its number. The zero-width joiner and non-joiner stay as they
are, because Persian, Indic scripts and emoji are written with them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import unicodedata2
from rich.text import Text

if TYPE_CHECKING:
    from markupsafe import Markup

_SHOWN = frozenset("\t\n\u200c\u200d")
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# The number of a hidden character takes the room of fifty others.
MOST_WITH_HIDDEN = 20
_FIRST_VARIATION, _LAST_VARIATION = 0xE0100, 0xE01EF


@lru_cache(maxsize=1 << 14)
def is_hidden(character: str) -> bool:
    """Say whether a reader would not see a character, or see others in another order because of it."""
    if character in _SHOWN:
        return False
    hidden: bool = unicodedata2.category(character) in _HIDDEN_CATEGORIES
    return hidden or _FIRST_VARIATION <= ord(character) <= _LAST_VARIATION


def visible(text: str) -> Markup:
    """Return a text as HTML: escaped, with ``U+202E`` and the like in the place of each character that is hidden."""
    # Comes with what draws pages; the terminal, which needs ``is_hidden`` only, does without.
    from markupsafe import Markup, escape

    text = text.replace("\r\n", "\n")
    hidden = {character for character in set(text) if is_hidden(character)}
    if not hidden:
        return escape(text)
    parts = []
    start = 0
    for place, character in enumerate(text):
        if character in hidden:
            parts.append(escape(text[start:place]))
            parts.append(Markup('<span class="hidden-character">U+{:04X}</span>').format(ord(character)))
            start = place + 1
    return Markup("").join([*parts, escape(text[start:])])


def name_text(name: str, length: int = 80) -> Markup:
    """Return a name from the data on one line, shortened in its middle; more so where its characters do not show."""
    name = name.replace("\n", "\u23ce").replace("\t", " ")
    if any(map(is_hidden, name)):
        length = min(length, MOST_WITH_HIDDEN)
    if len(name) > length:
        name = f"{name[: length // 2]}…{name[-(length // 2 - 1) :]}"
    return visible(name)


def printable(name: str) -> str:
    """Return a name from the data with a mark in the place of each character that does not show."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name)


def terminal_name(name: str) -> Text:
    """Return a name from the data as it stands, without what a terminal would act on."""
    return Text(printable(name))
