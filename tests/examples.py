"""Code blocks of Markdown pages, and running them as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}


class Block(NamedTuple):
    """A code block: its language, its text, and the line of the page at which it begins."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    return [Block(found[1], found[2], page.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(page)]


def run_block(block: Block, folder: Path) -> str:
    """Run a block of the language bash or python in a folder, as a reader would; return what it prints.

    A command that fails fails the test, and shows what it printed.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        # Nothing of these pages is on the hub; datasets would count each load there.
        "HF_HUB_OFFLINE": "1",
    }
    command = [*COMMANDS[block.language], block.text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"line {block.line}: {block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_blocks(found: Sequence[Block], folder: Path) -> list[str]:
    """Run the bash and python blocks of a page one after the other in a folder; return what each prints.

    A block ``text`` behind one shows lines of what it prints, white space apart; ``…`` stands for anything.
    """
    printed: list[str] = []
    for block in found:
        if block.language in COMMANDS:
            printed.append(run_block(block, folder))
        elif block.language == "text" and printed:
            lines = {" ".join(line.split()) for line in printed[-1].splitlines()}
            for line in block.text.splitlines():
                shown = " ".join(line.split())
                pattern = re.compile(".*".join(map(re.escape, shown.split("…"))))
                assert any(pattern.fullmatch(other) for other in lines), f"line {block.line}: {line}\n{printed[-1]}"
    return printed
