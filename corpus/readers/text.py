"""Read plain text files: each file is one document."""

from __future__ import annotations

from collections.abc import Iterator

from corpus.batch import DocumentBatch
from corpus.hashing import in_sample, sample_seed
from corpus.inputs import InputConfig
from corpus.planning_types import Item
from corpus.readers.decompress import decompressed, read_piece
from corpus.readers.faults import DeadLetter, FileFaultError
from corpus.readers.jsonl import open_for_reading
from corpus.readers.lines import BYTE_ORDER_MARK, MAX_LINE_BYTES
from corpus.readers.records import Chunker, RecordBuilder


def read_text(item: Item, config: InputConfig, batch_rows: int, batch_bytes: int) -> Iterator[DocumentBatch]:
    """Yield the batch of a text file; see ``corpus.readers.read_item``. Of a damaged file no record is made."""
    builder = RecordBuilder(item, config, has_json=False)
    chunker = Chunker(item, builder.schema, batch_rows, batch_bytes)
    sampled = config.sample is None or in_sample(0, sample_seed(item.file, config.sample_seed), config.sample)
    if sampled and item.limit != 0:
        _add_document(item, builder)
    yield from chunker.add(builder.take())
    yield chunker.finish()


def _add_document(item: Item, builder: RecordBuilder) -> None:
    try:
        data = _content(item)
    except FileFaultError as fault:
        builder.add_dead(DeadLetter(item.file, None, fault.error, fault.detail))
        return
    if len(data) > MAX_LINE_BYTES:
        detail = f"the document is longer than {MAX_LINE_BYTES} bytes; split the file"
        builder.add_dead(DeadLetter(item.file, 0, "line_too_long", detail, data))
        return
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} of the file is not UTF-8; convert the file to UTF-8"
        builder.add_dead(DeadLetter(item.file, 0, "invalid_utf8", detail, data))
        return
    builder.add(0, None, item.file, [text], b"")


def _content(item: Item) -> bytes:
    """Return the bytes of the document, or a little more than ``MAX_LINE_BYTES`` of a longer one."""
    parts, size = [], 0
    with open_for_reading(item) as handle:
        plain = iter(lambda: read_piece(handle), b"")
        for piece in plain if item.compression is None else decompressed(handle, item.compression):
            parts.append(piece)
            size += len(piece)
            if size > MAX_LINE_BYTES:
                break
    return b"".join(parts)
