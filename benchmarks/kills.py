"""Runs that are killed and go on: the same manifest every time, no process and no half file left.

Each kill is a real run in a process of its own (near-duplicates with a budget, then a stage that edits) that dies by
SIGKILL, at a moment drawn from a seed or at a named point, and then the same command once more. At a moment, the driver
or one of its worker processes dies; at a point, whichever process comes there first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

POINTS = Path(__file__).parent / "kill_points"
MODES = {
    "threads": ("--direct_num_workers=2", "--direct_running_mode=multi_threading"),
    "processes": ("--direct_num_workers=2", "--direct_running_mode=multi_processing"),
}
CONFIG = """\
input: {{files: ["{corpus}/*.jsonl"], id_column: id, source_column: source}}
output: {output}
batch_rows: 100
target_file_bytes: 1048576
stages:
  - gopher_quality: {{minimum_words: 20, minimum_stop_words: off}}
  - near_duplicates: {{threshold: 0.6, shingle_tokens: 3, duplication_budget: 0.3, priority: length}}
  - c4_quality: {{minimum_sentences: off}}
"""
# name: call, before or after it, what the name of the file contains that is written; see kill_points/sitecustomize.py.
NAMED = {
    "before a rename": ("os.replace", "before", ""),
    "after a rename": ("os.replace", "after", ""),
    "before a flush to disk": ("os.fsync", "before", ""),
    "in the middle of a Parquet file": ("ParquetWriter.write_table", "after", ""),
    "between plan and state": ("os.replace", "after", r"plan\.json$"),
    "before a shard is said to be written": ("os.replace", "before", "staging/done/"),
    "between the last output and the manifest": ("os.replace", "before", r"/manifest\.json$"),
    "after the manifest": ("os.replace", "after", r"/manifest\.json$"),
}
PATIENCE_SECONDS = 20
LONGEST_RUN_SECONDS = 400
MISSED = "the run ended before the kill"


@dataclass(frozen=True)
class Kill:
    """How one run dies.

    Attributes:
        mode: ``threads`` or ``processes``.
        point: a name of ``NAMED``, or None for a moment.
        number: at a point, which time that a process comes there.
        moment: at a moment, the share of the time of an undisturbed run.
        victim: at a moment, ``driver`` or ``worker``.
    """

    mode: str
    point: str | None = None
    number: int = 1
    moment: float = 0
    victim: str = "driver"


def random_kills(count: int, seed: int) -> list[Kill]:
    """Return kills in all modes, half at moments and half at points."""
    choose = random.Random(seed)
    kills = []
    for number in range(count):
        mode = choose.choice(list(MODES))
        if number % 2:
            point = choose.choice(list(NAMED))
            often = NAMED[point][2] == ""
            kills.append(Kill(mode, point, choose.randrange(1, 16) if often else 1))
        else:
            victim = choose.choice(["driver", "worker"]) if mode == "processes" else "driver"
            kills.append(Kill(mode, moment=choose.uniform(0.1, 1), victim=victim))
    return kills


def earlier(kill: Kill) -> Kill:
    """Return a kill that comes before another one, which a run was too short for."""
    return replace(kill, number=max(1, kill.number // 2), moment=kill.moment * 0.7)


def write_corpus(folder: Path, count: int, seed: int = 0) -> Path:
    """Write texts of which many are nearly or exactly equal, as three files; returns the folder."""
    choose = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(2000)]
    lines: list[str] = []
    base: list[str] = []
    for number in range(count):
        if number % 4 == 0:
            base = choose.choices(vocabulary, k=choose.choice([10, 100, 300]))
        words = list(base)
        for _ in range(choose.choice([0, 1, 1, 3])):
            words[choose.randrange(len(words))] = choose.choice(vocabulary)
        text = f"{' '.join(words)}.\nToo short.\nThis line number {choose.randrange(9)} is long enough to stay here."
        lines.append(json.dumps({"id": f"doc-{number}", "text": text, "source": choose.choice(["web", "books", None])}))
    choose.shuffle(lines)
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jsonl").write_text("\n".join(lines[number::3]) + "\n", encoding="utf-8")
    return folder


class Trial:
    """One corpus, its undisturbed run, and runs that are killed.

    Args:
        folder: for corpus, configs and run folders.
        documents: size of the corpus.
    """

    def __init__(self, folder: Path, documents: int) -> None:
        self._folder = folder
        self._corpus = write_corpus(folder / "corpus", documents)
        # The first run may compile kernels; the second is what a killed run takes.
        for name in ("whole", "again"):
            started = time.monotonic()
            process = self._start(name, MODES["threads"], {})
            _, errors = process.communicate(timeout=LONGEST_RUN_SECONDS)
            if process.returncode != 0:
                raise RuntimeError(f"the undisturbed run failed: {errors.decode()}")
            self.seconds = time.monotonic() - started
        self.manifest = (folder / "whole/manifest.json").read_bytes()
        self._files = _files(folder / "whole")

    def _start(self, name: str, options: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        config = self._folder / f"{name}.yaml"
        config.write_text(CONFIG.format(corpus=self._corpus, output=self._folder / name), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.cli", "run", str(config), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def run(self, name: str, kill: Kill) -> list[str]:
        """Kill a run, resume it, and return what is not as it should be; nothing where all is well."""
        said = self._folder / f"{name}.said"
        process = self._start(name, MODES[kill.mode], self._environment(kill, said))
        if kill.point is None:
            _kill_at_moment(process, kill.moment * self.seconds, kill.victim, said)
        _, errors = process.communicate(timeout=LONGEST_RUN_SECONDS)
        problems = []
        if left := _alive(process.pid):
            problems.append(f"processes outlive the driver: {left}")
        if not said.exists():
            problems.append(MISSED)
        elif process.returncode not in (-signal.SIGKILL, 1):
            problems.append(f"exit code {process.returncode} after the kill")
        elif process.returncode == 1 and b"run the same command again to go on" not in errors:
            problems.append(f"the driver says {errors.decode()!r}")
        resumed = self._start(name, MODES[kill.mode], {})
        _, errors = resumed.communicate(timeout=LONGEST_RUN_SECONDS)
        if resumed.returncode != 0:
            return [*problems, f"the resumed run ends with {resumed.returncode}: {errors.decode()!r}"]
        if (self._folder / name / "manifest.json").read_bytes() != self.manifest:
            problems.append("another manifest")
        found = _files(self._folder / name)
        problems += [f"{file}: left over" for file in sorted(found.keys() - self._files.keys())]
        problems += [f"{file}: missing" for file in sorted(self._files.keys() - found.keys())]
        problems += [f"{file}: other bytes" for file in sorted(found) if found[file] != self._files.get(file)]
        return problems

    def _environment(self, kill: Kill, said: Path) -> dict[str, str]:
        if kill.point is None:
            return {}
        call, when, target = NAMED[kill.point]
        point = {"call": call, "when": when, "target": target, "number": kill.number, "said": str(said)}
        path = os.pathsep.join(filter(None, [str(POINTS), os.environ.get("PYTHONPATH")]))
        return {"PYTHONPATH": path, "THRESHER_KILL": json.dumps(point)}


# What may differ between two runs with the same result: DESIGN calls them so, or they tell of processes.
_UNSTEADY = {"run.json", "report.html", "staging/workers.log", "staging/lock"}


def _files(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a run folder, staging included, that has to be the same in each run."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and (name := path.relative_to(folder).as_posix()) not in _UNSTEADY
    }


def _session(leader: int) -> list[psutil.Process]:
    """Return the processes of a session but for its leader."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.pid != leader and os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _alive(leader: int) -> list[str]:
    """Return the command lines of processes of a session that do not end within some seconds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (left := _session(leader)) and time.monotonic() < end:
        time.sleep(0.1)
    return [str(process) for process in left]


def _kill_at_moment(process: subprocess.Popen[bytes], seconds: float, victim: str, said: Path) -> None:
    """Kill the driver, or one of the other processes as soon as there is one, after some seconds, unless the run ended.

    The others are workers, what Beam started for each, and the server that they are forks of.
    """
    choose = random.Random(seconds)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    while process.poll() is None:
        pids = [process.pid] if victim == "driver" else [worker.pid for worker in _session(process.pid)]
        if pids:
            said.touch()
            try:
                os.kill(choose.choice(pids), signal.SIGKILL)
                return
            except ProcessLookupError:
                said.unlink()
        time.sleep(0.02)


def main() -> int:
    """Kill runs and print what each came to; 3 where one came to something else than an undisturbed run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        trial = Trial(Path(folder), arguments.documents)
        print(f"an undisturbed run of {arguments.documents} documents takes {trial.seconds:.1f} s")
        for number, kill in enumerate(random_kills(arguments.kills, arguments.seed)):
            problems = trial.run(str(number), kill)
            for again in range(4):
                if problems != [MISSED]:
                    break
                kill = earlier(kill)
                problems = trial.run(f"{number}-{again}", kill)
            results.append({"kill": vars(kill), "problems": problems})
            print(f"{number}: {kill}: {'; '.join(problems) or 'the same manifest, nothing left over'}", flush=True)
    failed = [result for result in results if result["problems"]]
    print(f"{len(results)} kills, {len(results) - len(failed)} identical manifests with nothing left over")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": trial.seconds, "kills": results}, indent=2), encoding="utf-8")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
