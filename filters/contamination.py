"""Texts that hold items of benchmarks: the stage ``contamination``.

What other tools do: GPT-3 (arXiv 2005.14165, appendix C) cuts around 13-grams; datatrove 0.10 drops a document for one
12-gram of an answer or of the junction of question and answer; AI2's decon weighs the n-grams of an item by inverse
document frequency and wants a share of the item that depends on its length, and its answer nearby.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from corpus.stages import (
    EditingStage,
    Judgement,
    Off,
    RecordStage,
    Rule,
    Signal,
    Stage,
    StageConfig,
    Test,
    TextBatch,
    TextField,
    stage,
    threshold_rules,
)
from filters.contamination_settings import ItemLengths

if TYPE_CHECKING:
    import pyarrow as pa

    from filters.contamination_index import ContaminationIndex
    from filters.suites import BenchmarkFiles

Share = Annotated[float, Field(ge=0.5, lt=1)]
Words = Annotated[int, Field(ge=1, le=1000)]


BOILERPLATE_SOURCES = 50
"""Our own choice: a licence or a template is in thousands of sources, a leaked item of a benchmark in a few mirrors."""

COUNTS = (
    Signal("short_items", "int64", "Items found word by word that are too short for a share."),
    Signal("question_only", "int64", "Short questions found without answer, choices or context near."),
)


class ContaminationConfig(StageConfig):
    """Settings of ``contamination``: which benchmarks, how much of an item is too much, and what happens then."""

    suites: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, description="Suite files or globs that declare the benchmarks, such as [suites/*.yaml]."
    )
    action: Literal["drop", "cut", "flag"] = Field(
        default="drop", description="Drop the record, cut the item out of its text, or only list it in evidence/."
    )
    threshold: Share | Off = Field(
        default=0.8, description="Share of an item of 25 words or more, by weight, that a text may hold."
    )
    medium_threshold: Share | Off = Field(
        default=0.85, description="Share of a shorter item, from edited_words on, that a text may hold."
    )
    short_items: Literal["on", "off"] = Field(
        default="on", description="Look for items that are shorter still; these must be found word by word."
    )
    edited_words: Words = Field(default=13, description="Words from which on an item is found with words changed.")
    question_words: Words = Field(
        default=8,
        description="Words from which on a question counts without its answer, choices or context near it.",
    )
    answer_words: Words = Field(default=20, description="Words from which on an answer counts without its question.")
    answer_distance: int = Field(
        default=50, ge=0, le=10_000, description="Words that may stand between a question and what belongs to it."
    )
    margin: int = Field(
        default=200,
        ge=0,
        le=100_000,
        description="Characters that are cut before and behind an item as well; GPT-3 cut 200.",
    )
    minimum_left: Annotated[int, Field(ge=1)] | Off = Field(
        default=200, description="Characters that a cut must leave of a text; else its record is dropped."
    )
    boilerplate: Annotated[int, Field(ge=2, le=1000)] | Off = Field(
        default=BOILERPLATE_SOURCES,
        description="Sources (files, for records without one) from which on an n-gram is boilerplate and does not "
        "count; off: all count, in a single pass.",
    )
    boilerplate_file: str | None = Field(
        default=None, description="File with a text per line whose n-grams do not count either, such as licences."
    )
    field: TextField | None = Field(default=None, description="Field that is searched; default both.")

    @model_validator(mode="after")
    def _a_list_needs_the_count(self) -> ContaminationConfig:
        if self.boilerplate_file is not None and self.boilerplate == "off":
            raise ValueError("boilerplate_file needs boilerplate, the number of sources; it is off")
        return self

    @property
    def lengths(self) -> ItemLengths:
        """The lengths by which items are treated."""
        return ItemLengths(self.question_words, self.edited_words, self.answer_words)


@stage("contamination")
class Contamination(RecordStage):
    """Drops, cuts or flags texts that hold items of benchmarks.

    *Texts* are compared by their tokens, see ``filters.contamination_tokens``: line ends, capitals, punctuation,
    apostrophes, full-width forms and format characters make no difference. Mark-up and character references are not
    decoded. A paraphrase is not found: on the rephrased GSM8K of lm-sys/llm-decontaminator no n-gram rule finds much.

    *What is looked for* of an item: its question; its answer from ``answer_words`` on; a question of fewer than
    ``question_words`` together with its answer. Choices are never looked for alone; their order and labels do not
    matter. Parts of fewer than 13 words (``edited_words``) must be found word by word. Of longer ones a share is
    measured: entry and text are aligned token by token, and each token weighs 16 to 32, the more the fewer items have
    it. The share is that of the item, so the length of the document does not matter. A question of five to seven words
    counts only where its answer, half of its choices or its context stands near; without, it is listed as
    ``question_only`` in ``evidence/`` and drops nothing. Items with fewer than five tokens or four distinct ones are
    not looked for: ``thresher suites check`` lists them.

    With the action ``cut`` each field of a pair is searched and cut by itself, and thresholds decide what is cut: the
    stage is then a ``ContaminationCut``. Else ``both`` is prompt, a blank line, response.
    """

    Config = ContaminationConfig
    default_field = "both"
    summary = "Items of benchmarks in texts: drop, cut or flag."
    finds = True
    config: ContaminationConfig
    _index: ContaminationIndex | None = None

    @classmethod
    def variant(cls, config: StageConfig) -> type[Stage]:
        """Return a stage that edits texts where the settings ask for it; only such a one has the signals of edits."""
        assert isinstance(config, ContaminationConfig)
        if config.boilerplate != "off":
            from filters.contamination_corpus import ContaminationCorpus

            return ContaminationCorpus
        return ContaminationCut if config.action == "cut" else cls

    def signals(self) -> tuple[Signal, ...]:
        """Return scores, counts and the item."""
        return (
            Signal("score", "float64", "Highest share of an item of 25 words or more."),
            Signal("medium_score", "float64", "Highest share of a shorter item, from edited_words on."),
            *COUNTS,
            Signal("best_item", "string", "Benchmark and id of the item with the highest share; null without one."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that drop records."""
        if self.config.action != "drop":
            return ()
        table: tuple[tuple[str, str, Test], ...] = (
            ("threshold", "score", "at_most"),
            ("medium_threshold", "medium_score", "at_most"),
        )
        short = Rule("short_items", "short_items", "at_most", 0.0)
        return (*threshold_rules(self.config, table), *((short,) if self.config.short_items == "on" else ()))

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digest of the suites. Raises UsageError if there is none, or one cannot be read."""
        from corpus.digests import file_digest
        from filters.suites import content_digest

        digests = {"suites": content_digest(self._files())}
        if self.config.boilerplate_file is not None:
            digests["boilerplate_file"] = file_digest(self.config.boilerplate_file, "boilerplate_file")
        return digests

    def prepare(self) -> None:
        """Map the index into memory; build it first where no process did. Raises UsageError."""
        import filters.contamination_parts_kernel  # noqa: F401
        from filters.contamination_files import prepared_index

        self._index = prepared_index(self._files(), self.config.lengths)

    def judge(self, batch: TextBatch) -> Judgement:
        """Return own signals, and spans of what was found."""
        from filters.contamination_evidence import gather
        from filters.contamination_findings import judgement

        evidence = gather(batch.texts, batch.alive, self.index(), self.config.answer_distance)
        return judgement(batch.texts, evidence, self.index(), self.config)

    def index(self) -> ContaminationIndex:
        """Return the index; call ``prepare`` first."""
        if self._index is None:
            raise RuntimeError("call prepare() before judge()")
        return self._index

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the signals."""
        return self.judge(batch).signals

    def _files(self) -> Sequence[BenchmarkFiles]:
        from filters.suites import all_files, find_suites

        return all_files(find_suites(self.config.suites, f"{self.name}.suites"))


class ContaminationCut(Contamination, EditingStage):
    """The stage ``contamination`` with the action ``cut``; each field of a pair is searched by itself."""

    def edits(self) -> bool:
        """Say that items are cut."""
        return True

    def own_signals(self) -> tuple[Signal, ...]:
        """Return the counts of items."""
        missing = Signal("characters_missing", "int64", "Characters by which the cuts leave less than minimum_left.")
        return (Signal("items", "int64", "Items that were cut."), *COUNTS, missing)

    def own_rules(self) -> tuple[Rule, ...]:
        """Return the rule that a cut must leave enough."""
        left = Rule("minimum_left", "characters_missing", "at_most", 0.0)
        return (left,) if self.config.minimum_left != "off" else ()

    def signals(self) -> tuple[Signal, ...]:
        """Return own signals, then those of the edits."""
        return EditingStage.signals(self)

    def rules(self) -> tuple[Rule, ...]:
        """Return own rules, then that an edit must leave some text."""
        return EditingStage.rules(self)
