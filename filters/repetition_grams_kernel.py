"""Runs of n words that occur more than once in a text, compiled.

Words are numbered by content, and each n-gram by those of its two (n - 1)-grams. Only places whose n-gram occurs more
than once can hold a repeated (n + 1)-gram, so the longer n-grams cost next to nothing in text that is not repetitive.

datatrove joins the words of its longer n-grams without a separator, so that n-grams can be equal which are not the
same words. They are compared as the bytes between two words of the text with all white space left out; the first
bytes tell for most places that no other place can be equal.

All helpers take pointers into scratch arrays, see ``filters.repetition_counts.scratch``.
"""

from __future__ import annotations

from corpus.jit import inlined
from corpus.span_kernel import (
    EMPTY,
    MULTIPLIER,
    SEED,
    Hashes,
    Words,
    clear_table,
    hash_span,
    load_8,
    mix,
    same_bytes,
    store_8,
)
from corpus.text import Bytes

LONG = 16
"""Words of fewer bytes fit into two numbers together with their length."""
LONG_WORD = -1
"""The second number of a longer word; the first is a hash."""
NONE = -1


@inlined
def word_key(text: Bytes, start: int, length: int, size: int) -> tuple[int, int]:
    """Return two numbers that are the content of a word of fewer than ``LONG`` bytes; of a longer one, a hash.

    Args:
        size: bytes that can be read of ``text``.
    """
    if length >= LONG:
        return hash_span(text, start, start + length), LONG_WORD
    first = second = 0
    if start + LONG <= size:
        # No branch depends on the length, which nothing predicts.
        first = load_8(text, start) & (((1 << 8 * min(length, 7)) - 1) | -(length >= 8))
        second = load_8(text, start + 8) & ((1 << 8 * max(length - 8, 0)) - 1)
    else:
        for position in range(length):
            byte = int(text[start + position])
            if position < 8:
                first |= byte << 8 * position
            else:
                second |= byte << 8 * (position - 8)
    return first, second | length << 56


@inlined
def number_words(
    text: Bytes,
    size: int,
    starts: Words,
    ends: Words,
    words: int,
    table: Words,
    keys: Hashes,
    more_keys: Hashes,
    numbers: Words,
    firsts: Words,
    counts: Words,
) -> int:
    """Number words by content, as ``corpus.span_kernel.number_spans`` does, and count how often each occurs.

    Whether a word is new is as hard to predict as text, so no branch depends on it: number ``EMPTY`` has the key that
    is looked for, and what is written of a known word goes there.

    Args:
        size: bytes that can be read of ``text``.
        table, keys, more_keys: scratch; also ``keys[EMPTY]``, ``more_keys[EMPTY]`` and ``firsts[EMPTY]`` are.
    """
    mask = clear_table(table, words)
    distinct = 0
    for word in range(words):
        start = int(starts[word])
        length = int(ends[word]) - start
        first, second = word_key(text, start, length, size)
        keys[EMPTY], more_keys[EMPTY] = first, second
        counts[distinct] = 0
        slot = (mix(SEED, first) + second) * MULTIPLIER >> 32 & mask
        while True:
            number = int(table[slot])
            if keys[number] == first and more_keys[number] == second:
                if second != LONG_WORD or number == EMPTY:
                    break
                other = int(starts[firsts[number]])
                if ends[firsts[number]] - other == length and same_bytes(text, other, start, length):
                    break
            slot = (slot + 1) & mask
        is_new = int(number == EMPTY)
        firsts[distinct * is_new + is_new - 1] = word
        number += (distinct + 1) * is_new
        table[slot] = number
        keys[number], more_keys[number] = first, second
        counts[number] += 1
        numbers[word] = number
        distinct += is_new
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
        table, keys, pairs: scratch; also ``keys[EMPTY]`` and ``firsts[EMPTY]`` are (see ``number_words``).
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
        keys[EMPTY] = key
        counts[distinct] = 0
        slot = mix(SEED, key) & mask
        number = int(table[slot])
        while keys[number] != key:
            slot = (slot + 1) & mask
            number = int(table[slot])
        is_new = int(number == EMPTY)
        firsts[distinct * is_new + is_new - 1] = active[index]
        number += (distinct + 1) * is_new
        table[slot] = number
        keys[number] = key
        counts[number] += 1
        grams[active[index]] = number
        distinct += is_new
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
        while position < end and position + 8 <= size:
            store_8(joined, length, load_8(text, position))
            copied = min(8, end - position)
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
    hashed: int,
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
        hashed, prefix: of how many first bytes ``hashes`` has the hash now, and of how many it gets it; both multiples
            of 8.
        candidates: the ``listed`` places to look at, ascending; overwritten.
        table: scratch of 16 ``listed`` + 16 bytes.
        hashes: by place.
    """
    length = 16
    while length < 8 * listed:
        length *= 2
    for slot in range(length):
        table[slot] = 0
    for index in range(listed):
        place = int(candidates[index])
        start = int(cuts[place])
        if start + prefix <= cuts[words]:
            state = hashes[place] if hashed > 0 else SEED
            for position in range(start + hashed, start + prefix, 8):
                state = mix(state, load_8(joined, position))
            hashes[place] = state
            table[state & (length - 1)] = min(table[state & (length - 1)] + 1, 2)
    left = 0
    for index in range(listed):
        place = int(candidates[index])
        if place + size > words:
            break
        candidates[left] = place
        shorter = cuts[place + size] - cuts[place] < prefix
        left += shorter | (table[hashes[place] & (length - 1)] > 1)
    return left


@inlined
def hash_run(joined: Bytes, start: int, length: int, prefix: int, state: int) -> int:
    """Return a hash of a run of bytes; ``state`` is the hash of its first ``prefix`` bytes where it has so many."""
    if length < prefix:
        return hash_span(joined, start, start + length)
    end = start + length
    for position in range(start + prefix, end - 8, 8):
        state = mix(state, load_8(joined, position))
    return mix(state ^ length, load_8(joined, end - 8))


@inlined
def count_joined_duplicates(
    joined: Bytes,
    cuts: Words,
    before: Words,
    words: int,
    size: int,
    prefix: int,
    prefix_hashes: Hashes,
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
    characters = index = 0
    while index < listed:
        place = int(candidates[index])
        if place > words - size:
            break
        start, length = int(cuts[place]), int(cuts[place + size] - cuts[place])
        found = hash_run(joined, start, length, prefix, prefix_hashes[place])
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
            index += 1
            continue
        characters += before[place + size] - before[place]
        # In a long repetition all places are candidates.
        if index + size < listed and candidates[index + size] == place + size:
            index += size
        else:
            while index < listed and candidates[index] < place + size:
                index += 1
    return characters
