"""What the stages ``reward_model`` and ``classifier`` share: settings of a Hugging Face model, and scores from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from corpus.errors import UsageError
from corpus.stages import Signal, TextBatch
from scorers.scoring import Pairs, ScoreConfig, Scores, ScoreStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from scorers.model_files import ModelSource
    from scorers.sequence_classifier import SequenceClassifier

PAIR, CHAT, TEXT, TURNS = "pair", "chat", "text", "turns"
FORMS = (PAIR, CHAT, TEXT)
TOKENS, TOKENS_CUT = "tokens", "tokens_cut"


class ModelConfig(ScoreConfig):
    """Settings of a Hugging Face model."""

    NOT_SEMANTIC: ClassVar[frozenset[str]] = ScoreConfig.NOT_SEMANTIC | {"device", "batch_tokens", "allow_unpinned"}

    model: Annotated[str, Field(min_length=1)] = Field(
        description="Folder of a sequence classification model with its tokenizer, as save_pretrained writes it; "
        "the name of one that comes with Thresher (vicuna-minilm); or an id of the Hugging Face hub. Weights are read "
        "from safetensors only; code of a model is never run.",
    )
    revision: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Commit of a model of the hub, 40 hex digits; needed unless allow_unpinned."
    )
    allow_unpinned: bool = Field(
        default=False, description="Take a model of the hub without a commit: it may be another one tomorrow."
    )
    input: str | None = Field(
        default=None,
        description="What the model reads: pair (two segments), chat (the tokenizer's chat template around the turns "
        "that input.messages_column has up to the response, or around prompt and response as a turn of the user and "
        "one of the assistant), text (the fields as one text), or a template with {prompt} "
        "and {response}. Default of reward_model pair where there is a prompt, else text.",
    )
    max_tokens: Annotated[int, Field(ge=8)] | None = Field(
        default=None, description="Most tokens of a record; default as many as the model takes."
    )
    truncation: Literal["longest_first", "prompt", "response", "off"] = Field(
        default="longest_first",
        description="What is cut of a longer record: of the longer field first, of the prompt as long as there is any, "
        "or of the response; off: it has no score (too_long). Without any of the response left there is no score.",
    )
    truncation_side: Literal["right", "left"] | None = Field(
        default=None, description="From which end it is cut; default the tokenizer's own."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where the model runs; auto: on a GPU where there is one."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="What it computes with; auto: bfloat16 for a model stored in it, else float32, on any device.",
    )
    batch_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Most tokens of a batch, padding included; default 1024 on a CPU, 65536 on a GPU."
    )

    @field_validator("input")
    @classmethod
    def _known_form(cls, value: str | None) -> str | None:
        if value is not None and value not in FORMS and "{response}" not in value:
            raise ValueError(f"found {value!r}; wanted is {', '.join(FORMS)}, or a template with {{response}}")
        return value


class ModelStage(ScoreStage):
    """A stage whose scores come from a sequence classification model."""

    config: ModelConfig

    @property
    def accelerator(self) -> bool:
        """Whether the stage wants a worker with a GPU."""
        return self.config.device == "cuda"

    @property
    def setting(self) -> str:
        """How messages call the stage."""
        return f"stages.{self.name}"

    @property
    def form(self) -> str:
        """What the model reads of a record: pair, chat, text or a template."""
        if self.config.input is not None:
            return self.config.input
        return "pair" if self.text_field == "both" else "text"

    @property
    def reading(self) -> str:
        """How the model's input is built: as ``form`` says, or turn by turn where records are chats."""
        return TURNS if self.chat_column is not None else self.form

    def read_chats(self, column: str) -> None:
        """Read turns as they are where the model's input is a chat."""
        if self.form == CHAT and self.text_field == "both":
            self.chat_column = column

    def pairs(self, batch: TextBatch) -> Pairs:
        """Return the records of a batch; prompts of chats are their turns, as JSON."""
        pairs = super().pairs(batch)
        if self.chat_column is None:
            return pairs
        import numpy as np
        import pyarrow as pa

        from corpus.edited_chats import chats_of, turns_before_response
        from corpus.json_text import json_texts

        assert batch.records is not None
        rows = np.flatnonzero(batch.alive)
        chats = chats_of(batch.records, self.chat_column, pa.array(rows))
        places = np.full(len(batch), -1)
        places[rows] = np.arange(len(rows))
        turns = json_texts([turns_before_response(chat) for chat in chats])
        return Pairs(turns.take(pa.array(places, mask=places < 0)), pairs.responses)

    def check(self) -> None:
        """Raise UsageError where packages are missing, or model and input cannot be what the settings say."""
        from scorers.delta import is_delta
        from scorers.model_files import check_folder, check_packages

        check_packages(self.setting)
        source = self.source()
        folder = Path(source.name)
        if source.is_local and not is_delta(folder):
            self.check_outputs(check_folder(folder))
        if self.text_field != "both" and (self.form == "pair" or "{prompt}" in self.form):
            raise UsageError(
                f"{self.setting}.input: found {self.form}, and the stage sees the field {self.text_field} only; set "
                "field: both, or input: text"
            )

    def source(self) -> ModelSource:
        """Return where the model comes from. Raises UsageError."""
        from scorers.model_files import model_source

        return model_source(self.setting, self.config.model, self.config.revision, self.config.allow_unpinned)

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digest of the model: weights, tokenizer and settings. Raises UsageError."""
        from scorers.model_files import check_folder, model_digest, model_folder

        source = self.source()
        if not source.is_pinned:
            self.check_outputs(check_folder(model_folder(source)))
        return {"model": model_digest(source)}

    def identity(self) -> Mapping[str, str]:
        """Return model, input and what is cut: all that a score depends on."""
        names = ("max_tokens", "truncation", "truncation_side", "dtype")
        settings = {name: str(getattr(self.config, name)) for name in names}
        return {"scorer": "sequence classification", **self.fingerprint(), "input": self.reading, **settings}

    def more_signals(self) -> tuple[Signal, ...]:
        """Return how long the record is, and how much of it the model did not see."""
        return (
            Signal(TOKENS, "int64", "Tokens of the whole record as the model's input."),
            Signal(TOKENS_CUT, "int64", "How many of them were cut, since the model takes no more."),
        )

    def load(self) -> None:
        """Load the model, once per process. Raises UsageError where it cannot be used."""
        self.classifier()

    def classifier(self) -> SequenceClassifier:
        """Return the model."""
        from scorers.sequence_classifier import ModelSettings, loaded

        config = self.config
        settings = ModelSettings(
            self.source(),
            self.reading,
            config.max_tokens,
            config.truncation,
            config.truncation_side,
            config.device,
            config.dtype,
            config.batch_tokens,
        )
        return loaded(self.setting, settings)

    def score(self, pairs: Pairs) -> Scores:
        """Return the scores of some records."""
        import numpy as np
        import pyarrow as pa

        if not len(pairs):
            nothing = pa.array([], pa.int64())
            return Scores(np.zeros(0), [], {TOKENS: nothing, TOKENS_CUT: nothing})
        from scorers.sequence_classifier import OUT_OF_MEMORY

        model = self.classifier()
        prompts = [None] * len(pairs) if pairs.prompts is None else pairs.prompts.to_pylist()
        outputs = model.outputs(prompts, pairs.responses.to_pylist())
        lasting = np.array([reason != OUT_OF_MEMORY for reason in outputs.reasons], np.bool_)
        more = {TOKENS: pa.array(outputs.tokens), TOKENS_CUT: pa.array(outputs.cut)}
        return Scores(self.score_of(outputs.values, model.config), outputs.reasons, more, lasting)

    @abstractmethod
    def check_outputs(self, model_config: Mapping[str, Any]) -> None:
        """Raise UsageError where the model, given its ``config.json``, has not the output that is wanted."""

    @abstractmethod
    def score_of(self, outputs: npt.NDArray[np.float64], model_config: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Return the scores, float64 [n].

        Args:
            outputs: float64 [n, outputs], what the model gave; NaN where it gave nothing.
            model_config: its ``config.json``.
        """
