"""Limits on the length of a text: the stage ``length``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from corpus.stages import (
    Off,
    RecordStage,
    Rule,
    Signal,
    StageConfig,
    Test,
    TextBatch,
    TextField,
    stage,
    threshold_rules,
)

if TYPE_CHECKING:
    import pyarrow as pa

Count = Annotated[int, Field(ge=0)]

MEASURES = ("characters", "words", "lines")
LIMITS: tuple[tuple[str, Test], ...] = (("minimum", "at_least"), ("maximum", "at_most"))
RULES: tuple[tuple[str, str, Test], ...] = tuple(
    (f"{limit}_{measure}", measure, test) for measure in MEASURES for limit, test in LIMITS
)


class LengthConfig(StageConfig):
    """Settings of ``length``: limits on three counts, all off unless given."""

    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    minimum_characters: Count | Off = Field(default="off", description="Fewest characters (code points).")
    maximum_characters: Count | Off = Field(default="off", description="Most characters (code points).")
    minimum_words: Count | Off = Field(default="off", description="Fewest words.")
    maximum_words: Count | Off = Field(default="off", description="Most words.")
    minimum_lines: Count | Off = Field(default="off", description="Fewest lines, blank ones included.")
    maximum_lines: Count | Off = Field(default="off", description="Most lines, blank ones included.")

    @model_validator(mode="after")
    def _limits_leave_room(self) -> LengthConfig:
        for measure in MEASURES:
            low, high = getattr(self, f"minimum_{measure}"), getattr(self, f"maximum_{measure}")
            if "off" not in (low, high) and low > high:
                raise ValueError(f"minimum_{measure} ({low}) is above maximum_{measure} ({high}): no text can pass")
        return self


@stage("length")
class Length(RecordStage):
    """Keeps texts within limits on characters, words and lines.

    Characters are code points; words and lines are those of ``corpus.text``: words of punctuation count, and so do
    blank lines. A value at a limit stays.
    """

    Config = LengthConfig
    summary = "Fewest and most characters, words and lines."
    config: LengthConfig

    def signals(self) -> tuple[Signal, ...]:
        """Return the three counts."""
        return (
            Signal("characters", "int64", "Code points."),
            Signal("words", "int64", "Words, those of punctuation included."),
            Signal("lines", "int64", "Lines, blank ones included."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are on: characters, words, lines."""
        return threshold_rules(self.config, RULES)

    def prepare(self) -> None:
        """Load the kernel."""
        import filters.length_kernel  # noqa: F401

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the three signals of each text."""
        import pyarrow as pa

        from corpus.text import text_buffers
        from corpus.unicode_tables import code_point_classes
        from filters import length_kernel as statistic

        counts = statistic.sweep(*text_buffers(batch.texts), batch.alive, code_point_classes())
        rows = (statistic.CHARACTERS, statistic.WORDS, statistic.LINES)
        return {name: pa.array(counts[row]) for name, row in zip(MEASURES, rows, strict=True)}
