"""Everything that a run knows about one record: signals, rules, verdict, duplicates, evidence, texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpus.errors import UsageError
from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.planning_types import InputPlan
from corpus.stages import Rule
from corpus.verdicts import rule_fails, thresholds
from reports.example_texts import CLEANED, StagedTexts, Texts, Wanted, curated_texts
from reports.explain_diff import side_by_side
from reports.explain_lookup import find_rows, nearest_ids
from reports.explain_terminal import terminal_text
from reports.fates import StageInfo
from reports.tables import STAGE_ERROR
from reports.whatif_tables import open_manifest, parquet_file, part_names

MOST_RECORDS = 20
MOST_MEMBERS = 20
RAW_SHOWN = 400
OF_RECORDS = ("ledger", "evidence", "clusters")


@dataclass(frozen=True)
class ExplainedRun:
    """What explaining needs of a finished run.

    Attributes:
        folder: the run folder.
        config: its input section.
        infos: its stages with the settings of the run, ``input`` first.
        plan: the plan of its input; None where staging was removed.
    """

    folder: Folder
    config: InputConfig
    infos: Sequence[StageInfo]
    plan: InputPlan | None


def explain(run: ExplainedRun, record_id: str) -> dict[str, Any]:
    """Return all that a run knows about the records of an id; several may share one.

    ``records`` has an entry for each of the first ``MOST_RECORDS``, ``more_records`` counts the others: where it comes
    from, its ``fate``, ``ledger`` row, ``stages`` with signals and rules, ``duplicates``, ``evidence``, ``texts`` by
    stage with the spans that it found, and ``comparison`` with the record that it is a duplicate of. ``dead_letters``
    has those of these records, and of an id ``file#position``.

    Raises:
        UsageError: the run cannot be read, or has no such record; the nearest ids are named then.
    """
    manifest = open_manifest(run.folder)
    names = {table: part_names(manifest, table) for table in ("signals", "ledger", "evidence", "clusters", "curated")}
    found = find_rows(run.folder, names["signals"], "record_id", record_id)
    rows = list(islice(found, MOST_RECORDS))
    more = sum(1 for _ in found)
    places = {(row["file"], row["position"]) for row in rows}
    file, _, position = record_id.rpartition("#")
    if file and position.isdecimal():
        places.add((file, int(position)))
    letters_names = part_names(manifest, "dead_letters")
    letters = list(_dead_letters(run.folder, letters_names, places))
    if not rows and not letters:
        near = nearest_ids(run.folder, names["signals"], record_id)
        hint = f"; the nearest ids are {', '.join(map(_quoted, near))}" if near else "; the run has no records"
        if letters_names:
            hint += "; a dead letter is asked for by its place, FILE#POSITION, as dead_letters/ has it"
        raise UsageError(f"{run.folder.root}: no record has the id {_quoted(record_id)}{hint}")
    tables = {table: [] if not rows else _own(run.folder, names[table], record_id, places) for table in OF_RECORDS}
    records = [_record(run, names, row, tables, letters) for row in rows]
    _add_texts(run, names["curated"], records)
    shown = [_letter(letter) for letter in letters]
    return {"record_id": record_id, "records": records, "more_records": more, "dead_letters": shown}


def _quoted(name: str) -> str:
    return f"'{terminal_text(name)}'"


def _own(folder: Folder, names: Sequence[str], record_id: str, places: set[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the rows of some of the records of an id."""
    found = find_rows(folder, names, "record_id", record_id, {position for _, position in places})
    return [row for row in found if (row["file"], row["position"]) in places]


