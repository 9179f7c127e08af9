"""Items of benchmarks, made of the rows of their files by the fields that a suite declares."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.errors import UsageError
from filters.suite_config import BenchmarkConfig
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


def read_items(suite: str, benchmark: BenchmarkConfig, files: Sequence[tuple[str, Path]]) -> Iterator[BenchmarkItem]:
    """Yield the items of a benchmark.

    Args:
        suite: the suite file, for messages.
        benchmark: what its fields mean.
        files: (name, path) of each file; generated ids are ``name#row``, or the row's number where there is one file.

    Raises:
        UsageError: a file, a row or a field cannot be used, or two items have one id; the message names suite, file and
            row.
    """
    first_rows: dict[str, str] = {}
    for name, path in files:
        where = f"{suite}: benchmark {benchmark.name}: {name}"
        for number, row in read_rows(path, benchmark, where):
            place = f"{where}, row {number}"
            generated = str(number) if len(files) == 1 else f"{name}#{number}"
            item = _item(benchmark, row, place, generated)
            if item.id in first_rows:
                raise UsageError(
                    f"{place}: the id {item.id} is that of {first_rows[item.id]} too; name a field with distinct ids, "
                    "or leave id out"
                )
            first_rows[item.id] = f"{name}, row {number}"
            yield item


def _item(benchmark: BenchmarkConfig, row: Row, place: str, generated: str) -> BenchmarkItem:
    identifier = generated
    if benchmark.id is not None:
        identifier = _text(_field(row, benchmark.id, "id", place), place, "id")
        if not identifier:
            raise UsageError(f"{place}: the field {benchmark.id} of the id is empty; leave id out to number the items")
    question = _text(_field(row, benchmark.question, "question", place), place, "question")
    choices = _choices(benchmark, row, place)
    answer = ""
    if benchmark.answer is not None:
        answer = _answer(benchmark, _field(row, benchmark.answer, "answer", place), choices, place)
    context = ""
    if benchmark.context is not None:
        context = _text(_field(row, benchmark.context, "context", place), place, "context")
    questions: tuple[str, ...] = (question,)
    if benchmark.expand == "append":
        questions += tuple(f"{question}\n{choice}" for choice in choices)
    elif benchmark.expand == "fill":
        if BLANK not in question:
            raise UsageError(f"{place}: expand: fill finds no blank ({BLANK}) in the question: {question[:80]}")
        questions = tuple(question.replace(BLANK, choice) for choice in choices)
    return BenchmarkItem(benchmark.name, identifier, questions, answer, tuple(choices), context)


def _field(row: Mapping[str, Any], name: str, setting: str, place: str) -> Any:
    """Return the value of a field. Raises UsageError naming the fields that exist."""
    value: Any = row.get(name, MISSING)
    if value is MISSING and "." in name:
        value = row
        for part in name.split("."):
            value = value.get(part, MISSING) if isinstance(value, Mapping) else MISSING
    if value is MISSING:
        raise UsageError(f"{place}: {setting}: there is no field {name}; the fields are {', '.join(map(str, row))}")
    return value


def _text(value: Any, place: str, setting: str) -> str:
    """Return a value as text: null is empty, lists are joined by line ends."""
    if value is None:
        return ""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise UsageError(f"{place}: {setting}: half of a surrogate pair, which is no text; correct the file")
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "\n".join(_text(part, place, setting) for part in value)
    raise UsageError(f"{place}: {setting}: wanted text; found an object with the fields {', '.join(map(str, value))}")


def _choices(benchmark: BenchmarkConfig, row: Row, place: str) -> list[str]:
    fields = benchmark.choice_fields
    # A list of choices may be missing in an item; of a file with one column per choice, none may.
    if len(fields) == 1 and isinstance(benchmark.choices, str):
        value = row.get(fields[0], MISSING) if "." not in fields[0] else _field(row, fields[0], "choices", place)
        if value is MISSING or value is None:
            return []
        if not isinstance(value, (list, tuple)):
            raise UsageError(f"{place}: choices: the field {fields[0]} holds {type(value).__name__}, not a list")
        return [_text(choice, place, "choices") for choice in value]
    values = [_field(row, name, "choices", place) for name in fields]
    return [
        _text(choice, place, "choices")
        for value in values
        for choice in (value if isinstance(value, (list, tuple)) else [value])
    ]


def _answer(benchmark: BenchmarkConfig, value: Any, choices: Sequence[str], place: str) -> str:
    text = _text(value, place, "answer")
    if benchmark.answer_is == "text" or not text:
        return text
    number = -1
    digits = text.strip(" ")
    if benchmark.answer_is == "letter" and len(digits) == 1 and digits in string.ascii_letters:
        number = string.ascii_uppercase.index(digits.upper())
    elif digits.isascii() and digits.isdigit():
        number = int(digits) - (benchmark.answer_is != "zero_based")
    if not 0 <= number < len(choices):
        raise UsageError(
            f"{place}: answer: {text[:80]!r} names none of {len(choices)} choices as {benchmark.answer_is}; set "
            "answer_is to letter, zero_based, one_based or text"
        )
    return choices[number]
