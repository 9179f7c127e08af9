"""Check the curated files of a finished run against its manifest and its signals, a batch of rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.folder import Folder
from corpus.hashing import column_hashes, content_hashes, curated_digest, hex_hashes
from reports.curated import CLUSTER_ID, MIXTURE_COLUMNS, NONE
from reports.manifest import MAX_MIXTURE, OTHERS

HASHED_ROWS = 4096


def check_curated(folder: Folder, manifest: dict[str, Any]) -> Iterator[str]:
    """Yield what does not hold of the curated files: one sentence per finding.

    They have one schema; every text has its ``content_hash``; the records are those that signals call kept, in the same
    order; their languages and licences add up to the mixture, and their values to the ``content_digest``.
    """
    names = [entry["file"] for entry in manifest["outputs"] if entry["file"].startswith("curated/")]
    schemas = [pq.read_schema(folder.open_arrow(name)) for name in names]
    for name, schema in zip(names, schemas, strict=True):
        if not schema.equals(schemas[0]):
            yield f"{name} has other columns than {names[0]}"
            return
    columns = _Columns(schemas[0], manifest["config"]["input"])
    missing = [name for name in ("record_id", "content_hash", *columns.texts) if name not in schemas[0].names]
    if missing:
        yield f"{names[0]} has no column {', '.join(missing)}"
        return
    kept = _Kept(folder, [entry["file"] for entry in manifest["outputs"] if entry["file"].startswith("signals/")])
    mixture: dict[str, Counter[str | None]] = {group: Counter() for group in columns.mixture}
    digest = 0
    for name in names:
        hashed, in_order = True, True
        with folder.open_arrow(name) as file:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=HASHED_ROWS):
                hashed &= columns.have_their_hashes(batch)
                ids, files, positions = kept.take(batch.num_rows)
                in_order &= ids.equals(batch.column("record_id"))
                for group, column in columns.mixture.items():
                    for entry in batch.column(column).value_counts().to_pylist():
                        mixture[group][entry["values"]] += entry["counts"]
                if in_order:
                    digest = (digest + columns.digest(batch, files, positions)) % (1 << 64)
        if not hashed:
            yield f"{name} has a text that is not the one of its content_hash"
        if not in_order:
            yield f"{name} has other records than signals call kept, or in another order"
            return
    if kept.take(1)[0]:
        yield "curated has fewer records than signals call kept"
        return
    if f"{digest:016x}" != manifest["content_digest"]:
        yield f"the curated records have the digest {digest:016x}, the manifest says {manifest['content_digest']}"
    for group, counter in mixture.items():
        yield from _check_mixture(group, counter, manifest["mixture"])


def _check_mixture(group: str, found: Counter[str | None], mixture: dict[str, dict[str, int]]) -> Iterator[str]:
    none = found.pop(None, 0)
    told = dict(mixture.get(group, {}))
    others = told.pop(OTHERS, 0) if len(found) > MAX_MIXTURE else 0
    listed = {name: count for name, count in found.items() if not others or name in told}
    same = told == listed and none == mixture.get(NONE, {}).get(group, 0)
    if not same or others != sum(found.values()) - sum(listed.values()):
        yield f"the {group} of the curated records are not those of the mixture in the manifest"


class _Columns:
    """What the columns of the curated files are.

    Attributes:
        texts: the text columns, none for chats.
        mixture: group of the mixture -> column.
    """

    def __init__(self, schema: pa.Schema, settings: dict[str, Any]) -> None:
        names = [settings[name] for name in ("text_column", "prompt_column", "response_column")]
        self.texts = [_present(name, schema) for name in names if name is not None]
        id_column = settings["id_column"]
        self._id = None if id_column is None else _present(id_column, schema)
        if self._id not in schema.names:
            self._id = None
        self.mixture = {"languages": "language"} if "language" in schema.names else {}
        for group, candidates in MIXTURE_COLUMNS.items():
            column = next((name for name in candidates if name in schema.names), None)
            if column is not None and pa.types.is_string(schema.field(column).type):
                self.mixture[group] = column

    def have_their_hashes(self, batch: pa.RecordBatch) -> bool:
        """Say whether all texts have their content hash; chats are left out."""
        if not self.texts:
            return True
        texts = [batch.column(name).cast(pa.string()) for name in self.texts]
        return bool(hex_hashes(content_hashes(texts)).equals(batch.column("content_hash").cast(pa.string())))

    def digest(self, batch: pa.RecordBatch, files: pa.Array, positions: pa.Array) -> int:
        """Return the digest of rows that come from these places."""
        carried = np.zeros(batch.num_rows, np.uint64)
        for name in batch.schema.names:
            if name in self.texts or name in ("content_hash", CLUSTER_ID):
                continue
            hashes = column_hashes(name, batch.column(name))
            if name == "record_id":
                hashes[self._generated(batch, files, positions)] = 0
            carried += hashes
        return curated_digest(_from_hex(batch.column("content_hash")), carried)

    def _generated(self, batch: pa.RecordBatch, files: pa.Array, positions: pa.Array) -> npt.NDArray[np.bool_]:
        """Say which record ids were made of file and position, because the user gave none."""
        made = pc.binary_join_element_wise(files, positions.cast(pa.string()), "#")
        generated = pc.equal(made, batch.column("record_id"))
        if self._id is not None:
            generated = pc.and_(generated, batch.column(self._id).is_null())
        return np.asarray(generated.to_numpy(zero_copy_only=False))


def _present(name: str, schema: pa.Schema) -> str:
    return name if name in schema.names else f"input_{name}"


def _from_hex(digits: pa.Array) -> pa.Array:
    raw = bytes.fromhex("".join(digits.to_pylist()))
    return pa.Array.from_buffers(pa.binary(16), len(digits), [None, pa.py_buffer(raw)])


class _Kept:
    """The kept records of the signals in order, as many at a time as asked for."""

    def __init__(self, folder: Folder, names: list[str]) -> None:
        self._batches = self._read(folder, names)
        self._rest = pa.table({"record_id": pa.nulls(0, pa.string()), "file": [], "position": []})
        self._rest = next(self._batches, self._rest)

    @staticmethod
    def _read(folder: Folder, names: list[str]) -> Iterator[pa.Table]:
        for name in names:
            with folder.open_arrow(name) as file:
                for batch in pq.ParquetFile(file).iter_batches(columns=["record_id", "file", "position", "kept"]):
                    yield pa.Table.from_batches([batch.filter(batch.column("kept"))]).drop_columns(["kept"])

    def take(self, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return record_id, file and position of the next records, fewer than ``count`` at the end."""
        while self._rest.num_rows < count:
            following = next(self._batches, None)
            if following is None:
                break
            self._rest = pa.concat_tables([self._rest, following])
        taken, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        ids, files, positions = (column.combine_chunks() for column in taken.columns)
        return ids, files, positions
