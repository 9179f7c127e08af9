"""YAML files as plain values, with the line of every value.

``ruamel.yaml`` splits the text into events; scalars are resolved here, by the core schema of YAML 1.2 (section 10.3.2
of https://yaml.org/spec/1.2.2/): only true and false are booleans, ``no`` is text, 1e-5 is a number, 010 is ten. What
a reader of the file may overlook is an error: keys that stand twice, a second document, tags beyond the core schema.
Anchors, aliases and merge keys (``<<``) work within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from corpus.errors import UsageError

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_VALUES = 100_000
INT64 = range(-(1 << 63), 1 << 63)

KeyPath = tuple[str | int, ...]

_CORE = "tag:yaml.org,2002:"
_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Place(NamedTuple):
    """Where a value stands: a file (or the command-line option that holds it) and a line, counted from 1."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass
class Document:
    """A YAML document.

    Attributes:
        value: Plain dicts with text keys, lists, str, int, float, bool and None; None for an empty document.
        places: The place of every value by its path; that of a value in a mapping is the place of its key.
        written: Every scalar as it stands in the file, quotes and tag included.
    """

    value: Any
    places: dict[KeyPath, Place] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Return the place of the value at ``path``, or else of the nearest value around it."""
        return next(self.places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.places)


@dataclass
class _Node:
    kind: Literal["scalar", "sequence", "mapping"]
    line: int
    tag: str | None = None
    text: str = ""
    written: str = ""
    plain: bool = False
    children: list[_Node] = field(default_factory=list)


def read_yaml_file(path: Path) -> Document:
    """Read a UTF-8 file that holds one YAML document. Raises UsageError, naming file and line."""
    try:
        size = path.stat().st_size
        if path.is_file() and size > MAX_BYTES:
            raise UsageError(
                f"{path}: {size} bytes are more than a YAML file may have ({MAX_BYTES}); is it another file?"
            )
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{Place(str(path), line)}: not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8"
        ) from None
    return read_yaml(text, str(path))


def read_yaml(text: str, source: str, numbered: bool = True) -> Document:
    """Read a text that holds at most one YAML document.

    Args:
        text: The document.
        source: What errors call it: the path of a file, or a command-line option.
        numbered: Whether errors give lines.

    Raises:
        UsageError: With one line per problem, each with source and line.
    """
    reader = _Reader(text, source, numbered)
    root = reader.compose()
    document = Document(None, {(): reader.place(root.line if root else 1)})
    if root is not None:
        document.value = reader.expand(root, (), document)
    if reader.problems:
        raise UsageError("\n".join(reader.problems))
    return document


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar in the core schema. Raises ValueError for an integer beyond 64 bits."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return bool(_TRUE.fullmatch(text))
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    return text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    if len(text) > 64 or (value := int(text[2:] if base != 10 else text, base)) not in INT64:
        raise ValueError("an integer beyond 64 bits")
    return value


def _float(text: str) -> float:
    lowered = text.lower()
    return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))


class _Reader:
    """Reads one text; problems that do not hinder reading on are collected."""

    def __init__(self, text: str, source: str, numbered: bool) -> None:
        self.text = text
        self.source = source
        self.numbered = numbered
        self.problems: list[str] = []
        self.values = 0

    def place(self, line: int) -> Place:
        return Place(self.source, line if self.numbered else None)

    def fail(self, line: int, message: str) -> UsageError:
        return UsageError(f"{self.place(line)}: {message}")

    def note(self, line: int, message: str) -> None:
        problem = f"{self.place(line)}: {message}"
        if problem not in self.problems:
            self.problems.append(problem)

    def events(self) -> Iterator[Event]:
        """Yield the events of the text; errors of syntax become UsageError."""
        try:
            yield from YAML(typ="safe", pure=True).parse(self.text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            what = " ".join(f"{error.problem or error.context}".split())
            if "'\\t'" in what:
                what += "; indent with spaces, not with tabs"
            elif error.context and error.problem:
                what += f" ({error.context})"
            raise self.fail(line, f"not valid YAML: {what}{self._quote(line)}") from None
        except ReaderError as error:
            line = self.text.count("\n", 0, error.position) + 1
            what = f"the character U+{ord(self.text[error.position]):04X} is not allowed"
            raise self.fail(line, f"not valid YAML: {what}") from None
        except YAMLError as error:
            raise self.fail(1, f"not valid YAML: {error}") from None

    def _quote(self, line: int) -> str:
        """Return the line in question, with a hint about what other tools would have filled in."""
        lines = self.text.splitlines()
        if not self.numbered or line > len(lines):
            return ""
        hint = "; variables are not filled in" if "${" in lines[line - 1] else ""
        return f": {shorten(lines[line - 1].strip(), 120)}{hint}"

    def compose(self) -> _Node | None:
        """Return the root of the one document; aliases become the node that they stand for."""
        root: _Node | None = None
        documents = 0
        open_nodes: list[tuple[_Node, str | None]] = []
        anchors: dict[str, _Node] = {}
        for event in self.events():
            line = event.start_mark.line + 1
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.fail(line, "a second YAML document starts here; one file holds one document")
                if event.version not in (None, (1, 2)):
                    raise self.fail(line, "the file asks for another version of YAML than 1.2; remove the %YAML line")
            elif isinstance(event, NodeEvent):
                node = self._node(event, line, anchors, {name for _, name in open_nodes if name})
                if open_nodes:
                    open_nodes[-1][0].children.append(node)
                else:
                    root = node
                if isinstance(event, (SequenceStartEvent, MappingStartEvent)):
                    open_nodes.append((node, event.anchor))
                    if len(open_nodes) > MAX_DEPTH:
                        raise self.fail(line, f"nested more than {MAX_DEPTH} levels deep")
            elif open_nodes and type(event).__name__ in ("SequenceEndEvent", "MappingEndEvent"):
                open_nodes.pop()
        return root

    def _node(self, event: NodeEvent, line: int, anchors: dict[str, _Node], open_anchors: set[str]) -> _Node:
        if isinstance(event, AliasEvent):
            if event.anchor in open_anchors:
                raise self.fail(line, f"the alias *{event.anchor} stands inside the value that it repeats")
            if event.anchor not in anchors:
                raise self.fail(line, f"the alias *{event.anchor} has no anchor &{event.anchor} before it")
            return anchors[event.anchor]
        if isinstance(event, ScalarEvent):
            written = self.text[event.start_mark.index : event.end_mark.index].strip()
            node = _Node("scalar", line, event.tag, event.value, written, not event.style)
        else:
            kind: Literal["sequence", "mapping"] = "sequence" if isinstance(event, SequenceStartEvent) else "mapping"
            node = _Node(kind, line, getattr(event, "tag", None))
        if event.anchor is not None:
            anchors[event.anchor] = node
        return node

    def expand(self, node: _Node, path: KeyPath, document: Document) -> Any:
        """Return the plain value of a node; notes its places and scalars in ``document``."""
        self.values += 1
        if self.values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise self.fail(node.line, f"aliases give more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        if node.kind == "scalar":
            document.written[path] = node.written
            return self._scalar(node)
        wanted = "seq" if node.kind == "sequence" else "map"
        if node.tag not in (None, "!", _CORE + wanted):
            self._refuse_tag(node)
        if node.kind == "mapping":
            return self._mapping(node, path, document)
        items = []
        for index, child in enumerate(node.children):
            inner = (*path, index)
            document.places[inner] = self.place(child.line)
            items.append(self.expand(child, inner, document))
        return items

    def _mapping(self, node: _Node, path: KeyPath, document: Document) -> dict[str, Any]:
        own: dict[str, tuple[_Node, _Node]] = {}
        merged: dict[str, tuple[_Node, _Node]] = {}
        for key, (key_node, value_node) in self._entries(node, path).items():
            if key == "<<" and key_node.plain:
                for entry_key, entry in self._merged(value_node, path).items():
                    merged.setdefault(entry_key, entry)
            else:
                own[key] = (key_node, value_node)
        result = {}
        for key, (key_node, value_node) in {**merged, **own}.items():
            inner = (*path, key)
            document.places[inner] = self.place(key_node.line)
            result[key] = self.expand(value_node, inner, document)
        return result

    def _entries(self, node: _Node, path: KeyPath) -> dict[str, tuple[_Node, _Node]]:
        """Return key and value node by key; notes keys that are no text and keys that stand twice."""
        entries: dict[str, tuple[_Node, _Node]] = {}
        for key_node, value_node in zip(node.children[::2], node.children[1::2], strict=True):
            key = self._scalar(key_node) if key_node.kind == "scalar" else None
            if not isinstance(key, str) and not value_node.written and key_node.text.isdecimal() and entries:
                before = next(reversed(entries))
                name, number = format_path((*path, before)), f"{entries[before][1].written},{key_node.text}"
                self.note(
                    key_node.line, f"{name}: found {number}; wanted a number without commas (decimals take a point)"
                )
            elif not isinstance(key, str):
                self.note(
                    key_node.line, f"the key {key_node.written or '(list or mapping)'} is no text; put it in quotes"
                )
            elif key in entries:
                name = format_path((*path, key))
                first = entries[key][0].line
                self.note(
                    key_node.line,
                    f"{name}: the key {key!r} stands twice, on lines {first} and {key_node.line}; remove one of them",
                )
            else:
                entries[key] = (key_node, value_node)
        return entries

    def _merged(self, node: _Node, path: KeyPath, depth: int = 0) -> dict[str, tuple[_Node, _Node]]:
        """Return the entries that a merge key brings in; of several mappings the earlier one wins."""
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            raise self.fail(node.line, f"aliases give more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        result: dict[str, tuple[_Node, _Node]] = {}
        if node.kind == "mapping":
            entries = self._entries(node, path)
            inner = entries.pop("<<", None)
            result = {**(self._merged(inner[1], path, depth + 1) if inner else {}), **entries}
        elif node.kind == "sequence" and all(child.kind == "mapping" for child in node.children):
            for child in reversed(node.children):
                result.update(self._merged(child, path, depth + 1))
        else:
            self.note(node.line, "<< takes a mapping or a list of mappings")
        return result

    def _scalar(self, node: _Node) -> str | int | float | bool | None:
        if _SURROGATE.search(node.text):
            self.note(node.line, f"{shorten(node.written)} holds half a surrogate pair, which is no character")
            return None
        try:
            if node.tag in (None, "!"):
                return resolve_plain(node.text) if node.plain and node.tag is None else node.text
            return self._tagged(node)
        except ValueError as error:
            self.note(node.line, f"{shorten(node.written)}: {error}")
            return None

    def _tagged(self, node: _Node) -> str | int | float | bool | None:
        text, tag = node.text, (node.tag or "").removeprefix(_CORE)
        if tag == "str":
            return text
        if tag == "null" and _NULL.fullmatch(text):
            return None
        if tag == "bool" and (_TRUE.fullmatch(text) or _FALSE.fullmatch(text)):
            return bool(_TRUE.fullmatch(text))
        if tag == "int" and _INTEGER.fullmatch(text):
            return _integer(text)
        if tag == "float" and _FLOAT.fullmatch(text):
            return _float(text)
        if tag in ("null", "bool", "int", "float"):
            raise ValueError(f"not a value of the tag !!{tag}")
        self._refuse_tag(node)
        return None

    def _refuse_tag(self, node: _Node) -> None:
        tag = (node.tag or "").replace(_CORE, "!!")
        self.note(node.line, f"the tag {tag} is not allowed here; remove it (tags of the YAML core schema are fine)")


def shorten(text: str, characters: int = 60) -> str:
    """Return the start of a long text."""
    return text if len(text) <= characters else text[:characters] + "…"


def format_path(path: KeyPath) -> str:
    """Return a path as people write it: ``stages[0].language``; an odd key stands in quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if re.fullmatch(r"[\w-]+", part, re.ASCII) else repr(part)
            text += f".{shown}" if text else shown
    return text
