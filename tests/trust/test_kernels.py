"""Kernels read and write within their arrays: with Numba's bounds checks, and in memory between forbidden pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
# Tests of kernels that index arrays, one module of each package; texts are read through pointers, see below.
INDEXING = ["tests/corpus/test_parquet_footer.py", "tests/dedup/test_bands.py", "tests/filters/test_badwords.py"]


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )


def test_no_stage_reads_before_or_behind_its_texts() -> None:
    done = python("-m", "tests.trust.guarded_memory", "0", "60")
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout == "60 rounds, 9 stages\n"


def test_a_read_behind_the_texts_ends_the_process() -> None:
    """Or else the test above could not fail."""
    program = (
        "import ctypes, sys; from tests.trust.guarded_memory import guarded; "
        "buffer, memory = guarded(b'x' * 5000, sys.argv[1] == 'end'); print(buffer.size, flush=True); "
        "ctypes.string_at(buffer.address + (buffer.size if sys.argv[1] == 'end' else -1), 1)"
    )
    for side in ("end", "start"):
        done = python("-c", program, side)
        assert (done.stdout, done.returncode) == ("5000\n", -signal.SIGSEGV)


def test_kernels_with_bounds_checks(tmp_path: Path) -> None:
    """In a cache folder of their own, because the checks are compiled in."""
    checked = {"NUMBA_BOUNDSCHECK": "1", "XDG_CACHE_HOME": str(tmp_path)}
    done = python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *INDEXING, **checked)
    assert done.returncode == 0, done.stdout[-3000:]
    # Levels of no column for a footer with some: without the checks, something is read from behind the arrays.
    program = (
        "import numpy as np; from corpus.parquet_footer_kernel import faulty_chunk; "
        "from tests.trust.fuzzing import parquet_files; "
        "from tests.corpus.test_parquet_footer import footer_of, levels_of; "
        "data = parquet_files()[0]; levels, _, is_bytes = levels_of(data); "
        "faulty_chunk(np.frombuffer(footer_of(data), np.uint8).copy(), levels[:0], levels[:0], is_bytes)"
    )
    assert "IndexError: index is out of bounds" in python("-c", program, **checked).stderr
