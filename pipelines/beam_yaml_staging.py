"""Where the duplicate stages of a Beam YAML pipeline keep what all workers read, and how rows lie there."""

from __future__ import annotations

import platform
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import RowCoder
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.typehints.row_type import RowTypeConstraint

from corpus.errors import ThresherError, UsageError
from corpus.filesystem import locate, scheme_of
from corpus.folder import Folder
from corpus.staging import stem

# Runners whose workers are threads or processes of this machine.
LOCAL_RUNNERS = ("BundleBasedDirectRunner", "DirectRunner", "FnApiRunner", "PrismRunner", "SwitchingDirectRunner")
REMOTE_RUNNERS = ("DataflowRunner", "TestDataflowRunner")
SCHEMES = ("file", "s3", "gs", "memory")

_MARK = "staging/pipeline"


def make_staging(name: str, staging: str | None, pipeline: beam.Pipeline) -> str:
    """Return a new folder, path or URI, for one step of a pipeline.

    Args:
        name: of the stage.
        staging: the folder in which to make it, which the caller removes; None for a temporary local folder, which is
            removed with the pipeline object, or when this process ends.
        pipeline: the pipeline that is being built.

    Raises:
        UsageError: where ``staging`` is missing, or local, and the runner's workers cannot see local files; where
            it cannot be written.
    """
    runner = type(pipeline.runner).__name__
    here = runner in LOCAL_RUNNERS or pipeline.options.view_as(PortableOptions).environment_type == "LOOPBACK"
    wanted = "give a folder that all workers see, or an s3:// or gs:// URI"
    if staging is None:
        if not here:
            raise UsageError(f"{name}: staging is missing, and workers of {runner} are not on this machine; {wanted}")
        root = tempfile.mkdtemp(prefix="thresher-")
        weakref.finalize(pipeline, shutil.rmtree, root, ignore_errors=True)
    else:
        try:
            located = locate(staging).rstrip("/")
        except UsageError as error:
            raise UsageError(f"{name}: staging: {error}") from None
        scheme = scheme_of(located)
        if scheme not in SCHEMES or (scheme == "file" and runner in REMOTE_RUNNERS):
            raise UsageError(f"{name}: staging: found {staging}, where workers of {runner} cannot write; {wanted}")
        root = f"{located}/{name}-{secrets.token_hex(8)}"
    try:
        Folder(root).write_bytes(_MARK, b"")
    except (ThresherError, OSError) as error:
        raise UsageError(f"{name}: staging: cannot be written ({error}); {wanted}") from None
    return root


def check_staging(folder: Folder) -> None:
    """Raise ThresherError on a worker that does not see the folder."""
    if not folder.exists(_MARK):
        raise ThresherError(
            f"the worker on {platform.node()} does not see the staging folder {folder.root}; give staging, a folder "
            "that all workers see, or an s3:// or gs:// URI"
        )


def _name(key: int) -> str:
    return f"staging/rows/{stem(key)}.arrow"


def write_staged_rows(folder: Folder, key: int, rows: Sequence[bytes]) -> None:
    """Store the encoded rows of a batch."""
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.large_binary())], names=["row"])
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with folder.writing(_name(key)) as file, pa.ipc.new_file(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def read_staged_rows(folder: Folder, key: int) -> list[bytes]:
    """Return the encoded rows of a batch, in their order."""
    with folder.open_arrow(_name(key)) as source:
        rows: list[bytes] = pa.ipc.open_file(source).get_batch(0).column("row").to_pylist()
    return rows


class RowEncoder:
    """Rows as bytes by Beam's row coder.

    Attributes:
        types: Beam's type of each field.
    """

    def __init__(self, types: Mapping[str, Any]) -> None:
        self.types = dict(types)
        self._coder = RowCoder.from_type_hint(RowTypeConstraint.from_fields(list(types.items())), None)

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the values of a row, in the order of ``types``, as bytes.

        Raises ThresherError where they are not of the types that the schema of their collection says.
        """
        kinds = (field.type for field in self._coder.schema.fields)
        try:
            fitting = [_fitting(value, kind) for value, kind in zip(values, kinds, strict=True)]
            data: bytes = self._coder.encode(beam.Row(**dict(zip(self.types, fitting, strict=True))))
        except Exception as error:  # each type's coder has its own exceptions
            raise ThresherError(
                f"a row is not what its schema says ({error}); give its fields other types, for example by MapToFields"
            ) from error
        return data

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """Return the values of the row."""
        row = self._coder.decode(data)
        return tuple(getattr(row, name) for name in self.types)


def _fitting(value: Any, kind: Any) -> Any:
    """Return a value as the row coder takes it; Beam's readers give rows as dicts, and maps as lists of pairs.

    Args:
        kind: type of a field in a Beam schema (``FieldType`` of schema.proto).
    """
    which = kind.WhichOneof("type_info")
    if value is None or which in ("atomic_type", "logical_type"):
        return value
    if which == "row_type":
        fields = kind.row_type.schema.fields
        get = value.get if isinstance(value, dict) else lambda name: getattr(value, name)
        return beam.Row(**{field.name: _fitting(get(field.name), field.type) for field in fields})
    if which == "map_type":
        return {key: _fitting(inner, kind.map_type.value_type) for key, inner in dict(value).items()}
    inner_kind = kind.array_type.element_type if which == "array_type" else kind.iterable_type.element_type
    return [_fitting(inner, inner_kind) for inner in value]
