"""Tokens of texts, counted by a tokenizer.json of the package tokenizers."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.errors import UsageError

Integers = npt.NDArray[np.int64]

PIECE_BYTES = 1 << 20
"""Text that is tokenised at a time: the package's objects take some hundred bytes a token."""


@lru_cache(maxsize=4)
def load_tokenizer(path: str, setting: str) -> Any:
    """Return the tokenizer of a tokenizer.json. Raises UsageError without the package, or for another file.

    Args:
        setting: what the config calls it, for messages.
    """
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError:
        raise UsageError(f"{setting} needs the package tokenizers: pip install 'thresher[models]'") from None
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:
        raise UsageError(
            f"{path}: no tokenizer.json of the package tokenizers ({error}); {setting} is the path of one"
        ) from error


def count_tokens(tokenizer: Any, texts: pa.StringArray) -> Integers:
    """Return the number of tokens of each text, int64[n], without special tokens; 0 for a null."""
    sizes = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64))
    pieces = sizes // PIECE_BYTES
    begins = np.flatnonzero(np.append(True, pieces[1:] != pieces[:-1])[: len(pieces)]).tolist()
    counts = np.zeros(len(texts), np.int64)
    for begin, end in zip(begins, [*begins[1:], len(texts)], strict=False):
        piece = pc.fill_null(texts.slice(begin, end - begin), "").to_pylist()
        # The offsets that encode_batch gives as well are not wanted.
        encodings = tokenizer.encode_batch_fast(piece, add_special_tokens=False)
        counts[begin:end] = [len(encoding) for encoding in encodings]
    return counts
