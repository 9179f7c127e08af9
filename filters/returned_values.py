"""Check what a function of the user's returns, and turn it into signals.

For one record, a value becomes one entry per signal. For a batch, arrays become one Arrow array per signal, and errors
of single records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.stages import Signal
from filters.user_errors import one_line, reason_name

SHOWN = 60
TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
WANTED = {"int64": "whole numbers", "float64": "numbers", "string": "texts", "bool": "booleans"}

Reader = Callable[[Any], tuple[Any, ...]]
BatchReader = Callable[[Any, int], tuple[list[pa.Array], list[str | None]]]


class WrongValueError(ValueError):
    """A function returned what it must not; the message says what, and what is wanted."""


def _found(value: Any) -> str:
    """Return a value as an error shows it."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:  # an object of the user's may fail to describe itself
        text = "something"
    return f"{one_line(text, SHOWN)} ({type(value).__name__})"


def read_keep(value: Any) -> tuple[int, str | None]:
    """Return (1 to keep or 0 to drop, name of the reason) for True, False or (False, reason)."""
    keep, reason = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if not isinstance(keep, (bool, np.bool_)) or not (reason is None or isinstance(reason, str)):
        raise WrongValueError(f"returned {_found(value)}; wanted True, False, or (False, 'reason')")
    return int(keep), None if keep else reason_name(reason)


def read_score(value: Any) -> tuple[float | None]:
    """Return the one signal of a score, a number or None."""
    return (_number(value, "returned", "float64"),)


def signals_reader(signals: Sequence[Signal]) -> Reader:
    """Return the reader of a dict with some of these signals; what it does not name is null."""
    names = [signal.name for signal in signals]

    def read(value: Any) -> tuple[Any, ...]:
        _check_names(value, names)
        return tuple(
            _text(value.get(signal.name), f"returned {signal.name}:")
            if signal.kind == "string"
            else _number(value.get(signal.name), f"returned {signal.name}:", signal.kind)
            for signal in signals
        )

    return read


def _check_names(value: Any, names: Sequence[str]) -> None:
    if not isinstance(value, Mapping):
        raise WrongValueError(f"returned {_found(value)}; wanted a dict of the signals {', '.join(names)}")
    unknown = [name for name in value if name not in names]
    if unknown:
        raise WrongValueError(
            f"returned a signal {_found(unknown[0])} that the config does not declare; it declares {', '.join(names)}"
        )


def _number(value: Any, what: str, kind: str) -> Any:
    if value is None:
        return None
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole and (kind == "int64" or not isinstance(value, (float, np.floating))):
        wanted = "a whole number" if kind == "int64" else "a number"
        raise WrongValueError(f"{what} {_found(value)}; wanted {wanted} or None")
    try:
        number = int(value) if kind == "int64" else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not (kind == "float64" or -(1 << 63) <= number < 1 << 63):
        raise WrongValueError(f"{what} {_found(value)}, which {kind} does not hold; wanted a finite number or None")
    return number


def _text(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise WrongValueError(f"{what} {_found(value)}; wanted text or None")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongValueError(f"{what} {_found(value)}; half a surrogate pair is no text") from None
    return str(value)


def read_keep_batch(value: Any, length: int) -> tuple[list[pa.Array], list[str | None]]:
    """Return the signals of an array of booleans, or of a tuple of it and an array of reasons."""
    keep, reasons = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    kept = _array(keep, "bool", length, "")
    names = pa.nulls(length, pa.string()) if reasons is None else _array(reasons, "string", length, "reasons: ")
    entries = [reason_name(reason) for reason in names.to_pylist()]
    dropped = pc.fill_null(pc.invert(kept), False)
    reason = pc.if_else(dropped, pa.array(entries, pa.string()), pa.scalar(None, pa.string()))
    errors = ["returned None; wanted True or False" if one is None else None for one in kept.to_pylist()]
    return [kept.cast(pa.int64()), reason], errors


def read_score_batch(value: Any, length: int) -> tuple[list[pa.Array], list[str | None]]:
    """Return the one signal of an array of scores, nulls included."""
    scores = _array(value, "float64", length, "")
    return [scores], _not_finite([("", scores)], length)


def signals_batch_reader(signals: Sequence[Signal]) -> BatchReader:
    """Return the reader of a dict with arrays for some of these signals; what it does not name is null."""

    def read(value: Any, length: int) -> tuple[list[pa.Array], list[str | None]]:
        _check_names(value, [signal.name for signal in signals])
        arrays = [
            _array(value[signal.name], signal.kind, length, f"{signal.name}: ")
            if signal.name in value
            else pa.nulls(length, TYPES[signal.kind])
            for signal in signals
        ]
        named = [(f"{signal.name}: ", array) for signal, array in zip(signals, arrays, strict=True)]
        return arrays, _not_finite(named, length)

    return read


def _array(value: Any, kind: str, length: int, what: str) -> pa.Array:
    """Return an array of n as Arrow array of the type that a signal has. Raises WrongValueError."""
    wanted = f"an array of {length} {WANTED[kind]}"
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    # A text or a dict would go through as its letters or keys.
    if not isinstance(value, (pa.Array, list)) and not hasattr(value, "__array__"):
        raise WrongValueError(f"returned {what}{_found(value)}; wanted {wanted}")
    try:
        array = value if isinstance(value, pa.Array) else pa.array(value)
        fits = {
            "bool": pa.types.is_boolean,
            "int64": pa.types.is_integer,
            "float64": lambda one: pa.types.is_floating(one) or pa.types.is_integer(one),
            "string": lambda one: pa.types.is_string(one) or pa.types.is_large_string(one),
        }[kind]
        if not pa.types.is_null(array.type) and not fits(array.type):
            raise WrongValueError(f"returned {what}an array of {array.type}; wanted {wanted}")
        array = array.cast(pa.bool_() if kind == "bool" else TYPES[kind])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, WrongValueError):
            raise
        raise WrongValueError(f"returned {what}{_found(value)}; wanted {wanted}: {one_line(str(error), 200)}") from None
    if len(array) != length:
        raise WrongValueError(f"returned {what}an array of {len(array)} for {length} records; wanted {wanted}")
    return array


def _not_finite(arrays: Sequence[tuple[str, pa.Array]], length: int) -> list[str | None]:
    errors: list[str | None] = [None] * length
    for what, array in arrays:
        if pa.types.is_floating(array.type):
            for row in pc.indices_nonzero(pc.invert(pc.is_finite(array))).to_pylist():
                errors[row] = errors[row] or f"returned {what}{array[row].as_py()}; wanted a finite number or null"
    return errors
