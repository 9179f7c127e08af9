"""The config of a run: reading, checking, and what of it decides the result.

A config has the sections ``input``, ``output`` and ``stages`` and the sizes of batches and files. Each stage brings its
own settings; this module only puts them together. It imports nothing heavy: ``thresher validate`` must answer at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, WithJsonSchema

from corpus.batch_layout import MAX_BATCH_ROWS, Layout
from corpus.config_problems import Problems, type_name
from corpus.errors import UsageError
from corpus.inputs import InputConfig
from corpus.stages import Stage, StageConfig, TextField, known_stages
from corpus.yaml_reader import Document, KeyPath, Place, read_yaml_file
from pipelines.config_settings import apply_settings
from pipelines.yaml_writer import dump_yaml as dump_yaml
from reports.limits import Checks

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class StageEntry:
    """A stage in the list of a config.

    Attributes:
        name: What ledger, signals and ``--set`` call it.
        kind: The name under which its class is registered.
        config: Its settings.
        place: Where it stands; None for one that no file lists.
    """

    name: str
    kind: str
    config: StageConfig
    place: Place | None = field(default=None, compare=False)

    def text_field(self, layout: Layout) -> TextField:
        """Return the field of a record that the stage looks at. Raises ValueError if records have no such field."""
        known: tuple[TextField, ...] = ("text",) if layout == "document" else ("prompt", "response", "both")
        given: TextField | None = getattr(self.config, "field", None)
        if given is None:
            return "text" if layout == "document" else getattr(known_stages()[self.kind], "default_field", "both")
        if given not in known:
            record = "a document has the field text" if layout == "document" else f"a pair has {', '.join(known)}"
            raise ValueError(f"found {given}; {record}; input.text_column or its like decides which it is")
        return given


class RunConfig(BaseModel):
    """Everything that a run is told: what to read, the stages in their order, where to write."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    input: InputConfig = Field(description="Which records to read and what their columns mean.")
    output: str | None = Field(default=None, min_length=1, description="The run folder; or the option --output.")
    stages: Annotated[tuple[InstanceOf[StageEntry], ...], WithJsonSchema({"type": "array"})] = Field(
        description="The stages in their order: a name, or a name with its settings."
    )
    batch_rows: int = Field(default=8192, ge=1, le=MAX_BATCH_ROWS, description="Most records in a batch.")
    batch_bytes: int = Field(
        default=16 * MIB, ge=64 * KIB, le=16 * MIB, description="Most bytes of text and columns in a batch."
    )
    target_file_bytes: int = Field(
        default=256 * MIB, ge=MIB, description="Bytes of kept text for which a curated file is planned."
    )
    checks: Checks | None = Field(default=None, description="What must hold before the run is published.")

    def build(self, check: bool = True) -> list[Stage]:
        """Return the stages, not prepared yet.

        Args:
            check: whether the files and packages that they name are looked at; not where only rules are of interest.

        Raises:
            UsageError: a setting does not fit the records or the other stages, or names what is not there.
        """
        classes = known_stages()
        stages: list[Stage] = []
        for entry in self.stages:
            try:
                stage_class = classes[entry.kind].variant(entry.config)
                stage = stage_class(entry.config, entry.name, entry.text_field(self.input.layout))
                stage.bind(stages)
                if self.input.messages_column is not None:
                    stage.read_chats(self.input.messages_column)
                if check:
                    stage.check()
                self._check_carried(stage)
            except (ValueError, UsageError) as error:
                raise UsageError(str(error) if entry.place is None else f"{entry.place}: {error}") from None
            stages.append(stage)
        self._check_checks(stages)
        return stages

    def _check_checks(self, stages: Sequence[Stage]) -> None:
        """Raise UsageError for a check of what no stage gives."""
        if self.checks is None:
            return
        names = ["input", *(stage.name for stage in stages)]
        for name in self.checks.maximum_drop_share:
            if name not in names:
                raise UsageError(
                    f"checks.maximum_drop_share.{name}: no stage has this name; there are {', '.join(names)}"
                )
        if self.checks.minimum_language_share and not any("language" in stage.curated_columns() for stage in stages):
            raise UsageError(
                "checks.minimum_language_share: no stage finds languages; list the stage language, or leave it out"
            )

    def _check_carried(self, stage: Stage) -> None:
        """Raise UsageError for a column that a stage reads and ``input.columns`` leaves out."""
        if self.input.columns is None:
            return
        carried = [*self.input.columns, self.input.source_column, self.input.id_column]
        for setting, column in stage.user_columns().items():
            # A name with dots leads into the objects of a column.
            heads = {column[:end] for end in range(1, len(column) + 1) if column[end : end + 1] in ("", ".")}
            if not heads.intersection(name for name in carried if name is not None):
                raise UsageError(
                    f"stages.{stage.name}.{setting}: the column {column} is not among input.columns "
                    f"({', '.join(self.input.columns)}), so no record carries it; add it there"
                )


