"""Five runs that are killed, at moments and at named points, and resumed; ``python -m benchmarks.kills`` does 100."""

from __future__ import annotations

import pytest

from benchmarks.kills import MODES, NAMED, Kill, Trial, earlier, random_kills


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("kills"), 600)


@pytest.mark.parametrize(
    "kill",
    [
        Kill("processes", moment=0.7),
        Kill("processes", moment=0.3, victim="worker"),
        Kill("processes", "before a rename", 4),
        Kill("threads", "in the middle of a Parquet file", 2),
        Kill("threads", "between the last output and the manifest"),
    ],
    ids=["driver", "worker", "rename", "parquet", "manifest"],
)
def test_a_killed_run_goes_on_to_the_same_manifest_and_leaves_nothing(
    trial: Trial, kill: Kill, request: pytest.FixtureRequest
) -> None:
    assert trial.run(request.node.callspec.id, kill) == []


def test_random_kills_are_of_all_kinds_and_follow_from_the_seed() -> None:
    kills = random_kills(100, 0)
    assert kills == random_kills(100, 0) != random_kills(100, 1)
    assert {kill.point for kill in kills} == {None, *NAMED}
    assert {(kill.mode, kill.victim) for kill in kills if kill.point is None} == {
        ("threads", "driver"), ("processes", "driver"), ("processes", "worker"),
    }  # fmt: skip
    assert {kill.mode for kill in kills if kill.point} == set(MODES)
    assert earlier(Kill("threads", "before a rename", 5)) == Kill("threads", "before a rename", 2)
