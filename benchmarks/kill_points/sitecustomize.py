"""Kills the process that loads it at a named point; put on PYTHONPATH by ``benchmarks.kills``.

``THRESHER_KILL`` holds JSON: ``call`` (``os.replace``, ``os.fsync`` or ``ParquetWriter.write_table``), ``when``
(``before`` or ``after`` the call), ``target`` (a regular expression that is found in the name of the file that
``os.replace`` makes), ``number`` (which of these calls of one process, from 1) and ``said``, a file that is made just
before, so that only one process dies, and a kill that never came is told from one that did. The product knows nothing
of this.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def killing(function: Callable[..., Any], point: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that kills its process before or after one of its calls."""
    lock = threading.Lock()
    left = point["number"]
    names_target = function is os.replace

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        with lock:
            target = os.fspath(arguments[1]) if names_target else ""
            left -= re.search(point["target"], target) is not None
            due = left == 0 and not Path(point["said"]).exists()
            left -= due
            if due and point["when"] == "before":
                kill()
        result = function(*arguments, **options)
        if due:
            kill()
        return result

    def kill() -> None:
        Path(point["said"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    return call


def install(point: dict[str, Any]) -> None:
    """Put the killing function in the place of the one that the point names."""
    if point["call"] == "ParquetWriter.write_table":
        from pyarrow.parquet import ParquetWriter

        ParquetWriter.write_table = killing(ParquetWriter.write_table, point)
    else:
        name = point["call"].removeprefix("os.")
        # A partial object, because pathlib of Python 3.10 keeps these in a class, where a function would be a method.
        setattr(os, name, partial(killing(getattr(os, name), point)))


if "THRESHER_KILL" in os.environ:
    install(json.loads(os.environ["THRESHER_KILL"]))
