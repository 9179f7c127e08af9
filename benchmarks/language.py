"""Language identification: the compiled inference against fastText's bindings, in agreement and in speed.

    python benchmarks/language.py CORPUS [--texts 20000] [--repetitions 5] [--work FOLDER] [--json FILE]

CORPUS is a folder of Parquet files with a column ``text`` (and ``language``, which is only counted).

*Agreement* takes whole documents, spread evenly over the corpus, and compares label and score with the package
``fasttext`` of this environment. *Speed* takes the same number of texts, each cut to its first 1,000 characters. Each
contender runs in its own process and, since the bindings overwrite each other's files, in its own virtual environment
with a pinned version (made below the work folder when missing). Repetitions are interleaved: each contender does all
texts once, then all do them again. Bindings get Python strings without newlines, one call per text or one per batch,
whichever their interface has; ours gets Arrow arrays of 8,192 texts, in a new thread each time, so that nothing is
remembered from the repetition before. What is timed ends with the label and score of every text.
Where the system can, every process is bound to the same core: fasttext-new spreads a batch over all cores, and the
comparison is per core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

OURS = "thresher"
BINDINGS = {
    "fasttext-predict": "fasttext-predict==0.9.2.4",
    "fasttext-new": "fasttext-new==0.1.0",
    "fasttext-numpy2": "fasttext-numpy2==0.10.4",
}
TARGETS = {"fasttext-predict": 5.0, "fasttext-new": 2.0}
CHARACTERS = 1000
BATCH_ROWS = 8192

# What a binding's process runs: says ready, then does all texts once per line that it is sent.
WORKER = """
import json, os, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
name, model_path, text_path = sys.argv[1:]
texts = json.load(open(text_path, encoding="utf-8"))
if name == "fasttext-new":
    import fasttext_new as binding
else:
    import fasttext as binding
model = binding.load_model(model_path)
def once():
    if name == "fasttext-predict":
        return [model.predict(text) for text in texts]
    return model.predict(texts)
once()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    result = once()
    print(time.perf_counter() - begin, flush=True)
"""


def read_texts(corpus: Path, count: int) -> tuple[list[str], list[str]]:
    """Return about ``count`` non-empty texts spread evenly over the corpus, and the distinct languages among them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(corpus.glob("**/*.parquet"))
    if not files:
        sys.exit(f"{corpus}: no Parquet file in this folder")
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    step = max(1, rows // count)
    texts: list[str] = []
    languages: set[str] = set()
    start = 0
    for file in files:
        names = [name for name in ("text", "language") if name in pq.read_schema(file).names]
        table = pq.read_table(file, columns=names)
        chosen = table.take(pa.array(range(-start % step, table.num_rows, step), pa.int64()))
        start += table.num_rows
        texts += [text for text in chosen["text"].to_pylist() if text and not text.isspace()]
        if "language" in names:
            languages.update(language for language in chosen["language"].to_pylist() if language)
    return texts[:count], sorted(languages)


def agreement(texts: list[str], model_path: str) -> dict[str, Any]:
    """Compare label and score of whole texts with the package ``fasttext``."""
    import fasttext
    import numpy as np
    import pyarrow as pa

    from corpus.fasttext import FastTextModel

    model, reference = FastTextModel.load(model_path), fasttext.load_model(model_path)
    different, largest = 0, 0.0
    labels_seen: set[str] = set()
    for first in range(0, len(texts), 1000):
        part = texts[first : first + 1000]
        labels, scores = model.predict(pa.array(part, pa.string()), np.ones(len(part), np.bool_))
        names, values = reference.predict([text.replace("\n", " ") for text in part])
        for label, score, name, value in zip(labels.to_pylist(), scores.to_pylist(), names, values, strict=True):
            different += label != name[0].removeprefix("__label__")
            largest = max(largest, abs(score - float(value[0])))
            labels_seen.add(label)
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "labels_given": len(labels_seen),
        "labels_different": different,
        "largest_score_difference": largest,
    }


