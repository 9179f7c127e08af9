"""Quick tests and the same manifest on other Pythons: ``python -m tests.trust.pythons [PYTHON…]``.

Each interpreter gets a new environment with the pinned requirements of the tests (2 GB), one at a time, which is
removed afterwards. Those asked for are given as commands or paths; default are all that are found, on the PATH or below
pyenv, of the versions that Thresher supports and that this one is not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
OTHER_VERSIONS = tuple(version for version in VERSIONS if version != f"3.{sys.version_info.minor}")
# What tables, kernels, text and config readers do; models and engines take more than a few minutes.
QUICK = (
    "tests/corpus",
    *(f"tests/filters/test_{name}.py" for name in ("gopher", "language", "length", "pii", "repetition", "urls")),
    "tests/dedup/test_tokens.py",
    "tests/dedup/test_shingles.py",
    "tests/reports/test_drop_report.py",
    "tests/pipelines/test_config.py",
)


def version_of(python: str) -> str | None:
    """Return an interpreter's version, as ``3.12``; None where it does not run (pyenv's shims may not)."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=False, cwd="/")
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find(version: str) -> str | None:
    """Return an interpreter of a version, on the PATH or below pyenv; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    paths = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    return next((str(path) for path in paths if path and version_of(str(path)) == version), None)


def check(python: str, folder: Path) -> bool:
    """Run the tests on an interpreter, in an environment made in ``folder``; say whether all went well."""
    own = str(folder / "environment/bin/python")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
    invariance = "tests/trust/test_invariance.py::test_the_python_version_changes_nothing"
    steps: tuple[tuple[list[str], dict[str, str]], ...] = (
        ([python, "-m", "venv", str(folder / "environment")], {}),
        ([own, *install, "-e", ".[test]"], {}),
        ([own, "-m", "pip", "check"], {}),
        ([sys.executable, "-m", "pytest", "-q", f"{invariance}[{version_of(python)}]"], {"THRESHER_PYTHONS": own}),
        ([own, "-m", "pytest", "-q", *QUICK], {}),
    )
    return all(
        subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **more}, check=False).returncode == 0
        for command, more in steps
    )


def main(arguments: Sequence[str]) -> int:
    """Check each interpreter and return how many failed; 1 too where there is none to check."""
    pythons = list(arguments)
    for version in () if pythons else OTHER_VERSIONS:
        if other := find(version):
            pythons.append(other)
        else:
            sys.stdout.write(f"Python {version}: not found, left out\n")
    results = []
    for python in pythons:
        given = version_of(python)
        if given not in OTHER_VERSIONS:
            found = f"is {given}" if given else "does not run"
            sys.stdout.write(f"{python} {found}; give interpreters of {', '.join(OTHER_VERSIONS)}\n")
            results.append(False)
            continue
        sys.stdout.write(f"{python}\n")
        sys.stdout.flush()
        with tempfile.TemporaryDirectory(prefix="thresher-python-") as folder:
            results.append(check(python, Path(folder)))
    for python, passed in zip(pythons, results, strict=True):
        sys.stdout.write(f"{python}: {'passed' if passed else 'FAILED'}\n")
    return results.count(False) if results else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
