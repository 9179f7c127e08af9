"""Stage ``language``: which language a text is in, by a fastText model, and which languages stay.

The default model is ``lid.176.ftz`` of https://fasttext.cc/docs/en/language-identification.html (176 languages; Joulin
et al., FastText.zip, 2016); any other supervised fastText model can take its place. The model sees the text as it is,
with newlines as spaces. It gives some label to whatever it is shown, digits and emoji included, so a text without a
letter is not shown to it: its language is null.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from corpus.errors import UsageError
from corpus.stages import RecordStage, Rule, Signal, StageConfig, TextBatch, TextField, stage

if TYPE_CHECKING:
    import pyarrow as pa

DECIMALS = 4
NEAREST_LABELS = 3


class LanguageConfig(StageConfig):
    """What to keep, and what to judge it by."""

    keep: Annotated[list[str], Field(min_length=1)] | Literal["off"] = Field(
        default="off",
        description="Labels of the languages that stay, as the model spells them (en, de, zh); off keeps all. Where it "
        "is set, a text without a letter leaves by the rule undetermined.",
    )
    minimum_score: Annotated[float, Field(ge=0, le=1)] | Literal["off"] = Field(
        default="off",
        description="Lowest score of the label at which a text stays; a text without a label has no score.",
    )
    first_characters: int = Field(
        default=0, ge=0, description="How many characters (code points) of the text to look at; 0 is the whole text."
    )
    model: str | None = Field(
        default=None, description="Path of a supervised fastText model (.bin or .ftz); default lid.176.ftz."
    )
    field: TextField | None = Field(default=None, description="Text of the record to judge; default the response.")


@stage("language")
class Language(RecordStage):
    """Label each text with its language and the model's score."""

    Config = LanguageConfig
    summary = "Language by a fastText model (lid.176.ftz unless another is given)."
    config: LanguageConfig

    def signals(self) -> tuple[Signal, ...]:
        """Return the signals ``label`` and ``score``."""
        return (
            Signal("label", "string", "Label of the language; null for a text without a letter."),
            Signal("score", "float64", "The model's score of the label, 0 to 1, to 4 decimals; null without a label."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return ``undetermined`` and ``keep`` where languages are chosen, ``minimum_score`` where it is set."""
        rules: list[Rule] = []
        if self.config.keep != "off":
            rules.append(Rule("undetermined", "label", "is_set"))
            rules.append(Rule("keep", "label", "one_of", values=tuple(self.config.keep)))
        if self.config.minimum_score != "off":
            rules.append(Rule("minimum_score", "score", "at_least", float(self.config.minimum_score)))
        return tuple(rules)

    def curated_columns(self) -> Mapping[str, str]:
        """Return the columns of label and score."""
        return {"language": "label", "language_score": "score"}

    def fingerprint(self) -> Mapping[str, str]:
        """Return the SHA-256 of the model. Raises UsageError if it cannot be read."""
        from corpus.digests import file_digest
        from corpus.fasttext_model import FILE_NAME

        return {"model": file_digest(self._path(), FILE_NAME)}

    def prepare(self) -> None:
        """Load the model. Raises UsageError if it cannot be used or lacks a label of ``keep``."""
        from corpus.fasttext import FastTextModel
        from corpus.unicode_tables import code_point_classes
        from filters.language_kernel import has_letter

        path = self._path()
        self._model = FastTextModel.load(path)
        self._classes = code_point_classes()
        self._has_letter = has_letter
        labels = self._model.labels
        for label in () if self.config.keep == "off" else self.config.keep:
            if label not in labels:
                nearest = (
                    difflib.get_close_matches(label.lower(), labels, NEAREST_LABELS, 0.5) or labels[:NEAREST_LABELS]
                )
                raise UsageError(
                    f"stage {self.name}: keep: the model {path} has no label {label!r}. "
                    f"Nearest of its {len(labels)} labels: {', '.join(nearest)}."
                )

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return label and score of each text; null where it is not alive."""
        import numpy as np
        import pyarrow as pa

        from corpus.text import text_buffers

        offsets, data = text_buffers(batch.texts)
        first = self.config.first_characters
        judged = self._has_letter(offsets, data, batch.alive, self._classes, first)
        labels, scores = self._model.predict(batch.texts, judged, first)
        unknown = np.asarray(scores.is_null())
        rounded = np.round(np.clip(np.nan_to_num(scores.to_numpy(zero_copy_only=False)), 0.0, 1.0), DECIMALS)
        return {"label": labels, "score": pa.array(rounded, mask=unknown)}

    def _path(self) -> str:
        from corpus.fasttext import default_model_path

        return self.config.model if self.config.model is not None else default_model_path()
