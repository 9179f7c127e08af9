"""The examples of the HTML report: for each rule, records that it dropped and records that barely stayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.planning_types import InputPlan
from corpus.stages import Rule
from reports.example_texts import CLEANED, REMOTE, StagedTexts, Texts, Wanted, curated_texts
from reports.examples import Example, dropped_examples
from reports.fates import StageInfo
from reports.highlights import reason_spans
from reports.html_signals import SignalFindings
from reports.html_views import limit_of, number
from reports.segments import differences, shown, with_spans
from reports.signal_rows import table_files

MOST_RULES = 60
MOST_CHARACTERS = 1_000_000
TOO_MUCH = "The report has enough examples; see this one with thresher explain."


@dataclass(frozen=True)
class ExampleView:
    """A record as it is shown.

    Attributes:
        texts: (name of the text, its HTML); one of a document, two of a pair or of a copy and what it is a copy of.
        note: why no text is shown.
    """

    record_id: str
    source: str | None
    place: str
    value: str
    related_id: str | None
    texts: list[tuple[str, Markup]]
    note: str


@dataclass(frozen=True)
class RuleExamples:
    """The examples of a rule."""

    stage: str
    rule: str
    limit: str
    first: int
    dropped: list[ExampleView]
    barely_kept: list[ExampleView]
    open: bool


def rule_examples(
    folder: Folder,
    outputs: Sequence[str],
    report: Mapping[str, Any],
    infos: Sequence[StageInfo],
    config: InputConfig,
    plan: InputPlan | None,
    signals: Future[SignalFindings],
) -> list[RuleExamples]:
    """Return the examples of the rules that dropped most, in the order of the rules.

    Args:
        outputs: names of all files of the run.
        plan: the plan of the input; None where staging was removed.
        signals: what the signals come to, which is waited for once the texts of what was dropped are read.
    """
    counts = {
        (stage["name"], rule): entry["first"] for stage in report["stages"] for rule, entry in stage["rules"].items()
    }
    largest = sorted((pair for pair in counts if counts[pair]), key=lambda pair: (-counts[pair], pair))[:MOST_RULES]
    chosen = [pair for pair in counts if pair in largest]
    dropped = dropped_examples(folder, table_files(outputs, "ledger"), chosen)
    texts = _Texts(folder, outputs, infos, config, plan)
    texts.fetch([(pair[0], one, False) for pair in chosen for one in dropped.get(pair, [])])
    findings = signals.result()
    stages = {info.name: info for info in infos}
    rules = {(info.name, rule.name): rule for info in infos for rule in info.rules}
    examples = {
        (pair, kept): of.get(pair, [])
        for kept, of in ((False, dropped), (True, findings.barely_kept))
        for pair in chosen
    }
    texts.fetch([(pair[0], one, True) for pair in chosen for one in examples[pair, True]])
    biggest: dict[str, tuple[str, str]] = {}
    for pair in largest:
        biggest.setdefault(pair[0], pair)
    found = []
    for pair in chosen:
        rule = rules.get(pair)
        dropped_views, kept_views = (
            [texts.view(stages[pair[0]], rule, one, kept) for one in examples[pair, kept]] for kept in (False, True)
        )
        found.append(
            RuleExamples(
                stage=pair[0],
                rule=pair[1],
                limit=limit_of(stages[pair[0]], rule, findings.thresholds) if rule else "",
                first=counts[pair],
                dropped=dropped_views,
                barely_kept=kept_views,
                open=biggest[pair[0]] == pair,
            )
        )
    return found


class _Texts:
    """Gives each example its texts, until the report has enough of them."""

    def __init__(
        self,
        folder: Folder,
        outputs: Sequence[str],
        infos: Sequence[StageInfo],
        config: InputConfig,
        plan: InputPlan | None,
    ) -> None:
        self._folder, self._outputs, self._infos, self._config, self._plan = folder, outputs, infos, config, plan
        self._staging = StagedTexts(folder, plan, infos, config.fields) if plan and folder.is_local else None
        self._staged: dict[Wanted, Texts | str] = {}
        self._curated: dict[str, Texts] = {}
        self._characters = 0

    def fetch(self, examples: Sequence[tuple[str, Example, bool]]) -> None:
        """Read the texts of examples, (stage, record, whether it was kept) each, and of what they are copies of."""
        if self._staging is not None:
            wanted = [Wanted(one.file, one.position, stage) for stage, one, _ in examples]
            wanted.extend(related for stage, one, _ in examples if (related := _related(one, stage)))
            self._staged |= self._staging.look_up(wanted)
            return
        added = {column for info in self._infos if info.stage for column in info.stage.curated_columns()}
        ids = {one.record_id for _, one, kept in examples if kept}
        files = table_files(self._outputs, "curated")
        self._curated |= curated_texts(self._folder, files, ids, self._config, added)

    def view(self, info: StageInfo, rule: Rule | None, example: Example, kept: bool) -> ExampleView:
        """Return an example of a rule as it is shown."""
        texts = self._texts(info, example, kept)
        pieces = [] if isinstance(texts, str) else self._pieces(info, rule, example, texts)
        self._characters += sum(len(text) for _, text in pieces)
        return ExampleView(
            record_id=example.record_id,
            source=example.source,
            place=f"{example.file} at {example.position:,}",
            value=_value_text(rule, example),
            related_id=example.related_id,
            texts=pieces,
            note=texts if isinstance(texts, str) else "",
        )

    def _texts(self, info: StageInfo, example: Example, kept: bool) -> Texts | str:
        if self._characters > MOST_CHARACTERS:
            return TOO_MUCH
        staged = self._staged.get(Wanted(example.file, example.position, info.name))
        if staged is not None:
            return staged
        if kept and example.record_id in self._curated:
            return self._curated[example.record_id]
        return CLEANED if self._plan is None else REMOTE

    def _pieces(self, info: StageInfo, rule: Rule | None, example: Example, texts: Texts) -> list[tuple[str, Markup]]:
        wanted = _related(example, info.name)
        related = self._staged.get(wanted) if wanted else None
        pieces = []
        for field, text in texts.items():
            name = "" if field == "text" else field
            if isinstance(related, dict):
                sides = differences(text, related[field])
                pieces.append((f"{name} dropped".strip(), shown(sides[0])))
                pieces.append((f"{name} stays".strip(), shown(sides[1])))
                continue
            judged = info.stage is not None and info.stage.text_field in ("both", field)
            if rule is not None and judged and not text.is_marked:
                text = with_spans(text, reason_spans(info.stage, rule, text.text))
            pieces.append((name, shown(text)))
        return pieces


def _value_text(rule: Rule | None, example: Example) -> str:
    """Return the measured value with the name of its signal."""
    detail = example.detail if isinstance(example.detail, dict) else {}
    if rule is not None and example.value is not None:
        return f"{rule.signal} {number(example.value)}"
    if rule is not None and rule.signal in detail:
        return f"{rule.signal} {detail[rule.signal]}"
    return ""


def _related(example: Example, stage: str) -> Wanted | None:
    """Return the record that an example is a copy of."""
    if example.related_id is None or not isinstance(example.detail, dict):
        return None
    return Wanted(example.detail["file"], example.detail["position"], stage)
