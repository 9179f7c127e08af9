"""What was found of the index in a batch of texts: all that a verdict needs, so that it needs no text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.packing import pack_arrays, unpack_arrays
from corpus.text import text_buffers
from filters.contamination_index import ContaminationIndex
from filters.contamination_tokens import changed_rows, original_spans, ready_texts, token_table

Numbers = npt.NDArray[np.int64]

ROW_SHIFT = 32
DTYPES = (np.int32, np.uint32, np.int32, np.int32, np.int32, np.int32, np.int32, np.int64, np.int32, np.uint8)


class Evidence(NamedTuple):
    """What n texts hold of the index, packed.

    Attributes:
        ngram_rows: int32[h], the row of each hit, ascending.
        ngrams: uint32[h], its n-gram, by the number of its first posting; distinct within a row.
        rows: int32[m], the row of each match, ascending.
        entries: int32[m], what is found.
        items: int32[m], the item that the entry belongs to; an entry of several items gives several matches.
        starts, ends: int32[m], bytes of the text.
        matched_offsets: int64[m + 1] into ``matched``.
        matched: int32, the tokens of the entry that are found, counted from its first.
        near: uint8[m], which parts of the item stand near, see ``filters.contamination_parts_kernel``.
    """

    ngram_rows: npt.NDArray[np.int32]
    ngrams: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    matched_offsets: Numbers
    matched: npt.NDArray[np.int32]
    near: npt.NDArray[np.uint8]

    def packed(self) -> bytes:
        """Return the evidence as bytes."""
        return pack_arrays(self)

    def of_row(self, row: int) -> Evidence:
        """Return the evidence on one record, as that of a batch of its own."""
        hits = slice(*np.searchsorted(self.ngram_rows, [row, row + 1]).tolist())
        first, last = np.searchsorted(self.rows, [row, row + 1]).tolist()
        own = slice(first, last)
        offsets = self.matched_offsets[first : last + 1]
        return Evidence(
            np.zeros_like(self.ngram_rows[hits]),
            self.ngrams[hits],
            np.zeros_like(self.rows[own]),
            self.entries[own],
            self.items[own],
            self.starts[own],
            self.ends[own],
            offsets - offsets[0],
            self.matched[offsets[0] : offsets[-1]],
            self.near[own],
        )

    @classmethod
    def joined(cls, parts: Sequence[Evidence], rows: Sequence[int]) -> Evidence:
        """Return the evidence on a batch, given that on single records and their rows, ascending."""
        if not parts:
            kinds = zip(cls._fields, DTYPES, strict=True)
            return cls(*(np.zeros(int(name == "matched_offsets"), kind) for name, kind in kinds))
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._fields}
        for name, counted in (("ngram_rows", "ngrams"), ("rows", "entries")):
            counts = [len(getattr(part, counted)) for part in parts]
            columns[name] = np.repeat(np.array(rows, np.int32), counts)
        lengths = np.concatenate([np.diff(part.matched_offsets) for part in parts])
        columns["matched_offsets"] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(**columns)

    @classmethod
    def unpacked(cls, data: bytes) -> Evidence:
        """Return the evidence that was packed."""
        return cls(*unpack_arrays(data, DTYPES))


def gather(
    texts: pa.StringArray, rows: npt.NDArray[np.bool_], index: ContaminationIndex, answer_distance: int
) -> Evidence:
    """Return what texts hold of the index.

    Args:
        texts: n texts.
        rows: bool[n], which to look at.
        index: what is looked for.
        answer_distance: tokens that may stand between a question and its answer, choices or context.
    """
    from filters.contamination_kernel import find_matches
    from filters.contamination_parts_kernel import parts_near

    ready = ready_texts(texts, rows)
    arguments = (*text_buffers(ready), rows, *token_table())
    hits, found, matched_offsets, matched = find_matches(
        *arguments,
        index.tokens,
        index.weights,
        index.entry_starts,
        index.entry_flags,
        index.postings,
        index.directory,
        index.bits,
    )
    pairs = np.unique(hits[0::2] << ROW_SHIFT | hits[1::2])
    # An entry of several items is a match of each of them.
    counts = np.diff(index.entry_items)[found[:, 1]]
    source = np.repeat(np.arange(len(found)), counts)
    nth = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    items = index.items[index.entry_items[found[source, 1]] + nth].astype(np.int64)
    order = np.lexsort((found[source, 1], items, found[source, 4], found[source, 0]))
    source, items = source[order], items[order]
    places = np.column_stack([found[source, 0], found[source, 2], found[source, 3], items])
    near = parts_near(
        *arguments,
        np.ascontiguousarray(places),
        index.tokens,
        index.part_starts,
        index.part_kinds,
        index.part_telling,
        index.item_parts,
        answer_distance,
    )
    lengths = np.diff(matched_offsets)[source]
    starts = matched_offsets[source]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    members = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    first, last = _places_as_given(texts, ready, rows, found[source, 0], found[source, 4], found[source, 5])
    return Evidence(
        ngram_rows=(pairs >> ROW_SHIFT).astype(np.int32),
        ngrams=(pairs & (1 << ROW_SHIFT) - 1).astype(np.uint32),
        rows=found[source, 0].astype(np.int32),
        entries=found[source, 1].astype(np.int32),
        items=items.astype(np.int32),
        starts=first.astype(np.int32),
        ends=last.astype(np.int32),
        matched_offsets=offsets,
        matched=matched[members].astype(np.int32),
        near=near,
    )


def _places_as_given(
    texts: pa.StringArray,
    ready: pa.StringArray,
    rows: npt.NDArray[np.bool_],
    match_rows: Numbers,
    starts: Numbers,
    ends: Numbers,
) -> tuple[Numbers, Numbers]:
    """Return starts and ends in the texts as given, for those of the texts as they were made ready."""
    if ready is texts or not len(match_rows):
        return starts, ends
    starts, ends = starts.copy(), ends.copy()
    changed = changed_rows(texts, rows)
    for row in np.unique(match_rows[changed[match_rows]]).tolist():
        own = match_rows == row
        text = texts[row].as_py()
        starts[own], ends[own] = original_spans(text, starts[own], ends[own])
    return starts, ends
