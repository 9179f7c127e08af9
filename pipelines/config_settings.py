"""Settings of the command line, put into a config document: ``--set stage.key=value``, options like --output."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from corpus.config_problems import Problems, nearest, type_name
from corpus.errors import UsageError
from corpus.yaml_reader import Document, KeyPath, Place, read_yaml

FORM = "write --set STAGE.KEY=VALUE, --set input.KEY=VALUE or --set KEY=VALUE"


def apply_settings(
    problems: Problems,
    sets: Sequence[str],
    overrides: Mapping[str, Any],
    sections: Collection[str],
    stages: Collection[str],
) -> None:
    """Change the document of ``problems`` in place; what cannot be set is noted there.

    Args:
        problems: Holds the document and takes the problems.
        sets: Texts ``key=value``, the values in YAML; a later one wins over an earlier one, a mapping or list is
            replaced as a whole.
        overrides: Values of command-line options by dotted key; an error names the option by the last part of its key.
            They win over ``sets``.
        sections: The keys of a config.
        stages: The stages that exist.
    """
    for item in sets:
        source = f"--set {' '.join(item.splitlines())}"
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            problems.add_at(Place(source), FORM)
            continue
        try:
            value = read_yaml(text, source, numbered=False)
        except UsageError as error:
            problems.messages.extend(str(error).splitlines())
            continue
        value.written.setdefault((), text.strip())
        _set(problems, key.strip(), value, Place(source), sections, stages)
    for key, plain in overrides.items():
        place = Place(f"--{key.rpartition('.')[2].replace('_', '-')}")
        _set(problems, key, Document(plain, {(): place}), place, sections, stages)


def _set(
    problems: Problems, key: str, value: Document, place: Place, sections: Collection[str], stages: Collection[str]
) -> None:
    parts = key.split(".")
    document = problems.document
    named = stage_paths(document.value)
    base: KeyPath
    if parts[0] in sections:
        base = ()
        if parts[0] == "stages" or parts == ["input"]:
            problems.add_at(place, f"{key} is set by its parts: {FORM}")
            return
    elif parts[0] in named:
        base = named[parts.pop(0)]
        if not parts:
            problems.add_at(place, f"{key} is a stage; {FORM}")
            return
    else:
        problems.add_at(place, f"{parts[0]}: " + _unknown(problems, parts[0], named, sections, stages))
        return
    _put(problems, (*base, *parts), value, place)


def _unknown(
    problems: Problems, name: str, named: Collection[str], sections: Collection[str], stages: Collection[str]
) -> str:
    if name in stages:
        return "the config does not list this stage; add it under stages first"
    near = nearest(name, [*named, *sections])
    if near:
        what = f"did you mean {near}?"
    elif elsewhere := problems.elsewhere(name):
        what = f"there is {' or '.join(elsewhere[:3])}"
    else:
        what = f"there are {', '.join([*named, *sections])}"
    return f"neither a stage of this config nor a setting; {what}"


def stage_paths(config: Any) -> dict[str, KeyPath]:
    """Return where the settings of each stage stand in a config, by the stage's name; malformed items are left out."""
    stages = config.get("stages") if isinstance(config, dict) else None
    paths: dict[str, KeyPath] = {}
    for index, item in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(item, str):
            paths.setdefault(item, ("stages", index, item))
        elif isinstance(item, dict) and len(item) == 1:
            ((kind, settings),) = item.items()
            name = settings.get("name") if isinstance(settings, dict) else None
            paths.setdefault(name if isinstance(name, str) else kind, ("stages", index, kind))
    return paths


def _put(problems: Problems, path: KeyPath, value: Document, place: Place) -> None:
    """Put a value at a path, making the mappings around it where there are none."""
    document = problems.document
    if path[0] == "stages" and isinstance(bare := document.value["stages"][path[1]], str):
        document.value["stages"][path[1]] = {bare: {}}
    section = document.value
    for depth, part in enumerate(path[:-1]):
        section = section.setdefault(part, {}) if isinstance(section, dict) else section[part]
        if not isinstance(section, (dict, list)) or (isinstance(section, list) and path[: depth + 1] != ("stages",)):
            found = problems.show(path[: depth + 1])
            problems.add_at(place, f"{problems.show(path)}: {found} holds {type_name(section)}, so nothing is below it")
            return
    section[path[-1]] = value.value
    for table in (document.places, document.written):
        for old in [old for old in table if old[: len(path)] == path]:
            del table[old]
    document.places.update({(*path, *inner): place for inner in value.places})
    document.written.update({(*path, *inner): text for inner, text in value.written.items()})
