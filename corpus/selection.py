"""Exact selection of the longest prefix within a limit, over records that are spread over partitions.

Wanted, per group, are the first records of a total order whose weights add up to no more than the group's limit.
Sorting all records somewhere is not needed: only the *cut* of each group has to be found. Each round narrows the
interval that holds it: a random sample of the interval's records (chosen by a hash of their row ids, so the same in
every run) becomes its splitters, each partition counts its records and their weights between splitters, and the cut
lies in the one part where the running weight passes the limit. A part holds about one record in ``SAMPLES``, whatever
the keys look like and however wide they are; digits of a radix selection would need a round per 16 bits of a key of 40
bytes, and more where keys share their leading bytes. What is left is gathered in shards and sorted there. The sample
decides how long the search takes, never what is found.

The steps, all pure functions on bytes; each ``merge`` is associative and commutative in its result:

    totals -> merge_totals -> start               counts of all groups; which are open (0 < limit < weight)
    sample -> merge_samples -> split  }
    count  -> merge_totals  -> narrow } ``rounds_needed`` times
    gather -> (group by shard) resolve -> finish  the cuts of all groups
    select                                        the mask of a partition's records

Bounds: only open groups take part, and only those of more records than may be gathered from each (``WHOLE``, less where
there are many) are sampled, in proportion to their size: ``SAMPLES`` in all, more where there are many groups, at most
``MOST_SAMPLES``. Smaller groups wait for the gathering, whose shards follow from the exact counts. The search state
holds two boundaries per open group, the result one; more groups than fit into ``SIDE_INPUT_BYTES`` are an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpus.errors import ThresherError
from corpus.hashing import value_hashes
from corpus.packing import pack_arrays, unpack_arrays
from corpus.selection_entries import AFTER, BEFORE, Boundaries, Entries, locate
from corpus.selection_keys import Integers, Mask, RecordIds, same_as_previous

SAMPLES = 16384
"""Expected number of samples of a round."""
SAMPLES_PER_GROUP = 16
"""Where more groups than ``SAMPLES`` / 16 are sampled, so many for each on average."""
MOST_SAMPLES = 65_536
"""Expected number of samples of a round with any number of groups."""
WHOLE = 32_768
"""Records of a shard; groups, or intervals, of no more than this are gathered without sampling."""
GATHERED = 1 << 20
"""Records that may be gathered from all groups together before smaller groups are sampled as well."""
LEAST_WHOLE = 64
"""Groups of no more records than this are never sampled."""
LONGEST_ID = 256
"""Splitters keep so many bytes of an id (less with more than ``SAMPLES``); they need not be records."""
SIDE_INPUT_BYTES = 64 << 20

# The largest of the gaps between m random splitters is about ln m + 10 of their mean, but for 1 in 20,000 draws.
_LARGEST_GAP = 20


def rounds_needed(records: int) -> int:
    """Return how many rounds of sampling and counting a selection from so many records (at most) takes.

    0 up to 32,768, 1 up to 26 million, 2 up to 21 billion. With fewer the result is the same, the shards are larger.
    """
    rounds = 0
    while records > WHOLE:
        records = records * _LARGEST_GAP // SAMPLES
        rounds += 1
    return rounds


def pack_totals(numbers: Integers, counts: Integers, weights: Integers) -> bytes:
    """Return totals as bytes, 24 per number: the sums of counts and weights, int64[n] each, per distinct number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.append(True, np.diff(ordered) != 0)[: len(order)])
    if len(order):
        counts, weights = np.add.reduceat(counts[order], starts), np.add.reduceat(weights[order], starts)
    return pack_arrays([ordered[starts], counts, weights])


def unpack_totals(data: bytes) -> tuple[Integers, Integers, Integers]:
    """Return (numbers in ascending order, counts, weights) of packed totals."""
    numbers, counts, weights = unpack_arrays(data, (np.int64,) * 3)
    return numbers, counts, weights


def merge_totals(parts: Iterable[bytes]) -> bytes:
    """Return the sums of packed totals, number by number."""
    columns = list(zip(*(unpack_totals(part) for part in parts), strict=True))
    if not columns:
        return pack_totals(*(np.zeros(0, np.int64) for _ in range(3)))
    numbers, counts, weights = (np.concatenate(column) for column in columns)
    return pack_totals(numbers, counts, weights)


def totals(entries: bytes) -> bytes:
    """Return the totals per group of one partition's packed entries."""
    unpacked = Entries.unpack(entries)
    return pack_totals(unpacked.groups, np.ones(len(unpacked), np.int64), unpacked.weights)


