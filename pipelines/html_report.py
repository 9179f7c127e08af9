"""Make ``report.html``: at the end of a run, and again of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpus.errors import ThresherError, UsageError
from corpus.folder import Folder
from corpus.inputs import InputConfig
from corpus.planning_types import InputPlan
from reports.fates import StageInfo, stage_infos
from reports.html import HTML_NAME, MISSING, can_draw, html_report
from reports.whatif_tables import open_manifest

if TYPE_CHECKING:
    from pipelines.finished_run import Run


def add_html(
    folder: Folder,
    outputs: Sequence[str],
    report: Mapping[str, Any],
    details: Mapping[str, Any],
    infos: Sequence[StageInfo],
    config: InputConfig,
    plan: InputPlan,
) -> str | None:
    """Write the page of a run that is about to be finished; returns why there is none, or None.

    Args:
        outputs: names of the files of curated, ledger and signals.
        report: content of ``report.json``.
        details: content of ``run.json``.
        infos: all stages, ``input`` first.
        config: the input section.
        plan: the plan of the input.
    """
    if not can_draw():
        return MISSING
    try:
        page = html_report(folder, outputs, report, details, infos, config, plan)
    except Exception as error:
        # Everything that the run is for is there; a picture of it that fails must not take it away.
        return f"report.html was not made ({type(error).__name__}: {error}); thresher report RUN --html tries again"
    folder.write_bytes(HTML_NAME, page)
    return None


def write_html(run: Run) -> str:
    """Make the page of a finished run again; returns its path.

    Raises:
        UsageError: the run is damaged or of another version, or what draws the page is not installed.
    """
    from pipelines.job import PLAN_NAME
    from pipelines.passes import compile_passes
    from pipelines.stored_config import stored_config

    if not can_draw():
        raise UsageError(MISSING)
    folder = Folder(run.root)
    config = stored_config(open_manifest(folder)["config"])
    passes = [(one.number, one.stages) for one in compile_passes(config.build(check=False))]
    plan = InputPlan.from_json(folder.read_bytes(PLAN_NAME).decode()) if folder.exists(PLAN_NAME) else None
    outputs = [entry["file"] for entry in run.manifest["outputs"]]
    infos = stage_infos(passes, config.input)
    try:
        page = html_report(folder, outputs, run.report, run.details, infos, config.input, plan)
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"{run.root}: damaged ({error}); thresher verify tells what is wrong") from error
    try:
        folder.write_bytes(HTML_NAME, page)
    except OSError as error:
        raise ThresherError(f"{folder.path(HTML_NAME)}: cannot be written ({error.strerror or error})") from None
    return folder.path(HTML_NAME)
