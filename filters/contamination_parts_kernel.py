"""Which parts of an item (answer, choices, context) stand near a place of a text, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined, kernel
from corpus.text import Bytes, Offsets
from corpus.text_kernel import pointer
from filters.contamination_kernel import INT32, INT64, UINT8, UINT32, same_tokens
from filters.contamination_settings import (
    ANSWER_NEAR,
    CHOICES_NEAR,
    CONTEXT_NEAR,
    PART_ANSWER,
    PART_CHOICE,
    TELLING_NEAR,
)
from filters.contamination_token_kernel import TEXT_ARGUMENTS, read_tokens
from filters.contamination_tokens import Entries

WHOLE_TOKENS = 8
"""Tokens up to which a part must be found whole; of a longer one, half of its runs of three tokens."""
RUN_TOKENS = 3
FIRST_TOKENS = 64
"""Tokens of a part that are looked for."""

Numbers = npt.NDArray[np.int64]


@inlined
def stands_in(text: Any, low: int, high: int, tokens: Any, start: int, length: int) -> bool:
    """Say whether a run of tokens stands between two places of a text."""
    for place in range(low, high - length + 1):  # noqa: SIM110 - compiled
        if same_tokens(text, place, tokens, start, length):
            return True
    return False


@inlined
def part_near(
    text: Any, count: int, first: int, stop: int, tokens: Any, start: int, length: int, distance: int
) -> bool:
    """Say whether a part stands within a distance before or behind a stretch of a text."""
    if length == 0:
        return False
    length = min(length, FIRST_TOKENS)
    low, high = max(0, first - distance - length), min(count, stop + distance + length)
    if length <= WHOLE_TOKENS:
        return stands_in(text, low, first, tokens, start, length) or stands_in(text, stop, high, tokens, start, length)
    runs = 0
    for run in range(length - RUN_TOKENS + 1):
        runs += stands_in(text, low, first, tokens, start + run, RUN_TOKENS) or stands_in(
            text, stop, high, tokens, start + run, RUN_TOKENS
        )
    return 2 * runs >= length - RUN_TOKENS + 1


@kernel(
    f"uint8[::1]({TEXT_ARGUMENTS}, int64[:, ::1], {UINT32}, {INT64}, {UINT8}, {UINT8}, {INT32}, int64)",
)
def parts_near(
    offsets: Offsets,
    data: Bytes,
    rows: npt.NDArray[np.bool_],
    table_entries: Entries,
    expanded: Entries,
    places: npt.NDArray[np.int64],
    tokens: npt.NDArray[np.uint32],
    part_starts: Numbers,
    part_kinds: npt.NDArray[np.uint8],
    part_telling: npt.NDArray[np.uint8],
    item_parts: npt.NDArray[np.int32],
    distance: int,
) -> npt.NDArray[np.uint8]:
    """Return for each of m places which parts of an item are near, uint8[m]: the bits ``ANSWER_NEAR`` and so on of
    ``filters.contamination_settings``.

    Args:
        offsets, data, rows, table_entries, expanded: texts, see ``filters.contamination_kernel.find_matches``.
        places: int64[m, 4]: row, first token, token behind the last, item; by row.
        tokens, part_starts, part_kinds, part_telling, item_parts: arrays of the index.
        distance: tokens that may stand between a place and a part.
    """
    longest = 0
    for row in range(len(rows)):
        longest = max(longest, int(offsets[row + 1] - offsets[row]))
    most = 2 * longest + 1
    hashes, starts, ends = np.empty(most, np.uint32), np.empty(most, np.int32), np.empty(most, np.int32)
    text, table, pieces = pointer(data), pointer(table_entries), pointer(expanded)
    near = np.zeros(len(places), np.uint8)
    current, count = -1, 0
    for number in range(len(places)):
        row, first, stop, item = places[number, 0], places[number, 1], places[number, 2], places[number, 3]
        if row != current:
            count = read_tokens(text, int(offsets[row]), int(offsets[row + 1]), table, pieces, hashes, starts, ends)
            current = row
        flags = choices = choices_near = telling_choices = 0
        for part in range(item_parts[item], item_parts[item + 1]):
            kind = part_kinds[part]
            choices += kind == PART_CHOICE
            length = part_starts[part + 1] - part_starts[part]
            if not part_near(hashes, count, first, stop, tokens, part_starts[part], length, distance):
                continue
            if kind == PART_CHOICE:
                choices_near += 1
                telling_choices += part_telling[part]
                continue
            flags |= ANSWER_NEAR if kind == PART_ANSWER else CONTEXT_NEAR
            flags |= TELLING_NEAR if part_telling[part] else 0
        if choices_near > 1 and 2 * choices_near >= choices:
            flags |= CHOICES_NEAR
            flags |= TELLING_NEAR if telling_choices > 1 else 0
        near[number] = flags
    return near
