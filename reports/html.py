"""``report.html``: the run on one page, which needs no network and runs no program.

The page is a Jinja template with automatic escaping. Its content security policy forbids everything but inline style,
so a text that got through as mark-up could still not load or run anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.planning_types import InputPlan
from reports.fates import StageInfo

if TYPE_CHECKING:
    from jinja2 import Environment

HTML_NAME = "report.html"
MISSING = "report.html needs Jinja2 and Matplotlib: pip install 'thresher[report]', then thresher report RUN --html"


def can_draw() -> bool:
    """Say whether what the page is made with is installed."""
    return all(find_spec(name) is not None for name in ("jinja2", "matplotlib"))


def templates() -> Environment:
    """Return the environment of the pages' templates: all text is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def html_report(
    folder: Folder,
    outputs: Sequence[str],
    report: Mapping[str, Any],
    details: Mapping[str, Any],
    infos: Sequence[StageInfo],
    config: InputConfig,
    plan: InputPlan | None,
) -> bytes:
    """Return the page of a run.

    Args:
        folder: the run folder, with signals, ledger, curated files and, for the texts of dropped records, staging.
        outputs: names of the run's files.
        report: content of ``report.json``.
        details: content of ``run.json``.
        infos: all stages in order, ``input`` first.
        config: the input section.
        plan: the plan of the input; None where staging was removed.
    """
    from reports.html_examples import rule_examples
    from reports.html_plots import duplicate_views, score_views
    from reports.html_signals import signal_findings
    from reports.html_views import (
        benchmarks,
        funnel,
        groups,
        number,
        overlap,
        share,
        short_count,
        shown_groups,
    )
    from reports.mixture import SHOWN, entry_name, largest_changes, shares_of, sizes_of
    from reports.text_sizes import counted_sizes
    from reports.visible import name_text, visible

    # Reading texts leaves the interpreter to the thread that counts.
    with ThreadPoolExecutor(1) as aside:
        counted = aside.submit(signal_findings, folder, outputs, report, infos)
        examples = rule_examples(folder, outputs, report, infos, config, plan, counted)
        findings = counted.result()
    sizes = sizes_of(report)
    environment = templates()
    environment.filters |= {
        "entry_name": entry_name,
        "name": name_text,
        "visible": visible,
        "short": short_count,
        "value": number,
    }
    environment.globals |= {"share": share}
    page = environment.get_template("report.html.j2").render(
        name=folder.root.rsplit("/", 1)[-1],
        report=report,
        details=details,
        records=report["records"],
        characters=(report["stages"][0]["characters_in"], report["stages"][-1]["characters_out"]),
        stages=funnel(report, infos, findings.thresholds),
        overlap=overlap(report, infos),
        sources=groups(report, "source", shown_groups(report, "source"), findings.characters["source"]),
        languages=groups(report, "language", shown_groups(report, "language"), findings.characters.get("language", {})),
        duplicates=duplicate_views(report, infos, findings.clusters),
        contamination=benchmarks(report),
        signals=findings.signals,
        signals_left_out=findings.left_out,
        scores=score_views(report, findings.thresholds),
        boilerplate=report.get("boilerplate", {}),
        counted=counted_sizes(report),
        mixture=[(group, entry, shares_of(entry, sizes)) for group, entry in largest_changes(report, SHOWN)],
        sizes=sizes,
        quarantine=report.get("quarantine", {}),
        examples=examples,
    )
    return page.encode()
