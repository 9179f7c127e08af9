"""Plan the reading of an input: which files, in which items, before anything runs.

Items depend on the input and its config only, never on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from corpus.batch_layout import MAX_ITEMS
from corpus.errors import UsageError
from corpus.filesystem import FileInfo
from corpus.inputs import InputConfig
from corpus.planning_files import display_names, find_files, format_of
from corpus.planning_rows import HEAD_BYTES, likely_lines
from corpus.planning_types import InputPlan, Item, PlannedFile
from corpus.readers.columns import column_fault
from corpus.readers.decompress import GZ_MAGIC, ZST_MAGIC, Source
from corpus.readers.faults import FileFaultError, UnreadableError, cannot_be_read, is_transient
from corpus.readers.jsonl import open_for_reading, record_lines
from corpus.readers.parquet import open_parquet
from corpus.user_columns import heads_of

__all__ = ["ITEM_BYTES", "InputPlan", "Item", "PlannedFile", "plan_input"]

ITEM_BYTES = 32 << 20
MAX_RANGES = 1 << 16
_PLANNING_THREADS = 16


def plan_input(config: InputConfig, user_columns: Mapping[str, str] | None = None) -> InputPlan:
    """Return the plan for an input; relative paths start at the current folder.

    A file that cannot be read as a whole becomes an item of the format ``fault``. Raises UsageError where an entry of
    ``input.files`` matches nothing, all files lack the text column, or a column that the config names is in no file.
    Raises ThresherError where a file cannot be read for a reason that may pass.
    With ``input.limit`` the items end after the first records in the order of the plan; rows of a damaged row group
    count.

    Args:
        config: the input.
        user_columns: columns that some file must have, by the setting that names each; a name with dots may also lead
            into the objects of a column.
    """
    found, left_out = find_files(config.files)
    paths = [info.path for info in found]
    names = dict(zip([*paths, *left_out], display_names([*paths, *left_out]), strict=True))
    shown = dict(zip(paths, display_names(paths), strict=True))
    ordered = sorted(found, key=lambda info: shown[info.path])
    with ThreadPoolExecutor(_PLANNING_THREADS) as pool:
        total = sum(info.size for info in found)
        # The plan grows with the number of items, so the items of a huge input are larger.
        item_bytes = max(ITEM_BYTES, total // MAX_RANGES)
        inspected = list(pool.map(lambda info: _inspect(info, shown[info.path], config, item_bytes), ordered))
    files = tuple(file for file, _, _ in inspected)
    if all(file.error is not None and file.error.startswith("wrong_columns") for file in files):
        more = f" ({len(files)} files in all, none with it)" if len(files) > 1 else ""
        raise UsageError(f"{files[0].file}: {(files[0].error or '').removeprefix('wrong_columns: ')}{more}")
    _check_names(config, user_columns or {}, [schema for _, _, schema in inspected])
    items = [item for _, parts, _ in inspected for item in parts]
    if config.limit is not None:
        items = _limited(items, config.limit)
    if len(items) > MAX_ITEMS:
        raise UsageError(f"the input has {len(items)} items, more than {MAX_ITEMS}; join small files to larger ones")
    numbered = tuple(replace(item, index=index) for index, item in enumerate(items))
    return InputPlan(files, numbered, tuple(f"{names[path]}: {reason}" for path, reason in left_out.items()))


def _check_names(config: InputConfig, user_columns: Mapping[str, str], schemas: list[pa.Schema | None]) -> None:
    """Raise UsageError for a configured column that none of the files has; only Parquet files can tell."""
    present = {name for schema in schemas if schema is not None for name in schema.names}
    if any(schema is None for schema in schemas):
        return
    for field, names in (
        ("id_column", [config.id_column]),
        ("source_column", [config.source_column]),
        ("columns", config.columns or []),
    ):
        for name in names:
            if name is not None and name not in present:
                raise UsageError(f"input.{field}: no file has a column {name}; there are: {', '.join(sorted(present))}")
    for setting, name in user_columns.items():
        if not present.intersection(heads_of(name)):
            raise UsageError(f"{setting}: no file has a column {name}; there are: {', '.join(sorted(present))}")


Inspected = tuple[PlannedFile, list[Item], pa.Schema | None]


def _inspect(info: FileInfo, file: str, config: InputConfig, item_bytes: int) -> Inspected:
    """Return a file with its items, and the schema of a Parquet file that can be read."""
    kind, compression = format_of(info.name) or ("text", None)
    planned = PlannedFile(file, info.path, kind, compression, info.size, info.modified, None, 1, None)
    item = Item(0, file, info.path, kind, compression, 0, info.size, 0, None, None, None, None)
    try:
        if kind == "parquet":
            return _inspect_parquet(planned, item, config, item_bytes)
        if kind == "text" and config.layout == "pair":
            raise FileFaultError("wrong_columns", "a text file is one document, wanted are pairs; convert it to JSONL")
        with open_for_reading(item) as handle:
            source = Source(handle)
            head = source.peek(4)
            if kind == "jsonl":
                lines = likely_lines(source.peek(HEAD_BYTES), info.size, compression)
                planned = replace(planned, likely_rows=lines)
        if compression is None and (head[:2] == GZ_MAGIC or head == ZST_MAGIC):
            suffix = ".gz" if head[:2] == GZ_MAGIC else ".zst"
            raise FileFaultError("file_corrupt", f"the file is compressed; rename it to {info.name}{suffix}")
    except FileFaultError as fault:
        return _faulty(planned, item, fault)
    except UnreadableError as error:
        if is_transient(error.error) and not isinstance(error.error, FileNotFoundError | PermissionError):
            raise cannot_be_read(file, error.error) from error
        detail = f"the file cannot be read ({error}); check that it is there and readable"
        return _faulty(planned, item, FileFaultError("file_unreadable", detail))
    if kind == "jsonl" and compression is None:
        return (
            planned,
            [replace(item, start=start, end=end) for start, end in _byte_ranges(info.size, item_bytes)],
            None,
        )
    return planned, [item], None


def _faulty(planned: PlannedFile, item: Item, fault: FileFaultError) -> Inspected:
    item = replace(item, format="fault", start=0, end=0, error=fault.error, detail=fault.detail)
    planned = replace(planned, likely_rows=planned.rows or 0, error=f"{fault.error}: {fault.detail}")
    return planned, [item], None


def _byte_ranges(size: int, item_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of about so many bytes that make up a file; an empty file has one."""
    count = max(1, round(size / item_bytes))
    borders = [size * index // count for index in range(count + 1)]
    return list(pairwise(borders))


def _inspect_parquet(planned: PlannedFile, item: Item, config: InputConfig, item_bytes: int) -> Inspected:
    parquet, handle = open_parquet(planned.path)
    with handle:
        schema, metadata = parquet.schema_arrow, parquet.metadata
        planned = replace(planned, rows=metadata.num_rows, likely_rows=metadata.num_rows)
        fault = column_fault(schema, config)
        if fault is not None:
            return _faulty(planned, item, FileFaultError("wrong_columns", fault))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        shapes = [(group.num_rows, max(0, group.total_byte_size)) for group in groups]
    return (
        planned,
        [replace(item, start=a, end=b, first_row=row, rows=rows) for a, b, row, rows in _spans(shapes, item_bytes)],
        schema,
    )


def _spans(shapes: list[tuple[int, int]], item_bytes: int) -> Iterable[tuple[int, int, int, int]]:
    """Yield (first group, end, first row, rows) of runs of row groups of about so many bytes, given (rows, bytes)."""
    start = first_row = rows = size = 0
    for index, (group_rows, group_bytes) in enumerate(shapes):
        if index > start and size + group_bytes > item_bytes:
            yield start, index, first_row, rows
            start, first_row, rows, size = index, first_row + rows, 0, 0
        rows += group_rows
        size += group_bytes
    yield start, len(shapes), first_row, rows


def _limited(items: list[Item], limit: int) -> list[Item]:
    """Return the items that hold the first ``limit`` records, at least one item, the last one cut."""
    chosen: list[Item] = []
    left = limit
    for item in items:
        if not left and chosen:
            break
        count = count_records(item, left)
        chosen.append(replace(item, limit=left) if count >= left else item)
        left -= count
    return chosen


def count_records(item: Item, stop: int) -> int:
    """Return the records of an item, undecodable ones included; at most ``stop``, where counting ends.

    Raises ThresherError where the file cannot be read at the moment.
    """
    if item.format == "fault" or not stop:
        return 0
    if item.rows is not None:
        return min(item.rows, stop)
    if item.format == "text":
        return 1
    count = 0
    try:
        for _ in record_lines(replace(item, limit=stop)):
            count += 1
    except FileFaultError:
        pass  # reading reports it; the records before it count
    except UnreadableError as error:
        raise cannot_be_read(item.file, error.error) from error
    return count
