"""Packed NumPy arrays as bytes, and rows dealt out to partitions: what crosses a shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pack_arrays(arrays: Sequence[Array]) -> bytes:
    """Return one-dimensional arrays as bytes: the length in bytes of each as int64, then their data."""
    parts = [np.ascontiguousarray(array).view(np.uint8) for array in arrays]
    lengths = np.array([part.nbytes for part in parts], np.int64)
    return b"".join([lengths.tobytes(), *(part.tobytes() for part in parts)])


def unpack_arrays(data: bytes | memoryview, dtypes: Sequence[npt.DTypeLike]) -> list[Array]:
    """Return the arrays that ``pack_arrays`` packed, given their types; they are read-only views."""
    start = 8 * len(dtypes)
    lengths = np.frombuffer(data, np.int64, len(dtypes))
    arrays = []
    for dtype, length in zip(dtypes, lengths.tolist(), strict=True):
        count = length // np.dtype(dtype).itemsize
        arrays.append(np.frombuffer(data, dtype, count, start))
        start += length
    return arrays


def rows_by_part(parts: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield (part, its rows), ascending both, given the part of each row, int64[n]."""
    order = np.argsort(parts, kind="stable")
    numbers, begins = np.unique(parts[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, begins[1:]), strict=False)