@dataclass(frozen=True)
class Search:
    """Where the cuts of all groups can still lie.

    Attributes:
        complete: int64[c], ascending: groups that are kept whole. A group in neither list keeps nothing.
        groups: int64[g], ascending: open groups.
        rooms: int64[g]: what is left of the limit after the records up to the lower boundary.
        counts: int64[g]: records between the boundaries; their weights add up to more than the room.
        boundaries: 2 g of them, lower and upper in turn.
    """

    complete: Integers
    groups: Integers
    rooms: Integers
    counts: Integers
    boundaries: Boundaries

    def pack(self) -> bytes:
        """Return the search as bytes."""
        boundaries = np.frombuffer(self.boundaries.pack(), np.uint8)
        return pack_arrays([self.complete, self.groups, self.rooms, self.counts, boundaries])

    @staticmethod
    def unpack(data: bytes) -> Search:
        """Return a packed search."""
        complete, groups, rooms, counts, boundaries = unpack_arrays(data, (*(np.int64,) * 4, np.uint8))
        return Search(complete, groups, rooms, counts, Boundaries.unpack(boundaries.tobytes()))

    def large(self) -> Mask:
        """Say which open groups have too many records left to be gathered."""
        share = GATHERED // max(len(self.groups), 1)
        large: Mask = self.counts > min(max(share, LEAST_WHOLE), WHOLE)
        return large

    def samples(self) -> int:
        """Return how many samples the large groups are to give together."""
        return max(SAMPLES, min(SAMPLES_PER_GROUP * int(self.large().sum()), MOST_SAMPLES))

    def inside(self, entries: Entries) -> Integers:
        """Return, per entry, the index of the open group between whose boundaries it lies, or -1."""
        found = locate(entries, self.boundaries)
        return np.where(found & 1, found >> 1, -1)


def start(all_totals: bytes, groups: Integers, limits: Integers, width: int) -> bytes:
    """Return the packed search before the first round.

    Args:
        all_totals: merged totals of all partitions.
        groups, limits: int64[m]: the limit of each group; a group that is not listed has 0.
        width: words per key.

    Raises:
        ThresherError: there are more groups to cut than a side input can hold.
    """
    numbers, counts, weights = unpack_totals(all_totals)
    order = np.argsort(groups)
    allowed = np.zeros(len(numbers), np.int64)
    if len(groups):
        places = np.minimum(np.searchsorted(groups[order], numbers), len(groups) - 1)
        listed = groups[order][places] == numbers
        allowed[listed] = limits[order][places[listed]]
    cut = (allowed > 0) & (allowed < weights)
    opened = numbers[cut]
    needed = len(opened) * (2 * (28 + 8 * width) + 24)
    if needed > SIDE_INPUT_BYTES:
        raise ThresherError(
            f"a selection in {len(opened):,} groups that must all be cut needs {needed >> 20} MiB of search state, and "
            f"{SIDE_INPUT_BYTES >> 20} MiB are allowed; group by a column with fewer distinct values"
        )
    ends = [Boundaries.at_ends(opened, width, tie) for tie in (BEFORE, AFTER)]
    pairs = np.arange(2 * len(opened)).reshape(2, -1).T.reshape(-1)
    complete = numbers[allowed >= weights]
    return Search(complete, opened, allowed[cut], counts[cut], Boundaries.concatenate(ends).take(pairs)).pack()


