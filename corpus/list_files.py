"""Lists of words, domains and the like, one entry per line, from files of the user's."""

from __future__ import annotations

import hashlib

from corpus.errors import UsageError
from corpus.filesystem import locate, open_file, redact

BYTE_ORDER_MARK = "\ufeff"


def read_list_file(path: str, setting: str) -> bytes:
    """Return the bytes of a list file, local or in a store.

    Raises:
        UsageError: it cannot be read; the message names ``setting`` (stage.setting), path and cause.
    """
    try:
        with open_file(locate(path)) as file:
            return b"".join(iter(lambda: file.read(1 << 20), b""))
    except UsageError:
        raise
    except Exception as error:  # each store has errors of its own
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{setting}: cannot read {redact(path)}: {reason}; give a text file, one entry per line"
        ) from None


def read_list(path: str, setting: str) -> list[tuple[int, str]]:
    """Return (line number, entry) of a UTF-8 list file: without blank lines, comments (``#`` first), blanks around.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or has no entry.
    """
    try:
        text = read_list_file(path, setting).decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{setting}: {redact(path)}, line {line}: not UTF-8; save the list as UTF-8") from None
    numbered = [(number, line.strip(" \t\r")) for number, line in enumerate(text.split("\n"), 1)]
    entries = [(number, line) for number, line in numbered if line and not line.startswith("#")]
    if not entries:
        raise UsageError(f"{setting}: {redact(path)} has no entry; write one per line, or leave the setting out")
    return entries


def list_digest(path: str, setting: str) -> str:
    """Return the SHA-256 of a list file in hexadecimal. Raises UsageError if it cannot be read."""
    return hashlib.sha256(read_list_file(path, setting)).hexdigest()
