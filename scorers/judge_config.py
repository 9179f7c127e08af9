"""The settings of a judge."""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from corpus.stages import Off
from scorers.scoring import ScoreConfig

INSTALL = "install it with: pip install 'thresher[judge]'"
Name = Annotated[str, Field(min_length=1)]
Limit = Annotated[int, Field(ge=0)]


class JudgeConfig(ScoreConfig):
    """Settings of a judge. The key is in none of them: it comes from the environment."""

    NOT_SEMANTIC: ClassVar[frozenset[str]] = ScoreConfig.NOT_SEMANTIC | {
        "key_variable", "concurrency", "timeout", "retries", "give_up_after", "max_calls", "max_tokens",
    }  # fmt: skip

    base_url: Name = Field(description="The endpoint without /chat/completions, such as http://localhost:8000/v1.")
    model: Name = Field(description="Name of the model at the endpoint.")
    key_variable: Name | Off = Field(
        default="OPENAI_API_KEY",
        description="Environment variable that holds the key, on all workers; off: the server wants none.",
    )
    dimension: Name = Field(
        default="accuracy",
        description="The quality that is judged; accuracy, helpfulness, relevance, clarity and educational_value are "
        "explained to the judge.",
    )
    meaning: Name | None = Field(
        default=None, description="What the dimension means, as the end of a sentence that begins with: It means that."
    )
    scale: list[float] = Field(default=[0.0, 5.0], description="Lowest and highest score, such as [1, 5].")
    explanation: bool = Field(default=True, description="Whether the judge says in one sentence what decided it.")
    temperature: Annotated[float, Field(ge=0, le=2)] | Off = Field(
        default=0.0, description="Randomness of the judge; off: as the server has it, for models that take no other."
    )
    structured: Literal["auto", "off"] = Field(
        default="auto", description="Structured output where the server can; off: never asked for."
    )
    answer_tokens: int = Field(default=300, ge=1, description="Most tokens of a reply, those of thinking included.")
    max_characters: int = Field(
        default=60_000, ge=1, description="Most code points of a record that is sent; a longer one is too_long."
    )
    repeat: int = Field(
        default=1,
        ge=1,
        le=8,
        description="How often each record is judged; the score is the mean. Every second time the order of prompt, "
        "response and scale is swapped. Each has a table of scores of its own, so that more can be added later.",
    )
    concurrency: int = Field(default=8, ge=1, le=1024, description="Calls at the same time, per worker process.")
    timeout: Annotated[float, Field(gt=0)] = Field(default=60.0, description="Seconds for one try.")
    retries: Limit = Field(
        default=5,
        description="More tries after a server that is busy, slow or broken, each after twice the time and as late as "
        "its Retry-After says.",
    )
    give_up_after: Annotated[int, Field(ge=1)] | Off = Field(
        default=50, description="Records in a row for which the server had no answer; then the run fails."
    )
    max_calls: Limit | Off = Field(
        default="off", description="Most calls, repeated ones included, per start of the run on each machine."
    )
    max_tokens: Limit | Off = Field(
        default="off",
        description="Most tokens of prompts and replies as the server counts them, per start of the run on each "
        "machine; estimated for calls under way.",
    )

    @field_validator("base_url")
    @classmethod
    def _usable(cls, value: str) -> str:
        if importlib.util.find_spec("openai") is None:
            raise ValueError(f"a judge needs the package openai, which is not installed in this Python; {INSTALL}")
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise ValueError("wanted is an address such as https://host/v1 or http://localhost:8000/v1")
        if "@" in parts.netloc or parts.query or parts.fragment:
            # Not shown: it may hold a secret.
            raise ValueError(
                "the address holds more than host and path; a key belongs into the environment variable that "
                "key_variable names, as configs are kept with the run"
            )
        return value.rstrip("/")

    @field_validator("key_variable")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is None:
            raise ValueError(
                "wanted is the name of an environment variable, such as OPENAI_API_KEY, not the key itself"
            )
        return value

    @field_validator("scale")
    @classmethod
    def _ascends(cls, value: list[float]) -> list[float]:
        if len(value) != 2 or value[0] >= value[1]:
            raise ValueError(f"found {value}; wanted two numbers, the lowest and the highest score, such as [0, 5]")
        return value

    @model_validator(mode="after")
    def _within_scale(self) -> JudgeConfig:
        low, high = self.scale
        if self.keep != "off" and self.keep.at_least is not None and not low <= self.keep.at_least <= high:
            raise ValueError(
                f"keep.at_least is {self.keep.at_least:g}, outside the scale from {low:g} to {high:g}; it would keep "
                "all records or none"
            )
        return self
