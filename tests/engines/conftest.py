"""Corpora, and what the local run makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY
from tests.engines import clusters
from tests.engines.clusters import Cluster
from tests.pipelines.corpora import STAGES, documents, write_config, write_corpus

# Documents with ids, and pairs without; together every stage there is.
CONFIGS = ("documents", "pairs")


def thresher(*arguments: str, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, as users do."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        check=False,
    )


def command(*arguments: str) -> list[str]:
    """Return the command line of a process."""
    return [sys.executable, "-m", "pipelines.cli", *arguments]


def document_config(folder: Path, files: list[str], output: Path) -> Path:
    """Write a config with corpus stages between record stages: three passes."""
    stages = [
        *STAGES,
        {"gopher_quality": {"name": "again", "minimum_words": 30}},
        {"exact_duplicates": {"name": "once_more"}},
    ]
    return write_config(
        folder / "documents.yaml", files, output, stages, id_column="id", source_column="source", batch_rows=100
    )


def pair_config(folder: Path, output: Path) -> Path:
    """Write pairs and their config."""
    rows: list[dict[str, Any]] = [
        {"prompt": f"What about {row['id']}?", "response": row["text"]} for row in documents(900, seed=1)
    ]
    rows[5]["response"] = None
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet", row_group_size=200)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::2]))
    files = [str(folder / "pairs.parquet"), str(folder / "pairs.jsonl")]
    stages = [{"exact_duplicates": {"field": "prompt"}}, "language", "gopher_quality"]
    return write_config(
        folder / "pairs.yaml", files, output, stages,
        prompt_column="prompt", response_column="response", batch_rows=150,
    )  # fmt: skip


@pytest.fixture(scope="session")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Config files by name."""
    folder = tmp_path_factory.mktemp("engines")
    files = write_corpus(folder / "corpus", 3000)
    return {
        "documents": document_config(folder, files, folder / "documents"),
        "pairs": pair_config(folder, folder / "pairs"),
    }


@pytest.fixture(scope="session")
def expected(configs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The manifests that one local worker gives."""
    folder = tmp_path_factory.mktemp("local")
    manifests = {}
    for name, config in configs.items():
        done = thresher("run", str(config), "--output", str(folder / name), "--direct_num_workers=1")
        assert done.returncode == 0, done.stderr
        manifests[name] = (folder / name / "manifest.json").read_bytes()
    return manifests


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Flink cluster with two slots more than a job takes, so that one TaskManager can be lost."""
    with clusters.flink(tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster
