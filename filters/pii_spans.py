"""Spans with private data in the texts of a batch: the kernel with its tables."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.text import Bytes, text_buffers
from corpus.unicode_tables import code_point_classes
from filters import pii_kernel as kernel
from filters import pii_tables as tables
from filters.pii_number_kernel import SCRATCH

Integers = npt.NDArray[np.int64]


@cache
def trigger_bytes() -> Bytes:
    """Return uint8[256]: 1 for the first bytes of digits, @ and colons, also of those that count as one."""
    triggers = np.zeros(256, np.uint8)
    # Of Arabic-Indic and Persian digits and of full-width forms, the first byte leads many other characters too.
    triggers[[*b"0123456789@:", 0xD9, 0xDB, 0xEF]] = 1
    triggers.setflags(write=False)
    return triggers


def find_in_batch(
    texts: pa.StringArray, alive: npt.NDArray[np.bool_], public_only: bool
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return row, start, stop (in bytes of the text) and kind of the spans in n texts, int64[m] each, in order.

    Args:
        texts: n texts.
        alive: bool[n], the texts to look at.
        public_only: whether IP addresses that are not public stay.
    """
    offsets, data = text_buffers(texts)
    rows, starts, stops, kinds = kernel.find_spans(
        offsets,
        data,
        alive,
        code_point_classes(),
        trigger_bytes(),
        tables.calling_codes(),
        tables.card_lengths(),
        tables.iban_lengths(),
        tables.local_networks_4(),
        tables.networks_6(),
        *tables.packed_words(tables.PHONE_WORDS),
        *tables.packed_words(tables.PHONE_FILLERS),
        *tables.packed_words(tables.VERSION_WORDS),
        public_only,
        np.zeros(SCRATCH, np.int64),
    )
    return rows.astype(np.int64), starts.astype(np.int64), stops.astype(np.int64), kinds.astype(np.int64)