def load_config(path: Path, sets: Sequence[str] = (), overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read and check a config file.

    Args:
        path: The YAML file.
        sets: Texts of ``--set``, such as ``near_duplicates.threshold=0.7``.
        overrides: Values of other command-line options by dotted key, such as ``output`` and ``input.limit``.

    Raises:
        UsageError: With one line per problem, each with file, line, setting, what was found and what is wanted.
    """
    return _resolve(read_yaml_file(path), sets, overrides or {})


def config_from_mapping(mapping: Mapping[str, Any], sets: Sequence[str] = ()) -> RunConfig:
    """Check a config that is given as Python values (as in the YAML; tuples and paths are fine, too).

    Raises:
        UsageError: As ``load_config`` does, with ``config`` in the place of file and line.
    """
    return _resolve(Document(_plain(mapping), {(): Place("config")}), sets, {})


def semantic_config(config: RunConfig, fingerprints: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what decides the result of a run: every setting, defaults included, in the form of a config.

    The output folder is left out. A file that a stage depends on counts by its content.

    Args:
        config: A checked config.
        fingerprints: For each stage's name, digests of files: by the setting that names the file, whose value the
            digest replaces, or by another name for a file that the stage brings along (kept in ``fingerprints``).
    """
    settings = config.input.model_dump(mode="json")
    # How much may go wrong decides whether there is a result, not which.
    del settings["max_errors"]
    if config.input.layout == "document":
        settings["text_column"] = config.input.text_columns[0]
    result: dict[str, Any] = {"input": settings, "stages": []}
    for name in ("batch_rows", "batch_bytes", "target_file_bytes"):
        result[name] = getattr(config, name)
    brought: dict[str, dict[str, str]] = {}
    for entry in config.stages:
        # Once more, with the defaults given: a default of 3 for a number is 3.0 then, as if it stood in the file.
        values = type(entry.config).model_validate(entry.config.model_dump(warnings=False)).model_dump(mode="json")
        values = {key: value for key, value in values.items() if key not in entry.config.NOT_SEMANTIC}
        values["name"] = entry.name
        if "field" in values:
            values["field"] = entry.text_field(config.input.layout)
        for key, digest in fingerprints.get(entry.name, {}).items():
            if key in values:
                values[key] = digest
            else:
                brought.setdefault(entry.name, {})[key] = digest
        result["stages"].append({entry.kind: values})
    return result | {"fingerprints": brought} if brought else result


def given_config(config: RunConfig) -> dict[str, Any]:
    """Return a config as it was given, without output; secrets in the names of input files are left out."""
    from corpus.filesystem import redact

    settings = config.input.model_dump(mode="json", exclude_unset=True)
    settings["files"] = [redact(entry) for entry in config.input.files]
    given: dict[str, Any] = {"input": settings, "stages": []}
    for name in ("batch_rows", "batch_bytes", "target_file_bytes"):
        given[name] = getattr(config, name)
    if config.checks is not None:
        given["checks"] = config.checks.model_dump(mode="json", exclude_unset=True)
    for entry in config.stages:
        values = entry.config.model_dump(mode="json", exclude_unset=True, warnings=False)
        given["stages"].append({entry.kind: {**values, "name": entry.name}})
    return given


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"config: the key {key!r} is {type_name(key)}; keys are text")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, PurePath) else value


