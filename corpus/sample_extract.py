"""Taking prose out of files for the sample: docstrings, comments, and help topics."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from corpus.sample_sources import UnreadableFileError

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LineText = tuple[int, str]

MINIMUM_MESSAGE_CHARACTERS = 4

# Parsing is most of the time that the sample takes, so a file is parsed only if a triple-quoted string stands where a
# docstring can stand: first in the file, or first after a line that ends in a colon.
_DOCSTRING_PLACE = re.compile(
    r""":[ \t]*(?:\#[^\n]*)?\n\s*[rRuU]?(?:\"{3}|'{3})|\A(?:\s*\#[^\n]*\n)*\s*[rRuU]?(?:\"{3}|'{3})""", re.VERBOSE
)
_CYTHON_DOCSTRING = re.compile(r':[ \t]*\n\s*[rRuU]?"""(.*?)"""', re.DOTALL)
_HASH_COMMENT = re.compile(r"^(?:[ \t]*#[^\n]*(?:\n|\Z)){3,}", re.MULTILINE)
_C_COMMENT = re.compile(r"/\*.*?\*/|^(?:[ \t]*//[^\n]*(?:\n|\Z)){3,}", re.DOTALL | re.MULTILINE)
_HASH_MARK = re.compile(r"^[ \t]*#+:?[ \t]?", re.MULTILINE)
_TRAILING_SPACE = re.compile(r"[ \t\r\f]+$", re.MULTILINE)
_TRANSLATION = re.compile(r'^msgstr(?:\[\d+\])?((?:\s*"(?:[^"\\\n]|\\.)*")+)', re.MULTILINE)
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_C_MARK = re.compile(r"^[ \t]*(?:/\*+[!<]*|//+[!<]*|\*+/|\*+(?![*/]))[ \t]?|[ \t]*\*+/\Z", re.MULTILINE)


@dataclass(frozen=True)
class Docstring:
    """The documentation of a module, class or function.

    Attributes:
        name: qualified name inside the module; empty for the module itself.
        owner: qualified name of the class around a function or class, null at the top of a module.
        kind: what is documented.
        signature: ``name(parameters)`` of a function, without annotations and defaults; else the name.
        text: the docstring without common indentation; empty if there is none.
    """

    name: str
    owner: str | None
    kind: Literal["module", "class", "function"]
    signature: str
    text: str


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold (lone surrogates become question marks), without trailing white space."""
    return _TRAILING_SPACE.sub("", text).strip("\n").encode("utf-8", "replace").decode("utf-8")


def decode_text(data: bytes) -> str:
    """Return the text of a documentation file in UTF-8. Raises UnreadableFileError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(str(error)) from error
    if "\0" in text:
        raise UnreadableFileError("holds NUL characters, so it is no text")
    return text


def decode_python(data: bytes) -> str:
    """Return the text of a Python file, in the encoding that it declares. Raises UnreadableFileError."""
    try:
        return importlib.util.decode_source(data)
    except (SyntaxError, ValueError, LookupError) as error:
        raise UnreadableFileError(str(error)) from error


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(f"{type(error).__name__}: {error}") from error


def _docstring_text(node: ast.Module | Definition) -> str:
    return clean(ast.get_docstring(node) or "")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = node.args
    names = [argument.arg for argument in given.posonlyargs]
    names += ["/"] if names else []
    names += [argument.arg for argument in given.args]
    if given.vararg is not None:
        names.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        names.append("*")
    names += [argument.arg for argument in given.kwonlyargs]
    if given.kwarg is not None:
        names.append(f"**{given.kwarg.arg}")
    return f"{node.name}({', '.join(names)})"


def _definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Yield the definitions of a body and of its branches in the order of the file, without recursion: elif nests."""
    waiting = body[::-1]
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Definition):
            yield statement
        elif isinstance(statement, ast.If | ast.With | ast.Try):
            inner = list(statement.body)
            if isinstance(statement, ast.Try):
                inner += [line for handler in statement.handlers for line in handler.body]
            if not isinstance(statement, ast.With):
                inner += statement.orelse
            waiting += inner[::-1]


def _docstrings_below(body: list[ast.stmt], owner: str | None) -> Iterator[Docstring]:
    for node in _definitions(body):
        name = f"{owner}.{node.name}" if owner else node.name
        if isinstance(node, ast.ClassDef):
            yield Docstring(name, owner, "class", node.name, _docstring_text(node))
            yield from _docstrings_below(node.body, name)
        elif text := _docstring_text(node):
            yield Docstring(name, owner, "function", _signature(node), text)


def docstrings(source: str) -> list[Docstring]:
    """Return the docstrings of a Python file in the order of the file; classes also where they have none.

    Definitions inside functions are left out. Raises UnreadableFileError for a file that does not parse.
    """
    if _DOCSTRING_PLACE.search(source) is None:
        return []
    tree = _parse(source)
    found = list(_docstrings_below(tree.body, None))
    if text := _docstring_text(tree):
        found.insert(0, Docstring("", None, "module", "", text))
    return found


def help_topics(source: str) -> list[tuple[str, str]]:
    """Return (name, text) of the language's help pages, which ``pydoc_data/topics.py`` holds as one dictionary."""
    for statement in _parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            entries = zip(statement.value.keys, statement.value.values, strict=True)
            return [
                (key.value, clean(value.value))
                for key, value in entries
                if isinstance(key, ast.Constant)
                and isinstance(key.value, str)
                and isinstance(value, ast.Constant)
                and isinstance(value.value, str)
            ]
    return []


def translations(catalogue: str) -> list[str]:
    """Return the different translated messages of a gettext catalogue (``.po``) that are longer than a suffix."""
    messages = ["".join(_QUOTED.findall(quoted)) for quoted in _TRANSLATION.findall(catalogue)]
    unescaped = (message.replace("\\n", "\n").replace('\\"', '"') for message in messages[1:])  # the first is a header
    return [message for message in dict.fromkeys(unescaped) if len(message) >= MINIMUM_MESSAGE_CHARACTERS]


def _texts_by_line(
    source: str, matches: Iterator[re.Match[str]], group: int, strip: Callable[[str], str]
) -> list[LineText]:
    found, line, counted = [], 1, 0
    for match in matches:
        start = match.start(group)
        line += source.count("\n", counted, start)
        counted = start
        found.append((line, clean(strip(match.group(group)))))
    return found


def cython_docstrings(source: str) -> list[LineText]:
    """Return (line, text) of what looks like a docstring in a Cython file, which ``ast`` cannot parse."""
    return _texts_by_line(source, _CYTHON_DOCSTRING.finditer(source), 1, inspect.cleandoc)


def hash_comments(source: str) -> list[LineText]:
    """Return (line, text) of each run of three or more comment lines that begin with ``#``, without the marks."""
    return _texts_by_line(
        source, _HASH_COMMENT.finditer(source), 0, lambda text: textwrap.dedent(_HASH_MARK.sub("", text))
    )


def c_comments(source: str) -> list[LineText]:
    """Return (line, text) of each block comment and run of three or more ``//`` lines of a C or C++ file."""
    return _texts_by_line(source, _C_COMMENT.finditer(source), 0, lambda text: textwrap.dedent(_C_MARK.sub("", text)))
