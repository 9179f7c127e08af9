"""How many tokens texts have for a tokenizer of the user's: the stage ``tokens``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

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

TOKENS = "tokens"
LIMITS: tuple[tuple[str, str, Test], ...] = (
    ("minimum_tokens", TOKENS, "at_least"),
    ("maximum_tokens", TOKENS, "at_most"),
)


class TokensConfig(StageConfig):
    """Settings of ``tokens``."""

    tokenizer: str = Field(min_length=1, description="Path of a tokenizer.json (Hugging Face tokenizers).")
    minimum_tokens: Count | Off = Field(default="off", description="Fewest tokens.")
    maximum_tokens: Count | Off = Field(default="off", description="Most tokens.")
    field: TextField | None = Field(default=None, description="Field that is counted; default prompt and response.")


@stage("tokens")
class Tokens(RecordStage):
    """Counts the tokens of each text, without special tokens, and keeps texts within limits.

    The report then speaks of tokens as well: of the texts that enter this stage, and of those that go on behind it, by
    stage, source, language and licence. Listed first it counts what was read; listed behind stages that edit texts, it
    counts what they leave.
    """

    Config = TokensConfig
    summary = "Counts tokens by a tokenizer of your own, for the report and for limits."
    speed = "about 3 MB/s on a core"
    default_field = "both"
    config: TokensConfig

    def signals(self) -> tuple[Signal, ...]:
        """Return the number of tokens."""
        return (Signal(TOKENS, "int64", "Tokens, without special ones."),)

    def rules(self) -> tuple[Rule, ...]:
        """Return the limits that are on."""
        return threshold_rules(self.config, LIMITS)

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digest of the tokenizer's file."""
        from corpus.digests import file_digest

        return {"tokenizer": file_digest(self.config.tokenizer, f"stages.{self.name}.tokenizer")}

    def check(self) -> None:
        """Load the tokenizer. Raises UsageError."""
        self.prepare()

    def prepare(self) -> None:
        """Load the tokenizer. Raises UsageError."""
        from corpus.tokenizers import load_tokenizer

        self._tokenizer = load_tokenizer(self.config.tokenizer, f"stages.{self.name}.tokenizer")

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the number of tokens of each text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from corpus.tokenizers import count_tokens

        texts = pc.if_else(pa.array(batch.alive), batch.texts, "")
        return {TOKENS: pa.array(count_tokens(self._tokenizer, texts))}
