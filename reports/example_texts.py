"""Find the texts of records for the HTML report: in staging, with what stages found in them, or in curated.

Texts are shown as they enter the stage that is spoken of, with what it found marked. Private data never gets here: what
a stage replaced is replaced, whichever stage of the run does it; what the stage ``pii`` lists or drops records for is
blacked out; and a record that a ``pii`` stage of a later pass never saw is not shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.columns import output_names
from corpus.findings import EDITING, concat_findings
from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.planning_types import InputPlan, Item
from corpus.stages import RecordStage
from corpus.staging import read_findings, read_marks, read_records, staged_chunks
from corpus.verdicts import ALIVE
from filters.pii import Pii
from reports.fates import StageInfo
from reports.segments import Excerpt, Mark, Segment, excerpt, parts_between
from reports.signal_rows import stream

KEPT_CHARACTERS = 20_000

_SHOWN = ("stage", "field", "row", "start", "end", "action", "replacement")

Texts = dict[str, Excerpt]
"""What is kept of each text field of a record: the part around the first mark, or the beginning."""

BLACK = "██████"

CLEANED = "The text is not in the run folder any more: staging was removed."
UNSEEN = "The text is not shown: it left before the stage pii looked for private data in it."
REMOTE = "Texts are not fetched from an object store; copy the run folder to a disk to see them."
NOT_FOUND = "The text was not found in the run folder."
OVER_SIZE = "The text is over input.max_record_bytes and was not stored."


@dataclass(frozen=True)
class Wanted:
    """A record, by file and position, and the stage that is spoken of."""

    file: str
    position: int
    stage: str


class StagedTexts:
    """Looks up records in staging.

    Args:
        folder: the run folder.
        plan: the plan of its input.
        infos: all stages.
        fields: the text fields of a record.
    """

    def __init__(self, folder: Folder, plan: InputPlan, infos: Sequence[StageInfo], fields: Sequence[str]) -> None:
        self._folder = folder
        self._fields = list(fields)
        self._infos = list(infos)
        self._items: dict[str, list[Item]] = {}
        for item in plan.items:
            self._items.setdefault(item.file, []).append(item)
        self._private_passes = sorted({info.pass_number for info in infos if isinstance(info.stage, Pii)})
        self._private_stages = {info.name for info in infos if isinstance(info.stage, Pii)}
        self._finding_passes = sorted(
            {info.pass_number for info in infos if isinstance(info.stage, RecordStage) and info.stage.finds}
        )
        self._chunks = lru_cache(maxsize=None)(lambda item: staged_chunks(folder, item))
        self._positions = lru_cache(maxsize=1 << 10)(self._read_positions)
        self._records = lru_cache(maxsize=2)(self._read_records)
        self._all_findings = lru_cache(maxsize=1)(self._read_findings)
        self._marks = lru_cache(maxsize=4)(lambda number, key: read_marks(folder, number, key))

    def look_up(self, wanted: Iterable[Wanted]) -> dict[Wanted, Texts | str]:
        """Return the texts of records as they enter a stage, or why they are not shown; each batch is read once."""
        places = [(self._place(one.file, one.position), one) for one in dict.fromkeys(wanted)]
        found: dict[Wanted, Texts | str] = {one: NOT_FOUND for place, one in places if place is None}
        known = [(place, one) for place, one in places if place is not None]
        for place, one in sorted(known, key=lambda pair: (pair[0], pair[1].stage)):
            found[one] = self._texts(place, one.stage)
        return found

    def _place(self, file: str, position: int) -> tuple[int, bool, int] | None:
        """Return (batch key, whether it is its item's last, row) of a record; None where it is not there."""
        item = self._item(file, position)
        chunks = list(self._chunks(item.index) or []) if item else []
        while chunks:
            middle = len(chunks) // 2
            key, last = chunks[middle]
            positions = self._positions(key, last)
            if not len(positions):
                # A batch of dead letters only says nothing about where to go on.
                del chunks[middle]
            elif position < positions[0]:
                del chunks[middle:]
            elif position > positions[-1]:
                del chunks[: middle + 1]
            else:
                row = int(np.searchsorted(positions, position))
                return (key, last, row) if positions[row] == position else None
        return None

    def _texts(self, place: tuple[int, bool, int], stage: str) -> Texts | str:
        key, last, row = place
        for number in self._private_passes:
            if not self._marks(number, key).column(ALIVE)[row].as_py():
                return UNSEEN
        records = self._records(key, last)
        found: dict[str, list[Segment]] = {}
        for field in self._fields:
            text = records.column(field)[row].as_py()
            if text is None:
                return OVER_SIZE
            found[field] = [Segment(text, None, len(text))]
        self._mark_findings(found, key, row, stage)
        return {field: excerpt(segments, KEPT_CHARACTERS) for field, segments in found.items()}

    def _mark_findings(self, found: dict[str, list[Segment]], key: int, row: int, stage: str) -> None:
        names = [info.name for info in self._infos]
        here = names.index(stage)
        findings = self._findings(key, row)
        for number, name in enumerate(names):
            for field in found:
                of_stage = [finding for finding in findings if (finding["stage"], finding["field"]) == (name, field)]
                found[field] = self._changed(found[field], of_stage, number - here)

    def _changed(self, segments: list[Segment], findings: Sequence[Mapping[str, Any]], distance: int) -> list[Segment]:
        """Return a text with what one stage found in it.

        Args:
            segments: the text as it enters that stage.
            findings: those of the stage.
            distance: how far behind the stage spoken of that stage stands.
        """
        # What is only found may lie across what is edited, and leaves the places of edits as they are.
        for editing in (False, True):
            of_kind = [finding for finding in findings if (finding["action"] in EDITING) == editing]
            segments = self._with_spans(segments, of_kind, distance)
        return segments

    def _with_spans(
        self, segments: list[Segment], findings: Sequence[Mapping[str, Any]], distance: int
    ) -> list[Segment]:
        spans: list[tuple[int, int, Mapping[str, Any]]] = []
        done = 0
        for finding in sorted(findings, key=lambda finding: (finding["start"], finding["end"])):
            # What is only found may overlap: a part that was marked is not marked again.
            start, end = max(finding["start"], done), finding["end"]
            if start < end or start == finding["start"]:
                spans.append((start, end, finding))
                done = end
        parts = parts_between(segments, [place for start, end, _ in spans for place in (start, end)])
        changed = parts[0]
        for number, (start, end, finding) in enumerate(spans):
            changed += self._shown(parts[2 * number + 1], finding, end - start, distance)
            changed += parts[2 * number + 2]
        return changed

    def _shown(self, inside: list[Segment], finding: Mapping[str, Any], length: int, distance: int) -> list[Segment]:
        """Return what is shown in the place of a finding; ``inside`` is what stands there."""
        here = distance == 0
        if finding["action"] == "redact":
            text = finding["replacement"] or ""
            return [Segment(text, "replaced" if here else None, len(text))]
        if finding["stage"] in self._private_stages:
            return [Segment(BLACK, "found" if here else None, length)]
        if finding["action"] == "cut":
            if distance < 0:
                return []
            mark: Mark | None = "cut" if here else None
            if self._private_stages and any(segment.text.strip() for segment in inside):
                # A stage behind did not look for private data in what is cut here.
                return [Segment(f"[{length:,} characters cut]", "removed", 0)]
            return [Segment(segment.text, mark, 0) for segment in inside]
        return [replace(segment, mark="found") for segment in inside] if here else inside

    def _findings(self, key: int, row: int) -> list[dict[str, Any]]:
        findings = self._all_findings(key)
        return findings.filter(pc.equal(findings.column("row"), row)).to_pylist()  # type: ignore[no-any-return]

    def _read_findings(self, key: int) -> pa.RecordBatch:
        return concat_findings(
            [read_findings(self._folder, number, key, columns=_SHOWN) for number in self._finding_passes]
        )

    def _item(self, file: str, position: int) -> Item | None:
        items = self._items.get(file, [])
        starts = [item.first_row if item.rows is not None else item.start for item in items]
        place = bisect_right(starts, position) - 1
        return items[max(place, 0)] if items else None

    def _read_positions(self, key: int, last: bool) -> npt.NDArray[np.int64]:
        positions: npt.NDArray[np.int64] = read_records(self._folder, key, last, ["position"]).column(0).to_numpy()
        return positions

    def _read_records(self, key: int, last: bool) -> pa.RecordBatch:
        return read_records(self._folder, key, last, self._fields)


def curated_texts(
    folder: Folder, names: Sequence[str], ids: Collection[str], config: InputConfig, added: Collection[str]
) -> dict[str, Texts]:
    """Return the texts of kept records, as they were written, by id; without those whose id stands more than once.

    Args:
        names: the curated files.
        ids: the record ids that are wanted.
        config: the input section; the messages of a chat are not taken apart.
        added: columns that the stages added to the curated records.
    """
    if config.messages_column is not None or not ids:
        return {}
    columns = output_names(config.text_columns, {"record_id", "content_hash", *added})
    wanted = pa.array(sorted(ids), pa.string())
    found: dict[str, Texts] = {}
    repeated: set[str] = set()
    for batch in stream(folder, names, [*columns.values(), "record_id"]):
        for row in batch.filter(pc.is_in(batch["record_id"], value_set=wanted)).to_pylist():
            repeated |= {row["record_id"]} & found.keys()
            pairs = zip(config.fields, columns.values(), strict=True)
            texts = {field: [Segment.of(row[column])] for field, column in pairs}
            found[row["record_id"]] = {field: excerpt(text, KEPT_CHARACTERS) for field, text in texts.items()}
    return {name: texts for name, texts in found.items() if name not in repeated}
