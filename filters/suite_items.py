"""Items of benchmarks, made of the rows of their files by the fields that a suite declares."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.config_problems import nearest
from corpus.errors import UsageError
from filters.suite_config import Benchmark, BenchmarkConfig, ItemFile
from filters.suite_rows import Row, read_rows

BLANK = "_"
MISSING = object()
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class BenchmarkItem:
    """An item of a benchmark.

    Attributes:
        benchmark: name of its benchmark.
        id: distinct within the benchmark.
        questions: texts of the question, as it is and as multiple choice makes it.
        answer: text of the answer, empty without one.
        choices: texts of all choices.
        context: what the question is about, empty without one.
    """

    benchmark: str
    id: str
    questions: tuple[str, ...]
    answer: str = ""
    choices: tuple[str, ...] = ()
    context: str = ""


def read_items(benchmark: Benchmark, files: Sequence[tuple[str, Path]]) -> Iterator[BenchmarkItem]:
    """Yield the items of a benchmark.

    Args:
        benchmark: what its fields mean.
        files: (name, path) of each file; generated ids are ``name#row``, or the row's number where there is one file.

    Raises:
        UsageError: a file, a row or a field cannot be used, or two items have one id; the message names suite, line,
            file and row.
    """
    first_rows: dict[str, str] = {}
    for name, path in files:
        file = ItemFile(benchmark, name, path)
        for number, row in read_rows(file):
            item = _item(ItemRow(file, number, row), str(number) if len(files) == 1 else f"{name}#{number}")
            if item.id in first_rows:
                raise file.problem(
                    f"the id {item.id} is that of {first_rows[item.id]} too; name a field with distinct ids, or leave "
                    "id out",
                    number,
                    "id",
                )
            first_rows[item.id] = f"{name}, row {number}"
            yield item


@dataclass(frozen=True)
class ItemRow:
    """A row of a file with items."""

    file: ItemFile
    number: int
    fields: Row

    def problem(self, setting: str, what: str) -> UsageError:
        """Return an error about the field that a setting names."""
        return self.file.problem(what, self.number, setting)

    def value(self, name: str, setting: str) -> Any:
        """Return the value of a field. Raises UsageError naming the fields that exist."""
        value: Any = self.fields.get(name, MISSING)
        if value is MISSING and "." in name:
            value = self.fields
            for part in name.split("."):
                value = value.get(part, MISSING) if isinstance(value, Mapping) else MISSING
        if value is MISSING:
            names = list(map(str, self.fields))
            near = nearest(name, names)
            hint = f"; did you mean {near}?" if near else ""
            raise self.problem(setting, f"there is no field {name}; the fields are {', '.join(names)}{hint}")
        return value

    def text(self, value: Any, setting: str) -> str:
        """Return a value as text: null is empty, lists are joined by line ends."""
        if value is None:
            return ""
        if isinstance(value, str):
            if _SURROGATE.search(value):
                raise self.problem(setting, "half of a surrogate pair, which is no text; correct the file")
            return value
        if isinstance(value, (bool, int, float)):
            return str(value)
        if isinstance(value, (list, tuple)):
            return "\n".join(self.text(part, setting) for part in value)
        if isinstance(value, Mapping):
            inner = ", ".join(map(str, value))
            raise self.problem(setting, f"wanted text; found an object with the fields {inner}; write FIELD.INNER")
        raise self.problem(setting, f"wanted text; found {type(value).__name__}; convert the file")

    def field_text(self, name: str, setting: str) -> str:
        """Return the text of a field."""
        return self.text(self.value(name, setting), setting)


def _item(row: ItemRow, generated: str) -> BenchmarkItem:
    benchmark = row.file.benchmark.config
    identifier = generated
    if benchmark.id is not None:
        identifier = row.field_text(benchmark.id, "id")
        if not identifier:
            raise row.problem("id", f"the field {benchmark.id} of the id is empty; leave id out to number the items")
    question = row.field_text(benchmark.question, "question")
    choices = _choices(benchmark, row)
    answer = ""
    if benchmark.answer is not None:
        answer = _answer(benchmark, row, choices)
    context = ""
    if benchmark.context is not None:
        context = row.field_text(benchmark.context, "context")
    questions: tuple[str, ...] = (question,)
    if benchmark.expand == "append":
        questions += tuple(f"{question}\n{choice}" for choice in choices)
    elif benchmark.expand == "fill":
        if BLANK not in question:
            raise row.problem("expand", f"fill finds no blank ({BLANK}) in the question: {question[:80]}")
        questions = tuple(question.replace(BLANK, choice) for choice in choices)
    return BenchmarkItem(benchmark.name, identifier, questions, answer, tuple(choices), context)


def _choices(benchmark: BenchmarkConfig, row: ItemRow) -> list[str]:
    fields = benchmark.choice_fields
    # A list of choices may be missing in an item; of a file with one column per choice, none may.
    if len(fields) == 1 and isinstance(benchmark.choices, str):
        value = row.fields.get(fields[0], MISSING) if "." not in fields[0] else row.value(fields[0], "choices")
        if value is MISSING or value is None:
            return []
        if not isinstance(value, (list, tuple)):
            raise row.problem("choices", f"the field {fields[0]} holds {type(value).__name__}, not a list")
        return [row.text(choice, "choices") for choice in value]
    values = [row.value(name, "choices") for name in fields]
    return [
        row.text(choice, "choices")
        for value in values
        for choice in (value if isinstance(value, (list, tuple)) else [value])
    ]


def _answer(benchmark: BenchmarkConfig, row: ItemRow, choices: Sequence[str]) -> str:
    assert benchmark.answer is not None
    text = row.field_text(benchmark.answer, "answer")
    if benchmark.answer_is == "text" or not text:
        return text
    number = -1
    digits = text.strip(" ")
    if benchmark.answer_is == "letter" and len(digits) == 1 and digits in string.ascii_letters:
        number = string.ascii_uppercase.index(digits.upper())
    elif digits.isascii() and digits.isdigit():
        number = int(digits) - (benchmark.answer_is != "zero_based")
    if not 0 <= number < len(choices):
        raise row.problem(
            "answer",
            f"{text[:80]!r} names none of {len(choices)} choices as {benchmark.answer_is}; set answer_is to letter, "
            "zero_based, one_based or text",
        )
    return choices[number]
