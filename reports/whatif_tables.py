"""What a finished run has stored of its records: signals, a row group at a time, and where each record left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.errors import UsageError
from corpus.folder import Folder
from reports.fates import StageInfo
from reports.manifest import FORMAT_VERSION, MANIFEST_NAME
from reports.tables import STAGE_ERROR
from reports.verify import read_json

STATE_NAME = "staging/state.json"
KEPT = -1
DEAD = 63
"""In the place of a rule: the stage could not judge the record."""
ALL = slice(None)

Codes = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


def open_manifest(folder: Folder) -> dict[str, Any]:
    """Return the manifest of a finished run that this version can read.

    Raises UsageError for a run that is unfinished, damaged or of another format, and for what is no run.
    """
    if not folder.exists(MANIFEST_NAME) and folder.exists(STATE_NAME):
        raise UsageError(f"{folder.root}: the run is not finished; run its config again, and it goes on")
    manifest = read_json(folder, MANIFEST_NAME)
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise UsageError(
            f"{folder.root}: the run has format {version} (Thresher {manifest.get('thresher_version')}), and this "
            f"version reads format {FORMAT_VERSION}; use the Thresher that ran it"
        )
    if "outputs" not in manifest or "config" not in manifest:
        raise UsageError(f"{folder.path(MANIFEST_NAME)}: damaged; run again with --overwrite")
    return manifest


def part_names(manifest: Mapping[str, Any], table: str) -> list[str]:
    """Return the files of one of a run's tables, in order."""
    return sorted(entry["file"] for entry in manifest["outputs"] if entry["file"].startswith(f"{table}/"))


