"""A function of the user's as a stage: the stage ``python``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from corpus.errors import UsageError
from corpus.stages import (
    Judgement,
    Off,
    RecordStage,
    Rule,
    Signal,
    StageConfig,
    TextBatch,
    stage,
    threshold_rules,
)
from filters.user_function import check_function, load_function, parse_function_name, source_digest

if TYPE_CHECKING:
    import pyarrow as pa

LIMITS: tuple[tuple[Literal["minimum", "maximum"], Literal["at_least", "at_most"]], ...] = (
    ("minimum", "at_least"),
    ("maximum", "at_most"),
)
# A rule is one bit of 62, and a signal may have two.
MAX_SIGNALS = 31

SignalName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


def _check_limits(low: float | Off, high: float | Off, prefix: str = "") -> None:
    if not isinstance(low, str) and not isinstance(high, str) and low > high:
        raise ValueError(f"{prefix}minimum ({low}) is above {prefix}maximum ({high}): no record can pass")


class SignalConfig(BaseModel):
    """A value that the function returns for each record."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    kind: Literal["int64", "float64", "string"] = Field(default="float64", description="Its type.")
    minimum: float | Off = Field(default="off", description="Least value that stays; a record without one stays.")
    maximum: float | Off = Field(default="off", description="Largest value that stays.")

    @model_validator(mode="after")
    def _limits_fit(self) -> SignalConfig:
        _check_limits(self.minimum, self.maximum)
        if self.kind == "string" and (self.minimum, self.maximum) != ("off", "off"):
            raise ValueError('a signal of kind string has no minimum or maximum; leave them "off"')
        return self


class PythonConfig(StageConfig):
    """Settings of ``python``: which function, how it is called and what it returns."""

    function: str = Field(
        description="package.module:name of an installed module, or path/of/file.py:name (local, s3://, gs://); a path "
        "starts at the current folder."
    )
    returns: Literal["keep", "score", "signals"] = Field(
        default="keep",
        description="keep: True, False or (False, reason). score: a number. signals: a dict of the declared signals.",
    )
    batch: bool = Field(
        default=False, description="Call the function once per pyarrow.RecordBatch, not once per record."
    )
    arguments: dict[str, JsonValue] = Field(default={}, description="Keyword arguments for the function.")
    minimum: float | Off = Field(
        default="off", description="Least score that stays; a record without a score stays. For returns: score."
    )
    maximum: float | Off = Field(default="off", description="Largest score that stays. For returns: score.")
    signals: dict[SignalName, SignalConfig] = Field(
        default={}, max_length=MAX_SIGNALS, description="The values that the function returns. For returns: signals."
    )

    @field_validator("function")
    @classmethod
    def _exists(cls, value: str) -> str:
        check_function(parse_function_name(value))
        return value

    @model_validator(mode="after")
    def _settings_fit(self) -> PythonConfig:
        _check_limits(self.minimum, self.maximum)
        if self.returns != "score" and (self.minimum, self.maximum) != ("off", "off"):
            raise ValueError(f"minimum and maximum limit a score, and returns is {self.returns}; write returns: score")
        if self.returns != "signals" and self.signals:
            raise ValueError(f"signals is given, and returns is {self.returns}; write returns: signals")
        if self.returns == "signals" and not self.signals:
            raise ValueError("returns: signals needs them declared: signals: {words: {kind: int64, minimum: 5}}")
        return self


