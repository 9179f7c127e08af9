"""Generated corpora, parts of them, and what a process took."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline import same_fates, summary, write_kept, write_part
from benchmarks.processes import measured, one_core
from benchmarks.variants import Variant, written


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A folder with a sample corpus of 100 kB, all of its words different."""
    documents = tmp_path / "sample" / "documents"
    documents.mkdir(parents=True)
    texts = [" ".join(f"w{number}" for number in range(start, start + 500)) for start in range(0, 15_000, 500)]
    pq.write_table(pa.table({"text": texts}), documents / "part.parquet")
    return tmp_path


def texts_of(files: Path) -> list[str]:
    texts: list[str] = pa.concat_tables(map(pq.read_table, sorted(files.glob("*.parquet"))))["text"].to_pylist()
    return texts


def test_a_variant_has_its_size_sources_and_length(sample: Path) -> None:
    files, size = written(sample, Variant(0.3, characters=1000, sources=3))
    texts = texts_of(files)
    assert sum(len(text.encode()) for text in texts) == size
    assert 300_000 <= size < 302_000
    assert 900 < size / len(texts) < 1100
    assert len(set(texts)) == len(texts)
    table = pa.concat_tables(map(pq.read_table, sorted(files.glob("*.parquet"))))
    assert len(set(table["id"].to_pylist())) == len(texts)
    assert len(set(table["source"].to_pylist())) == 3
    assert written(sample, Variant(0.3, characters=1000, sources=3)) == (files, size)


@pytest.mark.parametrize("changed", [False, True])
def test_a_variant_has_its_share_of_copies(changed: bool, sample: Path) -> None:
    files, _ = written(sample, Variant(0.2, characters=300, copies=0.5, changed=changed))
    texts = texts_of(files)
    originals = {text.rpartition(" copy")[0] or text for text in texts}
    assert 0.4 < 1 - len(originals) / len(texts) < 0.6
    if changed:
        assert len(set(texts)) > 0.95 * len(texts)
    else:
        assert len(set(texts)) == len(originals)


def test_a_part_is_spread_evenly_and_never_empty(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    pq.write_table(pa.table({"id": [str(n) for n in range(100)], "text": ["x" * 1000] * 100}), files / "a.parquet")
    assert write_part(files, tmp_path / "part", 0.01) == 10_000
    ids = pq.read_table(tmp_path / "part", columns=["id"])["id"].to_pylist()
    assert ids == [str(n) for n in range(0, 100, 10)]
    assert write_part(files, tmp_path / "one", 0) == 1000


def test_the_documents_that_a_stage_kept_are_written(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": ["1", "22", "333"]}), files / "a.parquet")
    assert write_kept(files, tmp_path / "kept", ["c", "a", "z"]) == 4
    assert pq.read_table(tmp_path / "kept")["id"].to_pylist() == ["a", "c"]


def test_fates_add_up() -> None:
    found = same_fates(["a", "b", "c", "d"], ["a", "b"], ["b", "c"])
    assert found == {
        "documents": 4,
        "both_keep": 1,
        "both_drop": 1,
        "only_ours_keeps": 1,
        "only_datatrove_keeps": 1,
    }


def test_rates_are_of_the_bytes_that_each_went_over() -> None:
    def ours(seconds: float) -> dict[str, Any]:
        return {"processor_seconds": seconds, "seconds": 9.0, "passed": {}}

    answers = {
        "few": [ours(2.0)],
        "all": [ours(9.0), ours(12.0), ours(10.0)],
        "part": [ours(3.0)],
        "english": [ours(7.0)],
        "english_part": [ours(2.5)],
        "datatrove": [{"seconds": 20.0, "elapsed": 21.0, "passed": {}}],
        "datatrove_english": [{"seconds": 20.0, "elapsed": 21.0, "passed": {}}],
    }
    sizes = {"few": 10, "all": 100_000_000, "part": 2_000_000, "english": 50_000_000, "english_part": 1_000_000}
    found = summary(answers, sizes)
    assert found["all"]["megabytes_per_second"] == pytest.approx(10)
    assert found["all"]["megabytes_per_second_beyond_start_up"] == pytest.approx(12.5)
    assert found["datatrove"]["megabytes_per_second"] == pytest.approx(0.1)
    assert found["times"] == pytest.approx(100)
    assert found["datatrove_english"]["megabytes_per_second"] == pytest.approx(0.05)
    assert found["times_english_beyond_start_up"] == pytest.approx(200)
    assert "times" not in summary({name: answers[name] for name in sizes}, sizes)


WORK = """
import subprocess, sys, time
held = bytearray(b"x") * (150 << 20)
end = time.process_time() + 0.4
while time.process_time() < end:
    pass
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
time.sleep(0.6)
"""


def test_what_a_process_took_includes_its_children() -> None:
    used = measured([sys.executable, "-c", WORK], one_core())
    assert used.processor_seconds >= 0.8
    assert used.seconds >= 0.6 + 0.8
    assert used.memory_bytes >= 150 << 20
    assert used.largest_process_bytes >= 150 << 20


def test_a_process_that_fails_is_told_with_what_it_said() -> None:
    with pytest.raises(SystemExit, match=r"exit code 7.*\n.*no such thing"):
        measured([sys.executable, "-c", "import sys; print('no such thing', file=sys.stderr); sys.exit(7)"])
