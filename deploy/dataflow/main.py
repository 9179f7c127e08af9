"""Entry point of the flex template: its parameters as a command line of ``thresher run``; the config may be remote."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from corpus.filesystem import locate, open_file
from pipelines.cli import main


def command_line(argv: Sequence[str], folder: Path) -> list[str]:
    """Return the arguments of ``thresher``; a config on a store is copied into the folder."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--set", default="", help="settings STAGE.KEY=VALUE, separated by semicolons")
    # The launcher names the runner; --engine does so too.
    parser.add_argument("--runner")
    given, rest = parser.parse_known_args(argv)
    config = folder / "config.yaml"
    with open_file(locate(given.config)) as file:
        config.write_bytes(file.read())
    sets = [f"--set={setting}" for setting in given.set.split(";") if setting]
    return ["run", str(config), f"--output={given.output}", *sets, "--engine=dataflow", *rest]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(command_line(sys.argv[1:], Path(folder))))
