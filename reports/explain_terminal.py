"""Text from strangers, made safe to print on a terminal.

A terminal acts on control characters (ANSI sequences move the cursor, set titles, hide what was printed before), and
shows text in an order that directional marks set. Both are shown as escapes, as are characters that nobody sees.
"""

from __future__ import annotations

import re

from reports.visible import is_hidden

_UNUSUAL = re.compile(r"[^\x20-\x7e]")


def terminal_text(text: str, keep: str = "") -> str:
    r"""Return a text in which what a terminal acts on or does not show stands as an escape, such as \x1b or \u202e.

    Args:
        keep: control characters that stay as they are, such as line feeds.
    """

    def shown(match: re.Match[str]) -> str:
        character = match[0]
        if character in keep or (character not in "\t\n" and not is_hidden(character)):
            return character
        number = ord(character)
        return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

    return _UNUSUAL.sub(shown, text)
