"""Scoring on a GPU: tokens per second, tokenisation included, against bare forward passes of the same model.

    python -m benchmarks.gpu MODEL [--records 20000] [--dtype bfloat16] [--batch-tokens 65536] [--device cuda]
                             [--json FILE]

MODEL is a local folder of a sequence classification model. The records are pairs of random words, of mixed lengths:
from 4 to 400 words, spread evenly on a logarithmic scale. Tokens are those of the records, without padding.

- *ours*: ``SequenceClassifier.outputs``, from Python strings to scores, as the stage ``reward_model`` calls it:
  tokenised by another thread while the GPU computes, from pinned memory, in batches of sorted lengths.
- *forward passes*: the same batches, tokenised, padded and on the GPU before the clock starts, one after the other.

Both are done once before anything is timed, and then in turn; the best of ``REPETITIONS`` counts. It says which share
of the speed of the bare passes is left, and how far scores are from those in float32, a model that is loaded once the
other is gone, and left out where the memory does not suffice; wanted is a share of ``TARGET``. Without a GPU it ends
with exit code 2; with ``--device cpu`` it measures the same there, which shows that it works and no more.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers import concluded, machine
from corpus.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from scorers.sequence_classifier import SequenceClassifier

TARGET = 0.9
REPETITIONS = 3
SEED = 11
SHORTEST, LONGEST = 4, 400
COMPARED, COMPARED_BATCH_TOKENS = 256, 1 << 14


def random_records(count: int) -> tuple[list[str], list[str]]:
    """Return prompts and responses of random words."""
    source = random.Random(SEED)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(5000)]

    def text() -> str:
        return " ".join(source.choices(words, k=round(SHORTEST * (LONGEST / SHORTEST) ** source.random())))

    return [text() for _ in range(count)], [text() for _ in range(count)]


def made(model: str, dtype: Any, batch_tokens: int, device: Any) -> SequenceClassifier:
    """Return a model in memory. Raises UsageError where it cannot be used."""
    from scorers.model_files import model_source
    from scorers.sequence_classifier import ModelSettings, SequenceClassifier

    source = model_source("benchmark", model, None, False)
    settings = ModelSettings(source, "pair", None, "longest_first", None, device, dtype, batch_tokens)
    return SequenceClassifier("benchmark", settings)


def bare_batches(classifier: SequenceClassifier, prompts: list[str], responses: list[str]) -> list[dict[str, Tensor]]:
    """Return what the classifier shows the model for some records, batch by batch, on its device.

    It is made of parts of the classifier, so that both show the model the same, in batches as large as it has found to
    fit into the memory.
    """
    import torch

    from scorers.token_batches import cut_batches, pad

    inputs = classifier._inputs.build(prompts, responses)
    sequences = [item.sequence for item in inputs if item.sequence is not None]
    padding = classifier._padding_id or 0
    most_rows = None if classifier.padding is not None else 1
    batches = []
    for rows in cut_batches([len(sequence) for sequence in sequences], classifier.batch_tokens, most_rows):
        batch = pad(sequences, rows, padding, classifier.padding == "left")
        arrays = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if classifier._takes_types:
            arrays["token_type_ids"] = batch.types
        batches.append({name: torch.from_numpy(array).to(classifier._device) for name, array in arrays.items()})
    return batches


def measure(model: str, records: int, dtype: Any, batch_tokens: int, device: Any) -> dict[str, Any]:
    """Return tokens per second of both, and the largest difference to scores in float32.

    Raises UsageError where the model cannot be used.
    """
    prompts, responses = random_records(records)
    figures, found = timed(model, prompts, responses, dtype, batch_tokens, device)
    return figures | compared(model, found[:COMPARED], prompts[:COMPARED], responses[:COMPARED], device)


def timed(
    model: str, prompts: list[str], responses: list[str], dtype: Any, batch_tokens: int, device: Any
) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Return tokens per second of both, and the model's outputs. Raises UsageError where the model cannot be used."""
    import torch

    on_gpu = device == "cuda"
    classifier = made(model, dtype, batch_tokens, device)

    def scored() -> Any:
        return classifier.outputs(prompts, responses)

    def passed() -> None:
        with torch.inference_mode():
            logits = [classifier._model(**batch).logits for batch in batches]
        if on_gpu:
            torch.cuda.synchronize()
        del logits

    found = scored()
    unscored = [reason for reason in found.reasons if reason is not None]
    if unscored:
        raise UsageError(f"{model}: {len(unscored)} records have no score ({unscored[0]}); give fewer --batch-tokens")
    tokens = int((found.tokens - found.cut).sum())
    batches = bare_batches(classifier, prompts, responses)
    passed()
    seconds: dict[str, list[float]] = {"ours": [], "forward passes": []}
    for _ in range(REPETITIONS):
        for name, function in (("ours", scored), ("forward passes", passed)):
            begin = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - begin)
    rates = {name: tokens / min(values) for name, values in seconds.items()}
    figures = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "no GPU",
        "records": len(prompts),
        "tokens": tokens,
        "dtype": dtype,
        "batch_tokens": classifier.batch_tokens,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "seconds": seconds,
        "tokens_per_second": rates,
        "share": rates["ours"] / rates["forward passes"],
    }
    return figures, found.values


def compared(
    model: str, found: np.ndarray[Any, Any], prompts: list[str], responses: list[str], device: Any
) -> dict[str, float | None]:
    """Return how far scores are from those of the model in float32, and how far these spread; None without memory."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    try:
        exact = made(model, "float32", COMPARED_BATCH_TOKENS, device).outputs(prompts, responses).values
    except (UsageError, torch.OutOfMemoryError):
        exact = np.full_like(found, np.nan)
    if np.isnan(exact).any():
        return {"largest_difference_to_float32": None, "spread_of_scores": None}
    return {
        "largest_difference_to_float32": float(np.abs(found - exact).max()),
        "spread_of_scores": float(exact.std()),
    }


def main() -> int:
    """Measure, print, and say whether the target is met (exit code 3 if not, 2 without a GPU)."""
    parser = argparse.ArgumentParser(description="Speed of scoring on a GPU.")
    parser.add_argument("model", help="folder of a sequence classification model")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no GPU on this machine; there is nothing to measure", file=sys.stderr)
        return 2
    on = machine()
    try:
        figures = measure(arguments.model, arguments.records, arguments.dtype, arguments.batch_tokens, arguments.device)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{figures['gpu']}, {figures['dtype']}: {figures['records']} records, {figures['tokens']:,} tokens")
    for name, rate in figures["tokens_per_second"].items():
        print(f"  {name:16}{rate:14,.0f} tokens/s")
    difference = figures["largest_difference_to_float32"]
    far = "could not be compared with float32, which does not fit into the memory"
    if difference is not None:
        far = f"differ from float32 by at most {difference:.4f}, and spread by {figures['spread_of_scores']:.4f}"
    print(f"  ours is {figures['share']:.2f} of the bare passes; scores {far}")
    missed = [f"a share of {figures['share']:.2f}, wanted is {TARGET}"] if figures["share"] < TARGET else []
    return concluded({"machine": on, **figures}, missed, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
