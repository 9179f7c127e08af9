"""Schema'd rows as records that stages can judge, and what was found on them as rows again; nothing here runs Beam.

A row is a tuple of values in the order of the collection's fields. What becomes of it is a tuple, too, in the order of
``RowLayout.kept_fields`` or ``RowLayout.dropped_fields``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import xxhash

from corpus.batch import INPUT_STAGE, DocumentBatch, split_chunk_key
from corpus.columns import output_names
from corpus.inputs import InputConfig
from corpus.planning_types import Item
from corpus.readers.chat import json_type
from corpus.readers.faults import RecordFaultError
from corpus.readers.records import RecordBuilder, check_name
from corpus.stages import RecordStage, Stage
from corpus.staging import empty_dead
from corpus.verdicts import ALIVE, UNJUDGED, failures_column, related_columns, signal_column
from dedup.duplicates import DuplicateStage
from reports.fates import Fates, StageInfo, stage_infos
from reports.tables import STAGE_ERROR, ledger_table

Values = tuple[Any, ...]
Mask = npt.NDArray[np.bool_]

LEDGER_FIELDS: dict[str, type] = {
    "stage": str,
    "rule": str,
    "value": float,
    "threshold": float,
    "related_id": str,
    "detail": str,
}
"""Fields that a row has when it leaves, behind those of one that stays; all may be null."""

SIGNAL_PYTHON_TYPES: dict[str, type] = {"int64": int, "float64": float, "string": str}

_JSON_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS

ROWS_FILE = "rows"
"""The file of a record, in hashes that are made of file and position."""

# Rows are no items of a plan; the builder of records asks for one.
_ROWS = Item(0, ROWS_FILE, "", "jsonl", None, 0, 0, 0, None, None, None, None)


def field_name(column: str) -> str:
    """Return the field of a row that holds a signal; ``column`` is its name in marks, ``<stage>.<signal>``."""
    return column.replace(".", "_")


@dataclass(frozen=True)
class RowLayout:
    """Which fields rows have when they come, when they stay and when they leave.

    Attributes:
        fields: names of the fields that come, in order.
        input: the columns of text, id and source among them.
        stage: the stage that judges the rows.
        read: fields that the stage's settings name; its records carry them.
    """

    fields: tuple[str, ...]
    input: InputConfig
    stage: Stage
    read: tuple[str, ...]

    @property
    def record_stage(self) -> RecordStage:
        """The stage, which is a record stage."""
        assert isinstance(self.stage, RecordStage)
        return self.stage

    @property
    def duplicate_stage(self) -> DuplicateStage:
        """The stage, which is a duplicate stage."""
        assert isinstance(self.stage, DuplicateStage)
        return self.stage

    @cached_property
    def signal_fields(self) -> dict[str, type]:
        """Names and Python types of the fields that the stage adds; all may be null."""
        return {
            field_name(signal_column(self.stage.name, signal.name)): SIGNAL_PYTHON_TYPES[signal.kind]
            for signal in self.stage.signals()
        }

    @cached_property
    def kept_fields(self) -> tuple[str, ...]:
        """Fields of a row that stays: those that came, ``input_`` before a name that is taken, then the signals."""
        return (*output_names(self.fields, self.signal_fields).values(), *self.signal_fields)

    @cached_property
    def dropped_fields(self) -> tuple[str, ...]:
        """Fields of a row that leaves: those of one that stays, then ``LEDGER_FIELDS``."""
        return (*output_names(self.kept_fields, LEDGER_FIELDS).values(), *LEDGER_FIELDS)

    @cached_property
    def infos(self) -> list[StageInfo]:
        """The input's rules and the stage, as the ledger sees them."""
        return stage_infos([(1, [self.stage])], self.input)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.fields)}

    def place(self, field: str) -> int:
        """Return the place of a field among those that come."""
        return self._places[field]


@dataclass(frozen=True)
class RowBatch:
    """Rows with those of them that are records.

    Attributes:
        rows: all n rows.
        batch: the records among them, in order.
        numbers: number of the row of each record.
        faults: why each other row is no record.
    """

    rows: Sequence[Values]
    batch: DocumentBatch
    numbers: Sequence[int]
    faults: Mapping[int, RecordFaultError]


def canonical(value: Any) -> bytes:
    """Return the JSON text of a value of a row, the same for equal values; what JSON has no type for is text."""
    try:
        return orjson.dumps(value, default=_plain, option=_JSON_OPTIONS)
    except orjson.JSONEncodeError:  # an integer beyond 64 bits, or text that is not Unicode
        return json.dumps(value, default=_plain, sort_keys=True).encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def row_digest(layout: RowLayout, row: Values) -> bytes:
    """Return a hash of a row, 16 bytes.

    It goes by the names of the fields: the order of those that Beam's MapToFields gives differs between processes.
    """
    return xxhash.xxh3_128_digest(canonical(dict(zip(layout.fields, row, strict=True))))


