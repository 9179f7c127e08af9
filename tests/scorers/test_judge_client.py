"""The client against a server process that answers well and badly: every question ends, within limits, with a name."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scorers.judge_client as judge_client
from corpus.errors import ThresherError
from scorers.judge_answer import Answer, retry_after
from scorers.judge_budget import Budget, Spent
from scorers.judge_client import Connection, JudgeClient, shared_client
from scorers.judge_prompt import Rubric
from tests.scorers.judge_server import JudgeProcess, judge_process

KEY = "sk-test-0123456789abcdef"
RUBRIC = Rubric("accuracy", None, (0, 5), True)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeProcess]:
    with judge_process("--key", KEY) as process:
        yield process


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_client, "FIRST_WAIT_SECONDS", 0.02)


def connection(base_url: str, **changes: Any) -> Connection:
    settings: dict[str, Any] = {
        "name": "judge", "base_url": base_url, "model": "m", "key_variable": "JUDGE_KEY", "temperature": 0.0,
        "response_format": RUBRIC.schema(), "answer_tokens": 50, "concurrency": 4, "timeout": 20.0, "retries": 2,
        "give_up_after": None, "max_calls": None, "max_tokens": None,
    }  # fmt: skip
    return Connection(**{**settings, **changes})


def client_of(base_url: str, key: str | None = KEY, **changes: Any) -> JudgeClient:
    settings = connection(base_url, **changes)
    return JudgeClient(settings, key, Budget(settings.max_calls, settings.max_tokens))


def ask(client: JudgeClient, texts: list[str]) -> list[Answer]:
    """Ask about each text, and return the answers in their order."""
    found = dict(client.ask(len(texts), lambda number: RUBRIC.messages("What?", texts[number], False)))
    assert sorted(found) == list(range(len(texts)))
    return [found[number] for number in range(len(texts))]


def calls(server: JudgeProcess, text: str) -> int:
    return int(server.log()["calls"].get(text, 0))


@pytest.mark.parametrize(
    ("text", "said", "expected_calls"),
    [
        ("[says json] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 1),
        ("[slow 0.3] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 1),
        ("[parts] a", "Score: 3", 1),
        ("[null] a", None, 1),
        ("[broken 2] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 3),
        ("[gateway 1] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 2),
        ("[html 1] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 2),
        ("[torn_body 1] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 2),
        ("[torn_json 1] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 2),
        ("[hangs_up 1] a", '{"score": 4.5, "explanation": "right, with 1 slip"}', 2),
    ],
)
def test_answers(server: JudgeProcess, text: str, said: str | None, expected_calls: int) -> None:
    (answer,) = ask(client_of(server.base_url), [text])
    assert (answer.text, answer.reason, answer.tokens) == (said, None, 100)
    assert calls(server, text) == expected_calls


@pytest.mark.parametrize(
    ("text", "reason", "expected_calls"),
    [
        ("[broken] b", "server_error", 3),
        ("[html] b", "server_error", 3),
        ("[torn_json] b", "server_error", 3),
        ("[no_choices] b", "server_error", 3),
        ("[torn_body] b", "server_error", 3),
        ("[hangs_up] b", "server_error", 3),
        ("[deep] b", "server_error", 3),
        ("[surrogate_500] b", "server_error", 3),
        ("[busy_long] b", "rate_limited", 1),
        ("[refuses] b", "refused", 1),
        ("[filtered] b", "refused", 1),
        ("[filter_400] b", "refused", 1),
        ("[context] b", "too_long", 1),
        ("[invalid] b", "bad_request", 2),
        ("[slow 5] b", "timeout", 3),
        ("[drips] b", "timeout", 3),
    ],
)
def test_trouble_has_a_name(server: JudgeProcess, text: str, reason: str, expected_calls: int) -> None:
    client = client_of(server.base_url, timeout=0.5 if reason == "timeout" else 20.0)
    # A server that has answered is there.
    good, bad = ask(client, [f"[says json] before {text[1:6]}"])[0], ask(client, [text])[0]
    assert (good.reason, bad.reason) == (None, reason)
    assert calls(server, text) == expected_calls


def test_a_reply_that_the_server_ended_is_cut(server: JudgeProcess) -> None:
    cut, thinks = ask(client_of(server.base_url), ["[length] c", "[thinks] c"])
    assert (cut.cut, cut.reason, thinks.cut) == (True, None, True)


def test_a_server_that_is_busy_is_given_its_time_by_all(server: JudgeProcess) -> None:
    texts = ["[busy 2] d"]
    client = client_of(server.base_url)
    started = time.monotonic()
    (answer,) = ask(client, texts)
    assert answer.reason is None
    times = server.log()["times"][texts[0]]
    assert len(times) == 3
    assert min(later - earlier for earlier, later in zip(times, times[1:], strict=False)) >= 1.0
    assert time.monotonic() - started < 8
    # One question is told to wait; others wait as well.
    client._not_before = time.monotonic() + 0.7
    started = time.monotonic()
    ask(client, ["[says json] d"])
    assert time.monotonic() - started >= 0.7


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after": "7"}) == 7.0
    assert retry_after({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    in_an_hour = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    assert 3590 < (retry_after({"retry-after": in_an_hour}) or 0) <= 3600
    for nonsense in ("soon", "nan", ""):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_no_more_calls_at_once_than_allowed() -> None:
    with judge_process("--delay", "0.1") as server:
        client = client_of(server.base_url, key=None, concurrency=5)
        assert len(ask(client, [f"[score 3] {number}" for number in range(30)])) == 30
        log = server.log()
        assert (log["total"], log["most_under_way"]) == (30, 5)


def test_calls_and_tokens_end_where_the_budget_does(server: JudgeProcess) -> None:
    texts = [f"[score 3] budget {number}" for number in range(12)]
    client = client_of(server.base_url, max_calls=5)
    reasons = [answer.reason for answer in ask(client, texts)]
    assert sorted(map(str, reasons)) == ["None"] * 5 + ["budget_exhausted"] * 7
    assert sum(calls(server, text) for text in texts) == 5
    # The server counts 100 tokens for each, and an estimate is above that; nothing is spent beyond the limit.
    client = client_of(server.base_url, max_tokens=1000, concurrency=1)
    answers = ask(client, [f"[score 3] tokens {number}" for number in range(12)])
    spent = sum(answer.tokens or 0 for answer in answers)
    assert (
        spent
        == client.budget.spent().tokens
        == 100 * (12 - [answer.reason for answer in answers].count("budget_exhausted"))
    )
    assert 500 <= spent <= 1000
    assert client.budget.spent().reserved == 0
    assert ask(client_of(server.base_url, max_calls=0), ["[score 3] none"])[0].reason == "budget_exhausted"


def test_the_processes_of_a_machine_count_together(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from scorers.judge_budget import Budget;"
        "budget = Budget(1500, None, Path(sys.argv[1])); taken = [budget.take(30) for _ in range(1000)];"
        "[budget.settle(30, 20) for one in taken if one]; print(sum(taken))"
    )
    file = tmp_path / "budget"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    taken = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(taken) == 1500
    assert Budget(1500, None, file).spent() == Spent(calls=1500, tokens=30_000, reserved=0)


def test_what_is_under_way_counts_as_estimated() -> None:
    budget = Budget(None, 1000)
    assert [budget.take(300) for _ in range(4)] == [True, True, True, False]
    budget.settle(300, 100)
    assert [budget.take(300), budget.take(1)] == [True, False]
    assert budget.spent() == Spent(calls=4, tokens=100, reserved=900)


def test_a_retry_is_a_call_of_the_budget(server: JudgeProcess) -> None:
    (answer,) = ask(client_of(server.base_url, max_calls=2), ["[broken 2] budget"])
    assert (answer.reason, calls(server, "[broken 2] budget")) == ("budget_exhausted", 2)


def test_servers_without_structured_output_or_with_other_names() -> None:
    with judge_process("--refuses", "response_format", "--refuses", "max_tokens") as server:
        client = client_of(server.base_url, concurrency=1)
        assert [answer.reason for answer in ask(client, ["[score 1] a", "[score 2] b", "[score 3] c"])] == [None] * 3
        log = server.log()
        # Refused for each of the two once, and never again.
        assert log["total"] == 5
        assert ["response_format" in request for request in log["requests"]] == [True, False, False, False, False]
        assert [request.get("max_completion_tokens") for request in log["requests"]] == [None, None, 50, 50, 50]


def test_many_questions_at_once_find_out_what_a_server_wants() -> None:
    with judge_process("--refuses", "max_tokens", "--delay", "0.05") as server:
        client = client_of(server.base_url, concurrency=8)
        assert {answer.reason for answer in ask(client, [f"[score 1] {number}" for number in range(16)])} == {None}
        requests = server.log()["requests"]
        # Structured output was not at fault.
        assert all("response_format" in request for request in requests)
        assert len(requests) == 16 + 8


def test_what_is_asked(server: JudgeProcess) -> None:
    ask(client_of(server.base_url), ["[score 1] asked"])
    request = next(one for one in server.log()["requests"] if "[score 1] asked" in one["messages"][-1]["content"])
    assert request["path"] == "/v1/chat/completions"
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m", 0.0, 50)
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["score", "explanation"]


def test_one_record_that_the_server_will_not_have_leaves_structured_output_on(server: JudgeProcess) -> None:
    client = client_of(server.base_url, concurrency=1)
    assert [answer.reason for answer in ask(client, ["[invalid] e", "[score 2] e"])] == ["bad_request", None]
    last = server.log()["requests"][-1]
    assert "response_format" in last


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[score 1] f", "sk-wrong-key", "give a key that may use this model"),
        ("[forbidden] f", KEY, "give a key that may use this model"),
        ("[unknown_model] f", KEY, "correct base_url"),
        ("[no_credit] f", KEY, "the account has no credit left"),
    ],
)
def test_what_every_record_would_suffer_ends_the_run(server: JudgeProcess, text: str, key: str, message: str) -> None:
    with pytest.raises(ThresherError, match=message) as error:
        ask(client_of(server.base_url, key=key), [text] * 20)
    assert "key from JUDGE_KEY" in str(error.value)
    assert key not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_a_server_that_is_away_ends_the_run() -> None:
    with judge_process() as server:
        address = server.base_url
    with pytest.raises(ThresherError, match=r"start the server, or correct base_url"):
        ask(client_of(address), ["a", "b"])


def test_a_server_that_goes_away_fails_its_records() -> None:
    with judge_process() as server:
        client = client_of(server.base_url, key=None)
        ask(client, ["a"])
    answers = ask(client, ["b", "c"])
    assert [answer.reason for answer in answers] == ["no_connection"] * 2
    assert "connection" in answers[0].detail


def test_a_server_that_fails_all_records_ends_the_run(server: JudgeProcess) -> None:
    client = client_of(server.base_url, retries=0, give_up_after=6, concurrency=1)
    texts = [
        *(f"[broken] g{number}" for number in range(5)),
        "[says json] g",
        *(f"[broken] h{number}" for number in range(9)),
    ]
    with pytest.raises(ThresherError, match=r"6 questions in a row have no answer"):
        ask(client, texts)
    assert sum(calls(server, text) for text in texts) == 12


def test_the_key_is_nowhere(server: JudgeProcess, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client = client_of(server.base_url, retries=1)
        said, failed = ask(client, ["[tells_key] i", "[tells_key_500] i"])
    assert failed.detail == "Error code: 500 - Failed with Bearer ***"
    assert client.without_key(said.text or "") == "Your key is Bearer ***."
    assert caplog.records
    assert KEY not in caplog.text
    assert KEY not in repr(client) + repr(client.connection) + repr(client.budget)


def test_stages_of_one_run_share_a_client_and_its_budget(
    server: JudgeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = connection(server.base_url, max_calls=3)
    first, second = (shared_client("run-1", settings, KEY) for _ in range(2))
    assert first is second
    assert shared_client("run-2", settings, KEY) is not first
    assert shared_client("", settings, KEY) is not shared_client("", settings, KEY)
    ask(first, ["[score 1] j", "[score 2] j"])
    del first, second
    gc.collect()
    # A runner builds stages anew in the middle of a run.
    again = shared_client("run-1", settings, KEY)
    assert sorted(str(answer.reason) for answer in ask(again, ["[score 3] j", "[score 4] j"])) == [
        "None",
        "budget_exhausted",
    ]


def test_who_stops_listening_stops_the_questions(server: JudgeProcess) -> None:
    texts = [f"[slow 0.2] k{number}" for number in range(40)]
    asked = client_of(server.base_url).ask(40, lambda number: RUBRIC.messages(None, texts[number], False))
    next(iter(asked))
    asked.close()  # type: ignore[attr-defined]
    time.sleep(0.6)
    assert sum(calls(server, text) for text in texts) <= 8
