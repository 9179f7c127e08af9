"""Lists of bad words as the tables that the kernel reads, and its plain-Python reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.case_folding import fold, folding_table
from corpus.errors import UsageError
from corpus.list_files import read_list
from corpus.text import text_buffers
from corpus.unicode_tables import (
    MARK,
    PUNCTUATION,
    SEPARATOR,
    UNSPACED,
    Classes,
    code_point_classes,
    regular_expression_class,
)
from filters import badwords_kernel as kernel

Numbers = npt.NDArray[np.int32]


class WordList(NamedTuple):
    """A list of entries and the tables of ``filters.badwords_kernel.find_entries``."""

    entries: list[str]
    classes: Classes
    slots: Numbers
    edges: Numbers
    points: Numbers
    entry_of_node: Numbers


@cache
def _pattern() -> re.Pattern[str]:
    alone, separators = regular_expression_class(UNSPACED | PUNCTUATION), regular_expression_class(SEPARATOR)
    return re.compile(f"[{alone}][{regular_expression_class(MARK)}]*|[^{separators}{alone}]+")


def plain_words(text: str) -> list[str]:
    """Return the folded words of a text as ``corpus.text.words`` does; punctuation marks are words by themselves."""
    return [fold(word) for word in _pattern().findall(text)]


def word_list(entries: Sequence[str]) -> WordList:
    """Return the tables of a list of entries, each of which has a word."""
    tree: dict[tuple[int, str], int] = {}
    entry_of_node = [-1]
    firsts = set()
    for number, entry in enumerate(entries):
        node = 0
        words = plain_words(entry)
        firsts.add(ord(words[0][0]))
        for word in words:
            if (node, word) not in tree:
                tree[node, word] = len(entry_of_node)
                entry_of_node.append(-1)
            node = tree[node, word]
        if entry_of_node[node] < 0:
            entry_of_node[node] = number
    folding = folding_table()
    classes = code_point_classes().copy()
    classes[(classes & PUNCTUATION) != 0] |= UNSPACED
    classes[np.isin(folding, list(firsts))] |= kernel.BEGINS
    slots = np.full(1 << (2 * len(tree)).bit_length(), -1, np.int32)
    edges = np.empty((kernel.LAST + 1, len(tree)), np.int32)
    points: list[int] = []
    for edge, ((node, word), child) in enumerate(tree.items()):
        edges[:, edge] = (node, child, len(points), len(points) + len(word))
        points.extend(map(ord, word))
        slot = int(kernel.slot_of(*text_buffers(pa.array([word])), folding, node)) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = edge
    return WordList(list(entries), classes, slots, edges, np.array(points, np.int32), np.array(entry_of_node, np.int32))


def read_word_list(path: str, setting: str) -> WordList:
    """Read a list. Raises UsageError for a file that cannot be used, or an entry without a word."""
    entries = read_list(path, setting)
    for line, entry in entries:
        if not plain_words(entry):
            raise UsageError(f"{setting}: {path}, line {line}: found {entry!r}; wanted a word or phrase")
    return word_list([entry for _, entry in entries])


def find_in_batch(
    texts: pa.StringArray, rows: npt.NDArray[np.bool_], words: WordList
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for n texts at how many words an entry begins, and the number of the first entry found, -1 for none."""
    offsets, data = text_buffers(texts)
    return kernel.find_entries(offsets, data, rows, words.classes, folding_table(), *words[2:])


def find_in_text(text: str, entries: Sequence[str]) -> tuple[int, int]:
    """Return what the kernel finds in one text: the plain-Python reference."""
    wanted = [plain_words(entry) for entry in entries]
    words = plain_words(text)
    count, first = 0, -1
    for place in range(len(words)):
        found = [
            (len(entry), number) for number, entry in enumerate(wanted) if words[place : place + len(entry)] == entry
        ]
        if found:
            count += 1
            first = min(found)[1] if first < 0 else first
    return count, first
