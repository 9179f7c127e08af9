"""Stages compile into passes in the order of the config."""

from __future__ import annotations

import pytest

from pipelines.config import RunConfig, config_from_mapping
from pipelines.passes import compile_passes


def _config(*stages: object) -> RunConfig:
    return config_from_mapping({"input": {"files": ["x.jsonl"]}, "output": "out", "stages": list(stages)})


@pytest.mark.parametrize(
    ("stages", "passes"),
    [
        ([], [[]]),
        (["language"], [["language"]]),
        (["language", "gopher_quality"], [["language", "gopher_quality"]]),
        (["exact_duplicates"], [[], ["exact_duplicates"]]),
        (
            ["language", "exact_duplicates", "gopher_quality", {"exact_duplicates": {"name": "again"}}],
            [["language"], ["exact_duplicates", "gopher_quality"], ["again"]],
        ),
    ],
)
def test_passes(stages: list[object], passes: list[list[str]]) -> None:
    compiled = compile_passes(_config(*stages).build())
    assert [[stage.name for stage in current.stages] for current in compiled] == passes
    assert [current.number for current in compiled] == list(range(1, len(passes) + 1))
    assert compiled[-1].feeds is None
    for before, current in zip(compiled, compiled[1:], strict=False):
        assert before.feeds is current.verdicts_of is not None
