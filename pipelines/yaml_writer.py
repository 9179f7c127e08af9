"""Plain values as YAML that reads the same by YAML 1.1 and 1.2, and gives the same bytes for the same values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corpus.yaml_reader import resolve_plain

# What YAML 1.1 takes for booleans although 1.2 takes it for text.
_OLD_BOOLEANS = frozenset(["y", "n", "yes", "no", "on", "off"])
_SAFE_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Characters that JSON leaves as they are and YAML does not read back, or takes for line breaks.
_ESCAPED = re.compile("[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def dump_yaml(value: Mapping[str, Any]) -> str:
    """Return a mapping of plain values (dict, list, str, int, float, bool, None) as YAML, keys in their order.

    Raises ValueError for a number that is not finite, TypeError for a value of another type.
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a value in block style, without indentation."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _entry(f"{_scalar(key)}:", inner, indent="  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for inner in value:
            if isinstance(inner, (Mapping, list, tuple)) and inner:
                first, *rest = _lines(inner)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
            else:
                yield f"- {_scalar(inner)}"
    else:
        yield _scalar(value)


def _entry(opening: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (Mapping, list, tuple)) and value:
        yield opening
        yield from (indent + line for line in _lines(value))
    else:
        yield f"{opening} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = (
            _SAFE_TEXT.fullmatch(value) and value.lower() not in _OLD_BOOLEANS and isinstance(resolve_plain(value), str)
        )
        return value if plain else _quoted(value)
    if isinstance(value, float):
        text = json.dumps(value, allow_nan=False)
        mantissa, exponent, power = text.partition("e")
        # YAML 1.1 takes 1e-05 for text.
        return text if not exponent or "." in mantissa else f"{mantissa}.0e{power}"
    if isinstance(value, (Mapping, list, tuple)):
        return "{}" if isinstance(value, Mapping) else "[]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))
