"""Whole runs with a judge: the answers are paid for once, whatever happens, and the key is nowhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.errors import ThresherError
from pipelines import run as run_config
from pipelines.config import load_config
from tests.pipelines.corpora import report, run, table, write_config
from tests.scorers.judge_server import JudgeProcess, judge_process

REPOSITORY = Path(__file__).resolve().parents[2]
KEY = "sk-live-5f3b8a7d21c94e60"
WORKERS = ("--direct_num_workers=2",)


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeProcess]:
    with judge_process("--key", KEY) as process:
        yield process


def write_pairs(path: Path, responses: list[str]) -> str:
    rows = [
        {"id": f"p{number}", "prompt": f"Question {number}?", "response": response, "kind": "ab"[number % 2]}
        for number, response in enumerate(responses)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def config_of(folder: Path, files: list[str], server: JudgeProcess, **settings: Any) -> Path:
    judge = {
        "base_url": server.base_url, "model": "m", "score_table": str(folder / "scores"), "keep": {"at_least": 4.5},
        "key_variable": "JUDGE_KEY", "retries": 1, **settings,
    }  # fmt: skip
    return write_config(
        folder / "config.yaml", files, folder / "run", [{"judge": judge}], id_column="id", prompt_column="prompt",
        response_column="response", batch_rows=10,
    )  # fmt: skip


def thresher(*arguments: str, key: str | None = KEY) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JUDGE_KEY"}
    if key is not None:
        environment["JUDGE_KEY"] = key
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    return subprocess.Popen(
        command, env=environment, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def files_with(text: str, *folders: Path) -> list[Path]:
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert found
    return [path for path in found if text.encode() in path.read_bytes()]


def test_a_run_and_another_that_calls_nobody(server: JudgeProcess, tmp_path: Path) -> None:
    responses = [
        "[says json] run", "[says korean] run", "[says prose] run", "[score 5] run", "[score 4.4] run",
        "[says unparsable] run", "[says out_of_range] run", "[broken] run", "[tells_key] run", "[tells_key_500] run",
        "[busy 1] run", "[slow 0.2] run",
    ]  # fmt: skip
    config = config_of(tmp_path, [write_pairs(tmp_path / "pairs.jsonl", responses)], server)
    process = thresher("run", "--debug", str(config), *WORKERS)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    kept = {row["response"]: row["score_judge"] for row in table(tmp_path / "run", "curated")}
    assert kept == {
        "[says json] run": 4.5, "[says korean] run": 4.5, "[score 5] run": 5.0, "[busy 1] run": 4.5,
        "[slow 0.2] run": 4.5,
    }  # fmt: skip
    rules = {row["record_id"]: (row["rule"], row["value"]) for row in table(tmp_path / "run", "ledger")}
    assert rules == {
        "p2": ("keep", 3.5), "p4": ("keep", 4.4), "p5": ("unparsable", 0.0), "p6": ("out_of_range", 0.0),
        "p7": ("server_error", 0.0), "p8": ("unparsable", 0.0), "p9": ("server_error", 0.0),
    }  # fmt: skip
    replies = {row["record_id"]: row["judge.reply"] for row in table(tmp_path / "run", "signals")}
    assert replies["p5"] == "I like it very much."
    assert replies["p8"] == "Your key is Bearer ***."
    assert "2 records have no score because the server or the budget failed them" in " ".join(output.split())
    assert KEY not in output
    assert files_with(KEY, tmp_path) == []
    before = server.log()["calls"]
    assert run(config, "--output", str(tmp_path / "other"), "--set=judge.max_calls=0") == 0
    assert server.log()["calls"] == before
    assert {row["response"]: row["score_judge"] for row in table(tmp_path / "other", "curated")} == kept
    details = json.loads((tmp_path / "other" / "run.json").read_text(encoding="utf-8"))
    assert details["scores"]["judge"]["from_table"] == details["scores"]["judge"]["scored"] == 7
    rules = {row["record_id"]: row["rule"] for row in table(tmp_path / "other", "ledger")}
    assert (rules["p7"], rules["p9"], rules["p5"]) == ("budget_exhausted", "budget_exhausted", "unparsable")


def test_killed_and_started_again(tmp_path: Path) -> None:
    concurrency, count = 4, 60
    with judge_process("--delay", "0.15") as server:
        files = [write_pairs(tmp_path / "pairs.jsonl", [f"[score {number % 6}] {number}" for number in range(count)])]
        config = config_of(tmp_path, files, server, concurrency=concurrency, key_variable="off")
        again = 0
        for at_least in (17, 38):
            process = thresher("run", str(config), *WORKERS, key=None)
            end = time.monotonic() + 100
            while server.log()["total"] < at_least:
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < end, "the run does not ask"
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            assert process.returncode == -signal.SIGKILL
            again += concurrency
            assert not (tmp_path / "run/manifest.json").exists()
        time.sleep(0.3)
        process = thresher("run", str(config), *WORKERS, key=None)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        log = server.log()
        assert len(log["calls"]) == count
        assert count <= log["total"] <= count + again
        assert log["most_under_way"] <= concurrency
    records = report(tmp_path / "run")["records"]
    assert (records["read"], records["kept"]) == (count, count // 6)
    scores = {row["record_id"]: row["judge.score"] for row in table(tmp_path / "run", "signals")}
    assert scores == {f"p{number}": float(number % 6) for number in range(count)}


def test_workers_share_the_budget(server: JudgeProcess, tmp_path: Path) -> None:
    files = [
        write_pairs(tmp_path / f"{part}.jsonl", [f"[score 5] limit {part} {n}" for n in range(20)]) for part in "abc"
    ]
    config = config_of(tmp_path, files, server, max_calls=13)
    process = thresher("run", str(config), *WORKERS, "--direct_running_mode=multi_processing")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert report(tmp_path / "run")["records"] == {"read": 60, "kept": 13, "dropped": 47, "dead": 0}
    assert sum(count for text, count in server.log()["calls"].items() if "limit" in text) == 13
    # More money: only those without an answer are asked for.
    assert thresher("run", str(config), *WORKERS, "--overwrite", "--set=judge.max_calls=40").wait(120) == 0
    assert report(tmp_path / "run")["records"]["kept"] == 53
    assert sum(count for text, count in server.log()["calls"].items() if "limit" in text) == 53


def test_what_cannot_work_is_said_at_once(server: JudgeProcess, tmp_path: Path) -> None:
    files = [write_pairs(tmp_path / "pairs.jsonl", ["[score 5] early"] * 3)]
    config = config_of(tmp_path, files, server)
    process = thresher("run", str(config), key=None)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (
        2,
        "thresher: judge.key_variable: the environment variable JUDGE_KEY is not set, on this machine at least; put "
        "the key into it, or set key_variable to off for a server that wants none\n",
    )
    wrong = "sk-wrong-7d3f"
    process = thresher("run", "--debug", str(config), key=wrong)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "(model m, key from JUDGE_KEY) says: " in output
    assert "give a key that may use this model" in output
    assert wrong not in output
    assert files_with(wrong, tmp_path) == []
    # The same command goes on once the key is right.
    process = thresher("run", str(config))
    assert process.communicate(timeout=60)[0].count("going on with an unfinished run") == 1
    assert process.returncode == 0
    text = config.read_text(encoding="utf-8").replace("key_variable: JUDGE_KEY", f"api_key: {KEY}")
    config.write_text(text, encoding="utf-8")
    process = thresher("validate", str(config))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "api_key: unknown setting here" in output
    assert KEY not in output


def test_the_policy_fail_ends_the_run_and_keeps_what_was_found(server: JudgeProcess, tmp_path: Path) -> None:
    responses = ["[score 5] policy", "[says unparsable] policy", "[score 3] policy"]
    config = config_of(tmp_path, [write_pairs(tmp_path / "pairs.jsonl", responses)], server, unscorable="fail")
    loaded = load_config(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_KEY", KEY)
        with pytest.raises(ThresherError, match=r"the record p1 has no score \(unparsable\), and unscorable is fail"):
            run_config(loaded)
        before = server.log()["total"]
        assert run(config, "--set=judge.unscorable=keep", "--output", str(tmp_path / "kept")) == 0
    assert server.log()["total"] == before
    assert [row["response"] for row in table(tmp_path / "kept", "curated")] == responses[:2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def ties(shared: Path) -> Iterator[tuple[Path, str]]:
    folder = shared / "cases" / "s07-ties-at-the-cut"
    port = free_port()
    with subprocess.Popen([sys.executable, str(folder / "serve.py"), str(port)]) as process:
        end = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < end
            time.sleep(0.05)
        yield folder, f"http://127.0.0.1:{port}/v1"
        process.kill()


def kept_of(ties: tuple[Path, str], tmp_path: Path, file: str, keep: dict[str, Any], workers: int = 1) -> list[str]:
    folder, base_url = ties
    judge = {
        "base_url": base_url,
        "model": "canned",
        "key_variable": "off",
        "score_table": str(tmp_path / "t"),
        "keep": keep,
    }
    output = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    config = write_config(
        tmp_path / "c.yaml", [str(folder / file)], output, [{"judge": judge}], id_column="id", prompt_column="prompt",
        response_column="response",
    )  # fmt: skip
    assert run(config, f"--direct_num_workers={workers}") == 0
    return sorted(row["record_id"] for row in table(output, "curated"))


def test_s07_thresholds_and_the_best(ties: tuple[Path, str], tmp_path: Path) -> None:
    names = [f"k{number:02d}" for number in range(1, 13)]
    for at_least, count in ((4.5, 6), (4.1, 8), (0.7, 11), (0.0, 12)):
        assert kept_of(ties, tmp_path, "input.jsonl", {"at_least": at_least}) == names[:count], at_least
    best = kept_of(ties, tmp_path, "input.jsonl", {"best": 4})
    assert best[:2] == names[:2]
    assert len(best) == 4
    assert set(best) < set(names[:6])
    assert kept_of(ties, tmp_path, "shuffled.jsonl", {"best": 4}, workers=2) == best
    assert kept_of(ties, tmp_path, "input.jsonl", {"best": 1, "per": "group"}) == ["k01", "k02"]


def test_the_config_of_alpagasus_runs_on_pairs(
    server: JudgeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sample" / "pairs"
    folder.mkdir(parents=True)
    rows = [
        {
            "id": f"a{number}",
            "prompt": f"Question {number}?",
            "response": f"[score {number / 2}] alpagasus",
            "source": "s",
        }
        for number in range(11)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[10]]), encoding="utf-8")
    shutil.copy(REPOSITORY / "configs" / "alpagasus.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    sets = (f"--set=judge.base_url={server.base_url}", "--set=judge.model=m", "--set=judge.score_table=scores")
    assert run(tmp_path / "alpagasus.yaml", *sets) == 0
    kept = table(tmp_path / "runs" / "alpagasus", "curated")
    assert [row["score_judge"] for row in kept] == [4.5, 5.0]
    # Each distinct pair costs one call.
    assert sum(count for text, count in server.log()["calls"].items() if "alpagasus" in text) == 11
