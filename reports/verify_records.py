"""Check that each record of a finished run is in one place, and that the records which others gave way to were kept.

The tables of a run come in parts of a bounded number of rows, in the order of the input, and parts of one number hold
the same records. So one part of each table is in memory at a time (a few, from 256 parts on), whatever the number of
records; what the ledger says of records in other parts waits in temporary files.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.folder import Folder
from reports.tables import LATER, STAGE_ERROR

Integers = npt.NDArray[np.int64]
Place = tuple[int, int]

MAX_GROUPS = 256
KEPT = np.iinfo(np.int64).max

REFERENCE_SCHEMA = pa.schema(
    [
        ("file", pa.int64()),
        ("position", pa.int64()),
        ("record_id", pa.string()),
        ("stage", pa.int64()),
        ("later", pa.string()),
        ("named_by", pa.string()),
    ]
)


@dataclass(frozen=True)
class Records:
    """The decoded records of some parts, in the order of the input, and what became of them.

    Attributes:
        files, positions: place of each, files by their number.
        record_ids: of each.
        left_at: index of the stage where each left; ``KEPT`` where none.
    """

    files: Integers
    positions: Integers
    record_ids: pa.Array
    left_at: Integers


class RecordCheck:
    """Reads signals, ledger and dead letters of a run part by part.

    Args:
        stages: names of the stages in order.
        files: display paths of the input files in order.
        parts: names of the tables' parts in order, such as ``part-00000-of-00001.parquet``.
    """

    def __init__(self, folder: Folder, stages: Sequence[str], files: Sequence[str], parts: Sequence[str]) -> None:
        self._folder = folder
        self._stages = pa.array(stages, pa.string())
        self._files = pa.array(files, pa.string())
        size = -(-len(parts) // MAX_GROUPS) or 1
        self._groups = [parts[start : start + size] for start in range(0, len(parts), size)]
        self._starts: list[Place] = []
        self._end: Place = (-1, -1)

    def findings(self) -> Iterator[str]:
        """Yield one sentence per kind of fault and group of parts; nothing where all is well."""
        with tempfile.TemporaryDirectory(prefix="thresher-verify-") as folder:
            spilled = _Spilled(Path(folder), len(self._groups))
            # A group without decoded records begins where the next one does.
            firsts = [self._first_place(group) for group in self._groups]
            self._starts = list(accumulate(reversed(firsts), min))[::-1]
            with spilled:
                for group in self._groups:
                    yield from self._one_place(group, spilled)
            for number, group in enumerate(self._groups):
                references = spilled.read(number)
                if references.num_rows:
                    yield from self._kept_by_stage(group, references)

    def _table(self, name: str, columns: list[str]) -> pa.Table:
        with self._folder.open_arrow(name) as file:
            return pq.read_table(file, columns=columns)

    def _read(self, below: str, group: Sequence[str], columns: list[str]) -> pa.Table:
        return pa.concat_tables([self._table(f"{below}/{part}", columns) for part in group]).combine_chunks()

    def _first_place(self, group: Sequence[str]) -> Place:
        """Return the place of the first decoded record of a group; beyond all where it has none."""
        for part in group:
            with self._folder.open_arrow(f"signals/{part}") as file:
                for batch in pq.ParquetFile(file).iter_batches(batch_size=1, columns=["file", "position"]):
                    return int(self._codes(batch.column("file"))[0]), batch.column("position")[0].as_py()
        return KEPT, KEPT

    def _codes(self, names: pa.Array | pa.ChunkedArray) -> Integers:
        """Return the numbers of files, -1 for a name that is no input file."""
        return _integers(pc.fill_null(pc.index_in(names, value_set=self._files), -1))

    def _records(self, group: Sequence[str]) -> tuple[Records, pa.Table, pa.Table, list[str]]:
        """Return a group's decoded records, its ledger, its undecoded records, and what is wrong with them."""
        signals = self._read("signals", group, ["record_id", "file", "position", "kept"])
        ledger = self._read("ledger", group, ["record_id", "file", "position", "stage", "related_id", "detail"])
        dead = self._read("dead_letters", group, ["file", "position", "error", "detail"])
        dead = dead.filter(dead["position"].is_valid())
        by_stage = pc.equal(dead["error"], STAGE_ERROR)
        unjudged, undecoded = dead.filter(by_stage), dead.filter(pc.invert(by_stage))
        files, positions = self._codes(signals["file"]), _integers(signals["position"])
        left_at = np.full(len(files), KEPT, np.int64)
        findings = []
        # The detail of a record that a stage could not judge begins with the name of the stage.
        stages = pc.list_element(pc.split_pattern(unjudged["detail"], ": ", max_splits=1), 0)
        gone = pa.concat_tables(
            [
                ledger.select(["record_id", "file", "position", "stage"]),
                pa.table(
                    {
                        "record_id": pa.nulls(len(unjudged), pa.string()),
                        "file": unjudged["file"],
                        "position": unjudged["position"],
                        "stage": stages,
                    }
                ),
            ]
        )
        rows = find_places(files, positions, self._codes(gone["file"]), _integers(gone["position"]))
        if (rows < 0).any():
            findings.append(_say("no row in signals for", gone, rows < 0, "that the ledger or the dead letters name"))
        known = rows >= 0
        twice = np.zeros(len(rows), np.bool_)
        twice[known] = np.bincount(rows[known], minlength=len(files))[rows[known]] > 1
        if twice.any():
            findings.append(_say("more than once in ledger and dead letters:", gone, twice, ""))
        indexes = _integers(pc.fill_null(pc.index_in(gone["stage"], value_set=self._stages), -1))
        if (indexes < 0).any():
            findings.append(_say("no such stage in the report: that of", gone, indexes < 0, ""))
        left_at[rows[known]] = indexes[known]
        ids = signals["record_id"].combine_chunks()
        other = pc.not_equal(gone["record_id"], ids.take(pa.array(rows, mask=~known)))
        wrong = pc.fill_null(other, False).to_numpy()
        if wrong.any():
            findings.append(_say("another record_id in signals than in the ledger:", gone, wrong, ""))
        kept = signals["kept"].to_numpy()
        if (odd := kept & (left_at != KEPT)).any():
            findings.append(_say("kept, and in the ledger or the dead letters too:", signals, odd, ""))
        if (odd := ~kept & (left_at == KEPT)).any():
            findings.append(_say("not kept, and neither in the ledger nor in the dead letters:", signals, odd, ""))
        return Records(files, positions, ids, left_at), ledger, undecoded, findings

    def _one_place(self, group: Sequence[str], spilled: _Spilled) -> Iterator[str]:
        records, ledger, undecoded, findings = self._records(group)
        yield from findings
        codes, positions = self._codes(undecoded["file"]), _integers(undecoded["position"])
        files = np.concatenate([records.files, codes])
        all_positions = np.concatenate([records.positions, positions])
        order = np.lexsort((all_positions, files))
        files, all_positions = files[order], all_positions[order]
        same = (np.diff(files) == 0) & (np.diff(all_positions) == 0)
        if same.any():
            where = int(np.flatnonzero(same)[0])
            yield f"{_number(same)} places hold more than one record, first {self._name(files, all_positions, where)}"
        if (files < 0).any():
            yield f"{_number(files < 0)} records of files that the manifest does not list"
        if len(files):
            if (int(files[0]), int(all_positions[0])) <= self._end:
                yield f"{self._name(files, all_positions, 0)} comes again in {group[0]}"
            self._end = max(self._end, (int(files[-1]), int(all_positions[-1])))
        steps = np.diff(records.files)
        if ((steps < 0) | ((steps == 0) & (np.diff(records.positions) <= 0))).any():
            yield f"signals/{group[0]}: the records are not in the order of the input"
        self._spill(ledger.filter(ledger["related_id"].is_valid()), spilled)

    def _name(self, files: Integers, positions: Integers, row: int) -> str:
        return f"{self._files[int(files[row])]}#{positions[row]}" if files[row] >= 0 else f"?#{positions[row]}"

    def _spill(self, ledger: pa.Table, spilled: _Spilled) -> None:
        """Set aside what the ledger says of other records, by the group where these are."""
        if not ledger.num_rows:
            return
        details = [orjson.loads(detail) for detail in ledger["detail"].to_pylist()]
        codes = self._codes(pa.array([detail["file"] for detail in details], pa.string()))
        positions = np.array([detail["position"] for detail in details], np.int64)
        table = pa.Table.from_arrays(
            [
                pa.array(codes),
                pa.array(positions),
                ledger["related_id"],
                pa.array(_integers(pc.index_in(ledger["stage"], value_set=self._stages).fill_null(-1))),
                pa.array([detail.get(LATER) for detail in details], pa.string()),
                ledger["record_id"],
            ],
            schema=REFERENCE_SCHEMA,
        )
        groups = np.array(
            [_last_start(self._starts, place) for place in zip(codes.tolist(), positions.tolist(), strict=True)]
        )
        for number in np.unique(groups).tolist():
            spilled.write(number, table.filter(pa.array(groups == number)))

    def _kept_by_stage(self, group: Sequence[str], references: pa.Table) -> Iterator[str]:
        records, _, _, _ = self._records(group)
        rows = find_places(
            records.files, records.positions, _integers(references["file"]), _integers(references["position"])
        )
        known = rows >= 0
        if not known.all():
            yield _related(references, ~known, "is no decoded record")
        references, rows = references.filter(pa.array(known)), rows[known]
        other = pc.not_equal(references["record_id"], records.record_ids.take(pa.array(rows))).to_numpy()
        if other.any():
            yield _related(references, other, "has another id at the place that the ledger gives")
        left_at = records.left_at[rows]
        gone = left_at <= _integers(references["stage"])
        if gone.any():
            yield _related(references, gone, "was not kept by the stage that names it")
        names = self._stages.take(pa.array(np.where(left_at == KEPT, 0, left_at), mask=left_at == KEPT))
        told = pc.equal(pc.fill_null(references["later"], ""), pc.fill_null(names, ""))
        untold = ~told.to_numpy() & ~gone
        if untold.any():
            yield _related(references, untold, "left by another later stage than the ledger says, or stayed")


