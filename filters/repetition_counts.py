"""The scratch memory of the kernel of ``gopher_repetition``, and its plain-Python reference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from corpus.text import Bytes, lines, words
from corpus.text_statistics import TextStatistics
from corpus.unicode_tables import WHITE_SPACE, code_point_classes, members
from filters import repetition_kernel as kernel
from filters.counting import Preset

Scratch = tuple[npt.NDArray[np.int32], Bytes, npt.NDArray[np.int32], Bytes, npt.NDArray[np.int64], Bytes]


def scratch(statistics: TextStatistics) -> Scratch:
    """Return the memory that the sweep works in, enough for the longest text; pages that it never needs stay unused."""
    most = int(max(statistics.words().max(initial=0), statistics.lines().max(initial=0))) + 3
    places = np.empty((kernel.GROUP_ENDS + 1, most), np.int32)
    table = np.empty(4 * most + 2, np.int32)
    return (
        places,
        places[kernel.NUMBERS].view(np.uint8),
        table,
        table.view(np.uint8),
        np.empty((2, most), np.int64),
        np.empty(int(np.diff(statistics.offsets).max(initial=0)) + 8, np.uint8),
    )


def count_repetitions(statistics: TextStatistics, preset: Preset) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return all counts by name, int64[n] each."""
    as_datatrove = preset == "datatrove-0.10"
    counts = kernel.sweep(*statistics, code_point_classes(), as_datatrove, *scratch(statistics))
    return dict(zip(kernel.COUNTS, counts, strict=True))


def count_text(text: str, preset: Preset) -> dict[str, int]:
    """Return the counts of one text by name: the plain-Python reference."""
    counts = _count_as_datatrove(text) if preset == "datatrove-0.10" else _count(text)
    return dict(zip(kernel.COUNTS, counts, strict=True))


def _count(text: str) -> list[int]:
    """Count as thresher-1: everything in words, white space left out."""
    tokens = words(text)
    split = [tuple(words(line)) for line in lines(text)]
    filled = [line for line in split if line]
    paragraphs: list[tuple[str, ...]] = []
    for index, line in enumerate(split):
        if line and index > 0 and split[index - 1] and paragraphs:
            paragraphs[-1] += line
        elif line:
            paragraphs.append(line)
    result = [sum(map(len, tokens)), *_repeated(filled), *_repeated(paragraphs)]
    for size in range(kernel.FIRST_TOP, kernel.LAST_DUPLICATE + 1):
        grams = [tuple(tokens[place : place + size]) for place in range(len(tokens) - size + 1)]
        counts = Counter(grams)
        covered: set[int] = set()
        if size <= kernel.LAST_TOP:
            best = max(counts, key=lambda gram: (counts[gram], sum(map(len, gram))), default=())
            chosen = [place for place, gram in enumerate(grams) if gram == best and counts[best] > 1]
        else:
            seen: set[tuple[str, ...]] = set()
            chosen = []
            for place, gram in enumerate(grams):
                if gram in seen:
                    chosen.append(place)
                seen.add(gram)
        for place in chosen:
            covered.update(range(place, place + size))
        result.append(sum(len(tokens[place]) for place in covered))
    return result


def _count_as_datatrove(text: str) -> list[int]:
    """Count as ``GopherRepetitionFilter`` of datatrove 0.10 does, with our words."""
    result = [
        len(text),
        *_repeated(re.split("\n+", text)),
        *_repeated(re.split("\n\n+", text.strip(members(WHITE_SPACE)))),
    ]
    tokens = words(text)
    for size in range(kernel.FIRST_TOP, kernel.LAST_TOP + 1):
        counts = Counter(" ".join(tokens[place : place + size]) for place in range(len(tokens) - size + 1))
        best = max(counts, key=lambda gram: counts[gram], default="")
        result.append(len(best) * counts[best])
    for size in range(kernel.FIRST_DUPLICATE, kernel.LAST_DUPLICATE + 1):
        seen: set[str] = set()
        characters = place = 0
        while place + size <= len(tokens):
            gram = "".join(tokens[place : place + size])
            characters += len(gram) if gram in seen else 0
            place += size if gram in seen else 1
            seen.add(gram)
        result.append(characters)
    return result


def _repeated(parts: Sequence[str | tuple[str, ...]]) -> tuple[int, int, int]:
    """Return the number of parts, that of parts that occurred before, and the characters of those."""
    seen: set[Hashable] = set()
    repeated = characters = 0
    for part in parts:
        if part in seen:
            repeated += 1
            characters += sum(map(len, part))
        seen.add(part)
    return len(parts), repeated, characters
