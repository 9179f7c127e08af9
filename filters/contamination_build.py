"""From benchmark items to their index: which texts are looked for, what their tokens weigh, where n-grams occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.text import text_buffers
from filters.contamination_index import Array, ContaminationIndex
from filters.contamination_ngrams import ngram_tables
from filters.contamination_settings import (
    ANSWER,
    EXACT,
    FEWEST_DISTINCT,
    JUNCTION,
    MOST_SHARING,
    NEEDS_PART,
    NGRAM_TOKENS,
    PART_ANSWER,
    PART_CHOICE,
    PART_CONTEXT,
    QUESTION,
    ItemLengths,
)
from filters.contamination_tokens import ALONE_BIT, ready_texts, token_table, tokens
from filters.suite_items import BenchmarkItem

LONG, SHORT = 0, 1
UNCHECKABLE = {
    2: "empty",
    3: "no words",
    4: "too few distinct words",
    5: "too short without an answer, choices or context that tell something",
    6: "its text is shared by many items",
}
"""Why an item cannot be checked, by ``item_status``."""
EMPTY, WORDLESS, FEW_DISTINCT, TOO_SHORT, SHARED = UNCHECKABLE

LEAST_WEIGHT, MOST_WEIGHT = 16, 32
FRACTION_BITS = 8
CHUNK_TEXTS = 1 << 16
COMMON_ANSWERS = 100
"""An answer of one in so many items of its benchmark, and of three at least, tells nothing."""
BARE_CHARACTERS = 3
"""What has fewer characters (a label, a number) tells nothing."""
BARE_TOKENS = 4
BARE_ANSWERS = ("yes", "no", "true", "false", "none", "none of the above", "all of the above")


@dataclass
class _Draft:
    """Texts of entries and parts, to be turned into tokens together."""

    texts: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)

    def add(self, text: str, kind: int, item: int) -> None:
        self.texts.append(text)
        self.kinds.append(kind)
        self.items.append(item)


def build_index(items: Sequence[BenchmarkItem], lengths: ItemLengths | None = None) -> ContaminationIndex:
    """Return the index of benchmark items, in any order; their ids are distinct within a benchmark."""
    lengths = lengths or ItemLengths()
    ordered = sorted(items, key=lambda item: (item.benchmark, item.id))
    candidates, parts = _Draft(), _Draft()
    for number, item in enumerate(ordered):
        for question in item.questions:
            candidates.add(question, QUESTION, number)
            if item.answer:
                candidates.add(f"{question}\n{item.answer}", JUNCTION, number)
        if item.answer:
            candidates.add(item.answer, ANSWER, number)
            parts.add(item.answer, PART_ANSWER, number)
        for choice in item.choices:
            parts.add(choice, PART_CHOICE, number)
        if item.context:
            parts.add(item.context, PART_CONTEXT, number)
    part_offsets, part_tokens = _tokens(parts.texts)
    telling = _telling(ordered, parts, np.diff(part_offsets))
    offsets, hashes = _tokens(candidates.texts)
    chosen = _chosen_entries(ordered, candidates, offsets, hashes, parts, telling, lengths)
    flags = np.array([flag for _, flag, _ in chosen], np.uint8)
    entry_tokens = [hashes[offsets[number] : offsets[number + 1]] for number, _, _ in chosen]
    entry_starts = np.cumsum([0, *map(len, entry_tokens)], dtype=np.int64)
    all_entry_tokens = np.concatenate([np.zeros(0, np.uint32), *entry_tokens])
    if len(all_entry_tokens) + len(part_tokens) >= 1 << 32:
        raise ValueError("the suites have more than 2**32 tokens")
    members = [group for _, _, group in chosen]
    postings, directory, bits = ngram_tables(all_entry_tokens, entry_starts, flags)
    names = sorted({item.benchmark for item in ordered})
    numbers = {name: number for number, name in enumerate(names)}
    ids = [item.id.encode() for item in ordered]
    return ContaminationIndex(
        benchmarks=tuple(names),
        item_benchmark=np.array([numbers[item.benchmark] for item in ordered], np.int32),
        id_offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        id_data=np.frombuffer(b"".join(ids), np.uint8),
        item_status=_statuses(ordered, candidates, offsets, hashes, chosen, lengths),
        tokens=np.concatenate([all_entry_tokens, part_tokens]),
        weights=token_weights(all_entry_tokens, entry_starts),
        entry_starts=entry_starts,
        entry_flags=flags,
        entry_words=np.array([word_count(own) for own in entry_tokens], np.int32),
        entry_items=np.cumsum([0, *map(len, members)], dtype=np.int32),
        items=np.array([item for group in members for item in group], np.int32),
        part_starts=part_offsets + len(all_entry_tokens),
        part_kinds=np.array(parts.kinds, np.uint8),
        part_telling=telling,
        item_parts=np.searchsorted(np.array(parts.items, np.int64), np.arange(len(ordered) + 1)).astype(np.int32),
        postings=postings,
        directory=directory,
        bits=bits,
    )


def word_count(tokens: npt.NDArray[np.uint32]) -> int:
    """Return how many words tokens count for: two that stand alone, as one."""
    alone = int(np.count_nonzero(tokens & ALONE_BIT))
    return len(tokens) - alone + alone // 2


def _tokens(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return int64[n + 1] offsets and the tokens of n texts."""
    from filters.contamination_token_kernel import token_hashes

    lengths, hashes = [np.zeros(1, np.int64)], [np.zeros(0, np.uint32)]
    for start in range(0, len(texts), CHUNK_TEXTS):
        array = pa.array(texts[start : start + CHUNK_TEXTS], pa.string())
        rows = np.ones(len(array), np.bool_)
        firsts, found, _, _ = token_hashes(*text_buffers(ready_texts(array, rows)), rows, *token_table())
        lengths.append(np.diff(firsts))
        hashes.append(found)
    return np.cumsum(np.concatenate(lengths)), np.concatenate(hashes)


