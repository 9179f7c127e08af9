"""Groups of keys read from staging: what they propose is the same, but for buckets that no process can hold."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.batch import chunk_key
from corpus.errors import ThresherError
from corpus.packing import unpack_arrays
from dedup import large_groups
from dedup.large_groups import MOST_ENTRIES, read_group
from dedup.proposals import ENTRY_BYTES, ENTRY_TYPES, EXACT, Entries, pairs_among, propose
from tests.dedup.staged_texts import near_duplicates

# Batches of rows: the number of a row's text, and its key in a band.
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=12), min_size=1, max_size=5)
Rows = list[tuple[int, int]]


def packed_of(batches: dict[int, Rows], key: int) -> bytes:
    """The packed entries of a batch, in one band and that of content hashes."""
    rows = batches[key]
    hashes = np.array([xxhash.xxh3_128_digest(bytes([text])) for text, _ in rows], "V16")
    bands = np.array([[band] for _, band in rows], np.uint64).reshape(-1, 1)
    return Entries.of(key, np.arange(len(rows)), bands, np.ones(len(rows), bool), hashes, 1).packed_of(0)


@given(BATCHES, st.integers(1, 60))
def test_the_buckets_that_are_left_out_are_those_that_alone_have_too_many(batches: list[Rows], most: int) -> None:
    by_key = {chunk_key(item, 0): rows for item, rows in enumerate(batches)}
    sizes = Counter(band for rows in batches for _, band in rows)
    texts = Counter(text for rows in batches for text, _ in rows)
    left_out = {band: size for band, size in sizes.items() if size > most}
    kept = sum(sizes.values()) + sum(size for size in sizes.values() if size <= most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_groups, "MOST_ENTRIES", most)
        if kept > 2 * most and 2 * sum(sizes.values()) > most:
            with pytest.raises(
                ThresherError, match=f"more than {2 * most} records meet in one group of keys, in which"
            ):
                read_group(list(by_key), partial(packed_of, by_key))
            return
        found, not_compared = read_group(list(by_key), partial(packed_of, by_key))
    assert not_compared == sum(map(pairs_among, left_out.values()))
    entries = [unpack_arrays(data, ENTRY_TYPES) for data in found]
    assert [int(columns[0][0]) for columns in entries] == list(by_key)
    buckets = Counter(key for _, _, bands, keys, _ in entries for key in keys[bands != EXACT].tolist())
    assert buckets == Counter({band: size for band, size in sizes.items() if band not in left_out})
    stars = propose(found, 1000, lambda row_ids: row_ids).stars
    assert len(stars) == sum(size - 1 for size in texts.values())


def test_a_group_is_read_once_where_it_fits() -> None:
    rows = {3: [(1, 0)], 4: [(1, 0), (2, 1)]}
    asked = []

    def packed(key: int) -> bytes:
        asked.append(key)
        return packed_of(rows, key)

    assert read_group([3, 4], packed) == ([packed_of(rows, 3), packed_of(rows, 4)], 0)
    assert asked == [3, 4]
    assert 64 << 20 < MOST_ENTRIES * ENTRY_BYTES < 128 << 20


def test_no_partition_of_tiny_records_is_large_whatever_was_planned() -> None:
    # A million records of 20 bytes fit into 20 MB; the number of partitions follows from the records themselves.
    stage, rows = near_duplicates(), 60_000
    random = np.random.default_rng(5)
    keys = random.integers(0, 1 << 63, (rows, stage.bands)).astype(np.uint64)
    hashes = random.bytes(16 * rows)
    for records in (rows, 16 * rows, 1000 * rows):
        parts = stage.partitions(records)
        entries = Entries.of(0, np.arange(rows), keys, np.ones(rows, bool), np.frombuffer(hashes, "V16"), parts)
        _, counts = entries.counts()
        largest = counts.max() * ENTRY_BYTES * records // rows
        # What these are a sample of has groups of about 2 MiB; more of the sample is chance.
        chance = 5 * np.sqrt(counts.max()) * ENTRY_BYTES * records / rows
        assert largest - chance < 3 << 20, records
