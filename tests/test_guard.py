"""Guards against large regressions of speed: counts of work and ratios inside one process, never a clock alone.

What takes a stage much longer, in practice, is Python code for each record, an element for each record, a kernel that
compiles anew, or a sweep that is made twice. The first four tests count these, and give the same on any machine. The
last one compares the processor time of kernels with that of a fixed piece of NumPy work, the least of several turns;
its limits are four times of what was measured.
"""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus import text_statistics_kernel
from corpus.stages import TextBatch, known_stages
from tests.conftest import REPOSITORY

RULES = ("gopher_quality", "gopher_repetition", "fineweb_quality", "c4_quality")
COMPILED = ("language", *RULES, "length", "pii", "contamination")
SHINGLE_TOKENS, PERMUTATIONS = 5, 128
NOTABLE = "Write to somebody@example.org.\nIt is {odd} here\n"
SUITE = "benchmarks:\n  - {name: numbers, files: items.jsonl, question: question, answer: answer}\n"
ITEM = {"question": "What is the largest number that divides all of these?", "answer": "42"}

# Of the processor time of ``numpy_work`` on the same texts.
LIMITS = {
    "language": 0.7,
    "gopher_quality": 0.4,
    "gopher_repetition": 0.65,
    "fineweb_quality": 0.2,
    "c4_quality": 0.3,
    "signatures": 1.0,
}
TURNS = 6


def texts_of(rows: int, seed: int = 0, notable: bool = True) -> pa.StringArray:
    """Return texts of 250 random words in ten lines, with something to cut; one has a benchmark item, which is rare."""
    starts = ("wor", "ta", "shi", "pre", "com", "", "o", "re", "un", "in")
    middles = ("king", "ble", "tion", "d", "s", "er", "st", "and", "the", "of")
    ends = ("", "ly", "ness", "s", ".", ",", "ing", "ed", "es", ";")
    vocabulary = np.array(["".join(parts) for parts in itertools.product(starts, middles, ends)])
    drawn = vocabulary[np.random.default_rng(seed).integers(0, len(vocabulary), (rows, 10, 25))]
    texts = ["\n".join(" ".join(line) for line in text) for text in drawn.tolist()]
    if notable:
        texts = [f"{text}\n{NOTABLE}" for text in texts]
        texts[0] += " ".join(ITEM.values())
    return pa.array(texts)


def batch_of(texts: pa.StringArray) -> TextBatch:
    return TextBatch(texts, np.ones(len(texts), np.bool_))


def signatures_of(texts: pa.StringArray) -> Any:
    from dedup.signatures import permutation_constants, signatures

    constants = permutation_constants(PERMUTATIONS, 1)
    return signatures(texts, np.ones(len(texts), np.bool_), SHINGLE_TOKENS, constants)


