"""What presets do otherwise than datatrove-0.10: records with another verdict, reason or text, by difference.

    python -m benchmarks.presets [--corpus FOLDER] [--json FILE]

Records are the documents of the sample corpus, or of the Parquet files below ``--corpus`` with a column ``text``. Each
difference is one that the docstring of its stage states. It changes a record alone if datatrove-0.10 with this one
difference already gives it another fate; what no difference changes alone needs several.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers import sample_documents
from corpus.punctuation import TERMINAL_PUNCTUATION
from corpus.stages import TextBatch, known_stages
from corpus.text import lines, words
from corpus.unicode_tables import LINE_BREAK, WHITE_SPACE, code_points, members
from corpus.verdicts import failures, first_rule

OURS, THEIRS = "thresher-1", "datatrove-0.10"
BATCH_ROWS = 8192

Counts = Mapping[str, npt.NDArray[np.int64]]

# The counts of gopher_repetition that a difference is about.
REPETITION = {
    "lines and paragraphs": (
        *("lines", "duplicate_lines", "duplicate_line_characters"),
        *("paragraphs", "duplicate_paragraphs", "duplicate_paragraph_characters"),
    ),
    "characters of words only": ("characters",),
    "most frequent run": tuple(f"top_{size}_gram_characters" for size in (2, 3, 4)),
    "longer runs": tuple(f"duplicate_{size}_gram_characters" for size in range(5, 11)),
}
FINEWEB = ("line ends", "white space", "characters of lines only")
# Fields of ``filters.c4_rules.Reading``.
C4 = {
    "end marks and closing brackets": ("end_marks", "closing"),
    "words of scripts without spaces": ("scripts",),
    "citation marks": ("tidy_citations", "words_before_citations"),
    "all that drops a text is counted": ("first_found",),
}


def fineweb_counts(text: str, differences: Iterable[str]) -> dict[str, int]:
    """Return what ``fineweb_quality`` counts in a text: as datatrove-0.10, but for some of the differences."""
    chosen = set(differences)
    white = members(WHITE_SPACE)
    if "line ends" in chosen:
        split = lines(text)
        newlines = sum(text.replace("\r\n", "\n").count(character) for character in members(LINE_BREAK))
    else:
        split = text.split("\n")
        newlines = text.count("\n")
    filled = [line for line in split if line.strip(white)]
    if "white space" in chosen:
        filled = [line.strip(white) for line in filled]
    terminal = set(map(chr, code_points(TERMINAL_PUNCTUATION).tolist()))
    seen: set[str] = set()
    repeated = 0
    for line in filled:
        repeated += len(line) if line in seen else 0
        seen.add(line)
    own = "characters of lines only" in chosen
    return {
        "words": len(words(text)),
        "lines": len(filled),
        "punctuated_lines": sum(line[-1] in terminal for line in filled),
        "short_lines": sum(len(line) <= 30 for line in filled),
        "duplicate_line_characters": repeated,
        "characters": sum(map(len, filled)) if own else len(text) - newlines,
        "newlines": newlines,
    }


def made(kind: str, preset: str) -> Any:
    """Return a prepared stage with the defaults of a preset."""
    cls: Any = known_stages()[kind]
    stage = cls(cls.Config(preset=preset), kind, "text")
    stage.prepare()
    return stage


def reasons(stage: Any, signals: Mapping[str, pa.Array]) -> list[str | None]:
    """Return the first rule that each text does not meet, None where it stays."""
    rules = [rule for rule in stage.rules() if rule.signal in signals]
    names = [rule.name for rule in rules]
    return [None if first < 0 else names[first] for first in first_rule(failures(rules, signals)).tolist()]


class CountingPresets:
    """Both presets of a stage that counts, and what lies between them."""

    def __init__(self, kind: str, between: Mapping[str, Callable[[Counts, Counts, Sequence[str]], Counts]]) -> None:
        """Take the differences: functions of their counts, our counts, and the texts."""
        self._between = between
        self._ours, self._theirs = made(kind, OURS), made(kind, THEIRS)

    def fates(self, texts: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """Return the reasons by our preset and by theirs."""
        batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
        return reasons(self._ours, self._ours.measure(batch)), reasons(self._theirs, self._theirs.measure(batch))

    def alone(self, texts: Sequence[str]) -> dict[str, list[Any]]:
        """Return by difference the reasons by their preset with this one difference."""
        batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
        theirs, ours = self._theirs.count(batch), self._ours.count(batch)
        found = {}
        for difference, mixed in self._between.items():
            stage = made(self._theirs.name, THEIRS)
            counts = mixed(theirs, ours, texts)
            stage.count = lambda _, counts=counts: counts
            found[difference] = reasons(stage, stage.measure(batch))
        return found


class C4Presets:
    """datatrove's preset of ``c4_quality`` and another; a fate is the reason, or else the text left."""

    def __init__(self, preset: str, between: Mapping[str, Sequence[str]]) -> None:
        """Take the other preset, and the fields of its reading that make up each difference."""
        self._between = between
        self._ours, self._theirs = made("c4_quality", preset), made("c4_quality", THEIRS)

    def _fates(self, batch: TextBatch, stage: Any, rules: Any) -> list[Any]:
        from corpus.findings import apply_edits
        from filters.c4 import SIGNALS
        from filters.c4_counts import read_batch

        counts, findings = read_batch(batch, rules, "cut")
        signals = {signal.name: pa.array(row) for signal, row in zip(SIGNALS, counts, strict=True)}
        left = apply_edits(batch.texts, findings).to_pylist()
        found = reasons(stage, signals)
        return [(text,) if reason is None else reason for reason, text in zip(found, left, strict=True)]

    def fates(self, texts: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """Return the fates by the other preset and by datatrove's."""
        from filters.c4_rules import line_rules

        batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
        ours, theirs = (self._fates(batch, stage, line_rules(stage.config)) for stage in (self._ours, self._theirs))
        return ours, theirs

    def alone(self, texts: Sequence[str]) -> dict[str, list[Any]]:
        """Return by difference the fates by datatrove's preset with this one difference."""
        from filters.c4_rules import line_rules

        batch = TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_))
        ours, theirs = line_rules(self._ours.config), line_rules(self._theirs.config)
        found = {}
        for difference, fields in self._between.items():
            reading = replace(theirs.reading, **{field: getattr(ours.reading, field) for field in fields})
            found[difference] = self._fates(batch, self._theirs, replace(theirs, reading=reading))
        return found


