"""What ``thresher verify`` finds: any flipped byte, any missing file, and books that are wrong in themselves."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli import main
from reports import verify_records
from reports.verify import verify
from reports.verify_records import find_places
from tests.pipelines.corpora import report, run, write_config, write_corpus, write_manifest

USER_STAGE = """
def judge(record):
    if record["text"].startswith("the"):
        raise ValueError("no text of mine")
    return True
"""
STAGES: list[Any] = [
    "language",
    {"length": {"minimum_words": 10}},
    "exact_duplicates",
    {"near_duplicates": {"threshold": 0.8, "shingle_tokens": 1}},
    {"python": {"function": "verify_stage:judge"}},
    {"length": {"name": "longest", "maximum_words": 70}},
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run where all kinds of things happen: edits, copies, leaders that leave later, dead letters of both kinds."""
    folder = tmp_path_factory.mktemp("verify")
    files = write_corpus(folder / "corpus", 600)
    (folder / "verify_stage.py").write_text(USER_STAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        config = write_config(
            folder / "c.yaml", files, folder / "run", STAGES, id_column="id", source_column="source", batch_rows=50
        )
        assert run(config, "--clean") == 0
    stages = {stage["name"]: stage["dropped"] for stage in report(folder / "run")["stages"]}
    assert all(stages[name] for name in ("input", "length", "exact_duplicates", "near_duplicates", "longest")), stages
    letters = report(folder / "run")["dead_letters"]
    assert letters["stage_error"] > 0
    assert len(letters) > 2
    return folder / "run"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def sign(folder: Path) -> None:
    """Make the manifest one of the files as they are, as somebody would who wants to hide what they did."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for entry in manifest["outputs"]:
        path = folder / entry["file"]
        data = path.read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if path.suffix == ".parquet":
            entry["rows"] = pq.ParquetFile(path).metadata.num_rows
    write_manifest(folder, manifest)


def rewrite(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a table of a run, and sign."""
    (path,) = (folder / table).iterdir()
    before = pq.read_table(path)
    rows = before.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=before.schema), path)
    sign(folder)


def test_a_finished_run_is_well_and_signing_it_again_changes_nothing(copy: Path) -> None:
    assert verify(str(copy)) == []
    rewrite(copy, "ledger", lambda rows: None)
    assert verify(str(copy)) == []


