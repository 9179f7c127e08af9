"""Carry out a run: look at the folder, plan, build the graph, run it, close the books."""

from __future__ import annotations

import hashlib
import platform
import re
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from importlib import metadata
from typing import TYPE_CHECKING, Any

from rich.console import Console

from corpus.canonical import config_hash
from corpus.errors import ThresherError, UsageError
from corpus.folder import Folder
from corpus.planning import plan_input
from corpus.planning_types import InputPlan
from corpus.stages import Stage, measuring_part
from corpus.staging import REFERENCE_BYTES
from corpus.version import VERSION
from dedup.duplicates import DuplicateStage
from pipelines.config import RunConfig, dump_yaml, given_config, semantic_config
from pipelines.finished_run import Run, absolute, load_run
from pipelines.html_report import add_html
from pipelines.local_runner import flush_at_the_end, local_runner, watched_workers
from pipelines.local_workers import fit_to_input, server_of
from pipelines.passes import compile_passes
from pipelines.publishing import check_books, check_earlier_run, check_finished
from pipelines.run_folder import (
    PROFILE_FOLDER,
    begin,
    check_apart,
    check_is_run,
    check_writable,
    file_states,
    inspect,
    locked,
    remove_half_files,
    remove_run,
    remove_staging,
    tidy,
)
from pipelines.runners import Engine, cancel, check_files, choose_engine, connect, failures
from reports.closing import Books, close_books
from reports.fates import stage_infos
from reports.manifest import MANIFEST_NAME
from scorers.best import BestStage
from scorers.scoring import Scorer

if TYPE_CHECKING:
    from pipelines.job import Source
    from pipelines.worker_server import WorkerServer

_PACKAGES = ("corpus", "filters", "dedup", "scorers", "reports", "pipelines")
_LACKING = re.compile(rf"No module named '(?:{'|'.join(_PACKAGES)})(?:\.\w+)*'")
# What a step says that finds out that the config cannot be used.
_USAGE = re.compile(r"^(?:[\w.]*\.)?UsageError: ", re.MULTILINE)
# Measured on the FnApiRunner, which keeps all groups in its memory.
DRIVER_BYTES_PER_SHUFFLED = 5


def planned_rows(plan: InputPlan) -> int:
    """Return the rows that the plan expects: exact for Parquet, from the start of each file for other formats."""
    limited = {item.file: item.limit for item in plan.items if item.limit is not None}
    planned = {item.file for item in plan.items}
    return sum(
        min(file.likely_rows, limited.get(file.file, file.likely_rows)) for file in plan.files if file.file in planned
    )


def needed_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the columns of the user's without which a stage can do nothing, by the setting that names each."""
    return {
        f"stages.{stage.name}.{setting}": column
        for stage in stages
        if isinstance(stage, (DuplicateStage, Scorer, BestStage))
        for setting, column in stage.user_columns().items()
    }


def semantic_of(config: RunConfig, stages: Sequence[Stage], plan: InputPlan) -> dict[str, Any]:
    """Return the semantic config of a run; input files appear as they are called in ledger and manifest."""
    semantic = semantic_config(config, {stage.name: stage.fingerprint() for stage in stages})
    semantic["input"]["files"] = [file.file for file in plan.files]
    return semantic


def execute(
    config: RunConfig,
    beam_arguments: Sequence[str] = (),
    *,
    overwrite: bool = False,
    clean: bool = False,
    profile: bool = False,
    console: Console | None = None,
    source: Source | None = None,
    plan: InputPlan | None = None,
    server: WorkerServer | None = None,
) -> Run:
    """Run a config, go on with an unfinished run, or report a finished one.

    Args:
        config: a checked config with an output.
        beam_arguments: options for the engine and for Beam, as on the command line.
        overwrite: replace a run that is in the folder.
        clean: remove staging when the run is finished.
        profile: measure where the time goes, for ``run.json``.
        console: where progress and notices go; default nowhere.
        source, plan: a finished run whose staging is read instead of the input, and its plan.
        server: of local workers, started before the run and ended with it.

    Raises:
        UsageError: nothing was done, because config, input or output cannot be used.
        ThresherError: the run failed; the same call goes on where it stopped.
    """
    started = time.monotonic()
    console = console or Console(quiet=True)
    if config.output is None:
        raise UsageError("no output: give output: in the config, or --output")
    root = absolute(config.output)
    engine = choose_engine(beam_arguments)
    check_files(engine, root, [source.root] if source else config.input.files)
    check_writable(root)
    folder = Folder(root)
    if overwrite or not folder.exists(MANIFEST_NAME):
        engine = connect(engine)
    stages = config.build()
    plan = plan or plan_input(config.input, needed_columns(stages))
    engine = fit_to_input(engine, beam_arguments, plan, stages)
    check_apart(root, plan)
    semantic = semantic_of(config, stages, plan)
    check_earlier_run(config, root)
    if overwrite:
        check_is_run(folder)
    elif inspect(folder, config, semantic, plan) == "finished":
        check_finished(config, folder)
        console.print(f"{config.output}: finished before with this config and input", markup=False)
        if clean:
            remove_staging(folder)
        return load_run(root)
    with ExitStack() as held:
        server = held.enter_context(server_of(engine, server))
        _prepare(stages, console, source, server)
        held.enter_context(locked(folder))
        if overwrite:
            remove_run(folder)
        state = "new" if overwrite else inspect(folder, config, semantic, plan)
        if state == "finished":
            check_finished(config, folder)
            return load_run(root)
        if state == "unfinished":
            console.print(f"{config.output}: going on with an unfinished run", markup=False)
            tidy(folder)
        else:
            begin(folder, semantic, plan)
        _run_pipeline(config, root, plan, engine, server, console, source, profile)
        if server is not None:
            server.end()
        # Workers that an engine lost and replaced leave half files behind.
        remove_half_files(folder)
        return _finish(config, root, plan, semantic, stages, engine, started, clean)


