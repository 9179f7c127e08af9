"""Read items: from files as they are to batches of records and dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from corpus.batch import DocumentBatch
from corpus.inputs import InputConfig
from corpus.planning_types import Item
from corpus.readers.faults import DeadLetter, UnreadableError, cannot_be_read
from corpus.readers.jsonl import read_jsonl
from corpus.readers.parquet import empty_block, read_parquet
from corpus.readers.records import Chunker, batch_schema
from corpus.readers.text import read_text


def read_item(item: Item, config: InputConfig, batch_rows: int, batch_bytes: int) -> Iterator[DocumentBatch]:
    """Yield the batches of an item, in order; the last one says so and may be empty.

    Whatever is wrong with the bytes of a file or a record becomes a dead letter in the batch that it falls in. Where
    batches end depends on the input, ``config``, ``batch_rows`` and ``batch_bytes`` only. A batch that holds one record
    may be larger than ``batch_bytes``. Records have the columns of ``corpus.batch.record_fields``, then ``user/<name>``
    for each carried column of a Parquet file, or ``json`` for JSONL; a pair whose response is blank counts as empty
    text.
    Raises ThresherError where the file cannot be read for a reason that may pass (memory, disk, network, access).
    """
    try:
        yield from _batches(item, config, batch_rows, batch_bytes)
    except (UnreadableError, MemoryError, OSError) as error:
        raise cannot_be_read(item.file, error) from error


def _batches(item: Item, config: InputConfig, batch_rows: int, batch_bytes: int) -> Iterator[DocumentBatch]:
    if item.format == "parquet":
        yield from read_parquet(item, config, batch_rows, batch_bytes)
    elif item.format == "jsonl":
        yield from read_jsonl(item, config, batch_rows, batch_bytes)
    elif item.format == "text":
        yield from read_text(item, config, batch_rows, batch_bytes)
    else:
        schema = batch_schema(config, [])
        chunker = Chunker(item, schema, batch_rows, batch_bytes)
        yield from chunker.add(
            empty_block(schema, DeadLetter(item.file, None, item.error or "file_unreadable", item.detail or ""))
        )
        yield chunker.finish()
