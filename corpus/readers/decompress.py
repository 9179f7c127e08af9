"""Decompress a gzip or Zstandard stream piece by piece, in bounded memory, and say exactly how it ends.

Several members (RFC 1952) or frames (RFC 8878) in a row are one stream. Everything that could be decompressed before a
fault is given first, also the content of a member whose checksum turns out wrong: the fault is reported, the data are
kept. Zero padding after the last member is nothing to report.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from corpus.planning_types import Compression
from corpus.readers.faults import FileFaultError, UnreadableError

READ_BYTES = 1 << 20
OUTPUT_BYTES = 1 << 20
# One block of a Zstandard frame takes at least 4 bytes and gives at most 128 KiB, so a piece gives at most 32 MiB.
ZST_PIECE_BYTES = 1 << 10

GZ_MAGIC, ZST_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_NAMES: dict[Compression, str] = {"gz": "gzip", "zst": "Zstandard"}
# How libzstd says that memory was short, which is no fault of the file.
_OUT_OF_MEMORY = "not enough memory"
_FETCH_AGAIN = "the records before are kept; fetch or write the file again"


class Source:
    """Bytes of a file read forward in pieces, with a look at what comes next."""

    def __init__(self, handle: BinaryIO) -> None:
        self.handle = handle
        self.buffer = b""
        self.at_end = False
        self.offset = 0

    def peek(self, size: int) -> bytes:
        """Return up to ``size`` coming bytes, fewer only at the end of the file."""
        while len(self.buffer) < size and not self.at_end:
            piece = read_piece(self.handle)
            self.at_end = not piece
            self.buffer += piece
        return self.buffer[:size]

    def take(self, size: int) -> bytes:
        """Return up to ``size`` bytes and move on."""
        piece = self.peek(size)
        self.buffer = self.buffer[len(piece) :]
        self.offset += len(piece)
        return piece

    def take_any(self) -> bytes:
        """Return whatever is at hand, at least one byte but at the end."""
        self.peek(1)
        return self.take(len(self.buffer))

    def give_back(self, rest: bytes) -> None:
        """Put back the last bytes taken."""
        self.buffer = rest + self.buffer
        self.offset -= len(rest)

    def seek(self, offset: int) -> None:
        """Go on reading at another offset."""
        self.handle.seek(offset)
        self.buffer, self.at_end, self.offset = b"", False, offset


def read_piece(handle: BinaryIO) -> bytes:
    """Return the next piece of a file. Raises UnreadableError where it cannot be read."""
    try:
        return handle.read(READ_BYTES)
    except Exception as error:  # the clients of object stores have their own exceptions
        raise UnreadableError(error) from error


def decompressed(handle: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in pieces of bounded size, then raise FileFaultError if it ends badly.

    Faults: ``file_truncated`` (ends inside a member, or is empty), ``file_corrupt`` (not in this format, damaged, a
    wrong checksum, bytes after the last member). Raises UnreadableError where the file cannot be read.
    """
    source = Source(handle)
    member, starts = (_gz_member, _starts_gz) if compression == "gz" else (_zst_frame, _starts_zst)
    name = _NAMES[compression]
    first = source.peek(4)
    if not first:
        raise FileFaultError("file_truncated", f"the file is empty, which no {name} file is; fetch or write it again")
    if not starts(first):
        remedy = f"rename it if it is not {name}, or fetch it again"
        raise FileFaultError("file_corrupt", f"this is not a {name} file, it begins with {first!r}; {remedy}")
    while True:
        yield from member(source)
        following = source.peek(4)
        if not starts(following) or not following:
            break
    if following:
        yield from _nothing_after_end(source, name)


def _nothing_after_end(source: Source, name: str) -> Iterator[bytes]:
    """Raise FileFaultError unless all bytes that follow are zero."""
    offset = source.offset
    while piece := source.take_any():
        if piece.strip(b"\0"):
            detail = f"bytes that are no {name} follow the last member at byte {offset}; the records before are kept"
            raise FileFaultError("file_corrupt", f"{detail}; cut them off or write the file again")
    yield from ()


def _truncated(name: str) -> FileFaultError:
    return FileFaultError("file_truncated", f"the file ends early, inside a {name} member; {_FETCH_AGAIN}")


