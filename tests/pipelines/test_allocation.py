"""What a process keeps of the memory that it frees."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

CODE = """
import resource, sys
from pipelines.allocation import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
import numpy as np
import pyarrow as pa

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

np.ones(24 << 20, np.uint8)
before = faults()
for _ in range(20):
    np.ones(24 << 20, np.uint8)
print(faults() - before, pa.default_memory_pool().backend_name)
"""


def _faults(mode: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-c", CODE, mode]
    without = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "ARROW_"))}
    done = subprocess.run(command, env={**without, **environment}, capture_output=True, text=True, check=True)
    count, pool = done.stdout.split()
    return int(count), pool


def test_freed_arrays_are_taken_again() -> None:
    kept, pool = _faults("keep")
    assert pool == "system"
    # Without: each of 20 arrays takes its pages anew, of 2 MB where the system gives these.
    fresh, _ = _faults("free")
    assert kept < fresh / 4


def test_the_pool_that_the_environment_names_goes_first() -> None:
    assert _faults("keep", ARROW_DEFAULT_MEMORY_POOL="mimalloc")[1] == "mimalloc"