def _resolve(document: Document, sets: Sequence[str], overrides: Mapping[str, Any]) -> RunConfig:
    """Return the config in a document, or raise UsageError with all problems."""
    if not isinstance(document.value, dict):
        found = "is empty" if document.value is None else f"is {type_name(document.value)}"
        raise UsageError(f"{document.place(())}: the config {found}; it needs the sections input, output and stages")
    # Anchors and --set share parts of the document; --set must change one place only.
    document.value = copy.deepcopy(document.value)
    problems = Problems(document)
    classes = known_stages()
    sections = list(RunConfig.model_fields)
    _learn_settings(problems, classes)
    apply_settings(problems, sets, overrides, sections, list(classes))
    entries = list(_stage_entries(problems, classes))
    values = dict(document.value)
    if isinstance(values.get("stages"), list):
        values["stages"] = tuple(entry for entry, _ in entries)
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        problems.add_validation_error(error, RunConfig, ())
    else:
        for entry, path in entries:
            _check_field(problems, entry, path, config.input.layout)
    problems.raise_if_any()
    return config


def _check_field(problems: Problems, entry: StageEntry, path: KeyPath, layout: Layout) -> None:
    try:
        entry.text_field(layout)
    except ValueError as error:
        problems.add((*path, "field"), str(error))


def _learn_settings(problems: Problems, classes: Mapping[str, type[Stage]]) -> None:
    """Tell where settings belong: first to stages that the config lists, then to any section, then to other stages."""
    stages = problems.document.value.get("stages")
    items = stages if isinstance(stages, list) else []
    listed = [next(iter(item), "") if isinstance(item, dict) else item for item in items]
    present = [kind for kind in classes if kind in listed]
    for kind in present:
        problems.known_elsewhere(kind, classes[kind].Config.model_fields)
    problems.known_elsewhere("", RunConfig.model_fields)
    problems.known_elsewhere("input", InputConfig.model_fields)
    problems.known_elsewhere("checks", Checks.model_fields)
    if not present:
        for kind, stage_class in classes.items():
            problems.known_elsewhere(kind, stage_class.Config.model_fields)


def _stage_entries(problems: Problems, classes: Mapping[str, type[Stage]]) -> Iterator[tuple[StageEntry, KeyPath]]:
    """Yield the valid stages with the paths of their settings; note what is wrong with the others."""
    stages = problems.document.value.get("stages")
    places: dict[str, Place] = {}
    for index, item in enumerate(stages if isinstance(stages, list) else ()):
        found = _stage_item(problems, ("stages", index), item, classes)
        if found is None:
            continue
        kind, settings, path = found
        name = settings.get("name")
        name = name if isinstance(name, str) else kind
        place = problems.document.place(path)
        if name in places:
            lines = f"lines {places[name].line} and {place.line}" if place.line and places[name].line else "two items"
            advice = f"give one another name: - {kind}: {{name: …}}"
            problems.add_at(place, f"{name}: two stages have this name, on {lines}; {advice}")
        places.setdefault(name, place)
        if name in RunConfig.model_fields:
            problems.add((*path, "name"), f"{name} is the name of a section and cannot be that of a stage")
        try:
            yield StageEntry(name, kind, classes[kind].Config.model_validate(settings), place), path
        except ValidationError as error:
            problems.add_validation_error(error, classes[kind].Config, path)


def _stage_item(
    problems: Problems, path: KeyPath, item: Any, classes: Mapping[str, type[Stage]]
) -> tuple[str, dict[str, Any], KeyPath] | None:
    """Return kind, settings and the path of the settings of an item of ``stages``; note what is wrong with it."""
    if isinstance(item, dict) and len(item) > 1:
        kinds = list(item)
        advice = "write one item with its own dash for each stage"
        if item[kinds[0]] is None:
            advice += f", or indent the settings further than {kinds[0]}"
        problems.add((*path, kinds[1]), f"an item with {len(kinds)} names ({', '.join(kinds)}); {advice}", "stages")
        return None
    if not isinstance(item, str) and not (isinstance(item, dict) and item):
        problems.add(path, f"found {problems.found(path)}; wanted the name of a stage, or a name with its settings")
        return None
    kind = item if isinstance(item, str) else next(iter(item))
    inner = path if isinstance(item, str) else (*path, kind)
    if kind not in classes:
        problems.add_unknown_name(inner, kind, classes, f"stages.{kind}")
        return None
    settings = {} if isinstance(item, str) else item[kind]
    if not isinstance(settings, dict):
        advice = f"; for the defaults write only - {kind}" if settings is None else ""
        problems.add(inner, f"found {problems.found(inner)}; wanted a mapping of its settings{advice}")
        return None
    return kind, cast("dict[str, Any]", settings), (*path, kind)