KINDS = [
    *("curated", "ledger", "signals", "evidence", "clusters", "dead_letters"),
    *("report.json", "config.yaml", "README.md", "manifest.json"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_and_a_missing_file_are_found(copy: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / kind
    if path.is_dir():
        path = next(path.iterdir())
    whole = path.read_bytes()
    choose = random.Random(kind)
    for _ in range(20):
        place = choose.randrange(len(whole))
        flipped = whole[place] ^ (1 << choose.randrange(8))
        path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
        # A manifest that is no JSON any more is the manifest of no run.
        assert main(["verify", str(copy)]) in ((2, 3) if kind == "manifest.json" else (3,)), (place, flipped)
        assert path.name in capsys.readouterr().err
    path.write_bytes(whole[:-1])
    assert main(["verify", str(copy)]) in (2, 3)
    path.unlink()
    assert main(["verify", str(copy)]) == (2 if kind == "manifest.json" else 3)
    assert path.name in capsys.readouterr().err
    path.write_bytes(whole)
    assert main(["verify", str(copy)]) == 0


def test_a_file_that_nobody_listed_is_found(copy: Path) -> None:
    (copy / "curated/part-00001-of-00002.parquet").write_bytes(b"")
    assert verify(str(copy)) == ["curated/part-00001-of-00002.parquet is not in the manifest"]


def _first(rows: list[dict[str, Any]], stage: str, later: bool = False) -> dict[str, Any]:
    return next(row for row in rows if row["stage"] == stage and ("later_dropped_by" in row["detail"]) == later)


def _with_detail(row: dict[str, Any], **changes: Any) -> None:
    row["detail"] = json.dumps({**json.loads(row["detail"]), **changes})


def _another_id(rows: list[dict[str, Any]]) -> None:
    _first(rows, "near_duplicates", later=True)["related_id"] = "doc-1"


def _no_such_place(rows: list[dict[str, Any]]) -> None:
    _with_detail(_first(rows, "exact_duplicates"), position=10**9)


def _gone_before(rows: list[dict[str, Any]]) -> None:
    gone = next(row for row in rows if row["stage"] == "length")
    row = _first(rows, "near_duplicates", later=True)
    row["related_id"] = gone["record_id"]
    _with_detail(row, file=gone["file"], position=gone["position"])


def _gone_by_itself(rows: list[dict[str, Any]]) -> None:
    first, second = [row for row in rows if row["stage"] == "near_duplicates"][:2]
    first["related_id"] = second["record_id"]
    _with_detail(first, file=second["file"], position=second["position"])


def _not_later(rows: list[dict[str, Any]]) -> None:
    row = _first(rows, "near_duplicates", later=True)
    row["detail"] = json.dumps({key: value for key, value in json.loads(row["detail"]).items() if key[0] != "l"})


def _one_twice(rows: list[dict[str, Any]]) -> None:
    first, second = [row for row in rows if row["stage"] == "length" and row["source"] == "web"][:2]
    rows[rows.index(second)] = dict(first)


def _kept_one(rows: list[dict[str, Any]]) -> None:
    """A kept record and one that left change places."""
    kept = next(row for row in rows if row["kept"] and row["source"] == "web")
    left = next(row for row in rows if not row["kept"] and row["source"] == "web")
    kept["kept"], left["kept"] = False, True


def _swapped(rows: list[dict[str, Any]]) -> None:
    rows[3], rows[4] = rows[4], rows[3]


def _other_quality(rows: list[dict[str, Any]]) -> None:
    rows[7]["quality"] += 1e-12


def _other_text(rows: list[dict[str, Any]]) -> None:
    rows[7]["text"] += " "


def _other_language(rows: list[dict[str, Any]]) -> None:
    next(row for row in rows if row["language"] == "en")["language"] = "de"


def _on_a_record(rows: list[dict[str, Any]]) -> None:
    """A letter of the reader where a stage's letter is, which is a decoded record."""
    of_stage = next(row for row in rows if row["error"] == "stage_error")
    row = next(row for row in rows if row["error"] != "stage_error" and row["position"] is not None)
    row["file"], row["position"] = of_stage["file"], of_stage["position"]


def _unknown_file(rows: list[dict[str, Any]]) -> None:
    next(row for row in rows if row["error"] != "stage_error")["file"] = "d.jsonl"


@pytest.mark.parametrize(
    ("table", "change", "finding"),
    [
        ("ledger", _another_id, "has another id at the place that the ledger gives, first doc-1"),
        ("ledger", _no_such_place, "related_id of 1 ledger rows is no decoded record"),
        ("ledger", _gone_before, "related_id of 1 ledger rows was not kept by the stage that names it"),
        ("ledger", _gone_by_itself, "related_id of 1 ledger rows was not kept by the stage that names it"),
        ("ledger", _not_later, "left by another later stage than the ledger says"),
        ("ledger", _one_twice, "more than once in ledger and dead letters: 2 records"),
        ("ledger", _one_twice, "not kept, and neither in the ledger nor in the dead letters: 1 records"),
        ("signals", _kept_one, "kept, and in the ledger or the dead letters too: 1 records"),
        ("signals", _kept_one, "not kept, and neither in the ledger nor in the dead letters: 1 records"),
        ("signals", _kept_one, "has other records than signals call kept"),
        ("signals", _swapped, "the records are not in the order of the input"),
        ("curated", _swapped, "has other records than signals call kept, or in another order"),
        ("curated", _other_quality, "the curated records have the digest"),
        ("curated", _other_text, "has a text that is not the one of its content_hash"),
        ("curated", _other_language, "the languages of the curated records are not those of the mixture"),
        ("dead_letters", _on_a_record, "1 places hold more than one record"),
        ("dead_letters", _unknown_file, "1 records of files that the manifest does not list"),
    ],
)
def test_wrong_books_are_found_even_when_signed(
    copy: Path, table: str, change: Callable[[list[dict[str, Any]]], None], finding: str
) -> None:
    rewrite(copy, table, change)
    findings = verify(str(copy))
    assert any(finding in each for each in findings), findings


def test_curated_files_of_other_columns_are_found(copy: Path) -> None:
    (path,) = (copy / "curated").iterdir()
    pq.write_table(pq.read_table(path).drop_columns(["record_id"]), path)
    sign(copy)
    assert verify(str(copy)) == [f"curated/{path.name} has no column record_id"]


def test_a_run_of_many_parts_is_checked_part_by_part(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tables in 40 parts, in 7 groups: what one part says of a record in another is found as before."""
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    manifest = json.loads((copy / "manifest.json").read_bytes())
    kept = [entry for entry in manifest["outputs"] if entry["file"].split("/")[0] not in ("signals", "ledger")]
    manifest["outputs"] = [entry for entry in kept if not entry["file"].startswith("dead_letters/")]
    files = [entry["file"] for entry in manifest["inputs"]]
    borders: list[tuple[int, int]] = []
    for table in ("signals", "ledger", "dead_letters"):
        (path,) = (copy / table).iterdir()
        whole = pq.read_table(path)
        places = list(zip(map(files.index, whole["file"].to_pylist()), whole["position"].to_pylist(), strict=True))
        if table == "signals":
            borders = places[:: len(places) // 38]
            # The second part has no decoded record.
            borders[1:1] = [(borders[1][0], borders[1][1])]
        count = len(borders)
        path.unlink()
        for number, start in enumerate(borders):
            end = borders[number + 1] if number + 1 < count else (len(files), 0)
            rows = [row for row, place in enumerate(places) if (start <= place or not number) and place < end]
            name = f"{table}/part-{number:05d}-of-{count:05d}.parquet"
            pq.write_table(whole.take(pa.array(rows, pa.int64())), copy / name)
            manifest["outputs"].append({"file": name})
    write_manifest(copy, manifest)
    sign(copy)
    monkeypatch.setattr(verify_records, "MAX_GROUPS", 7)
    assert verify(str(copy)) == []
    for path in sorted((copy / "ledger").iterdir()):
        table = pq.read_table(path)
        if table["related_id"].null_count < table.num_rows:
            ids = [None if related is None else f"{related}?" for related in table["related_id"].to_pylist()]
            pq.write_table(table.set_column(table.schema.get_field_index("related_id"), "related_id", [ids]), path)
    sign(copy)
    wrong = [finding for finding in verify(str(copy)) if "has another id" in finding]
    stages = {stage["name"]: stage["dropped"] for stage in report(copy)["stages"]}
    told = sum(int(finding.split()[2].replace(",", "")) for finding in wrong)
    assert told == stages["exact_duplicates"] + stages["near_duplicates"]
    assert len(wrong) > 1


@given(
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 9))),
    st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 10))),
)
def test_places_are_found(places: set[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    ordered = sorted(places)
    columns = [np.array(list(column), np.int64) for column in (zip(*ordered, strict=True) if ordered else ([], []))]
    asked = [np.array([place[part] for place in wanted], np.int64) for part in (0, 1)]
    expected = [ordered.index(place) if place in places else -1 for place in wanted]
    assert find_places(*columns, *asked).tolist() == expected
