"""Training the last layer of a BERT encoder alone: the layers below run once, and the last one only where it counts.

A sequence classifier reads the last layer at the first token only. There the layer needs one query per text, and keys
and values enter it through sums over the tokens alone, so the weights of both can be applied to one vector per head
instead of to each token: an epoch costs a hundredth of what the whole encoder does, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class HiddenStates:
    """What enters the last layer, for n texts.

    Attributes:
        values: float16[tokens, width], one text after the other.
        offsets: int64[n + 1], where each begins.
    """

    values: npt.NDArray[np.float16]
    offsets: npt.NDArray[np.int64]

    def padded(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the states of some texts, float32[m, longest, width], and which are no padding, bool[m, longest]."""
        lengths = self.offsets[1:][places] - self.offsets[:-1][places]
        states = np.zeros((len(places), int(lengths.max()), self.values.shape[1]), np.float32)
        for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
            states[row, :length] = self.values[self.offsets[place] : self.offsets[place] + length]
        real = np.arange(states.shape[1])[None, :] < lengths[:, None]
        return torch.from_numpy(states), torch.from_numpy(real)


def hidden_states(
    model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], max_tokens: int, file: Path, batch: int = 16
) -> HiddenStates:
    """Run all layers but the last over texts, and keep what comes out in a file that is mapped into memory.

    Args:
        model: a BertForSequenceClassification.
        tokenizer: its tokenizer.
        pairs: n prompts and responses; responses are cut to fit.
        max_tokens: most tokens of a pair.
        file: where the states go.
        batch: texts at a time.
    """
    encoded = tokenizer(
        [prompt for prompt, _ in pairs],
        [response for _, response in pairs],
        truncation="only_second",
        max_length=max_tokens,
    )
    lengths = np.array([len(ids) for ids in encoded["input_ids"]], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.memmap(file, np.float16, "w+", shape=(int(offsets[-1]), model.config.hidden_size))
    model.eval()
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch):
        places = order[start : start + batch].tolist()
        inputs = tokenizer.pad(
            {name: [encoded[name][place] for place in places] for name in encoded}, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model.bert(**inputs, output_hidden_states=True).hidden_states[-2]
        for row, place in enumerate(places):
            values[offsets[place] : offsets[place + 1]] = states[row, : lengths[place]].to(torch.float16).numpy()
    return HiddenStates(values, offsets)


class LastLayer(nn.Module):
    """The last layer at the first token, the pooler and the head of a BertForSequenceClassification.

    Args:
        model: the classifier, whose modules are used as they are: training this trains them.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layer = model.bert.encoder.layer[-1]
        self.pooler = model.bert.pooler
        self.dropout = model.dropout
        self.head = model.classifier
        self.heads = int(model.config.num_attention_heads)

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """Return the outputs, float32[m, labels]. Args: as ``HiddenStates.padded`` gives them."""
        attention = self.layer.attention.self
        texts, _, width = states.shape
        size = width // self.heads
        first = states[:, 0]
        query = attention.query(first).view(texts, self.heads, size)
        # query · (K h + bias) is (Kᵀ query) · h and a constant, which the softmax takes away.
        asked = torch.einsum("mhs,hsw->mhw", query, attention.key.weight.view(self.heads, size, width))
        weights = torch.bmm(asked, states.transpose(1, 2)) / size**0.5
        weights = weights.masked_fill(~real[:, None, :], float("-inf")).softmax(-1)
        weights = attention.dropout(weights)
        taken = torch.bmm(weights, states)
        context = torch.einsum("mhw,hsw->mhs", taken, attention.value.weight.view(self.heads, size, width))
        context = context + weights.sum(-1, keepdim=True) * attention.value.bias.view(self.heads, size)
        attended = self.layer.attention.output(context.reshape(texts, width), first)
        out = self.layer.output(self.layer.intermediate(attended), attended)
        pooled = self.pooler(out[:, None])
        logits: Tensor = self.head(self.dropout(pooled))
        return logits