def work_of(kind: str, folder: Path) -> Callable[[pa.StringArray], Any]:
    """Return what a stage does with the texts of a batch."""
    if kind == "signatures":
        return signatures_of
    cls: Any = known_stages()[kind]
    settings = {}
    if kind == "contamination":
        (folder / "items.jsonl").write_text(json.dumps(ITEM), encoding="utf-8")
        (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
        settings = {"suites": [str(folder / "suite.yaml")], "boilerplate": "off"}
    config = cls.Config(**settings)
    stage = cls.variant(config)(config, kind, "text")
    stage.prepare()
    return lambda texts: stage.judge(batch_of(texts))


def calls_of(work: Callable[[], Any]) -> int:
    """Return how many functions of Python and of C are called from Python."""
    count = 0

    def notice(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(notice)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("kind", [*COMPILED, "signatures"])
def test_a_compiled_stage_runs_no_python_for_each_record(kind: str, tmp_path: Path) -> None:
    work = work_of(kind, tmp_path)
    few, many = texts_of(20), texts_of(500)
    work(few)  # tables are built, models loaded
    of_few, of_many = (calls_of(functools.partial(work, texts)) for texts in (few, many))
    assert of_many - of_few < 100, f"{kind}: {of_few} calls for 20 records, {of_many} for 500"


def test_stages_with_rules_share_one_sweep_over_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = []
    original = text_statistics_kernel.find_words_and_lines

    def counted(*arguments: Any) -> Any:
        sweeps.append(len(arguments[0]) - 1)
        return original(*arguments)

    monkeypatch.setattr(text_statistics_kernel, "find_words_and_lines", counted)
    batch = batch_of(texts_of(30))
    for kind in (*RULES, "length"):
        cls: Any = known_stages()[kind]
        stage = cls(cls.Config(), kind, "text")
        stage.prepare()
        stage.judge(batch)
    assert sweeps == [30]


COUNT_COMPILED = """
import importlib, pathlib, sys
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    for path in sorted(pathlib.Path().glob("*/*_kernel.py")):
        importlib.import_module(f"{path.parent.name}.{path.stem}")
print(len(recorder.buffer))
"""


def test_kernels_come_from_the_cache_the_second_time() -> None:
    counts = []
    for _ in range(2):
        command = [sys.executable, "-c", COUNT_COMPILED]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, text=True)
        counts.append(int(done.stdout))
        if counts[-1] == 0:
            break
    assert counts[-1] == 0, f"{counts[-1]} compilations by a process that follows another"


STAGES = "[language, pii, length, exact_duplicates, near_duplicates]"


def elements_of(folder: Path, rows: int) -> dict[str, int]:
    """Run the pipeline over one file, half of it copies; returns the elements that entered each step, by step."""
    from pipelines.config import load_config
    from pipelines.execution import execute

    folder.mkdir()
    texts = texts_of(rows // 2).to_pylist()
    copies = [text if row % 2 else f"{text} again" for row, text in enumerate(texts)]
    pq.write_table(pa.table({"text": texts + copies}), folder / "input.parquet")
    config = folder / "config.yaml"
    config.write_text(
        f"input: {{files: [{folder}/input.parquet]}}\noutput: {folder}/run\nstages: {STAGES}\n", encoding="utf-8"
    )
    run = execute(load_config(config), ["--direct_num_workers=1"], profile=True)
    assert run.report["records"]["read"] == rows
    assert run.report["records"]["kept"] == rows // 2
    details = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    return {step["step"]: int(step["elements"]) for step in details["profile"]["steps"]}


def test_no_step_gets_an_element_for_each_record(tmp_path: Path) -> None:
    few, many = elements_of(tmp_path / "few", 100), elements_of(tmp_path / "many", 1500)
    assert any("near_duplicates" in step for step in few)
    assert many == few


def numpy_work(texts: pa.StringArray) -> None:
    """The yardstick: arithmetic over an array with an element for each byte."""
    values = np.frombuffer(texts.buffers()[2], np.uint8).astype(np.float64)
    for _ in range(3):
        values = np.sqrt(np.cumsum(values * 1.0001) + 1)


def test_kernels_keep_their_speed_beside_numpy(tmp_path: Path) -> None:
    works = {"numpy": numpy_work, **{kind: work_of(kind, tmp_path) for kind in LIMITS}}
    # Other texts in each turn: some kernels remember what they have seen.
    turns = [texts_of(500, seed, notable=False) for seed in range(1, 1 + TURNS)]
    least = dict.fromkeys(works, float("inf"))

    def measure() -> None:
        for texts in turns:
            for kind, work in works.items():
                begin = time.thread_time()
                work(texts)
                least[kind] = min(least[kind], time.thread_time() - begin)

    # The language model remembers words for as long as its thread lives.
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    shares = {kind: least[kind] / least["numpy"] for kind in LIMITS}
    slow = {kind: round(share, 2) for kind, share in shares.items() if share > LIMITS[kind]}
    assert not slow, f"of the time of the NumPy work: {slow}; the limits are {LIMITS}"
