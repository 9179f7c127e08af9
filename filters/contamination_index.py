"""The index of benchmark items: what is looked for, as packed arrays in one file that processes map into memory.

An *entry* is a run of tokens that is looked for: a question, an answer, or a question with what follows it (the
junction). A *part* is what is only looked for near a question: answer, choices, context. Items are in the order of
benchmark and id, so the index does not depend on the order of benchmarks and files.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.errors import UsageError

FORMAT = "thresher contamination index 1"
ALIGNMENT = 64

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ContaminationIndex:
    """Benchmarks, items, entries and their n-grams.

    Attributes:
        benchmarks: names, sorted.
        item_benchmark: int32, of each item, the number of its benchmark.
        id_offsets, id_data: int64[items + 1] and uint8, the ids as UTF-8.
        item_status: uint8, of each item: 0 long (found with words changed), 1 short (found exactly), else why it cannot
            be checked (``UNCHECKABLE``).
        tokens: uint32, of all entries and parts.
        weights: uint8, of each token: 16 where all entries have it, up to 32 where one has.
        entry_starts: int64[entries + 1], of each entry, its first token; parts come behind the last entry.
        entry_flags: uint8, kind and flags.
        entry_words: int32, the words of each entry.
        entry_items: int32[entries + 1] into ``items``, int32: the items that an entry stands for.
        part_starts: int64[parts + 1], of each part, its first token.
        part_kinds: uint8.
        part_telling: uint8, 1 where the part says something by itself ("yes" does not).
        item_parts: int32[items + 1], of each item, its first part.
        postings: uint32, first tokens of n-grams, by the hash of the n-gram, then by place.
        directory: uint32[2**bits + 1]: postings whose hash begins with the bits b are ``directory[b]`` on.
        bits: uint64, the bit filter, its length a power of two.
    """

    benchmarks: tuple[str, ...]
    item_benchmark: Array
    id_offsets: Array
    id_data: Array
    item_status: Array
    tokens: Array
    weights: Array
    entry_starts: Array
    entry_flags: Array
    entry_words: Array
    entry_items: Array
    items: Array
    part_starts: Array
    part_kinds: Array
    part_telling: Array
    item_parts: Array
    postings: Array
    directory: Array
    bits: Array

    def item_id(self, item: int) -> str:
        """Return the id of an item within its benchmark."""
        return bytes(self.id_data[self.id_offsets[item] : self.id_offsets[item + 1]]).decode()

    def item_name(self, item: int) -> str:
        """Return ``<benchmark>/<id>``."""
        return f"{self.benchmarks[self.item_benchmark[item]]}/{self.item_id(item)}"

    def __len__(self) -> int:
        return len(self.item_benchmark)


ARRAYS = tuple(field.name for field in fields(ContaminationIndex) if field.name != "benchmarks")


def write_index(index: ContaminationIndex, path: Path) -> None:
    """Write an index as one file, whole or not at all: a header of JSON in its first line, then the arrays."""
    arrays: dict[str, Array] = {name: np.ascontiguousarray(getattr(index, name)) for name in ARRAYS}
    layout: dict[str, tuple[str, int, int]] = {}
    position = 0
    for name, array in arrays.items():
        layout[name] = (array.dtype.str, len(array), position)
        position += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    header = {"format": FORMAT, "benchmarks": index.benchmarks, "arrays": layout, "bytes": position}
    line = json.dumps(header).encode()
    line += b" " * (-(len(line) + 1) % ALIGNMENT) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(line)
            for array in arrays.values():
                file.write(array.data)
                file.write(b"\0" * (-array.nbytes % ALIGNMENT))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def open_index(path: Path) -> ContaminationIndex:
    """Map the file of an index into memory. Raises UsageError where the file is not an index of this version."""
    with path.open("rb") as file:
        line = file.readline(1 << 24)
    header = _header(line)
    if header is None or path.stat().st_size != len(line) + int(header["bytes"]):
        raise UsageError(f"{path}: not a contamination index of this version, or cut short; remove the file")
    mapped = np.memmap(path, np.uint8, "r")
    arrays = {
        name: np.frombuffer(mapped, np.dtype(kind), length, len(line) + start)
        for name, (kind, length, start) in header["arrays"].items()
    }
    return ContaminationIndex(tuple(header["benchmarks"]), **arrays)


def _header(line: bytes) -> Mapping[str, Any] | None:
    try:
        header = json.loads(line)
    except ValueError:
        return None
    if not isinstance(header, dict) or header.get("format") != FORMAT or set(header.get("arrays", ())) != set(ARRAYS):
        return None
    return header
