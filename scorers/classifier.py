"""Stage ``classifier``: how probable a label is, by a text classifier, or the number that a regressor gives.

Two kinds of models: supervised models of fastText (Joulin et al., Bag of Tricks for Efficient Text Classification,
2017), as DataComp-LM selects web pages with (Li et al., 2024), and sequence classification models of Hugging Face, such
as the FineWeb-Edu classifier (Penedo et al., 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from corpus.errors import UsageError
from corpus.stages import Stage, StageConfig, TextField, stage
from scorers.model_stage import ModelConfig, ModelStage
from scorers.scoring import Pairs, Scores, ScoreStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from corpus.fasttext import FastTextModel

FASTTEXT_SUFFIXES = (".bin", ".ftz")
PREFIX = "__label__"
UNKNOWN = "nothing_known"
OF_NETWORKS = (
    *("revision", "allow_unpinned", "input", "max_tokens", "truncation", "truncation_side"),
    *("device", "dtype", "batch_tokens"),
)
"""Settings that fastText has no use for."""


class ClassifierConfig(ModelConfig):
    """Which model, which of its labels, and which records stay."""

    model: Annotated[str, Field(min_length=1)] = Field(
        description="File of a supervised fastText model (.bin or .ftz); or a sequence classification model of Hugging "
        "Face: a folder as save_pretrained writes it, or an id of the hub. Weights of these are read from safetensors "
        "only; code of a model is never run.",
    )
    label: int | str | None = Field(
        default=None, description="Whose probability is the score: a label, or its number from 0; see score."
    )
    score: Literal["softmax", "sigmoid", "raw"] | None = Field(
        default=None,
        description="What is made of the model's outputs: softmax, the probability of the label among all; sigmoid, "
        "that of the label by itself; raw, the number as it is. Default softmax, or sigmoid for models of "
        "problem_type multi_label_classification. Models of fastText give the probability that they were trained for.",
    )
    field: TextField | None = Field(default=None, description="Text that is scored; default the response.")


@stage("classifier")
class Classifier(ModelStage):
    """Score each text by a classifier."""

    Config = ClassifierConfig
    summary = "Probability of a label by a text classifier, of fastText or of Hugging Face; or a regressor's number."
    default_field: ClassVar[TextField] = "response"
    config: ClassifierConfig

    @classmethod
    def variant(cls, config: StageConfig) -> type[Stage]:
        """Return the stage for the kind of the model."""
        assert isinstance(config, ClassifierConfig)
        if config.model.endswith(FASTTEXT_SUFFIXES):
            return FastTextClassifier.variant(config)
        return super().variant(config)

    @property
    def form(self) -> str:
        """What the model reads of a record; text unless the settings say otherwise."""
        return self.config.input or "text"

    def check_outputs(self, model_config: Mapping[str, Any]) -> None:
        """Raise UsageError where the model has not the label, or its outputs are no probabilities."""
        self._label(model_config)
        self._kind(model_config)

    def identity(self) -> Mapping[str, str]:
        """Return model, input, what is cut, label, and what is made of the outputs."""
        return {**super().identity(), "output": str(self.config.label), "score": str(self.config.score)}

    def score_of(self, outputs: npt.NDArray[np.float64], model_config: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Return the probability of the label, or its output."""
        import numpy as np

        chosen = outputs[:, self._label(model_config)]
        kind = self._kind(model_config)
        if kind == "raw":
            return chosen
        # A record without outputs has none after this, too.
        with np.errstate(invalid="ignore"):
            total = np.logaddexp(0.0, chosen) if kind == "sigmoid" else np.logaddexp.reduce(outputs, axis=1)
            return np.asarray(np.exp(chosen - total))

    def _label(self, model_config: Mapping[str, Any]) -> int:
        from scorers.model_files import output_labels, output_number

        labels = output_labels(model_config)
        return output_number(f"{self.setting}.label", self.config.model, labels, self.config.label)

    def _kind(self, model_config: Mapping[str, Any]) -> str:
        """Return what is made of the outputs. Raises UsageError where that would be the same for every record."""
        from scorers.model_files import output_labels

        kind = self.config.score
        if kind is None:
            several = model_config.get("problem_type") == "multi_label_classification"
            kind = "sigmoid" if several else "softmax"
        if kind == "softmax" and len(output_labels(model_config)) == 1:
            raise UsageError(
                f"{self.setting}.score: the model {self.config.model} has one output, whose softmax is always 1; set "
                "it to raw for a regressor, or to sigmoid"
            )
        return kind


class FastTextClassifier(ScoreStage):
    """Score each text by a supervised fastText model."""

    Config = ClassifierConfig
    summary = Classifier.summary
    default_field: ClassVar[TextField] = Classifier.default_field
    accelerator = False
    config: ClassifierConfig
    _model: FastTextModel | None = None

    def bind(self, before: Sequence[Stage]) -> None:
        """Check the settings. Raises UsageError for those that only other models have."""
        super().bind(before)
        setting = f"stages.{self.name}"
        for name in OF_NETWORKS:
            if getattr(self.config, name) != ClassifierConfig.model_fields[name].default:
                raise UsageError(
                    f"{setting}.{name}: {self.config.model} is a model of fastText, which has no use for it"
                )
        if self.config.score is not None:
            raise UsageError(
                f"{setting}.score: a model of fastText gives the probability that it was trained for; leave it out"
            )
        if self.config.label is None:
            raise UsageError(f"{setting}.label: say whose probability is the score")

    def fingerprint(self) -> Mapping[str, str]:
        """Return the SHA-256 of the model. Raises UsageError if it cannot be read or lacks the label."""
        from corpus.digests import file_digest
        from corpus.fasttext_model import FILE_NAME

        self._label()
        # The suffix says what kind of model it is where the digest stands for the file.
        return {"model": file_digest(self.config.model, FILE_NAME) + PurePath(self.config.model).suffix}

    def identity(self) -> Mapping[str, str]:
        """Return model and label."""
        return {"scorer": "fastText", **self.fingerprint(), "output": str(self._label())}

    def load(self) -> None:
        """Load the model. Raises UsageError where it cannot be used."""
        self._loaded()

    def score(self, pairs: Pairs) -> Scores:
        """Return the probability of the label for each text, in [0, 1]; a pair is prompt, a blank line, response."""
        import numpy as np
        import pyarrow.compute as pc

        texts = pairs.responses
        if pairs.prompts is not None:
            texts = pc.binary_join_element_wise(pairs.prompts, texts, "\n\n")
        alive = np.ones(len(texts), np.bool_)
        found = self._loaded().label_scores(texts, alive, self._label())
        values = found.fill_null(np.nan).to_numpy(zero_copy_only=False)
        reasons = [None if known else UNKNOWN for known in found.is_valid().to_pylist()]
        return Scores(np.clip(values, 0.0, 1.0), reasons)

    def _loaded(self) -> FastTextModel:
        from corpus.fasttext import FastTextModel

        if self._model is None:
            self._model = FastTextModel.load(self.config.model)
        return self._model

    def _label(self) -> int:
        from scorers.model_files import output_number

        label = self.config.label
        if isinstance(label, str):
            label = label.removeprefix(PREFIX)
        return output_number(f"stages.{self.name}.label", self.config.model, self._loaded().labels, label)
