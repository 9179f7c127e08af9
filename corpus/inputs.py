"""The ``input`` section of a config. Imports nothing heavy: the command line reads it to validate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corpus.batch_layout import FIELDS, Layout

MIB = 1 << 20

ColumnKind = Literal["string", "int64", "float64", "bool", "json"]
"""The types that ``input.columns`` can give a column; ``json`` is JSON text."""


class ErrorLimits(BaseModel):
    """How many dead letters and failed files a run may have, as ``input.max_errors`` says it at length."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    count: int | None = Field(default=None, ge=0, description="Dead letters and failed files.")
    share: float | None = Field(default=None, ge=0, le=1, description="The same as a share of the records read.")
    per: Literal["all", "source", "file"] = Field(
        default="all",
        description="Whether the limits are for all records together, or for those of each source or file.",
    )

    @model_validator(mode="after")
    def _some_limit(self) -> ErrorLimits:
        if self.count is None and self.share is None:
            raise ValueError("give count, share, or both")
        return self


class InputConfig(BaseModel):
    """Which records to read and what their columns mean."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    files: list[str] = Field(
        min_length=1,
        description="Files, folders or globs: Parquet, JSONL (plain, gz, zst), text; local, file://, s3://, gs://, hf://.",
    )
    text_column: str | None = Field(default=None, description="Column of the document's text; default text.")
    prompt_column: str | None = Field(default=None, description="Column of the prompt of a pair.")
    response_column: str | None = Field(default=None, description="Column of the response of a pair.")
    messages_column: str | None = Field(
        default=None,
        description="Column of a chat, a list of {role, content}; its last assistant turn is the response.",
    )
    id_column: str | None = Field(default=None, description="Column of the user's ids; default file#position.")
    source_column: str | None = Field(default=None, description="Column of the source; default the file.")
    columns: list[str] | dict[str, ColumnKind] | None = Field(
        default=None,
        description="Other columns to carry (default all): a list of names, or names with types (string, int64, "
        "float64, bool, json); a value of another type makes its record a dead letter.",
    )
    max_errors: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] | ErrorLimits | None = Field(
        default=None,
        description="Dead letters and failed files beyond which the run fails: a number, a share of the records read "
        "(below 1), or count, share and per (all, source, file); default no limit.",
    )
    max_record_bytes: int = Field(
        default=12 * MIB,
        ge=1,
        le=15 * MIB,
        description="UTF-8 bytes of the text fields, and of all carried columns together, beyond which a record "
        "leaves.",
    )
    duplicate_ids: Literal["report", "fail"] = Field(default="report", description="What to do about repeated ids.")
    limit: int | None = Field(default=None, ge=0, description="Read the first records only, in the order of the files.")
    sample: float | None = Field(default=None, gt=0, le=1, description="Read this share of the records, by hash.")
    sample_seed: int = Field(default=0, description="Another seed, another sample.")

    @model_validator(mode="after")
    def _one_layout(self) -> InputConfig:
        pair = self.prompt_column is not None or self.response_column is not None
        if pair and (self.prompt_column is None or self.response_column is None):
            raise ValueError("prompt_column and response_column go together: give both")
        if pair + (self.messages_column is not None) + (self.text_column is not None) > 1:
            raise ValueError("give one of text_column, prompt_column with response_column, or messages_column")
        return self

    @property
    def layout(self) -> Layout:
        """Whether a record is a document or a pair."""
        return "pair" if self.prompt_column is not None or self.messages_column is not None else "document"

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The user's columns that hold text, in the order of ``FIELDS[layout]``; a chat has its one column."""
        if self.messages_column is not None:
            return (self.messages_column,)
        if self.prompt_column is not None and self.response_column is not None:
            return (self.prompt_column, self.response_column)
        return (self.text_column or "text",)

    @property
    def error_limits(self) -> ErrorLimits | None:
        """What ``max_errors`` says at length; None without a limit."""
        if isinstance(self.max_errors, int):
            return ErrorLimits(count=self.max_errors)
        return ErrorLimits(share=self.max_errors) if isinstance(self.max_errors, float) else self.max_errors

    @property
    def declared_columns(self) -> dict[str, ColumnKind]:
        """Names and types of the columns whose type the config fixes."""
        return self.columns if isinstance(self.columns, dict) else {}

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields of a record."""
        return FIELDS[self.layout]
