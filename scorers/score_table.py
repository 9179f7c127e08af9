"""The score table: scores of earlier runs, found by what a score depends on and the hash of the texts scored.

A table is a folder with one folder per identity of a scorer: ``IDENTITY/identity.json`` says what it stands for, and
``IDENTITY/*.parquet`` have the scores. These files are only added, each under a name that follows from its content, so
any number of processes may write at the same time, and what is written twice is the same file. Results that arrive one
by one and must not be lost are in a journal (``scorers.score_journal``) until their batch is complete.

A process holds the scores of one identity in memory, about 25 bytes each and those of further signals.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.errors import ThresherError
from corpus.filesystem import locate
from corpus.folder import Folder
from corpus.hashing import content_hash, content_hashes
from corpus.stages import Signal
from corpus.verdicts import SIGNAL_TYPES
from scorers.score_journal import ScoreJournal, is_journal, read_journal
from scorers.scoring import Pairs, Scores, identity_digest

KEY, VALUE, WHY = "key", "score", "reason"
Part = tuple[npt.NDArray[np.int64], Scores]
"""Results for some of the records that are scored: their places, and what was found."""


_shared_lock = threading.Lock()
_shared: WeakValueDictionary[tuple[str, str, str], ScoreTable] = WeakValueDictionary()


def default_folder() -> str:
    """Return the folder where scores are kept where the settings name none."""
    from platformdirs import user_cache_path

    return str(user_cache_path("thresher") / "scores")


def text_keys(pairs: Pairs) -> pa.FixedSizeBinaryArray:
    """Return the hash of the texts of each record, 16 bytes; a null prompt counts as an empty one."""
    fields = [pairs.responses] if pairs.prompts is None else [pairs.prompts, pairs.responses]
    return content_hashes([pc.fill_null(field, "") for field in fields])


def _key_bytes(keys: pa.Array) -> npt.NDArray[np.bytes_]:
    """Return keys of 16 bytes as NumPy compares them fastest."""
    none: npt.NDArray[np.bytes_] = np.zeros(0, "S16")
    return np.frombuffer(keys.buffers()[1], none.dtype, len(keys), 16 * keys.offset) if len(keys) else none


@dataclass(frozen=True)
class SortedScores:
    """Rows of a score table, each key once.

    Attributes:
        keys: of the n rows, ascending.
        rows: the rows in their order, in one chunk.
    """

    keys: npt.NDArray[np.bytes_]
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(rows: pa.Table) -> SortedScores:
        """Return rows in order; of those with one key the first. Any would do, but it is to be the same each time."""
        keys, places = np.unique(_key_bytes(rows.column(KEY).combine_chunks()), return_index=True)
        return SortedScores(keys, rows.take(pa.array(places)).combine_chunks())

    def places(self, keys: npt.NDArray[np.bytes_]) -> npt.NDArray[np.int64]:
        """Return in which row each key is, -1 for a key that is in none."""
        if not len(self):
            return np.full(len(keys), -1)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(self.keys[places] == keys, places, -1)


def find_scores(runs: Sequence[SortedScores], keys: pa.FixedSizeBinaryArray) -> pa.Table:
    """Return the row of each key, all null where there is none; the time hardly depends on the number of rows."""
    wanted = _key_bytes(keys)
    order = np.full(len(wanted), -1)
    parts, taken = [runs[0].rows.slice(0, 0)], 0
    for run in runs:
        places = run.places(wanted)
        found = np.flatnonzero((places >= 0) & (order < 0))
        order[found] = np.arange(taken, taken + len(found))
        parts.append(run.rows.take(pa.array(places[found])))
        taken += len(found)
    return pa.concat_tables(parts).combine_chunks().take(pa.array(order, mask=order < 0))


def merge_runs(runs: tuple[SortedScores, ...]) -> tuple[SortedScores, ...]:
    """Return the same rows in few runs, each more than twice as long as the next: so a row is merged a few times."""
    while len(runs) > 1 and len(runs[-2]) <= 2 * len(runs[-1]):
        runs = (*runs[:-2], SortedScores.of(pa.concat_tables([runs[-2].rows, runs[-1].rows])))
    return runs


class ScoreTable:
    """The scores of one identity.

    Args:
        folder: the folder of the identity.
        more: further signals that a record has beside its score.
    """

    def __init__(self, folder: Folder, more: Sequence[Signal]) -> None:
        self.folder = folder
        self.schema = pa.schema(
            [(KEY, pa.binary(16)), (VALUE, pa.float64()), (WHY, pa.string())]
            + [(signal.name, SIGNAL_TYPES[signal.kind]) for signal in more]
        )
        self._lock = threading.Lock()
        self._runs: tuple[SortedScores, ...] = (SortedScores.of(self._read()),)

    @staticmethod
    def open(folder: str | None, identity: Mapping[str, Any], more: Sequence[Signal]) -> ScoreTable:
        """Return the scores of an identity. Raises ThresherError where a file of the table cannot be read."""
        root = Folder(locate(folder or default_folder()))
        name = identity_digest(identity)
        if not root.exists(f"{name}/identity.json"):
            root.write_bytes(f"{name}/identity.json", json.dumps(identity, sort_keys=True, indent=1).encode())
        return ScoreTable(Folder(root.path(name)), more)

    @staticmethod
    def shared(run: str, folder: str | None, identity: Mapping[str, Any], more: Sequence[Signal]) -> ScoreTable:
        """Return the scores of an identity, the same object for all stages of a process that serve one run.

        What one of them found, the others have. Without a name of the run it is one of its own.
        """
        place = (run, folder or default_folder(), identity_digest(identity))
        with _shared_lock:
            table = _shared.get(place) if run else None
            if table is None:
                table = ScoreTable.open(folder, identity, more)
                if run:
                    _shared[place] = table
            return table

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def scores(self, pairs: Pairs, score: Callable[[Pairs], Scores]) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return the scores of some records, and which of them were in the table.

        Args:
            pairs: m records.
            score: scores those that are not; equal ones once. What lasts of it is added to the table.
        """

        def at_once(missing: Pairs) -> Iterator[Part]:
            yield np.arange(len(missing)), score(missing)

        return self.arriving_scores(pairs, at_once)

    def arriving_scores(
        self, pairs: Pairs, score: Callable[[Pairs], Iterator[Part]], at_risk: int = 0
    ) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return the scores of some records, and which of them were in the table.

        Args:
            pairs: m records.
            score: scores those that are not; equal ones once. What lasts of it is added to the table.
            at_risk: how many results may be lost if this process is killed; 0 for all of them. On an object store it
                is this many beside those that have not arrived.
        """
        keys = text_keys(pairs)
        distinct = pc.unique(keys)
        # Other threads may add to the table at any time.
        known = self._runs
        missing = distinct.filter(find_scores(known, distinct).column(KEY).combine_chunks().is_null())
        if len(missing):
            scored = self._scored(pairs.take(pc.index_in(missing, keys)), missing, score, at_risk)
            known = (*known, SortedScores.of(pa.concat_tables([self.schema.empty_table(), *scored])))
        reused = pc.is_in(keys, missing)
        taken = find_scores(known, keys)
        more = {name: taken.column(name).combine_chunks() for name in self.schema.names[3:]}
        values = taken.column(VALUE).combine_chunks().fill_null(np.nan).to_numpy(zero_copy_only=False)
        return Scores(values, taken.column(WHY).to_pylist(), more), ~np.asarray(reused.to_numpy(zero_copy_only=False))

    def _scored(
        self, pairs: Pairs, keys: pa.Array, score: Callable[[Pairs], Iterator[Part]], at_risk: int
    ) -> list[pa.Table]:
        tables, lasting = [], [self.schema.empty_table()]
        with ScoreJournal(self.folder, KEY, at_risk) as journal:
            try:
                for rows, scores in score(pairs):
                    table = self.rows(keys.take(pa.array(rows)), scores)
                    tables.append(table)
                    lasting.append(table if scores.lasting is None else table.filter(pa.array(scores.lasting)))
                    if at_risk and lasting[-1].num_rows:
                        journal.add(lasting[-1])
            finally:
                # Also where the scorer gives up: what was paid for is there when it is tried again.
                self.add(pa.concat_tables(lasting))
                journal.remove()
        return tables

    def rows(self, keys: pa.Array, scores: Scores) -> pa.Table:
        """Return results as rows of the table."""
        columns = {
            KEY: keys,
            VALUE: pa.array(scores.values, mask=~np.isfinite(scores.values)),
            WHY: pa.array(scores.reasons, pa.string()),
            **scores.more,
        }
        return pa.table({name: columns[name] for name in self.schema.names}, schema=self.schema)

    def add(self, rows: pa.Table) -> None:
        """Add rows to the table, on disk and in memory."""
        if not rows.num_rows:
            return
        rows = rows.sort_by(KEY).combine_chunks()
        name = content_hash([b"".join(rows.column(KEY).to_pylist())]).hex()
        with self.folder.writing(f"{name}.parquet") as file:
            pq.write_table(rows, file, compression="zstd", use_dictionary=False)
        with self._lock:
            self._runs = merge_runs((*self._runs, SortedScores.of(rows)))

    def _read(self) -> pa.Table:
        # A journal that goes in between has become a Parquet file by then, so these are listed later.
        journals = [self._read_file(name) for name in self.folder.names() if is_journal(name)]
        finished = [
            self._read_file(name)
            for name in self.folder.names()
            if name.endswith(".parquet") and "/" not in name and not name.startswith(".")
        ]
        return pa.concat_tables([self.schema.empty_table(), *finished, *journals])

    def _read_file(self, name: str) -> pa.Table:
        try:
            if is_journal(name):
                return read_journal(self.folder, name, self.schema, KEY)
            with self.folder.open_arrow(name) as source:
                return pq.read_table(source, use_threads=False).select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise ThresherError(
                f"{self.folder.path(name)}: no file of a score table ({error}); remove it, and its scores are computed "
                "again"
            ) from error
