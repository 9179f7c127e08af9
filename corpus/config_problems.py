"""What is wrong with a config, in words: place, setting, what was found, what is wanted, the nearest name."""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from corpus.errors import UsageError
from corpus.yaml_reader import Document, KeyPath, Place, format_path, resolve_plain, shorten

CLOSE_ENOUGH = 0.75


class Problems:
    """Collects the problems of one config, so that all are told in one go."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.messages: list[str] = []
        self._elsewhere: dict[str, list[str]] = {}

    def add(self, path: KeyPath, message: str, shown: str | None = None) -> None:
        """Note a problem with the value at ``path``, shown as ``shown`` or as stage.setting."""
        name = self.show(path) if shown is None else shown
        self.add_at(self.document.place(path), f"{name}: {message}" if name else message)

    def add_at(self, place: Place, message: str) -> None:
        """Note a problem that is not about one value."""
        problem = f"{place}: {message}"
        if problem not in self.messages:
            self.messages.append(problem)

    def raise_if_any(self) -> None:
        """Raise UsageError with one line per problem, if there are any."""
        if self.messages:
            raise UsageError("\n".join(self.messages))

    def known_elsewhere(self, section: str, keys: Iterable[str]) -> None:
        """Remember which settings a section has, to say where a misplaced key belongs."""
        for key in keys:
            places = self._elsewhere.setdefault(_plain_letters(key), [])
            if (shown := f"{section}.{key}" if section else key) not in places:
                places.append(shown)

    def elsewhere(self, key: str) -> list[str]:
        """Return the settings of all sections that were probably meant by ``key``, those of listed stages first."""
        return self._elsewhere.get(nearest(key, self._elsewhere) or "", [])

    def show(self, path: KeyPath) -> str:
        """Return a path as users write it: the settings of a stage below the stage's name."""
        if len(path) > 2 and path[0] == "stages" and isinstance(path[2], str):
            settings = value_at(self.document.value, path[:3])
            name = settings.get("name") if isinstance(settings, dict) and path[3:] != ("name",) else None
            return format_path((name if isinstance(name, str) else path[2], *path[3:]))
        return format_path(path)

    def add_validation_error(self, error: ValidationError, model: type[BaseModel], base: KeyPath) -> None:
        """Note what pydantic found wrong with the value at ``base``, which ``model`` was to hold."""
        section = value_at(self.document.value, base)
        wanted: dict[KeyPath, list[str]] = {}
        meant: set[str] = set()
        missing: list[KeyPath] = []
        unknown: list[KeyPath] = []
        told: list[KeyPath] = []
        for item in error.errors(include_url=False):
            relative = _value_path(item, section)
            path = (*base, *relative)
            if item["type"] == "extra_forbidden":
                unknown.append(path)
                meant.add(self._add_unknown_key(path, _field_names(model, relative[:-1])))
            elif item["type"] == "missing":
                missing.append(path)
            elif item["type"] == "value_error":
                told.append(path)
                self.add(path, item["msg"].removeprefix("Value error, "))
            elif (wish := _wish(item)) not in wanted.setdefault(path, []):
                wanted[path].append(wish)
        for path, wishes in wanted.items():
            if any(other[: len(path)] == path and other != path for other in [*wanted, *missing, *unknown]):
                continue  # one member of a union fits, and what is wrong stands further inside
            if path in told:
                continue  # one member fits, but for how its values go together
            self.add(path, f"found {self.found(path)}; wanted {' or '.join(wishes)}{self._remedy(path, wishes)}")
        for path in missing:
            if path[-1] not in meant:
                self.add(path, "is missing; it has no default")

    def add_unknown_name(self, path: KeyPath, name: str, known: Iterable[str], shown: str) -> None:
        """Note a stage name that does not exist."""
        candidates = list(known)
        near = nearest(name, candidates)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(candidates)}"
        self.add(path, f"no stage is called {name!r}; {hint}", shown)

    def _add_unknown_key(self, path: KeyPath, names: Sequence[str]) -> str:
        """Note an unknown key; return the key that was probably meant, or nothing."""
        key = str(path[-1])
        near = nearest(key, names)
        elsewhere = self.elsewhere(key)
        if near:
            hint = f"did you mean {near}?"
        elif elsewhere:
            hint = f"there is {' or '.join(elsewhere[:3])}"
        else:
            hint = f"there are {', '.join(names)}" if names else "nothing is known here"
        self.add(path, f"unknown setting here; {hint}")
        return near or ""

    def found(self, path: KeyPath) -> str:
        """Return what stands at ``path``: the text as written and the type that it has."""
        value = value_at(self.document.value, path)
        kind = type_name(value)
        written = self.document.written.get(path)
        if written == "":
            return f"nothing ({kind})"
        if isinstance(value, (dict, list)):
            return f"{shorten(json.dumps(value, ensure_ascii=False, default=repr))} ({kind})"
        if value is None and written in (None, "null"):
            return kind
        if written is None:
            written = json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
        return f"{shorten(' '.join(written.split()))} ({kind})"

    def _remedy(self, path: KeyPath, wishes: Iterable[str]) -> str:
        value = value_at(self.document.value, path)
        if not isinstance(value, str) or not any("number" in wish for wish in wishes):
            return ""
        try:
            number = resolve_plain(value)
        except ValueError:
            return ""
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        return "; write it without quotes" if is_number else ""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that was probably meant by ``name``: the same letters, or else nearly the same spelling."""
    by_letters = {_plain_letters(candidate): candidate for candidate in candidates}
    letters = _plain_letters(name)
    if letters in by_letters:
        return by_letters[letters]
    close = difflib.get_close_matches(letters, by_letters, 1, CLOSE_ENOUGH)
    return by_letters[close[0]] if close else None


def type_name(value: object) -> str:
    """Return what users call the type of a value."""
    for kind, name in (
        (bool, "a boolean"),
        (str, "text"),
        (int, "a whole number"),
        (float, "a number"),
        (list, "a list"),
        (dict, "a mapping"),
        (type(None), "null"),
    ):
        if isinstance(value, kind):
            return name
    return f"a Python {type(value).__name__}"


def value_at(value: Any, path: KeyPath) -> Any:
    """Return the value at a path; None where the path does not exist."""
    for part in path:
        if not _has(value, part):
            return None
        value = value[part]
    return value


def _has(value: Any, part: str | int) -> bool:
    return part in value if isinstance(value, dict) else isinstance(value, list) and part in range(len(value))


def _plain_letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _value_path(item: ErrorDetails, value: Any) -> KeyPath:
    """Return the path of an error below ``value``, without the union members that pydantic's location also has."""
    path: list[str | int] = []
    last = len(item["loc"]) - 1
    for position, part in enumerate(item["loc"]):
        if _has(value, part):
            path.append(part)
            value = value[part]
        elif item["type"] == "missing" and position == last:
            path.append(part)
    return tuple(path)


