"""The table of what-if: what is taken away adds up, and a difference is that of the numbers shown."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from reports.whatif_print import print_whatif


def side(dropped: int, kept: int) -> dict[str, Any]:
    stage = {"name": "length", "dropped": dropped, "dead": 1, "rules": {"minimum_words": dropped}}
    return {"records": {"read": 100, "kept": kept, "dead": 4}, "stages": [stage], "characters": 10 * kept}


def test_the_table_adds_up() -> None:
    stream = io.StringIO()
    print_whatif({"now": side(20, 76), "then": side(50, 46)}, Console(file=stream, width=100))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in stream.getvalue().splitlines() if "│" in line]
    assert rows == [
        ["read", "", "100", "100", ""],
        ["length", "", "−20", "−50", "−30"],
        ["", "minimum_words", "−20", "−50", "−30"],
        ["", "(could not be judged)", "−1", "−1", ""],
        ["dead letters", "", "−3", "−3", ""],
        ["kept", "", "76", "46", "−30"],
        ["characters kept", "", "760", "460", "−300"],
    ]
