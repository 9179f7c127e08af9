"""Stages that exist in these tests only, so that the files of other people's faults can be read as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

import corpus.stages
from corpus.stages import Off, RecordStage, Rule, Signal, StageConfig, TextBatch, TextField, threshold_rules

Share = Annotated[float, Field(ge=0, le=1)]


class Keep(StageConfig):
    """A section inside the settings of a stage."""

    at_least: float | Off = Field(default="off", description="Least length that stays.")
    per: list[str] = Field(default=[], description="Groups.")


class NearDuplicatesConfig(StageConfig):
    """The settings that the cases name, and one section."""

    threshold: Share | Off = Field(default=0.8, description="Largest share of characters.")
    duplication_budget: Annotated[float, Field(ge=0)] = Field(default=0, description="Copies per leader.")
    field: TextField | None = Field(default=None, description="Field that is judged.")
    keep: Keep | None = Field(default=None, description="A section.")
    model: str = Field(default="bundled.bin", description="A file.")


class LanguageConfig(StageConfig):
    """The settings that the cases name."""

    keep: list[str] | None = Field(default=None, description="Languages that stay.")
    minimum_score: Share | Off = Field(default=0.65, description="Least score.")


class Length(RecordStage):
    """Measures the length of a text, as a share of a thousand characters."""

    summary = "Length of a text."
    default_field = "both"
    Config = NearDuplicatesConfig

    def signals(self) -> tuple[Signal, ...]:
        return (Signal("length", "float64", "Characters per thousand."),)

    def rules(self) -> tuple[Rule, ...]:
        return threshold_rules(self.config, [("threshold", "length", "at_most")])

    def measure(self, batch: TextBatch) -> dict[str, Any]:
        import pyarrow as pa

        return {"length": pa.array([len(text or "") / 1000 for text in batch.texts.to_pylist()], pa.float64())}


class LanguageLength(Length):
    """The same under the settings of a language stage."""

    Config = LanguageConfig

    def rules(self) -> tuple[Rule, ...]:
        return threshold_rules(self.config, [("minimum_score", "length", "at_least")])


@pytest.fixture
def case_stages() -> Iterator[None]:
    """Register ``near_duplicates`` (and ``language`` where there is none) for one test."""
    classes = corpus.stages._REGISTRY.classes
    corpus.stages.known_stages()
    before = dict(classes)
    corpus.stages.stage("near_duplicates")(Length)
    if "language" not in before:
        corpus.stages.stage("language")(LanguageLength)
    corpus.stages.known_stages.cache_clear()
    yield
    classes.clear()
    classes.update(before)
    corpus.stages.known_stages.cache_clear()
