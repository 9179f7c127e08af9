"""Compile kernels once per machine, into the user's cache folder.

Numba's own index notices a change of the file that holds a function, not of the functions that it calls in other
files, and it writes beside the source, which may be read-only. So each kernel module has a folder in the user's cache
whose name is a hash of its source, of every own module that this leads to, and of the Numba and Python versions: a
changed kernel compiles anew, and only that one.
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

ROOT = Path(__file__).parent.parent
KERNEL_PACKAGES = ("corpus", "filters", "dedup")

_OWN_IMPORT = re.compile(rf"^from ({'|'.join(KERNEL_PACKAGES)})\.(\w+) import", re.MULTILINE)

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def cache_folder(module: str) -> Path:
    """Return the folder of a module's compiled kernels, for a name as ``corpus.text_kernel``; it can be written."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for path in _sources(ROOT.joinpath(*module.split(".")).with_suffix(".py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    # Numba keeps an installation's kernels apart by their path.
    digest.update(str(ROOT).encode())
    name = f"{module.rsplit('.', 1)[-1]}-{digest.hexdigest()[:16]}"
    folder = Path(platformdirs.user_cache_dir("thresher")) / "kernels" / name
    if not _is_writable(folder):
        folder = Path(tempfile.gettempdir()) / f"thresher-{os.getuid()}" / name
        if not _is_writable(folder) or folder.parent.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp(prefix="thresher-kernels-"))
    return folder


def _sources(path: Path) -> list[Path]:
    """Return a module and all own modules that it leads to: constants of others are frozen into the machine code."""
    found: set[Path] = set()
    pending = [path]
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            names = _OWN_IMPORT.findall(path.read_text(encoding="utf-8"))
            pending.extend(ROOT / package / f"{module}.py" for package, module in names)
    return sorted(found)


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
    paths = [path for package in KERNEL_PACKAGES for path in sorted((ROOT / package).glob("*_kernel.py"))]
    return any(any(cache_folder(f"{path.parent.name}.{path.stem}").rglob("*.nbi")) for path in paths)


def kernel(*signatures: str) -> Callable[[Function], Function]:
    """Compile a function at import for the given Numba signatures, without the GIL and cached on disk.

    Modules that hold kernels are named ``*_kernel.py`` and are imported only when a stage is prepared.
    """

    def compiled(function: Function) -> Function:
        numba.config.CACHE_DIR = str(cache_folder(function.__module__))
        return numba.njit(list(signatures), cache=True, nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]

    return compiled


def inlined(function: Function) -> Function:
    """Compile a helper that kernels of the same module call; its machine code becomes a part of theirs."""
    numba.config.CACHE_DIR = str(cache_folder(function.__module__))
    return numba.njit(cache=True, nogil=True, inline="never", error_model="numpy")(function)  # type: ignore[no-any-return]
