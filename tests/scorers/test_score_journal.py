"""Results that arrive one by one are in the table, whatever happens to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpus.errors import ThresherError
from corpus.folder import Folder
from corpus.stages import Signal
from scorers.score_table import Part, ScoreTable, text_keys
from scorers.scoring import Pairs, Scores

IDENTITY = {"scorer": "length"}
MORE = (Signal("said", "string", "What was said."),)


def pairs(*texts: str) -> Pairs:
    return Pairs(None, pa.array(texts, pa.string()))


def open_table(folder: str) -> ScoreTable:
    return ScoreTable.open(folder, IDENTITY, MORE)


class OneByOne:
    """Scores a text by its length, one after the other, and counts what it was asked.

    Args:
        stop_after: fails with the result after so many.
    """

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[str] = []
        self.stop_after = stop_after

    def __call__(self, found: Pairs) -> Iterator[Part]:
        # From the end: results come in any order.
        for row in reversed(range(len(found))):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise ThresherError("the server is away")
            text = found.responses[row].as_py()
            self.asked.append(text)
            lasting = not text.startswith("passing")
            value = float(len(text)) if lasting else np.nan
            more = {"said": pa.array([f"“{text}”\n"])}
            yield (
                np.array([row]),
                Scores(np.array([value]), [None if lasting else "timeout"], more, np.array([lasting])),
            )


def journals(folder: Path | str) -> list[Path]:
    return list(Path(folder).rglob("journal-*"))


def test_results_in_any_order_are_those_of_their_records(tmp_path: Path) -> None:
    table, scorer = open_table(str(tmp_path)), OneByOne()
    scores, reused = table.arriving_scores(pairs("a", "bbb", "passing", "a", "cc"), scorer, at_risk=4)
    assert scores.values.tolist()[:2] == [1.0, 3.0]
    assert np.isnan(scores.values[2])
    assert scores.reasons == [None, None, "timeout", None, None]
    assert scores.more["said"].to_pylist() == ["“a”\n", "“bbb”\n", "“passing”\n", "“a”\n", "“cc”\n"]
    assert not reused.any()
    # Equal texts are asked for once.
    assert sorted(scorer.asked) == ["a", "bbb", "cc", "passing"]
    assert journals(tmp_path) == []
    again = OneByOne()
    scores, reused = open_table(str(tmp_path)).arriving_scores(pairs("cc", "passing", "d"), again, at_risk=4)
    assert (scores.values.tolist()[0], reused.tolist()) == (2.0, [True, False, False])
    assert sorted(again.asked) == ["d", "passing"]


def test_what_arrived_before_a_failure_is_kept(tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    with pytest.raises(ThresherError, match="away"):
        table.arriving_scores(pairs("a", "bb", "ccc"), OneByOne(stop_after=2), at_risk=1)
    assert journals(tmp_path) == []
    for same in (table, open_table(str(tmp_path))):
        scorer = OneByOne()
        _, reused = same.arriving_scores(pairs("a", "bb", "ccc"), scorer, at_risk=1)
        assert (len(scorer.asked), reused.tolist()) == (1, [False, True, True]) if same is table else (0, [True] * 3)


def test_stages_of_one_run_share_what_they_find(tmp_path: Path) -> None:
    first, second = (ScoreTable.shared("run-1", str(tmp_path), IDENTITY, MORE) for _ in range(2))
    assert first is second
    others = [ScoreTable.shared(run, str(tmp_path), IDENTITY, MORE) for run in ("run-2", "", "")]
    assert len({id(table) for table in (first, *others)}) == 4
    assert ScoreTable.shared("run-1", str(tmp_path), {"scorer": "other"}, MORE) is not first
    texts = [[f"{'x' * (1 + (number + part) % 40)}" for number in range(30)] for part in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda part: first.arriving_scores(pairs(*part), OneByOne(), at_risk=2)[0], texts))
    assert [scores.values.tolist() for scores in found] == [[float(len(text)) for text in part] for part in texts]
    # None of the threads has lost what another found.
    scorer = OneByOne()
    first.arriving_scores(pairs(*(text for part in texts for text in part)), scorer, at_risk=2)
    assert scorer.asked == []


KILLED = """
import os, sys
from tests.scorers.test_score_journal import OneByOne, open_table, pairs

class Stuck(OneByOne):
    def __call__(self, found):
        for number, part in enumerate(super().__call__(found)):
            if number == 7:
                print("stuck", flush=True)
                sys.stdin.read()
            yield part

open_table(sys.argv[1]).arriving_scores(pairs(*(f"text {number}" for number in range(20))), Stuck(), at_risk=3)
"""


def test_results_survive_a_process_that_is_killed(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, cwd=repository, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        # While it is at work, another process has what it found so far.
        assert len(open_table(str(tmp_path))) == 7
        os.kill(process.pid, signal.SIGKILL)
    (journal,) = journals(tmp_path)
    assert len(journal.read_bytes().splitlines()) == 7
    scorer = OneByOne()
    scores, reused = open_table(str(tmp_path)).arriving_scores(
        pairs(*(f"text {number}" for number in range(20))), scorer, at_risk=3
    )
    assert reused.sum() == 7
    assert len(scorer.asked) == 13
    assert scores.more["said"].to_pylist()[19] == "“text 19”\n"


def test_a_torn_last_line_is_no_result_and_another_is_an_error(tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    key = text_keys(pairs("a"))[0].as_py().hex()
    line = f'{{"key":"{key}","score":4.5,"reason":null,"said":"x"}}\n'.encode()
    journal = Path(table.folder.path("journal-0123.jsonl"))
    for end in range(len(line)):
        journal.write_bytes(line + line[:end])
        found = open_table(str(tmp_path))
        assert len(found) == 1, end
        scores, _ = found.scores(pairs("a"), lambda missing: pytest.fail(f"{len(missing)} scored again"))
        assert scores.values.tolist() == [4.5]
    for broken in (b"{}\n", b"[1]\n", line.replace(b":4.5", b':"x"'), line.replace(key.encode(), b"00"), b"nonsense\n"):
        journal.write_bytes(broken + line)
        with pytest.raises(ThresherError, match=r"journal-0123.jsonl: no file of a score table .*; remove it"):
            open_table(str(tmp_path))


def test_an_object_store_gets_few_objects_and_loses_at_most_what_is_said() -> None:
    name = f"memory://scores-{time.monotonic_ns()}"
    table = open_table(name)
    seen: list[tuple[int, int]] = []

    class Watching(OneByOne):
        def __call__(self, found: Pairs) -> Iterator[Part]:
            for number, part in enumerate(super().__call__(found)):
                seen.append((number, len(open_table(name))))
                yield part

    table.arriving_scores(pairs(*(f"text {number}" for number in range(20))), Watching(), at_risk=6)
    assert all(arrived - 6 < kept <= arrived for arrived, kept in seen)
    assert [kept for _, kept in seen][-1] == 18
    assert [one.rpartition(".")[2] for one in Folder(table.folder.root).names()] == ["parquet", "json"]
    assert len(open_table(name)) == 20