def _starts_gz(head: bytes) -> bool:
    return GZ_MAGIC.startswith(head[:2])


def _starts_zst(head: bytes) -> bool:
    skippable = head[:1] >= b"\x50" and head[:1] <= b"\x5f" and _SKIPPABLE.startswith(head[1:4])
    return ZST_MAGIC.startswith(head) or skippable


def _gz_member(source: Source) -> Iterator[bytes]:
    _skip_gz_header(source)
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    checksum, size = 0, 0
    while not inflate.eof:
        data = source.take_any()
        if not data:
            raise _truncated("gzip")
        while data and not inflate.eof:
            before = inflate.copy()
            try:
                output = inflate.decompress(data, OUTPUT_BYTES)
            except zlib.error as error:
                yield from _inflate_until_error(before, data)
                detail = f"the gzip data is damaged near byte {source.offset} ({error}); {_FETCH_AGAIN}"
                raise FileFaultError("file_corrupt", detail) from error
            checksum, size = zlib.crc32(output, checksum), size + len(output)
            if output:
                yield output
            data = inflate.unconsumed_tail
    source.give_back(inflate.unused_data)
    trailer = source.take(8)
    if len(trailer) < 8:
        raise _truncated("gzip")
    if struct.unpack("<II", trailer) != (checksum, size & 0xFFFFFFFF):
        detail = (
            "the checksum (CRC-32) or size of a gzip member is wrong; its records are kept; fetch or write it again"
        )
        raise FileFaultError("file_corrupt", detail)


def _inflate_until_error(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what the data gives before the error that they are known to hold."""
    for index in range(len(data)):
        piece = data[index : index + 1]
        while piece:
            try:
                output = inflate.decompress(piece, OUTPUT_BYTES)
            except zlib.error:
                return
            if output:
                yield output
            piece = inflate.unconsumed_tail


def _skip_gz_header(source: Source) -> None:
    """Go past the header of a member (RFC 1952, section 2.3). Raises FileFaultError."""
    head = source.take(10)
    if len(head) < 10:
        raise _truncated("gzip")
    method, flags = head[2], head[3]
    if method != 8 or flags & 0xE0:
        raise FileFaultError("file_corrupt", f"the header of a gzip member is damaged; {_FETCH_AGAIN}")
    if flags & 4:
        length = source.take(2)
        extra = int.from_bytes(length, "little")
        if len(length) < 2 or len(source.take(extra)) < extra:
            raise _truncated("gzip")
    for flag in (8, 16):
        if flags & flag:
            while (byte := source.take(1)) != b"\0":
                if not byte:
                    raise _truncated("gzip")
    if flags & 2 and len(source.take(2)) < 2:
        raise _truncated("gzip")


def _zst_frame(source: Source) -> Iterator[bytes]:
    start = source.offset
    inflate = zstandard.ZstdDecompressor().decompressobj()
    given = 0
    while not inflate.eof:
        at = source.offset
        data = source.take(ZST_PIECE_BYTES)
        if not data:
            raise _truncated("Zstandard")
        try:
            output = inflate.decompress(data)
        except zstandard.ZstdError as error:
            if _OUT_OF_MEMORY in str(error):
                raise MemoryError(str(error)) from error
            yield from _zst_until_error(source, start, at, given)
            what = "the checksum is wrong" if "checksum" in str(error) else f"the data is damaged ({error})"
            detail = f"{what} in a Zstandard frame near byte {at}; {_FETCH_AGAIN}"
            raise FileFaultError("file_corrupt", detail) from error
        given += len(output)
        if output:
            yield output
    source.give_back(inflate.unused_data)


def _zst_until_error(source: Source, start: int, piece: int, given: int) -> Iterator[bytes]:
    """Decompress a frame again up to the piece that holds an error, then byte by byte; yield what is new."""
    source.seek(start)
    inflate = zstandard.ZstdDecompressor().decompressobj()
    seen = 0
    try:
        while True:
            data = source.take(ZST_PIECE_BYTES if source.offset < piece else 1)
            if not data:
                return
            output = inflate.decompress(data)
            seen += len(output)
            if seen > given:
                yield output
    except zstandard.ZstdError:
        return
