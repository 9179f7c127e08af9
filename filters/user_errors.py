"""What code of the user's says, as one line of text: errors, and names of reasons."""

from __future__ import annotations

import re
import traceback

MAX_ERROR = 400
MAX_NAME = 100

_CONTROLS = re.compile(r"[\x00-\x20\x7f-\x9f]+")


def one_line(text: str, longest: int) -> str:
    """Return a text without control characters, cut to ``longest`` code points; it is always valid UTF-8."""
    line = _CONTROLS.sub(" ", text).strip(" ").encode("utf-8", "replace").decode()
    return line if len(line) <= longest else line[: longest - 1] + "…"


def error_text(error: BaseException, file: str | None = None) -> str:
    """Return what went wrong: type and message, and the line of ``file`` where, if it went through that file."""
    try:
        message = str(error)
    except Exception as fault:  # an exception of the user's may fail to describe itself
        message = f"(its message raises {type(fault).__name__})"
    text = one_line(f"{type(error).__name__}: {message}", MAX_ERROR)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{text} (line {lines[-1]} of {file.rpartition('/')[2]})" if file is not None and lines else text


def reason_name(reason: object) -> str | None:
    """Return a reason as the name of a rule in ledger and report: one line of at most 100 code points.

    None for a reason that says nothing.
    """
    return None if reason is None else one_line(str(reason), MAX_NAME) or None
