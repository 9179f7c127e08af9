"""A language model as judge: it grades each record in one respect, behind an endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from corpus.errors import UsageError
from corpus.stages import Signal, StageConfig, TextBatch, TextField, stage
from scorers.judge_config import JudgeConfig
from scorers.scoring import Pairs, Scores, ScoreStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from scorers.judge_answer import Answer
    from scorers.judge_client import JudgeClient, Messages
    from scorers.judge_prompt import Rubric
    from scorers.score_table import Part, ScoreTable

REPLY, TOKENS, SPREAD = "reply", "tokens", "spread"
SHOWN_REPLY = 2000
"""Characters of a reply that are kept."""
EMPTY_RESPONSE = "empty_response"
SPREAD_UNIT = 10_000


@stage("judge")
class JudgeStage(ScoreStage):
    """Asks a language model how good each record is in one respect, and keeps what reaches a grade.

    The way is that of AlpaGasus (arXiv 2307.08701): a grade for the accuracy of a response to its prompt on a scale
    from 0 to 5, of which at_least 4.5 kept 9,229 of 52,002 records of Alpaca; the wording of the question is ours. The
    judge is asked for JSON, as structured output where the server can. Of other replies a number counts if it is said
    to be the score; it is never guessed, clamped or converted.

    A record without a score has a reason: no_answer, unparsable, ambiguous (several numbers), other_scale (4/10),
    out_of_range, cut_off (the reply ended early), refused, empty_response, too_long, or that the server failed:
    timeout, no_connection, rate_limited, server_error, bad_request, or budget_exhausted. Those of the last six kinds
    are asked for again by another run. A key or model that the server does not know, an account without credit, or a
    server that is away ends the run; the same command goes on, and answers that arrived are not asked for again.

    Replies stay in the signal reply, and the table of scores has them too: a judge is paid for once.
    """

    Config = JudgeConfig
    summary = "A language model as judge behind an OpenAI-compatible endpoint: a grade in one respect."
    speed = "a call of a server for each record: records that left before are not judged"
    costs_money: ClassVar[bool] = True
    config: JudgeConfig

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        super().__init__(config, name, text_field)
        self._client: JudgeClient | None = None
        self._tables: dict[int, ScoreTable] = {}

    def rubric(self) -> Rubric:
        """Return what the judge is asked."""
        from scorers.judge_prompt import Rubric

        low, high = self.config.scale
        return Rubric(self.config.dimension, self.config.meaning, (low, high), self.config.explanation)

    def identity(self) -> Mapping[str, str]:
        """Return what the first judgement of a record depends on."""
        return self.form_identity(0)

    def form_identity(self, form: int) -> dict[str, str]:
        """Return what a judgement depends on; each form of the question has scores of its own."""
        config = self.config
        return {
            "scorer": "judge",
            "base_url": config.base_url,
            "model": config.model,
            "dimension": config.dimension,
            "scale": f"{config.scale[0]:g} to {config.scale[1]:g}",
            "prompt": self.rubric().digest(),
            "form": str(form),
            "temperature": str(config.temperature),
            "structured": config.structured,
            "answer_tokens": str(config.answer_tokens),
        }

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digest of the wording of the question."""
        return {"prompt": self.rubric().digest()}

    def more_signals(self) -> tuple[Signal, ...]:
        """Return the reply, what it cost, and how far several judgements are apart."""
        more = [
            Signal(REPLY, "string", "What the judge said; of several replies the first, or the first without a score."),
            Signal(
                TOKENS, "int64", "Tokens of prompts and replies, as the server counted them; null where it did not."
            ),
        ]
        if self.config.repeat > 1:
            more.append(Signal(SPREAD, "float64", "Highest less lowest score of the judgements; null without a score."))
        return tuple(more)

    def prepare(self) -> None:
        """Look whether the key is there. Raises UsageError where it is not."""
        if self.may_call and self.config.max_calls != 0:
            self._key()

    def _key(self) -> str | None:
        variable = self.config.key_variable
        if variable == "off":
            return None
        key = os.environ.get(variable, "").strip()
        if not key:
            raise UsageError(
                f"{self.name}.key_variable: the environment variable {variable} is not set, on this machine at least; "
                "put the key into it, or set key_variable to off for a server that wants none"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(
                f"{self.name}.key_variable: what the environment variable {variable} holds is no key: it has blanks, "
                "line ends or characters beyond ASCII; put the key alone into it"
            )
        return key

    def load(self) -> None:
        """Connect the client. Raises UsageError where the key is missing."""
        if self._client is not None:
            return
        from scorers.judge_client import Connection, shared_client

        config = self.config
        connection = Connection(
            name=self.name,
            base_url=config.base_url,
            model=config.model,
            key_variable=_or_none(config.key_variable),
            temperature=_or_none(config.temperature),
            response_format=self.rubric().schema() if config.structured == "auto" else None,
            answer_tokens=config.answer_tokens,
            concurrency=config.concurrency,
            timeout=config.timeout,
            retries=config.retries,
            give_up_after=_or_none(config.give_up_after),
            max_calls=_or_none(config.max_calls),
            max_tokens=_or_none(config.max_tokens),
        )
        key = None if config.max_calls == 0 else self._key()
        self._client = shared_client(self.run, connection, key)

    def score(self, pairs: Pairs) -> Scores:
        """Return the first judgement of each record."""
        from scorers.judge_scores import gathered

        self.load()
        return gathered(len(pairs), self._judgements(0, pairs))

    def find(self, batch: TextBatch, rows: npt.NDArray[np.int64]) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return the mean of all judgements, and for which records the table had all of them."""
        import numpy as np
        import pyarrow as pa

        from scorers.judge_scores import mean_judgement

        pairs = self.pairs(batch).take(pa.array(rows))
        found = [self._form_scores(form, pairs) for form in range(self.config.repeat)]
        reused = np.logical_and.reduce([again for _, again in found])
        scores = [one for one, _ in found]
        return (scores[0] if len(scores) == 1 else mean_judgement(scores)), reused

    def _form_scores(self, form: int, pairs: Pairs) -> tuple[Scores, npt.NDArray[np.bool_]]:
        import numpy as np

        from scorers.judge_scores import gathered

        judgements = partial(self._judgements, form)
        if self.config.score_table == "off":
            return gathered(len(pairs), judgements(pairs)), np.zeros(len(pairs), np.bool_)
        return self._table_of(form).arriving_scores(pairs, judgements, at_risk=self.config.concurrency)

    def _table_of(self, form: int) -> ScoreTable:
        from scorers.score_table import ScoreTable

        if form not in self._tables:
            folder = _or_none(self.config.score_table)
            identity, more = self.form_identity(form), self.more_signals()[:2]
            self._tables[form] = ScoreTable.shared(self.run, folder, identity, more)
        return self._tables[form]

    def _judgements(self, form: int, pairs: Pairs) -> Iterator[Part]:
        """Yield judgements as they arrive."""
        import numpy as np
        import pyarrow.compute as pc

        from corpus.readers.records import WHITE_SPACE
        from scorers.judge_answer import TOO_LONG, Answer

        characters = pc.utf8_length(pairs.responses).to_numpy(zero_copy_only=False)
        if pairs.prompts is not None:
            characters = characters + pc.fill_null(pc.utf8_length(pairs.prompts), 0).to_numpy(zero_copy_only=False)
        trimmed = pc.utf8_trim(pairs.responses, characters=WHITE_SPACE)
        blank = pc.equal(pc.binary_length(trimmed), 0).to_numpy(zero_copy_only=False)
        too_long = ~blank & (characters > self.config.max_characters)
        for rows, reason in ((np.flatnonzero(blank), EMPTY_RESPONSE), (np.flatnonzero(too_long), TOO_LONG)):
            if len(rows):
                yield rows, self._result([Answer(reason=reason)] * len(rows))
        asked = np.flatnonzero(~blank & ~too_long)
        if not len(asked):
            return
        self.check_calls(len(asked))
        self.load()
        assert self._client is not None
        rubric = self.rubric()

        def question(number: int) -> Messages:
            row = int(asked[number])
            prompt = None if pairs.prompts is None else pairs.prompts[row].as_py() or ""
            return rubric.messages(prompt, pairs.responses[row].as_py(), swapped=form % 2 == 1)

        for number, answer in self._client.ask(len(asked), question):
            yield asked[number : number + 1], self._result([answer])

    def _result(self, answers: list[Answer]) -> Scores:
        """Return answers as scores, with what another run may take from the table."""
        import numpy as np
        import pyarrow as pa

        from scorers.judge_answer import PASSING, TOO_LONG
        from scorers.judge_reply import read_score

        low, high = self.config.scale
        values, reasons, replies = [], [], []
        for answer in answers:
            value, reason = None, answer.reason
            if reason is None:
                value, reason = read_score(answer.text, (low, high), self.config.dimension, answer.cut)
            values.append(math.nan if value is None else value)
            reasons.append(reason)
            said = answer.text or answer.detail
            if said and self._client is not None:
                said = self._client.without_key(said)
            replies.append(said[:SHOWN_REPLY] or None)
        more = {
            REPLY: pa.array(replies, pa.string()),
            TOKENS: pa.array([answer.tokens for answer in answers], pa.int64()),
        }
        passing = (*PASSING, TOO_LONG, EMPTY_RESPONSE)
        lasting = np.array([reason not in passing for reason in reasons])
        return Scores(np.array(values, np.float64), reasons, more, lasting)

    def notice_counts(self, signals: Mapping[str, pa.Array]) -> dict[str, int]:
        """Return how many records the server failed, and how much several judgements agree."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from scorers.judge_answer import PASSING

        failed = pc.is_in(signals["reason"], value_set=pa.array(PASSING, pa.string()))
        counts = {"without_answer": pc.sum(failed).as_py() or 0, "tokens": pc.sum(signals[TOKENS]).as_py() or 0}
        if self.config.repeat > 1:
            spread = signals[SPREAD]
            units = pc.cast(pc.round(pc.multiply(spread, float(SPREAD_UNIT))), pa.int64())
            counts["judged_again"] = len(spread) - spread.null_count
            counts["agreed"] = pc.sum(pc.equal(units, 0)).as_py() or 0
            counts["spread"] = pc.sum(units).as_py() or 0
        return counts

    def notices(self, counts: Mapping[str, int]) -> list[str]:
        """Return what there is to say about these."""
        sentences = []
        if missing := counts.get("without_answer", 0):
            sentences.append(
                f"{missing} records have no score because the server or the budget failed them; --overwrite asks for "
                "these again, and only for these"
            )
        if again := counts.get("judged_again", 0):
            spread = counts["spread"] / again / SPREAD_UNIT
            sentences.append(
                f"{again} records were judged {self.config.repeat} times: {counts['agreed'] / again:.1%} the same each "
                f"time, {spread:.2f} apart on average"
            )
        return sentences


def _or_none(value: Any) -> Any:
    return None if value == "off" else value
