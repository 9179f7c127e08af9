"""How deeply a JSON text nests, and work on nested values that does not depend on who calls it.

``orjson`` has limits of its own. The standard library goes as deep as the interpreter's stack has room left, which
differs with the caller, so it is given a stack of its own for all but shallow values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

# What orjson writes at most, the record itself being level 1; it reads 1024.
MAX_NESTING = 254
TOO_DEEP = f"the line is nested too deeply, more than {MAX_NESTING} levels; flatten it"

_SHALLOW = 32
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*(?:"|\Z)')
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1

Result = TypeVar("Result")


def may_nest(line: bytes, levels: int) -> bool:
    """Say whether a text may nest more deeply than so many levels: whether it has the brackets for it."""
    return line.count(b"[") + line.count(b"{") > levels


def nesting(line: bytes) -> int:
    """Return the levels of arrays and objects in a JSON text; of a text that is not JSON, those it would have."""
    codes = np.frombuffer(_STRING.sub(b"", _ESCAPE.sub(b"", line)), np.uint8)
    return int(np.cumsum(_STEPS[codes], dtype=np.int64).max(initial=0))


def at_any_depth(work: Callable[[bytes], Result], line: bytes) -> Result:
    """Return ``work(line)``, which goes as deep as the line nests; on a stack of its own where that is deep."""
    if not may_nest(line, _SHALLOW) or nesting(line) <= _SHALLOW:
        return work(line)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, line).result()
