"""Small corpora and runs for the tests of the whole tool."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import yaml

from corpus.canonical import canonical_hash
from pipelines.cli import main
from reports.manifest import to_json

STAGES = [
    {"language": {"keep": ["en"], "minimum_score": 0.5}},
    {"gopher_quality": {"minimum_words": 20}},
    "exact_duplicates",
]
# What stages need that have no default for it.
NEEDED: dict[str, dict[str, Any]] = {
    "classifier": {"model": "model.ftz", "label": "good"},
    "column": {"column": "quality"},
    "contamination": {"suites": ["suites/*.yaml"]},
    "datatrove": {"filter": "C4ParagraphFilter"},
    "judge": {"base_url": "http://localhost:8000/v1", "model": "m"},
    "python": {"function": "json:loads"},
    "reward_model": {"model": "vicuna-minilm"},
    "tokens": {"tokenizer": "tokenizer.json"},
}
ENGLISH = (
    "the river and its old bridge have been there for as long as people remember that it was built with stone to carry "
    "carts of grain from the mill in the valley to the market of the town before winter makes roads hard"
).split()
GERMAN = (
    "der Fluss und die alte Brücke sind schon so lange da wie die Menschen sich erinnern weil sie aus Stein gebaut "
    "wurde damit die Wagen mit dem Korn aus der Mühle im Tal zum Markt der Stadt fahren konnten"
).split()


def documents(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return documents in two languages, some short, some repeated, some empty, from five sources."""
    choose = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        words = choose.choices(GERMAN if choose.random() < 0.2 else ENGLISH, k=choose.choice([8, 60, 90]))
        text = "" if choose.random() < 0.02 else " ".join(words) + "."
        if rows and choose.random() < 0.2:
            text = choose.choice(rows)["text"]
        rows.append(
            {
                "id": f"doc-{number % 9973}",
                "text": text,
                "source": choose.choice(["web", "books", "news", None, "wiki"]),
                "quality": choose.random(),
                "tags": ["a"] * choose.randrange(3),
            }
        )
    return rows


def write_corpus(folder: Path, count: int = 1200) -> list[str]:
    """Write documents as two Parquet files and one JSONL file with some bad lines; returns the input entries."""
    rows = documents(count)
    third = count // 3
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows[:third]), folder / "a.parquet", row_group_size=100)
    pq.write_table(pa.Table.from_pylist(rows[third : 2 * third]), folder / "b.parquet", row_group_size=150)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows[2 * third :]]
    lines[5:5] = ["{broken", '{"id": "x", "text": null}', "[]"]
    (folder / "c.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{folder}/*.parquet", f"{folder}/*.jsonl"]


def write_config(path: Path, files: list[str], output: Path, stages: list[Any], **settings: Any) -> Path:
    """Write a config; ``settings`` with a dot-free name go to the input section, batch sizes to the top."""
    top = {name: settings.pop(name) for name in list(settings) if name.startswith(("batch_", "target_"))}
    config = {"input": {"files": files, **settings}, "output": str(output), "stages": stages, **top}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    return path


def run(config: Path, *options: str) -> int:
    """Run a config in this process with one worker, unless the options say otherwise; returns the exit code."""
    workers = [] if any("workers" in option for option in options) else ["--direct_num_workers=1"]
    return main(["run", str(config), *workers, *options])


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return all rows of one of a run's tables."""
    return pyarrow.dataset.dataset(folder / name, format="parquet").to_table().to_pylist()


def report(folder: Path) -> Any:
    """Return ``report.json`` of a run."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a changed manifest of a run with the hash that fits it, as somebody would who wants to hide the change."""
    rest = {name: value for name, value in manifest.items() if name != "manifest_hash"}
    (folder / "manifest.json").write_bytes(to_json({**rest, "manifest_hash": canonical_hash(rest)}))
