"""Cut a stream of bytes into lines with their offsets, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corpus.readers.faults import RAW_BYTES

# Far above what can be kept (input.max_record_bytes is at most 15 MiB), so that a record too large to keep is still
# read and counted with its true length.
MAX_LINE_BYTES = 64 << 20

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LongLine(bytes):
    """The first bytes of a line that is longer than ``MAX_LINE_BYTES``."""


def scan_lines(pieces: Iterable[bytes], offset: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) of each line of a stream that starts before ``end``, without the newline; not empty ones.

    ``offset`` is that of the first piece; a byte order mark at offset 0 is dropped, and the line's offset stays 0. The
    last line needs no newline. A line over ``MAX_LINE_BYTES`` comes as a ``LongLine``. An error that ``pieces`` raises
    passes through after all lines that were complete; what follows the last newline is then no line.
    """
    if end is not None and offset >= end:
        return
    parts: list[bytes] = []
    held = 0
    position = offset
    for piece in pieces:
        lines = piece.split(b"\n")
        for line in lines[:-1]:
            if not line and not parts:
                # Millions of them in a few bytes of a compressed file are no reason to wait.
                position += 1
                if end is not None and position >= end:
                    return
                continue
            length = held + len(line)
            if parts:
                parts.append(line)
                line = _joined(parts, length)
                parts, held = [], 0
            elif length > MAX_LINE_BYTES:
                line = LongLine(line[:RAW_BYTES])
            yield position, _without_mark(line) if position == 0 else line
            position += length + 1
            if end is not None and position >= end:
                return
        rest = lines[-1]
        if rest:
            held += len(rest)
            if held <= MAX_LINE_BYTES or not parts:
                parts.append(rest)
            elif len(parts) > 1:
                parts = [b"".join(parts)[:RAW_BYTES]]
    if parts:
        line = _joined(parts, held)
        yield position, _without_mark(line) if position == 0 else line


def skip_first_line(pieces: Iterable[bytes], offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, rest) of the pieces after the first newline, unless it lies at or beyond ``end - 1``."""
    pieces = iter(pieces)
    for piece in pieces:
        newline = piece.find(b"\n")
        if newline >= 0:
            offset += newline + 1
            if offset < end:
                yield offset, piece[newline + 1 :]
                for following in pieces:
                    yield offset, following
            return
        offset += len(piece)
        if offset >= end:
            return


def is_blank(line: bytes) -> bool:
    """Say whether a line holds nothing but ASCII white space: no record."""
    return not line or line.isspace()


def _joined(parts: list[bytes], length: int) -> bytes:
    if length > MAX_LINE_BYTES:
        return LongLine(b"".join(parts)[:RAW_BYTES])
    return b"".join(parts)


def _without_mark(line: bytes) -> bytes:
    if line.startswith(BYTE_ORDER_MARK):
        return type(line)(line[len(BYTE_ORDER_MARK) :])
    return line
