"""What the config accepts, for editors and for people: a JSON Schema of config files and a table of the stages."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from pydantic_core import to_jsonable_python

from corpus.stages import known_stages
from pipelines.config import RunConfig
from reports.limits import Limits

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a config file.

    An item of ``stages`` is the name of a stage, or a mapping of that one name to settings. Objects accept no other
    keys than those listed. What concerns several settings at once (two stages of one name, say) is not in it.
    """
    classes = known_stages()
    models: list[type[BaseModel]] = [RunConfig, *(stage_class.Config for stage_class in classes.values())]
    references, schema = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    definitions = schema["$defs"]
    root: dict[str, Any] = definitions.pop(references[RunConfig, "validation"]["$ref"].rpartition("/")[2])
    items: list[dict[str, Any]] = []
    bare = [
        kind
        for kind, found in classes.items()
        if not any(setting.is_required() for setting in found.Config.model_fields.values())
    ]
    if bare:
        items.append({"enum": bare, "description": "A stage with its defaults."})
    for kind, stage_class in classes.items():
        settings = references[stage_class.Config, "validation"]
        items.append(
            {
                "type": "object",
                "description": stage_class.summary,
                "properties": {kind: settings},
                "required": [kind],
                "additionalProperties": False,
            }
        )
    root["properties"]["stages"]["items"] = {"oneOf": items}
    return {"$schema": DIALECT, **root, "title": "Thresher config", "$defs": definitions}


def limits_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of limits, as ``thresher compare`` takes it."""
    return {"$schema": DIALECT, **Limits.model_json_schema(), "title": "Thresher limits"}


def stages_table() -> list[dict[str, Any]]:
    """Return the stages, as ``thresher stages`` lists them.

    Each has ``name``, ``kind`` (record or corpus), ``summary``, ``speed`` (empty, or what makes it slower than the
    compiled stages), ``documentation`` (with the sources of rules and
    defaults) and ``settings``, a list of ``name``, ``required``,
    ``default`` (a plain value; None where the setting is required or has none) and ``description``.
    """
    return [
        {
            "name": name,
            "kind": stage_class.kind,
            "summary": stage_class.summary,
            "speed": stage_class.speed,
            "documentation": "\n\n".join(filter(None, map(inspect.getdoc, (stage_class, stage_class.Config)))),
            "settings": [
                {
                    "name": setting,
                    "required": field.is_required(),
                    "default": None
                    if field.is_required()
                    else to_jsonable_python(field.get_default(call_default_factory=True)),
                    "description": field.description or "",
                }
                for setting, field in stage_class.Config.model_fields.items()
            ],
        }
        for name, stage_class in known_stages().items()
    ]
