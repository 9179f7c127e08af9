"""Configs, what the local run makes of them, and the Flink cluster that most tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import clusters
from tests.engines.clusters import Cluster
from tests.engines.configs import document_config, entries, pair_config, without_rules
from tests.engines.runs import thresher
from tests.pipelines.corpora import write_config, write_corpus

# Documents with ids, whose stages drop; and pairs without, whose stages measure. Together every stage there is.
CONFIGS = ("documents", "pairs")


@pytest.fixture(scope="session")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Config files by name."""
    folder = tmp_path_factory.mktemp("engines")
    files = write_corpus(folder / "corpus", 1800)
    once_more = {"exact_duplicates": {"name": "once_more"}}
    every = [*entries("corpus"), *entries("record"), once_more]
    return {
        "documents": document_config(folder, files, folder / "documents", every),
        "pairs": pair_config(folder, folder / "pairs", without_rules("record")),
    }


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config for runs that need not do much."""
    folder = tmp_path_factory.mktemp("few")
    files = write_corpus(folder / "corpus", 150)
    return write_config(folder / "few.yaml", files, folder / "run", ["exact_duplicates"])


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