def run_ours(model_path: str, text_path: str) -> None:
    """Be the process of our own inference; the same protocol as ``WORKER``."""
    import threading

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    import numpy as np
    import pyarrow as pa

    from corpus.fasttext import FastTextModel

    texts = json.loads(Path(text_path).read_text(encoding="utf-8"))
    parts = [texts[first : first + BATCH_ROWS] for first in range(0, len(texts), BATCH_ROWS)]
    batches = [(pa.array(part, pa.string()), np.ones(len(part), np.bool_)) for part in parts]
    model = FastTextModel.load(model_path)
    seconds: list[float] = []

    def once() -> None:
        begin = time.perf_counter()
        for batch, alive in batches:
            model.predict(batch, alive)
        seconds.append(time.perf_counter() - begin)

    def once_in_new_thread() -> float:
        thread = threading.Thread(target=once)
        thread.start()
        thread.join()
        return seconds[-1]

    once_in_new_thread()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(once_in_new_thread(), flush=True)


def environment(work: Path, requirement: str) -> Path:
    """Return the Python of a virtual environment that has one binding; make it when missing."""
    folder = work / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {requirement} in {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", requirement], check=True)
        done.touch()
    return python


def speed(texts: list[str], model_path: str, work: Path, repetitions: int) -> dict[str, Any]:
    """Time every contender on the same texts, repetitions interleaved."""
    text_path = work / "texts.json"
    cleaned = [text[:CHARACTERS].replace("\n", " ") for text in texts]
    text_path.write_text(json.dumps(cleaned), encoding="utf-8")
    worker_path = work / "worker.py"
    worker_path.write_text(WORKER, encoding="utf-8")
    commands = {OURS: [sys.executable, __file__, "--ours", model_path, str(text_path)]}
    for name, requirement in BINDINGS.items():
        commands[name] = [str(environment(work, requirement)), str(worker_path), name, model_path, str(text_path)]
    processes = {
        name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name, command in commands.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    try:
        for name, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                sys.exit(f"{name} did not start")
        for _ in range(repetitions):
            for name, process in processes.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                seconds[name].append(float(process.stdout.readline()))
    finally:
        for process in processes.values():
            process.communicate()
    size = sum(len(text.encode()) for text in cleaned)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "texts": len(cleaned),
        "bytes": size,
        "repetitions": repetitions,
        "contenders": {
            name: {
                "version": BINDINGS.get(name, ""),
                "seconds": seconds[name],
                "texts_per_second": len(cleaned) / medians[name],
                "megabytes_per_second": size / medians[name] / 1e6,
                "slowest_to_fastest": max(seconds[name]) / min(seconds[name]),
                "ours_is_times_faster": medians[name] / medians[OURS],
            }
            for name in seconds
        },
    }


def main() -> int:
    """Run both parts, print them and say whether the targets are met (exit code 3 if not)."""
    if sys.argv[1:2] == ["--ours"]:
        run_ours(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description="Agreement and speed of language identification.")
    parser.add_argument("corpus", type=Path, help="folder of Parquet files with a column text")
    parser.add_argument("--texts", type=int, default=20_000, help="how many texts (default 20000)")
    parser.add_argument(
        "--repetitions", type=int, default=5, help="how often each contender does all texts (default 5)"
    )
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "thresher-benchmark-language")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()

    from corpus.fasttext import default_model_path

    arguments.work.mkdir(parents=True, exist_ok=True)
    model_path = default_model_path()
    texts, languages = read_texts(arguments.corpus, arguments.texts)
    same = agreement(texts, model_path)
    print(
        f"agreement: {same['texts']:,} whole texts, {same['characters'] / 1e6:.1f} M characters, {len(languages)} "
        f"declared languages: {same['labels_different']} labels differ, largest difference of scores "
        f"{same['largest_score_difference']:.1e}"
    )
    fast = speed(texts, model_path, arguments.work, arguments.repetitions)
    print(f"speed: {fast['texts']:,} texts, {fast['bytes'] / fast['texts']:,.0f} bytes on average, one core")
    for name, row in fast["contenders"].items():
        print(
            f"  {name:18}{row['texts_per_second']:10,.0f} texts/s {row['megabytes_per_second']:7.1f} MB/s   "
            f"slowest/fastest {row['slowest_to_fastest']:.2f}   ours x{row['ours_is_times_faster']:.1f}"
        )
    if arguments.json:
        figures = {"languages": languages, "agreement": same, "speed": fast}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    met = same["labels_different"] == 0 and same["largest_score_difference"] <= 1e-5
    for name, target in TARGETS.items():
        met = met and fast["contenders"][name]["ours_is_times_faster"] >= target
    print("targets met" if met else "targets missed")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