def _of(rows: Iterable[Mapping[str, Any]], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a record among those of its id."""
    return [dict(row) for row in rows if (row["file"], row["position"]) == (record["file"], record["position"])]


def _record(
    run: ExplainedRun,
    names: Mapping[str, Sequence[str]],
    row: Mapping[str, Any],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    letters: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    ledger = next(iter(_of(tables["ledger"], row)), None)
    if ledger is not None:
        ledger["detail"] = None if ledger["detail"] is None else json.loads(ledger["detail"])
    unjudged = [letter for letter in _of(letters, row) if letter["error"] == STAGE_ERROR]
    left = ledger["stage"] if ledger else str(unjudged[0]["detail"]).partition(":")[0] if unjudged else None
    fate = "kept" if row["kept"] else "dropped" if ledger else "dead"
    return {
        **{name: row[name] for name in ("record_id", "source", "file", "position")},
        "fate": fate,
        "left_at": left,
        "ledger": ledger,
        "stages": _stages(run.infos, row, left, ledger),
        "duplicates": [_cluster(run, names["clusters"], member) for member in _of(tables["clusters"], row)],
        "evidence": _of(tables["evidence"], row),
    }


def _stages(
    infos: Sequence[StageInfo], row: Mapping[str, Any], left: str | None, ledger: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    order = [info.name for info in infos]
    last = order.index(left) if left is not None else len(order)
    stages = []
    for index, info in enumerate(infos):
        prefix = f"{info.name}."
        signals = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
        state = "passed" if index < last else "left" if index == last else "not reached"
        languages = info.stage.language_column if info.stage is not None else None
        label = None if languages is None else row[languages]
        rules = [
            _rule(rule, signals, label, state, ledger if index == last else None)
            for rule in info.rules
        ]  # fmt: skip
        stages.append({"name": info.name, "state": state, "signals": signals, "rules": rules})
    return stages


def _rule(
    rule: Rule, signals: Mapping[str, Any], label: str | None, state: str, ledger: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a rule with the value and the threshold of a record; ``meets`` is None where that is not known."""
    value = signals.get(rule.signal)
    languages = pa.array([label], pa.string())
    threshold = thresholds(rule, languages)
    limit = threshold.as_py() if isinstance(threshold, pa.Scalar) else threshold[0].as_py()
    if rule.limited_by is not None:
        limit = signals.get(rule.limited_by)
    meets: bool | None
    if rule.test == "decided":
        meets = None if state == "not reached" else not (ledger is not None and ledger["rule"] == rule.name)
    elif state == "not reached" and all(other is None for other in signals.values()):
        meets = None
    else:
        kind = pa.string() if rule.test == "one_of" or isinstance(value, str) else pa.float64()
        fails = bool(rule_fails(rule, pa.array([value], kind), languages)[0])
        # What was not measured fails no limit, and meets none.
        meets = None if value is None and not fails and rule.test in ("at_least", "at_most") else not fails
    found = {"name": rule.name, "signal": rule.signal, "test": rule.test, "value": value, "threshold": limit}
    return found | ({"values": list(rule.values)} if rule.test == "one_of" else {}) | {"meets": meets}


def _cluster(run: ExplainedRun, names: Sequence[str], member: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a record in a cluster, and the other members, the leader first."""
    shown = ("record_id", "file", "position", "role", "jaccard")
    leader, count = None, 0
    members: list[dict[str, Any]] = []
    for row in find_rows(run.folder, names, "cluster_id", member["cluster_id"]):
        if row["stage"] != member["stage"]:
            continue
        count += 1
        other = {name: row[name] for name in shown}
        if row["role"] == "leader":
            leader = other
        elif len(members) < MOST_MEMBERS and (row["file"], row["position"]) != (member["file"], member["position"]):
            members.append(other)
    if leader is not None and member["role"] != "leader":
        members.insert(0, leader)
    return {
        **{name: member[name] for name in ("stage", "cluster_id", "role", "jaccard")},
        "leader": leader,
        "members": members,
        "cluster_size": count,
    }


def _dead_letters(folder: Folder, names: Sequence[str], places: set[tuple[str, int]]) -> Iterable[dict[str, Any]]:
    for name in names:
        with parquet_file(folder, name) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["position"])
                own = pc.is_in(table["position"], value_set=pa.array([place for _, place in places], pa.int64()))
                if pc.any(own).as_py():
                    found = file.read_row_group(group).filter(own).to_pylist()
                    yield from (row for row in found if (row["file"], row["position"]) in places)


def _letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter with the beginning of its bytes as text."""
    raw = letter["raw"] or b""
    return {**letter, "raw": raw[:RAW_SHOWN].decode("utf-8", "backslashreplace"), "raw_bytes": len(raw)}


def _add_texts(run: ExplainedRun, curated: Sequence[str], records: Sequence[dict[str, Any]]) -> None:
    """Add the texts as they entered the stages that say something about them, and the comparison of a duplicate."""
    wanted: list[list[Wanted]] = []
    pairs: list[tuple[str, Mapping[str, Any]] | None] = []
    last = run.infos[-1].name
    for record in records:
        stages = dict.fromkeys(row["stage"] for row in record["evidence"])
        stages[record["left_at"] or last] = None
        wanted.append([Wanted(record["file"], record["position"], stage) for stage in stages])
        pairs.append(_leader_of(run, record))
    others = [
        Wanted(entry[1]["file"], entry[1]["position"], entry[0]) for entry in pairs if entry is not None
    ]  # fmt: skip
    own = [
        Wanted(record["file"], record["position"], entry[0])
        for record, entry in zip(records, pairs, strict=True)
        if entry is not None
    ]
    found = _texts(run, curated, records, [*(one for group in wanted for one in group), *own, *others])
    for record, group, entry in zip(records, wanted, pairs, strict=True):
        record["texts"] = [{"stage": one.stage, **_shown(found[one])} for one in group]
        if entry is not None:
            stage, leader = entry
            left = found[Wanted(record["file"], record["position"], stage)]
            right = found[Wanted(leader["file"], leader["position"], stage)]
            record["comparison"] = {"stage": stage, "with": dict(leader), **_compared(left, right)}


def _leader_of(run: ExplainedRun, record: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the stage and the record that a record is a duplicate of: of the stage where it left, else the last."""
    ledger = record["ledger"]
    copies = [entry for entry in record["duplicates"] if entry["role"] != "leader" and entry["leader"] is not None]
    here = [entry for entry in copies if ledger is not None and entry["stage"] == ledger["stage"]]
    for entry in [*here, *reversed(copies)]:
        return entry["stage"], {**entry["leader"], "jaccard": entry["jaccard"]}
    return None


def _texts(
    run: ExplainedRun, curated: Sequence[str], records: Sequence[Mapping[str, Any]], wanted: Sequence[Wanted]
) -> dict[Wanted, Texts | str]:
    if run.plan is not None:
        return StagedTexts(run.folder, run.plan, run.infos, run.config.fields).look_up(wanted)
    kept = {(record["file"], record["position"]): record["record_id"] for record in records if record["fate"] == "kept"}
    for record in records:
        for entry in record["duplicates"]:
            if entry["leader"] is not None:
                leader = entry["leader"]
                kept.setdefault((leader["file"], leader["position"]), leader["record_id"])
    added = {name for info in run.infos if info.stage is not None for name in info.stage.curated_columns()}
    found = curated_texts(run.folder, curated, set(kept.values()), run.config, added)
    return {one: found.get(kept.get((one.file, one.position), ""), CLEANED) for one in wanted}


def _shown(texts: Texts | str) -> dict[str, Any]:
    if isinstance(texts, str):
        return {"missing": texts}
    return {
        "fields": {
            name: {
                "text": part.text,
                "marks": [[segment.text, segment.mark] for segment in part.segments],
                "before": part.before,
                "after": part.after,
            }
            for name, part in texts.items()
        }
    }


def _compared(left: Texts | str, right: Texts | str) -> dict[str, Any]:
    if isinstance(left, str) or isinstance(right, str):
        return {"missing": left if isinstance(left, str) else right}
    return {
        "fields": {
            name: {
                "text": left[name].text,
                "other": right[name].text,
                "rows": side_by_side(left[name].text, right[name].text),
            }
            for name in left
        }
    }