class _Spilled:
    """Rows set aside by number, each number in a file of its own; written while it is open, then read."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / f"{number}.arrow" for number in range(count)]
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Spilled:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, number: int, table: pa.Table) -> None:
        if number not in self._writers:
            writer = pa.ipc.new_stream(str(self._paths[number]), REFERENCE_SCHEMA)
            self._writers[number] = self._stack.enter_context(writer)
        self._writers[number].write_table(table)

    def read(self, number: int) -> pa.Table:
        if number not in self._writers:
            return REFERENCE_SCHEMA.empty_table()
        with pa.ipc.open_stream(str(self._paths[number])) as reader:
            return reader.read_all()


def find_places(files: Integers, positions: Integers, of_files: Integers, of_positions: Integers) -> Integers:
    """Return the row of each wanted place among places in ascending order, -1 where it is not among them."""
    rows = np.full(len(of_files), -1, np.int64)
    borders = (
        np.concatenate([[0], np.flatnonzero(np.diff(files)) + 1, [len(files)]]) if len(files) else np.zeros(1, int)
    )
    order = np.argsort(of_files, kind="stable")
    wanted = of_files[order]
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        first, last = np.searchsorted(wanted, files[start], "left"), np.searchsorted(wanted, files[start], "right")
        chosen = order[first:last]
        found = start + np.searchsorted(positions[start:end], of_positions[chosen])
        hit = found < end
        hit[hit] = positions[found[hit]] == of_positions[chosen][hit]
        rows[chosen[hit]] = found[hit]
    return rows


def _last_start(starts: Sequence[Place], place: Place) -> int:
    return max(bisect_right(starts, place) - 1, 0)


def _integers(values: pa.Array | pa.ChunkedArray) -> Integers:
    return np.asarray(values.to_numpy(), np.int64)


def _number(mask: npt.NDArray[np.bool_]) -> str:
    return f"{int(mask.sum()):,}"


def _say(what: str, table: pa.Table, mask: npt.NDArray[np.bool_], more: str) -> str:
    row = int(np.flatnonzero(mask)[0])
    place = f"{table['file'][row]}#{table['position'][row]}"
    return f"{what} {_number(mask)} records, first {place} {more}".rstrip()


def _related(references: pa.Table, mask: npt.NDArray[np.bool_], what: str) -> str:
    row = int(np.flatnonzero(mask)[0])
    named_by, related = references["named_by"][row].as_py(), references["record_id"][row].as_py()
    return f"related_id of {_number(mask)} ledger rows {what}, first {related}, named by {named_by}"
