"""The filters of the installed datatrove: which there are, what they are built from, and building one.

Checking a config must be quick and import nothing heavy, so what it needs is read from datatrove's source.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

INSTALL = "install it with: pip install 'thresher[datatrove]'"
PACKAGE = "datatrove.pipeline.filters"

NOT_HERE = {
    "LambdaFilter": "takes a Python function; use the stage python, which takes its name",
    "BaseFilter": "is the base of filters, not one",
}
OWN_ARGUMENTS = {
    "exclusion_writer": "the ledger lists what left",
    "batch_size": "batch_rows says how many records go together",
}
SEED = "seed"


@dataclass(frozen=True)
class Argument:
    """An argument of a filter's constructor.

    Attributes:
        required: whether it has no default.
        wants_tuple: whether its annotation names tuples and no lists.
    """

    required: bool
    wants_tuple: bool


def datatrove_version() -> str:
    """Return the version of datatrove. Raises ValueError, with how to install it, where there is none."""
    try:
        return metadata.version("datatrove")
    except metadata.PackageNotFoundError:
        raise ValueError(f"datatrove is not installed in this Python; {INSTALL}") from None


@cache
def filter_sources() -> Mapping[str, Path]:
    """Return the source file of each filter by the name of its class. Raises ValueError without datatrove."""
    version = datatrove_version()
    spec = importlib.util.find_spec("datatrove")
    folder = Path(spec.origin).parent / "pipeline" / "filters" if spec is not None and spec.origin else Path()
    try:
        tree = ast.parse((folder / "__init__.py").read_bytes())
    except OSError:
        raise ValueError(f"datatrove {version} has no {PACKAGE}; {INSTALL}") from None
    return {
        alias.name: folder / f"{statement.module}.py"
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and statement.level == 1
        for alias in statement.names
    }


def check_filter(name: str) -> None:
    """Raise ValueError where datatrove has no filter of this name, or it cannot be a stage."""
    known = filter_sources()
    if name in NOT_HERE:
        raise ValueError(f"{name} {NOT_HERE[name]}")
    if name not in known:
        usable = [one for one in known if one not in NOT_HERE]
        near = difflib.get_close_matches(name, usable, 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(usable)}"
        raise ValueError(f"datatrove {datatrove_version()} has no filter {name!r}; {hint}")


@cache
def filter_arguments(name: str) -> Mapping[str, Argument]:
    """Return the arguments of a filter's constructor by name; empty where its source does not show them."""
    tree = ast.parse(filter_sources()[name].read_bytes())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    for node in classes[0].body if classes else []:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = node.args
            positional = given.args[1:]
            without = len(positional) - len(given.defaults)
            required = {argument.arg: place < without for place, argument in enumerate(positional)}
            defaults = zip(given.kwonlyargs, given.kw_defaults, strict=True)
            required |= {argument.arg: default is None for argument, default in defaults}
            return {
                argument.arg: Argument(required[argument.arg], _wants_tuple(argument.annotation))
                for argument in (*positional, *given.kwonlyargs)
            }
    return {}


def _wants_tuple(annotation: ast.expr | None) -> bool:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)} if annotation else set()
    return "tuple" in names and "list" not in names


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError where a filter's constructor does not take these arguments."""
    known = filter_arguments(name)
    usable = [argument for argument in known if argument not in OWN_ARGUMENTS]
    for argument in arguments:
        if argument in OWN_ARGUMENTS:
            raise ValueError(f"{argument} has no use here: {OWN_ARGUMENTS[argument]}")
        if argument not in known:
            near = difflib.get_close_matches(argument, usable, 1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(usable) or 'none'}"
            raise ValueError(f"{name} takes no argument {argument!r}; {hint}")
    missing = [argument for argument in usable if known[argument].required and argument not in arguments]
    if missing:
        raise ValueError(f"{name} needs {' and '.join(missing)}; write arguments: {{{missing[0]}: …}}")
    seed = arguments.get(SEED, 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed is {seed!r}; wanted a whole number of at least 0, so that each run draws the same")


def build_filter(name: str, arguments: Mapping[str, Any]) -> Any:
    """Import datatrove and return a filter; lists become tuples where it wants these. Raises what datatrove raises."""
    from loguru import logger

    found = getattr(importlib.import_module(PACKAGE), name)
    # What filters log for each record would run through the progress bar.
    logger.disable("datatrove")
    known = filter_arguments(name)
    given = {
        key: tuple(value) if isinstance(value, list) and known[key].wants_tuple else value
        for key, value in arguments.items()
    }
    if SEED in known:
        given.setdefault(SEED, 0)
    return found(**given)
