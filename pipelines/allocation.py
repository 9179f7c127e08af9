"""Memory that is freed is kept: a fresh page costs more than most work on its bytes.

The steps of a run take arrays of megabytes and give them back, batch by batch. By default the C library hands such
arrays back to the system, which makes each page anew and writes zeros to it when the next array is taken; Arrow's own
allocator does so after some milliseconds. Kept, they save a twentieth of the processor time of near-duplicates. One
arena for all threads holds less than one per thread, and its lock is taken for arrays, not for objects of Python.
"""

from __future__ import annotations

import ctypes
import os
import sys

# <malloc.h> of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
KEPT_BYTES = 1 << 30
ARRAY_BYTES = 256 << 20
OLD_ARRAY_BYTES = 32 << 20
"""Larger arrays come from the system, and go back to it; the second is the most that an old glibc takes."""


def keep_freed_memory() -> None:
    """Have this process keep what it frees, and Arrow use the same allocator; call it before pyarrow is imported.

    Does nothing where the C library is not glibc. The environment variable ``ARROW_DEFAULT_MEMORY_POOL`` goes first.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    if not mallopt(_MMAP_THRESHOLD, ARRAY_BYTES):
        mallopt(_MMAP_THRESHOLD, OLD_ARRAY_BYTES)
    mallopt(_ARENA_MAX, 1)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
