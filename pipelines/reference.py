"""The reference of configs, stages and commands as Markdown, made from the models that check them.

``python -m pipelines.reference docs/reference.md`` writes it; a test compares the file with what this makes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corpus.errors import UsageError
from corpus.stages import Stage, known_stages
from pipelines.cli import command_parser
from pipelines.schemas import config_schema, stages_table

INTRODUCTION = """\
# Reference

Made from the config models and the command line by `python -m pipelines.reference docs/reference.md`; do not edit it.
`thresher stages`, `thresher schema` and `thresher COMMAND --help` print the same.

A config is a YAML file (YAML 1.2: only `true` and `false` are booleans). Unknown keys, wrong types and unknown stages
are errors with file, line and the nearest valid name. `off` switches a rule off. A rule has the name of the setting
that limits it; ledger, report and `--set STAGE.SETTING=VALUE` use these names.
"""
SECTIONS = {
    "input": ("InputConfig", "Which records to read and what their columns mean."),
    "checks": ("Checks", "What must hold before a run is published."),
    "checks.limits": (
        "Limits",
        "How far a run may differ from the earlier one; also the content of the file of `thresher compare --limits`.",
    ),
}
NAMES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": ""}


def reference() -> str:
    """Return the page."""
    schema = config_schema()
    definitions = schema["$defs"]
    sections: dict[str, Any] = {name: settings for name, settings in schema["properties"].items() if name != "stages"}
    parts = [INTRODUCTION, "## Config", "### Sections and sizes", *_settings(sections, schema, definitions)]
    parts.append("The section `stages` is the list of stages in their order: a name, or a name with its settings.")
    for name, (model, summary) in SECTIONS.items():
        parts += [
            f"### `{name}`",
            summary,
            *_settings(definitions[model]["properties"], definitions[model], definitions),
        ]
    parts.append("## Stages")
    classes = known_stages()
    for entry in stages_table():
        model = definitions[classes[entry["name"]].Config.__name__]
        kind = f"{entry['kind']} stage" + (f"; {entry['speed']}" if entry["speed"] else "")
        parts += [f"### `{entry['name']}`", f"{entry['summary']} ({kind})", entry["documentation"]]
        parts += [*_settings(model["properties"], model, definitions), *_signals(classes[entry["name"]])]
    parts += ["## Commands", *_commands(command_parser(), "thresher")]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _settings(properties: Mapping[str, Any], model: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of settings, then those of the objects that are values of them."""
    rows = ["| setting | value | default | |", "|---|---|---|---|"]
    for name, setting in properties.items():
        required = name in model.get("required", ())
        default = "required" if required else _code(setting.get("default"))
        rows.append(
            f"| `{name}` | {_value(setting, definitions)} | {default} | {_cell(setting.get('description', ''))} |"
        )
    yield "\n".join(rows)
    for name, setting in properties.items():
        for reference_name in _objects(setting):
            inner = definitions[reference_name]
            if reference_name in {model_name for model_name, _ in SECTIONS.values()} or "properties" not in inner:
                continue
            if _is_override(inner, properties):
                continue
            yield f"`{name}` may be an object with"
            yield from _settings(inner["properties"], inner, definitions)


def _is_override(inner: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Say whether an object has settings of its stage only, as ``by_language`` has."""
    return set(inner["properties"]) <= set(properties)


def _objects(setting: Mapping[str, Any]) -> list[str]:
    """Return the names of the models that a setting's value may be."""
    found: list[str] = []
    for key, value in setting.items():
        if key == "$ref":
            found.append(value.rpartition("/")[2])
        elif isinstance(value, dict):
            found += _objects(value)
        elif isinstance(value, list):
            found += [name for item in value if isinstance(item, dict) for name in _objects(item)]
    return list(dict.fromkeys(found))


def _value(setting: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what a setting may be, in words."""
    if "anyOf" in setting:
        kinds = [_value(kind, definitions) for kind in setting["anyOf"]]
        return " or ".join(dict.fromkeys(filter(None, kinds)))
    if "const" in setting:
        return f"`{setting['const']}`"
    if "enum" in setting:
        return ", ".join(f"`{value}`" for value in setting["enum"])
    if "$ref" in setting:
        return "object" if definitions[setting["$ref"].rpartition("/")[2]].get("properties") else "any"
    kind = setting.get("type")
    if kind == "array":
        items = _value(setting.get("items", {}), definitions)
        return f"list of {items}" if items else "list"
    if kind == "object":
        inner = setting.get("additionalProperties") or next(iter(setting.get("patternProperties", {}).values()), None)
        values = _value(inner, definitions) if isinstance(inner, dict) else ""
        return f"mapping to {values}" if values else "object"
    return " ".join(filter(None, (NAMES.get(str(kind), ""), _range(setting))))


def _range(setting: Mapping[str, Any]) -> str:
    bounds = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    # What an int32 or int64 holds is no limit that anybody meets.
    known = [(sign, setting[name]) for name, sign in bounds if name in setting and setting[name] < 1 << 31]
    return ", ".join(f"{sign} {value:,}" for sign, value in known)


def _code(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _signals(stage_class: type[Stage]) -> Iterator[str]:
    """Yield the table of what a stage measures under its default settings, where these make a stage."""
    config = stage_class.Config.model_construct()
    try:
        made = stage_class.variant(config)(config, "name", "text")
        signals = [signal for signal in made.signals() if signal.kind != "binary"]
    except (AttributeError, TypeError, UsageError):
        return
    if signals:
        yield "\n".join(
            [
                "| signal | type | |",
                "|---|---|---|",
                *(f"| `{signal.name}` | {signal.kind} | {_cell(signal.description)} |" for signal in signals),
            ]
        )


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Yield what each command does and takes; argparse's own text differs between versions of Python."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for command, sub in action.choices.items():
            yield f"### `{name} {command}`"
            yield " ".join(filter(None, (sub.description, sub.epilog)))
            rows = [_argument(item) for item in sub._actions if item.help is not argparse.SUPPRESS]
            rows = [row for row in rows if row]
            if rows:
                yield "\n".join(["| argument | |", "|---|---|", *rows])
            yield from _commands(sub, f"{name} {command}")


def _argument(action: argparse.Action) -> str:
    if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
        return ""
    takes = "" if action.nargs == 0 else f" {action.metavar or _choices(action)}"
    name = f"{', '.join(action.option_strings)}{takes}".strip()
    return f"| `{_cell(name)}` | {_cell(inspect.cleandoc(action.help or ''))} |"


def _choices(action: argparse.Action) -> str:
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def main(arguments: list[str]) -> None:
    """Write the page to a file."""
    if len(arguments) != 1:
        sys.exit("usage: python -m pipelines.reference FILE")
    Path(arguments[0]).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
