"""What the rules of ``gopher_quality`` count: its stop words as a table, and the plain-Python reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.punctuation import punctuation
from corpus.text import Bytes, lines, words
from corpus.text_statistics import TextStatistics
from corpus.unicode_tables import LETTER, UNSPACED, WHITE_SPACE, code_point_classes, members
from filters import gopher_kernel as kernel
from filters.counting import Preset


class StopWords(NamedTuple):
    """Lists of stop words for ``filters.gopher_kernel.sweep``; the words of all lists are numbered through.

    Attributes:
        sizes: how many different words each of k lists has, int64[k].
        buckets: the words of list i with a key are numbers ``buckets[i, key]`` to ``buckets[i, key + 1] - 1``.
        offsets: word j is ``data[offsets[j]:offsets[j + 1]]``.
        data: UTF-8.
    """

    sizes: npt.NDArray[np.int64]
    buckets: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]
    data: Bytes


def stop_word_table(lists: Sequence[Iterable[str]]) -> StopWords:
    """Return the table of lists of stop words; order and repetitions within a list make no difference."""
    sizes, buckets = [], []
    numbered: list[bytes] = []
    for listed in lists:
        keyed = sorted((kernel.stop_word_key(word[0], len(word)), word) for word in {word.encode() for word in listed})
        keys = np.array([key for key, _ in keyed], np.int64)
        buckets.append(len(numbered) + np.searchsorted(keys, np.arange(kernel.KEYS + 1)))
        sizes.append(len(keyed))
        numbered += [word for _, word in keyed]
    return StopWords(
        sizes=np.array(sizes, np.int64),
        buckets=np.array(buckets, np.int32),
        offsets=np.cumsum([0, *map(len, numbered)], dtype=np.int32),
        data=np.frombuffer(b"".join(numbered), np.uint8),
    )


def count_words_and_lines(
    statistics: TextStatistics, preset: Preset, stop_words: StopWords, chosen: npt.NDArray[np.int64]
) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return all counts by name, int64[n] each; ``chosen`` holds the number of each text's list of stop words."""
    counts = kernel.sweep(*statistics, code_point_classes(), preset == "datatrove-0.10", *stop_words, chosen)
    return {"tokens": statistics.words(), "lines": statistics.lines(), **dict(zip(kernel.COUNTS, counts, strict=True))}


def count_text(text: str, preset: Preset, stop_words: Iterable[str]) -> dict[str, int]:
    """Return the counts of one text by name: the plain-Python reference."""
    classes = code_point_classes()
    is_punctuation = punctuation(preset)
    tokens = words(text)
    content = [token for token in tokens if not all(is_punctuation[ord(character)] for character in token)]
    white = members(WHITE_SPACE)
    stripped = [line.strip(white) for line in lines(text)]
    return {
        "tokens": len(tokens),
        "lines": len(stripped),
        "words": len(content),
        "word_characters": sum(map(len, content)),
        "alphabetic_tokens": sum(any(classes[ord(character)] & LETTER for character in token) for token in tokens),
        "unspaced_tokens": sum(bool(classes[ord(token[0])] & UNSPACED) for token in tokens),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "bullet_lines": sum(line.startswith(("•", "-")) for line in stripped),
        "ellipsis_lines": sum(line.endswith(("...", "…")) for line in stripped),
        "stop_words": len(set(stop_words).intersection(tokens)),
    }
