"""What people read data sets with reads the output of a run as it is, and the dataset card is one of the hub's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pandas
import polars
import pyarrow.parquet as pq
import pytest
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard

import pipelines
from pipelines.finished_run import Run

ROWS = 900
# Of equal texts the one with the smaller id stays, and ä comes before ö.
COPY = "ö"
PARAGRAPH = "The old mill stands near the river, and the people of the town walk there on Sundays. Ähnlich, 안녕, 🌊.\n"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep datasets from telling the hub about each load."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)


def record(number: int) -> dict[str, Any]:
    """A record of columns that readers may stumble over: nulls, lists, objects, wide integers, any Unicode."""
    return {
        "id": f"ä/{number}",
        "text": f"{number}: " + PARAGRAPH * (20 + number % 7),
        "site": None if number % 5 == 0 else f"site {number % 3}",
        "stars": None if number % 4 == 0 else 2**53 + number,
        "share": number / 7,
        "tags": [] if number % 2 else ["a", f"b{number}"],
        "origin": {"crawl": "2026-11", "offset": number} if number % 3 else None,
        "checked": number % 2 == 0,
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose output has several files, and a batch of records that left."""
    folder = tmp_path_factory.mktemp("readers")
    records = [record(number) for number in range(ROWS)]
    records += [{**record(1), "id": COPY}, {**record(2), "id": "blank", "text": " "}]
    lines = [json.dumps(one, ensure_ascii=False) for one in records] + ["broken"]
    (folder / "pages.jsonl").write_text("\n".join(lines), encoding="utf-8")
    config = {
        "input": {"files": [folder / "pages.jsonl"], "id_column": "id", "source_column": "site"},
        "output": folder / "run",
        "stages": ["language", "exact_duplicates"],
        "batch_bytes": 256 << 10,
        "target_file_bytes": 1 << 20,
    }
    return pipelines.run(config, ["--direct_num_workers=1"])


@pytest.fixture(scope="module")
def rows(run: Run) -> list[dict[str, Any]]:
    """The curated records in the order of the files, as pyarrow reads them."""
    paths = sorted(Path(run.root, "curated").glob("*.parquet"))
    assert len(paths) > 1
    found = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert [row["id"] for row in found] == [f"ä/{number}" for number in range(ROWS)]
    assert [{name: row[name] for name in record(0)} for row in found] == [record(number) for number in range(ROWS)]
    assert {row["language"] for row in found} == {"en"}
    return found


def plain(value: Any) -> Any:
    """A value of pandas as Python has it."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return None if value is None or value is pandas.NA or value != value else value


def test_datasets_reads_the_curated_folder(run: Run, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    data_dir = str(Path(run.root, "curated"))
    found = datasets.load_dataset("parquet", data_dir=data_dir, split="train", cache_dir=str(tmp_path))
    assert found.to_list() == rows
    streamed = datasets.load_dataset("parquet", data_dir=data_dir, split="train", streaming=True)
    assert [row["id"] for row in streamed] == [row["id"] for row in rows]


def test_datasets_reads_the_run_folder_by_its_card(run: Run, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """As the hub would, if the folder were uploaded: the card says which files are the data."""
    found = datasets.load_dataset(run.root, split="train", cache_dir=str(tmp_path))
    assert found.to_list() == rows


def test_duckdb_reads_all_tables(run: Run, rows: list[dict[str, Any]]) -> None:
    found = duckdb.sql(f"select * from '{run.root}/curated/*.parquet'")
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows
    joined = duckdb.sql(f"""
        select count(*), count(*) filter (kept), count(ledger.record_id)
        from '{run.root}/signals/*.parquet' as signals
        left join '{run.root}/ledger/*.parquet' as ledger using (record_id)
    """)
    assert joined.fetchall() == [(ROWS + 2, ROWS, 2)]
    reasons = f"select record_id, stage, rule from '{run.root}/ledger/*.parquet' order by all"
    assert duckdb.sql(reasons).fetchall() == [
        ("blank", "input", "empty_text"),
        (COPY, "exact_duplicates", "duplication_budget"),
    ]


def test_polars_reads_all_tables(run: Run, rows: list[dict[str, Any]]) -> None:
    assert polars.read_parquet(f"{run.root}/curated/*.parquet").to_dicts() == rows
    lazy = polars.scan_parquet(f"{run.root}/signals/*.parquet").filter(~polars.col("kept"))
    assert sorted(lazy.select("record_id").collect()["record_id"]) == ["blank", COPY]
    assert polars.read_parquet(f"{run.root}/dead_letters/*.parquet")["raw"].to_list() == [b"broken"]


def test_pandas_reads_all_tables(run: Run, rows: list[dict[str, Any]]) -> None:
    frame = pandas.read_parquet(f"{run.root}/curated", dtype_backend="numpy_nullable")
    assert plain(frame.to_dict("records")) == rows
    clusters = pandas.read_parquet(f"{run.root}/clusters")
    assert sorted(clusters["role"]) == ["dropped", "leader"]
    assert set(clusters["jaccard"].dropna()) == {1.0}


def test_the_dataset_card_has_the_format_of_the_hub(run: Run) -> None:
    card = DatasetCard.load(Path(run.root, "README.md"))
    [config] = card.data.to_dict()["configs"]
    assert config == {"config_name": "default", "data_files": "curated/*.parquet"}
    # What datasets and the hub's viewer make of it; a wrong form raises.
    known = MetadataConfigs.from_dataset_card_data(card.data)
    assert known.get_default_config_name() == "default"
    assert card.data.size_categories == ["n<1K"]

    # The header is what huggingface_hub would write of the same values.
    assert DatasetCard(str(card)).data.to_dict() == card.data.to_dict()
    assert "# Curated records" in card.text


def test_every_table_of_the_manifest_is_read(run: Run) -> None:
    outputs = [output for output in run.manifest["outputs"] if output["file"].endswith(".parquet")]
    assert {output["file"].split("/")[0] for output in outputs} >= {"curated", "ledger", "signals", "clusters"}
    for output in outputs:
        assert polars.read_parquet(f"{run.root}/{output['file']}").height == output["rows"]
        assert duckdb.sql(f"select count(*) from '{run.root}/{output['file']}'").fetchall() == [(output["rows"],)]
