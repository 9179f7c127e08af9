"""The quality rules of the C4 data set: the stage ``c4_quality``.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 21(140)
2020 (arXiv 1910.10683), section 2.2. Reference implementations: ``clean_page`` of ``c4_utils`` in TensorFlow Datasets
(TFDS), with which the data set was made, and ``C4QualityFilter`` of datatrove 0.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from corpus.stages import (
    EditingStage,
    Judgement,
    Off,
    Rule,
    Signal,
    StageConfig,
    TextBatch,
    TextField,
    stage,
    threshold_rules,
)
from filters.c4_rules import LIMITS, Preset, line_rules

if TYPE_CHECKING:
    import pyarrow as pa

Switch = Literal["on", "off"]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]

SIGNALS = (
    Signal("lines", "int64", "Lines that are not blank."),
    Signal("long_word_lines", "int64", "Lines cut because of a word over maximum_word_length."),
    Signal("unpunctuated_lines", "int64", "Lines cut because no end mark stands at their end."),
    Signal("short_lines", "int64", "Lines cut because they have fewer than minimum_line_words words."),
    Signal("javascript_lines", "int64", "Lines cut because they mention JavaScript."),
    Signal("policy_lines", "int64", "Lines cut because they are notices of policies or cookies."),
    Signal("citations", "int64", "Citation marks cut from the lines that stay."),
    Signal("lorem_ipsum_lines", "int64", "Lines with the phrase lorem ipsum."),
    Signal("curly_bracket_lines", "int64", "Lines with an opening curly bracket."),
    Signal("sentences", "int64", "Sentences in the lines that stay."),
)


class C4QualityConfig(StageConfig):
    """Settings of ``c4_quality``: limits and switches of its rules. A preset fills in the limits not given."""

    preset: Preset = Field(
        default="thresher-1",
        description="Whose rules: ours (thresher-1), those of the paper, of TFDS (tfds), or of datatrove 0.10.",
    )
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")
    action: Literal["cut", "flag"] = Field(
        default="cut", description="Cut lines and citation marks out of the text, or only say where they are."
    )
    maximum_word_length: Annotated[int, Field(ge=1, lt=1 << 31)] | Off = Field(
        default=1000, description="Code points of the longest word that a line may have; the paper has no limit."
    )
    citations: Switch = Field(default="on", description="Remove citation marks: [1], [edit], [citation needed].")
    terminal_punctuation: Switch = Field(default="on", description="Cut lines without an end mark at their end.")
    minimum_line_words: Count | Off = Field(default=3, description="Fewest words of a line; 5 in paper and tfds.")
    javascript: Switch = Field(default="on", description="Cut lines that mention JavaScript.")
    policy: Switch = Field(default="on", description="Cut lines with notices of policies or cookies.")
    lorem_ipsum: Switch = Field(default="on", description="Drop texts with the phrase lorem ipsum.")
    curly_bracket: Switch = Field(default="on", description="Drop texts with an opening curly bracket.")
    minimum_sentences: Count | Off = Field(
        default=5, description="Fewest sentences in the lines that stay; 3 in paper and tfds."
    )

    @model_validator(mode="before")
    @classmethod
    def _preset_fills_in(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        limits = [limits for preset, limits in LIMITS.items() if preset == values.get("preset")]
        return {**limits[0], **values} if limits else values


@stage("c4_quality")
class C4Quality(EditingStage):
    """Cuts lines that are no prose, and drops texts of placeholders, of code, and with few sentences left.

    Lines are those of ``corpus.text.lines``, without the white space around them. A line is cut by the first of these
    that holds: it has a word over ``maximum_word_length``; it ends, citation marks removed, without an end mark or with
    ``...`` (``terminal_punctuation``); it has fewer than ``minimum_line_words`` words; it contains ``javascript``; it
    contains one of the six phrases of policy and cookie notices that the paper lists. Capitals do not count in phrases,
    which are found within words, too. What is left of the lines that stay is joined by line feeds: white space at their
    ends and blank lines go, other line ends become a line feed. A text is dropped if a line that is not cut contains
    ``lorem ipsum`` or ``{`` (``}`` alone does not count, in any preset), or if the lines that stay have fewer than
    ``minimum_sentences`` sentences. What a sentence is: ``filters.c4_reference.sentences``.

    Not here: the list of bad words is the stage ``badwords``, the language the stage ``language``, and removal of
    repeated three-sentence spans needs all records. datatrove's option to judge sentences in place of lines
    (``split_paragraph=False``) does not exist here.

    The presets differ in limits, and in how they read a text:

    - ``datatrove-0.10`` gives verdict, first failing rule and text of datatrove's filter with the same sentences. 5
      sentences, 3 words per line. End marks are ``. ? ! " '``. Words stand between white space and are counted before
      citation marks are removed. The blank before a mark stays, so that ``end. [1]`` has no end mark and is cut.
      ``[]`` is a mark. Of lorem ipsum and curly bracket, the one that comes first in the text counts; the other is not
      looked for any more.
    - ``tfds`` is ``clean_page`` without its bad words: 3 sentences, 5 words per line, ``'`` is no end mark, and words
      are counted after citation marks are removed; otherwise as datatrove-0.10.
    - ``paper`` follows the words of the paper: 3 sentences, 5 words per line (as in JMLR and later arXiv versions; the
      first ones had 5 and 3), no longest word. End marks are ``. ? ! " ”``, ``...`` ends with a period. All lines of
      the page, cut ones included, are searched for lorem ipsum and curly brackets. A citation mark goes with the blanks
      that it leaves.
    - ``thresher-1``, the default, has the limits of datatrove-0.10 and is corrected in what hits sound text: an end
      mark is one of any script, or a quotation mark, and closing brackets may follow it; words are those of
      ``corpus.text.words``, so that a line of Chinese has more than one; a citation mark goes with the white space
      before it and words are counted after that; ``[]`` stays; lorem ipsum and curly brackets are both counted.

    On a sample of 113,008 records (``thresher sample``, counted by ``python -m benchmarks.presets``), of which
    datatrove-0.10 drops 86,794, thresher-1 keeps 1,071 of these and drops 541 others, has another reason for 326, and
    leaves another text of 3,506 that both keep. End marks and closing brackets alone change 4,920 of these records,
    citation marks 767, words of scripts without spaces 5, counting both lorem ipsum and curly brackets none; 2 need
    several. tfds keeps 20,250 of those dropped and drops 327 others (another text of 17,397), paper 19,030 and 4,066
    (another text of 14,663).

    With ``action: flag`` texts stay as they are; sentences are still those of the lines that would stay.
    """

    Config = C4QualityConfig
    summary = "Quality rules of C4: cuts lines without an end mark, few words, notices; drops code and placeholders."
    config: C4QualityConfig

    def edits(self) -> bool:
        """Say whether lines are cut."""
        return self.config.action == "cut"

    def own_signals(self) -> tuple[Signal, ...]:
        """Return what is counted."""
        return SIGNALS

    def own_rules(self) -> tuple[Rule, ...]:
        """Return the rules about texts that are on, in the order of the reference implementations."""
        config = self.config
        rules = [
            Rule(name, f"{name}_lines", "at_most", 0.0)
            for name, switch in (("lorem_ipsum", config.lorem_ipsum), ("curly_bracket", config.curly_bracket))
            if switch == "on"
        ]
        return (*rules, *threshold_rules(config, [("minimum_sentences", "sentences", "at_least")]))

    def prepare(self) -> None:
        """Build the tables and load the kernel."""
        from corpus.text_statistics import statistics_classes
        from filters.c4_counts import line_classes

        statistics_classes()
        line_classes(line_rules(self.config).reading)

    def judge(self, batch: TextBatch) -> Judgement:
        """Return the counts of each text, and the spans to cut."""
        import pyarrow as pa

        from filters.c4_counts import read_batch

        counts, findings = read_batch(batch, line_rules(self.config), self.config.action)
        signals: dict[str, pa.Array] = {signal.name: pa.array(row) for signal, row in zip(SIGNALS, counts, strict=True)}
        return Judgement(signals, findings)
