"""Runs of n words that occur more than once in a text, compiled.

Words are numbered by content, and each n-gram by those of its two (n - 1)-grams. Only places whose n-gram occurs more
than once can hold a repeated (n + 1)-gram, so the longer n-grams cost next to nothing in text that is not repetitive.

datatrove joins the words of its longer n-grams without a separator, so that n-grams can be equal which are not the
same words. They are compared as the bytes between two words of the text with all white space left out; the first
bytes tell for most places that no other place can be equal.

All helpers take pointers into scratch arrays, see ``filters.repetition_counts.scratch``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from corpus.jit import inlined
from corpus.span_kernel import EMPTY, SEED, Hashes, Words, clear_table, hash_span, load_8, mix, same_bytes
from corpus.text import Bytes

SHORT = 8
"""Words of fewer bytes fit into a number together with their length."""
LONG_WORD = -1 << 63
NONE = -1


@intrinsic  # type: ignore[untyped-decorator]
def store_8(_: Any, data: Any, position: Any, value: Any) -> Any:
    """Write a number as 8 bytes at a byte position."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.gep(arguments[0], [arguments[1]], inbounds=True)
        builder.store(arguments[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@inlined
def word_key(text: Bytes, start: int, length: int, size: int) -> int:
    """Return a number that is the content of a word of fewer than 8 bytes, and a hash below 0 of a longer one."""
    if length >= SHORT:
        return hash_span(text, start, start + length) | LONG_WORD
    if start + SHORT <= size:
        return int(load_8(text, start)) & ((1 << 8 * length) - 1) | length << 56
    key = 0
    for position in range(length):
        key |= int(text[start + position]) << 8 * position
    return key | length << 56


@inlined
def number_words(
    text: Bytes,
    size: int,
    starts: Words,
    ends: Words,
    words: int,
    table: Words,
    keys: Hashes,
    numbers: Words,
    firsts: Words,
    counts: Words,
) -> int:
    """Number words by content, as ``corpus.span_kernel.number_spans`` does, and count how often each occurs.

    Args:
        size: bytes that can be read of ``text``.
    """
    mask = clear_table(table, words)
    distinct = 0
    for word in range(words):
        start = int(starts[word])
        length = int(ends[word]) - start
        key = word_key(text, start, length, size)
        slot = mix(SEED, key) & mask
        while True:
            number = table[slot]
            if number == EMPTY:
                table[slot] = number = distinct
                keys[number], firsts[number], counts[number] = key, word, 0
                distinct += 1
                break
            if keys[number] == key:
                if key >= 0:
                    break
                other = int(starts[firsts[number]])
                if ends[firsts[number]] - other == length and same_bytes(text, other, start, length):
                    break
            slot = (slot + 1) & mask
        numbers[word] = number
        counts[number] += 1
    return distinct


@inlined
def start_grams(numbers: Words, words: int, counts: Words, grams: Words, active: Words) -> int:
    """Set ``grams`` to the numbers of the words that occur again, ``active`` to their places; return how many."""
    places = 0
    for word in range(words):
        repeated = counts[numbers[word]] > 1
        grams[word] = numbers[word] if repeated else NONE
        active[places] = word
        places += repeated
    grams[words] = NONE
    return places


@inlined
def lengthen_grams(
    grams: Words, active: Words, places: int, table: Words, keys: Hashes, pairs: Hashes, firsts: Words, counts: Words
) -> tuple[int, int]:
    """Go from repeated n-grams to the repeated (n + 1)-grams.

    Args:
        grams: per place the number of the n-gram that begins there, ``NONE`` where it occurs only once; overwritten.
        active: the ``places`` places of repeated n-grams, ascending; overwritten.
        table, keys, pairs: scratch.
        firsts, counts: take the first place of each (n + 1)-gram and how often it occurs.

    Returns:
        How many places are left in ``active``, and how many numbers there are.
    """
    pairs_left = 0
    for index in range(places):
        place = active[index]
        pairs[pairs_left] = (int(grams[place]) << 32) | (int(grams[place + 1]) & 0xFFFFFFFF)
        active[pairs_left] = place
        pairs_left += grams[place + 1] != NONE
        grams[place] = NONE
    mask = clear_table(table, pairs_left)
    distinct = 0
    for index in range(pairs_left):
        key = pairs[index]
        slot = mix(SEED, key) & mask
        while table[slot] != EMPTY and keys[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = distinct
            keys[distinct] = key
            firsts[distinct] = active[index]
            counts[distinct] = 0
            distinct += 1
        grams[active[index]] = table[slot]
        counts[table[slot]] += 1
    left = 0
    for index in range(pairs_left):
        place = active[index]
        repeated = counts[grams[place]] > 1
        active[left] = place
        left += repeated
        grams[place] = grams[place] if repeated else NONE
    return left, distinct


@inlined
def most_frequent(firsts: Words, counts: Words, distinct: int, before: Words, size: int, longest: bool) -> int:
    """Return the number of the n-gram that occurs most often: the first of several, or the longest of them."""
    best = NONE
    for number in range(distinct):
        if best == NONE or counts[number] > counts[best]:
            best = number
        elif longest and counts[number] == counts[best]:
            length = before[firsts[number] + size] - before[firsts[number]]
            if length > before[firsts[best] + size] - before[firsts[best]]:
                best = number
    return best


@inlined
def covered_characters(
    grams: Words, active: Words, places: int, before: Words, size: int, wanted: int, firsts: Words
) -> int:
    """Return the characters of the words in repeated n-grams, each word once.

    All occurrences of the n-gram ``wanted``; or where that is ``NONE``, all occurrences but the first of every n-gram.
    """
    characters = covered = 0
    for index in range(places):
        place = int(active[index])
        if grams[place] != wanted if wanted != NONE else firsts[grams[place]] == place:
            continue
        characters += before[place + size] - before[max(place, covered)]
        covered = place + size
    return characters


@inlined
def join_words(text: Bytes, size: int, starts: Words, ends: Words, words: int, joined: Bytes, cuts: Words) -> int:
    """Write the words of a text one after the other and return how many bytes they have.

    Args:
        size: bytes that can be read of ``text``.
        joined: takes the words, and up to 7 bytes of no meaning behind them.
        cuts: takes where each word begins, and the end.
    """
    length = 0
    for word in range(words):
        cuts[word] = length
        position, end = int(starts[word]), int(ends[word])
        while position < end and position + SHORT <= size:
            store_8(joined, length, load_8(text, position))
            copied = min(SHORT, end - position)
            length += copied
            position += copied
        while position < end:
            joined[length] = text[position]
            length += 1
            position += 1
    cuts[words] = length
    return length


@inlined
def drop_unique_prefixes(
    joined: Bytes,
    cuts: Words,
    words: int,
    size: int,
    prefix: int,
    candidates: Words,
    listed: int,
    table: Bytes,
    hashes: Hashes,
) -> int:
    """Drop candidates whose n-grams of ``size`` words or more can equal no other; return how many are left.

    Runs of at least ``prefix`` bytes can only be equal if these first bytes are. How often they occur is counted by
    their hash, so that a few candidates stay for nothing.

    Args:
        candidates: the ``listed`` places to look at, ascending; overwritten.
        table: scratch of 16 ``listed`` + 16 bytes.
    """
    length = 16
    while length < 8 * listed:
        length *= 2
    for slot in range(length):
        table[slot] = 0
    for index in range(listed):
        start = int(cuts[candidates[index]])
        hashes[index] = 0
        if start + prefix <= cuts[words]:
            found = hash_span(joined, start, start + prefix)
            hashes[index] = found
            table[found & (length - 1)] = min(table[found & (length - 1)] + 1, 2)
    left = 0
    for index in range(listed):
        place = int(candidates[index])
        if place + size > words:
            break
        candidates[left] = place
        shorter = cuts[place + size] - cuts[place] < prefix
        left += shorter | (table[hashes[index] & (length - 1)] > 1)
    return left


@inlined
def count_joined_duplicates(
    joined: Bytes,
    cuts: Words,
    before: Words,
    words: int,
    size: int,
    candidates: Words,
    listed: int,
    table: Words,
    hashes: Hashes,
) -> int:
    """Return the characters of the n-grams that datatrove takes for duplicates.

    It goes from place to place; an n-gram that was seen before counts, and the places inside it are left out. Places
    that are not among the ``listed`` candidates equal no other, so that they need not be looked at.
    """
    mask = clear_table(table, listed)
    characters = free = 0
    for index in range(listed):
        place = int(candidates[index])
        if place < free or place > words - size:
            continue
        start, length = int(cuts[place]), int(cuts[place + size] - cuts[place])
        found = hash_span(joined, start, start + length)
        slot = found & mask
        while table[slot] != EMPTY:
            other = table[slot]
            same_length = cuts[other + size] - cuts[other] == length
            if hashes[other] == found and same_length and same_bytes(joined, cuts[other], start, length):
                break
            slot = (slot + 1) & mask
        if table[slot] == EMPTY:
            table[slot] = place
            hashes[place] = found
        else:
            characters += before[place + size] - before[place]
            free = place + size
    return characters
