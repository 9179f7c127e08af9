"""fastText's sum over the words and n-grams of texts, for a batch of texts as UTF-8 bytes, compiled.

``sum_rows`` turns each text into the mean of its rows of the input matrix; ``corpus.fasttext_loss_kernel`` turns that
into a label. Hashes and rows are those of fastText 0.9 (``Dictionary::getLine``, ``Dictionary::computeSubwords``).

Words repeat, and the sum of a word's rows depends on the word alone, so ``sum_rows`` remembers it in a table with two
slots per set (the ``Memo`` of ``corpus.fasttext``). The key is the word itself, compared in full: up to 32 bytes in
four integers; as no byte of a word is zero, zeros at the end mark a shorter one. Whether a word's sum is found or
computed, it is the same to the bit.

A text's sum taken word by word is rounded in other places than fastText's, which adds row by row in float32. That
shifts scores by a few 1e-6 in short texts, but in long ones fastText's own rounding passes 1e-5 (7e-4 in one of
1.3 MB). So a text above the setting MEMO_TEXT_BYTES is summed row by row, in fastText's order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.fasttext_rows_kernel import (
    BUCKETS,
    FIRST_CHARACTERS,
    LONGEST,
    MEMO_TEXT_BYTES,
    SHORTEST,
    SLOT_MASK,
    WIDTH,
    WORD_NGRAMS,
    WORDS,
    Floats,
    Integers,
    Longs,
    Model,
    Words,
    add_buckets,
    add_rows,
    has_row,
)
from corpus.fasttext_token_kernel import BASIS, cut, hash_step, is_space, next_part
from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import BYTES, OFFSETS, ROWS, pointer

Flags = npt.NDArray[np.bool_]

MEMO_KEY_BYTES = 32
MEMO_HEAD = 16
"""Width of what precedes the sum in the memo, in float32: key, hash, row count + 1, and two numbers unused."""
PENDING = 1024
"""From how many n-grams on their rows are added."""

_WORD_FACTOR = np.uint64(116049371)
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_1, _32 = np.uint64(1), np.uint64(32)
_END_OF_LINE = np.uint64(0x3E732F3C)  # "</s>" as a key
_LABEL_TOKEN = -1
_LABEL_PREFIX = b"__label__"

_LONGS = "Array(int64, 1, 'C', True)"
_MODEL = (
    f"{_LONGS}, {BYTES}, {_LONGS}, Array(int32, 1, 'C', True), "
    "Array(uint64, 1, 'C', True), Array(int32, 1, 'C', True), Array(float32, 2, 'C', True)"
)


class Scratch(NamedTuple):
    """Pointers to memory that is used within one token or text.

    Attributes:
        padded: uint8, as long as the longest text + 2.
        pending: int64, ``PENDING`` + the most n-grams that start at one character.
        hashes: int32, as long as the most tokens of a text + 1; of 1 where the model has no word n-grams.
        total: float32 [WIDTH].
    """

    padded: Bytes
    pending: Longs
    hashes: Integers
    total: Floats


def scratch_arrays(settings: Longs, longest_text: int) -> Scratch:
    """Return the arrays to which a ``Scratch`` points, for texts of up to so many bytes."""
    ngrams = min(max(int(settings[LONGEST]), 1), longest_text + 2)
    return Scratch(
        np.empty(max(longest_text, len("</s>")) + 2, np.uint8),
        np.empty(PENDING + ngrams, np.int64),
        np.empty(longest_text // 2 + 2 if settings[WORD_NGRAMS] > 1 else 1, np.int32),
        np.empty(int(settings[WIDTH]), np.float32),
    )


@inlined
def _find_entry(data: Bytes, begin: int, end: int, state: np.uint32, model: Model) -> int:
    """Return the slot of the dictionary that holds the token, or the free slot where it would go."""
    mask = model.settings[SLOT_MASK]
    slot = np.int64(state) & mask
    while model.slots[slot] >= 0:
        at = model.entry_offsets[model.slots[slot]]
        if model.entry_offsets[model.slots[slot] + 1] - at == end - begin:
            position = begin
            while position < end and data[position] == model.entry_bytes[at]:
                position += 1
                at += 1
            if position == end:
                break
        slot = (slot + 1) & mask
    return slot  # type: ignore[no-any-return]


@kernel(f"void({_MODEL}, int32[::1])")
def fill_slots(
    settings: Longs,
    entry_bytes: Bytes,
    entry_offsets: Longs,
    slots: Integers,
    bitmap: Words,
    ranks: Integers,
    matrix: Floats,
    filled: Integers,
) -> None:
    """Enter every string of the dictionary into a hash table.

    Args:
        entry_bytes: the strings one behind the other.
        entry_offsets: int64 [n + 1] into them.
        slots, filled: the same memory, filled with -1; SLOT_MASK + 1 slots, a power of two above n; takes the number of
            an entry at each used slot.
    """
    model = Model(
        pointer(settings), pointer(entry_bytes), pointer(entry_offsets), pointer(slots),
        pointer(bitmap), pointer(ranks), pointer(matrix),
    )  # fmt: skip
    for entry in range(len(entry_offsets) - 1):
        begin, end = entry_offsets[entry], entry_offsets[entry + 1]
        state = BASIS
        for position in range(begin, end):
            state = hash_step(state, entry_bytes[position])
        filled[_find_entry(model.entry_bytes, begin, end, state, model)] = entry


@inlined
def _is_label(data: Bytes, begin: int, end: int) -> bool:
    same = 0
    while same < min(len(_LABEL_PREFIX), end - begin) and data[begin + same] == _LABEL_PREFIX[same]:
        same += 1
    return same == len(_LABEL_PREFIX)


@inlined
def _add_token(
    data: Bytes, begin: int, end: int, model: Model, scratch: Scratch, total: Floats, at: int
) -> tuple[int, np.uint32]:
    """Add a token's rows to the total at ``total[at:at + WIDTH]``, one by one in fastText's order.

    Returns:
        The number of rows, or ``_LABEL_TOKEN`` for a token that is a label; and the token's hash.
    """
    settings = model.settings
    padded, pending = scratch.padded, scratch.pending
    size = end - begin + 2
    padded[0] = np.uint8(60)  # <
    token_state = BASIS
    for position in range(end - begin):
        byte = data[begin + position]
        padded[position + 1] = byte
        token_state = hash_step(token_state, byte)
    padded[size - 1] = np.uint8(62)  # >
    entry = np.int64(model.slots[_find_entry(data, begin, end, token_state, model)])
    if entry >= settings[WORDS] or (entry < 0 and _is_label(data, begin, end)):
        return _LABEL_TOKEN, token_state
    count = 0
    if entry >= 0:
        pending[0] = entry
        add_rows(model, total, at, pending, 1)
        count = 1
    longest = settings[LONGEST]
    if longest <= 0:
        return count, token_state
    shortest = settings[SHORTEST]
    buckets = np.uint64(settings[BUCKETS])
    reciprocal = np.uint64(0x100000000) // buckets
    waiting = 0
    for start in range(size):
        if padded[start] & 0xC0 == 0x80:
            continue
        state = BASIS
        position = start
        for length in range(1, longest + 1):
            if position >= size:
                break
            state = hash_step(state, padded[position])
            position += 1
            while position < size and padded[position] & 0xC0 == 0x80:
                state = hash_step(state, padded[position])
                position += 1
            if length >= shortest and not (length == 1 and (start == 0 or position == size)):
                # The remainder by a multiplication: the estimated quotient is at most one too small.
                bucket = np.uint64(state)
                bucket -= ((bucket * reciprocal) >> _32) * buckets
                bucket = min(bucket, bucket - buckets)
                # No branch, since nobody can foretell it: the next one overwrites a bucket that has no row.
                pending[waiting] = np.int64(bucket)
                waiting += np.int64(has_row(model, bucket))
        if waiting >= PENDING:
            add_buckets(model, total, at, pending, waiting)
            count += waiting
            waiting = 0
    add_buckets(model, total, at, pending, waiting)
    return count + waiting, token_state


@inlined
def _add_word_ngrams(tokens: int, model: Model, scratch: Scratch) -> int:
    """Add the rows of the runs of two and more tokens; return how many there are."""
    count = 0
    for first in range(tokens):
        state = np.uint64(np.int64(scratch.hashes[first]))
        for last in range(first + 1, min(tokens, first + model.settings[WORD_NGRAMS])):
            state = np.uint64(state * _WORD_FACTOR + np.uint64(np.int64(scratch.hashes[last])))
            bucket = state % np.uint64(model.settings[BUCKETS])
            if has_row(model, bucket):
                scratch.pending[0] = np.int64(bucket)
                add_buckets(model, scratch.total, 0, scratch.pending, 1)
                count += 1
    return count


@inlined
def _is_key(keys: Words, at: int, key_0: np.uint64, key_1: np.uint64, key_2: np.uint64, key_3: np.uint64) -> bool:
    return keys[at] == key_0 and keys[at + 1] == key_1 and keys[at + 2] == key_2 and keys[at + 3] == key_3  # type: ignore[no-any-return]


@kernel(
    f"void({BYTES}, {OFFSETS}, {ROWS}, {_MODEL}, uint8[::1], int64[::1], int32[::1], float32[::1], "
    "uint64[:, ::1], float32[:, ::1], float32[:, ::1], boolean[::1])"
)
def sum_rows(
    data: Bytes,
    offsets: Offsets,
    alive: Flags,
    settings: Longs,
    entry_bytes: Bytes,
    entry_offsets: Longs,
    slots: Integers,
    bitmap: Words,
    ranks: Integers,
    matrix: Floats,
    padded: Bytes,
    pending: Longs,
    hashes: Integers,
    total: Floats,
    memo_keys: Words,
    memo_sums: Floats,
    means: Floats,
    known: Flags,
) -> None:
    """Write the mean of the rows of every text that is alive.

    Args:
        data: UTF-8 of all texts. Newlines count as spaces; a token ``</s>`` ends the text, as fastText has it.
        offsets: int32 [n + 1] into ``data``.
        alive: bool [n]; other texts are not looked at.
        settings: int64; FIRST_CHARACTERS 0 is the whole text.
        entry_bytes, entry_offsets, slots, bitmap, ranks, matrix: see ``Model``.
        padded, pending, hashes, total: see ``Scratch``.
        memo_keys, memo_sums: what is known of words, as two views of the same memory; see ``Memo``. Changed.
        means: float32 [n, WIDTH], written where ``known``.
        known: bool [n], written: whether the text has any row at all.
    """
    model = Model(
        pointer(settings), pointer(entry_bytes), pointer(entry_offsets), pointer(slots),
        pointer(bitmap), pointer(ranks), pointer(matrix),
    )  # fmt: skip
    scratch = Scratch(pointer(padded), pointer(pending), pointer(hashes), pointer(total))
    text_bytes, sizes, keys, sums = pointer(data), len(data), pointer(memo_keys), pointer(memo_sums)
    width = settings[WIDTH]
    ngrams_of_words = settings[WORD_NGRAMS] > 1
    row_keys, row_sums = memo_keys.shape[1], memo_sums.shape[1]
    slot_shift = np.uint64(0)
    while (1 << (64 - np.int64(slot_shift))) != len(memo_keys):
        slot_shift += _1
    line_end = b"</s>"
    end_hash = BASIS
    for index in range(4):
        scratch.padded[index] = line_end[index]
        end_hash = hash_step(end_hash, scratch.padded[index])
    end_entry = np.int64(slots[_find_entry(scratch.padded, 0, 4, end_hash, model)])
    for text in range(len(offsets) - 1):
        known[text] = False
        if not alive[text]:
            continue
        position = np.int64(offsets[text])
        stop = np.int64(offsets[text + 1])
        if settings[FIRST_CHARACTERS] > 0:
            stop = cut(text_bytes, position, stop, settings[FIRST_CHARACTERS])
        for dimension in range(width):
            scratch.total[dimension] = np.float32(0)
        count = 0
        tokens = 0
        in_order = stop - position > settings[MEMO_TEXT_BYTES]
        while position < stop:
            if is_space(text_bytes[position]):
                position += 1
                continue
            begin = position
            key_0, position = next_part(text_bytes, sizes, begin, stop)
            key_1 = key_2 = key_3 = np.uint64(0)
            if position - begin == 8:
                key_1, position = next_part(text_bytes, sizes, position, stop)
                if position - begin == 16:
                    key_2, position = next_part(text_bytes, sizes, position, stop)
                    if position - begin == 24:
                        key_3, position = next_part(text_bytes, sizes, position, stop)
                        if position - begin == MEMO_KEY_BYTES:
                            while position < stop and not is_space(text_bytes[position]):
                                position += 1
            if key_0 == _END_OF_LINE and position - begin == 4:
                break
            if in_order or position - begin > MEMO_KEY_BYTES:
                found, state = _add_token(text_bytes, begin, position, model, scratch, scratch.total, 0)
            else:
                mixed = (key_0 ^ (key_1 * _MIX[1])) * _MIX[0] + (key_2 ^ (key_3 * _MIX[1])) * _MIX[2]
                slot = np.int64(mixed >> slot_shift)
                at = slot * row_keys
                if not _is_key(keys, at, key_0, key_1, key_2, key_3):
                    other = (slot ^ 1) * row_keys
                    if _is_key(keys, other, key_0, key_1, key_2, key_3):
                        slot, at = slot ^ 1, other
                    else:
                        for index in range(row_keys):  # the sum moves with the key: both views are of one memory
                            keys[other + index] = keys[at + index]
                        first = slot * row_sums + MEMO_HEAD
                        for dimension in range(width):
                            sums[first + dimension] = np.float32(0)
                        found, state = _add_token(text_bytes, begin, position, model, scratch, sums, first)
                        keys[at], keys[at + 1], keys[at + 2], keys[at + 3] = key_0, key_1, key_2, key_3
                        keys[at + 4], keys[at + 5] = np.uint64(state), np.uint64(found + 1)
                found, state = np.int64(keys[at + 5]) - 1, np.uint32(keys[at + 4])
                if found > 0:
                    first = slot * row_sums + MEMO_HEAD
                    for dimension in range(width):
                        scratch.total[dimension] += sums[first + dimension]
            if found != _LABEL_TOKEN:
                count += found
                if ngrams_of_words:
                    scratch.hashes[tokens] = np.int32(state)
                    tokens += 1
        if 0 <= end_entry < settings[WORDS]:
            scratch.pending[0] = end_entry
            add_rows(model, scratch.total, 0, scratch.pending, 1)
            count += 1
        if ngrams_of_words:
            scratch.hashes[tokens] = np.int32(end_hash)
            count += _add_word_ngrams(tokens + 1, model, scratch)
        if count > 0:
            known[text] = True
            share = np.float32(1.0 / count)
            for dimension in range(width):
                means[text, dimension] = scratch.total[dimension] * share
