"""Corpora and configs that hold every stage between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from corpus.stages import Stage, StageConfig, known_stages
from tests.pipelines.corpora import STAGES, documents, write_config

# What a stage does by default is nothing, or needs a column of the input.
SETTINGS: dict[str, dict[str, Any]] = {
    "badwords": {"words": {"en": "words.txt"}, "keep_fraction": 0.5},
    "c4_quality": {"minimum_sentences": 1},
    "column": {"column": "quality", "keep": {"best_fraction": 0.9, "per": "language"}},
    "contamination": {"suites": ["suite.yaml"], "boilerplate": 3},
    "length": {"minimum_words": 5, "maximum_lines": 50},
    "license": {"column": "license", "deny": ["GPL-3.0-only"], "missing": "keep"},
    "urls": {"words": "words.txt"},
}
WORDS = "carts\nKorn\n"
SUITE = "benchmarks: [{name: quiz, files: items.jsonl, id: id, question: question}]\n"
FILES = ("words.txt", "suite.yaml")
AGAIN = {"gopher_quality": {"name": "again", "minimum_words": 30}}
# At both ends of the documents' stages, and among those of the pairs.
WRITTEN_OUT = ("language", "gopher_quality", "exact_duplicates")

Entry = str | dict[str, Any]


def other_stages(kind: str) -> list[tuple[str, StageConfig, type[Stage]]]:
    """Return the registered stages of a kind that are not written out here and whose settings can be known.

    A later stage joins by existing, unless it has a setting without a default, such as the path of a model.
    """
    found = []
    for name, stage in known_stages().items():
        if name in WRITTEN_OUT:
            continue
        try:
            config = stage.Config.model_validate_json(json.dumps(SETTINGS.get(name, {})))
        except ValidationError:
            continue
        if stage.variant(config).kind == kind:
            found.append((name, config, stage.variant(config)))
    return found


def entries(kind: str) -> list[Entry]:
    """Return these stages as a config lists them, with the settings above or their defaults."""
    return [{name: SETTINGS[name]} if name in SETTINGS else name for name, _, _ in other_stages(kind)]


def without_rules(kind: str) -> list[Entry]:
    """Return these stages as a config lists them, with every rule off that can be: they measure, and drop nothing."""
    found: list[Entry] = []
    for name, config, stage in other_stages(kind):
        settings = dict(SETTINGS.get(name, {}))
        for rule in stage(config, name, "response").rules():
            changed = {**settings, rule.name: "off"}
            try:
                stage.Config.model_validate_json(json.dumps(changed))
            except ValidationError:
                continue
            settings = changed
        found.append({name: settings})
    return found


def document_config(folder: Path, files: list[str], output: Path, stages: Iterable[Entry] = ()) -> Path:
    """Write a config with a corpus stage between record stages: two passes, and more with more stages.

    Args:
        folder: where the config goes.
        stages: more of them, behind the first corpus stage.
    """
    _write_files(folder)
    return write_config(
        folder / "documents.yaml", files, output, [*STAGES, *_absolute(stages, folder), AGAIN],
        id_column="id", source_column="source", batch_rows=100,
    )  # fmt: skip


def pair_config(folder: Path, output: Path, stages: Iterable[Entry] = ()) -> Path:
    """Write pairs and their config; ``stages`` are more of them, behind the first corpus stage."""
    _write_files(folder)
    rows: list[dict[str, Any]] = [
        {
            "prompt": f"What about {row['id']}?",
            "response": row["text"],
            "license": ["MIT", "GPL-3.0-only", None][number % 3],
            "url": f"https://example.org/{number}",
        }
        for number, row in enumerate(documents(900, seed=1))
    ]
    rows[5]["response"] = None
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet", row_group_size=200)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::2]))
    files = [str(folder / "pairs.parquet"), str(folder / "pairs.jsonl")]
    first: list[Entry] = [{"exact_duplicates": {"field": "prompt"}}, "language", "gopher_quality"]
    return write_config(
        folder / "pairs.yaml", files, output, [*first, *_absolute(stages, folder)],
        prompt_column="prompt", response_column="response", batch_rows=150,
    )  # fmt: skip


def _write_files(folder: Path) -> None:
    """Write words, and a benchmark of which some items are in the documents."""
    (folder / "words.txt").write_text(WORDS, encoding="utf-8")
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    texts = [row["text"] for row in documents(1800) if len(row["text"].split()) > 50]
    items = [{"id": str(number), "question": " ".join(texts[7 * number].split()[:30])} for number in range(20)]
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")


def _absolute(stages: Iterable[Entry], folder: Path) -> list[Entry]:
    """Return the stages with their files below the folder."""

    def resolved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: resolved(each) for key, each in value.items()}
        if isinstance(value, list):
            return [resolved(each) for each in value]
        return str(folder / value) if value in FILES else value

    return [resolved(stage) for stage in stages]
