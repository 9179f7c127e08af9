"""Find and load a function of the user's by its name: ``package.module:name`` or ``folder/file.py:name``.

A function is never pickled: every worker finds it by this name. Checking a config must not run code of the user's, so
``check_function`` only reads source; ``load_function`` imports.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from corpus.errors import UsageError

WANTED = "wanted package.module:name, or path/of/file.py:name"
SHOWN_NAMES = 8

_LOADING = threading.Lock()


@dataclass(frozen=True)
class FunctionName:
    """Where a function is.

    Attributes:
        module: dotted name of a module that this Python finds, or the path or URI of a Python file.
        name: the function's name in it.
    """

    module: str
    name: str

    @property
    def is_file(self) -> bool:
        """Whether ``module`` is a file."""
        return self.module.endswith(".py")

    @property
    def is_remote(self) -> bool:
        """Whether ``module`` is a file in an object store."""
        return "://" in self.module


def parse_function_name(text: str) -> FunctionName:
    """Return the parts of ``module:name``. Raises ValueError saying what is wrong with the text."""
    module, colon, name = text.rpartition(":")
    if not colon and text.endswith(".py"):
        raise ValueError(f"{text} names no function; {WANTED}")
    if not colon:
        before, dot, last = text.rpartition(".")
        raise ValueError(f"{WANTED}" + (f"; did you mean {before}:{last}?" if dot else ""))
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name of a function; {WANTED}")
    if not module.endswith(".py"):
        if "/" in module:
            raise ValueError(f"{module} is no Python file (.py); {WANTED}")
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"{module!r} is no name of a module; {WANTED}")
    return FunctionName(module, name)


def source_file(function: FunctionName) -> Path | None:
    """Return the local file that defines a function, found without importing anything.

    None for a file in a store and for modules that are in no file. Raises ValueError where there is no such file or
    module, saying where it was looked for.
    """
    if function.is_remote:
        return None
    if function.is_file:
        path = Path.cwd() / function.module
        if not path.is_file():
            raise ValueError(f"there is no file {path}; paths start at the current folder")
        return path
    origin = _module_origin(function.module)
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _module_origin(module: str) -> str | None:
    names = module.split(".")
    path: Any = None
    spec = None
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            raise ValueError(_not_found(name, names))
        path = spec.submodule_search_locations
        if path is None and depth < len(names):
            raise ValueError(f"{name} is a module, not a package, so there is no {module}")
    return spec.origin if spec is not None else None


def _not_found(name: str, names: list[str]) -> str:
    beside = Path.cwd().joinpath(*names).with_suffix(".py")
    if beside.is_file():
        remedy = f"for the file {beside} write {'/'.join(names)}.py:name"
    else:
        remedy = "install its package in this Python and that of the workers, or name a file: ./rules.py:name"
    return f"no module {name} was found in the packages of {sys.prefix} or on PYTHONPATH; {remedy}"


def check_function(function: FunctionName) -> None:
    """Raise ValueError where the source shows that a function cannot be used; no code is run.

    A module without source, and a name that it may get in other ways (``from x import *``), are left to
    ``load_function``.
    """
    path = source_file(function)
    if path is None or path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise ValueError(f"{path} is no Python source: {error}") from None
    defined = dict(_definitions(tree.body))
    if "*" in defined or "__getattr__" in defined:
        return
    node = defined.get(function.name)
    if node is None:
        public = [name for name in defined if not name.startswith("_")]
        near = difflib.get_close_matches(function.name, public, 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(public[:SHOWN_NAMES]) or 'no names'}"
        raise ValueError(f"{path} has no {function.name}; {hint}")
    if isinstance(node, ast.ClassDef):
        raise ValueError(f"{function.name} in {path}, line {node.lineno}, is a class; wanted a function")
    if isinstance(node, ast.AsyncFunctionDef):
        raise ValueError(f"{function.name} in {path}, line {node.lineno}, is async; wanted a plain function")


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that statements of a module define, each with its statement; ``*`` where others may be."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield (alias.asname or alias.name).partition(".")[0], statement
        else:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id, statement
            for field in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _definitions(handler.body)


def load_function(function: FunctionName, setting: str) -> Callable[..., Any]:
    """Import a module and return its function. Raises UsageError that begins with ``setting``."""
    module = _load_file(function, setting) if function.is_file else _import(function, setting)
    try:
        found = getattr(module, function.name)
    except AttributeError:
        raise UsageError(f"{setting}: {_shown(module)} has no {function.name}") from None
    if inspect.isclass(found) or not callable(found) or inspect.iscoroutinefunction(found):
        kind = "a class" if inspect.isclass(found) else "async" if callable(found) else type(found).__name__
        raise UsageError(f"{setting}: {function.name} in {_shown(module)} is {kind}; wanted a plain function")
    return found  # type: ignore[no-any-return]


def _shown(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def _import(function: FunctionName, setting: str) -> ModuleType:
    try:
        source_file(function)
        return importlib.import_module(function.module)
    except ValueError as error:
        raise UsageError(f"{setting}: {error}") from None
    except (Exception, SystemExit) as error:
        raise UsageError(_import_failure(function, setting, error)) from error


def _load_file(function: FunctionName, setting: str) -> ModuleType:
    """Return the module of a file; it is loaded once per process and content."""
    source = read_source(function, setting)
    name = f"thresher_user_{hashlib.sha256(source).hexdigest()[:16]}"
    with _LOADING:
        if name in sys.modules:
            return sys.modules[name]
        module = ModuleType(name)
        module.__file__ = function.module if function.is_remote else str(Path.cwd() / function.module)
        # Dataclasses and the like look their module up while it is loaded.
        sys.modules[name] = module
        try:
            exec(compile(source, module.__file__, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UsageError(_import_failure(function, setting, error)) from error
        return module


def _import_failure(function: FunctionName, setting: str, error: BaseException) -> str:
    from filters.user_errors import error_text

    where = Path.cwd() / function.module if function.is_file and not function.is_remote else function.module
    return f"{setting}: {where} cannot be imported: {error_text(error)}"


def read_source(function: FunctionName, setting: str) -> bytes:
    """Return the bytes of the file that defines a function, empty for a module that is in no file.

    Raises UsageError that begins with ``setting``.
    """
    from corpus.filesystem import locate, open_file, redact

    try:
        path = source_file(function)
        if path is not None:
            return path.read_bytes()
        if not function.is_remote:
            return b""
        with open_file(locate(function.module)) as file:
            return b"".join(iter(lambda: file.read(1 << 20), b""))
    except ValueError as error:
        raise UsageError(f"{setting}: {error}") from None
    except UsageError as error:
        raise UsageError(f"{setting}: {error}") from None
    except Exception as error:  # each store has errors of its own
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{setting}: cannot read {redact(function.module)}: {reason}") from None


def source_digest(function: FunctionName, setting: str) -> str:
    """Return a function's name with the SHA-256 of the file that defines it, without the folder of a file."""
    digest = hashlib.sha256(read_source(function, setting)).hexdigest()
    return f"{function.module.rpartition('/')[2]}:{function.name} sha256={digest}"
