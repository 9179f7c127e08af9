"""Stages as steps of a Beam YAML pipeline.

A pipeline includes the listing ``configs/beam_yaml/providers.yaml``; each stage is then a transform of its name, also a
stage that is new. Its config has the settings of the stage and ``RowSettings``. Rows with a schema come in; the rows
that stay come out with the stage's signals as further fields, ``<stage>_<signal>``, and with their texts edited where
the stage edits. With Beam's ``error_handling: {output: dropped}`` there is a second output of that name: the rows that
left, as they came, with the signals and the fields ``stage``, ``rule``, ``value``, ``threshold``, ``related_id`` and
``detail``. Without it they are gone, as they are after Beam's own ``Filter``. A row without a usable text leaves by the
stage ``input`` under the name of its fault.

A record stage judges each row where it is and keeps its timestamp and window. A duplicate stage takes all rows of a
bounded collection together (``DuplicateSettings``), and its workers share a folder; what it reads of stages before it
are the fields that these added.

Needs the packages of ``apache-beam[yaml]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import apache_beam as beam
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_fields_from_element_type
from apache_beam.yaml.yaml_provider import ExternalProvider, InlineProvider
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from corpus.config_problems import Problems, nearest
from corpus.errors import UsageError
from corpus.inputs import InputConfig
from corpus.stages import CorpusStage, Stage, StageConfig, known_stages
from corpus.yaml_reader import Document, Place
from dedup.duplicates import DuplicateStage
from pipelines.beam_yaml_duplicates import RowsJob, judged_by_duplicate_stage
from pipelines.beam_yaml_fields import bind_to_fields, fields_named, missing
from pipelines.beam_yaml_rows import LEDGER_FIELDS, RowLayout, field_name
from pipelines.beam_yaml_staging import RowEncoder, make_staging
from pipelines.beam_yaml_steps import DROPPED, KEPT, judged_by_record_stage
from pipelines.config import StageEntry

PROVIDER_TYPE = "thresher"

_NUMBER = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+")


class ErrorHandling(BaseModel):
    """Beam's setting for rows that a transform does not pass on."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    output: str = Field(min_length=1, description="Name of the output with the rows that leave.")


