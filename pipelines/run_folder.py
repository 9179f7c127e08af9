"""What a run folder holds when a run starts: nothing, an unfinished run, a finished one, or something else."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from corpus.errors import ThresherError, UsageError
from corpus.folder import Folder
from corpus.planning_types import InputPlan
from corpus.readers import read_item
from corpus.version import VERSION
from pipelines.config import RunConfig
from pipelines.job import PLAN_NAME
from reports.manifest import CARD_NAME, CONFIG_NAME, MANIFEST_NAME, REPORT_NAME, RUN_NAME, UNLISTED
from reports.verify import read_json

STATE_NAME = "staging/state.json"
LOCK_NAME = "staging/lock"
PROFILE_FOLDER = "staging/profile"
PROBE_NAME = "staging/probe"
# Every file that a run writes and that its manifest may not list; nothing else is ever removed.
_OURS = re.compile(
    r"(curated|ledger|signals|evidence|clusters|dead_letters)/part-\d{5}-of-\d{5}\.parquet"
    r"|staging/(records|dead|marks-\d+|findings-\d+|done|repeated-ids|summaries)/[^/]+\.(arrow|json)"
    r"|staging/found/[^/]+\.bin"
    r"|staging/profile/[^/]+\.json"
    r"|staging/near-[a-z0-9_]+/((nodes|signatures|shingles|edges|pairs-\d+)/[^/]+\.(arrow|bin)|[a-z]+(-\d+)?\.json)"
    r"|staging/(plan\.json|state\.json|workers\.log)"
)
_FOLDERS = ("curated", "ledger", "signals", "evidence", "clusters", "dead_letters", "staging")
_HALF = re.compile(r"(.*/)?\.tmp-[0-9a-f]{16}-[^/]+")

State = Literal["new", "unfinished", "finished"]


def check_writable(root: str) -> None:
    """Raise UsageError if a run folder cannot be made or written; leaves nothing behind."""
    if "://" in root:
        _check_store(Folder(root))
        return
    path = Path(root)
    for parent in (path, *path.parents):
        if parent.exists():
            if not parent.is_dir():
                raise UsageError(f"output {root}: {parent} is a file; give a folder with output: or --output")
            if not os.access(parent, os.W_OK | os.X_OK):
                raise UsageError(f"output {root}: no permission to write in {parent}; give another --output")
            return


def check_apart(root: str, plan: InputPlan) -> None:
    """Raise UsageError if the output folder is among the input, where a run would read what it writes."""
    below = root.rstrip("/") + "/"
    inside = next((file.path for file in plan.files if file.path.startswith(below)), None)
    if inside is not None:
        raise UsageError(
            f"output {root}: the input file {inside} lies in it; give another --output, or other input.files"
        )


def _check_store(folder: Folder) -> None:
    """Write and remove an object: nothing else tells whether a store takes one, and why it does not."""
    try:
        with suppress(ThresherError):
            if folder.exists(MANIFEST_NAME):
                return
        folder.write_bytes(PROBE_NAME, b"")
    except ThresherError as error:
        raise UsageError(f"output {error}; or give another --output") from None
    with suppress(ThresherError):
        folder.remove(PROBE_NAME)


def file_states(plan: InputPlan) -> dict[str, list[Any]]:
    """Return size and modification time (or ETag) of each input file."""
    return {file.file: [file.size, file.modified] for file in plan.files}


def inspect(folder: Folder, config: RunConfig, semantic: Mapping[str, Any], plan: InputPlan) -> State:
    """Return what the folder holds. Raises UsageError, naming the differences, if it belongs to something else."""
    if folder.exists(MANIFEST_NAME):
        _compare(folder, read_json(folder, MANIFEST_NAME)["config"], semantic, "finished")
        _compare_inputs(folder, config, plan)
        return "finished"
    if folder.exists(STATE_NAME):
        state = read_json(folder, STATE_NAME)
        now = {"version": VERSION, "config": semantic}
        _compare(folder, {"version": state["version"], "config": state["config"]}, now, "unfinished")
        changed = _changed_files(state["files"], file_states(plan))
        if not changed and folder.read_bytes(PLAN_NAME).decode() != plan.to_json():
            changed = ["what can be read of some files"]
        if changed:
            raise UsageError(
                f"output {folder.root}: an unfinished run over other input: {', '.join(changed[:5])} changed since it "
                "began; give another --output, or --overwrite to begin anew"
            )
        return "unfinished"
    check_is_run(folder)
    return "new"


def check_is_run(folder: Folder) -> None:
    """Raise UsageError if the folder holds files but no run; a run that ended before it began counts as nothing."""
    if folder.exists(MANIFEST_NAME) or folder.exists(STATE_NAME):
        return
    begun = {LOCK_NAME, PLAN_NAME}
    others = [name for name in folder.names() if name not in begun and not _is_half(name)] if folder.exists() else []
    if others:
        raise UsageError(
            f"output {folder.root}: the folder is not empty and holds no run ({others[0]}); give another --output "
            "(--overwrite removes only runs)"
        )


def _compare(folder: Folder, found: Mapping[str, Any], wanted: Mapping[str, Any], kind: str) -> None:
    differences = sorted(_differences(json.loads(json.dumps(found)), json.loads(json.dumps(wanted)), ""))
    if differences:
        listed = "\n  ".join(differences[:20])
        raise UsageError(
            f"output {folder.root}: it holds the {kind} run of another config or input:\n  {listed}\n"
            "give another --output, or --overwrite to replace it"
        )


def _differences(found: Any, wanted: Any, path: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in found.keys() | wanted.keys():
            yield from _differences(found.get(key), wanted.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(left, right, f"{path}[{index}]")
    elif found != wanted:
        yield f"{path}: {_short(found)} there, {_short(wanted)} now"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:99] + "…"


def _changed_files(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))


def _compare_inputs(folder: Folder, config: RunConfig, plan: InputPlan) -> None:
    """Raise UsageError if the inputs of a finished run changed; where size or time differ, the row digests decide."""
    run = read_json(folder, RUN_NAME) if folder.exists(RUN_NAME) else {}
    changed = _changed_files(run.get("files", {}), file_states(plan))
    if not changed:
        return
    manifest = read_json(folder, MANIFEST_NAME)
    digests = {entry["file"]: int(entry["digest"], 16) for entry in manifest["inputs"]}
    found = dict.fromkeys(changed, 0)
    for item in plan.items:
        if item.file in found:
            for batch in read_item(item, config.input, config.batch_rows, config.batch_bytes):
                found[item.file] += sum(batch.records.column("row_digest").to_pylist())
    other = [file for file in changed if found[file] % (1 << 64) != digests.get(file)]
    if other:
        raise UsageError(
            f"output {folder.root}: it holds a finished run over other input: the records of {', '.join(other[:5])} "
            "differ; give another --output, or --overwrite to replace it"
        )


def remove_run(folder: Folder) -> None:
    """Remove a run, finished or not, and nothing else; call it with the folder locked."""
    listed = {MANIFEST_NAME, REPORT_NAME, CONFIG_NAME, CARD_NAME, RUN_NAME, *UNLISTED}
    if folder.exists(MANIFEST_NAME):
        listed.update(entry["file"] for entry in read_json(folder, MANIFEST_NAME)["outputs"])
    # A removal that is interrupted leaves a folder that still counts as that of a run.
    folder.write_bytes(STATE_NAME, json.dumps({"version": "being removed", "config": {}, "files": {}}).encode())
    folder.remove(MANIFEST_NAME)
    for name in folder.names():
        if name != STATE_NAME and (name in listed or _OURS.fullmatch(name) or _is_half(name)):
            folder.remove(name)
    folder.remove(STATE_NAME)
    _remove_empty(folder)


def remove_staging(folder: Folder) -> None:
    """Remove what a run has in staging, and nothing else."""
    for name in folder.names("staging"):
        if name == LOCK_NAME or _OURS.fullmatch(name) or _is_half(name):
            folder.remove(name)
    _remove_empty(folder)


def _remove_empty(folder: Folder) -> None:
    for name in _FOLDERS:
        folder.remove_empty_folders(name)


def _is_half(name: str) -> bool:
    found = _HALF.fullmatch(name)
    return found is not None and (name.count("/") == 0 or name.split("/", 1)[0] in _FOLDERS)


def remove_half_files(folder: Folder) -> None:
    """Remove what killed processes were writing; call it with the folder locked."""
    for name in folder.names():
        if _is_half(name):
            folder.remove(name)


def tidy(folder: Folder) -> None:
    """Make an unfinished run ready to go on: half files and what is counted anew go; call it with the folder locked."""
    remove_half_files(folder)
    for name in (*folder.names("staging/repeated-ids"), *folder.names(PROFILE_FOLDER)):
        folder.remove(name)


def begin(folder: Folder, semantic: Mapping[str, Any], plan: InputPlan) -> None:
    """Write plan and state of a new run. Raises UsageError where the folder cannot be written."""
    try:
        folder.write_bytes(PLAN_NAME, plan.to_json().encode())
        state = {"version": VERSION, "config": semantic, "files": file_states(plan)}
        folder.write_bytes(STATE_NAME, json.dumps(state).encode())
    except (OSError, ThresherError) as error:
        raise UsageError(f"output {folder.root}: {error}; or give another --output") from None


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Hold the folder for one run; the operating system lets go when the process ends, however it ends."""
    if not folder.is_local:
        yield
        return
    import fcntl

    path = Path(folder.path(LOCK_NAME))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UsageError(f"output {folder.root}: {error.strerror or error}; give another --output") from None
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ThresherError(f"output {folder.root}: another run works on it ({file.read().strip()})") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