def read_rows(layout: RowLayout, rows: Sequence[Values], key: int = 0) -> RowBatch:
    """Return rows as records.

    A record's id is the value of the id column, else the hash of the row; its position follows from that, too.

    Args:
        key: of the batch.
    """
    builder = RecordBuilder(_ROWS, layout.input, has_json=True)
    numbers: list[int] = []
    faults: dict[int, RecordFaultError] = {}
    for number, row in enumerate(rows):
        fault = _add_record(builder, layout, row)
        if fault is None:
            numbers.append(number)
        else:
            faults[number] = fault
    records = builder.take().records
    alive = records.column("input_failures").to_numpy() == 0
    marks: dict[str, pa.Array] = {ALIVE: pa.array(alive)}
    for column in layout.stage.signal_columns():
        place = layout.place(field_name(column))
        marks[column] = pa.array([rows[number][place] for number in numbers], from_pandas=True)
    item, chunk = split_chunk_key(key)
    batch = DocumentBatch(
        item=item,
        chunk=chunk,
        last=True,
        file=_ROWS.file,
        records=records,
        dead=empty_dead(),
        marks=pa.RecordBatch.from_pydict(marks),
    )
    return RowBatch(rows, batch, numbers, faults)


def _add_record(builder: RecordBuilder, layout: RowLayout, row: Values) -> RecordFaultError | None:
    """Add a row to the records, or return why it is none."""
    try:
        texts = [_text(row[layout.place(column)], column) for column in layout.input.text_columns]
        digest = row_digest(layout, row)
        given = _name(layout, row, "id", layout.input.id_column)
        source = _name(layout, row, "source", layout.input.source_column)
    except RecordFaultError as fault:
        return fault
    record_id = digest.hex() if given is None else given
    carried = canonical({name: row[layout.place(name)] for name in layout.read})
    builder.add(int.from_bytes(digest[:8], "little") >> 1, record_id, source, texts, carried)
    return None


def _name(layout: RowLayout, row: Values, label: str, column: str | None) -> str | None:
    """Return the id or source (``label``) that a column gives, None where it gives none."""
    given = None if column is None else row[layout.place(column)]
    name = given if given is None or isinstance(given, str) else canonical(given).decode()
    check_name(name, label, column)
    return name


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str):
        detail = f"{column} is {json_type(value)}; wanted is a string"
        raise RecordFaultError("null_text" if value is None else "wrong_type", detail)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RecordFaultError("invalid_unicode", f"{column} is no Unicode text ({error.reason})") from error
    return value


def judged_rows(layout: RowLayout, read: RowBatch, judged: DocumentBatch) -> Iterator[tuple[int, bool, Values]]:
    """Yield (number, whether it stays, values) for each of n rows, in order.

    Args:
        read: the rows with their records.
        judged: the records with what the stage found on them; edited texts come out of rows that stay.
    """
    marks = judged.marks
    names = [signal_column(layout.stage.name, signal.name) for signal in layout.stage.signals()]
    signals = list(zip(*(marks.column(name).to_pylist() for name in names), strict=True))
    no_signals = (None,) * len(names)
    left = _ledger(layout, read, judged)
    texts: list[tuple[int, list[str]]] = []
    if judged.edited is not None:
        for column, field in zip(layout.input.text_columns, layout.input.fields, strict=True):
            texts.append((layout.place(column), judged.edited.column(field).to_pylist()))
    records = {number: record for record, number in enumerate(read.numbers)}
    for number, row in enumerate(read.rows):
        record = records.get(number)
        found = no_signals if record is None or not names else signals[record]
        if number in left:
            yield number, False, (*row, *found, *left[number])
            continue
        if texts:
            assert record is not None
            values = list(row)
            for place, column_texts in texts:
                values[place] = column_texts[record]
            row = tuple(values)
        yield number, True, (*row, *found)


def _ledger(layout: RowLayout, read: RowBatch, judged: DocumentBatch) -> dict[int, Values]:
    """Return the values of ``LEDGER_FIELDS`` of each row that leaves, by its number.

    What would be a dead letter of a run has the name of the fault as its rule.
    """
    left: dict[int, Values] = {}
    for number, fault in read.faults.items():
        left[number] = (INPUT_STAGE, fault.error, None, None, None, _detail(fault.detail))
    columns = dict(zip(judged.marks.schema.names, judged.marks.columns, strict=True))
    by_input = read.batch.records.column("input_failures").to_numpy()
    by_stage = columns[failures_column(layout.stage.name)].to_numpy()
    left_at = np.where(by_input != 0, 0, np.where(by_stage != 0, 1, -1))
    fates = Fates(columns, (by_input, by_stage), left_at, dead=by_stage == UNJUDGED)
    errors = fates.error(layout.infos[1])
    for record in np.flatnonzero(fates.dead).tolist():
        error = "" if errors is None else errors[record].as_py()
        left[read.numbers[record]] = (layout.stage.name, STAGE_ERROR, None, None, None, _detail(error))
    ledger = ledger_table(judged.file, read.batch.records, fates, layout.infos, _no_leaders)
    related = related_columns(layout.stage.name)[0] in columns
    columns_left = [ledger.column(name).to_pylist() for name in LEDGER_FIELDS]
    for record, values in zip(np.flatnonzero(fates.dropped).tolist(), zip(*columns_left, strict=True), strict=True):
        # Where a leader stands (file and position, the detail in a run's ledger) rows do not say.
        left[read.numbers[record]] = (*values[:-1], None) if related else values
    return left


def _no_leaders(row_ids: Sequence[int]) -> list[tuple[str, str | None]]:
    return [("", None)] * len(row_ids)


def _detail(text: str) -> str:
    return canonical({"error": text}).decode()