def sample(entries: bytes, search: bytes) -> bytes:
    """Return a sample of one partition's records between the boundaries of large groups, as packed boundaries."""
    records, state = Entries.unpack(entries), Search.unpack(search)
    large, wanted = state.large(), state.samples()
    candidates = int(state.counts[large].sum())
    chosen = np.zeros(0, np.int64)
    if candidates:
        threshold = np.uint64(min((wanted << 64) // candidates, (1 << 64) - 1))
        chosen = np.flatnonzero(value_hashes(pa.array(records.row_ids)) <= threshold)
        inside = state.inside(records.take(chosen))
        chosen = chosen[(inside >= 0) & large[inside]]
    exact = np.ones(len(chosen), np.bool_)
    return Boundaries.after(records, chosen, exact, LONGEST_ID * SAMPLES // wanted).pack()


def merge_samples(parts: Iterable[bytes], width: int) -> bytes:
    """Return all samples of the parts; ``width`` is the number of words per key."""
    empty = Boundaries.at_ends(np.zeros(0, np.int64), width, BEFORE)
    return Boundaries.concatenate([empty, *map(Boundaries.unpack, parts)]).pack()


def split(search: bytes, samples: bytes) -> bytes:
    """Return the packed splitters of a round: the boundaries of large groups and, between them, the merged samples.

    An id is needed only where several splitters have the same words.
    """
    state = Search.unpack(search)
    ends = state.boundaries.take(np.flatnonzero(np.repeat(state.large(), 2)))
    splitters = Boundaries.concatenate([ends, Boundaries.unpack(samples)])
    order = splitters.order()
    splitters = splitters.take(order)
    same = same_as_previous(splitters.words) & (np.diff(splitters.groups, prepend=0) == 0)
    alone = ~same & ~np.append(same[1:], False) & (order >= len(ends))
    lengths = splitters.ids.lengths
    ids = RecordIds.from_lengths(
        np.where(alone, 0, lengths).astype(np.int32), splitters.ids.data[np.repeat(~alone, lengths)]
    )
    ties = np.where(alone, AFTER, splitters.ties)
    return Boundaries(splitters.groups, splitters.words, ties, np.where(alone, 0, splitters.row_ids), ids).pack()


def count(entries: bytes, splitters: bytes) -> bytes:
    """Return the totals of one partition's records per splitter: of those that lie before it and after the previous."""
    records, limits = Entries.unpack(entries), Boundaries.unpack(splitters)
    found = locate(records, limits)
    inner = np.zeros(len(limits) + 1, np.bool_)
    inner[1:-1] = limits.groups[1:] == limits.groups[:-1]
    within = np.flatnonzero(inner[found])
    within = within[limits.groups[found[within]] == records.groups[within]]
    return pack_totals(found[within], np.ones(len(within), np.int64), records.weights[within])


def narrow(search: bytes, splitters: bytes, all_counts: bytes) -> bytes:
    """Return the packed search after a round, given its splitters and the merged totals of all partitions."""
    state, limits = Search.unpack(search), Boundaries.unpack(splitters)
    large = np.flatnonzero(state.large())
    numbers, between, weights = unpack_totals(all_counts)
    counts, running = np.zeros(len(limits), np.int64), np.zeros(len(limits), np.int64)
    counts[numbers], running[numbers] = between, weights
    running = np.cumsum(running)
    first = np.searchsorted(limits.groups, state.groups[large])
    allowed = running[first] + state.rooms[large]
    upper = np.searchsorted(running, allowed, side="right")
    rooms, all_between = state.rooms.copy(), state.counts.copy()
    rooms[large], all_between[large] = allowed - running[upper - 1], counts[upper]
    pairs = np.arange(2 * len(state.groups))
    pairs[2 * large] = len(pairs) + upper - 1
    pairs[2 * large + 1] = len(pairs) + upper
    boundaries = Boundaries.concatenate([state.boundaries, limits]).take(pairs)
    return Search(state.complete, state.groups, rooms, all_between, boundaries).pack()


def gather(entries: bytes, search: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (shard, packed entries) of one partition's records that are left between boundaries.

    A shard holds neighbouring groups, each whole: at most ``WHOLE`` records and those of its last group.
    """
    records, state = Entries.unpack(entries), Search.unpack(search)
    inside = state.inside(records)
    left = np.flatnonzero(inside >= 0)
    shards = ((np.cumsum(state.counts) - state.counts) // WHOLE)[inside[left]]
    for shard in np.unique(shards).tolist():
        yield shard, records.take(left[shards == shard]).pack()


def resolve(gathered: Iterable[bytes], search: bytes) -> bytes:
    """Return the cuts, packed boundaries, of the groups of one shard, given its packed entries."""
    records, state = Entries.concatenate(map(Entries.unpack, gathered)), Search.unpack(search)
    records = records.take(records.order())
    running = np.cumsum(records.weights)
    starts = np.flatnonzero(np.append(True, np.diff(records.groups) != 0))
    places = np.searchsorted(state.groups, records.groups[starts])
    before = running[starts] - records.weights[starts]
    dropped = np.searchsorted(running, before + state.rooms[places], side="right")
    some = dropped > starts
    first, last = dropped[some], dropped[some] - 1
    tied = (records.words[first] == records.words[last]).all(axis=1)
    longest = int(records.ids.lengths.max())
    return Boundaries.concatenate(
        [Boundaries.after(records, last, tied, longest), state.boundaries.take(2 * places[~some])]
    ).pack()


@dataclass(frozen=True)
class Selection:
    """What is kept.

    Attributes:
        complete: int64[c], ascending: groups that are kept whole.
        cuts: one boundary per group that is cut, in ascending order; its words are those of the last record kept
            (``BEFORE``: none is). A group in neither list keeps nothing.
    """

    complete: Integers
    cuts: Boundaries

    def pack(self) -> bytes:
        """Return the selection as bytes."""
        return pack_arrays([self.complete, np.frombuffer(self.cuts.pack(), np.uint8)])

    @staticmethod
    def unpack(data: bytes) -> Selection:
        """Return a packed selection."""
        complete, cuts = unpack_arrays(data, (np.int64, np.uint8))
        return Selection(complete, Boundaries.unpack(cuts.tobytes()))


def finish(search: bytes, resolved: Iterable[bytes]) -> bytes:
    """Return the packed selection, given the cuts of all shards.

    Raises:
        RuntimeError: a group has no cut or several, so that an input changed between steps.
    """
    state = Search.unpack(search)
    none = Boundaries.at_ends(np.zeros(0, np.int64), state.boundaries.words.shape[1], BEFORE)
    cuts = Boundaries.concatenate([none, *map(Boundaries.unpack, resolved)])
    cuts = cuts.take(np.argsort(cuts.groups))
    if not np.array_equal(cuts.groups, state.groups):
        raise RuntimeError(f"{len(state.groups)} groups are to be cut, and {len(cuts)} cuts were found")
    return Selection(state.complete, cuts).pack()


def select(entries: bytes, selection: bytes) -> Mask:
    """Return which of one partition's packed entries are kept: bool[n]."""
    records, chosen = Entries.unpack(entries), Selection.unpack(selection)
    found = locate(records, chosen.cuts)
    cut_groups = np.append(chosen.cuts.groups, 0)
    kept: Mask = (found < len(chosen.cuts)) & (cut_groups[found] == records.groups)
    kept |= np.isin(records.groups, chosen.complete)
    return kept
