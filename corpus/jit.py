"""Compile kernels once per machine, into the user's cache folder.

Numba's own index notices a change of the file that holds a function, not of the functions that it calls in other
files, and it writes beside the source, which may be read-only. So the cache lies in a folder of the user's whose name
is a hash of every kernel source together with the Numba and Python versions: a changed kernel compiles anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import platformdirs

KERNEL_PACKAGES = ("corpus", "filters", "dedup")

_OWN_IMPORT = re.compile(rf"^from ({'|'.join(KERNEL_PACKAGES)})\.(\w+) import", re.MULTILINE)

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def cache_folder() -> Path:
    """Return the folder of the compiled kernels of this version; it exists and can be written."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    root = Path(__file__).parent.parent
    kernels = [path for package in KERNEL_PACKAGES for path in sorted((root / package).glob("*_kernel.py"))]
    sources = set(kernels)
    for path in kernels:
        # Constants of other modules are frozen into the machine code.
        for package, module in _OWN_IMPORT.findall(path.read_text(encoding="utf-8")):
            sources.add(root / package / f"{module}.py")
    for path in sorted(sources):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    # Numba keeps an installation's kernels apart by their path.
    digest.update(str(root).encode())
    name = f"kernels-{digest.hexdigest()[:16]}"
    folder = Path(platformdirs.user_cache_dir("thresher")) / name
    if not _is_writable(folder):
        folder = Path(tempfile.gettempdir()) / f"thresher-{os.getuid()}" / name
        if not _is_writable(folder) or folder.parent.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp(prefix="thresher-kernels-"))
    return folder


def _is_writable(folder: Path) -> bool:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def is_warm() -> bool:
    """Say whether kernels of this version were compiled on this machine before."""
    return any(cache_folder().rglob("*.nbi"))


def kernel(*signatures: str) -> Callable[[Function], Function]:
    """Compile a function at import for the given Numba signatures, without the GIL and cached on disk.

    Modules that hold kernels are named ``*_kernel.py`` and are imported only when a stage is prepared.
    """
    numba.config.CACHE_DIR = str(cache_folder())
    return numba.njit(list(signatures), cache=True, nogil=True, error_model="numpy")  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Compile a helper that kernels of the same module call; its machine code becomes a part of theirs."""
    numba.config.CACHE_DIR = str(cache_folder())
    return numba.njit(cache=True, nogil=True, inline="never", error_model="numpy")(function)  # type: ignore[no-any-return]
