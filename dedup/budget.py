"""The duplication budget: how many copies may stay beside the leaders.

Of each group (all records, unless ``groups`` names a column or signal), copies stay in the order of (copy index,
priority keys, content hash, record_id, file, position) as long as the sum of their units is at most floor(b x sum of
the units of the leaders). The order does not depend on b, so a larger b keeps a superset. A cluster belongs to the
group of its leader; null is a group. ``max_copies`` bounds the copy index: copies beyond it are not in the order.

Leaders are all records that are nobody's copy: those of clusters, singletons, and protected records, which stay in any
case, count as leaders in full and never as copies. A unit is a record, a character (code point) or a token, and each
record counts at least one, so that a budget of 0 keeps no copy at all.

``corpus.selection`` finds the cut without having all copies in one process. The exact decimal of b is that of the
config; this module is light, since config models import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from corpus.selection_limits import exact_decimal, floor_share

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from corpus.selection_entries import Entries
    from corpus.selection_keys import Hashes, Integers, RecordIds, Words
    from dedup.leaders import Clusters

Unit = Literal["records", "characters", "tokens"]
Share = Annotated[float, Field(ge=0)]


class BudgetGroups(BaseModel):
    """Budgets per group: ``{by: language, default: 0, values: {ko: 0.5}}``."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    by: str = Field(min_length=1, description="User column or signal whose value is the group of a record.")
    default: Share = Field(default=0.0, description="Budget of groups that are not named, null included.")
    values: Mapping[str, Share] = Field(default_factory=dict, description="Budget of each named group.")


def units(unit: Unit, characters: Integers, tokens: Integers | None = None) -> Integers:
    """Return the units of n records, int64[n], at least 1 each.

    Args:
        unit: what is counted.
        characters: int64[n], code points of the text that enters the stage.
        tokens: int64[n]; needed for the unit ``tokens``.

    Raises:
        ValueError: tokens are wanted and were not counted.
    """
    import numpy as np

    if unit == "records":
        return np.ones(len(characters), np.int64)
    if unit == "characters":
        return np.maximum(characters, 1)
    if tokens is None:
        raise ValueError("budget_unit: tokens needs the token counts of a tokenizer")
    return np.maximum(tokens, 1)


def limits(budget: float, groups: BudgetGroups | None, leader_totals: bytes) -> tuple[Integers, Integers]:
    """Return (group numbers, limits), int64[g] each, as ``corpus.selection.start`` takes them.

    Args:
        budget: ``duplication_budget``; not used where there are groups.
        groups: budgets per group, or None.
        leader_totals: packed totals of the units of all leaders per group (``corpus.selection.merge_totals``).
    """
    import numpy as np

    from corpus.selection import unpack_totals
    from corpus.selection_keys import group_number

    numbers, _, weights = unpack_totals(leader_totals)
    default = exact_decimal(budget if groups is None else groups.default)
    named = {} if groups is None else {group_number(name): exact_decimal(b) for name, b in groups.values.items()}
    shares = [named.get(number, default) for number in numbers.tolist()]
    # No sum of weights is larger, so a limit beyond int64 is the same as the largest int64.
    largest = np.iinfo(np.int64).max
    allowed = [min(floor_share(share, weight), largest) for share, weight in zip(shares, weights.tolist(), strict=True)]
    return numbers.copy(), np.array(allowed, np.int64)


def leader_totals(groups: Integers, weights: Integers, is_copy: npt.NDArray[np.bool_]) -> bytes:
    """Return the packed totals of the records that are nobody's copy, given group number and units of n records."""
    import numpy as np

    from corpus.selection import pack_totals

    leads = np.flatnonzero(~is_copy)
    return pack_totals(groups[leads], np.ones(len(leads), np.int64), weights[leads])


def copy_entries(
    clusters: Clusters,
    groups: Integers,
    weights: Integers,
    priorities: Sequence[Words],
    content_hashes: Hashes,
    record_ids: RecordIds,
    row_ids: Integers,
    max_copies: int | None,
) -> Entries:
    """Return the copies among n records as entries of the selection.

    Args:
        clusters: leaders and copies of the n records.
        groups: int64[n], each record's own group; a copy gets that of its leader.
        weights: int64[n], units.
        priorities: uint64[n] each, as in the order of leaders.
        content_hashes: V16[n].
        record_ids: n ids.
        row_ids: int64[n].
        max_copies: largest copy index that may stay; None for no bound.
    """
    import numpy as np

    from corpus.selection_entries import Entries
    from corpus.selection_keys import hash_words, key_words

    eligible = clusters.copy_index > 0
    if max_copies is not None:
        eligible &= clusters.copy_index <= max_copies
    chosen = np.flatnonzero(eligible)
    parts = [clusters.copy_index.astype(np.uint64), *priorities, hash_words(content_hashes)]
    words = key_words([part[chosen] for part in parts])
    return Entries(groups[clusters.leaders[chosen]], words, weights[chosen], row_ids[chosen], record_ids.take(chosen))


def key_width(priorities: int) -> int:
    """Return the words of a copy's key, given the number of priority keys."""
    return 3 + priorities
