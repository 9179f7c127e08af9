"""Any filter of datatrove as a stage: the stage ``datatrove``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from corpus.errors import ThresherError, UsageError
from corpus.stages import EditingStage, Judgement, Rule, Signal, StageConfig, TextBatch, stage
from filters.datatrove_classes import (
    SEED,
    build_filter,
    check_arguments,
    check_filter,
    datatrove_version,
    filter_arguments,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Ordinary prose that a filter sees before the first record: what fails on it would fail on every record.
PROBE = (
    "The river and its old bridge have been there for as long as people remember.\n"
    "It was built with stone, so that carts of grain could be brought from the mill to the market of the town.\n"
    "In winter the roads are hard to pass, and that is why the people of the valley take care of the bridge.\n"
    "Each spring they come to look at the arches, and they repair what the ice has broken.\n"
    "Nobody knows who was the first to cross it, but everyone has a story of a wet night on the bridge.\n"
)
PROBE_METADATA = {"language": "en", "url": "https://example.com/bridge"}

# These tell of the machine, not of the record: a model or list that cannot be had, a package that is missing.
OF_THE_MACHINE = (OSError, ImportError, MemoryError)


class DatatroveConfig(StageConfig):
    """Settings of ``datatrove``: the filter, and what it is built from."""

    filter: str = Field(description="Class in datatrove.pipeline.filters, such as GopherQualityFilter.")
    arguments: dict[str, JsonValue] = Field(
        default={}, description="Arguments of its constructor; the others keep datatrove's defaults."
    )
    with_language: bool = Field(
        default=False,
        description="Give the filter the label of the language stage before as metadata language, which "
        "C4BadWordsFilter looks at; else that is the column language.",
    )
    field: Literal["text", "prompt", "response"] | None = Field(
        default=None, description="Field that is judged; default the response of a pair."
    )

    @field_validator("filter")
    @classmethod
    def _is_known(cls, value: str) -> str:
        check_filter(value)
        return value

    @field_validator("arguments")
    @classmethod
    def _fit_the_filter(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "filter" in info.data:
            check_arguments(info.data["filter"], value)
        return value


@stage("datatrove")
class Datatrove(EditingStage):
    """Judges texts by a filter of datatrove. It runs at datatrove's speed, which is per document, in Python.

    The filter gets a ``datatrove.data.Document`` of the text, the record_id, and metadata: the user's columns that are
    not null, ``source``, and ``language``. The reason it gives to drop a document is the rule's name in ledger and
    report; without one the rule is ``filter``. What it makes of the text of a document that it keeps is an edit, stored
    as spans; what it writes into the metadata is not kept.

    A record on which the filter raises is a dead letter (``stage_error``). Before the first record the filter sees a
    piece of English prose: what fails on that (a package or model that is missing, an argument of a wrong type) is one
    error, and nothing is read.

    Filters that draw at random (SamplerFilter, and C4BadWordsFilter with keep_fraction) draw by ``seed``, default 0,
    and a hash of the text, so that the result depends on neither order nor workers; equal texts stay or leave together.

    Source: the installed datatrove (``thresher[datatrove]``), whose version is a part of the semantic config. Where
    Thresher has the rules itself (``gopher_quality``, ``gopher_repetition``, ``c4_quality``, ``fineweb_quality``) its
    stages with the preset ``datatrove-0.10`` give the same verdicts on the same words, hundreds of times faster.
    LambdaFilter is the stage ``python``.
    """

    Config = DatatroveConfig
    summary = "Any filter of datatrove, with its own arguments and reasons."
    speed: ClassVar[str] = "per record, in Python"
    may_fail = True
    config: DatatroveConfig
    _filter: Any = None

    def edits(self) -> bool:
        """Every filter may change the text."""
        return True

    def uses_languages(self) -> bool:
        """Say whether the filter is given labels."""
        return self.config.with_language

    def own_signals(self) -> tuple[Signal, ...]:
        """Return the verdict and its reason."""
        return (
            Signal("kept", "int64", "1 if the filter keeps the text, else 0."),
            Signal("reason", "string", "Its reason to drop the text; null without one."),
        )

    def own_rules(self) -> tuple[Rule, ...]:
        """Return the one rule, which the ledger names by its reason."""
        return (Rule("filter", "kept", "at_least", 1.0, named_by="reason"),)

    def fingerprint(self) -> Mapping[str, str]:
        """Return datatrove's version, and the SHA-256 of local files among the arguments. Raises UsageError."""
        import os.path

        try:
            digests = {"datatrove": datatrove_version()}
        except ValueError as error:
            raise UsageError(f"{self.name}.filter: {error}") from None
        for name, value in self.config.arguments.items():
            if isinstance(value, str) and os.path.isfile(value):
                digests[f"arguments.{name}"] = _digest(value, f"{self.name}.arguments.{name}")
        return digests

    def prepare(self) -> None:
        """Build the filter and try it. Raises UsageError if it cannot be used here."""
        from filters.user_errors import error_text

        name = self.config.filter
        try:
            from datatrove.data import Document

            self._filter = build_filter(name, self.config.arguments)
            if self._draws() and not hasattr(self._filter, "uniform"):
                raise ValueError(f"datatrove {datatrove_version()} draws in a way that cannot be repeated")
            self._filter.filter_batch([Document(PROBE, "probe", metadata=dict(PROBE_METADATA))])
        except Exception as error:  # a filter may raise anything
            raise UsageError(
                f"{self.name}: {name} cannot be used here: {error_text(error)}; check arguments, and what the filter "
                "needs beside datatrove"
            ) from error

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return verdict and reason of each text."""
        return self.judge(batch).signals

    def judge(self, batch: TextBatch) -> Judgement:
        """Return verdict and reason of each text, what the filter changed, and where it fails."""
        import numpy as np
        import pyarrow as pa

        from corpus.findings import SPAN_SCHEMA
        from filters.plain_records import records_at, spread, user_columns
        from filters.text_changes import changes
        from filters.user_errors import error_text

        if self._filter is None:
            raise RuntimeError("call prepare() before judge()")
        rows = np.flatnonzero(batch.alive).tolist()
        records = records_at(batch.records, batch.alive)
        texts = batch.texts.take(pa.array(rows, pa.int64())).to_pylist()
        languages: list[str | None] = [None] * len(rows)
        if batch.languages is not None:
            languages = batch.languages.take(pa.array(rows, pa.int64())).to_pylist()
        ids, sources = (records.column(name).to_pylist() for name in ("record_id", "source"))
        columns = zip(user_columns(records), sources, languages, strict=True)
        verdicts: list[tuple[int | None, str | None]] = []
        errors: list[str | None] = []
        spans: list[dict[str, Any]] = []
        for row, text, record_id, others in zip(rows, texts, ids, map(_metadata, columns), strict=True):
            verdict: tuple[int | None, str | None] = (None, None)
            error = None
            try:
                kept, reason, changed = self._ask(text, record_id, others)
                verdict = (int(kept), reason)
                for start, end, replacement in changes(text, changed) if kept and changed != text else ():
                    action = {"action": "redact", "replacement": replacement} if replacement else {"action": "cut"}
                    spans.append({"row": row, "start": start, "end": end, "rule": "filter", **action})
            except OF_THE_MACHINE as fault:
                raise ThresherError(f"{self.name}: {self.config.filter} on {record_id}: {error_text(fault)}") from fault
            except Exception as fault:  # a filter may raise anything
                error = error_text(fault)
            verdicts.append(verdict)
            errors.append(error)
        signals = {
            "kept": pa.array([kept for kept, _ in verdicts], pa.int64()),
            "reason": pa.array([reason for _, reason in verdicts], pa.string()),
        }
        return Judgement(
            {name: spread(values, batch.alive) for name, values in signals.items()},
            pa.RecordBatch.from_pylist(spans, schema=SPAN_SCHEMA),
            spread(pa.array(errors, pa.string()), batch.alive),
        )

    def _draws(self) -> bool:
        return SEED in filter_arguments(self.config.filter)

    def _ask(self, text: str, record_id: str, metadata: dict[str, Any]) -> tuple[bool, str | None, str]:
        """Return whether the filter keeps a text, its reason if not, and what it made of the text."""
        from datatrove.data import Document

        from filters.user_errors import reason_name

        if self._draws():
            import numpy as np
            import xxhash

            seed: Any = self.config.arguments.get(SEED, 0)
            self._filter.uniform = np.random.default_rng([seed, xxhash.xxh3_64_intdigest(text.encode())]).uniform
        document = Document(text, record_id, metadata=metadata)
        (result,) = self._filter.filter_batch([document])
        kept, reason = result if isinstance(result, tuple) else (result, None)
        if not isinstance(document.text, str):
            raise TypeError(f"the filter made a {type(document.text).__name__} of the text")
        document.text.encode()  # raises for what is no valid text
        return bool(kept), None if kept else reason_name(reason), document.text


def _digest(path: str, setting: str) -> str:
    """Return the SHA-256 of a file, which may be a large model."""
    from corpus.digests import sha256_of

    try:
        return sha256_of(path)
    except OSError as error:
        raise UsageError(f"{setting}: cannot read {path}: {error.strerror}; give this user access to it") from None


def _metadata(columns: tuple[dict[str, Any], str | None, str | None]) -> dict[str, Any]:
    others, source, language = columns
    metadata = {name: value for name, value in others.items() if value is not None}
    if source is not None:
        metadata.setdefault("source", source)
    if language is not None:
        metadata["language"] = language
    return metadata