def families() -> dict[str, CountingPresets | C4Presets]:
    """Return the presets of each stage, with the differences between them."""

    def taken(names: Sequence[str]) -> Callable[[Counts, Counts, Sequence[str]], Counts]:
        return lambda theirs, ours, _: {**theirs, **{name: ours[name] for name in names}}

    def counted(difference: str) -> Callable[[Counts, Counts, Sequence[str]], Counts]:
        def mixed(theirs: Counts, ours: Counts, texts: Sequence[str]) -> Counts:
            rows = [fineweb_counts(text, [difference]) for text in texts]
            return {name: np.array([row[name] for row in rows], np.int64) for name in theirs}

        return mixed

    return {
        "gopher_quality": CountingPresets("gopher_quality", {"punctuation": lambda theirs, ours, _: ours}),
        "gopher_repetition": CountingPresets(
            "gopher_repetition", {difference: taken(names) for difference, names in REPETITION.items()}
        ),
        "fineweb_quality": CountingPresets(
            "fineweb_quality", {difference: counted(difference) for difference in FINEWEB}
        ),
        "c4_quality": C4Presets(OURS, C4),
        "c4_quality (paper)": C4Presets("paper", {}),
        "c4_quality (tfds)": C4Presets("tfds", {}),
    }


def is_dropped(fate: Any) -> bool:
    """Say whether a record leaves; what stays has no reason, or has a text."""
    return isinstance(fate, str)


def compared(batches: Iterable[Sequence[str]]) -> dict[str, Counter[str]]:
    """Return counts of records by stage: all, those that datatrove's preset drops, those that differ, and by what."""
    stages = families()
    found: dict[str, Counter[str]] = {stage: Counter() for stage in stages}
    for texts in batches:
        for name, presets in stages.items():
            counter = found[name]
            ours, theirs = presets.fates(texts)
            counter["records"] += len(texts)
            counter[f"dropped by {THEIRS}"] += sum(map(is_dropped, theirs))
            rows = [row for row, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
            for row in rows:
                one, other = is_dropped(ours[row]), is_dropped(theirs[row])
                if one != other:
                    counter["dropped there only" if other else "kept there only"] += 1
                else:
                    counter["another reason" if one else "another text left"] += 1
            explained: set[int] = set()
            alone = presets.alone([texts[row] for row in rows])
            for difference, fates in alone.items():
                changed = {row for row, fate in zip(rows, fates, strict=True) if fate != theirs[row]}
                counter[f"by {difference} alone"] += len(changed)
                explained |= changed
            if alone:
                counter["by several together"] += len(rows) - len(explained)
    return found


def read_texts(corpus: Path) -> Iterator[list[str]]:
    """Yield the texts of a folder of Parquet files, some thousands at a time."""
    files = sorted(corpus.glob("**/*.parquet"))
    if not files:
        sys.exit(f"{corpus}: no Parquet file in this folder")
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, columns=["text"]):
                yield batch.column("text").to_pylist()


def main() -> None:
    """Compare the presets and print the counts."""
    parser = argparse.ArgumentParser(description="Differences between the presets thresher-1 and datatrove-0.10.")
    parser.add_argument("--corpus", type=Path, help="folder of Parquet files with a column text")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="for the sample")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    corpus = arguments.corpus
    if corpus is None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        corpus = sample_documents(arguments.folder.absolute())
    found = compared(read_texts(corpus))
    for stage, counts in found.items():
        print(stage)
        for what, count in counts.items():
            print(f"  {count:10,}  {what}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