def _prepare(stages: Sequence[Stage], console: Console, source: Source | None, server: WorkerServer | None) -> None:
    from corpus.jit import is_warm
    from scorers.scoring import ScoreStage

    if stages and not is_warm():
        console.print("compiling kernels: once on this machine, less than a minute")
    for stage in stages:
        part = measuring_part(stage)
        if isinstance(part, ScoreStage):
            part.may_call = source is None or source.allow_calls
        stage.prepare()
    if server is not None:
        # Among them the kernels of the stages.
        server.load(name for name in list(sys.modules) if name.partition(".")[0] in _PACKAGES)


def _run_pipeline(
    config: RunConfig,
    root: str,
    plan: InputPlan,
    engine: Engine,
    server: WorkerServer | None,
    console: Console,
    source: Source | None,
    profile: bool,
) -> None:
    import apache_beam as beam

    from pipelines.beam_options import RememberedOptions
    from pipelines.graph import build
    from pipelines.job import Job
    from pipelines.progress import ProgressBar
    from pipelines.rounds import find_components, overflown

    digest = hashlib.sha256(plan.to_json().encode()).hexdigest()
    job = Job(
        config,
        root,
        planned_rows(plan),
        digest,
        accelerator=engine.accelerator,
        source=source,
        profile=profile,
        shuffles_by_files=engine.is_local and Folder(root).is_local,
    )
    folder = job.folder

    def run_job(fill: Callable[[beam.Pipeline], None]) -> None:
        options = RememberedOptions(list(engine.arguments))
        if engine.is_local:
            flush_at_the_end()
        runner = local_runner(folder, server) if engine.has_own_workers else None
        pipeline = beam.Pipeline(runner=runner, options=options)
        # Beam makes this folder for steps in other languages, of which there are none: a killed run would leave it.
        shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
        fill(pipeline)
        with watched_workers(folder) if engine.is_local else nullcontext():
            _wait(pipeline.run(), engine)

    def run_all() -> None:
        try:
            run_job(lambda pipeline: build(pipeline, job))
        except Exception as error:
            try:
                stage = overflown(folder, config.build())
            except ThresherError:
                stage = None
            if stage is None:
                raise error from None
            find_components(folder, stage, stage.cluster_partitions(job.planned_rows), run_job)
            # What was staged before is read back; each stage of the config can have this at most once.
            run_all()

    with ProgressBar(root, len(plan.items), console):
        try:
            run_all()
        except Exception as error:
            message = failure_message(error, failures(engine))
            if _USAGE.search(f"{type(error).__name__}: {error}"):
                raise UsageError(message) from error
            raise ThresherError(f"{message}\nrun the same command again to go on") from error


def _wait(result: Any, engine: Engine) -> None:
    """Wait for the end of a job; an interruption here ends it on the engine as well."""
    before = None
    if not engine.is_local and threading.current_thread() is threading.main_thread():
        # The command line ends at once on an interruption; a job on an engine has to be cancelled first.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result.wait_until_finish()
        if before is not None:
            signal.signal(signal.SIGINT, before)
    except KeyboardInterrupt:
        if not engine.is_local:
            cancel(engine, result)
        raise


def failure_message(error: BaseException, attempts: Sequence[str] = ()) -> str:
    """Return what happened in a step, without the tracebacks that runners put into their errors.

    Args:
        attempts: the failures of earlier attempts, where the engine keeps them.
    """
    text = f"{type(error).__name__}: {error}"
    if lacking := _LACKING.search("\n".join([*attempts, text])):
        return f"the workers lack Thresher ({lacking[0]}); install it in the Python that runs them"
    lines = re.findall(
        r"^(?:[\w.]*\.)?(\w*(?:Error|Exception|Interrupt|Invalid)): (?!Traceback)(.+)$", text, re.MULTILINE
    )
    if not lines:
        return text
    name, message = lines[-1]
    message = re.sub(r"\s*\[while running .*", "", message)
    while nested := re.match(r"(?:[\w.]*\.)?(\w*(?:Error|Exception|Invalid)): (.+)", message):
        name, message = nested.groups()
    return message if name in ("ThresherError", "UsageError") else f"{name}: {message}"


