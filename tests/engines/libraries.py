"""The programs of the engines: Java libraries by Maven, kept outside the repository and fetched once per version."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
STAGE_NOTHING = HERE / "ClasspathScanningResourcesDetector.java"
CACHE = platformdirs.user_cache_path("thresher") / "engines"
PRISM = CACHE / "prism-2.77.0" / "prism"
# Maven 3.8 and 3.9 name them differently. Both would wait for half an hour for a server that says nothing.
_QUIETLY = (
    "-B",
    "-q",
    "-Daether.connector.connectTimeout=10000",
    "-Daether.connector.requestTimeout=30000",
    "-Dmaven.wagon.http.retryHandler.count=1",
    "-Dmaven.wagon.rto=30000",
)
FETCH_SECONDS = 240
UNUSED_SECONDS = 24 * 3600.0
# A network that Maven could not reach for one engine is not asked for the next.
_failures: list[str] = []


def jars(profile: str) -> Path:
    """Return the folder with the Java libraries of an engine; skips the test where they cannot be had.

    Args:
        profile: ``flink`` or ``spark``, a Maven profile; their libraries contradict each other.
    """
    folder, reason = fetched(profile)
    if reason:
        pytest.skip(reason)
    return folder


def stage_nothing(profile: str) -> Path:
    """Return a class path entry that keeps Beam's job server from sending its whole class path with every job.

    Those are 150 MB in 162 files, and half a minute; clusters of these tests have them in their class path already.
    """
    return jars(profile) / "stage-nothing"


@functools.cache
def fetched(profile: str, cache: Path = CACHE) -> tuple[Path, str]:
    """Return where an engine's libraries are, after fetching them if need be, and why they are not there, if so."""
    content = POM.read_bytes() + STAGE_NOTHING.read_bytes()
    target = cache / f"{profile}-{hashlib.sha256(content).hexdigest()[:12]}"
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return target, f"{tool} is missing: apt-get install default-jdk-headless maven"
    if target.is_dir():
        note_use(target)
        return target, ""
    if _failures:
        return target, _failures[0]
    half = target.with_name(f"{target.name}.{os.getpid()}")
    reason = _fetch(profile, half)
    if reason:
        _failures.append(reason)
    # Two test sessions may have fetched them at the same time; either copy will do.
    if reason or target.is_dir():
        shutil.rmtree(half, ignore_errors=True)
    else:
        half.rename(target)
    if not reason:
        note_use(target)
    return target, reason


def note_use(folder: Path) -> None:
    """Note that a folder of the cache is used; those of its kind that nothing has used for a day are removed.

    They are of other versions, or half fetched. Another checkout whose tests are running keeps its own.

    Args:
        folder: its name ends in ``-`` and a digest; what stands before is the kind.
    """
    os.utime(folder)
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        with suppress(FileNotFoundError):
            if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


def _fetch(profile: str, folder: Path) -> str:
    """Fetch an engine's libraries into a new folder; returns why that failed, or nothing."""
    fetch = ["mvn", *_QUIETLY, "-f", str(POM), "-P", profile, "dependency:copy-dependencies"]
    classes = ["javac", "--release", "11", "-cp", f"{folder}/*", "-d", str(folder / "stage-nothing")]
    for command in ([*fetch, f"-DoutputDirectory={folder}"], [*classes, str(STAGE_NOTHING)]):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return f"the libraries of {profile} cannot be fetched within {FETCH_SECONDS} s"
        if done.returncode:
            said = (done.stdout + done.stderr).partition("[ERROR] ")[2].partition("\n")[0]
            return f"the libraries of {profile} cannot be fetched: {said[:300]}"
    return ""


def prism() -> Path:
    """Return Beam's Prism; skips the test where it was not built."""
    if not PRISM.is_file():
        pytest.skip("Prism is not built; `make test-prism` builds it with Go and runs these tests on it")
    return PRISM


if __name__ == "__main__":
    sys.stdout.write(f"{PRISM.parent}\n")
