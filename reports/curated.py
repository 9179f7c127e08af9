"""The curated records: the user's columns as they came, and what the run knows about each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.column_types import ColumnTypes
from corpus.columns import output_columns, output_names, output_schema
from corpus.hashing import column_hashes, curated_digest, hex_hashes
from corpus.inputs import InputConfig
from corpus.verdicts import SIGNAL_TYPES
from reports.counts import Counts, add
from reports.fates import Fates, StageInfo
from reports.mixture import LICENCE_COLUMNS

NONE = "none"
# Hash of the file and position of a cluster's leader: it changes with the names and shards of the input.
CLUSTER_ID = "cluster_id"
MIXTURE_COLUMNS = {"licence": LICENCE_COLUMNS}


@dataclass(frozen=True)
class CuratedLayout:
    """The columns of the curated files, in order.

    Attributes:
        config: the input section.
        types: merged types of the user's columns.
        signals: curated column -> (stage, signal) for the columns that stages add.
        names: the user's column -> its name in the curated files.
    """

    config: InputConfig
    types: ColumnTypes
    signals: Mapping[str, tuple[str, str]]
    names: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(config: InputConfig, types: ColumnTypes, infos: Sequence[StageInfo]) -> CuratedLayout:
        """Return the layout of a run."""
        types = types.with_declared(config.declared_columns)
        signals: dict[str, tuple[str, str]] = {}
        for info in infos[1:]:
            assert info.stage is not None
            signals.update({column: (info.name, signal) for column, signal in info.stage.curated_columns().items()})
        text_columns = () if config.messages_column is not None else config.text_columns
        users = [*text_columns, *(item.name for item in output_schema(types))]
        names = output_names(users, {"record_id", "content_hash", *signals})
        return CuratedLayout(config, types, signals, names)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The user's text columns that stand apart in the records; a chat keeps its texts in its messages."""
        return () if self.config.messages_column is not None else self.config.text_columns

    def schema(self, infos: Sequence[StageInfo]) -> pa.Schema:
        """Return the schema of every curated file."""
        stage_signals = {
            (info.name, signal.name): SIGNAL_TYPES[signal.kind]
            for info in infos[1:]
            if info.stage is not None
            for signal in info.stage.signals()
        }
        fields = [pa.field(self.names[name], pa.string()) for name in self.text_columns]
        fields.extend(item.with_name(self.names[item.name]) for item in output_schema(self.types))
        fields.extend([pa.field("record_id", pa.string()), pa.field("content_hash", pa.string())])
        fields.extend(pa.field(column, stage_signals[source]) for column, source in self.signals.items())
        return pa.schema(fields)


@dataclass
class CuratedStatistics:
    """Sums over the curated rows of a file."""

    digest: int = 0
    counts: Counts = field(default_factory=dict)

    def count(self, group: str, values: pa.Array) -> None:
        """Add the number of rows per value to a mixture."""
        for entry in values.value_counts().to_pylist():
            if entry["values"] is None:
                add(self.counts, {NONE: {group: entry["counts"]}})
            else:
                add(self.counts, {group: {entry["values"]: entry["counts"]}})


def curated_table(
    kept: pa.RecordBatch,
    rows: npt.NDArray[np.int64],
    fates: Fates,
    layout: CuratedLayout,
    schema: pa.Schema,
    statistics: CuratedStatistics,
) -> pa.Table:
    """Return the kept records of a batch as rows of the curated files, and add them to the statistics.

    Args:
        kept: the records that are kept, with all edits made.
        rows: their numbers in the batch.
        fates: of all records of the batch.
    """
    places = pa.array(rows)
    columns: list[pa.Array] = [kept.column(name) for name in layout.config.fields[: len(layout.text_columns)]]
    columns.extend(array for _, array in output_columns(kept, layout.types))
    columns.extend([kept.column("record_id"), hex_hashes(kept.column("content_hash"))])
    for stage, signal in layout.signals.values():
        values = fates.columns[f"{stage}.{signal}"]
        columns.append(values.take(places))
    table = pa.Table.from_arrays(
        [column.cast(item.type) for column, item in zip(columns, schema, strict=True)], schema=schema
    )
    statistics.digest = (statistics.digest + content_digest(kept, table, layout)) % (1 << 64)
    statistics.count("sources", kept.column("source"))
    if "language" in schema.names:
        statistics.count("languages", table.column("language"))
    for group, names in MIXTURE_COLUMNS.items():
        column = next((layout.names[name] for name in names if name in layout.names), None)
        if column is not None and pa.types.is_string(schema.field(column).type):
            statistics.count(group, table.column(column))
    return table


def content_digest(kept: pa.RecordBatch, table: pa.Table, layout: CuratedLayout) -> int:
    """Return the digest of the rows, whatever their order: names and values of all columns count.

    Texts count by their content hash. What derives from file and position does not count: a generated ``record_id`` and
    the ``cluster_id``.
    """
    texts = {layout.names[name] for name in layout.text_columns}
    carried = np.zeros(table.num_rows, np.uint64)
    for name in table.schema.names:
        if name in texts or name in ("content_hash", CLUSTER_ID):
            continue
        hashes = column_hashes(name, table.column(name).combine_chunks())
        if name == "record_id":
            hashes[kept.column("generated_id").to_numpy(zero_copy_only=False)] = 0
        carried += hashes
    return curated_digest(kept.column("content_hash"), carried)
