"""What comes back from a chat endpoint: an answer, or trouble with a name and what may be done about it.

Servers that call themselves compatible with OpenAI differ in their errors, so these are told apart by status first and
by a few words of the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai import APIStatusError

NO_ANSWER, REFUSED, TOO_LONG, BAD_REQUEST = "no_answer", "refused", "too_long", "bad_request"
TIMEOUT, NO_CONNECTION, RATE_LIMITED, SERVER_ERROR = "timeout", "no_connection", "rate_limited", "server_error"
BUDGET_EXHAUSTED = "budget_exhausted"
PASSING = (TIMEOUT, NO_CONNECTION, RATE_LIMITED, SERVER_ERROR, BAD_REQUEST, BUDGET_EXHAUSTED)
"""Reasons that say nothing about the record: another run asks again."""

_TOO_LONG = ("context length", "context_length", "maximum context", "too long", "too many tokens", "context size")
_FILTERED = ("content_filter", "content filter", "content management policy", "content_policy", "safety system")
_NO_CREDIT = ("insufficient_quota", "billing", "credit balance")


@dataclass(frozen=True)
class Answer:
    """The end of a question.

    Attributes:
        text: what the judge said; None where it said nothing.
        reason: why what it said does not count, or why it said nothing; None where it counts.
        cut: whether the server ended the answer early.
        tokens: of question and answer, as the server counts them; None where it does not say.
        detail: what the server said about its trouble.
    """

    text: str | None = None
    reason: str | None = None
    cut: bool = False
    tokens: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Trouble:
    """A try that brought no answer.

    Attributes:
        reason: the name that the record gets if this is the end.
        detail: what the server or the client said.
        again: whether the same may be tried again.
        wait: seconds that the server asks to wait; None where it does not.
        fatal: what to do about trouble that every record would have; None where others may have none.
    """

    reason: str
    detail: str
    again: bool = True
    wait: float | None = None
    fatal: str | None = None


def answer_of(body: bytes) -> Answer | Trouble:
    """Return the answer in the body of a response with status 200."""
    try:
        found = json.loads(body)
        choice = found["choices"][0]
        message = choice["message"]
        text = _text_of(message.get("content"))
        refusal = message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        said = " ".join(body[:200].decode("utf-8", "replace").split())
        return Trouble(SERVER_ERROR, f"what came is no chat completion: {said or 'nothing'}")
    finish = choice.get("finish_reason")
    tokens = _tokens_of(found.get("usage"))
    if refusal or finish == "content_filter":
        return Answer(text or _text_of(refusal), REFUSED, tokens=tokens)
    return Answer(text, cut=finish == "length", tokens=tokens)


def _text_of(content: Any) -> str | None:
    """Return the text of a message: a string, or the text parts of a list."""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    # JSON can hold halves of surrogate pairs, which no text in UTF-8 can.
    return content.encode("utf-8", "replace").decode() if isinstance(content, str) else None


def _tokens_of(usage: Any) -> int | None:
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if isinstance(total, int) and 0 <= total < 1 << 53 else None


def trouble_of(error: APIStatusError) -> Trouble:
    """Return what a response with another status means."""
    status, detail = error.status_code, _text_of(error.message) or ""
    words = f"{detail} {error.code} {error.type} {error.body}".lower()
    wait = retry_after(error.response.headers)
    if status == 401 or status == 403:
        return Trouble(BAD_REQUEST, detail, fatal="give a key that may use this model")
    if status == 404:
        return Trouble(BAD_REQUEST, detail, fatal="correct base_url (most end in /v1) or model")
    if status == 429:
        if any(sign in words for sign in _NO_CREDIT):
            return Trouble(RATE_LIMITED, detail, fatal="the account has no credit left; top it up")
        return Trouble(RATE_LIMITED, detail, wait=wait)
    if status >= 500 or status in (408, 409, 425):
        return Trouble(SERVER_ERROR, detail, wait=wait)
    if status == 413 or any(sign in words for sign in _TOO_LONG):
        return Trouble(TOO_LONG, detail, again=False)
    if any(sign in words for sign in _FILTERED):
        return Trouble(REFUSED, detail, again=False)
    return Trouble(BAD_REQUEST, detail, again=False)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait (RFC 9110, 10.2.3: seconds or a date); None where it does not."""
    given = headers.get("retry-after-ms")
    factor = 1000.0
    if given is None:
        given, factor = headers.get("retry-after"), 1.0
    if given is None:
        return None
    try:
        seconds = float(given) / factor
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time()
        except ValueError:
            return None
    # Not a number is no wait; infinity is one.
    return max(0.0, seconds) if seconds == seconds else None
