"""A sequence classification model of transformers in memory, and its outputs for any number of records.

A process holds each model once, whatever its threads. Records are put in the order of their length, tokenised a
stretch ahead of the model by another thread, cut into batches by a budget of tokens, and always shown with an attention
mask; what a record gets depends on neither the batch nor the order. How padding must stand for that is tried out when
the model is loaded (``_padding``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import psutil
import torch
import transformers

from corpus.errors import UsageError
from scorers.model_files import ModelSource, check_folder, model_folder
from scorers.model_inputs import InputBuilder, ModelInput, Side, Truncation, token_limit
from scorers.packed_linear import pack_linear_layers
from scorers.token_batches import PaddedBatch, TokenSequence, cut_batches, pad

Device = Literal["auto", "cpu", "cuda"]
DataType = Literal["auto", "float32", "bfloat16", "float16"]

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65536
"""On a CPU, what a layer computes for 1,024 tokens stays in the caches: 4,096 take 12 % longer, 256 take 4 %."""
STRETCH_CHARACTERS = 1 << 20
"""Text that is tokenised at a time: the tokenizer's objects take some hundred bytes a token."""
OUT_OF_MEMORY = "out_of_memory"
# Two records of different length, to try out the padding.
_PROBES = (
    ("Why?", "Because."),
    ("What is it that you would like to know?", "How tides come about, and why twice a day."),
)
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelSettings:
    """What a model in memory depends on; see the settings of the stage ``reward_model``."""

    source: ModelSource
    form: str
    max_tokens: int | None
    truncation: Truncation
    side: Side | None
    device: Device
    dtype: DataType
    batch_tokens: int | None


@dataclass(frozen=True)
class Outputs:
    """What a model gave for n records.

    Attributes:
        values: float64 [n, outputs]; NaN where a record could not be scored.
        reasons: why not; None where it was.
        tokens, cut: int64 [n], tokens of the whole record, and how many of them the model did not see.
    """

    values: Doubles
    reasons: list[str | None]
    tokens: npt.NDArray[np.int64]
    cut: npt.NDArray[np.int64]


_LOADING = threading.Lock()
_MODELS: dict[ModelSettings, SequenceClassifier] = {}


def loaded(setting: str, settings: ModelSettings) -> SequenceClassifier:
    """Return a model, loaded once per process. Raises UsageError, naming the setting, where it cannot be used."""
    with _LOADING:
        if settings not in _MODELS:
            _MODELS[settings] = SequenceClassifier(setting, settings)
        return _MODELS[settings]


