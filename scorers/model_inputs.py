"""What a model reads of a record: how prompt and response are joined, and what is cut where they are too long.

The tokens are those of ``tokenizer(prompt, response)``, ``tokenizer(text)`` or ``tokenizer.apply_chat_template`` of
transformers. The tokenizer itself neither cuts nor pads here, so that threads may share it.

Too long a record loses tokens of prompt, response or both. In a pair of segments these are the tokens that
transformers would cut, too; in a template or a chat, the fields are cut and what stands around them stays. The turns
before the response are cut like one prompt, those at its end or start first; one that is cut to nothing stays, empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jinja2
import numpy as np

from corpus.errors import UsageError
from corpus.readers.records import WHITE_SPACE
from scorers.model_stage import CHAT, PAIR, TEXT, TURNS
from scorers.token_batches import TokenSequence

Truncation = Literal["longest_first", "prompt", "response", "off"]
Side = Literal["right", "left"]

PROMPT, RESPONSE = "{prompt}", "{response}"
EMPTY, TOO_LONG, REFUSED = "empty_response", "too_long", "refused_by_template"

UNLIMITED = 10**9
"""Tokenizers without a limit give a number beyond."""
ROBERTA_LIKE = frozenset(
    {
        "camembert",
        "data2vec-text",
        "longformer",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
    }
)
"""Models that count positions from behind the id of the padding, and so have fewer than their table has rows."""

Turn = tuple[str, str]
"""Role and content."""

_FIELDS = re.compile(r"\{prompt\}|\{response\}")


@dataclass(frozen=True)
class ModelInput:
    """A record for the model.

    Attributes:
        sequence: what the model reads; None where it cannot be scored.
        tokens: how many tokens the whole record has.
        cut: how many of them the model does not see.
        reason: why it cannot be scored.
    """

    sequence: TokenSequence | None
    tokens: int
    cut: int = 0
    reason: str | None = None


def joined(prompt: str | None, response: str) -> str:
    """Return a pair as one text: prompt, a blank line, response."""
    return response if prompt is None else f"{prompt}\n\n{response}"


def from_template(template: str, prompt: str, response: str) -> str:
    """Return a template with the fields filled in; what looks like a field inside a text stays as it is."""
    return _FIELDS.sub(lambda field: prompt if field[0] == PROMPT else response, template)


def lengths_left(prompt: int, response: int, room: int, truncation: Truncation) -> tuple[int, int]:
    """Return how many tokens of prompt and response stay where both together have more than ``room``.

    ``longest_first`` is that of the tokenizers library: a field of at most half the room stays whole; else both get
    half, the longer one the odd token.
    """
    if truncation == "prompt":
        response = min(response, room)
        return room - response, response
    if truncation == "response":
        prompt = min(prompt, room)
        return prompt, room - prompt
    shorter = min(prompt, response, room // 2)
    return (room - shorter, shorter) if prompt > response else (shorter, room - shorter)


class InputBuilder:
    """Turns records into token sequences.

    Args:
        setting: how messages call the stage.
        tokenizer: of transformers; a fast one.
        form: ``pair``, ``chat``, ``text``, a template with {prompt} and {response}, or ``turns``: a chat whose prompt
            is JSON, the list of the ``{role, content}`` before the response.
        limit: most tokens of a sequence.
        truncation, side: what is cut of a longer one, and from which end; None for the tokenizer's own.

    Raises:
        UsageError: the tokenizer is no fast one, or has no chat template where one is needed.
    """

    def __init__(
        self, setting: str, tokenizer: Any, form: str, limit: int, truncation: Truncation, side: Side | None
    ) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UsageError(
                f"{setting}.model: {type(tokenizer).__name__} has no tokenizer.json; save a fast tokenizer"
            )
        if form in (CHAT, TURNS) and not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"{setting}.input: the tokenizer has no chat template; set input to pair, or to a template such as "
                "'Question: {prompt} Answer: {response}'"
            )
        # Files of tokenizers may say to cut at 128 tokens and to pad up to there; transformers does not heed that.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._tokenizer = tokenizer
        self._form = form
        self._limit = limit
        self._truncation: Truncation = truncation
        self._side: Side = side or tokenizer.truncation_side

    def build(self, prompts: Sequence[str | None], responses: Sequence[str]) -> list[ModelInput]:
        """Return the records for the model; prompts are None where texts stand by themselves."""
        if self._form == PAIR:
            texts: list[Any] = [(prompt or "", response) for prompt, response in zip(prompts, responses, strict=True)]
        else:
            texts = [
                self._text(self._turns(prompt), response) for prompt, response in zip(prompts, responses, strict=True)
            ]
        taken = [text or "" for text in texts]
        found = self._backend.encode_batch_fast(taken, add_special_tokens=self._adds_marks)
        return [
            ModelInput(None, 0, 0, REFUSED) if text is None else self._input(prompt, response, encoding)
            for prompt, response, text, encoding in zip(prompts, responses, texts, found, strict=True)
        ]

    def prompt_of(self, text: str) -> str:
        """Return a prompt of one turn as ``build`` takes it."""
        return json.dumps([{"role": "user", "content": text}]) if self._form == TURNS else text

    @property
    def _adds_marks(self) -> bool:
        """Whether the tokenizer puts its marks around a text; a chat template has them."""
        return self._form not in (CHAT, TURNS)

    def _turns(self, prompt: str | None) -> list[Turn]:
        """Return what stands before the response: the turns of a chat, or the prompt as the only one."""
        if self._form == TURNS:
            return [(turn["role"], turn["content"]) for turn in json.loads(prompt or "[]")]
        if prompt is None or (self._form not in (CHAT, TEXT) and PROMPT not in self._form):
            return []
        return [("user", prompt)]

    def _text(self, turns: Sequence[Turn], response: str) -> str | None:
        """Return a record as one text; None where the chat template does not take these turns."""
        prompt = turns[0][1] if turns else None
        if self._form == TEXT:
            return joined(prompt, response)
        if self._adds_marks:
            return from_template(self._form, prompt or "", response)
        messages = [{"role": role, "content": content} for role, content in (*turns, ("assistant", response))]
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        except (
            jinja2.TemplateError
        ):  # what templates raise where roles do not alternate, or for a role they do not know
            return None

    def _input(self, prompt: str | None, response: str, encoding: Any) -> ModelInput:
        total = len(encoding)
        if not response.strip(WHITE_SPACE):
            return ModelInput(None, total, 0, EMPTY)
        if total > self._limit:
            cut = None if self._truncation == "off" else self._cut(prompt, response, encoding)
            if cut is None:
                return ModelInput(None, total, 0, TOO_LONG)
            encoding = cut
        sequence = TokenSequence(np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64))
        return ModelInput(sequence, total, total - len(sequence))

    def _cut(self, prompt: str | None, response: str, encoding: Any) -> Any | None:
        """Return the encoding of a record cut to the limit; None where nothing of the response would be left."""
        if self._form not in (PAIR, TEXT):
            return self._cut_texts(self._turns(prompt), response, len(encoding))
        if self._form == TEXT:
            prompt, response = None, joined(prompt, response)
        first = self._alone(prompt or "")
        second = self._alone(response)
        room = self._limit - (len(encoding) - len(first) - len(second))
        kept = self._kept(len(first), len(second), room)
        if kept is None:
            return None
        first.truncate(kept[0], direction=self._side)
        second.truncate(kept[1], direction=self._side)
        if self._form == TEXT:
            return self._backend.post_process(second, None, True)
        return self._backend.post_process(first, second, True)

    def _cut_texts(self, turns: Sequence[Turn], response: str, length: int) -> Any | None:
        """Return the encoding of a filled-in template whose fields are cut, given how many tokens it had.

        Where a cut text meets what stands around it, there may be more tokens than there were: then it is cut further.
        """
        before = [self._alone(content) for _, content in turns]
        second = self._alone(response)
        first = sum(map(len, before))
        room = self._limit - (length - first - len(second))
        while True:
            kept = self._kept(first, len(second), room)
            if kept is None:
                return None
            shorter = self._cut_turns(turns, before, kept[0])
            text = self._text(shorter, self._cut_text(response, second, kept[1]))
            if text is None:
                return None
            encoding = self._backend.encode(text, add_special_tokens=self._adds_marks)
            if len(encoding) <= self._limit:
                return encoding
            room -= len(encoding) - self._limit

    def _kept(self, first: int, second: int, room: int) -> tuple[int, int] | None:
        if room <= 0:
            return None
        if first + second <= room:
            return first, second
        truncation: Truncation = self._truncation if first else "longest_first"
        kept = lengths_left(first, second, room, truncation)
        return kept if kept[1] > 0 else None

    def _cut_turns(self, turns: Sequence[Turn], encodings: Sequence[Any], kept: int) -> list[Turn]:
        """Return turns that have so many tokens together: the first ones of all, or the last ones."""
        step = 1 if self._side == "right" else -1
        found = []
        for (role, content), encoding in list(zip(turns, encodings, strict=True))[::step]:
            here = min(kept, len(encoding))
            found.append((role, self._cut_text(content, encoding, here)))
            kept -= here
        return found[::step]

    def _cut_text(self, text: str, encoding: Any, kept: int) -> str:
        if kept >= len(encoding):
            return text
        if kept == 0:
            return ""
        if self._side == "right":
            return text[: encoding.offsets[kept - 1][1]]
        return text[encoding.offsets[-kept][0] :]

    def _alone(self, text: str) -> Any:
        return self._backend.encode(text, add_special_tokens=False)


def token_limit(setting: str, tokenizer: Any, config: Any, wanted: int | None) -> int:
    """Return the most tokens of a sequence.

    Args:
        setting: how messages call the stage.
        tokenizer, config: of transformers.
        wanted: the setting ``max_tokens``; None for as many as the model takes.

    Raises:
        UsageError: the model takes fewer than wanted, or it is not known how many.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and positions <= 0:
        positions = None
    if positions is not None and config.model_type in ROBERTA_LIKE:
        positions -= config.pad_token_id + 1
    if wanted is not None:
        if positions is not None and wanted > positions:
            raise UsageError(f"{setting}.max_tokens: found {wanted}; the model takes at most {positions} tokens")
        return wanted
    known = [int(limit) for limit in (positions, tokenizer.model_max_length) if limit and limit < UNLIMITED]
    if not known:
        raise UsageError(f"{setting}.max_tokens: the model does not say how many tokens it takes; set it")
    return min(known)
