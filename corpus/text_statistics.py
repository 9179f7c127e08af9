"""Where the words and lines of a batch of texts are: found once, shared by all stages that count.

The first stage that asks has one sweep made over the bytes; those behind it, as long as no stage edits the texts, get
the same tables. A stage then costs what its own rules cost.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from corpus import text_statistics_kernel as kernel
from corpus.punctuation import punctuation
from corpus.stages import TextBatch
from corpus.text import Bytes, Offsets, text_buffers
from corpus.unicode_tables import Classes, code_point_classes, code_points

SIGNS = "23 2E 2026"

_SHARED = "text statistics"


class TextStatistics(NamedTuple):
    """Words and lines (``corpus.text.words``, ``corpus.text.lines``) of n texts; all counts of texts not alive are 0.

    All places are byte positions in ``data``. Words are numbered through the batch, and so are lines.

    Attributes:
        offsets, data: the texts, as ``corpus.text.text_buffers`` returns them.
        characters: code points of each text, int64[n].
        word_firsts: the words of text i are ``word_firsts[i]`` to ``word_firsts[i + 1] - 1``, int64[n + 1].
        word_starts, word_ends: word k is ``data[word_starts[k]:word_ends[k]]``, int32[words].
        word_characters: code points of all words before word k, so that word k has ``word_characters[k + 1] -
            word_characters[k]``; int32[words + 1].
        word_classes: which classes occur in word k, uint16[words]: the bits of
            ``corpus.text_statistics_kernel.WORD_CLASSES``.
        line_firsts: the lines of text i are ``line_firsts[i]`` to ``line_firsts[i + 1] - 1``, int64[n + 1].
        line_starts, line_ends: line k is ``data[line_starts[k]:line_ends[k]]`` without what ends it, int32[lines]. A
            line that ends with the text, not with a line break, has the end of the text as its end.
        line_words: the words of line k are ``line_words[k]`` to ``line_words[k + 1] - 1``, int32[lines + 1].
    """

    offsets: Offsets
    data: Bytes
    characters: npt.NDArray[np.int64]
    word_firsts: npt.NDArray[np.int64]
    word_starts: npt.NDArray[np.int32]
    word_ends: npt.NDArray[np.int32]
    word_characters: npt.NDArray[np.int32]
    word_classes: Classes
    line_firsts: npt.NDArray[np.int64]
    line_starts: npt.NDArray[np.int32]
    line_ends: npt.NDArray[np.int32]
    line_words: npt.NDArray[np.int32]

    def words(self) -> npt.NDArray[np.int64]:
        """Return the number of words of each text, int64[n]."""
        return np.diff(self.word_firsts)

    def lines(self) -> npt.NDArray[np.int64]:
        """Return the number of lines of each text, blank ones included, int64[n]."""
        return np.diff(self.line_firsts)


@cache
def statistics_classes() -> Classes:
    """Return the class bits of all code points, with those of ``corpus.text_statistics_kernel``; read-only."""
    classes: Classes = code_point_classes().copy()
    classes[~punctuation("thresher-1")] |= kernel.CONTENT
    classes[~punctuation("datatrove-0.10")] |= kernel.DATATROVE_CONTENT
    classes[code_points(SIGNS)] |= kernel.SIGN
    classes.setflags(write=False)
    return classes


def text_statistics(batch: TextBatch) -> TextStatistics:
    """Return the words and lines of the texts of a batch; made by the first call for as long as the texts stay.

    They take 14 bytes per word and 12 per line. Memory is asked for as if every second byte were a word and every byte
    a line, which is 19 times the text; what is not written is never taken from the system.
    """
    if _SHARED not in batch.shared:
        batch.shared[_SHARED] = _measure(batch)
    return cast("TextStatistics", batch.shared[_SHARED])


def _measure(batch: TextBatch) -> TextStatistics:
    offsets, data = text_buffers(batch.texts)
    texts = len(batch)
    most_lines = int(offsets[-1] - offsets[0])
    most_words = (most_lines + texts) // 2  # a word of one byte has a separator behind it, or the end of its text
    tables = TextStatistics(
        offsets=offsets,
        data=data,
        characters=np.empty(texts, np.int64),
        word_firsts=np.empty(texts + 1, np.int64),
        word_starts=np.empty(most_words, np.int32),
        word_ends=np.empty(most_words, np.int32),
        word_characters=np.empty(most_words + 1, np.int32),
        word_classes=np.empty(most_words, np.uint16),
        line_firsts=np.empty(texts + 1, np.int64),
        line_starts=np.empty(most_lines, np.int32),
        line_ends=np.empty(most_lines, np.int32),
        line_words=np.empty(most_lines + 1, np.int32),
    )
    words, lines = kernel.find_words_and_lines(offsets, data, batch.alive, statistics_classes(), *tables[2:])
    return tables._replace(
        word_starts=tables.word_starts[:words],
        word_ends=tables.word_ends[:words],
        word_characters=tables.word_characters[: words + 1],
        word_classes=tables.word_classes[:words],
        line_starts=tables.line_starts[:lines],
        line_ends=tables.line_ends[:lines],
        line_words=tables.line_words[: lines + 1],
    )
