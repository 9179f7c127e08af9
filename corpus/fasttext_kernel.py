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

import numpy as np
import numpy.typing as npt

from corpus.fasttext_rows_kernel import add_buckets, add_row, has_row, row_of
from corpus.fasttext_token_kernel import BASIS, cut, hash_step, is_space, next_part
from corpus.jit import inlined, kernel

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

# Positions in the array of settings.
SHORTEST, LONGEST, WORD_NGRAMS, BUCKETS, WORDS, FIRST_CHARACTERS, MEMO_TEXT_BYTES = range(7)
SETTINGS = 7

PENDING = 1024
"""From how many n-grams on their rows are added."""

MEMO_KEY_BYTES = 32
MEMO_HEAD = 16
"""Width of what precedes the sum in the memo, in float32: key, hash, row count + 1, and two numbers unused."""

_WORD_FACTOR = np.uint64(116049371)
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_1, _32 = np.uint64(1), np.uint64(32)
_END_OF_LINE = np.uint64(0x3E732F3C)  # "</s>" as a key
_LABEL_TOKEN = -1
_LABEL_PREFIX = b"__label__"

_MODEL = (
    "Array(int64, 1, 'C', True), Array(uint8, 1, 'C', True), Array(int64, 1, 'C', True), Array(int32, 1, 'C', True), "
    "Array(uint64, 1, 'C', True), Array(int32, 1, 'C', True), Array(float32, 2, 'C', True)"
)


@inlined
def _is_key(keys: Words, slot: int, key_0: np.uint64, key_1: np.uint64, key_2: np.uint64, key_3: np.uint64) -> bool:
    return keys[slot, 0] == key_0 and keys[slot, 1] == key_1 and keys[slot, 2] == key_2 and keys[slot, 3] == key_3  # type: ignore[no-any-return]


@inlined
def _find_entry(
    data: Bytes, begin: int, end: int, state: np.uint32, entry_bytes: Bytes, entry_offsets: Longs, slots: Integers
) -> int:
    """Return the slot of the dictionary that holds the token, or the free slot where it would go."""
    slot = np.int64(state) & (len(slots) - 1)
    while slots[slot] >= 0:
        at = entry_offsets[slots[slot]]
        if entry_offsets[slots[slot] + 1] - at == end - begin:
            position = begin
            while position < end and data[position] == entry_bytes[at]:
                position += 1
                at += 1
            if position == end:
                break
        slot = (slot + 1) & (len(slots) - 1)
    return slot  # type: ignore[no-any-return]


@kernel("void(Array(uint8, 1, 'C', True), Array(int64, 1, 'C', True), int32[::1])")
def fill_slots(entry_bytes: Bytes, entry_offsets: Longs, slots: Integers) -> None:
    """Enter every string of the dictionary into a hash table.

    Args:
        entry_bytes: the strings one behind the other.
        entry_offsets: n + 1 offsets into them.
        slots: filled with -1; a power of two, more than n; takes the number of an entry at each used slot.
    """
    for entry in range(len(entry_offsets) - 1):
        state = BASIS
        for position in range(entry_offsets[entry], entry_offsets[entry + 1]):
            state = hash_step(state, entry_bytes[position])
        begin, end = entry_offsets[entry], entry_offsets[entry + 1]
        slots[_find_entry(entry_bytes, begin, end, state, entry_bytes, entry_offsets, slots)] = entry


