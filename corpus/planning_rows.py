"""About how many records a file has, from its first bytes.

The lines of JSONL are counted in the first 64 KiB of text and scaled by the bytes as stored that these took.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard

from corpus.planning_types import Compression
from corpus.readers.decompress import ZST_PIECE_BYTES

TEXT_BYTES = 64 << 10
# A Zstandard block of up to 128 KiB may have to be complete before it gives any text.
HEAD_BYTES = 256 << 10


def likely_lines(head: bytes, size: int, compression: Compression | None) -> int:
    """Return about how many lines a file has, at least 1.

    Args:
        head: its first bytes as stored, ``HEAD_BYTES`` or all.
        size: all its bytes as stored.
        compression: of the file.
    """
    text, taken = b"", 0
    for piece, bytes_taken in _pieces(head, compression):
        text += piece
        taken += bytes_taken
        if len(text) >= TEXT_BYTES:
            break
    lines = text.count(b"\n")
    if taken >= size:
        return max(1, lines + (bool(text) and not text.endswith(b"\n")))
    return max(1, round(lines * size / max(1, taken)))


def _pieces(head: bytes, compression: Compression | None) -> Iterator[tuple[bytes, int]]:
    """Yield (text, bytes as stored that it took) until the head or what can be decompressed of it ends."""
    if compression is None:
        yield head[:TEXT_BYTES], min(len(head), TEXT_BYTES)
    elif compression == "gz":
        yield from _gz_pieces(head)
    else:
        yield from _zst_pieces(head)


def _gz_pieces(data: bytes) -> Iterator[tuple[bytes, int]]:
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            text = member.decompress(data, TEXT_BYTES)
        except zlib.error:  # reading says what is wrong
            return
        rest = member.unused_data or member.unconsumed_tail
        yield text, len(data) - len(rest)
        if not member.eof:  # enough text, or the head ends here
            return
        data = rest


def _zst_pieces(data: bytes) -> Iterator[tuple[bytes, int]]:
    frame = zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, len(data), ZST_PIECE_BYTES):
        piece = data[start : start + ZST_PIECE_BYTES]
        size = len(piece)
        text = b""
        try:
            while piece:
                text += frame.decompress(piece)
                piece = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
        except zstandard.ZstdError:  # reading says what is wrong
            return
        yield text, size