def _telling(items: Sequence[BenchmarkItem], parts: _Draft, lengths: Array) -> npt.NDArray[np.uint8]:
    """Return 1 for each part that says something by itself, 0 for "yes", labels, numbers, and common answers."""
    counts: dict[tuple[str, str], int] = {}
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.benchmark] = sizes.get(item.benchmark, 0) + 1
        if item.answer:
            counts[item.benchmark, item.answer] = counts.get((item.benchmark, item.answer), 0) + 1
    telling = np.zeros(len(parts.texts), np.uint8)
    for number, (text, kind) in enumerate(zip(parts.texts, parts.kinds, strict=True)):
        benchmark = items[parts.items[number]].benchmark
        words = " ".join(tokens(text)) if lengths[number] <= BARE_TOKENS else text
        bare = words in BARE_ANSWERS or len(words) < BARE_CHARACTERS
        common = kind == PART_ANSWER and counts[benchmark, text] > max(2, sizes[benchmark] // COMMON_ANSWERS)
        telling[number] = not bare and not common
    return telling


def _chosen_entries(
    items: Sequence[BenchmarkItem],
    candidates: _Draft,
    offsets: Array,
    hashes: npt.NDArray[np.uint32],
    parts: _Draft,
    telling: Array,
    lengths: ItemLengths,
) -> list[tuple[int, int, list[int]]]:
    """Return (candidate, flags, items) of the candidates that are looked for; equal ones are one entry."""
    has_part = {parts.items[number] for number in np.flatnonzero(telling).tolist()}
    groups: dict[tuple[int, bytes], tuple[int, list[int]]] = {}
    for number, (kind, item) in enumerate(zip(candidates.kinds, candidates.items, strict=True)):
        own = hashes[offsets[number] : offsets[number + 1]]
        flags = _flags(kind, own, item in has_part, lengths)
        if flags is None or (kind == JUNCTION and not _needs_junction(candidates, offsets, hashes, number, lengths)):
            continue
        _, members = groups.setdefault((flags, own.tobytes()), (number, []))
        if item not in members[-1:]:
            members.append(item)
    return [
        (number, flags, members) for (flags, _), (number, members) in groups.items() if len(members) <= MOST_SHARING
    ]


def _flags(kind: int, hashes: npt.NDArray[np.uint32], has_part: bool, lengths: ItemLengths) -> int | None:
    """Return kind and flags of an entry with these tokens, None where it must not be one."""
    words = word_count(hashes)
    if len(hashes) < NGRAM_TOKENS or len(np.unique(hashes)) < FEWEST_DISTINCT:
        return None
    least = lengths.answer_words if kind == ANSWER else lengths.question_words
    flags = kind
    if words < least:
        if kind != QUESTION or not has_part:
            return None
        flags |= NEEDS_PART
    if words < lengths.edited_words:
        flags |= EXACT
    return flags


def _needs_junction(
    candidates: _Draft, offsets: Array, hashes: npt.NDArray[np.uint32], number: int, lengths: ItemLengths
) -> bool:
    """Say whether the question before a junction, in the order of the candidates, is too short by itself."""
    return word_count(hashes[offsets[number - 1] : offsets[number]]) < lengths.question_words


def _statuses(
    items: Sequence[BenchmarkItem],
    candidates: _Draft,
    offsets: Array,
    hashes: npt.NDArray[np.uint32],
    chosen: Sequence[tuple[int, int, list[int]]],
    lengths: ItemLengths,
) -> npt.NDArray[np.uint8]:
    statuses = np.full(len(items), TOO_SHORT, np.uint8)
    longest: dict[int, npt.NDArray[np.uint32]] = {}
    for number, owner in enumerate(candidates.items):
        own = hashes[offsets[number] : offsets[number + 1]]
        if len(own) >= len(longest.get(owner, own)):
            longest[owner] = own
    for number, item in enumerate(items):
        found = longest.get(number, np.zeros(0, np.uint32))
        if not any(text.strip() for text in (*item.questions, item.answer)):
            statuses[number] = EMPTY
        elif not len(found):
            statuses[number] = WORDLESS
        elif len(np.unique(found)) < FEWEST_DISTINCT:
            statuses[number] = FEW_DISTINCT
        elif word_count(found) >= lengths.edited_words:
            statuses[number] = SHARED
    for _, flags, members in chosen:
        status = SHORT if flags & EXACT else LONG
        for member in members:
            statuses[member] = min(statuses[member], status)
    return statuses


def token_weights(tokens: npt.NDArray[np.uint32], entry_starts: Array) -> npt.NDArray[np.uint8]:
    """Return the weight of each token of the entries, uint8, by the number d of the n entries that have it.

    It is 32 - 16 log(d) / log(n), so 32 for a token of one entry and 16 for one of all: rare words decide, but a
    changed one costs at most twice a common one. Computed in integers, it is the same on every machine.
    """
    count = len(entry_starts) - 1
    entries = np.repeat(np.arange(count), np.diff(entry_starts))
    order = np.lexsort((entries, tokens))
    sorted_tokens, sorted_entries = tokens[order], entries[order]
    new_token = np.diff(sorted_tokens, prepend=sorted_tokens[:1] ^ 1) != 0
    new_pair = new_token | (np.diff(sorted_entries, prepend=-1) != 0)
    group = np.cumsum(new_token) - 1
    frequencies = np.bincount(group[new_pair], minlength=int(new_token.sum()))
    distinct, inverse = np.unique(frequencies, return_inverse=True)
    scale = max(1, _logarithm(count))
    spread = MOST_WEIGHT - LEAST_WEIGHT
    table = np.array([MOST_WEIGHT - spread * _logarithm(int(value)) // scale for value in distinct], np.uint8)
    weights = np.empty(len(tokens), np.uint8)
    weights[order] = table[inverse][group]
    return weights


def _logarithm(value: int) -> int:
    """Return the logarithm to base 2 of a whole number, 0 for 0, in units of 2**-FRACTION_BITS, rounded down."""
    whole = max(value.bit_length() - 1, 0)
    fraction = 0
    scaled = value << 32 >> whole if value else 1 << 32
    for _ in range(FRACTION_BITS):
        scaled = scaled * scaled >> 32
        fraction = fraction << 1 | (scaled >> 33 & 1)
        if scaled >> 33:
            scaled >>= 1
    return whole << FRACTION_BITS | fraction
