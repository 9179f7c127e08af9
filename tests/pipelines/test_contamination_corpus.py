"""Contamination with the count of boilerplate, by the whole tool: what is in many sources does not count."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.packing import pack_arrays, unpack_arrays
from filters.contamination import ContaminationConfig
from filters.contamination_corpus import ContaminationCorpus
from pipelines.boilerplate import by_partition, partitions_of
from pipelines.cli import main
from tests.pipelines.corpora import report, run, table, write_config
from tests.pipelines.duplicate_runs import write_rows

WORDS = "river stone bridge market grain valley winter lantern copper orchard meadow harbour thunder pepper".split()


def _sentence(seed: str, length: int) -> str:
    choose = random.Random(seed)
    return " ".join(f"{choose.choice(WORDS)}{choose.randrange(90)}" for _ in range(length))


COMMON, RARE, SHORT = _sentence("common", 30), _sentence("rare", 30), _sentence("short", 9)
SOURCES = 12


def _suite(folder: Path) -> str:
    items = [{"id": name, "question": text} for name, text in (("common", COMMON), ("rare", RARE), ("short", SHORT))]
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    (folder / "suite.yaml").write_text(
        "benchmarks: [{name: quiz, files: items.jsonl, id: id, question: question}]", encoding="utf-8"
    )
    return str(folder / "suite.yaml")


def _rows(field: str = "text") -> list[dict[str, Any]]:
    """Records of 12 sources: ``COMMON`` is in all of them, ``RARE`` in two, ``SHORT`` in five."""
    rows = []
    for number in range(240):
        parts = [_sentence(f"before {number}", 40)]
        source = number % SOURCES
        if number < SOURCES or number % 40 == 1:
            parts.append(COMMON.upper() if number % 2 else COMMON)
        if number in (50, 51):
            parts.append(RARE)
        if source < 5 and 100 <= number < 112:
            parts.append(SHORT)
        rows.append({"id": f"r{number:03d}", field: "\n".join([*parts, _sentence(f"after {number}", 40)])})
        rows[-1]["source"] = f"s{source}"
        if field == "response":
            rows[-1]["prompt"] = f"{RARE} {number}" if number == 99 else f"Say {_sentence(f'prompt {number}', 8)}."
    return rows


def _holding(text: str, rows: list[dict[str, Any]], field: str = "text") -> set[str]:
    return {row["id"] for row in rows if text.lower() in row[field].lower()}


def _run(folder: Path, output: str, *options: str, rows: list[dict[str, Any]] | None = None, **settings: Any) -> Path:
    rows = _rows() if rows is None else rows
    entry = write_rows(folder / "in", rows)
    pairs = {"prompt_column": "prompt", "response_column": "response"} if "prompt" in rows[0] else {}
    stages = [
        {"length": {"minimum_characters": 5}},
        {"contamination": {"suites": [_suite(folder)], **settings}},
        "exact_duplicates",
        {"length": {"name": "last", "minimum_characters": 5}},
    ]
    config = write_config(
        folder / f"{output}.yaml",
        entry,
        folder / output,
        stages,
        id_column="id",
        source_column="source",
        batch_rows=37,
        **pairs,
    )
    assert run(config, *options) == 0
    return folder / output


@pytest.mark.parametrize("action", ["drop", "cut", "flag"])
def test_without_anything_in_many_sources_it_is_as_in_a_single_pass(tmp_path: Path, action: str) -> None:
    single = _run(tmp_path, "single", action=action, boilerplate="off", minimum_left=10)
    counted = _run(tmp_path, "counted", action=action, boilerplate=SOURCES + 1, minimum_left=10)
    for name in ("curated", "ledger", "evidence"):
        assert table(single, name) == table(counted, name)
    one, other = report(single), report(counted)
    assert one["records"] == other["records"]
    assert one["contamination"] == other["contamination"]
    assert other["contamination"]["contamination"]["quiz"]["found"] == 3
    assert other["boilerplate"]["contamination"]["ngrams"] == 0


def test_what_is_in_many_sources_does_not_count(tmp_path: Path) -> None:
    rows = _rows()
    folder = _run(tmp_path, "run", boilerplate=SOURCES)
    gone = {row["record_id"]: row for row in table(folder, "ledger")}
    assert set(gone) == _holding(RARE, rows) | _holding(SHORT, rows)
    assert {row["rule"] for row in gone.values()} == {"threshold", "short_items"}
    found = report(folder)
    assert found["contamination"]["contamination"]["quiz"]["ids"] == ["rare", "short"]
    aside = found["boilerplate"]["contamination"]
    assert aside["sources"] == SOURCES
    # Each run of five words of an item of 30.
    assert aside["ngrams"] == 26
    assert {entry["item"] for entry in aside["first"]} == {"quiz/common"}
    assert sorted(entry["words"][0] for entry in aside["first"]) == list(range(1, 27))


def test_a_list_of_boilerplate(tmp_path: Path) -> None:
    rows = _rows()
    (tmp_path / "list.txt").write_text(f"{RARE.upper()}!\n\n{SHORT}\n", encoding="utf-8")
    folder = _run(tmp_path, "run", boilerplate=SOURCES + 1, boilerplate_file=str(tmp_path / "list.txt"))
    assert {row["record_id"] for row in table(folder, "ledger")} == _holding(COMMON, rows)
    assert report(folder)["boilerplate"]["contamination"]["by_list"] > 26


def test_each_field_of_a_pair_is_cut_by_itself(tmp_path: Path) -> None:
    rows = _rows("response")
    folder = _run(tmp_path, "run", rows=rows, boilerplate=SOURCES, action="cut", margin=0, minimum_left="off")
    kept = {row["id"]: row for row in table(folder, "curated")}
    assert len(kept) == len(rows)
    assert _holding(COMMON, list(kept.values()), "response") == _holding(COMMON, rows, "response")
    assert not _holding(RARE, list(kept.values()), "response")
    assert kept["r099"]["prompt"] == " 99"
    fields = {(row["record_id"], row["field"]) for row in table(folder, "evidence") if row["related"] == "quiz/rare"}
    assert fields == {("r050", "response"), ("r051", "response"), ("r099", "prompt")}


def test_two_such_stages_in_one_run(tmp_path: Path) -> None:
    """Each counts for itself; the report in HTML has one with boilerplate beside one without."""
    rows = _rows()
    suite = _suite(tmp_path)
    stages = [
        {"contamination": {"suites": [suite], "boilerplate": SOURCES, "action": "cut", "minimum_left": "off"}},
        {"contamination": {"name": "second", "suites": [suite], "boilerplate": 2}},
        {"contamination": {"name": "third", "suites": [suite], "boilerplate": "off"}},
    ]
    entry = write_rows(tmp_path / "in", rows)
    config = write_config(
        tmp_path / "c.yaml", entry, tmp_path / "run", stages, id_column="id", source_column="source", batch_rows=37
    )
    assert run(config) == 0
    folder = tmp_path / "run"
    found = report(folder)
    assert found["contamination"]["contamination"]["quiz"]["ids"] == ["rare", "short"]
    assert found["contamination"]["second"]["quiz"]["ids"] == []
    assert found["contamination"]["third"]["quiz"]["ids"] == ["common"]
    assert {name: entry["sources"] for name, entry in found["boilerplate"].items()} == {
        "contamination": SOURCES, "second": 2,
    }  # fmt: skip
    assert {row["record_id"] for row in table(folder, "ledger")} == _holding(COMMON, rows)
    assert {row["stage"] for row in table(folder, "ledger")} == {"third"}
    assert "in at least 12 sources" in (folder / "report.html").read_text(encoding="utf-8")
    assert main(["clean", str(folder)]) == 0
    assert not (folder / "staging").exists()


@pytest.mark.parametrize("partitions", [64, 65, 1000])
def test_ngrams_are_sent_whole_to_their_partition(partitions: int) -> None:
    choose = np.random.default_rng(1)
    ngrams, sources = (choose.integers(0, 500, 3000).astype(np.uint64) for _ in range(2))
    found = by_partition(pack_arrays([ngrams, sources]), partitions)
    assert len({part for part, _ in found}) == len(found)
    pairs = []
    for part, data in found:
        own, of_them = unpack_arrays(data, (np.uint64, np.uint64))
        assert set((own % np.uint64(partitions)).tolist()) == {part}
        pairs += zip(own.tolist(), of_them.tolist(), strict=True)
    assert sorted(pairs) == sorted(zip(ngrams.tolist(), sources.tolist(), strict=True))
    assert by_partition(pack_arrays([ngrams[:0], sources[:0]]), partitions) == []


def test_partitions_follow_from_the_index(tmp_path: Path) -> None:
    """With 16 bytes for each of the first sources of each n-gram, none is above 8 MiB."""
    for sources, partitions in ((2, 64), (1000, 64)):
        config = ContaminationConfig.model_validate({"suites": [_suite(tmp_path)], "boilerplate": sources})
        stage = ContaminationCorpus(config, "contamination", "text")
        stage.prepare()
        assert partitions_of(stage) == partitions
        index = dataclasses.replace(stage.index(), postings=np.zeros(1 << 20, np.uint32))
        stage.index = lambda index=index: index  # type: ignore[method-assign]
        assert partitions_of(stage) == max(64, sources * 16 * (1 << 20) // (8 << 20))


def test_the_same_bytes_for_other_workers(tmp_path: Path) -> None:
    manifests = [
        (_run(tmp_path, f"w{number}", f"--direct_num_workers={number}", boilerplate=SOURCES) / "manifest.json")
        for number in (1, 2)
    ]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()


def test_a_list_that_cannot_be_read_is_found_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = write_rows(tmp_path / "in", _rows())
    for settings, message in (
        ({"boilerplate_file": str(tmp_path / "none.txt")}, "none.txt"),
        ({"boilerplate": "off", "boilerplate_file": "list.txt"}, "boilerplate_file needs boilerplate"),
    ):
        stages = [{"contamination": {"suites": [_suite(tmp_path)], **settings}}]
        assert run(write_config(tmp_path / "c.yaml", entry, tmp_path / "run", stages)) == 2
        assert message in capsys.readouterr().err
