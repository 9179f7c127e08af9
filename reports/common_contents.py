"""How many contents the outputs of two runs have in common, in bounded memory and exactly.

The hashes of both are written to a temporary folder, 8 bytes each, in parts by their leading bits; equal ones are in
the same part, and a part at a time is in memory.
"""

from __future__ import annotations

import tempfile
from binascii import unhexlify
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.errors import ThresherError, UsageError
from corpus.selection_keys import hash_words
from corpus.text import text_buffers

CONTENTS_AT_ONCE = 1 << 23
"""Contents of a run in one part, about."""
MOST_PARTS = 256
"""So many files are open at once; beyond two billion contents parts are larger instead."""
HEX_DIGITS = 32

Hashes = npt.NDArray[np.uint64]


def common_contents(before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], most: int) -> dict[str, Any]:
    """Return how many distinct contents both runs have, told by the first 64 bits of their hashes.

    Args:
        before, after: the hashes of the records kept, the only column of each batch.
        most: about how many there are in the larger run.

    Returns:
        ``contents`` that both have, and which share they are of those before and after, None of none.

    Raises:
        ThresherError: the temporary folder is full or cannot be written.
    """
    bits = min(max(0, (most - 1) // CONTENTS_AT_ONCE).bit_length(), (MOST_PARTS - 1).bit_length())
    both, sizes = 0, [0, 0]
    with tempfile.TemporaryDirectory(prefix="thresher-") as folder:
        sides = [[Path(folder, f"{side}-{part}") for part in range(1 << bits)] for side in range(2)]
        for batches, paths in zip((before, after), sides, strict=True):
            _write_parts(batches, paths, bits)
        for pair in zip(*sides, strict=True):
            first, second = (np.unique(np.fromfile(path, np.uint64)) for path in pair)
            both += len(np.intersect1d(first, second, assume_unique=True))
            sizes = [sizes[0] + len(first), sizes[1] + len(second)]
    shares = [both / size if size else None for size in sizes]
    return {"contents": both, "share_of_before": shares[0], "share_of_after": shares[1]}


def _write_parts(batches: Iterable[pa.RecordBatch], paths: Sequence[Path], bits: int) -> None:
    """Write the hashes of a run, those that begin with the bits of a number to the file of that number."""
    begins = np.arange(1, len(paths), dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(0, np.uint64)
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for batch in batches:
            hashes = np.sort(leading_bits(batch.column(0)))
            for file, part in zip(files, np.split(hashes, np.searchsorted(hashes, begins)), strict=True):
                _append(file, part)


def _append(file: BinaryIO, hashes: Hashes) -> None:
    try:
        file.write(hashes.data)
        file.flush()
    except OSError as error:
        raise ThresherError(
            f"{Path(file.name).parent}: the hashes of the contents cannot be written ({error.strerror or error}); make "
            "room for 8 bytes per record kept, or set TMPDIR to a folder that has it"
        ) from error


def leading_bits(hashes: pa.Array) -> Hashes:
    """Return the first 64 bits of hashes in hex of 32 digits each, uint64[n]. Raises UsageError for anything else."""
    offsets, data = text_buffers(hashes)
    lengths = np.diff(offsets)
    try:
        digits = unhexlify(data[offsets[0] : offsets[-1]].tobytes())
    except ValueError:
        lengths = np.zeros(1)
    if (lengths != HEX_DIGITS).any():
        raise UsageError(f"content_hash: not {HEX_DIGITS} hexadecimal digits; damaged, see thresher verify")
    return hash_words(np.frombuffer(digits, "V16"))[:, 0]
