"""The config of a finished run, from its folder, with other settings if wanted.

A run folder has the semantic config, in which files (models, lists, suites) stand as digests of their content. Stages
can be built from it for their rules and signals, not to measure anything.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from corpus.config_problems import Problems
from corpus.errors import UsageError
from corpus.inputs import InputConfig
from corpus.stages import StageConfig, known_stages
from corpus.yaml_reader import Document, Place
from pipelines.config import RunConfig, StageEntry
from pipelines.config_settings import apply_settings
from reports.manifest import CONFIG_NAME

FINGERPRINTS = "fingerprints"


def stored_config(semantic: Mapping[str, Any], sets: Sequence[str] = ()) -> RunConfig:
    """Return the config of a finished run, with other settings of its stages.

    Args:
        semantic: ``config`` of the run's manifest.
        sets: texts of ``--set``.

    Raises:
        UsageError: a setting is wrong, is none of a stage, or the run is of a version with other settings.
    """
    stored = copy.deepcopy({name: value for name, value in semantic.items() if name != FINGERPRINTS})
    document = Document(copy.deepcopy(stored), {(): Place(CONFIG_NAME)})
    problems = Problems(document)
    classes = known_stages()
    apply_settings(problems, sets, {}, list(RunConfig.model_fields), list(classes))
    problems.raise_if_any()
    for name, value in stored.items():
        if name != "stages" and document.value[name] != value:
            raise UsageError(
                f"--set {name}: what is read, and in which pieces, is settled when a run begins; change it in the "
                "config and run that"
            )
    if document.value.keys() - stored.keys():
        raise UsageError("--set: only settings of stages can be changed in a finished run; write STAGE.KEY=VALUE")
    entries = []
    for index, (before, after) in enumerate(zip(stored["stages"], document.value["stages"], strict=True)):
        ((kind, settings),) = after.items()
        if kind not in classes:
            raise UsageError(f"{CONFIG_NAME}: this version of Thresher has no stage {kind}; use the one that ran it")
        if settings["name"] != before[kind]["name"]:
            raise UsageError(f"--set {before[kind]['name']}.name: the name of a stage cannot change in a finished run")
        config = _stage_config(problems, classes[kind].Config, before[kind], settings, ("stages", index, kind))
        entries.append(StageEntry(settings["name"], kind, config))
    problems.raise_if_any()
    others = {name: value for name, value in stored.items() if name not in ("stages", "input")}
    try:
        return RunConfig(input=InputConfig(**stored["input"]), stages=tuple(entries), **others)
    except ValidationError as error:
        raise UsageError(f"{CONFIG_NAME}: not a config of this version of Thresher: {error}") from None


def _stage_config(
    problems: Problems,
    model: type[StageConfig],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: tuple[str | int, ...],
) -> StageConfig:
    """Return the settings of a stage; digests in the place of files need not be what the setting takes."""
    digests: set[Any] = set()
    if _fault(model, before) is not None:
        digests = {error["loc"][0] for error in _errors(model, before) if error["loc"]}
    fault = _fault(model, after)
    if fault is None:
        return model.model_validate(after)
    unchanged = {name for name in digests if after.get(name) == before.get(name)}
    if all(error["loc"] and error["loc"][0] in unchanged for error in fault.errors(include_url=False)):
        return _without_checks_of(model, after, unchanged)
    problems.add_validation_error(fault, model, path)
    return model.model_construct()


def _fault(model: type[StageConfig], values: Mapping[str, Any]) -> ValidationError | None:
    try:
        model.model_validate(values)
    except ValidationError as error:
        return error
    return None


def _errors(model: type[StageConfig], values: Mapping[str, Any]) -> list[Any]:
    fault = _fault(model, values)
    return [] if fault is None else fault.errors(include_url=False)


def _without_checks_of(model: type[StageConfig], values: Mapping[str, Any], unchecked: set[Any]) -> StageConfig:
    checked: dict[str, Any] = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or name in unchecked:
            checked[name] = value
        else:
            annotated: Any = Annotated[field.annotation, field]
            adapter: TypeAdapter[Any] = TypeAdapter(annotated)
            checked[name] = adapter.validate_python(value, strict=True)
    return model.model_construct(_fields_set=set(values), **checked)
