"""What the steps of a run need to know: config, folder, plan. It is small and travels with each step."""

from __future__ import annotations

import platform
import secrets
from dataclasses import dataclass, field
from functools import lru_cache, partial

from corpus.errors import ThresherError
from corpus.folder import Folder
from corpus.planning_types import InputPlan
from corpus.stages import RecordStage, Stage, measuring_part
from corpus.version import VERSION
from pipelines.config import RunConfig
from pipelines.passes import Pass, compile_passes
from scorers.scoring import ScoreStage

PLAN_NAME = "staging/plan.json"


@dataclass(frozen=True)
class Source:
    """A finished run whose staging takes the place of the input.

    Attributes:
        root: its folder.
        reused: stages of the first pass whose signals are taken over.
        allow_calls: whether stages whose calls cost money may make some.
    """

    root: str
    reused: tuple[str, ...]
    allow_calls: bool


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        config: the validated config.
        root: path or URI of the run folder.
        planned_rows: rows that the plan expects; exact for Parquet, an estimate for other formats.
        plan_digest: hash of the plan's file, so that a process never takes one run's plan for another's.
        version: of the Thresher that started the run.
        accelerator: Beam's resource hint for the steps of stages that use a GPU; None for none.
        source: the run that is read instead of the input; None for the input.
        profile: whether steps measure what they take.
        shuffles_by_files: whether large shuffles go by files in staging, because all workers are on this machine and
            the engine would hold them in memory.
    """

    config: RunConfig
    root: str
    planned_rows: int
    plan_digest: str
    version: str = VERSION
    accelerator: str | None = None
    source: Source | None = None
    profile: bool = False
    shuffles_by_files: bool = False
    run: str = field(default_factory=partial(secrets.token_hex, 8), compare=False)
    """Names this start of the run, for what processes keep in memory."""

    @property
    def folder(self) -> Folder:
        """The run folder."""
        return Folder(self.root, self.run)

    def passes(self) -> tuple[Pass, ...]:
        """Return the passes, with stages that are not prepared yet."""
        return compile_passes(self.config.build(check=False))

    def stage(self, name: str) -> Stage:
        """Return the stage of this name, not prepared."""
        return next(stage for stage in self.config.build(check=False) if stage.name == name)

    def record_stage(self, name: str) -> RecordStage:
        """Return the record stage of this name, or the record part of the corpus stage, not prepared."""
        part = measuring_part(self.stage(name))
        assert isinstance(part, RecordStage)
        if isinstance(part, ScoreStage):
            part.run = self.run
        return part

    def plan(self) -> InputPlan:
        """Return the input plan of the run folder; read once per process.

        Raises ThresherError on a worker that has another version, or does not see the run folder.
        """
        if self.version != VERSION:
            raise ThresherError(
                f"the worker on {platform.node()} has Thresher {VERSION}, and {self.version} started the run; install "
                "the same version for all workers"
            )
        return _read_plan(self.root, self.plan_digest)


@lru_cache(maxsize=2)
def _read_plan(root: str, digest: str) -> InputPlan:
    try:
        data = Folder(root).read_bytes(PLAN_NAME)
    except FileNotFoundError:
        raise ThresherError(
            f"the worker on {platform.node()} does not see the run folder {root}; give an output on an object store "
            "(s3://, gs://), or a folder that all workers share"
        ) from None
    return InputPlan.from_json(data.decode())
