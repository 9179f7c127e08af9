"""Read a fastText model file into plain arrays.

The format is the one that fastText 0.9 writes (``FastText::saveModel``, versions 11 and 12), little-endian throughout:

    int32 magic, int32 version
    arguments     12 int32, 1 double
    dictionary    3 int32 (entries, words, labels), 2 int64 (tokens, pruned n-grams or -1),
                  per entry: bytes up to NUL, int64 count, int8 type; per pruned n-gram: int32 bucket, int32 row
    input matrix  bool quantised, then a matrix
    output matrix bool quantised, then a matrix

A dense matrix is int64 rows, int64 columns, float32 values. A quantised one (Joulin et al., FastText.zip, 2016) is
bool with_norms, int64 rows, int64 columns, int32 code count, uint8 codes, a product quantiser, and with norms uint8
codes and a quantiser for these. Both are returned as float32.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpus.errors import UsageError

MAGIC = 793712314
KNOWN_VERSIONS = (11, 12)
HIERARCHICAL_SOFTMAX, NEGATIVE_SAMPLING, SOFTMAX, ONE_VERSUS_ALL = 1, 2, 3, 4
SUPERVISED = 3
MODEL_NAMES = {1: "cbow", 2: "skipgram", SUPERVISED: "supervised"}
FILE_NAME = "the fastText model"
"""What messages call the file."""
LABEL_PREFIX = "__label__"

_HEADER = struct.Struct("<2i12id")
_DICTIONARY = struct.Struct("<3i2q")
_ENTRY = struct.Struct("<qb")
_CENTROIDS = 256
_LARGEST_COUNT = 10**15  # stands for "not built yet" in fastText's Huffman tree

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Header:
    """The arguments of training that a prediction depends on."""

    version: int
    dimension: int
    word_ngrams: int
    loss: int
    model: int
    buckets: int
    shortest_ngram: int
    longest_ngram: int


@dataclass(frozen=True)
class ModelFile:
    """A supervised model.

    Attributes:
        header: arguments of training.
        entries: the dictionary's strings, words first, then labels with their prefix.
        words: how many of the entries are words.
        label_counts: int64, how often each label was seen in training; the Huffman tree is built from it.
        pruned: int32 [n, 2] of (bucket of an n-gram, row behind the words), or None if every bucket has its row.
        input: float32 [words + n-grams, dimension].
        output: float32 [labels, dimension].
    """

    header: Header
    entries: list[bytes]
    words: int
    label_counts: npt.NDArray[np.int64]
    pruned: npt.NDArray[np.int32] | None
    input: Floats
    output: Floats

    @property
    def labels(self) -> list[str]:
        """The labels without their prefix, in the order of the rows of ``output``."""
        return [entry.decode("utf-8", "replace").removeprefix(LABEL_PREFIX) for entry in self.entries[self.words :]]


class _DamagedError(Exception):
    """What is wrong with the file; turned into a ``UsageError`` that names it."""


class _Cursor:
    """Reads values one after the other; every read is checked against the file's end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        self._need(form.size)
        values = form.unpack_from(self.data, self.position)
        self.position += form.size
        return values

    def integers(self, code: str) -> tuple[int, ...]:
        return self.unpack(struct.Struct("<" + code))

    def array(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        kind = np.dtype(dtype)
        if count < 0:
            raise _DamagedError(f"a count is negative: {count}")
        self._need(count * kind.itemsize)
        values: npt.NDArray[np.generic] = np.frombuffer(self.data, kind, count, self.position).copy()
        self.position += count * kind.itemsize
        return values

    def string(self) -> bytes:
        end = self.data.find(b"\0", self.position)
        if end < 0:
            raise _DamagedError("the file ends inside the dictionary")
        value = self.data[self.position : end]
        self.position = end + 1
        return value

    def _need(self, size: int) -> None:
        if self.position + size > len(self.data):
            missing = self.position + size - len(self.data)
            raise _DamagedError(f"the file ends {missing:,} bytes too early")


def read_header(path: str) -> Header:
    """Return the arguments of the model at ``path``.

    Raises UsageError if the file cannot be read or is no fastText model.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_HEADER.size)
    except OSError as error:
        raise UsageError(f"{path}: cannot read {FILE_NAME}: {error.strerror}. Check the path.") from error
    if len(data) < _HEADER.size or struct.unpack_from("<i", data)[0] != MAGIC:
        raise UsageError(
            f"{path}: not a fastText model (it does not begin as one). Give a .bin or .ftz file that fastText wrote."
        )
    _, version, dimension, _, _, _, _, word_ngrams, loss, model, buckets, shortest, longest, _, _ = _HEADER.unpack(data)
    if version == 11 and model == SUPERVISED:
        longest = 0  # such models were trained without character n-grams, whatever the field says
    return Header(version, dimension, word_ngrams, loss, model, buckets, shortest, longest)


def read_model(path: str) -> ModelFile:
    """Return the supervised model at ``path`` with float32 matrices.

    Raises UsageError, naming the file and what to do, if it cannot be read, is damaged or is of an unknown version.
    """
    header = read_header(path)
    if header.version not in KNOWN_VERSIONS:
        raise UsageError(
            f"{path}: format version {header.version} is unknown; known: 11, 12. Save it with fastText 0.9."
        )
    try:
        with Path(path).open("rb") as file:
            cursor = _Cursor(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        cursor.position = _HEADER.size
        return _read_body(cursor, header)
    except (_DamagedError, OSError) as error:
        raise UsageError(f"{path}: the fastText model is damaged: {error}. Fetch or save it again.") from error


def _read_body(cursor: _Cursor, header: Header) -> ModelFile:
    if header.dimension < 1 or header.buckets < 0:
        raise _DamagedError(f"it has {header.dimension} dimensions and {header.buckets} buckets")
    if header.buckets == 0 and (header.longest_ngram > 0 or header.word_ngrams > 1):
        raise _DamagedError("it has n-grams but no buckets for them")
    size, words, labels, _, pruned_size = cursor.unpack(_DICTIONARY)
    if words < 0 or labels < 1 or size != words + labels:
        raise _DamagedError(f"{size} entries cannot be {words} words and {labels} labels")
    entries, counts = [], []
    for number in range(size):
        entries.append(cursor.string())
        count, kind = cursor.unpack(_ENTRY)
        if kind != (number >= words):
            raise _DamagedError("the dictionary does not list words first, then labels")
        if not 0 <= count < _LARGEST_COUNT:
            raise _DamagedError(f"an entry was seen {count} times")
        counts.append(count)
    pruned = None
    if pruned_size >= 0:
        pruned = cursor.array("<i4", 2 * pruned_size).astype(np.int32).reshape(-1, 2)
    quantised = cursor.integers("?")[0]
    if pruned is not None and not quantised:
        raise _DamagedError("its n-grams are pruned but its matrix is not quantised")
    matrices = []
    for name in ("input", "output"):
        if name == "output":
            quantised = cursor.integers("?")[0] and quantised
        matrix = _quantised(cursor) if quantised else _dense(cursor)
        if matrix.shape[1] != header.dimension:
            raise _DamagedError(f"the {name} matrix has {matrix.shape[1]} columns, not {header.dimension}")
        if not np.isfinite(matrix).all():
            raise _DamagedError(f"the {name} matrix has values that are not finite")
        matrices.append(matrix)
    _check_rows(header, words, labels, pruned, *matrices)
    return ModelFile(header, entries, words, np.array(counts[words:], np.int64), pruned, *matrices)


def _check_rows(
    header: Header, words: int, labels: int, pruned: npt.NDArray[np.int32] | None, inputs: Floats, outputs: Floats
) -> None:
    if pruned is None:
        needed = words + header.buckets
    else:
        if len(pruned) and (pruned.min() < 0 or pruned[:, 0].max() >= header.buckets):
            raise _DamagedError("the list of pruned n-grams has a bucket out of range")
        needed = words + (int(pruned[:, 1].max()) + 1 if len(pruned) else 0)
    if len(inputs) < needed:
        raise _DamagedError(f"the input matrix has {len(inputs)} rows, too few for {needed}")
    if len(outputs) != labels:
        raise _DamagedError(f"the output matrix has {len(outputs)} rows for {labels} labels")


def _dense(cursor: _Cursor) -> Floats:
    rows, columns = cursor.integers("2q")
    if rows < 0 or columns < 1:
        raise _DamagedError(f"a matrix of {rows} x {columns}")
    return cursor.array("<f4", rows * columns).astype(np.float32, copy=False).reshape(rows, columns)


def _quantised(cursor: _Cursor) -> Floats:
    with_norms, rows, columns, code_count = cursor.integers("?2qi")
    codes = cursor.array("u1", code_count)
    values = _decode(cursor, codes, rows)
    if values.shape[1] != columns:
        raise _DamagedError(f"a quantised matrix has {values.shape[1]} columns, not {columns}")
    if with_norms:
        values *= _decode(cursor, cursor.array("u1", rows), rows)
    return values


def _decode(cursor: _Cursor, codes: npt.NDArray[np.generic], rows: int) -> Floats:
    """Read the product quantiser at the cursor and return the rows that the codes stand for."""
    columns, parts, width, last_width = cursor.integers("4i")
    if rows < 0 or parts < 1 or width < 1 or not 0 < last_width <= width:
        raise _DamagedError("a quantiser has impossible sizes")
    if columns != (parts - 1) * width + last_width or len(codes) != rows * parts:
        raise _DamagedError("a quantiser does not fit its matrix")
    centroids = cursor.array("<f4", columns * _CENTROIDS)
    codes = codes.reshape(rows, parts)
    values = np.empty((rows, columns), np.float32)
    for part in range(parts):
        begin = part * width
        end = min(begin + width, columns)
        table = centroids[begin * _CENTROIDS : end * _CENTROIDS].reshape(_CENTROIDS, end - begin)
        values[:, begin:end] = table[codes[:, part]]
    return values
