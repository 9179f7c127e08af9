"""Config model, compiling stages into passes, the Beam graph, runners, command line.

From Python: ``pipelines.run({"input": {"files": ["*.parquet"]}, "output": "runs/web", "stages": ["language"]})``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.config import RunConfig
    from pipelines.finished_run import Run


def run(
    config: RunConfig | Mapping[str, Any] | Path | str,
    beam_arguments: Sequence[str] = (),
    *,
    overwrite: bool = False,
    clean: bool = False,
) -> Run:
    """Run a config and return the finished run, as ``thresher run`` does.

    Args:
        config: a checked config, its content as a mapping, or the path of a YAML file.
        beam_arguments: options for Beam, as on the command line.
        overwrite: replace a run that is in the output folder.
        clean: remove staging when the run is finished.

    Raises:
        corpus.errors.UsageError: config, input or output cannot be used; nothing was done.
        corpus.errors.ThresherError: the run failed; the same call goes on where it stopped.
    """
    from pipelines.config import RunConfig, config_from_mapping, load_config
    from pipelines.execution import execute

    if isinstance(config, (Path, str)):
        config = load_config(Path(config))
    elif not isinstance(config, RunConfig):
        config = config_from_mapping(config)
    return execute(config, beam_arguments, overwrite=overwrite, clean=clean)