class RowSettings(BaseModel):
    """What a step is told beside the settings of its stage."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True)

    text_column: str | None = Field(default=None, description="Field of the document's text; default text.")
    prompt_column: str | None = Field(default=None, description="Field of the prompt of a pair.")
    response_column: str | None = Field(default=None, description="Field of the response of a pair.")
    id_column: str | None = Field(default=None, description="Field of the id; default a hash of the row.")
    source_column: str | None = Field(default=None, description="Field of the source; default none.")
    language_stage: str = Field(
        default="language", description="Name of the language stage before, for stages that differ by language."
    )
    error_handling: ErrorHandling | None = Field(default=None, description="Where the rows that leave go.")

    def input(self) -> InputConfig:
        """Return the columns as a run names them. Raises ValidationError where they do not go together."""
        names = ("text_column", "prompt_column", "response_column", "id_column", "source_column")
        return InputConfig.model_validate({"files": ["rows"], **{name: getattr(self, name) for name in names}})


class DuplicateSettings(RowSettings):
    """What the step of a duplicate stage is told."""

    expected_rows: int = Field(
        default=1_000_000, ge=1, description="About how many rows come; far too low a number costs memory."
    )
    staging: str | None = Field(
        default=None,
        min_length=1,
        description="Folder (or s3://, gs:// URI) that all workers see. The step makes a folder in it, with the rows "
        "and what is compared of them, which stays. Default, with workers on this machine, a temporary folder, which "
        "is removed.",
    )


class StageTransform(beam.PTransform):  # type: ignore[misc]
    """A stage over rows with a schema.

    Gives the rows that stay; with ``error_handling``, a dict of these (``good``) and of the rows that leave.
    """

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        """Check the settings.

        Args:
            kind: name of a registered stage.
            settings: those of the stage and of ``RowSettings`` (``DuplicateSettings``) together.

        Raises:
            UsageError: with one line per problem: setting, what was found, what is wanted; or for settings that
                need all records of a run.
        """
        super().__init__(kind)
        problems = Problems(Document(dict(settings), {(): Place(kind)}))
        stage_class = known_stages()[kind]
        takes_duplicates = issubclass(stage_class, DuplicateStage)
        settings_class = DuplicateSettings if takes_duplicates else RowSettings
        both = create_model(kind, __base__=(settings_class, stage_class.Config))
        own = {name: value for name, value in settings.items() if name in settings_class.model_fields}
        rest = {name: value for name, value in settings.items() if name not in settings_class.model_fields}
        try:
            rows = settings_class.model_validate(own)
            self._input = rows.input()
        except ValidationError as error:
            problems.add_validation_error(error, both, ())
        try:
            config = stage_class.Config.model_validate(rest)
        except ValidationError as error:
            problems.add_validation_error(error, both, ())
        if problems.messages and any(map(_means_another_in_yaml_1_1, _scalars(settings))):
            problems.add((), 'Beam reads YAML 1.1: write "off", "no" and the like in quotes, and 1e-5 as 1.0e-5')
        problems.raise_if_any()
        self._rows = rows
        self._stage = self._build(kind, config)

    def _build(self, kind: str, config: StageConfig) -> Stage:
        entry = StageEntry(config.name or kind, kind, config)
        stage_class = known_stages()[kind].variant(config)
        if issubclass(stage_class, CorpusStage) and not issubclass(stage_class, DuplicateStage):
            raise UsageError(f"{kind}: {stage_class.needs_run}")
        try:
            return stage_class(config, entry.name, entry.text_field(self._input.layout))
        except ValueError as error:
            raise UsageError(f"{kind}: field: {error}") from None

    def expand(self, rows: beam.PCollection) -> beam.PCollection | dict[str, beam.PCollection]:
        """Add the steps of the stage.

        Raises UsageError where the rows lack a field that it needs, and, for a duplicate stage, where they do not all
        come together, or where the workers could not share the staging folder.
        """
        types = self._field_types(rows)
        read = tuple(sorted(fields_named(self._stage.config.model_dump(), types)))
        layout = RowLayout(tuple(types), self._input, self._stage, read)
        found = {name: _nullable(kind) for name, kind in layout.signal_fields.items()}
        reasons = {name: _nullable(kind) for name, kind in LEDGER_FIELDS.items()}
        kept_types = dict(zip(layout.kept_fields, [*types.values(), *found.values()], strict=True))
        dropped_types = dict(zip(layout.dropped_fields, [*kept_types.values(), *reasons.values()], strict=True))
        row_types = {
            tag: RowTypeConstraint.from_fields(list(fields.items()))
            for tag, fields in ((KEPT, kept_types), (DROPPED, dropped_types))
        }
        if isinstance(self._rows, DuplicateSettings):
            name = self._stage.name
            if not (rows.is_bounded and rows.windowing.is_default()):
                raise UsageError(
                    f"{name}: all rows are compared, so its input must be bounded and in one window; put the step "
                    "before WindowInto"
                )
            root = make_staging(name, self._rows.staging, rows.pipeline)
            job = RowsJob(layout, RowEncoder(types), root, self._rows.expected_rows)
            judged = judged_by_duplicate_stage(rows, job, row_types)
        else:
            judged = judged_by_record_stage(rows, layout, row_types)
        if self._rows.error_handling is None:
            return judged[KEPT]
        return {KEPT: judged[KEPT], self._rows.error_handling.output: judged[DROPPED]}

    def _field_types(self, rows: beam.PCollection) -> dict[str, Any]:
        """Return names and types of the fields of the rows."""
        name = self._stage.name
        try:
            types = dict(named_fields_from_element_type(rows.element_type))
        except (TypeError, ValueError):
            raise UsageError(
                f"{name}: its input has no schema ({rows.element_type}); give it one, for example by MapToFields"
            ) from None
        bind_to_fields(self._stage, types, self._rows.language_stage, self._input.source_column)
        named = (self._input.id_column, self._input.source_column)
        wanted = [*self._input.text_columns, *(column for column in named if column is not None)]
        wanted += [field_name(column) for column in self._stage.signal_columns()]
        for column in wanted:
            if column not in types:
                raise UsageError(f"{name}: {missing(column, types)}")
        for column in self._input.text_columns:
            if types[column] not in (str, _nullable(str), Any, _nullable(Any)):
                raise UsageError(f"{name}: the field {column} is {types[column]}; wanted is a string")
        return types


def _nullable(kind: Any) -> Any:
    return Optional[kind]  # noqa: UP045 (Beam takes X | None for a type that it does not know)


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _scalars(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _scalars(inner)
    else:
        yield value


def _means_another_in_yaml_1_1(value: Any) -> bool:
    """Say whether a value may be one that YAML 1.2 reads in another way."""
    return isinstance(value, bool) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


class StageConstructor:
    """Gives the transform of one stage, called with its config as keywords, as Beam YAML does."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        # From here Beam takes what it says of a transform.
        self.__doc__ = known_stages()[kind].summary

    def __call__(self, **settings: Any) -> StageTransform:
        """Return the transform. Raises UsageError."""
        return StageTransform(self.kind, settings)


@ExternalProvider.register_provider_type(PROVIDER_TYPE)  # type: ignore[untyped-decorator]
def stage_provider(urns: Mapping[str, str]) -> InlineProvider:
    """Return the provider of stages as transforms.

    Args:
        urns: the mapping ``transforms`` of a listing: names of transforms with the stage of each; where it is empty,
            every registered stage under its own name.

    Raises:
        UsageError: for a stage that does not exist.
    """
    stages = urns or {kind: kind for kind in known_stages()}
    for kind in stages.values():
        if kind not in known_stages():
            near = nearest(kind, known_stages())
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known_stages())}"
            raise UsageError(f"no stage is called {kind!r}; {hint}")
    return InlineProvider({name: StageConstructor(kind) for name, kind in stages.items()})
