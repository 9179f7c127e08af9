"""Scoring on a GPU: tokens per second, tokenisation included, against bare forward passes of the same model.

    python -m benchmarks.gpu MODEL [--records 20000] [--dtype bfloat16] [--batch-tokens 65536] [--json FILE]

MODEL is a local folder of a sequence classification model. The records are pairs of random words, of mixed lengths:
from 4 to 400 words, spread evenly on a logarithmic scale. Tokens are those of the records, without padding.

- *ours*: ``SequenceClassifier.outputs``, from Python strings to scores, as the stage ``reward_model`` calls it:
  tokenised by another thread while the GPU computes, from pinned memory, in batches of sorted lengths.
- *forward passes*: the same batches, tokenised, padded and on the GPU before the clock starts, one after the other.

It says which share of the speed of the bare passes is left, and how far scores are from those in float32; wanted is a
share of ``TARGET``. There must be a GPU; without one it ends with exit code 2.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

TARGET = 0.9
REPETITIONS = 3
SEED = 11
SHORTEST, LONGEST = 4, 400
COMPARED = 256


def random_records(count: int) -> tuple[list[str], list[str]]:
    """Return prompts and responses of random words."""
    source = random.Random(SEED)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(5000)]

    def text() -> str:
        return " ".join(source.choices(words, k=round(SHORTEST * (LONGEST / SHORTEST) ** source.random())))

    return [text() for _ in range(count)], [text() for _ in range(count)]


def measure(model: str, records: int, dtype: Any, batch_tokens: int) -> dict[str, Any]:
    """Return tokens per second of both, and the largest difference to scores in float32."""
    import torch

    from scorers.model_files import ModelSource
    from scorers.sequence_classifier import ModelSettings, SequenceClassifier
    from scorers.token_batches import cut_batches, pad

    def made(kind: Any) -> SequenceClassifier:
        source = ModelSource(model, None, True)
        settings = ModelSettings(source, "pair", None, "longest_first", None, "cuda", kind, batch_tokens)
        return SequenceClassifier("benchmark", settings)

    prompts, responses = random_records(records)
    classifier = made(dtype)
    found = classifier.outputs(prompts, responses)
    tokens = int((found.tokens - found.cut).sum())

    # The parts of the classifier, so that both show the model the same.
    inputs = classifier._inputs.build(prompts, responses)
    sequences = [item.sequence for item in inputs if item.sequence is not None]
    padding = classifier._padding_id or 0
    batches = []
    for rows in cut_batches([len(sequence) for sequence in sequences], batch_tokens):
        batch = pad(sequences, rows, padding, classifier.padding == "left")
        arrays = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if classifier._takes_types:
            arrays["token_type_ids"] = batch.types
        batches.append({name: torch.from_numpy(array).cuda() for name, array in arrays.items()})

    seconds: dict[str, list[float]] = {"ours": [], "forward passes": []}
    for _ in range(REPETITIONS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        classifier.outputs(prompts, responses)
        seconds["ours"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        with torch.inference_mode():
            logits = [classifier._model(**batch).logits for batch in batches]
        torch.cuda.synchronize()
        seconds["forward passes"].append(time.perf_counter() - begin)
        del logits
    exact = made("float32").outputs(prompts[:COMPARED], responses[:COMPARED]).values
    rates = {name: tokens / min(values) for name, values in seconds.items()}
    return {
        "gpu": torch.cuda.get_device_name(),
        "records": records,
        "tokens": tokens,
        "dtype": dtype,
        "batch_tokens": classifier.batch_tokens,
        "seconds": seconds,
        "tokens_per_second": rates,
        "share": rates["ours"] / rates["forward passes"],
        "largest_difference_to_float32": float(np.abs(found.values[:COMPARED] - exact).max()),
        "spread_of_scores": float(exact.std()),
    }


def main() -> int:
    """Measure, print, and say whether the target is met (exit code 3 if not, 2 without a GPU)."""
    parser = argparse.ArgumentParser(description="Speed of scoring on a GPU.")
    parser.add_argument("model", help="folder of a sequence classification model")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("PyTorch sees no GPU on this machine; there is nothing to measure", file=sys.stderr)
        return 2
    figures = measure(arguments.model, arguments.records, arguments.dtype, arguments.batch_tokens)
    print(f"{figures['gpu']}, {figures['dtype']}: {figures['records']} records, {figures['tokens']:,} tokens")
    for name, rate in figures["tokens_per_second"].items():
        print(f"  {name:16}{rate:14,.0f} tokens/s")
    print(
        f"  ours is {figures['share']:.2f} of the bare passes; scores differ from float32 by at most "
        f"{figures['largest_difference_to_float32']:.4f}, and spread by {figures['spread_of_scores']:.4f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if figures["share"] < TARGET:
        print(f"wanted is a share of {TARGET}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