@stage("python")
class PythonFunction(RecordStage):
    """Judges records by a function of the user's. It runs at its own speed, not at that of the compiled stages.

    The function is called with one record, a dict of ``record_id``, ``source``, ``text`` (or ``prompt`` and
    ``response``) as it enters the stage, and the user's other columns by their names (a column with one of those names
    is left out). With ``batch: true`` it is called with a ``pyarrow.RecordBatch`` of these columns, which holds the
    records that are alive; the user's columns of JSON files are then one column ``json`` of objects as text.
    ``arguments`` are keyword arguments of each call.

    What it returns is measured, and limits are in the config, so that they can be changed without another run:

    - ``returns: keep``: True or False, or ``(False, "reason")``, where the reason is the rule's name in ledger and
      report; without one the rule is ``function``. In a batch: an array of booleans, or a tuple of it and an array of
      reasons.
    - ``returns: score``: a number, or None, which stays. The rules are ``minimum`` and ``maximum``; a value at a limit
      stays. In a batch: an array of numbers.
    - ``returns: signals``: a dict of the signals that the config declares, each with its kind and its limits; one that
      is missing is None, and stays. The rules are ``signals.<name>.minimum`` and ``signals.<name>.maximum``. In a
      batch: a dict of arrays.

    A record on which the function raises, or returns something else, is a dead letter (``stage_error``); in a batch an
    error is that of all its records, since nobody knows whose it is. ``input.max_errors`` limits how many there may be.

    The function is never pickled: workers import it by its name, so its module must be installed where they run, or be
    a file that they reach (a single one, which imports installed modules only). The digest of that one file is a part
    of the semantic config. The function must give the same for the same record in every process; nobody checks that.
    Changing the record has no effect.
    """

    Config = PythonConfig
    summary = "A function of the user's over one record or a batch of records."
    speed: ClassVar[str] = "per record, in Python"
    may_fail = True
    config: PythonConfig
    _function: Callable[..., Any] | None = None

    def signals(self) -> tuple[Signal, ...]:
        """Return the signals of what the function returns."""
        if self.config.returns == "keep":
            return (
                Signal("kept", "int64", "1 if the function keeps the record, else 0."),
                Signal("reason", "string", "Its reason to drop the record; null without one."),
            )
        if self.config.returns == "score":
            return (Signal("score", "float64", "The function's score; null without one."),)
        return tuple(
            Signal(name, declared.kind, f"The function's {name}; null without one.")
            for name, declared in self.config.signals.items()
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are on."""
        if self.config.returns == "keep":
            return (Rule("function", "kept", "at_least", 1.0, named_by="reason"),)
        if self.config.returns == "score":
            return threshold_rules(self.config, [(limit, "score", test) for limit, test in LIMITS])
        return tuple(
            Rule(f"signals.{name}.{limit}", name, test, float(value))
            for name, declared in self.config.signals.items()
            for limit, test in LIMITS
            if (value := getattr(declared, limit)) != "off"
        )

    def fingerprint(self) -> Mapping[str, str]:
        """Return the function's name with the SHA-256 of its file. Raises UsageError if that cannot be read."""
        return {"function": source_digest(parse_function_name(self.config.function), f"{self.name}.function")}

    def prepare(self) -> None:
        """Import the function. Raises UsageError if it cannot be used."""
        setting = f"{self.name}.function"
        function = load_function(parse_function_name(self.config.function), setting)
        try:
            inspect.signature(function).bind(object(), **self.config.arguments)
        except TypeError as error:
            called = ", ".join(["batch" if self.config.batch else "record", *map("{}=…".format, self.config.arguments)])
            raise UsageError(f"{setting}: {self.config.function} cannot be called as ({called}): {error}") from None
        except ValueError:
            pass  # some functions in C have no signature; the first call tells
        self._function = function

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the signals; null where the function fails."""
        return self.judge(batch).signals

    def judge(self, batch: TextBatch) -> Judgement:
        """Return the signals, and an error for each record on which the function fails."""
        import pyarrow as pa

        from filters.plain_records import records_at, spread
        from filters.returned_values import TYPES

        if self._function is None:
            raise RuntimeError("call prepare() before judge()")
        kinds = [TYPES[signal.kind] for signal in self.signals()]
        records = records_at(batch.records, batch.alive)
        if records.num_rows == 0:
            values: list[pa.Array] = [pa.nulls(0, kind) for kind in kinds]
            errors: list[str | None] = []
        elif self.config.batch:
            values, errors = self._judge_batch(records, kinds)
        else:
            values, errors = self._judge_records(records, kinds)
        signals = {
            signal.name: spread(array, batch.alive) for signal, array in zip(self.signals(), values, strict=True)
        }
        return Judgement(signals, errors=spread(pa.array(errors, pa.string()), batch.alive))

    def _judge_records(
        self, records: pa.RecordBatch, kinds: list[pa.DataType]
    ) -> tuple[list[pa.Array], list[str | None]]:
        import pyarrow as pa

        from filters.plain_records import plain_records
        from filters.returned_values import WrongValueError, read_keep, read_score, signals_reader
        from filters.user_errors import error_text

        returns = self.config.returns
        signals = self.signals()
        read = {"keep": read_keep, "score": read_score, "signals": signals_reader(signals)}[returns]
        nothing = (None,) * len(signals)
        values: list[tuple[Any, ...]] = []
        errors: list[str | None] = []
        for record in plain_records(records):
            found, error = nothing, None
            try:
                found = read(self._call(record))
            except WrongValueError as fault:
                error = str(fault)
            except (Exception, SystemExit) as fault:
                error = error_text(fault, self._file())
            values.append(found)
            errors.append(error)
        columns = zip(*values, strict=True)
        return [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], errors

    def _judge_batch(
        self, records: pa.RecordBatch, kinds: list[pa.DataType]
    ) -> tuple[list[pa.Array], list[str | None]]:
        import pyarrow as pa

        from filters.plain_records import arrow_records
        from filters.returned_values import WrongValueError, read_keep_batch, read_score_batch, signals_batch_reader
        from filters.user_errors import error_text

        returns = self.config.returns
        signals = self.signals()
        read = {"keep": read_keep_batch, "score": read_score_batch, "signals": signals_batch_reader(signals)}[returns]
        length = records.num_rows
        try:
            return read(self._call(arrow_records(records)), length)
        except WrongValueError as fault:
            error = str(fault)
        except (Exception, SystemExit) as fault:
            error = error_text(fault, self._file())
        return [pa.nulls(length, kind) for kind in kinds], [error] * length

    def _call(self, records: Any) -> Any:
        assert self._function is not None
        return self._function(records, **self.config.arguments)

    def _file(self) -> str | None:
        code = getattr(self._function, "__code__", None)
        return code.co_filename if code is not None else None
