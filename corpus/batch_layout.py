"""The two shapes of a record and the numbers of a batch; free of imports, so that config models can use it."""

from __future__ import annotations

from typing import Literal

ITEM_BITS, CHUNK_BITS, ROW_BITS = 24, 20, 19
MAX_ROWS = 1 << ROW_BITS
# Every row costs about 100 bytes beside its text, and a batch has 16 MiB.
MAX_BATCH_ROWS = 1 << 16
MAX_CHUNKS = 1 << CHUNK_BITS
MAX_ITEMS = 1 << ITEM_BITS

Layout = Literal["document", "pair"]
FIELDS: dict[Layout, tuple[str, ...]] = {"document": ("text",), "pair": ("prompt", "response")}
