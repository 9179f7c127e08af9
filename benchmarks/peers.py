"""Other tools in environments of their own, and processes that take turns.

A contender is a process that prints ``ready``, then answers each line that it gets with one line of JSON. Repetitions
of several contenders can so be interleaved, and start-up is not timed. All of them are bound to one and the same core
where the system can: comparisons are per core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from corpus.sample import build_sample

ROOT = Path(__file__).resolve().parent.parent

# Pinned, with what the part that is measured imports but the package does not require.
REQUIREMENTS = {
    # It installs ray by itself when it is imported.
    "data-juicer": ["py-data-juicer==1.6.1", "aiohttp==3.14.5", "msgpack==1.2.4", "ray==2.60.0"],
    "datasketch": ["datasketch==2.0.0", "pyarrow==25.0.1", "unicodedata2==18.0.0"],
    # No peer: makes text of pages for benchmarks.debian_corpus.
    "debian-corpus": ["pyarrow==25.0.1", "resiliparse==2.0.1"],
    # fasteners and fasttext are for its language filter.
    "datatrove": [
        *("datatrove==0.10.1", "fasteners==0.20", "fasttext-numpy2-wheel==0.9.2", "orjson==3.13.0", "pyarrow==25.0.1"),
        *("regex==2026.11.19", "spacy==3.8.18", "tokenizers==0.23.3", "xxhash==3.6.0"),
    ],
    # s3fs of 2023 fits one boto3 only, which pip does not find by itself.
    "dolma": ["dolma==1.2.1", "boto3==1.28.17"],
    "rensa": ["rensa==0.5.0", "pyarrow==25.0.1", "unicodedata2==18.0.0"],
    "text-dedup": [
        *("click==8.5.1", "click-option-group==0.5.10", "datasets==5.2.0", "numpy==2.2.6", "psutil==7.2.2"),
        *("pyarrow==25.0.1", "regex==2026.11.19", "rich==13.9.4", "scipy==1.15.3", "xxhash==4.1.0"),
    ],
}
# Installed behind these without what they require, most of which (Spark, models) is not for what is measured.
ALONE = {"text-dedup": ["text-dedup==0.4.0"]}


def environments(work: Path, peers: Iterable[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Python of a virtual environment for each peer, made below a folder when missing.

    Returns:
        (pythons, missing): by peer, and for those that cannot be installed here the last line that pip said.
    """
    pythons, missing = {}, {}
    for peer in dict.fromkeys(peers):
        folder = work / "peers" / peer
        problem = _install(folder, peer)
        if problem:
            missing[peer] = problem
        else:
            pythons[peer] = folder / "bin" / "python"
    return pythons, missing


def _install(folder: Path, peer: str) -> str:
    """Make an environment where there is none with these requirements; returns why pip failed, empty if it did not."""
    requirements = [REQUIREMENTS[peer], ALONE.get(peer, [])]
    installed = folder / "installed.json"
    if installed.exists() and json.loads(installed.read_text()) == requirements:
        return ""
    print(f"installing {peer} in {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    for options, chosen in (((), requirements[0]), (("--no-deps",), requirements[1])):
        if not chosen:
            continue
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *options, *chosen]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    installed.write_text(json.dumps(requirements))
    return ""


def bind_to_one_core() -> None:
    """Bind this process, and those it starts, to the last core that it may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Contender:
    """A process that answers lines."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        """Take the process, which was started with pipes for its input and output, and the file of its messages."""
        self._process = process
        self._log = log

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended with exit code {self._process.wait()}; its messages: {self._log}")
        return line

    def wait_until_ready(self) -> None:
        """Return once the process has loaded what it needs."""
        while self._answer().strip() != "ready":
            pass

    def ask(self, line: str) -> Any:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return json.loads(self._answer())


@contextmanager
def contenders(commands: Mapping[str, Sequence[str]], logs: Path) -> Iterator[dict[str, Contender]]:
    """Start a process per name, one after the other, and end them all behind the block.

    Args:
        commands: command line per name.
        logs: folder for what they write to the standard error.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        started = {}
        for name, command in commands.items():
            log = stack.enter_context(open(logs / f"{name}.log", "w", encoding="utf-8"))
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            started[name] = Contender(process, Path(log.name))
            started[name].wait_until_ready()
        yield started


def machine() -> dict[str, Any]:
    """Return what a figure depends on besides the code."""
    return {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0]}


def concluded(figures: Mapping[str, Any], misses: Sequence[str], file: Path | None) -> int:
    """Write a benchmark's figures where a file is given, print what misses its target, and return the exit code."""
    if file:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print("\n".join(misses) or "targets met")
    return 3 if misses else 0


def sample_documents(folder: Path) -> Path:
    """Return the folder of the sample corpus's documents; make the corpus below a folder when it is not there whole."""
    sample = folder / "sample"
    if not (sample / "suite" / "stdlib.yaml").is_file():  # the last one to be written
        shutil.rmtree(sample, ignore_errors=True)
        build_sample(sample)
    return sample / "documents"
