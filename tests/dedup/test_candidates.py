"""Candidates come back as they were staged, and an object store is asked for as little as the module says."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.batch import chunk_key, first_row_id
from corpus.folder import Folder
from dedup import candidates
from dedup.byte_cache import ByteCache
from dedup.candidates import Candidates, candidates_name, write_candidates

PERMUTATIONS = 3
# Sets of the candidates of some batches: rows and sizes.
BATCHES = st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 5), min_size=1), min_size=1, max_size=4)


def staged(folder: Folder, batches: list[dict[int, int]]) -> dict[int, tuple[list[int], list[int]]]:
    """Stage batches; returns (signature, set) of each candidate by row id."""
    expected = {}
    for item, sizes in enumerate(batches):
        key, rows = chunk_key(item, 0), sorted(sizes)
        signatures = np.array([[item, row, 7] for row in rows], np.uint32)
        sets = [[1000 * item + 10 * row + number for number in range(sizes[row])] for row in rows]
        offsets = np.cumsum([0, *map(len, sets)])
        hashes = np.array([value for values in sets for value in values], np.uint64)
        write_candidates(folder, "near", key, np.array(rows), signatures, offsets, hashes)
        for row, signature, values in zip(rows, signatures.tolist(), sets, strict=True):
            expected[first_row_id(key) + row] = signature, values
    return expected


@settings(max_examples=60)
@given(BATCHES, st.booleans(), st.sampled_from([64, 200, 1 << 20]), st.sampled_from([0, 16, 1 << 20]), st.data())
def test_what_was_staged_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[dict[int, int]],
    local: bool,
    head: int,
    gap: int,
    data: st.DataObject,
) -> None:
    root = str(tmp_path_factory.mktemp("run")) if local else f"memory://{uuid.uuid4().hex}"
    folder = Folder(root, "run")
    expected = staged(folder, batches)
    with pytest.MonkeyPatch.context() as patch:
        # The index of ten rows takes less than 160 bytes; a head that has not even that is never made.
        patch.setattr(candidates, "HEAD_BYTES", max(head, 160))
        patch.setattr(candidates, "GAP_BYTES", gap)
        chosen = sorted(data.draw(st.sets(st.sampled_from(sorted(expected)), min_size=1)))
        found = Candidates(folder, "near", np.array(chosen), PERMUTATIONS)
        assert found.signatures.tolist() == [expected[row_id][0] for row_id in chosen]
        assert found.counts.tolist() == [len(expected[row_id][1]) for row_id in chosen]
        if data.draw(st.booleans()):
            found.hold_all()
        for _ in range(2):
            places = sorted(data.draw(st.sets(st.integers(0, len(chosen) - 1))))
            numbers, offsets, hashes = found.sets(np.array(places, np.int64))
            sets = [hashes[offsets[number] : offsets[number + 1]].tolist() for number in numbers.tolist()]
            assert sets == [expected[chosen[place]][1] for place in places]


class CountedFolder(Folder):
    """A folder that counts its reads by file."""

    def __init__(self, root: str) -> None:
        super().__init__(root, uuid.uuid4().hex)
        self.reads: Counter[str] = Counter()

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Count one read."""
        self.reads[name] += 1
        return super().read_range(name, start, end)

    def read_bytes(self, name: str) -> bytes:
        """Nothing reads whole files."""
        raise AssertionError(name)


def test_reads_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CountedFolder(f"memory://{uuid.uuid4().hex}")
    batches = 12
    # 24 sets of 4 KiB each behind a head of 1 KiB.
    for item in range(batches):
        offsets = np.arange(25) * 512
        signatures = np.zeros((24, PERMUTATIONS), np.uint32)
        write_candidates(
            folder, "near", chunk_key(item, 0), np.arange(24), signatures, offsets, np.arange(24 * 512, dtype=np.uint64)
        )
    monkeypatch.setattr(candidates, "HEAD_BYTES", 1024)
    monkeypatch.setattr(candidates, "GAP_BYTES", 8192)
    monkeypatch.setattr(candidates, "_HEADS", ByteCache(1 << 20))
    row_ids = np.array([first_row_id(chunk_key(item, 0)) + row for item in range(batches) for row in (1, 2, 3, 9, 20)])
    homes = 5
    for _ in range(homes):
        found = Candidates(folder, "near", row_ids, PERMUTATIONS)
        for _ in range(3):  # what a home has read it does not read again
            found.sets(np.arange(len(row_ids)))
    # Of each batch the head once per process, and once per home the runs of rows 1 to 3, 9, and 20.
    assert folder.reads == {candidates_name("near", chunk_key(item, 0)): 1 + 3 * homes for item in range(batches)}
    # Without room for the heads: once per home.
    monkeypatch.setattr(candidates, "_HEADS", ByteCache(3000))
    folder.reads.clear()
    for _ in range(homes):
        Candidates(folder, "near", row_ids, PERMUTATIONS)
    assert set(folder.reads.values()) == {homes}


def test_a_cache_keeps_the_last_ones_used() -> None:
    cache, reads = ByteCache(10), list[str]()

    def get(key: str, size: int) -> Any:
        return cache.get(key, lambda: reads.append(key) or bytes(size))  # type: ignore[func-returns-value]

    for key, size in [("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("large", 20), ("large", 20)]:
        assert len(get(key, size)) == size
    assert reads == ["a", "b", "c", "b", "large"]


def test_a_range_of_a_file(tmp_path: Path) -> None:
    for root in (str(tmp_path), f"memory://{uuid.uuid4().hex}"):
        folder = Folder(root)
        folder.write_bytes("a/b", b"0123456789")
        assert [folder.read_range("a/b", *ends) for ends in ((0, 3), (7, 99), (4, 4))] == [b"012", b"789", b""]
        with pytest.raises(FileNotFoundError):
            folder.read_range("a/c", 0, 1)
