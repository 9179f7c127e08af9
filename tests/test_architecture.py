"""The import graph: imports point down, only pipelines know Beam, and stage modules are light."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
MAX_LINES = 420

ALLOWED = {
    "corpus": {"corpus"},
    "filters": {"filters", "corpus"},
    "dedup": {"dedup", "corpus"},
    "scorers": {"scorers", "corpus"},
    "reports": {"reports", "filters", "dedup", "scorers", "corpus"},
    "pipelines": {"pipelines", "reports", "filters", "dedup", "scorers", "corpus"},
}
STAGE_PACKAGES = ("filters", "dedup", "scorers")
# Enough for a config model and a stage class; kernels, arrays and models are imported in `prepare` and `measure`.
LIGHT = {"pydantic", "typing_extensions"}

MODULES = sorted(path for package in ALLOWED for path in (REPOSITORY / package).rglob("*.py"))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """Names of the modules that the import statements among the nodes name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "packages are imported by their full name"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported, as far as they can hold imports."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from at_import(statement.orelse)
        elif isinstance(statement, (ast.If, ast.Try, ast.With, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from at_import(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from at_import(handler.body)


def module_file(name: str) -> Path | None:
    """The file of one of our modules, or None where the name is no module of ours."""
    path = REPOSITORY.joinpath(*name.split("."))
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


def loaded_with(path: Path) -> dict[str, str]:
    """Third-party packages that importing a module loads, each with the module of ours that imports it."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    todo = [path]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in imported(list(at_import(parse(module).body))):
            top = name.partition(".")[0]
            if top in ALLOWED:
                todo += [
                    file
                    for file in (module_file(name), module_file(top), module_file(name.rpartition(".")[0]))
                    if file is not None
                ]
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, str(module.relative_to(REPOSITORY)))
    return found


def is_stage(path: Path) -> bool:
    return "\n@stage(" in path.read_text(encoding="utf-8")


def test_there_are_modules() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in MODULES} == set(ALLOWED)
    assert any(is_stage(path) for path in MODULES)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_imports_point_down(path: Path) -> None:
    package = path.relative_to(REPOSITORY).parts[0]
    ours = {name.partition(".")[0] for name in imported(ast.walk(parse(path)))} & set(ALLOWED)
    assert ours <= ALLOWED[package], f"{package} must not import {sorted(ours - ALLOWED[package])}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_only_pipelines_import_beam(path: Path) -> None:
    if path.relative_to(REPOSITORY).parts[0] != "pipelines":
        assert not {name for name in imported(ast.walk(parse(path))) if name.partition(".")[0] == "apache_beam"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_module_is_one_idea(path: Path) -> None:
    assert ast.get_docstring(parse(path)), "a module says what it is for"
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines: split the module"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if is_stage(path) and path.relative_to(REPOSITORY).parts[0] in STAGE_PACKAGES],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_a_stage_module_is_light(path: Path) -> None:
    heavy = {name: module for name, module in loaded_with(path).items() if name not in LIGHT}
    assert not heavy, f"import these where they are used: {heavy}"


def test_config_models_are_light() -> None:
    for name in ("corpus.inputs", "corpus.stages", "corpus.errors"):
        file = module_file(name)
        assert file is not None
        assert set(loaded_with(file)) <= LIGHT


def test_the_checks_see_what_they_forbid(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import torch\nelse:\n    import numba\n"
        "try:\n    import numpy.typing\nexcept ImportError:\n    from pyarrow import compute\n"
        "def late():\n    import pipelines.cli\n"
    )
    now = set(imported(list(at_import(parse(module).body))))
    assert {"numba", "numpy.typing", "pyarrow.compute"} <= now
    assert not {"torch", "pipelines.cli"} & now
    assert {"torch", "pipelines.cli"} <= set(imported(ast.walk(parse(module))))
