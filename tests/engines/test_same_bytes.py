"""The same graph gives the same bytes on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from reports.verify import verify
from tests.engines import clusters
from tests.engines.clusters import Cluster
from tests.engines.conftest import CONFIGS
from tests.engines.runs import thresher


def _inside(*options: str) -> Callable[[Path], AbstractContextManager[Cluster]]:
    @contextmanager
    def nothing_to_start(folder: Path) -> Iterator[Cluster]:
        yield Cluster(list(options))

    return nothing_to_start


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Cluster]]] = {
    "threads": _inside("--engine=local", "--direct_num_workers=2"),
    "processes": _inside("--direct_num_workers=2", "--direct_running_mode=multi_processing"),
    "embedded": _inside("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"),
    "spark": clusters.spark_local,
    "prism": clusters.prism,
}


@pytest.fixture(scope="module", params=[*ENGINES, "flink"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if request.param == "flink":
        yield request.getfixturevalue("flink")
        return
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as cluster:
        yield cluster


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_manifest(
    engine: Cluster, name: str, configs: dict[str, Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    done = thresher("run", str(configs[name]), "--output", str(tmp_path / "run"), *engine.options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/manifest.json").read_bytes() == expected[name]
    assert verify(str(tmp_path / "run")) == []