@inlined
def _add_token(
    data: Bytes,
    begin: int,
    end: int,
    settings: Longs,
    entry_bytes: Bytes,
    entry_offsets: Longs,
    slots: Integers,
    bitmap: Words,
    ranks: Integers,
    matrix: Floats,
    padded: Bytes,
    pending: Longs,
    total: Floats,
) -> tuple[int, np.uint32]:
    """Add a token's rows to ``total``, one by one in fastText's order.

    Returns:
        The number of rows, or ``_LABEL_TOKEN`` for a token that is a label; and the token's hash.
    """
    state = BASIS
    for position in range(begin, end):
        state = hash_step(state, data[position])
    entry = slots[_find_entry(data, begin, end, state, entry_bytes, entry_offsets, slots)]
    if entry >= settings[WORDS]:
        return _LABEL_TOKEN, state
    count = 0
    if entry >= 0:
        add_row(total, matrix, entry)
        count = 1
    elif end - begin >= len(_LABEL_PREFIX):
        matching = 0
        while matching < len(_LABEL_PREFIX) and data[begin + matching] == _LABEL_PREFIX[matching]:
            matching += 1
        if matching == len(_LABEL_PREFIX):
            return _LABEL_TOKEN, state
    longest = settings[LONGEST]
    if longest <= 0:
        return count, state
    shortest = settings[SHORTEST]
    buckets = np.uint64(settings[BUCKETS])
    reciprocal = np.uint64(0x100000000) // buckets
    size = end - begin + 2
    padded[0] = np.uint8(60)  # <
    for position in range(end - begin):
        padded[position + 1] = data[begin + position]
    padded[size - 1] = np.uint8(62)  # >
    waiting = 0
    for start in range(size):
        if padded[start] & 0xC0 == 0x80:
            continue
        state_of_ngram = BASIS
        position = start
        for length in range(1, longest + 1):
            if position >= size:
                break
            state_of_ngram = hash_step(state_of_ngram, padded[position])
            position += 1
            while position < size and padded[position] & 0xC0 == 0x80:
                state_of_ngram = hash_step(state_of_ngram, padded[position])
                position += 1
            if length >= shortest and not (length == 1 and (start == 0 or position == size)):
                # The remainder by a multiplication: the estimated quotient is at most one too small.
                bucket = np.uint64(state_of_ngram)
                bucket -= ((bucket * reciprocal) >> _32) * buckets
                if bucket >= buckets:
                    bucket -= buckets
                # No branch, since nobody can foretell it: the next one overwrites a bucket that has no row.
                pending[waiting] = np.int64(bucket)
                waiting += np.int64(has_row(bucket, bitmap))
        if waiting >= PENDING:
            add_buckets(total, matrix, settings[WORDS], bitmap, ranks, pending, waiting)
            count += waiting
            waiting = 0
    add_buckets(total, matrix, settings[WORDS], bitmap, ranks, pending, waiting)
    return count + waiting, state


@inlined
def _add_word_ngrams(
    hashes: Integers,
    tokens: int,
    settings: Longs,
    bitmap: Words,
    ranks: Integers,
    matrix: Floats,
    total: Floats,
) -> int:
    """Add the rows of the runs of two and more tokens; return how many there are."""
    count = 0
    for first in range(tokens):
        state = np.uint64(np.int64(hashes[first]))
        for last in range(first + 1, min(tokens, first + settings[WORD_NGRAMS])):
            state = np.uint64(state * _WORD_FACTOR + np.uint64(np.int64(hashes[last])))
            bucket = state % np.uint64(settings[BUCKETS])
            if has_row(bucket, bitmap):
                add_row(total, matrix, row_of(bucket, settings[WORDS], bitmap, ranks))
                count += 1
    return count