class SequenceClassifier:
    """A model and its tokenizer. Threads may share it: they take turns at the model, not at the tokenizer.

    Attributes:
        config: its ``config.json``.
        limit: most tokens of a record that it sees.
        batch_tokens: most tokens of a batch; halved whenever the memory did not suffice.
        padding: side of the padding, or None where each record has to be a batch by itself.
    """

    def __init__(self, setting: str, settings: ModelSettings) -> None:
        self._device = _device(setting, settings.device)
        folder = model_folder(settings.source)
        self.config = check_folder(folder)
        options = {"local_files_only": True, "trust_remote_code": False}
        try:
            with _quiet():
                tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
                config = transformers.AutoConfig.from_pretrained(folder, **options)
                dtype = _data_type(settings.dtype, config)
                model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
                    folder, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
                )
        except Exception as error:  # transformers raises whatever its parts raise
            reason = " ".join(str(error).split())[:300]
            raise UsageError(
                f"{setting}.model: {settings.source.name} cannot be loaded ({type(error).__name__}: {reason}); check "
                "that it is a sequence classification model with its tokenizer"
            ) from error
        absent = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
        if absent:
            raise UsageError(
                f"{setting}.model: {settings.source.name} has no weights for {', '.join(absent[:4])}, so its scores "
                "would be random; give a model that was trained for sequence classification"
            )
        _share_cores()
        self._model = model.to(self._device).eval()
        if self._device.type == "cpu" and dtype == torch.float32:
            pack_linear_layers(self._model)
        self._outputs = int(config.num_labels)
        self.limit = token_limit(setting, tokenizer, config, settings.max_tokens)
        on_gpu = self._device.type == "cuda"
        self.batch_tokens = settings.batch_tokens or (GPU_BATCH_TOKENS if on_gpu else CPU_BATCH_TOKENS)
        self._inputs = InputBuilder(setting, tokenizer, settings.form, self.limit, settings.truncation, settings.side)
        self._takes_types = "token_type_ids" in tokenizer.model_input_names
        self._padding_id = config.get_text_config().pad_token_id
        self._turn = threading.Lock()
        self.padding: Side | None = None
        self.padding = self._padding(_TOLERANCE[str(dtype).removeprefix("torch.")])

    def outputs(self, prompts: Sequence[str | None], responses: Sequence[str]) -> Outputs:
        """Return the outputs for records; prompts are None where texts stand by themselves."""
        count = len(responses)
        values = np.full((count, self._outputs), np.nan)
        reasons: list[str | None] = [None] * count
        tokens, cut = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for rows, inputs in self._stretches(prompts, responses):
            scored, sequences = [], []
            for row, item in zip(rows, inputs, strict=True):
                tokens[row], cut[row], reasons[row] = item.tokens, item.cut, item.reason
                if item.sequence is not None:
                    scored.append(row)
                    sequences.append(item.sequence)
            found, lost = self._scored(sequences)
            values[scored] = found
            for place in lost:
                reasons[scored[place]] = OUT_OF_MEMORY
        return Outputs(values, reasons, tokens, cut)

    def _stretches(
        self, prompts: Sequence[str | None], responses: Sequence[str]
    ) -> Iterator[tuple[list[int], list[ModelInput]]]:
        """Yield rows and their inputs, longest texts first; the next ones are tokenised while these are scored."""
        sizes = [len(prompt or "") + len(response) for prompt, response in zip(prompts, responses, strict=True)]
        stretches: list[list[int]] = []
        room = 0
        for row in sorted(range(len(sizes)), key=lambda row: -sizes[row]):
            if room <= 0:
                stretches.append([])
                room = STRETCH_CHARACTERS
            stretches[-1].append(row)
            room -= sizes[row]

        def build(rows: list[int]) -> list[ModelInput]:
            return self._inputs.build([prompts[row] for row in rows], [responses[row] for row in rows])

        with ThreadPoolExecutor(1) as ahead:
            following = ahead.submit(build, stretches[0]) if stretches else None
            for number, rows in enumerate(stretches):
                assert following is not None
                inputs = following.result()
                if number + 1 < len(stretches):
                    following = ahead.submit(build, stretches[number + 1])
                yield rows, inputs

    def _scored(self, sequences: Sequence[TokenSequence]) -> tuple[Doubles, list[int]]:
        """Return the outputs for sequences, float64 [n, outputs], and which of them were too much for the memory."""
        values = np.full((len(sequences), self._outputs), np.nan)
        lost: list[int] = []
        with self._turn, torch.inference_mode():
            most_rows = None if self.padding is not None else 1
            found = []
            for rows in cut_batches([len(sequence) for sequence in sequences], self.batch_tokens, most_rows):
                batch = pad(sequences, rows, self._padding_id or 0, self.padding == "left")
                found += self._within_memory(batch, lost)
            # Only now does anything wait for the device.
            for rows, outputs in found:
                values[rows] = outputs.float().cpu().numpy()
        return values, lost

    def _within_memory(self, batch: PaddedBatch, lost: list[int]) -> list[tuple[npt.NDArray[np.int64], torch.Tensor]]:
        """Return rows and outputs of a batch, in as many parts as the memory makes necessary; note which are lost."""
        single = len(batch.rows) == 1
        # Batches were cut before others turned out to be too large.
        if single or batch.ids.size <= self.batch_tokens:
            try:
                return [(batch.rows, self._forward(batch))]
            except torch.OutOfMemoryError:
                pass
            except RuntimeError as error:
                # What the allocator of the CPU says; it has no error of its own.
                if "allocate memory" not in str(error):
                    raise
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            if single:
                lost += batch.rows.tolist()
                return []
            self.batch_tokens = max(1, batch.ids.size // 2)
        return [part for half in batch.halves() for part in self._within_memory(half, lost)]

    def _forward(self, batch: PaddedBatch) -> torch.Tensor:
        """Return the outputs of the model for a batch, [n, outputs], on its device."""
        arrays = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if self._takes_types:
            arrays["token_type_ids"] = batch.types
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if self._device.type == "cuda":
            inputs = {name: values.pin_memory().to(self._device, non_blocking=True) for name, values in inputs.items()}
        outputs: torch.Tensor = self._model(**inputs).logits.reshape(len(batch.rows), -1)
        return outputs

    def _padding(self, tolerance: float) -> Side | None:
        """Return the side on which padding makes no difference to a score, None where there is none.

        Behind the text is right for all models that attend to the mask or to earlier tokens only; some (XLNet) take the
        last token for the whole, and want it before. Where neither holds, or the model has no padding, each record has
        to be a batch by itself.
        """
        prompts = [self._inputs.prompt_of(prompt) for prompt, _ in _PROBES]
        inputs = self._inputs.build(prompts, [response for _, response in _PROBES])
        sequences = [item.sequence for item in inputs if item.sequence is not None]
        if self._padding_id is None or len({len(sequence) for sequence in sequences}) < len(_PROBES):
            return None
        rows = np.arange(len(sequences))
        with torch.inference_mode():
            alone = [self._forward(pad(sequences, rows[row : row + 1], self._padding_id, False)) for row in rows]
            expected = torch.cat(alone).float()
            sides: tuple[Side, ...] = ("right", "left")
            for side in sides:
                found = self._forward(pad(sequences, rows, self._padding_id, side == "left")).float()
                if torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
                    return side
        return None


def _device(setting: str, wanted: Device) -> torch.device:
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise UsageError(
            f"{setting}.device: found cuda, and PyTorch sees no GPU on this machine; set it to auto or cpu"
        )
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def _data_type(wanted: DataType, config: Any) -> torch.dtype:
    """Return the type that a model computes with; ``auto`` follows from the model, never from the machine."""
    if wanted == "auto":
        stored = str(getattr(config, "dtype", None)).removeprefix("torch.")
        wanted = "bfloat16" if stored == "bfloat16" else "float32"
    kind = getattr(torch, wanted)
    assert isinstance(kind, torch.dtype)
    return kind


@cache
def _share_cores() -> None:
    """Let the worker processes of a run share the cores: PyTorch takes all of them in each process.

    Workers have the same command line and the same parent. A user's OMP_NUM_THREADS holds.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return
    own = psutil.Process()
    parent = own.parent()
    command = own.cmdline()
    workers = 0
    for process in parent.children() if parent is not None else []:
        with suppress(psutil.Error):
            workers += process.cmdline() == command
    torch.set_num_threads(max(1, torch.get_num_threads() // max(1, workers)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and warnings of transformers off the terminal; what matters of them becomes an error here."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
