"""What stages share that count something in each text and compare counts and quotients with limits.

Such a stage is a table of its signals, a table of its rules, and a kernel that counts. Limits may differ by language:

    gopher_quality: {by_language: {de: {minimum_words: 40, stop_words: [der, und]}, ko: {minimum_stop_words: "off"}}}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from corpus.stages import RecordStage, Rule, Signal, StageConfig, Test, TextBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pydantic_core import CoreSchema

Preset = Literal["thresher-1", "datatrove-0.10"]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

BY_LANGUAGE = (
    "Other limits for texts of a language: label of the language stage -> settings; what is not named there, and "
    "languages not named, keep the settings of the stage."
)


class Limits(BaseModel):
    """Settings of a stage that may differ by language; those of one language are the fields that were given for it."""

    model_config = StageConfig.model_config

    def contradiction(self) -> str | None:
        """Return why no text can pass, naming the fields; None where some can."""
        for minimum in type(self).model_fields:
            maximum = minimum.replace("minimum_", "maximum_", 1)
            if maximum != minimum and maximum in type(self).model_fields:
                low, high = getattr(self, minimum), getattr(self, maximum)
                if "off" not in (low, high) and low > high:
                    return f"{minimum} ({low}) is above {maximum} ({high}): no text can pass"
        return None

    @model_serializer(mode="wrap")
    def _only_given_by_language(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if isinstance(self, StageConfig):
            return values
        return {name: value for name, value in values.items() if name in self.model_fields_set}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema; what is not given for a language is as for the stage, so it has no defaults."""
        schema = handler(core_schema)
        if not issubclass(cls, StageConfig):
            for field in handler.resolve_ref_schema(schema)["properties"].values():
                field.pop("default", None)
        return schema


class CountingConfig(StageConfig, Limits):
    """Settings of a stage that counts. A subclass takes its limits from a subclass of ``Limits``, too."""

    if TYPE_CHECKING:  # declared by each stage behind its other settings, with its own limits

        @property
        def by_language(self) -> Mapping[str, Limits]:
            """Return what was given for languages."""

    def for_language(self, label: str) -> CountingConfig:
        """Return the settings that hold for texts with a label."""
        limits = self.by_language.get(label)
        if limits is None:
            return self
        return self.model_copy(update={name: getattr(limits, name) for name in limits.model_fields_set})

    @model_validator(mode="after")
    def _some_text_can_pass(self) -> CountingConfig:
        if (problem := self.contradiction()) is not None:
            raise ValueError(problem)
        for label in self.by_language:
            if (problem := self.for_language(label).contradiction()) is not None:
                raise ValueError(f"by_language.{label}: {problem}")
        return self


@dataclass(frozen=True)
class Measure:
    """A signal that is a count, or the quotient of two counts.

    Attributes:
        signal: its name.
        count: name of the count.
        whole: name of the count to divide by; empty where the signal is the count itself.
        description: what it says about a text.
    """

    signal: str
    count: str
    whole: str
    description: str


class CountingStage(RecordStage):
    """A stage whose signals are counts, int64, and quotients of two counts.

    Quotients are exact, as float64. One whose denominator is zero is null, and null meets every rule.

    Attributes:
        MEASURES: its signals, in order.
        RULES: config field, signal and test of its rules, in the order in which they are asked.
    """

    MEASURES: ClassVar[tuple[Measure, ...]]
    RULES: ClassVar[tuple[tuple[str, str, Test], ...]]
    config: CountingConfig

    @abstractmethod
    def count(self, batch: TextBatch) -> Mapping[str, npt.NDArray[np.int64]]:
        """Return all counts that ``MEASURES`` names, int64[n] each; those of texts that are not alive do not matter."""

    def uses_languages(self) -> bool:
        """Say whether there are limits by language."""
        return bool(self.config.by_language)

    def signals(self) -> tuple[Signal, ...]:
        """Return counts as int64, quotients as float64."""
        return tuple(
            Signal(measure.signal, "float64" if measure.whole else "int64", measure.description)
            for measure in self.MEASURES
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are on, for all texts or for some language, in order."""
        rules = []
        for name, signal, test in self.RULES:
            by_language = {
                label: _threshold(limits, name)
                for label, limits in sorted(self.config.by_language.items())
                if name in limits.model_fields_set
            }
            rule = Rule(name, signal, test, _threshold(self.config, name), by_language=by_language)
            if any(threshold is not None for threshold in (rule.threshold, *by_language.values())):
                rules.append(rule)
        return tuple(rules)

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return how many texts have each label of ``by_language``."""
        import pyarrow.compute as pc

        if self.language_column is None:
            return {}
        labels = signals[self.language_column]
        return {
            f"labelled_{label}": pc.sum(pc.equal(labels, label)).as_py() or 0
            for label in sorted(self.config.by_language)
        }

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Say which labels of ``by_language`` no text has: one may be misspelt."""
        unseen = [label for label in sorted(self.config.by_language) if counts.get(f"labelled_{label}") == 0]
        if not unseen or not counts["entered"]:
            return []
        return [
            f"by_language has settings for {', '.join(unseen)}, and no text that entered the stage has such a label: "
            f"labels are those that {self.language_column} gives, such as en or ko"
        ]

    def labels(self, setting: str) -> list[str]:
        """Return the languages for which a setting was given, sorted."""
        languages = self.config.by_language.items()
        return sorted(label for label, limits in languages if setting in limits.model_fields_set)

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the signals of each text."""
        import numpy as np
        import pyarrow as pa

        counts = self.count(batch)
        signals = {}
        for measure in self.MEASURES:
            values = counts[measure.count]
            if measure.whole:
                whole = counts[measure.whole]
                signals[measure.signal] = pa.array(values / np.maximum(whole, 1), mask=whole == 0)
            else:
                signals[measure.signal] = pa.array(values)
        return signals


def language_numbers(batch: TextBatch, labels: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return for each text 1 + the place of its label in a list, 0 where it has no label or another: int64[n]."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if batch.languages is None or not labels:
        return np.zeros(len(batch), np.int64)
    places = pc.fill_null(pc.index_in(batch.languages, pa.array(labels, pa.string())), -1)
    return np.asarray(places.to_numpy(), np.int64) + 1


def _threshold(limits: Limits, name: str) -> float | None:
    value = getattr(limits, name)
    return None if value == "off" else float(value)
