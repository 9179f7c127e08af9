"""The model of a suite file: which benchmarks there are, where their items lie and what the fields mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corpus.errors import UsageError

Format = Literal["jsonl", "json", "csv", "tsv", "parquet"]
AnswerIs = Literal["text", "letter", "zero_based", "one_based"]
Expand = Literal["none", "append", "fill"]

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True)


class HubConfig(BaseModel):
    """A data set of the Hugging Face hub."""

    model_config = STRICT

    id: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$", description="Data set, as openai/gsm8k.")
    revision: str = Field(
        # It becomes the path of a folder, in which no part may lead elsewhere.
        pattern=r"^[A-Za-z0-9][\w.+-]*(/[A-Za-z0-9][\w.+-]*)*$",
        description="Commit, tag or branch; a commit never changes.",
    )


class BenchmarkConfig(BaseModel):
    """A benchmark. A field is a column or key; ``a.b`` reaches into an object where no field has that very name."""

    model_config = STRICT

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.+-]*$", description="Name in evidence and reports.")
    files: list[str] | str = Field(
        description="Files or globs: relative to the suite file, or within the hub data set. gz is unpacked."
    )
    hub: HubConfig | None = Field(default=None, description="Data set of the hub that holds the files.")
    license: str | None = Field(
        default=None, min_length=1, description="Licence of the items, as its publisher names it; shown, not judged."
    )
    format: Format | None = Field(default=None, description="Format of the files; default by their suffix.")
    records: str | None = Field(default=None, description="Key of a JSON file under which the list of items stands.")
    columns: list[str] | None = Field(
        default=None, min_length=1, description="Column names of CSV or TSV files without a header line."
    )
    id: str | None = Field(default=None, description="Field of the item's id; default its number in its file.")
    question: str = Field(description="Field of the question; a list of texts is joined.")
    answer: str | None = Field(default=None, description="Field of the answer.")
    answer_is: AnswerIs = Field(
        default="text", description="The answer is a text, or the letter or number of a choice, counted from 0 or 1."
    )
    choices: list[str] | str | None = Field(
        default=None, description="Field that holds the list of choices, or one field per choice."
    )
    context: str | None = Field(default=None, description="Field of a text that the question is about.")
    expand: Expand = Field(
        default="none",
        description="What is looked for of multiple choice: the question; append: also the question with each choice "
        "behind it; fill: the question with each choice in the place of the blank (_).",
    )

    @model_validator(mode="after")
    def _fields_fit(self) -> BenchmarkConfig:
        if self.answer_is != "text" and (self.answer is None or self.choices is None):
            raise ValueError(f"answer_is: {self.answer_is} needs the fields answer and choices")
        if self.expand != "none" and self.choices is None:
            raise ValueError(f"expand: {self.expand} needs the field choices")
        return self

    @property
    def patterns(self) -> list[str]:
        """The entries of ``files``."""
        return [self.files] if isinstance(self.files, str) else self.files

    @property
    def choice_fields(self) -> list[str]:
        """The entries of ``choices``."""
        if self.choices is None:
            return []
        return [self.choices] if isinstance(self.choices, str) else self.choices


class SuiteConfig(BaseModel):
    """A suite file."""

    model_config = STRICT

    benchmarks: list[BenchmarkConfig] = Field(min_length=1, description="The benchmarks, in any order.")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as a suite file declares it.

    Attributes:
        config: what is declared.
        suite: the suite file.
        places: file and line of its settings; ``name`` is among them.
    """

    config: BenchmarkConfig
    suite: Path
    places: Mapping[str, str]

    def problem(self, setting: str, what: str) -> UsageError:
        """Return an error that names suite, line and benchmark; where the setting is left out, the benchmark's line."""
        place = self.places.get(setting, self.places["name"])
        return UsageError(f"{place}: benchmark {self.config.name}: {what}")


@dataclass(frozen=True)
class ItemFile:
    """A file with items of a benchmark; messages call it ``name``."""

    benchmark: Benchmark
    name: str
    path: Path

    def problem(self, what: str, row: int | None = None, setting: str = "files") -> UsageError:
        """Return an error that names suite, line, benchmark, file and row, and the setting to look at."""
        where = self.name if row is None else f"{self.name}, row {row}"
        return self.benchmark.problem(setting, f"{where}: {'' if setting == 'files' else f'{setting}: '}{what}")
