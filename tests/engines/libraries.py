"""The programs of the engines: Java libraries by Maven, kept outside the repository and fetched once per version."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CACHE = platformdirs.user_cache_path("thresher") / "engines"
PRISM = CACHE / "prism-2.77.0" / "prism"
# A Java class path of its own for each of them: their libraries contradict each other.
PROFILES = ("flink", "spark")


def jars(profile: str) -> Path:
    """Return the folder with the Java libraries of an engine; skips the test where they cannot be had."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: apt-get install default-jdk-headless maven")
    target = CACHE / f"{profile}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    half = target.with_name(f"{target.name}.{os.getpid()}")
    fetch = ["mvn", "-B", "-q", "-f", str(POM), "-P", profile, "dependency:copy-dependencies"]
    done = subprocess.run(
        [*fetch, f"-DoutputDirectory={half}"], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        pytest.skip(f"the libraries of {profile} cannot be fetched: {(done.stdout + done.stderr)[-300:]}")
    # Two test sessions may have fetched them at the same time; either copy will do.
    try:
        half.rename(target)
    except OSError:
        shutil.rmtree(half)
    return target


def stage_nothing(libraries: Path, folder: Path) -> Path:
    """Return a class path entry that keeps Beam's job server from sending its whole class path with every job.

    Those are 150 MB in 162 files, and half a minute; clusters of these tests have them in their class path already.
    """
    command = [
        "javac",
        "-cp",
        f"{libraries}/*",
        "-d",
        str(folder),
        str(HERE / "ClasspathScanningResourcesDetector.java"),
    ]
    subprocess.run(command, check=True, timeout=120)
    return folder


def prism() -> Path:
    """Return Beam's Prism; skips the test where it was not built."""
    if not PRISM.is_file():
        pytest.skip("Prism is not built; `make test-prism` builds it with Go and runs these tests on it")
    return PRISM


if __name__ == "__main__":
    sys.stdout.write(f"{PRISM.parent}\n")
