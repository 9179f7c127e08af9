"""``thresher suites``: what it lists, checks and fetches (from a hub on this machine), and how it fails."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from filters.suite_check import check_suites
from filters.suites import find_suites
from pipelines.cli import main
from tests.pipelines.hub import Hub, serving

REPOSITORY = Path(__file__).resolve().parents[2]
LONG = "Which of the seven hills of the old town is the highest and has the finest view of the sea?"
ROWS = [
    {"n": 1, "q": LONG, "a": "the Quirinal"},
    {"n": 2, "q": LONG.replace("highest", "lowest"), "a": "the Aventine"},
    {"n": 3, "q": LONG.upper(), "a": "The Quirinal."},
    {"n": 4, "q": "", "a": None},
    {"n": 5, "q": "Is it so?", "a": "yes"},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
SUITE = """\
benchmarks:
  - name: quiz
    license: CC0-1.0
    files: quiz.jsonl
    id: n
    question: q
    answer: a
"""
HUB_SUITE = """\
benchmarks:
  - name: quiz
    hub: {id: owner/quiz, revision: v1}
    files: [data/test-*.jsonl]
    id: n
    question: q
    answer: a
  - name: other
    hub: {id: owner/other, revision: v1}
    files: test.csv
    question: q
"""


def written(folder: Path, text: str = SUITE, lines: bytes = LINES) -> str:
    (folder / "quiz.jsonl").write_bytes(lines)
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return str(folder / "suite.yaml")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["suites", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["benchmarks"]


def test_list_tells_files_licence_and_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = written(tmp_path)
    (quiz,) = printed(capsys, "list", suite)
    digest = hashlib.sha256(LINES).hexdigest()
    assert (quiz["name"], quiz["license"], quiz["origin"], quiz["items"]) == ("quiz", "CC0-1.0", "local", 5)
    assert quiz["files"] == [{"name": "quiz.jsonl", "bytes": len(LINES), "sha256": digest}]
    assert main(["suites", "list", suite]) == 0
    table = capsys.readouterr().out
    assert "CC0-1.0" in table
    assert "not on this machine" not in table
    (tmp_path / "quiz.jsonl").unlink()
    (quiz,) = printed(capsys, "list", suite)
    assert (quiz["items"], quiz["files"]) == (None, [])
    assert quiz["missing"].startswith(f"{suite}:4: benchmark quiz: files: quiz.jsonl matches no file")
    assert main(["suites", "list", suite]) == 0
    assert "not on this machine, or not readable: 1; the first: " in capsys.readouterr().out


def test_list_without_files_lists_the_ready_made_suites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(tmp_path))
    found = printed(capsys, "list")
    assert {("gsm8k", "openai/gsm8k@main"), ("gsm8k", "local")} <= {(one["name"], one["origin"]) for one in found}
    assert len(found) > 30


def test_check_lists_what_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = written(tmp_path)
    (quiz,) = printed(capsys, "check", suite)
    assert (quiz["items"], quiz["long"], quiz["short"]) == (5, 3, 0)
    reason = "too short without an answer, choices or context that tell something"
    assert quiz["uncheckable"] == [["4", "empty"], ["5", reason]]
    assert quiz["duplicates"] == [["3", "1"]]
    assert quiz["warnings"] == []
    assert main(["suites", "check", suite]) == 0
    out = capsys.readouterr().out
    assert quiz["digest"][:12] in out
    for line in ("quiz: empty: 4", f"quiz: {reason}: 5", "quiz: reads the same as another: 3 (as 1)"):
        assert line in out


@pytest.mark.parametrize(
    ("text", "lines", "message"),
    [
        (
            SUITE.replace("question: q", "question: questoin"),
            LINES,
            "suite.yaml:6: benchmark quiz: quiz.jsonl, row 1",
        ),
        (SUITE.replace("    id: n\n", "    idd: n\n"), LINES, "suite.yaml:5: benchmarks[0].idd: unknown setting here"),
        (SUITE, LINES + LINES[:1], "quiz.jsonl, row 6: not JSON"),
        (SUITE, LINES + LINES, "quiz.jsonl, row 6: id: the id 1 is that of quiz.jsonl, row 1 too"),
    ],
)
def test_check_ends_with_2_on_a_faulty_suite(
    text: str, lines: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suites", "check", written(tmp_path, text, lines)]) == 2
    assert message in capsys.readouterr().err


def test_an_action_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["check"], ["show"], ["list", "--into", "x"]):
        with pytest.raises(SystemExit, match="2"):
            main(["suites", *arguments])
    assert main(["suites", "check", "none/*.yaml"]) == 2
    assert "suites check: none/*.yaml matches no file" in capsys.readouterr().err


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, to which the client in this process goes; its copies have a cache folder of their own."""
    (tmp_path / "suite.yaml").write_text(HUB_SUITE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {"data/test-00000-of-00001.jsonl": LINES, "data/train.jsonl": b"{}\n", "README.md": b"about"}
    with serving(Hub({"owner/quiz": files, "owner/other": {"test.csv": f"q\n{LONG}\n".encode()}})) as found:
        going_to(found.url, monkeypatch)
        yield found


def going_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do to the client, which reads HF_ENDPOINT when it is loaded, what another address there would have done."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template.replace(constants.ENDPOINT, url))
    monkeypatch.setattr(constants, "ENDPOINT", url)


def fetch(*arguments: str) -> int:
    return main(["suites", "fetch", *arguments, "--suites", "suite.yaml"])


def test_fetch_makes_a_folder_that_needs_no_hub(hub: Hub, tmp_path: Path) -> None:
    # In a process of its own, which learns of the hub as users tell it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "pipelines.cli", "suites", "fetch", "--suites", "suite.yaml", "--into", "copies"]
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["suite"] == "copies/fetched.yaml"
    other, quiz = found["benchmarks"]
    assert (quiz["name"], quiz["items"], quiz["origin"]) == ("quiz", 5, "owner/quiz@v1")
    assert quiz["commit"] == hub.commit("owner/quiz")
    assert quiz["files"][0]["sha256"] == hashlib.sha256(LINES).hexdigest()
    assert other["items"] == 1
    copy = tmp_path / "copies" / "owner--quiz" / "v1"
    assert (copy / "data" / "test-00000-of-00001.jsonl").read_bytes() == LINES
    assert not (copy / "data" / "train.jsonl").exists(), "no benchmark names it"
    suite = tmp_path / "copies" / "fetched.yaml"
    assert f"owner/quiz at v1: commit {quiz['commit']}" in suite.read_text(encoding="utf-8")
    (again, checked) = check_suites(find_suites([str(suite)], "suites"))
    assert (checked.name, checked.origin, checked.items, checked.digest) == ("quiz", "local", 5, quiz["digest"])
    assert again.digest == other["digest"]


def test_a_copy_in_the_cache_is_found_and_follows_the_revision(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suites", "check", "suite.yaml"]) == 2
    assert "fetch owner/quiz at v1: thresher suites fetch quiz --suites" in capsys.readouterr().err
    assert fetch() == 0
    assert hub.commit("owner/quiz")[:12] in capsys.readouterr().out
    assert {one["name"]: one["items"] for one in printed(capsys, "check", "suite.yaml")} == {"other": 1, "quiz": 5}
    hub.data_sets["owner/quiz"]["data/test-1.jsonl"] = hub.data_sets["owner/quiz"].pop("data/test-00000-of-00001.jsonl")
    assert fetch("quiz") == 0
    copy = tmp_path / "cache" / "thresher" / "suites" / "owner--quiz" / "v1"
    assert [path.name for path in (copy / "data").iterdir()] == ["test-1.jsonl"], "what is no more is removed"


def test_fetch_tells_why_a_data_set_cannot_be_had_and_takes_the_others(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.refused.add("owner/quiz")
    assert fetch("--into", "copies") == 2
    printed_text = capsys.readouterr()
    assert "suite.yaml:3: benchmark quiz: cannot fetch owner/quiz at v1: the data set asks" in printed_text.err
    assert "copies/fetched.yaml" in printed_text.out
    hub.refused.clear()
    del hub.data_sets["owner/other"]
    assert fetch("other") == 2
    assert "benchmark other: cannot fetch owner/other at v1: there is no such data set" in capsys.readouterr().err
    hub.data_sets["owner/quiz"] = {"data/dev.jsonl": LINES}
    assert fetch("quiz") == 2
    missing = "suite.yaml:4: benchmark quiz: files: data/test-*.jsonl matches no file of owner/quiz at v1"
    assert missing in capsys.readouterr().err
    assert fetch("quizz") == 2
    message = "no benchmark with a hub data set is called quizz; did you mean quiz?"
    assert message in capsys.readouterr().err


def test_without_a_network_fetch_says_what_to_do(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    going_to("http://127.0.0.1:9", monkeypatch)
    assert fetch("quiz") == 2
    assert "the hub cannot be reached; check the network (HF_ENDPOINT)" in capsys.readouterr().err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch("quiz") == 2
    assert "HF_HUB_OFFLINE is set; unset it, or name local files instead of hub" in capsys.readouterr().err


def test_a_revision_leads_to_no_other_folder(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "suite.yaml").write_text(HUB_SUITE.replace("revision: v1", "revision: ../.."), encoding="utf-8")
    assert fetch("quiz") == 2
    assert (
        "suite.yaml:3: benchmarks[0].hub.revision: found ../.. (text); wanted text of the form"
        in capsys.readouterr().err
    )