@kernel(
    "void(Array(uint8, 1, 'C', True), Array(int32, 1, 'C', True), Array(boolean, 1, 'C', True), "
    + _MODEL
    + ", uint64[:, ::1], float32[:, ::1], float32[:, ::1], boolean[::1])"
)
def sum_rows(
    data: Bytes,
    offsets: Integers,
    alive: Flags,
    settings: Longs,
    entry_bytes: Bytes,
    entry_offsets: Longs,
    slots: Integers,
    bitmap: Words,
    ranks: Integers,
    matrix: Floats,
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
        settings: int64, what the names at the top of this module say; FIRST_CHARACTERS 0 is the whole text.
        entry_bytes, entry_offsets, slots: the dictionary, see ``fill_slots``.
        bitmap: uint64, one bit per bucket, set where the n-gram has a row; empty where all have one.
        ranks: int32 per element of ``bitmap``, the bits set before it.
        matrix: float32 [rows, dimension]; words first, then n-grams in the order of their buckets.
        memo_keys, memo_sums: what is known of words, as two views of the same memory; see ``Memo``. Changed.
        means: float32 [n, dimension], written where ``known``.
        known: bool [n], written: whether the text has any row at all.
    """
    dimensions = matrix.shape[1]
    total = np.empty(dimensions, np.float32)
    longest_text = 0
    for text in range(len(offsets) - 1):
        if alive[text]:
            longest_text = max(longest_text, np.int64(offsets[text + 1]) - offsets[text])
    padded = np.empty(longest_text + 2, np.uint8)
    pending = np.empty(PENDING + min(longest_text + 2, max(settings[LONGEST], 0)) + 1, np.int64)
    hashes = np.empty(longest_text // 2 + 2 if settings[WORD_NGRAMS] > 1 else 0, np.int32)
    line_end = np.array([60, 47, 115, 62], np.uint8)
    end_count, end_hash = 0, BASIS
    for position in range(4):
        end_hash = hash_step(end_hash, line_end[position])
    end_entry = slots[_find_entry(line_end, 0, 4, end_hash, entry_bytes, entry_offsets, slots)]
    if 0 <= end_entry < settings[WORDS]:
        end_count = 1
    slot_shift = np.uint64(0)
    while (1 << (64 - np.int64(slot_shift))) != len(memo_keys):
        slot_shift += _1
    for text in range(len(offsets) - 1):
        known[text] = False
        if not alive[text]:
            continue
        position = np.int64(offsets[text])
        stop = np.int64(offsets[text + 1])
        if settings[FIRST_CHARACTERS] > 0:
            stop = cut(data, position, stop, settings[FIRST_CHARACTERS])
        total[:] = np.float32(0)
        count = 0
        tokens = 0
        in_order = stop - position > settings[MEMO_TEXT_BYTES]
        while position < stop:
            if is_space(data[position]):
                position += 1
                continue
            begin = position
            key_0, end = next_part(data, begin, stop)
            key_1 = key_2 = key_3 = np.uint64(0)
            if end - begin == 8:
                key_1, end = next_part(data, end, stop)
                if end - begin == 16:
                    key_2, end = next_part(data, end, stop)
                    if end - begin == 24:
                        key_3, end = next_part(data, end, stop)
            position = end
            if position - begin == MEMO_KEY_BYTES:
                while position < stop and not is_space(data[position]):
                    position += 1
            if key_0 == _END_OF_LINE and position - begin == 4:
                break
            if in_order or position - begin > MEMO_KEY_BYTES:
                found, state = _add_token(
                    data, begin, position, settings, entry_bytes, entry_offsets, slots,
                    bitmap, ranks, matrix, padded, pending, total,
                )  # fmt: skip
            else:
                mixed = (key_0 ^ (key_1 * _MIX[1])) * _MIX[0] + (key_2 ^ (key_3 * _MIX[1])) * _MIX[2]
                slot = np.int64(mixed >> slot_shift)
                if not _is_key(memo_keys, slot, key_0, key_1, key_2, key_3):
                    other = slot ^ 1
                    if _is_key(memo_keys, other, key_0, key_1, key_2, key_3):
                        slot = other
                    else:
                        memo_keys[other] = memo_keys[slot]  # the sum moves with it: both views are of one memory
                        sum_of_token = memo_sums[slot, MEMO_HEAD:]
                        sum_of_token[:] = np.float32(0)
                        found, state = _add_token(
                            data, begin, position, settings, entry_bytes, entry_offsets, slots,
                            bitmap, ranks, matrix, padded, pending, sum_of_token,
                        )  # fmt: skip
                        memo_keys[slot, 0], memo_keys[slot, 1] = key_0, key_1
                        memo_keys[slot, 2], memo_keys[slot, 3] = key_2, key_3
                        memo_keys[slot, 4] = np.uint64(state)
                        memo_keys[slot, 5] = np.uint64(found + 1)
                found, state = np.int64(memo_keys[slot, 5]) - 1, np.uint32(memo_keys[slot, 4])
                if found > 0:
                    for dimension in range(dimensions):
                        total[dimension] += memo_sums[slot, MEMO_HEAD + dimension]
            if found != _LABEL_TOKEN:
                count += found
                if settings[WORD_NGRAMS] > 1:
                    hashes[tokens] = np.int32(state)
                    tokens += 1
        if end_count:
            add_row(total, matrix, end_entry)
            count += 1
        if settings[WORD_NGRAMS] > 1:
            hashes[tokens] = np.int32(end_hash)
            count += _add_word_ngrams(hashes, tokens + 1, settings, bitmap, ranks, matrix, total)
        if count > 0:
            known[text] = True
            share = np.float32(1.0 / count)
            for dimension in range(dimensions):
                means[text, dimension] = total[dimension] * share
