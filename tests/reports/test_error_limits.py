"""Limits on dead letters and failed files: of a run, of each source, of each file."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.inputs import ErrorLimits, InputConfig
from pipelines.config import config_from_mapping
from reports.error_limits import ErrorGroup, error_groups, too_many_errors

# Of two files one has a broken line, which has the file in the place of a source; a third one could not be read.
COUNTS: dict[str, Any] = {
    "records": {"read": 100, "kept": 92, "dropped": 0, "dead": 8},
    "files": {"a.jsonl": {"rows": 60, "dead": 6}, "b.jsonl": {"rows": 40, "dead": 2}},
    "file_faults": {"c.jsonl": 1},
    "by_source": {
        "a.jsonl": {"read": 1, "dead": 1},
        "books": {"read": 49, "dead": 0},
        "web": {"read": 20, "dead": 4},
    },
    "no_source": {"read": 30, "dead": 3},
}


def _config(limits: Any) -> InputConfig:
    return InputConfig.model_validate({"files": ["a"], "source_column": "source", "max_errors": limits})


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        (None, None),
        (9, None),
        (8, "9 dead letters and failed files, more than input.max_errors (8)"),
        ({"count": 8}, "9 dead letters and failed files, more than input.max_errors.count (8)"),
        (0.09, None),
        (0.089, "9 dead letters and failed files of 100 records (9 %), more than input.max_errors (0.089)"),
        ({"share": 0.09, "count": 9}, None),
        (
            {"share": 0.1, "count": 8},
            "9 dead letters and failed files of 100 records (9 %), more than input.max_errors.count (8) or "
            "input.max_errors.share (0.1)",
        ),
        (
            {"share": 0.1, "per": "source"},
            "2 sources have more dead letters and failed files than input.max_errors.share (0.1), the worst: "
            "c.jsonl (1 of 0), web (4 of 20)",
        ),
        (
            {"count": 2, "per": "source"},
            "2 sources have more dead letters and failed files than input.max_errors.count (2), the worst: "
            "web (4 of 20), (no source) (3 of 30)",
        ),
        (
            {"count": 2, "per": "file"},
            "1 file has more dead letters and failed files than input.max_errors.count (2), the worst: "
            "a.jsonl (6 of 60)",
        ),
        ({"count": 6, "per": "file"}, None),
    ],
)
def test_limits(limits: Any, wanted: str | None) -> None:
    assert too_many_errors(_config(limits), COUNTS) == wanted


def test_all_sources_are_limited_and_ten_are_named() -> None:
    sources = {f"s{number:05d}": {"read": 10, "dead": number % 2} for number in range(30_000)}
    message = too_many_errors(_config({"count": 0, "per": "source"}), {"by_source": sources})
    assert message is not None
    assert message.startswith("15,000 sources have ")
    assert message.endswith(
        "the worst: " + ", ".join(f"s{n:05d} (1 of 10)" for n in range(1, 20, 2)) + " and 14,990 more"
    )


def test_a_name_stays_on_its_line() -> None:
    assert str(ErrorGroup("web\nthresher: done", 1, 2)) == "web\\nthresher: done (1 of 2)"


def test_a_run_without_input_has_no_errors() -> None:
    for per in ("all", "source", "file"):
        assert too_many_errors(_config({"count": 0, "share": 0, "per": per}), {}) is None
        assert [group.errors for group in error_groups({}, per)] in ([], [0])


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 10_000))
def test_a_share_is_the_decimal_that_was_written(errors: int, read: int, share: int) -> None:
    group = ErrorGroup("a", min(errors, read), read)
    limits = ErrorLimits(share=share / 10_000)
    assert group.exceeds(limits) == (Fraction(min(errors, read), read) > Fraction(share, 10_000))


def test_a_share_of_29_hundredths_allows_29_of_100() -> None:
    # As float64 the product is 28.999999999999996.
    assert not ErrorGroup(None, 29, 100).exceeds(ErrorLimits(share=0.29))
    assert ErrorGroup(None, 30, 100).exceeds(ErrorLimits(share=0.29))


@pytest.mark.parametrize("limits", [-1, 1.5, 1.0, 0.0, "many", {}, {"per": "source"}, {"share": 1.5}, {"count": 0.5}])
def test_limits_that_make_no_sense(limits: Any) -> None:
    with pytest.raises(ValidationError):
        _config(limits)


def test_what_is_wrong_is_said_once() -> None:
    mapping = {"input": {"files": ["a"], "max_errors": {"per": "source"}}, "stages": []}
    with pytest.raises(UsageError) as raised:
        config_from_mapping(mapping)
    assert str(raised.value) == "config: input.max_errors: give count, share, or both"
