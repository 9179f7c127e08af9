"""Looking for listed words and phrases in texts, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.span_kernel import EMPTY, SEED, Words, mix
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, CLASSES, ENDS_RUN, OFFSETS, ROWS, decode, pointer
from corpus.unicode_tables import MARK, OWN_BITS, SEPARATOR, UNSPACED, Classes

BEGINS = 1 << OWN_BITS
"""Class bit of the code points with which an entry of the list can begin."""

# Rows of the table of edges: from node, to node, and the span of the word among the code points of all words.
FROM, TO, FIRST, LAST = 0, 1, 2, 3

NUMBERS = "Array(int32, 1, 'C', True)"
EDGES = "Array(int32, 2, 'C', True)"


@inlined
def end_of_word(text: Bytes, start: int, end: int, classes: Classes) -> int:
    """Return where the word ends that starts at a byte position, as ``scan_word`` does.

    Here characters below 128 can be UNSPACED, which ``scan_word`` does not expect.
    """
    code_point, size = decode(text, start)
    goes_on = MARK if classes[code_point] & UNSPACED else 0
    position = start + size
    while position < end:
        code_point, size = decode(text, position)
        found = int(classes[code_point])
        if not found & goes_on if goes_on else found & ENDS_RUN:
            break
        position += size
    return position


@inlined
def hash_word(text: Bytes, start: int, end: int, folding: Words, node: int) -> int:
    """Return the hash of the folded code points of a word and the node that it leads from."""
    state = mix(SEED, node)
    while start < end:
        code_point, size = decode(text, start)
        state = mix(state, folding[code_point])
        start += size
    return state


@inlined
def same_word(text: Bytes, start: int, end: int, folding: Words, points: Words, first: int, last: int) -> bool:
    """Say whether the folded code points of a word are those between two places."""
    while start < end:
        code_point, size = decode(text, start)
        if first == last or folding[code_point] != points[first]:
            return False
        start += size
        first += 1
    return first == last


@kernel(
    f"Tuple((int64[::1], int64[::1]))({OFFSETS}, {BYTES}, {ROWS}, {CLASSES}, {NUMBERS}, {NUMBERS}, {EDGES}, {NUMBERS}, "
    f"{NUMBERS})"
)
def find_entries(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    classes: Classes,
    folding_points: Words,
    slots: Words,
    edges: npt.NDArray[np.int32],
    word_points: Words,
    entry_of_node: Words,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return at how many words of each text an entry begins, and the first entry found, -1 for none.

    Args:
        offsets, data: n texts, see ``corpus.text.text_buffers``.
        rows: bool[n], the texts to look at.
        classes: class bits of the code points, in which punctuation is UNSPACED, with ``BEGINS``.
        folding_points: see ``corpus.case_folding.folding_table``.
        slots: open-addressing table of edges by ``hash_word``, its length a power of two.
        edges: int32[4, edges] of a tree of words; node 0 is its root.
        word_points: folded code points of the words of the edges.
        entry_of_node: the entry that ends at each node, -1 for none.
    """
    counts = np.zeros(len(rows), np.int64)
    entries = np.full(len(rows), EMPTY, np.int64)
    text, class_table, folding = pointer(data), pointer(classes), pointer(folding_points)
    points = pointer(word_points)
    mask = len(slots) - 1
    for row in range(len(rows)):
        position, end = int(offsets[row]), int(offsets[row + 1])
        while rows[row] and position < end:
            code_point, size = decode(text, position)
            found = int(class_table[code_point])
            if found & SEPARATOR:
                position += size
                continue
            start = position
            position = end_of_word(text, start, end, class_table)
            if not found & BEGINS:
                continue
            node, stop = 0, position
            while True:
                slot = hash_word(text, start, stop, folding, node) & mask
                edge = slots[slot]
                while edge != EMPTY and not (
                    edges[FROM, edge] == node
                    and same_word(text, start, stop, folding, points, int(edges[FIRST, edge]), int(edges[LAST, edge]))
                ):
                    slot = (slot + 1) & mask
                    edge = slots[slot]
                if edge == EMPTY:
                    break
                node = int(edges[TO, edge])
                if entry_of_node[node] != EMPTY:
                    counts[row] += 1
                    if entries[row] == EMPTY:
                        entries[row] = entry_of_node[node]
                    break
                start = stop
                while start < end:
                    code_point, size = decode(text, start)
                    if not class_table[code_point] & SEPARATOR:
                        break
                    start += size
                if start >= end:
                    break
                stop = end_of_word(text, start, end, class_table)
    return counts, entries


@kernel(f"int64({OFFSETS}, {BYTES}, {NUMBERS}, int64)")
def slot_of(offsets: Offsets, data: Bytes, folding_points: Words, node: int) -> int:
    """Return the hash by which the edge of a word from a node is found; the word is the one text given."""
    return hash_word(pointer(data), int(offsets[0]), int(offsets[1]), pointer(folding_points), node)
