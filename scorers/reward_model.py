"""Stage ``reward_model``: how good a response to its prompt is, by a sequence classification model.

A reward model is trained on comparisons of answers (Ouyang et al., Training language models to follow instructions
with human feedback, 2022); its score is the raw output, which has no unit and no fixed range. How prompt and response
are put together is said on the model's card: ``input`` follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from corpus.stages import stage
from scorers.model_stage import ModelConfig, ModelStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class RewardModelConfig(ModelConfig):
    """Which model, what it reads, and which records stay."""

    output: int | str | None = Field(
        default=None,
        description="Which output of the model is the score: its number from 0, or its label; needed where it has more "
        "than one.",
    )


@stage("reward_model")
class RewardModel(ModelStage):
    """Score each response to its prompt."""

    Config = RewardModelConfig
    summary = "Score by a reward model or any other sequence classification model of Hugging Face: its raw output."
    config: RewardModelConfig

    def check_outputs(self, model_config: Mapping[str, Any]) -> None:
        """Raise UsageError where the model has not the output that is wanted."""
        self._output(model_config)

    def identity(self) -> Mapping[str, str]:
        """Return model, input, what is cut, and which output is the score."""
        return {**super().identity(), "output": str(self.config.output), "score": "raw"}

    def score_of(self, outputs: npt.NDArray[np.float64], model_config: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """Return the chosen output as it is."""
        return outputs[:, self._output(model_config)]

    def _output(self, model_config: Mapping[str, Any]) -> int:
        from scorers.model_files import output_labels, output_number

        labels = output_labels(model_config)
        return output_number(f"{self.setting}.output", self.config.model, labels, self.config.output)
