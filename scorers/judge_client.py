"""Questions to a chat endpoint: many at a time, tried again with patience, within a budget, answered as they arrive.

All stages of a process that judge for the same run share one client, and so its limits. It lives on an event loop in a
thread of its own. The client library is ``openai``, whose own retries are off: it knows of one question only, while
here a server that asks for patience gets it from all of them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import openai

from corpus.errors import ThresherError
from scorers.judge_answer import (
    BAD_REQUEST,
    BUDGET_EXHAUSTED,
    NO_CONNECTION,
    PASSING,
    SERVER_ERROR,
    TIMEOUT,
    Answer,
    Trouble,
    answer_of,
    trouble_of,
)
from scorers.judge_budget import Budget, counting_file

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

Messages = list[dict[str, str]]

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
MOST_PATIENCE_SECONDS = 600.0
"""A server that asks for a longer pause than this is not waited for."""
BYTES_PER_TOKEN = 4
"""A usual value for English, by which a question is estimated before it is sent."""
SHOWN_CHARACTERS = 300
OTHER_LENGTH = "max_completion_tokens"
"""How newer models of OpenAI call ``max_tokens``, which others know."""


@dataclass(frozen=True)
class Connection:
    """How a server is asked.

    Attributes:
        name: the stage, for messages.
        base_url: the endpoint without ``/chat/completions``.
        model: name of the model.
        key_variable: name of the environment variable that holds the key, for messages; None where none is sent.
        temperature: None where the server is to choose.
        response_format: asks for structured output; None for no such wish.
        answer_tokens: most tokens of an answer.
        concurrency: most questions under way.
        timeout: seconds for one try.
        retries: how many more tries a question gets.
        give_up_after: so many questions in a row without an answer end the run; None for never.
        max_calls, max_tokens: the budget; None without a limit.
    """

    name: str
    base_url: str
    model: str
    key_variable: str | None
    temperature: float | None
    response_format: dict[str, Any] | None
    answer_tokens: int
    concurrency: int
    timeout: float
    retries: int
    give_up_after: int | None
    max_calls: int | None
    max_tokens: int | None


class JudgeClient:
    """Asks one server.

    Args:
        connection: how.
        key: the secret; None to send none. It is in no message and no representation of this object.
        budget: what it may cost.
    """

    def __init__(self, connection: Connection, key: str | None, budget: Budget) -> None:
        self.connection = connection
        self.budget = budget
        self._key = key
        self._client = openai.AsyncOpenAI(
            # The library insists on one; servers that want none do not look at it.
            api_key=key or "none",
            base_url=connection.base_url,
            timeout=connection.timeout,
            max_retries=0,
        )
        self._slots = asyncio.Semaphore(connection.concurrency)
        self._length_setting = "max_tokens"
        self._structured = connection.response_format is not None
        self._not_before = 0.0
        self._answered = False
        self._in_a_row = 0
        weakref.finalize(self, _close, self._client)

    def ask(self, count: int, question: Callable[[int], Messages]) -> Iterator[tuple[int, Answer]]:
        """Yield (number, answer) for each of ``count`` questions, as they arrive.

        Raises ThresherError for trouble that no question would be spared: a key or a model that is refused, a server
        that is not there.
        """
        arrived: SimpleQueue[tuple[int, Answer] | Exception] = SimpleQueue()
        asking = asyncio.run_coroutine_threadsafe(self._ask_all(count, question, arrived.put), _event_loop())
        try:
            for _ in range(count):
                found = arrived.get()
                if isinstance(found, Exception):
                    raise found
                yield found
        finally:
            asking.cancel()

    async def _ask_all(
        self,
        count: int,
        question: Callable[[int], Messages],
        put: Callable[[tuple[int, Answer] | Exception], None],
    ) -> None:
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                async with self._slots:
                    answer = await self._answer(question(number))
                put((number, answer))

        tasks = [asyncio.ensure_future(work()) for _ in range(min(count, self.connection.concurrency))]
        try:
            await asyncio.gather(*tasks)
        except Exception as error:
            put(error)
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, question: Messages) -> Answer:
        """Return how a question ended. Raises ThresherError where all would end like this."""
        size = sum(len(message["content"].encode()) for message in question)
        estimate = size // BYTES_PER_TOKEN + self.connection.answer_tokens
        structured: bool | None = None
        tries = 0
        while True:
            await self._wait_for_server()
            if not self.budget.take(estimate):
                return Answer(reason=BUDGET_EXHAUSTED)
            asked_for = self._structured if structured is None else structured
            length_setting = self._length_setting
            spent = 0
            try:
                outcome = await self._try(question, asked_for, length_setting)
                if isinstance(outcome, Answer):
                    spent = outcome.tokens or estimate
                elif outcome.reason == TIMEOUT:
                    # The server may have worked on it, and may charge for it.
                    spent = estimate
            finally:
                self.budget.settle(estimate, spent)
            if isinstance(outcome, Answer):
                if structured is False:
                    # It was the wish for structured output that it would not have.
                    self._structured = False
                self._answered, self._in_a_row = True, 0
                return outcome
            if outcome.fatal is not None:
                raise ThresherError(self._message(outcome, outcome.fatal))
            if outcome.reason == BAD_REQUEST and length_setting == "max_tokens" and OTHER_LENGTH in outcome.detail:
                self._length_setting = OTHER_LENGTH
                continue
            if outcome.reason == BAD_REQUEST and asked_for:
                structured = False
                continue
            patience = outcome.wait is None or outcome.wait <= MOST_PATIENCE_SECONDS
            if not outcome.again or not patience or tries == self.connection.retries:
                return self._end(outcome)
            if outcome.wait is not None:
                self._not_before = max(self._not_before, time.monotonic() + outcome.wait)
            await asyncio.sleep(_backoff(tries))
            tries += 1

    async def _wait_for_server(self) -> None:
        while (wait := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(wait)

    async def _try(self, question: Messages, structured: bool, length_setting: str) -> Answer | Trouble:
        settings: dict[str, Any] = {length_setting: self.connection.answer_tokens}
        if self.connection.temperature is not None:
            settings["temperature"] = self.connection.temperature
        if structured:
            settings["response_format"] = self.connection.response_format
        try:
            # The library's own limit is for each read, which a server that drips never reaches.
            response = await asyncio.wait_for(
                self._client.chat.completions.with_raw_response.create(
                    model=self.connection.model,
                    messages=cast("list[ChatCompletionMessageParam]", question),
                    **settings,
                ),
                self.connection.timeout,
            )
            return answer_of(response.content)
        except openai.APIStatusError as error:
            return trouble_of(error)
        except (openai.APITimeoutError, asyncio.TimeoutError):
            return Trouble(TIMEOUT, f"no answer within {self.connection.timeout:g} s")
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            away = "ConnectError" in type(cause).__name__
            return Trouble(NO_CONNECTION if away else SERVER_ERROR, f"no connection, or it broke: {cause}")

    def _end(self, trouble: Trouble) -> Answer:
        """Return the answer to a question that has none. Raises ThresherError where going on makes no sense."""
        if trouble.reason in PASSING:
            self._in_a_row += 1
            if trouble.reason == NO_CONNECTION and not self._answered:
                raise ThresherError(self._message(trouble, "start the server, or correct base_url"))
            limit = self.connection.give_up_after
            if limit is not None and self._in_a_row >= limit:
                remedy = f"{self._in_a_row} questions in a row have no answer (give_up_after); see to the server"
                raise ThresherError(self._message(trouble, remedy))
        return Answer(reason=trouble.reason, detail=self._clean(trouble.detail))

    def _message(self, trouble: Trouble, remedy: str) -> str:
        key = f", key from {self.connection.key_variable}" if self.connection.key_variable else ""
        return (
            f"{self.connection.name}: {self.connection.base_url} (model {self.connection.model}{key}) says: "
            f"{self._clean(trouble.detail)}; {remedy}. Answers so far are kept and are not asked for again"
        )

    def _clean(self, text: str) -> str:
        """Return a text without the key, in one line."""
        return " ".join(self.without_key(text).split())[:SHOWN_CHARACTERS]

    def without_key(self, text: str) -> str:
        """Return a text that came from the server, with stars in the place of the key."""
        return text.replace(self._key, "***") if self._key else text


def _backoff(tries: int) -> float:
    """Return the seconds before the next try: twice as many after each, up to a limit, and a random part of that.

    Source: M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), equal jitter.
    """
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0**tries)
    return longest * random.uniform(0.5, 1.0)


def _close(client: openai.AsyncOpenAI) -> None:
    asyncio.run_coroutine_threadsafe(client.close(), _event_loop())


_lock = threading.RLock()
_loops: list[asyncio.AbstractEventLoop] = []
_clients: weakref.WeakValueDictionary[tuple[str, str], JudgeClient] = weakref.WeakValueDictionary()


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, which runs in a thread that does not keep the process alive."""
    with _lock:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(target=_loops[0].run_forever, name="judge", daemon=True).start()
        return _loops[0]


def shared_client(run: str, connection: Connection, key: str | None) -> JudgeClient:
    """Return the client of a stage: one per process and start of a run, with a budget for all processes of a machine.

    Args:
        run: names the start of the run; empty for a client that nobody shares.
        connection: how the server is asked.
        key: the secret; None to send none.
    """
    max_calls, max_tokens = connection.max_calls, connection.max_tokens
    if not run:
        return JudgeClient(connection, key, Budget(max_calls, max_tokens))
    with _lock:
        client = _clients.get((run, connection.name))
        if client is None:
            limited = max_calls is not None or max_tokens is not None
            file = counting_file(run, connection.name) if limited else None
            client = JudgeClient(connection, key, Budget(max_calls, max_tokens, file))
            _clients[run, connection.name] = client
        return client
