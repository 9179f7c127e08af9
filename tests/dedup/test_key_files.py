"""Keys in files: what is read back is what a batch sends, whatever its partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpus.folder import TEMPORARY, Folder
from dedup.key_files import KeyFiles, remove_keys, write_keys
from dedup.proposals import Entries


def entries_of(key: int, rows: int, parts: int) -> Entries:
    source = np.random.default_rng(key)
    bands = source.integers(0, 2**64, (rows, 5), np.uint64)
    hashes = np.frombuffer(source.bytes(16 * rows), "V16")
    return Entries.of(key, np.arange(rows), bands, source.random(rows) < 0.9, hashes, parts)


@pytest.mark.parametrize("parts", [1, 6, 6000])
def test_partitions_are_read_back(tmp_path: Path, parts: int) -> None:
    folder = Folder(str(tmp_path))
    batches = [entries_of(key, rows, parts) for key, rows in ((0, 1), (1 << 32, 300), (7, 0))]
    files = KeyFiles(folder, "near")
    for entries in batches:
        sent = dict(entries.packed())
        assert write_keys(folder, "near", entries) == list(sent) == entries.counts()[0].tolist()
        assert {part: files.packed_of(entries.key, part) for part in sent} == sent
    (tmp_path / f"staging/near-near/keys/{TEMPORARY}half").write_bytes(b"left by a killed run")
    remove_keys(folder, "near")
    assert not (tmp_path / "staging/near-near/keys").exists()
    remove_keys(folder, "near")


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KeyFiles(Folder(str(tmp_path)), "near").packed_of(1, 0)
