"""What the steps of a run need to know: config, folder, plan. It is small and travels with each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from corpus.folder import Folder
from corpus.planning_types import InputPlan
from corpus.stages import Stage
from pipelines.config import RunConfig
from pipelines.passes import Pass, compile_passes

PLAN_NAME = "staging/plan.json"


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        config: the validated config.
        root: path or URI of the run folder.
        planned_rows: rows that the plan expects; exact for Parquet, an estimate for other formats.
        plan_digest: hash of the plan's file, so that a process never takes one run's plan for another's.
    """

    config: RunConfig
    root: str
    planned_rows: int
    plan_digest: str

    @property
    def folder(self) -> Folder:
        """The run folder."""
        return Folder(self.root)

    def passes(self) -> tuple[Pass, ...]:
        """Return the passes, with stages that are not prepared yet."""
        return compile_passes(self.config.build())

    def stage(self, name: str) -> Stage:
        """Return the stage of this name, not prepared."""
        return next(stage for stage in self.config.build() if stage.name == name)

    def plan(self) -> InputPlan:
        """Return the input plan of the run folder; read once per process."""
        return _read_plan(self.root, self.plan_digest)


@lru_cache(maxsize=2)
def _read_plan(root: str, digest: str) -> InputPlan:
    return InputPlan.from_json(Folder(root).read_bytes(PLAN_NAME).decode())