def _finish(
    config: RunConfig,
    root: str,
    plan: InputPlan,
    semantic: dict[str, Any],
    stages: Sequence[Stage],
    engine: Engine,
    started: float,
    clean: bool,
) -> Run:
    folder = Folder(root)
    infos = stage_infos([(current.number, current.stages) for current in compile_passes(stages)], config.input)
    books = close_books(
        folder,
        files=[file.file for file in plan.files],
        infos=infos,
        has_ids=config.input.id_column is not None,
    )
    check_books(config, plan, books, semantic)
    seconds = time.monotonic() - started
    text_bytes = books.text_bytes
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    details: dict[str, Any] = {
        "seconds": round(seconds, 3),
        "text_bytes": text_bytes,
        "megabytes_per_second": round(text_bytes / 1e6 / seconds, 3),
        "versions": _versions(),
        "engine": engine.name,
        "workers": engine.workers,
        "parallelism": engine.parallelism,
        "beam_options": list(engine.arguments),
        "peak_memory_kib": {"driver": usage[0], "largest_worker": usage[1]},
        "shuffled_bytes": books.shuffled_bytes,
        "scores": books.reused_scores,
        "host": platform.node(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "root": root,
        "given": given_config(config),
        "files": file_states(plan),
        "left_out": list(plan.left_out),
        "warnings": _warnings(config, plan, books, stages),
    }
    outputs = [output.name for output in books.outputs]
    missing = add_html(folder, outputs, books.report, details, infos, config.input, plan)
    if missing is not None:
        details["warnings"].append(missing)
    if folder.names(PROFILE_FOLDER):
        from pipelines.profile import collect

        details["profile"] = collect(folder, seconds, engine.workers)
    books.write(VERSION, semantic, config_hash(semantic), dump_yaml(semantic).encode(), details)
    if clean:
        remove_staging(folder)
    return load_run(root)


def _versions() -> dict[str, str]:
    names = ("apache-beam", "numba", "numpy", "orjson", "pyarrow", "unicodedata2", "xxhash")
    return {"thresher": VERSION, **{name: metadata.version(name) for name in names}}


def _warnings(config: RunConfig, plan: InputPlan, books: Books, stages: Sequence[Stage]) -> list[str]:
    report = books.report
    warnings = [f"the column {name} of the input is called {new} in the output" for name, new in books.renamed.items()]
    for setting in books.columns_nobody_has:
        name = getattr(config.input, setting)
        if name is not None:
            warnings.append(f"no record has a value in {name}, the column that input.{setting} names")
    entries = {entry["name"]: entry for entry in report["stages"]}
    found = {group: report[f"by_{group}"].keys() for group in ("source", "language")}
    for stage in stages:
        entry = entries[stage.name]
        if "notices" in entry:
            counts = {**entry["notices"], "entered": entry["entered"]}
            warnings.extend(f"{stage.name}: {sentence}" for sentence in stage.notices(counts))
        if isinstance(stage, DuplicateStage):
            warnings.extend(f"{stage.name}: {sentence}" for sentence in stage.warnings(found))
    if plan.left_out:
        warnings.append(f"{len(plan.left_out)} files were left out for their names, first {plan.left_out[0]}")
    if report["records"]["read"] == 0:
        warnings.append("the input has no records")
    elif report["records"]["kept"] == 0:
        warnings.append("no record was kept")
    letters = report["dead_letters"]
    if letters and 2 * report["records"]["dead"] > report["records"]["read"]:
        worst = max(letters, key=lambda error: letters[error])
        warnings.append(f"most records are dead letters: {letters[worst]:,} by {worst}; see dead_letters/")
    return warnings


def describe_plan(config: RunConfig) -> dict[str, Any]:
    """Return what a run would do, from file sizes and Parquet footers alone."""
    stages = config.build()
    plan = plan_input(config.input, needed_columns(stages))
    rows = planned_rows(plan)
    size = sum(file.size for file in plan.files)
    passes = compile_passes(stages)
    always = rows * REFERENCE_BYTES // config.batch_rows + (rows * 16 if config.input.id_column is not None else 0)
    corpus_stages = [current.feeds for current in passes if current.feeds is not None]
    shuffled = always + sum(stage.shuffled_bytes(rows) for stage in corpus_stages)
    in_memory = always + sum(stage.shuffled_in_memory(rows) for stage in corpus_stages)
    return {
        "files": len(plan.files),
        "items": len(plan.items),
        "bytes": size,
        "rows": rows,
        "rows_are_exact": all(item.rows is not None for item in plan.items),
        "passes": [[stage.name for stage in current.stages] for current in passes],
        "shuffled_bytes": shuffled,
        "driver_memory_bytes": DRIVER_BYTES_PER_SHUFFLED * in_memory,
        "warnings": [f"left out for its name: {name}" for name in plan.left_out]
        + [f"{file.file}: {file.error}" for file in plan.files if file.error],
    }
