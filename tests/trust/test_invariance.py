"""The same manifest whatever workers, order of the input, locale, time zone, hash seed and Python version."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from benchmarks.kills import MODES
from tests.pipelines.corpora import documents, run, write_config, write_corpus
from tests.trust.pythons import OTHER_VERSIONS, find, main, version_of

REPOSITORY = Path(__file__).parent.parent.parent
STAGES: list[Any] = [
    {"language": {"keep": ["en", "de"], "minimum_score": 0.3}},
    "pii",
    {"gopher_quality": {"minimum_words": 20}},
    {"near_duplicates": {"threshold": 0.8, "duplication_budget": {"by": "language", "default": 0.1}}},
    {"length": {"maximum_words": 80}},
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, 500)
    return folder


def manifest(
    folder: Path,
    corpus: Path,
    options: tuple[str, ...],
    backwards: bool = False,
    python: str = sys.executable,
    **environment: str,
) -> bytes:
    """Run in a process of its own and return the manifest."""
    files = sorted(map(str, corpus.iterdir()), reverse=backwards)
    config = write_config(
        folder / "c.yaml", files, folder / "run", STAGES, id_column="id", source_column="source", batch_rows=40
    )
    command = [python, "-m", "pipelines.cli", "run", str(config), *options]
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, **environment},
        cwd=REPOSITORY,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return (folder / "run/manifest.json").read_bytes()


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("expected")
    return manifest(folder, corpus, ("--direct_num_workers=1",), LC_ALL="C.UTF-8", TZ="UTC", PYTHONHASHSEED="0")


@pytest.mark.parametrize(
    ("options", "backwards", "environment"),
    [
        (MODES["processes"], True, {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "1"}),
        (
            ("--direct_num_workers=7", "--direct_running_mode=multi_threading"),
            False,
            {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "America/St_Johns", "PYTHONHASHSEED": "4242"},
        ),
    ],
    ids=["2 processes", "7 threads"],
)
def test_workers_order_locale_time_zone_and_hash_seed_change_nothing(
    corpus: Path,
    expected: bytes,
    tmp_path: Path,
    options: tuple[str, ...],
    backwards: bool,
    environment: dict[str, str],
) -> None:
    assert manifest(tmp_path, corpus, options, backwards, **environment) == expected
    assert 50 < json.loads(expected)["records"]["kept"] < 450


def _python(version: str) -> str:
    """An interpreter of a version that has what Thresher needs; skips where there is none.

    ``THRESHER_PYTHONS`` may name interpreters of other environments, between colons; of a version that it names, a
    lack is a failure. ``make test-pythons`` makes such environments.
    """
    given = [name for name in os.environ.get("THRESHER_PYTHONS", "").split(os.pathsep) if name]
    named = [name for name in given if version_of(name) == version]
    check = (
        "import importlib.util as u; from importlib.metadata import version as v; "
        "assert all(map(u.find_spec, ('apache_beam', 'numba', 'unicodedata2', 'orjson', 'ruamel.yaml'))); "
        "print(v('pyarrow'))"
    )
    for name in named or [f"python{version}"]:
        path = shutil.which(name)
        if path is None or version_of(path) != version:
            continue
        done = subprocess.run([path, "-c", check], capture_output=True, text=True, check=False, cwd="/")
        if done.stdout.strip() == pa.__version__:
            return path
    lack = f"no Python {version} with Thresher's requirements and pyarrow {pa.__version__}"
    if named:
        pytest.fail(f"{lack}: {', '.join(named)}")
    pytest.skip(f"{lack}; `make test-pythons` makes one, THRESHER_PYTHONS names one")


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_python_version_changes_nothing(corpus: Path, expected: bytes, tmp_path: Path, version: str) -> None:
    assert manifest(tmp_path, corpus, ("--direct_num_workers=1",), python=_python(version)) == expected


def test_interpreters_that_cannot_be_used_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    version = OTHER_VERSIONS[0]
    # A shim that runs nothing, as pyenv's; an interpreter of the version that has no packages; none at all.
    shim, bare = tmp_path / f"python{version}", tmp_path / f"versions/{version}.9/bin/python"
    bare.parent.mkdir(parents=True)
    for path, does in ((shim, "exit 127"), (bare, f"case $2 in *find_spec*) exit 1;; *) echo {version};; esac")):
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert version_of(str(shim)) is None
    assert find(version) == str(bare)
    monkeypatch.setenv("THRESHER_PYTHONS", str(bare))
    with pytest.raises(pytest.fail.Exception, match=f"no Python {version} with Thresher's requirements"):
        _python(version)
    assert main([str(shim), sys.executable]) == 2
    assert f"{shim} does not run; give interpreters of {version}, " in capfd.readouterr().out
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    monkeypatch.delenv("THRESHER_PYTHONS")
    assert find(version) is None
    with pytest.raises(pytest.skip.Exception, match="make test-pythons"):
        _python(version)


def test_the_format_of_the_input_does_not_change_the_content(tmp_path: Path) -> None:
    """The same records with id, source and JSON types, in files of other names, numbers, order and compression."""
    rows = [{**row, "deep": {"n": number, "x": [number / 3]}} for number, row in enumerate(documents(300))]
    rows = [{**row, "id": f"r{number}"} for number, row in enumerate(rows)]
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
    inputs = {name: tmp_path / name for name in ("parquet", "jsonl", "gz", "zst")}
    for folder in inputs.values():
        folder.mkdir()
    for part in range(3):
        pq.write_table(pa.Table.from_pylist(rows[part::3]), inputs["parquet"] / f"p{part}.parquet", row_group_size=31)
    (inputs["jsonl"] / "all.jsonl").write_bytes(b"".join(lines))
    for part in range(2):
        (inputs["gz"] / f"g{1 - part}.jsonl.gz").write_bytes(gzip.compress(b"".join(reversed(lines[part::2]))))
    (inputs["zst"] / "z.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(b"".join(lines[::-1])))
    digests = {}
    for name, folder in inputs.items():
        stages = [STAGES[0], {"gopher_quality": {"minimum_words": 20}}, "exact_duplicates"]
        config = write_config(
            tmp_path / f"{name}.yaml",
            [str(folder)],
            tmp_path / f"run-{name}",
            stages,
            id_column="id",
            source_column="source",
        )
        assert run(config) == 0
        found = json.loads((tmp_path / f"run-{name}/manifest.json").read_text())
        assert found["records"]["kept"] > 100
        digests[name] = found["content_digest"]
    assert len(set(digests.values())) == 1, digests