@contextmanager
def parquet_file(folder: Folder, name: str, dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open one of a run's Parquet files. Raises UsageError where it is missing or damaged."""
    try:
        with folder.open_arrow(name) as source, pq.ParquetFile(source, read_dictionary=list(dictionary)) as file:
            yield file
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        line = str(error).splitlines()[0]
        raise UsageError(
            f"{folder.path(name)}: missing or damaged ({line}); see thresher verify, or run again with --overwrite"
        ) from None


@dataclass(frozen=True)
class RowGroup:
    """A row group of the signals: file, number in it, and the records that it has among all."""

    file: str
    number: int
    start: int
    stop: int


class StoredSignals:
    """The signals of a run, read as they are asked for.

    Attributes:
        folder: the run folder.
        groups: all row groups, in the order of the records.
        rows: number of records.
    """

    def __init__(self, folder: Folder, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.groups: list[RowGroup] = []
        self.schema = pa.schema([])
        start = 0
        for name in part_names(manifest, "signals"):
            with parquet_file(folder, name) as file:
                self.schema = file.schema_arrow
                for number in range(file.num_row_groups):
                    stop = start + file.metadata.row_group(number).num_rows
                    self.groups.append(RowGroup(name, number, start, stop))
                    start = stop
        self.rows = start

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        return frozenset(self.schema.names)

    def check(self, columns: Sequence[str]) -> None:
        """Raise UsageError for a signal that the run did not store."""
        for name in columns:
            if name not in self.columns:
                numbers = sorted(column for column in self.columns if "." in column)
                raise UsageError(
                    f"{self.folder.root}: the run has no signal {name}; there are {', '.join(numbers) or 'none'}"
                )

    def read(self, group: RowGroup, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return some columns of a row group. Raises UsageError for one that was not stored."""
        self.check(columns)
        with parquet_file(self.folder, group.file) as file:
            table = file.read_row_group(group.number, columns=list(columns), use_threads=True)
        return {name: _one(table[name]) for name in columns}

    def all(self, column: str) -> pa.Array:
        """Return a column of all records."""
        self.check([column])
        parts = [self.read(group, [column])[column] for group in self.groups]
        return pa.concat_arrays(parts) if parts else pa.array([], self.schema.field(column).type)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


@dataclass(frozen=True)
class StoredFates:
    """Where n records left, as ledger and dead letters say.

    Attributes:
        left_at: int8[n], the index of the stage, ``KEPT`` for a record that was kept.
        rules: int8[n], the rule that dropped it, or ``DEAD``; ``KEPT`` for a record that was kept.
    """

    left_at: Codes
    rules: Codes

    def reached(self, index: int, rows: slice = ALL) -> Mask:
        """Return which records entered a stage, of all or of some."""
        left_at = self.left_at[rows]
        reached: Mask = (left_at == KEPT) | (left_at >= index)
        return reached


def stored_fates(signals: StoredSignals, manifest: Mapping[str, Any], infos: Sequence[StageInfo]) -> StoredFates:
    """Return where each record left. Raises UsageError where the tables of the run do not fit each other."""
    left_at, rules = np.full(signals.rows, KEPT, np.int8), np.full(signals.rows, KEPT, np.int8)
    folder = signals.folder
    ledgers, letters = part_names(manifest, "ledger"), part_names(manifest, "dead_letters")
    files = part_names(manifest, "signals")
    if not len(files) == len(ledgers) == len(letters):
        raise UsageError(f"{folder.root}: its tables do not fit each other; see thresher verify")
    for name, ledger_name, letters_name in zip(files, ledgers, letters, strict=True):
        groups = [group for group in signals.groups if group.file == name]
        if not groups:
            continue
        with parquet_file(folder, name) as file:
            table = file.read(columns=["kept", "position"])
        gone = np.flatnonzero(~table["kept"].to_numpy())
        positions = table["position"].to_numpy()[gone]
        unjudged = _unjudged(folder, letters_name)
        dead = np.zeros(len(gone), np.bool_)
        if unjudged:
            dead = _dead_rows(folder, name, gone, positions, unjudged, infos, left_at, groups[0].start)
        with parquet_file(folder, ledger_name, ["stage", "rule"]) as file:
            ledger = file.read(columns=["position", "stage", "rule"])
        if not np.array_equal(ledger["position"].to_numpy(), positions[~dead]):
            raise UsageError(f"{folder.path(ledger_name)}: does not fit the signals; see thresher verify")
        stages, numbers = _codes(folder, ledger_name, ledger, infos)
        dropped = gone[~dead] + groups[0].start
        left_at[dropped], rules[dropped] = stages, numbers
        rules[gone[dead] + groups[0].start] = DEAD
    return StoredFates(left_at, rules)


def _unjudged(folder: Folder, name: str) -> dict[tuple[str, int], str]:
    """Return, by file and position, the stage that could not judge a record."""
    with parquet_file(folder, name, ["error"]) as file:
        found = file.read(columns=["file", "position", "error", "detail"])
    found = found.filter(pc.equal(found["error"].cast(pa.string()), STAGE_ERROR))
    return {(row["file"], row["position"]): str(row["detail"]).partition(":")[0] for row in found.to_pylist()}


def _dead_rows(
    folder: Folder,
    name: str,
    gone: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    unjudged: Mapping[tuple[str, int], str],
    infos: Sequence[StageInfo],
    left_at: Codes,
    start: int,
) -> Mask:
    """Return which of the records that are not kept are dead; notes the stages at which they left."""
    numbers = {info.name: index for index, info in enumerate(infos)}
    dead = np.zeros(len(gone), np.bool_)
    with parquet_file(folder, name, ["file"]) as file:
        files = file.read(columns=["file"])["file"]
    for place in np.flatnonzero(np.isin(positions, [position for _, position in unjudged])).tolist():
        stage = unjudged.get((files[int(gone[place])].as_py(), int(positions[place])))
        if stage is not None:
            dead[place] = True
            left_at[start + gone[place]] = numbers[stage]
    return dead


def _codes(folder: Folder, name: str, ledger: pa.Table, infos: Sequence[StageInfo]) -> tuple[Codes, Codes]:
    """Return stage and rule of each row of a ledger as numbers."""
    stages, rules = np.zeros(ledger.num_rows, np.int8), np.zeros(ledger.num_rows, np.int8)
    if not ledger.num_rows:
        return stages, rules
    encoded = [ledger[column].unify_dictionaries().combine_chunks() for column in ("stage", "rule")]
    names = [column.dictionary.to_pylist() for column in encoded]
    indices = [column.indices.to_numpy().astype(np.int64) for column in encoded]
    pairs = indices[0] * len(names[1]) + indices[1]
    for pair in np.unique(pairs).tolist():
        stage, rule = names[0][pair // len(names[1])], names[1][pair % len(names[1])]
        found = _rule_number(infos, stage, rule)
        if found is None:
            raise UsageError(
                f"{folder.path(name)}: the rule {stage}/{rule} is none of this version of Thresher; use the one that "
                "ran it"
            )
        stages[pairs == pair], rules[pairs == pair] = found
    return stages, rules


def _rule_number(infos: Sequence[StageInfo], stage: str, rule: str) -> tuple[int, int] | None:
    for index, info in enumerate(infos):
        if info.name == stage:
            named = [number for number, known in enumerate(info.rules) if known.named_by is not None]
            fixed = [number for number, known in enumerate(info.rules) if known.name == rule]
            numbers = fixed or named
            return (index, numbers[0]) if numbers else None
    return None
