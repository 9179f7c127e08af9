"""A full disk, files that may not grow, permission lost in the middle of a run: one error, and then it goes on."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.kills import CONFIG, MODES, write_corpus
from pipelines.cli import main

CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("room") / "corpus", 1500)


def configured(folder: Path, corpus: Path, output: Path) -> Path:
    config = folder / "c.yaml"
    config.write_text(CONFIG.format(corpus=corpus, output=output), encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    assert main(["run", str(configured(folder, corpus, folder / "run")), "--direct_num_workers=1"]) == 0
    return (folder / "run/manifest.json").read_bytes()


def start(config: Path, mode: str, prepare: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "run", str(config), *MODES[mode]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def check_failure(process: subprocess.Popen[str], output: Path, cause: str) -> None:
    """One message with path, cause and remedy; nothing that looks finished, and no file that is cut."""
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors
    lines = errors.strip().splitlines()
    assert lines[0].startswith("thresher: ")
    assert str(output) in lines[0]
    assert cause in lines[0]
    assert len(lines) <= 2, errors
    assert lines[-1].endswith("run the same command again to go on")
    assert not (output / "manifest.json").exists()
    for path in output.rglob("part-*.parquet"):
        pq.read_table(path)


def check_resumed(config: Path, output: Path, expected: bytes) -> None:
    assert main(["run", str(config), "--direct_num_workers=1"]) == 0
    assert (output / "manifest.json").read_bytes() == expected
    assert not list(output.rglob(".tmp-*"))
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize("mode", MODES)
def test_files_that_may_not_grow(corpus: Path, expected: bytes, tmp_path: Path, mode: str) -> None:
    config = configured(tmp_path, corpus, tmp_path / "run")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))

    check_failure(
        start(config, mode, limit), tmp_path / "run", "cannot be written (File too large); make room or rights"
    )
    check_resumed(config, tmp_path / "run", expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(corpus: Path, expected: bytes, tmp_path: Path, small_disk: Path) -> None:
    config = configured(tmp_path, corpus, small_disk / "run")
    check_failure(start(config, "threads"), small_disk / "run", "(No space left on device); make room or rights")
    assert list((small_disk / "run/staging/records").iterdir())
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    check_resumed(config, small_disk / "run", expected)


def obey_permissions() -> None:
    """Take from a superuser the right to write where nobody may."""
    if os.geteuid() == 0:
        library = ctypes.CDLL(None, use_errno=True)
        for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
            if library.prctl(CAPBSET_DROP, capability, 0, 0, 0):
                os._exit(77)


def test_permission_that_is_lost_in_the_middle(corpus: Path, expected: bytes, tmp_path: Path) -> None:
    output = tmp_path / "run"
    config = configured(tmp_path, corpus, output)
    process = start(config, "processes", obey_permissions)
    end = time.monotonic() + 100
    while not (output / "staging/records").is_dir() or not list((output / "staging/records").iterdir()):
        if process.poll() == 77:
            pytest.skip("a superuser that may not give up rights")
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    # Held still, so that all folders lose their permission at one moment.
    folders = [output, *(Path(parent) for parent, _, _ in os.walk(output))]
    process.send_signal(signal.SIGSTOP)
    for folder in folders:
        folder.chmod(0o500)
    process.send_signal(signal.SIGCONT)
    try:
        check_failure(process, output, "(Permission denied)")
    finally:
        for folder in folders:
            folder.chmod(0o700)
    check_resumed(config, output, expected)