def _wish(item: ErrorDetails) -> str:
    context: Mapping[str, Any] = item.get("ctx", {})
    wishes = {
        "string_type": "text",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "bool_type": "true or false",
        "list_type": "a list",
        "tuple_type": "a list",
        "dict_type": "a mapping (key: value)",
        "model_type": "a mapping (key: value)",
        "none_required": "null",
        "literal_error": str(context.get("expected", "")).replace("'", ""),
        "greater_than_equal": f"a number of at least {_number(context.get('ge'))}",
        "greater_than": f"a number above {_number(context.get('gt'))}",
        "less_than_equal": f"a number of at most {_number(context.get('le'))}",
        "less_than": f"a number below {_number(context.get('lt'))}",
        "string_pattern_mismatch": f"text of the form {context.get('pattern')}",
        "string_too_short": "text that is not empty",
        "too_short": f"entries, at least {context.get('min_length')}",
    }
    return wishes.get(item["type"]) or re.sub(r"^Input should be ", "", item["msg"])


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _field_names(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the settings that exist in the section at ``path`` below a model."""
    models = [model]
    for part in path:
        if isinstance(part, str):
            annotations = [found.model_fields[part].annotation for found in models if part in found.model_fields]
            if annotations:  # else it is a key of a mapping, such as a language, and the models are those of its values
                models = [inner for annotation in annotations for inner in _models_in(annotation)]
    return [name for found in models for name in found.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models_in(argument)]
