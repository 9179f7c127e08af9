"""The page of a comparison of two runs: what ``thresher compare`` prints, for people, without network or program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corpus.errors import UsageError
from reports.html import can_draw, templates

ROWS = 40
MISSING = "the page of a comparison needs Jinja2: pip install 'thresher[report]'"


def comparison_html(comparison: Mapping[str, Any], sentence: str, beyond: Sequence[str]) -> bytes:
    """Return the page, UTF-8. Raises UsageError where what it is made with is not installed.

    Args:
        comparison: what ``reports.compare.compare`` found.
        sentence: what ``reports.compare.cause`` says of it.
        beyond: what ``reports.compare.beyond`` found.
    """
    if not can_draw():
        raise UsageError(MISSING)
    from reports.html_views import number
    from reports.visible import name_text

    environment = templates()
    environment.filters |= {"name": name_text, "percent": _percent, "points": _points, "value": number}
    tables = [
        ("Rules", "the share that each rule drops of the records that enter its stage", ("stage", "rule"), "rules"),
        ("Sources", "the share of each source's records that is kept", ("source",), "sources"),
    ]
    page = environment.get_template("comparison.html.j2").render(
        comparison=comparison,
        sentence=sentence,
        beyond=beyond,
        tables=[
            (title, what, columns, _changed(comparison[key], "change"))
            for title, what, columns, key in tables
            if _changed(comparison[key], "change")
        ],
        mixtures=[
            *((f"Kept by {group}", group, entry) for group, entry in comparison["mixture"].items()),
            *((f"Signal {row['signal']}", "name", row) for row in comparison["signals"] if row.get("total_variation")),
        ],
        rows_shown=ROWS,
        signals=sorted(
            (row for row in comparison["signals"] if "stability_index" in row),
            key=lambda row: (-row["stability_index"], -row["kolmogorov_smirnov"], row["signal"]),
        )[:ROWS],
    )
    return page.encode()


def _changed(rows: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row[name]][:ROWS]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _points(change: float | None) -> str:
    return "–" if change is None else f"{100 * change:+.1f}"
